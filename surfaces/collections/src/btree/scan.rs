//! Walking a tree in order, and freeing it.

use core::ops::{Bound, RangeBounds};
use std::collections::BTreeSet;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction, TxError};

use super::{BTree, read_inner, read_leaf, seek};
use crate::entry::EntryBuf;
use crate::format::{BTreeHeader, BTreeInner, BTreeLeaf, Item};

/// A place in a tree on the way through it in order.
struct Cursor {
    /// Inner nodes on the way down, each with the index of the item to visit next.
    above: Vec<(BTreeInner, usize)>,
    /// The leaf at the end of the way, with the index of the item to visit next.
    leaf: Option<(BTreeLeaf, usize)>,
}

impl BTree {
    /// Visits up to `limit` entries with keys in `range`, in order of keys; returns how many. To
    /// go on, perhaps in another transaction, start after the last key seen
    /// (`(Bound::Excluded(key), Bound::Unbounded)`).
    ///
    /// # Errors
    /// See the type, and whatever `visit` returns.
    pub fn scan<T: Transaction>(
        &self,
        tx: &T,
        range: impl RangeBounds<[u8]>,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<usize> {
        let header = self.read_header(tx)?;
        let mut buf = EntryBuf::new();
        let mut cursor = Cursor::start(tx, &header, range.start_bound(), &mut buf)?;
        let (mut key, mut value, mut before) = (Vec::new(), Vec::new(), Vec::new());
        let mut count = 0;
        while count < limit
            && let Some(entry) = cursor.next(tx)?
        {
            buf.load(tx, entry)?;
            buf.key_into(tx, &mut key)?;
            // Keys that do not rise would let pointers that lead back be followed for ever.
            if count > 0 && key <= before {
                return Err(TxError::Inconsistent("keys of a B-tree are out of order"));
            }
            match range.end_bound() {
                Bound::Included(end) if &key[..] > end => break,
                Bound::Excluded(end) if &key[..] >= end => break,
                _ => {}
            }
            buf.value_into(tx, &mut value)?;
            visit(&key, &value)?;
            core::mem::swap(&mut key, &mut before);
            count += 1;
        }
        Ok(count)
    }

    /// Calls `visit` with the key and value of every entry, in order of keys.
    ///
    /// # Errors
    /// See the type, and whatever `visit` returns.
    pub fn for_each<T: Transaction>(
        &self,
        tx: &T,
        visit: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.scan(tx, .., usize::MAX, visit).map(drop)
    }

    /// Number of entries. There is no counter, which every insertion would have to change: all
    /// nodes are read, about one for 20 entries.
    ///
    /// # Errors
    /// See the type.
    pub fn len<T: Transaction>(&self, tx: &T) -> Result<u64> {
        let header = self.read_header(tx)?;
        let Some(level) = header.height.checked_sub(1) else { return Ok(0) };
        count_below(tx, header.root, level, &mut BTreeSet::new())
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// See the type.
    pub fn clear<T: Transaction>(&self, tx: &T) -> Result<()> {
        let header = self.read_header(tx)?;
        if let Some(level) = header.height.checked_sub(1) {
            free_below(tx, header.root, level)?;
            self.write_header(tx, BTreeHeader { root: RawPtr::NULL, height: 0, ..header })?;
        }
        Ok(())
    }

    /// Frees the tree with everything in it. Its pointer dangles afterwards.
    ///
    /// # Errors
    /// See the type.
    pub fn destroy<T: Transaction>(self, tx: &T) -> Result<()> {
        self.clear(tx)?;
        tx.free(self.header.raw())
    }
}

impl Cursor {
    /// Before the first entry that is not before `from`.
    fn start<T: Transaction>(
        tx: &T,
        header: &BTreeHeader,
        from: Bound<&[u8]>,
        buf: &mut EntryBuf,
    ) -> Result<Self> {
        let mut this = Self { above: Vec::new(), leaf: None };
        let Some(mut level) = header.height.checked_sub(1) else { return Ok(this) };
        let mut node = header.root;
        let mut place = |head: &_, items: &[_]| match from {
            Bound::Unbounded => Ok((0, false)),
            Bound::Included(key) => seek(tx, head, items, key, buf),
            // What is after a key that is there is below the next child.
            Bound::Excluded(key) => {
                seek(tx, head, items, key, buf).map(|(at, found)| (at + usize::from(found), false))
            }
        };
        while level > 0 {
            let inner = read_inner(tx, node, level)?;
            let (index, found) = place(&inner.head, inner.items())?;
            node = inner.children[index];
            this.above.push((inner, index));
            if found {
                return Ok(this);
            }
            level -= 1;
        }
        let leaf = read_leaf(tx, node)?;
        let (index, _) = place(&leaf.head, leaf.items())?;
        this.leaf = Some((leaf, index));
        Ok(this)
    }

    /// The entry to visit next.
    fn next<T: Transaction>(&mut self, tx: &T) -> Result<Option<RawPtr>> {
        if let Some((leaf, index)) = &mut self.leaf {
            if let Some(item) = leaf.items().get(*index) {
                *index += 1;
                return Ok(Some(item.entry));
            }
            self.leaf = None;
        }
        while let Some((inner, index)) = self.above.last_mut() {
            let Some(item) = inner.items().get(*index) else {
                self.above.pop();
                continue;
            };
            *index += 1;
            let (entry, node, level) = (item.entry, inner.children[*index], inner.head.level);
            self.descend(tx, node, level.into())?;
            return Ok(Some(entry));
        }
        Ok(None)
    }

    /// Goes down to the first leaf below the child `node` of a node at `level`.
    fn descend<T: Transaction>(&mut self, tx: &T, mut node: RawPtr, level: u32) -> Result<()> {
        for below in (1..level).rev() {
            let inner = read_inner(tx, node, below)?;
            node = inner.children[0];
            self.above.push((inner, 0));
        }
        self.leaf = Some((read_leaf(tx, node)?, 0));
        Ok(())
    }
}

/// Counts entries; `seen` keeps inner nodes that are reached twice from being counted for ever.
fn count_below<T: Transaction>(
    tx: &T,
    node: RawPtr,
    level: u32,
    seen: &mut BTreeSet<RawPtr>,
) -> Result<u64> {
    if level == 0 {
        return Ok(read_leaf(tx, node)?.items().len() as u64);
    }
    if !seen.insert(node) {
        return Err(TxError::Inconsistent("a B-tree node is reached twice"));
    }
    let inner = read_inner(tx, node, level)?;
    let mut count = inner.items().len() as u64;
    for child in inner.children() {
        count += count_below(tx, *child, level - 1, seen)?;
    }
    Ok(count)
}

/// Frees what is below and at a node. A structure that meets itself is found out by freeing twice.
fn free_below<T: Transaction>(tx: &T, node: RawPtr, level: u32) -> Result<()> {
    let free_all = |items: &[Item]| items.iter().try_for_each(|item| tx.free(item.entry));
    if level == 0 {
        free_all(read_leaf(tx, node)?.items())?;
    } else {
        let inner = read_inner(tx, node, level)?;
        free_all(inner.items())?;
        for child in inner.children() {
            free_below(tx, *child, level - 1)?;
        }
    }
    tx.free(node)
}
