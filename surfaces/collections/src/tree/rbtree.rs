//! The shape of a red-black tree: every node chooses between two children. No red node is below a
//! red one, and there are as many black nodes above each bucket.

use core::cmp::Ordering;

use holdfast_txn::{Result, Transaction, TxError};

use super::{Inner, Shape, Step, Trail, Tree, inner_word, is_inner, place};
use crate::bucket::split;
use crate::common::Spot;
use crate::format::RbNode;
use crate::item::Sought;
use crate::separator::{Known, Separator, code_of};

/// Most levels of nodes: twice as many as a balanced tree larger than any pool has.
const HEIGHT_MAX: u32 = 96;

/// Red-black trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RedBlack;

impl Inner for RbNode {
    fn children(&self) -> &[u64] {
        &self.children
    }

    fn separators(&self) -> Vec<Separator> {
        vec![self.separator()]
    }

    fn weight(&self) -> u32 {
        1 - self.red
    }

    fn may_be_below(&self, above: Option<&Self>) -> bool {
        self.red == 0 || above.is_some_and(|above| above.red == 0)
    }
}

impl RbNode {
    fn separator(&self) -> Separator {
        Separator { number: self.number, word: self.word }
    }
}

fn read<T: Transaction>(tx: &T, word: u64) -> Result<RbNode> {
    if !is_inner(word) {
        return Err(TxError::Inconsistent("a red-black tree is out of balance"));
    }
    let node: RbNode = tx.read(place(word).typed())?;
    if node.red <= 1 {
        Ok(node)
    } else {
        Err(TxError::Inconsistent("a node of a red-black tree has no colour"))
    }
}

fn write<T: Transaction>(tx: &T, word: u64, node: &RbNode) -> Result<()> {
    *tx.open_mut(place(word).typed())? = *node;
    Ok(())
}

/// The node a word leads to if it is red; buckets are black.
fn red<T: Transaction>(tx: &T, word: u64) -> Result<Option<RbNode>> {
    if is_inner(word) {
        read(tx, word).map(|node| Some(node).filter(|n| n.red == 1))
    } else {
        Ok(None)
    }
}

fn check_level(level: &mut u32) -> Result<()> {
    *level += 1;
    if *level <= HEIGHT_MAX {
        Ok(())
    } else {
        Err(TxError::Inconsistent("a red-black tree is higher than any can be"))
    }
}

/// Makes what led to a node lead elsewhere.
fn relink<T: Transaction>(
    tx: &T,
    tree: &Tree<RedBlack>,
    above: Option<&Step>,
    word: u64,
) -> Result<()> {
    let Some(step) = above else { return tree.set_root(tx, word) };
    let mut node = read(tx, step.node)?;
    node.children[step.index & 1] = word;
    write(tx, step.node, &node)
}

impl Shape for RedBlack {
    const KIND: u32 = 3;
    type Node = RbNode;

    #[inline]
    fn child<T: Transaction>(
        tx: &T,
        node: u64,
        sought: &Sought<'_>,
        (level, known): (&mut u32, &mut Known),
    ) -> Result<u64> {
        check_level(level)?;
        let node: RbNode = tx.read(place(node).typed())?;
        Ok(node.children[Self::route(tx, &node, sought, known)?])
    }

    fn node<T: Transaction>(tx: &T, node: u64, level: &mut u32) -> Result<RbNode> {
        check_level(level)?;
        read(tx, node)
    }

    #[inline]
    fn route<T: Transaction>(
        tx: &T,
        node: &RbNode,
        sought: &Sought<'_>,
        known: &mut Known,
    ) -> Result<usize> {
        let sign = (node.number, code_of(node.word));
        let order = known.compare(tx, sought, sign, || Ok(node.word))?;
        Ok(usize::from(order != Ordering::Less))
    }

    fn grow<T: Transaction>(
        tx: &T,
        tree: &Tree<Self>,
        mut trail: Trail,
        mut spot: Spot,
        sought: &Sought<'_>,
    ) -> Result<()> {
        let (Separator { number, word }, right) = split(tx, &mut spot, sought)?;
        let children = [trail.end, right.word()];
        // The root is black; any other new node is red, which leaves all weights as they are.
        let red = u32::from(!trail.steps.is_empty());
        let fresh = tx.alloc(RbNode { number, word, children, red, reserved: 0 })?;
        let mut word = inner_word(fresh.raw())?;
        relink(tx, tree, trail.steps.last(), word)?;
        while let Some(parent) = trail.steps.pop() {
            let mut above = read(tx, parent.node)?;
            if above.red == 0 {
                return Ok(());
            }
            let Some(grand) = trail.steps.pop() else {
                above.red = 0;
                return write(tx, parent.node, &above);
            };
            let mut top = read(tx, grand.node)?;
            let uncle = top.children[1 - (grand.index & 1)];
            let Some(mut beside) = self::red(tx, uncle)? else {
                let words = [grand.node, parent.node, word];
                let sides = [grand.index & 1, parent.index & 1];
                let word = rotate_red(tx, words, sides)?;
                return relink(tx, tree, trail.steps.last(), word);
            };
            (above.red, beside.red, top.red) = (0, 0, 1);
            if trail.steps.is_empty() {
                top.red = 0;
            }
            write(tx, parent.node, &above)?;
            write(tx, uncle, &beside)?;
            write(tx, grand.node, &top)?;
            word = grand.node;
        }
        Ok(())
    }

    fn detach<T: Transaction>(tx: &T, tree: &Tree<Self>, mut trail: Trail) -> Result<()> {
        let Some(step) = trail.steps.pop() else { return tree.set_root(tx, 0) };
        let node = read(tx, step.node)?;
        let left = node.children[1 - (step.index & 1)];
        relink(tx, tree, trail.steps.last(), left)?;
        node.separator().free(tx)?;
        tx.free(place(step.node))?;
        if node.red == 1 {
            return Ok(());
        }
        if let Some(mut only) = red(tx, left)? {
            only.red = 0;
            return write(tx, left, &only);
        }
        // Below what took its place, one black node is missing.
        while let Some(step) = trail.steps.pop() {
            if lift(tx, tree, &mut trail, step)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Turns a black node, its red child and that one's red child so that the middle one of the three
/// is on top, black, with the others below it, red. `sides` say which children they are.
fn rotate_red<T: Transaction>(
    tx: &T,
    [grand, parent, word]: [u64; 3],
    [s, t]: [usize; 2],
) -> Result<u64> {
    let (mut top, mut middle) = (read(tx, grand)?, read(tx, parent)?);
    top.red = 1;
    if s == t {
        top.children[s] = middle.children[1 - s];
        middle.children[1 - s] = grand;
        middle.red = 0;
        write(tx, grand, &top)?;
        write(tx, parent, &middle)?;
        return Ok(parent);
    }
    let mut node = read(tx, word)?;
    middle.children[1 - s] = node.children[s];
    top.children[s] = node.children[1 - s];
    node.children[s] = parent;
    node.children[1 - s] = grand;
    node.red = 0;
    write(tx, grand, &top)?;
    write(tx, parent, &middle)?;
    write(tx, word, &node)?;
    Ok(word)
}

/// Mends a place below which one black node is missing: child `step.index` of `step.node`. False
/// if it is missing below that node as a whole now.
fn lift<T: Transaction>(
    tx: &T,
    tree: &Tree<RedBlack>,
    trail: &mut Trail,
    step: Step,
) -> Result<bool> {
    let (j, at) = (step.index & 1, step.node);
    let mut node = read(tx, at)?;
    let mut word = node.children[1 - j];
    let mut beside = read(tx, word)?;
    if beside.red == 1 {
        // Turned so that the one beside is black.
        node.children[1 - j] = beside.children[j];
        beside.children[j] = at;
        (node.red, beside.red) = (1, 0);
        write(tx, at, &node)?;
        write(tx, word, &beside)?;
        relink(tx, tree, trail.steps.last(), word)?;
        trail.steps.push(Step { node: word, index: j, ..step });
        word = node.children[1 - j];
        beside = read(tx, word)?;
    }
    let (near, far) = (beside.children[j], beside.children[1 - j]);
    let top = if let Some(mut outer) = red(tx, far)? {
        node.children[1 - j] = near;
        beside.children[j] = at;
        (beside.red, node.red, outer.red) = (node.red, 0, 0);
        write(tx, far, &outer)?;
        word
    } else if let Some(mut inner) = red(tx, near)? {
        beside.children[j] = inner.children[1 - j];
        node.children[1 - j] = inner.children[j];
        inner.children = [at, word];
        if j == 1 {
            inner.children = [word, at];
        }
        (inner.red, node.red) = (node.red, 0);
        write(tx, near, &inner)?;
        near
    } else {
        beside.red = 1;
        let mended = node.red == 1;
        node.red = 0;
        write(tx, at, &node)?;
        return write(tx, word, &beside).map(|()| mended);
    };
    write(tx, at, &node)?;
    write(tx, word, &beside)?;
    relink(tx, tree, trail.steps.last(), top).map(|()| true)
}
