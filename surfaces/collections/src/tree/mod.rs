//! What B-trees, red-black trees, crit-bit trees and radix trees have in common: inner nodes with
//! children in order of keys, and buckets at the bottom.
//!
//! A lookup goes down without looking back. Only who changes inner nodes, because a bucket is full
//! or has become thin, goes down again and keeps the way, the *trail*.

pub(crate) mod btree;
mod check;
pub(crate) mod crit;
pub(crate) mod radix;
mod range_node;
pub(crate) mod rbtree;
#[cfg(test)]
mod tests;
mod trie;

use core::marker::PhantomData;
use std::collections::BTreeSet;

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use crate::bucket::join;
use crate::common::{Core, MERGED_MAX, OpenHeader, Spot, Stretch, Walk};
use crate::format::{Bucket, TreeHeader};
use crate::item::{Sought, TAG_MASK, word_of};
use crate::report::CheckReport;
use crate::separator::{Known, Separator};

/// Set in words that lead to inner nodes.
const INNER: u64 = 1;

/// A tree of some shape.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tree<S> {
    header: Ptr<TreeHeader>,
    shape: PhantomData<fn() -> S>,
}

impl<S> Clone for Tree<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Tree<S> {}

/// An inner node in memory.
pub(crate) trait Inner {
    /// What its children's words are, in order; never empty.
    fn children(&self) -> &[u64];

    /// Its separators that are entries.
    fn separators(&self) -> Vec<Separator>;

    /// How much it adds to the weight of buckets below, which is the same for all of them.
    fn weight(&self) -> u32;

    /// Whether it may be a child of a node like this.
    fn may_be_below(&self, above: Option<&Self>) -> bool;
}

/// In what trees differ.
pub(crate) trait Shape: Sized {
    /// Code in the header.
    const KIND: u32;

    /// An inner node in memory.
    type Node: Inner;

    /// The child of a node that leads on to a key. `level` rises at each step, or it is an error;
    /// `known` is what the steps before found out about the key.
    fn child<T: Transaction>(
        tx: &T,
        node: u64,
        sought: &Sought<'_>,
        way: (&mut u32, &mut Known),
    ) -> Result<u64>;

    /// Reads all of a node; `level` as in `child`.
    fn node<T: Transaction>(tx: &T, node: u64, level: &mut u32) -> Result<Self::Node>;

    /// Which child leads on to a key; `known` as in `child`.
    fn route<T: Transaction>(
        tx: &T,
        node: &Self::Node,
        sought: &Sought<'_>,
        known: &mut Known,
    ) -> Result<usize>;

    /// Whether a key belongs into the bucket it was looked for in. Where separators part the keys,
    /// each does.
    fn takes<T: Transaction>(_: &T, _: &Sought<'_>, _: &Spot) -> Result<bool> {
        Ok(true)
    }

    /// Whether a key would have left the trail before its end: after how many steps, and whether
    /// it is greater than all keys further down.
    fn leaves<T: Transaction>(
        _: &T,
        _: &Trail,
        _: &Sought<'_>,
        _: &Spot,
    ) -> Result<Option<(usize, bool)>> {
        Ok(None)
    }

    /// Splits the bucket at the end of the trail, or makes one for a key it does not take.
    fn grow<T: Transaction>(
        tx: &T,
        tree: &Tree<Self>,
        trail: Trail,
        spot: Spot,
        sought: &Sought<'_>,
    ) -> Result<()>;

    /// Takes the child at the end of the trail out of its node. What belonged there belongs to a
    /// child beside it from now on.
    fn detach<T: Transaction>(tx: &T, tree: &Tree<Self>, trail: Trail) -> Result<()>;
}

/// A step down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// The node.
    pub(crate) node: u64,
    /// The child that was taken.
    pub(crate) index: usize,
    /// Of how many.
    pub(crate) count: usize,
    /// The level before.
    pub(crate) level: u32,
}

/// The way down to a bucket.
#[derive(Debug, Clone)]
pub(crate) struct Trail {
    pub(crate) steps: Vec<Step>,
    /// The word that leads to the bucket.
    pub(crate) end: u64,
    /// The level there.
    pub(crate) level: u32,
}

/// The pointer in a word that leads to an inner node.
fn place(word: u64) -> RawPtr {
    RawPtr::from_word(word & !TAG_MASK)
}

fn is_inner(word: u64) -> bool {
    word & INNER != 0
}

/// The word that leads to a new node.
fn inner_word(node: RawPtr) -> Result<u64> {
    Ok(word_of(node)? | INNER)
}

impl<S: Shape> Tree<S> {
    /// The word of the root; zero if the tree is empty.
    #[inline]
    fn root<T: Transaction>(&self, tx: &T) -> Result<u64> {
        let header = tx.read(self.header)?;
        if header.kind == S::KIND {
            Ok(header.root)
        } else {
            Err(TxError::Inconsistent("a tree is of another kind than its map says"))
        }
    }

    fn set_root<T: Transaction>(&self, tx: &T, root: u64) -> Result<()> {
        tx.update(self.header, |header| header.root = root)
    }

    /// The way to the bucket of a key; the tree is not empty.
    fn trail<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<Trail> {
        let mut trail = Trail { steps: Vec::new(), end: self.root(tx)?, level: 0 };
        let mut known = Known::default();
        while is_inner(trail.end) {
            let level = trail.level;
            let node = S::node(tx, trail.end, &mut trail.level)?;
            trail.take(&node, S::route(tx, &node, sought, &mut known)?, level);
        }
        Ok(trail)
    }

    /// The way to the first bucket, or the last.
    fn edge<T: Transaction>(&self, tx: &T, last: bool) -> Result<Trail> {
        let mut trail = Trail { steps: Vec::new(), end: self.root(tx)?, level: 0 };
        trail.descend::<S, T>(tx, last)?;
        Ok(trail)
    }

    /// The way to the bucket around a key: what is before it is less, what is behind it greater.
    fn around<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Trail> {
        let sought = Sought::ordered(key);
        let mut trail = self.trail(tx, &sought)?;
        let mut spot = Spot::new();
        spot.level = trail.level;
        spot.go(tx, trail.bucket())?;
        if let Some((steps, greater)) = S::leaves(tx, &trail, &sought, &spot)? {
            trail.cut(steps);
            trail.descend::<S, T>(tx, greater)?;
        }
        Ok(trail)
    }

    /// Calls `bucket` with every bucket, in order, and `inner` with every node that leads to them,
    /// before. Ends early if `bucket` returns `false`. A node that is reached twice is an error,
    /// or there might be no end.
    fn each<T: Transaction>(
        &self,
        tx: &T,
        mut inner: impl FnMut(u64, &S::Node) -> Result<()>,
        mut bucket: impl FnMut(Ptr<Bucket>, &Bucket) -> Result<bool>,
    ) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut open = vec![(self.root(tx)?, 0)];
        while let Some((word, mut level)) = open.pop() {
            if word == 0 {
                continue;
            }
            if !seen.insert(word) {
                return Err(TxError::Inconsistent("a node of a tree is reached twice"));
            }
            if is_inner(word) {
                let node = S::node(tx, word, &mut level)?;
                open.extend(node.children().iter().rev().map(|child| (*child, level)));
                inner(word, &node)?;
            } else {
                let at = RawPtr::from_word(word).typed();
                if !bucket(at, &tx.read(at)?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Joins the bucket at the end of the trail with one beside it, if both are thin.
    fn join_beside<T: Transaction>(
        &self,
        tx: &T,
        trail: &mut Trail,
        bucket: &Bucket,
    ) -> Result<bool> {
        let Some(step) = trail.steps.last_mut() else { return Ok(false) };
        let node = S::node(tx, step.node, &mut step.level.clone())?;
        let beside = [step.index.checked_sub(1), step.index.checked_add(1)];
        for index in beside.into_iter().flatten() {
            let Some(word) = node.children().get(index).copied().filter(|word| !is_inner(*word))
            else {
                continue;
            };
            let other: Bucket = tx.read(RawPtr::from_word(word).typed())?;
            if other.len() + bucket.len() > MERGED_MAX {
                continue;
            }
            let own = RawPtr::from_word(trail.end);
            if index < step.index {
                join(tx, RawPtr::from_word(word).typed(), other, bucket)?;
                tx.free(own)?;
            } else {
                join(tx, own.typed(), *bucket, &other)?;
                tx.free(RawPtr::from_word(word))?;
                step.index = index;
            }
            return Ok(true);
        }
        Ok(false)
    }
}

impl Trail {
    /// The bucket at the end.
    fn bucket(&self) -> Ptr<Bucket> {
        RawPtr::from_word(self.end).typed()
    }

    fn take(&mut self, node: &impl Inner, index: usize, level: u32) {
        let children = node.children();
        let index = index.min(children.len() - 1);
        self.steps.push(Step { node: self.end, index, count: children.len(), level });
        self.end = children[index];
    }

    /// Goes back to the node, or bucket, that `steps` lead to.
    fn cut(&mut self, steps: usize) {
        if let Some(step) = self.steps.get(steps) {
            (self.end, self.level) = (step.node, step.level);
            self.steps.truncate(steps);
        }
    }

    /// Goes down to the first bucket below, or the last.
    fn descend<S: Shape, T: Transaction>(&mut self, tx: &T, last: bool) -> Result<()> {
        while is_inner(self.end) {
            let level = self.level;
            let node = S::node(tx, self.end, &mut self.level)?;
            self.take(&node, if last { usize::MAX } else { 0 }, level);
        }
        Ok(())
    }

    /// Goes on to the next bucket, or the one before; `false` if there is none.
    fn further<S: Shape, T: Transaction>(&mut self, tx: &T, back: bool) -> Result<bool> {
        while let Some(step) = self.steps.pop() {
            let index = if back { step.index.checked_sub(1) } else { Some(step.index + 1) };
            let Some(index) = index.filter(|index| *index < step.count) else { continue };
            (self.end, self.level) = (step.node, step.level);
            let node = S::node(tx, step.node, &mut self.level)?;
            self.take(&node, index, step.level);
            self.descend::<S, T>(tx, back)?;
            return Ok(true);
        }
        Ok(false)
    }
}

impl<S: Shape> Core for Tree<S> {
    fn anchor(&self) -> RawPtr {
        self.header.raw()
    }

    #[inline]
    fn sought<'k>(&self, key: &'k [u8]) -> Sought<'k> {
        Sought::ordered(key)
    }

    #[inline]
    fn place<T: Transaction>(
        &self,
        tx: &T,
        sought: &Sought<'_>,
        level: &mut u32,
    ) -> Result<Option<Ptr<Bucket>>> {
        let root = self.root(tx)?;
        if root == 0 {
            return Ok(None);
        }
        let mut word = root;
        *level = 0;
        let mut known = Known::default();
        while is_inner(word) {
            word = S::child(tx, word, sought, (level, &mut known))?;
        }
        Ok(Some(RawPtr::from_word(word).typed()))
    }

    fn takes<T: Transaction>(&self, tx: &T, sought: &Sought<'_>, spot: &Spot) -> Result<bool> {
        S::takes(tx, sought, spot)
    }

    fn make_room<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        if self.root(tx)? == 0 {
            return self.set_root(tx, word_of(tx.alloc(Bucket::EMPTY)?.raw())?);
        }
        let trail = self.trail(tx, sought)?;
        let mut spot = Spot::new();
        spot.level = trail.level;
        spot.go(tx, trail.bucket())?;
        S::grow(tx, self, trail, spot, sought)
    }

    fn tidy<T: Transaction>(&self, tx: &T, sought: &Sought<'_>) -> Result<()> {
        let mut trail = self.trail(tx, sought)?;
        let bucket = tx.read(trail.bucket())?;
        if self.join_beside(tx, &mut trail, &bucket)? {
            return S::detach(tx, self, trail);
        }
        if bucket.len() > 0 {
            return Ok(());
        }
        tx.free(trail.bucket().raw())?;
        if trail.steps.is_empty() { self.set_root(tx, 0) } else { S::detach(tx, self, trail) }
    }

    fn each_bucket<T: Transaction>(
        &self,
        tx: &T,
        mut visit: impl FnMut(&Bucket) -> Result<bool>,
    ) -> Result<()> {
        self.each(tx, |_, _| Ok(()), |_, bucket| visit(bucket))
    }

    fn empty_out<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.each(
            tx,
            |word, node| {
                node.separators().iter().try_for_each(|separator| separator.free(tx))?;
                tx.free(place(word))
            },
            |at, bucket| {
                bucket.free_entries(tx)?;
                tx.free(at.raw()).map(|()| true)
            },
        )?;
        self.set_root(tx, 0)
    }

    fn check_all<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        check::check(tx, self)
    }
}

impl<S: Shape> Walk for Tree<S> {
    fn rank(&self, _: &[u8]) -> u64 {
        0
    }

    fn items_at<T: Transaction>(
        &self,
        tx: &T,
        key: Option<&[u8]>,
        back: bool,
        further: bool,
    ) -> Result<Option<Stretch>> {
        if self.root(tx)? == 0 {
            return Ok(None);
        }
        let mut trail = match key {
            Some(key) => self.around(tx, key)?,
            None => self.edge(tx, back)?,
        };
        if further && !trail.further::<S, T>(tx, back)? {
            return Ok(None);
        }
        Stretch::read(tx, trail.bucket()).map(Some)
    }
}

impl<S: Shape> OpenHeader<TreeHeader> for Tree<S> {
    fn create_header<T: Transaction>(tx: &T) -> Result<Self> {
        let header = tx.alloc(TreeHeader { root: 0, kind: S::KIND, reserved: 0 })?;
        Ok(Self { header, shape: PhantomData })
    }

    fn open_header<T: Transaction>(tx: &T, header: Ptr<TreeHeader>) -> Result<Self> {
        let this = Self { header, shape: PhantomData };
        this.root(tx).map(|_| this)
    }
}
