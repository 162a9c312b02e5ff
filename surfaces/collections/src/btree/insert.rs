//! How a tree grows: a node that overflows splits, and its middle item moves up.

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use super::node::Node;
use super::{BTree, Path, Place, read_inner, read_leaf};
use crate::entry::{self, EntryBuf, KeyHead};
use crate::format::{BTreeHeader, BTreeInner, BTreeLeaf};

impl BTree {
    /// Puts the first entry into an empty tree.
    pub(super) fn insert_first<T: Transaction>(
        &self,
        tx: &T,
        header: &mut BTreeHeader,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut leaf = Node::new(0, RawPtr::NULL);
        let entry = entry::create(tx, key, value)?;
        leaf.insert(0, &KeyHead::of(key), entry, RawPtr::NULL);
        header.root = create(tx, &leaf)?;
        header.height = 1;
        self.write_header(tx, *header)
    }

    /// Inserts an entry at a place in a leaf that was found for its key.
    pub(super) fn insert<T: Transaction>(
        &self,
        tx: &T,
        header: BTreeHeader,
        place: Place,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut leaf = Node::of_leaf(&read_leaf(tx, place.node)?);
        let mut path = place.path;
        path.at_end &= place.index == leaf.items().len();
        let entry = entry::create(tx, key, value)?;
        leaf.insert(place.index, &KeyHead::of(key), entry, RawPtr::NULL);
        self.settle(tx, header, path, place.node, leaf)
    }

    /// Stores a node that may have one item too many, and what follows from that above it.
    fn settle<T: Transaction>(
        &self,
        tx: &T,
        mut header: BTreeHeader,
        mut path: Path,
        mut place: RawPtr,
        mut node: Node,
    ) -> Result<()> {
        while node.items().len() > node.capacity() {
            // Keys that come in order only ever reach the last node: it is left nearly full.
            let len = node.items().len();
            let (middle, mut right) = node.split(if path.at_end { len - len / 8 } else { len / 2 });
            sharpen(tx, &mut node)?;
            sharpen(tx, &mut right)?;
            store(tx, place, &node)?;
            let right = create(tx, &right)?;
            let key = EntryBuf::read(tx, middle.entry)?.head();
            let level = node.level + 1;
            match path.pop() {
                Some(step) => {
                    node = Node::of_inner(&read_inner(tx, step.node, level)?);
                    node.insert(step.child, &key, middle.entry, right);
                    place = step.node;
                }
                None => {
                    node = Node::new(level, place);
                    node.insert(0, &key, middle.entry, right);
                    header.root = create(tx, &node)?;
                    header.height += 1;
                    return self.write_header(tx, header);
                }
            }
        }
        store(tx, place, &node)
    }
}

/// Makes the items of a node tell their keys apart, if they do not and could. Reads the entries
/// of the node then, which is why it is done only where a node is made anew.
pub(super) fn sharpen<T: Transaction>(tx: &T, node: &mut Node) -> Result<()> {
    if !node.is_blurred() {
        return Ok(());
    }
    let mut buf = EntryBuf::new();
    let mut head = |entry| buf.load(tx, entry).map(|()| buf.head());
    let (first, last) = (node.items()[0].entry, node.items()[node.items().len() - 1].entry);
    if let Some(skip) = node.common_of(&head(first)?, &head(last)?) {
        let keys = node.items().iter().map(|item| head(item.entry)).collect::<Result<Vec<_>>>()?;
        if !node.sharpen(skip, &keys) {
            return Err(TxError::Inconsistent("a node of a map is out of order"));
        }
    }
    Ok(())
}

/// Stores a node where it came from.
pub(super) fn store<T: Transaction>(tx: &T, place: RawPtr, node: &Node) -> Result<()> {
    if node.level == 0 {
        let place: Ptr<BTreeLeaf> = place.typed();
        *tx.open_mut(place)? = node.leaf();
    } else {
        let place: Ptr<BTreeInner> = place.typed();
        *tx.open_mut(place)? = node.inner();
    }
    Ok(())
}

fn create<T: Transaction>(tx: &T, node: &Node) -> Result<RawPtr> {
    if node.level == 0 {
        tx.alloc(node.leaf()).map(Ptr::raw)
    } else {
        tx.alloc(node.inner()).map(Ptr::raw)
    }
}
