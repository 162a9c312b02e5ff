//! How a tree shrinks: a node that has become thin joins its sibling, or evens out with it.

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction};

use super::insert::{sharpen, store};
use super::node::Node;
use super::{BTree, Path, Place, read_inner, read_leaf};
use crate::entry::EntryBuf;
use crate::format::BTreeHeader;

/// A node with fewer items than this part of its capacity is thin.
const THIN: usize = 3;

impl BTree {
    /// Removes the item at `place`, where its key was found.
    pub(super) fn remove_at<T: Transaction>(
        &self,
        tx: &T,
        header: BTreeHeader,
        place: Place,
    ) -> Result<()> {
        let Place { mut path, node, level, index, .. } = place;
        if level == 0 {
            let mut leaf = Node::of_leaf(&read_leaf(tx, node)?);
            leaf.remove(index);
            return self.thin_out(tx, header, path, node, leaf);
        }
        // The entry before it, the last one below the child on its left, takes its place.
        let mut inner = Node::of_inner(&read_inner(tx, node, level)?);
        path.push(node, index, inner.items().len());
        let mut at = inner.children()[index];
        for below in (1..level).rev() {
            let step = read_inner(tx, at, below)?;
            let count = step.items().len();
            path.push(at, count, count);
            at = step.children[count];
        }
        let mut leaf = Node::of_leaf(&read_leaf(tx, at)?);
        let before = leaf.remove(leaf.items().len() - 1);
        let key = EntryBuf::read(tx, before.entry)?.head();
        inner.set(index, &key, before.entry);
        store(tx, node, &inner)?;
        self.thin_out(tx, header, path, at, leaf)
    }

    /// Stores a node that has lost an item, and what follows from that above it.
    fn thin_out<T: Transaction>(
        &self,
        tx: &T,
        header: BTreeHeader,
        mut path: Path,
        mut place: RawPtr,
        mut node: Node,
    ) -> Result<()> {
        while node.items().len() < node.capacity() / THIN {
            let Some(step) = path.pop() else { break };
            let mut parent = Node::of_inner(&read_inner(tx, step.node, node.level + 1)?);
            // With the sibling on its left, or the first child with the one on its right.
            let index = step.child.saturating_sub(1);
            let (first, second) = (parent.children()[index], parent.children()[index + 1]);
            let (mut left, right) = if step.child == 0 {
                let right = read_node(tx, second, node.level)?;
                (node, right)
            } else {
                (read_node(tx, first, node.level)?, node)
            };
            let between = parent.items()[index].entry;
            left.join(&EntryBuf::read(tx, between)?.head(), between, right);
            if left.items().len() > left.capacity() {
                let (middle, mut right) = left.split(left.items().len() / 2);
                sharpen(tx, &mut left)?;
                sharpen(tx, &mut right)?;
                store(tx, first, &left)?;
                store(tx, second, &right)?;
                let key = EntryBuf::read(tx, middle.entry)?.head();
                parent.set(index, &key, middle.entry);
                return store(tx, step.node, &parent);
            }
            sharpen(tx, &mut left)?;
            store(tx, first, &left)?;
            tx.free(second)?;
            parent.remove(index);
            (place, node) = (step.node, parent);
        }
        if node.items().is_empty() {
            return self.lower(tx, header, place, &node);
        }
        store(tx, place, &node)
    }

    /// Takes away a root without items: its only child becomes the root, if it has one.
    fn lower<T: Transaction>(
        &self,
        tx: &T,
        mut header: BTreeHeader,
        place: RawPtr,
        node: &Node,
    ) -> Result<()> {
        header.root = if node.level == 0 { RawPtr::NULL } else { node.children()[0] };
        header.height -= 1;
        tx.free(place)?;
        self.write_header(tx, header)
    }
}

fn read_node<T: Transaction>(tx: &T, place: RawPtr, level: u32) -> Result<Node> {
    if level == 0 {
        read_leaf(tx, place).map(|leaf| Node::of_leaf(&leaf))
    } else {
        read_inner(tx, place, level).map(|inner| Node::of_inner(&inner))
    }
}
