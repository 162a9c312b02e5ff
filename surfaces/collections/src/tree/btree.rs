//! The shape of a B-tree: few levels, each choosing among up to 42 children.

use holdfast_layout::{RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use super::range_node::{choose, choose_coded};
use super::{Inner, Shape, Trail, Tree, inner_word, place};
use crate::bucket::split;
use crate::common::Spot;
use crate::format::{
    BTREE_CHILDREN, BTREE_CHOICE, BTREE_SEPARATORS, BTreeNode, btree_child, btree_word,
};
use crate::item::Sought;
use crate::separator::{Known, Separator, code_of};

/// Most levels of nodes. A tree of that height is larger than any pool.
const HEIGHT_MAX: u32 = 32;
/// A node with fewer children joins one beside it, if they fit together.
const THIN: usize = BTREE_CHILDREN / 4;

/// B-trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Branching;

/// An inner node in memory.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    separators: Vec<Separator>,
    children: Vec<u64>,
}

impl Inner for Node {
    fn children(&self) -> &[u64] {
        &self.children
    }

    fn separators(&self) -> Vec<Separator> {
        self.separators.clone()
    }

    fn weight(&self) -> u32 {
        1
    }

    fn may_be_below(&self, _: Option<&Self>) -> bool {
        true
    }
}

impl Node {
    fn store(&self) -> BTreeNode {
        let mut node = BTreeNode {
            count: self.children.len() as u32,
            coded: u32::from(self.is_coded()),
            numbers: [0; BTREE_SEPARATORS],
            children: [0; BTREE_CHILDREN],
            words: [0; BTREE_SEPARATORS],
        };
        node.children[..self.children.len()].copy_from_slice(&self.children);
        for (i, separator) in self.separators.iter().enumerate() {
            (node.numbers[i], node.words[i]) = (separator.number, separator.word);
        }
        node
    }

    /// Whether the number of some separator is not of its first bytes.
    fn is_coded(&self) -> bool {
        self.separators.iter().any(|separator| code_of(separator.word) != 0)
    }

    /// Takes out a child and the separator beside it.
    fn remove(&mut self, index: usize) -> Option<Separator> {
        self.children.remove(index);
        let separator = index.saturating_sub(1);
        (separator < self.separators.len()).then(|| self.separators.remove(separator))
    }
}

fn check_level(level: &mut u32) -> Result<()> {
    *level += 1;
    if *level <= HEIGHT_MAX {
        Ok(())
    } else {
        Err(TxError::Inconsistent("a B-tree is higher than any can be"))
    }
}

fn check_count(count: u32) -> Result<usize> {
    let count = count as usize;
    if (1..=BTREE_CHILDREN).contains(&count) {
        Ok(count)
    } else {
        Err(TxError::Inconsistent("a B-tree node has an impossible number of children"))
    }
}

fn read_word<T: Transaction>(tx: &T, node: RawPtr, at: u64) -> Result<u64> {
    let mut word = [0; 8];
    tx.read_bytes(node, at, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn write<T: Transaction>(tx: &T, word: u64, node: &Node) -> Result<()> {
    *tx.open_mut(place(word).typed())? = node.store();
    Ok(())
}

fn read<T: Transaction>(tx: &T, word: u64) -> Result<Node> {
    Branching::node(tx, word, &mut 0)
}

impl Shape for Branching {
    const KIND: u32 = 2;
    type Node = Node;

    #[inline]
    fn child<T: Transaction>(
        tx: &T,
        node: u64,
        sought: &Sought<'_>,
        (level, known): (&mut u32, &mut Known),
    ) -> Result<u64> {
        check_level(level)?;
        let node = place(node);
        let mut words = [0_u64; BTREE_CHOICE / 8];
        tx.read_bytes(node, 0, bytemuck::bytes_of_mut(&mut words))?;
        // The count is the lower half of the first word.
        let count = check_count(u64::from_le(words[0]) as u32)?;
        let numbers = &words[1..count];
        let index = if u64::from_le(words[0]) >> 32 == 0 {
            choose(tx, sought, known, numbers, |at| read_word(tx, node, btree_word(at)))?
        } else {
            let mut words = [0_u64; BTREE_SEPARATORS];
            tx.read_bytes(node, btree_word(0), bytemuck::bytes_of_mut(&mut words))?;
            choose_coded(tx, sought, known, |at| (numbers[at], words[at]), numbers.len())?
        };
        read_word(tx, node, btree_child(index))
    }

    fn node<T: Transaction>(tx: &T, node: u64, level: &mut u32) -> Result<Node> {
        check_level(level)?;
        let stored: BTreeNode = tx.read(place(node).typed())?;
        let count = check_count(stored.count)?;
        let pairs = stored.numbers.iter().zip(&stored.words).take(count - 1);
        let node = Node {
            separators: pairs.map(|(n, w)| Separator { number: *n, word: *w }).collect(),
            children: stored.children[..count].to_vec(),
        };
        if stored.coded == u32::from(node.is_coded()) {
            Ok(node)
        } else {
            Err(TxError::Inconsistent("a B-tree node says wrongly what its numbers are"))
        }
    }

    fn route<T: Transaction>(
        tx: &T,
        node: &Node,
        sought: &Sought<'_>,
        known: &mut Known,
    ) -> Result<usize> {
        let separators = &node.separators;
        if node.is_coded() {
            let pair = |at: usize| (separators[at].number, separators[at].word);
            return choose_coded(tx, sought, known, pair, separators.len());
        }
        let numbers: Vec<u64> = separators.iter().map(|s| s.number).collect();
        choose(tx, sought, known, &numbers, |at| Ok(separators[at].word))
    }

    fn grow<T: Transaction>(
        tx: &T,
        tree: &Tree<Self>,
        mut trail: Trail,
        mut spot: Spot,
        sought: &Sought<'_>,
    ) -> Result<()> {
        let at_end = trail.steps.iter().all(|step| step.index + 1 == step.count);
        let (mut separator, right) = split(tx, &mut spot, sought)?;
        let mut right = right.word();
        while let Some(step) = trail.steps.pop() {
            let mut node = read(tx, step.node)?;
            node.separators.insert(step.index.min(node.separators.len()), separator);
            node.children.insert((step.index + 1).min(node.children.len()), right);
            let len = node.children.len();
            if len <= BTREE_CHILDREN {
                return write(tx, step.node, &node);
            }
            // Keys that come in order only ever reach the last node: it is left nearly full.
            let cut = if at_end { len - len / 8 } else { len / 2 };
            let children = node.children.split_off(cut);
            let separators = node.separators.split_off(cut);
            let Some(middle) = node.separators.pop() else { break };
            write(tx, step.node, &node)?;
            separator = middle;
            right = inner_word(tx.alloc(Node { separators, children }.store())?.raw())?;
        }
        let children = vec![tree.root(tx)?, right];
        let root = Node { separators: vec![separator], children };
        tree.set_root(tx, inner_word(tx.alloc(root.store())?.raw())?)
    }

    fn detach<T: Transaction>(tx: &T, tree: &Tree<Self>, mut trail: Trail) -> Result<()> {
        let Some(mut step) = trail.steps.pop() else { return tree.set_root(tx, 0) };
        let mut node = read(tx, step.node)?;
        let mut gone = node.remove(step.index.min(node.children.len() - 1));
        loop {
            // One that moved down to a node is no longer here, and not freed.
            if let Some(separator) = gone {
                separator.free(tx)?;
            }
            let Some(above) = trail.steps.pop() else {
                if node.children.len() > 1 {
                    return write(tx, step.node, &node);
                }
                tx.free(place(step.node))?;
                return tree.set_root(tx, node.children.first().copied().unwrap_or(0));
            };
            if node.children.len() >= THIN {
                return write(tx, step.node, &node);
            }
            let mut parent = read(tx, above.node)?;
            let own = above.index.min(parent.children.len() - 1);
            if node.children.is_empty() {
                tx.free(place(step.node))?;
                gone = parent.remove(own);
            } else if let Some(left) = join(tx, &parent, own, (step.node, &node))? {
                parent.remove(left + 1);
                gone = None;
            } else {
                return write(tx, step.node, &node);
            }
            (step, node) = (above, parent);
        }
    }
}

/// Joins a node, child `own` of its parent, with one beside it; returns which of them was the
/// left one. The separator between them moves down.
fn join<T: Transaction>(
    tx: &T,
    parent: &Node,
    own: usize,
    (word, node): (u64, &Node),
) -> Result<Option<usize>> {
    for left in [own.checked_sub(1), Some(own)].into_iter().flatten() {
        let (Some(separator), Some(beside)) = (
            parent.separators.get(left),
            parent.children.get(if left < own { left } else { own + 1 }),
        ) else {
            continue;
        };
        let other = read(tx, *beside)?;
        if node.children.len() + other.children.len() > BTREE_CHILDREN {
            continue;
        }
        let (at, first, gone, second) =
            if left < own { (*beside, &other, word, node) } else { (word, node, *beside, &other) };
        let mut joined = first.clone();
        joined.separators.push(*separator);
        joined.separators.extend_from_slice(&second.separators);
        joined.children.extend_from_slice(&second.children);
        write(tx, at, &joined)?;
        tx.free(place(gone))?;
        return Ok(Some(left));
    }
    Ok(None)
}
