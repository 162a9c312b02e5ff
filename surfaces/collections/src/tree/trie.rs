//! The shapes of crit-bit and radix trees: nodes choose by one *symbol* of the key, a bit or a
//! byte, at the first position where the keys below differ.
//!
//! Positions that all keys below have in common are skipped and not looked at on the way down: a
//! key that differs there is found out when it meets a key of the bucket, and gets a bucket of its
//! own. A bucket may have keys with several symbols next to each other; a node below a node has
//! keys with one symbol only. As buckets fill, they are split between symbols.

use core::marker::PhantomData;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction, TxError};

use super::{Inner, Shape, Step, Trail, Tree, inner_word, is_inner};
use crate::bucket::{Full, move_out};
use crate::common::Spot;
use crate::format::Bucket;
use crate::item::{KeyBuf, Sought, word_of};
use crate::separator::{Known, Separator};

/// What keys are made of, and the nodes that choose by it.
pub(crate) trait Alphabet: Sized {
    /// Code in the header.
    const KIND: u32;

    /// The first position where two keys differ.
    fn difference(a: &[u8], b: &[u8]) -> Option<u32>;

    /// The symbol of a key at a position. At its end, and behind it, keys have the least one.
    fn symbol(key: &[u8], at: u32) -> u16;

    /// The child that leads on to a key, and the position the node chooses by.
    fn child<T: Transaction>(tx: &T, node: u64, key: &Sought<'_>) -> Result<(u64, u32)>;

    /// Reads a node.
    fn read<T: Transaction>(tx: &T, node: u64) -> Result<TrieNode>;

    /// Stores a node that was read from `word`, or is new; returns the word that leads to it, as
    /// nodes that grow or shrink move.
    fn store<T: Transaction>(tx: &T, word: Option<u64>, node: &TrieNode) -> Result<u64>;

    /// Makes one child of a node lead elsewhere.
    fn set_child<T: Transaction>(tx: &T, word: u64, index: usize, child: u64) -> Result<()>;
}

/// An inner node in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrieNode {
    /// The position it chooses by.
    pub(crate) at: u32,
    /// The least symbol of each child but the first, which has the least there is.
    pub(crate) bounds: Vec<u16>,
    pub(crate) children: Vec<u64>,
}

impl TrieNode {
    /// Which child has keys with this symbol.
    pub(crate) fn index_of(&self, symbol: u16) -> usize {
        self.bounds.partition_point(|bound| *bound <= symbol).saturating_sub(1)
    }

    /// Whether it is one a tree can have.
    pub(crate) fn check(self) -> Result<Self> {
        let fits = self.children.len() == self.bounds.len()
            && self.children.len() >= 2
            && self.bounds[0] == 0
            && self.bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if fits {
            Ok(self)
        } else {
            Err(TxError::Inconsistent("a node of a map contradicts itself"))
        }
    }
}

impl Inner for TrieNode {
    fn children(&self) -> &[u64] {
        &self.children
    }

    fn separators(&self) -> Vec<Separator> {
        Vec::new()
    }

    fn weight(&self) -> u32 {
        0
    }

    fn may_be_below(&self, _: Option<&Self>) -> bool {
        true
    }
}

/// Trees that choose by symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Trie<A>(PhantomData<A>);

/// Positions rise on the way down, so the way has an end.
fn check_level(at: u32, level: &mut u32) -> Result<()> {
    if at < *level {
        return Err(TxError::Inconsistent("nodes of a map choose by positions that do not rise"));
    }
    *level = at.checked_add(1).ok_or(TxError::Inconsistent("a position beyond any key"))?;
    Ok(())
}

/// Where a key that is not in the bucket differs from the keys there, if that is before the
/// position their node chooses by; and whether it is greater than they are.
fn apart<A: Alphabet, T: Transaction>(
    tx: &T,
    sought: &Sought<'_>,
    spot: &Spot,
) -> Result<Option<(u32, bool)>> {
    let Some((_, item)) = spot.bucket.used().next().filter(|_| spot.level > 0) else {
        return Ok(None);
    };
    let other = KeyBuf::read(tx, item)?;
    let at = A::difference(sought.key, other.bytes()).filter(|at| at + 1 < spot.level);
    Ok(at.map(|at| (at, sought.key > other.bytes())))
}

/// Makes the node at the end of `steps` lead to `word` where it led down, or the root.
fn relink<A: Alphabet, T: Transaction>(
    tx: &T,
    tree: &Tree<Trie<A>>,
    steps: &[Step],
    word: u64,
) -> Result<()> {
    match steps.last() {
        Some(step) => A::set_child(tx, step.node, step.index, word),
        None => tree.set_root(tx, word),
    }
}

/// Stores a node in place of the one at the end of `steps`, and makes the one above lead to it.
fn restore<A: Alphabet, T: Transaction>(
    tx: &T,
    tree: &Tree<Trie<A>>,
    steps: &[Step],
    word: u64,
    node: &TrieNode,
) -> Result<()> {
    let stored = A::store(tx, Some(word), node)?;
    if stored == word { Ok(()) } else { relink(tx, tree, steps, stored) }
}

impl Trail {
    /// How many nodes choose by positions up to `at`: each has gone where the level after it is.
    fn nodes_up_to(&self, at: u32) -> usize {
        let after = self.steps.iter().skip(1).map(|step| step.level).chain([self.level]);
        after.take_while(|level| *level <= at + 1).count().min(self.steps.len())
    }
}

impl<A: Alphabet> Shape for Trie<A> {
    const KIND: u32 = A::KIND;
    type Node = TrieNode;

    #[inline]
    fn child<T: Transaction>(
        tx: &T,
        node: u64,
        sought: &Sought<'_>,
        (level, _): (&mut u32, &mut Known),
    ) -> Result<u64> {
        let (child, at) = A::child(tx, node, sought)?;
        check_level(at, level)?;
        Ok(child)
    }

    fn node<T: Transaction>(tx: &T, node: u64, level: &mut u32) -> Result<TrieNode> {
        let node = A::read(tx, node)?.check()?;
        check_level(node.at, level)?;
        Ok(node)
    }

    fn route<T: Transaction>(
        _: &T,
        node: &TrieNode,
        sought: &Sought<'_>,
        _: &mut Known,
    ) -> Result<usize> {
        Ok(node.index_of(A::symbol(sought.key, node.at)))
    }

    #[inline]
    fn takes<T: Transaction>(tx: &T, sought: &Sought<'_>, spot: &Spot) -> Result<bool> {
        Ok(apart::<A, T>(tx, sought, spot)?.is_none())
    }

    fn leaves<T: Transaction>(
        tx: &T,
        trail: &Trail,
        sought: &Sought<'_>,
        spot: &Spot,
    ) -> Result<Option<(usize, bool)>> {
        let Some((at, greater)) = apart::<A, T>(tx, sought, spot)? else { return Ok(None) };
        // Nodes that choose by a position up to `at` have the key and the others below them; one
        // that chooses by `at` itself has them below the same child.
        Ok(Some((trail.nodes_up_to(at), greater)))
    }

    fn grow<T: Transaction>(
        tx: &T,
        tree: &Tree<Self>,
        mut trail: Trail,
        mut spot: Spot,
        sought: &Sought<'_>,
    ) -> Result<()> {
        if let Some((at, greater)) = apart::<A, T>(tx, sought, &spot)? {
            return branch_off::<A, T>(tx, tree, trail, sought, (at, greater));
        }
        let sorted = spot.bucket.sorted(tx)?;
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
            return Err(TxError::Inconsistent("an empty bucket has no room"));
        };
        let Some(at) = A::difference(first.key.bytes(), last.key.bytes()) else {
            return Err(TxError::Inconsistent("a key is in a bucket twice"));
        };
        let cut = middle::<A>(&sorted, at);
        let bound = A::symbol(sorted[cut].key.bytes(), at);
        let leaving = sorted[cut..].iter().map(|full| full.slot);
        let right = move_out(tx, spot.at, &mut spot.bucket, Bucket::EMPTY, leaving)?;
        let right = word_of(right)?;
        if let Some(step) = trail.steps.pop() {
            let mut node = A::read(tx, step.node)?.check()?;
            if node.at == at {
                node.bounds.insert(step.index + 1, bound);
                node.children.insert(step.index + 1, right);
                return restore(tx, tree, &trail.steps, step.node, &node);
            }
            trail.steps.push(step);
        }
        let node = TrieNode { at, bounds: vec![0, bound], children: vec![trail.end, right] };
        let word = A::store(tx, None, &node)?;
        relink(tx, tree, &trail.steps, word)
    }

    fn detach<T: Transaction>(tx: &T, tree: &Tree<Self>, mut trail: Trail) -> Result<()> {
        let Some(step) = trail.steps.pop() else { return tree.set_root(tx, 0) };
        let mut node = A::read(tx, step.node)?.check()?;
        let index = step.index.min(node.children.len() - 1);
        node.children.remove(index);
        node.bounds.remove(index);
        node.bounds[0] = 0;
        if let [only] = node.children[..] {
            tx.free(super::place(step.node))?;
            return relink(tx, tree, &trail.steps, only);
        }
        restore(tx, tree, &trail.steps, step.node, &node)
    }
}

/// Where to cut sorted items that differ at `at` first: between two symbols there, as near to the
/// middle as can be.
fn middle<A: Alphabet>(sorted: &[Full], at: u32) -> usize {
    let symbol = |i: usize| A::symbol(sorted[i].key.bytes(), at);
    let cuts = (1..sorted.len()).filter(|i| symbol(i - 1) != symbol(*i));
    // There is one: the first and the last item differ.
    cuts.min_by_key(|i| i.abs_diff(sorted.len() / 2)).unwrap_or(1)
}

/// Makes an empty bucket for a key that differs at `at` from all keys further down the trail.
fn branch_off<A: Alphabet, T: Transaction>(
    tx: &T,
    tree: &Tree<Trie<A>>,
    mut trail: Trail,
    sought: &Sought<'_>,
    (at, greater): (u32, bool),
) -> Result<()> {
    let steps = trail.nodes_up_to(at);
    let fresh = word_of(tx.alloc(Bucket::EMPTY)?.raw())?;
    let symbol = A::symbol(sought.key, at);
    // The last node with a position up to `at`.
    if let Some(step) = steps.checked_sub(1).and_then(|i| trail.steps.get(i)).copied() {
        let mut node = A::read(tx, step.node)?.check()?;
        if node.at == at {
            // The child it came to has other symbols only, all on one side.
            let index = step.index + usize::from(greater);
            if greater {
                node.bounds.insert(index, symbol);
            } else {
                // What was there begins behind the symbol.
                node.bounds.insert(index + 1, symbol + 1);
            }
            node.children.insert(index, fresh);
            trail.steps.truncate(steps - 1);
            return restore(tx, tree, &trail.steps, step.node, &node);
        }
    }
    trail.cut(steps);
    let children = if greater { vec![trail.end, fresh] } else { vec![fresh, trail.end] };
    let bound = if greater { symbol } else { symbol + 1 };
    let word = A::store(tx, None, &TrieNode { at, bounds: vec![0, bound], children })?;
    relink(tx, tree, &trail.steps, word)
}

/// What a stored node is checked for before its parts are used.
pub(super) fn check_node(fits: bool) -> Result<()> {
    if fits { Ok(()) } else { Err(TxError::Inconsistent("a node of a map contradicts itself")) }
}

/// The word that leads to a new node whose size has `code`.
pub(super) fn node_word(node: RawPtr, code: u64) -> Result<u64> {
    Ok(inner_word(node)? | code << 1)
}

/// The code in a word that leads to a node.
pub(super) fn code_of(word: u64) -> u64 {
    debug_assert!(is_inner(word));
    word >> 1 & 7
}
