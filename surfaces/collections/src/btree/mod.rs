//! An ordered map of byte strings.
//!
//! ```text
//!  header ---> inner: child | item | child | item | child          level 1
//!  root,                |                           |
//!  height               v                           v
//!              leaf: item item item        leaf: item item item    level 0
//!                     |
//!                     v
//!                    entry: key, value
//! ```
//!
//! Each entry has one item, in a leaf or between two children of an inner node. An item holds
//! eight bytes of the key, those after what all keys in the node have in common; only where these
//! are equal is the entry itself read to compare. An operation changes one leaf, and nodes above
//! it only as far as nodes split or merge; the header changes with the height.
//!
//! Nodes say at which level they are, and are refused at any other: whatever the pointers say, a
//! descent ends after as many steps as the header says the tree has levels.

mod check;
mod insert;
mod node;
mod remove;
mod scan;

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use crate::entry::{self, EntryBuf, prefix_of};
use crate::format::{BTreeHeader, BTreeInner, BTreeLeaf, HEIGHT_MAX, Item, NodeHead, item_entry};

/// An ordered map of byte strings in a store. The value is only a pointer: copy it freely, keep
/// it anywhere. Keys are ordered byte by byte, a shorter key before what it is the start of.
///
/// Keys have at most [`KEY_MAX`](crate::KEY_MAX) bytes. Errors of all functions are those of the
/// transaction, `TooLarge` for a longer key, and `Inconsistent` for a structure that contradicts
/// itself.
///
/// ```
/// use holdfast_collections::BTree;
/// use holdfast_txn::{Isolation, Store, toy::ToyStore};
///
/// let store = ToyStore::new();
/// let keys = store.run(Isolation::Serializable, |tx| {
///     let tree = BTree::create(tx)?;
///     for key in ["one", "two", "three"] {
///         tree.put(tx, key.as_bytes(), b"")?;
///     }
///     let mut keys = Vec::new();
///     tree.scan(tx, .., usize::MAX, |key, _| {
///         keys.push(String::from_utf8_lossy(key).into_owned());
///         Ok(())
///     })?;
///     Ok(keys)
/// })?;
/// assert_eq!(keys, ["one", "three", "two"]);
/// # Ok::<(), holdfast_txn::TxError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BTree {
    header: Ptr<BTreeHeader>,
}

/// A step down: an inner node, and which child was taken.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    node: RawPtr,
    child: usize,
}

/// The steps from the root to a node.
#[derive(Debug)]
struct Path {
    steps: [Step; HEIGHT_MAX as usize],
    len: usize,
    /// Whether each step took the last child.
    at_end: bool,
}

/// Where a key is, or would be.
#[derive(Debug)]
struct Place {
    path: Path,
    node: RawPtr,
    level: u32,
    index: usize,
    /// Whether the key is there; its entry is in the buffer of the search then.
    found: bool,
}

impl BTree {
    /// Creates an empty tree.
    ///
    /// # Errors
    /// See the type.
    pub fn create<T: Transaction>(tx: &T) -> Result<Self> {
        let header = BTreeHeader { root: RawPtr::NULL, height: 0, reserved: 0 };
        Ok(Self::new(tx.alloc(header)?))
    }

    /// The tree whose header is at `header`. Whether there is one is seen when it is used.
    #[must_use]
    pub fn new(header: Ptr<BTreeHeader>) -> Self {
        Self { header }
    }

    /// Where the header is: what to store to find the tree again.
    #[must_use]
    pub fn pointer(&self) -> Ptr<BTreeHeader> {
        self.header
    }

    /// Lends the value of `key` to `use_it`; `None` if there is no such key. Allocates nothing
    /// for entries of up to 512 bytes.
    ///
    /// # Errors
    /// See the type.
    pub fn get_with<T: Transaction, R>(
        &self,
        tx: &T,
        key: &[u8],
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut buf = EntryBuf::new();
        if self.find(tx, key, &mut buf)? { buf.value(tx, use_it).map(Some) } else { Ok(None) }
    }

    /// Puts the value of `key` into `into`, in place of what was there; `false` if there is no
    /// such key.
    ///
    /// # Errors
    /// See the type.
    pub fn get_into<T: Transaction>(&self, tx: &T, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let mut buf = EntryBuf::new();
        let found = self.find(tx, key, &mut buf)?;
        if found {
            buf.value_into(tx, into)?;
        }
        Ok(found)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn get<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(tx, key, &mut value)?.then_some(value))
    }

    /// Whether there is a value for `key`.
    ///
    /// # Errors
    /// See the type.
    pub fn contains<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
        self.find(tx, key, &mut EntryBuf::new())
    }

    /// Gives `key` a value; returns whether it had one. A value of the same length is changed in
    /// place.
    ///
    /// # Errors
    /// See the type.
    pub fn put<T: Transaction>(&self, tx: &T, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_and_keep(tx, key, value, None)
    }

    /// Gives `key` a value; returns the one it had.
    ///
    /// # Errors
    /// See the type.
    pub fn replace<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut old = Vec::new();
        let had = self.put_and_keep(tx, key, value, Some(&mut old))?;
        Ok(had.then_some(old))
    }

    /// Removes `key`; returns whether it was there.
    ///
    /// # Errors
    /// See the type.
    pub fn remove<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<bool> {
        self.remove_and_keep(tx, key, None)
    }

    /// Removes `key`; returns the value it had.
    ///
    /// # Errors
    /// See the type.
    pub fn take<T: Transaction>(&self, tx: &T, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut old = Vec::new();
        let had = self.remove_and_keep(tx, key, Some(&mut old))?;
        Ok(had.then_some(old))
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// See the type.
    pub fn is_empty<T: Transaction>(&self, tx: &T) -> Result<bool> {
        Ok(self.read_header(tx)?.height == 0)
    }

    fn put_and_keep<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        value: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let mut header = self.read_header(tx)?;
        let mut buf = EntryBuf::new();
        let Some(place) = search(tx, &header, key, &mut buf)? else {
            return self.insert_first(tx, &mut header, key, value).map(|()| false);
        };
        if !place.found {
            return self.insert(tx, header, place, key, value).map(|()| false);
        }
        if let Some(old) = old {
            buf.value_into(tx, old)?;
        }
        if !buf.overwrite(tx, value)? {
            let entry = entry::create(tx, key, value)?;
            let bytes = bytemuck::bytes_of(&entry);
            tx.write_bytes(place.node, item_entry(place.index), bytes)?;
            tx.free(buf.pointer())?;
        }
        Ok(true)
    }

    fn remove_and_keep<T: Transaction>(
        &self,
        tx: &T,
        key: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool> {
        let header = self.read_header(tx)?;
        let mut buf = EntryBuf::new();
        match search(tx, &header, key, &mut buf)? {
            Some(place) if place.found => {
                if let Some(old) = old {
                    buf.value_into(tx, old)?;
                }
                self.remove_at(tx, header, place)?;
                tx.free(buf.pointer())?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn find<T: Transaction>(&self, tx: &T, key: &[u8], buf: &mut EntryBuf) -> Result<bool> {
        let header = self.read_header(tx)?;
        Ok(search(tx, &header, key, buf)?.is_some_and(|place| place.found))
    }

    fn read_header<T: Transaction>(&self, tx: &T) -> Result<BTreeHeader> {
        let header = tx.read(self.header)?;
        let fits = header.height <= HEIGHT_MAX && header.root.is_null() == (header.height == 0);
        if fits {
            Ok(header)
        } else {
            Err(TxError::Inconsistent("a B-tree's height does not fit its root"))
        }
    }

    fn write_header<T: Transaction>(&self, tx: &T, header: BTreeHeader) -> Result<()> {
        tx.update(self.header, |place| *place = header)
    }
}

impl Path {
    fn new() -> Self {
        Self { steps: [Step::default(); HEIGHT_MAX as usize], len: 0, at_end: true }
    }

    fn push(&mut self, node: RawPtr, child: usize, count: usize) {
        // No overflow: one step per level above the leaves, and `read_header` bounds the levels.
        self.steps[self.len] = Step { node, child };
        self.len += 1;
        self.at_end &= child == count;
    }

    fn pop(&mut self) -> Option<Step> {
        self.len = self.len.checked_sub(1)?;
        Some(self.steps[self.len])
    }
}

/// Searches the tree; `None` if it is empty.
fn search<T: Transaction>(
    tx: &T,
    header: &BTreeHeader,
    key: &[u8],
    buf: &mut EntryBuf,
) -> Result<Option<Place>> {
    let Some(mut level) = header.height.checked_sub(1) else { return Ok(None) };
    let (mut path, mut node) = (Path::new(), header.root);
    while level > 0 {
        let inner = read_inner(tx, node, level)?;
        let (index, found) = seek(tx, &inner.head, inner.items(), key, buf)?;
        if found {
            return Ok(Some(Place { path, node, level, index, found }));
        }
        path.push(node, index, inner.items().len());
        node = inner.children[index];
        level -= 1;
    }
    let leaf = read_leaf(tx, node)?;
    let (index, found) = seek(tx, &leaf.head, leaf.items(), key, buf)?;
    Ok(Some(Place { path, node, level, index, found }))
}

/// Where `key` is among the items of one node, or would be; its entry is in `buf` if it is there.
fn seek<T: Transaction>(
    tx: &T,
    head: &NodeHead,
    items: &[Item],
    key: &[u8],
    buf: &mut EntryBuf,
) -> Result<(usize, bool)> {
    let skip = usize::from(head.skip);
    match key[..skip.min(key.len())].cmp(&head.common[..skip]) {
        core::cmp::Ordering::Less => return Ok((0, false)),
        core::cmp::Ordering::Greater => return Ok((items.len(), false)),
        core::cmp::Ordering::Equal => {}
    }
    let prefix = prefix_of(&key[skip..]);
    let mut low = items.partition_point(|item| item.prefix < prefix);
    let mut high = low + items[low..].partition_point(|item| item.prefix == prefix);
    while low < high {
        let middle = low.midpoint(high);
        buf.load(tx, items[middle].entry)?;
        match buf.compare(tx, key)? {
            core::cmp::Ordering::Less => low = middle + 1,
            core::cmp::Ordering::Greater => high = middle,
            core::cmp::Ordering::Equal => return Ok((middle, true)),
        }
    }
    Ok((low, false))
}

impl BTreeLeaf {
    fn items(&self) -> &[Item] {
        &self.items[..usize::from(self.head.count)]
    }
}

impl BTreeInner {
    fn items(&self) -> &[Item] {
        &self.items[..usize::from(self.head.count)]
    }

    fn children(&self) -> &[RawPtr] {
        &self.children[..=usize::from(self.head.count)]
    }
}

fn read_leaf<T: Transaction>(tx: &T, node: RawPtr) -> Result<BTreeLeaf> {
    let leaf: BTreeLeaf = tx.read(node.typed())?;
    leaf.head.check(0, leaf.items.len())?;
    Ok(leaf)
}

/// Reads an inner node that should be at `level`, which is not 0.
fn read_inner<T: Transaction>(tx: &T, node: RawPtr, level: u32) -> Result<BTreeInner> {
    let inner: BTreeInner = tx.read(node.typed())?;
    inner.head.check(level, inner.items.len())?;
    Ok(inner)
}

impl NodeHead {
    /// Whether a node read from a pool may be used as one of `level` with room for `most` items.
    fn check(&self, level: u32, most: usize) -> Result<()> {
        let fits = u32::from(self.level) == level
            && (1..=most).contains(&usize::from(self.count))
            && usize::from(self.skip) <= self.common.len();
        if fits {
            Ok(())
        } else {
            Err(TxError::Inconsistent("a B-tree node is at a wrong level or has impossible counts"))
        }
    }
}

#[cfg(test)]
mod tests;
