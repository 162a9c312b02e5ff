//! Read-only check of a whole tree: every pointer, every prefix, the order of all keys.

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction};

use super::{BTree, read_inner, read_leaf};
use crate::entry::{EntryBuf, prefix_of};
use crate::format::{Item, NodeHead};
use crate::report::{CheckReport, Checker};

/// A walk over everything, in order of keys.
struct Walk<'t, T> {
    tx: &'t T,
    checker: Checker,
    buf: EntryBuf,
    /// The key before; empty and not `started` at the beginning.
    before: Vec<u8>,
    started: bool,
}

impl BTree {
    /// Checks the tree: that every node is at its level, every item's prefix is its key's, keys
    /// rise, and no object is reached twice. Damage beyond repair is a finding, not an error.
    ///
    /// # Errors
    /// Only those that may pass when the transaction runs again.
    pub fn check<T: Transaction>(&self, tx: &T) -> Result<CheckReport> {
        let mut checker = Checker::default();
        checker.meet(self.header.raw(), "header");
        let read = self.read_header(tx);
        let Some(header) = checker.readable(self.header.raw(), read)? else {
            return Ok(checker.finish());
        };
        let buf = EntryBuf::new();
        let mut walk = Walk { tx, checker, buf, before: Vec::new(), started: false };
        if let Some(level) = header.height.checked_sub(1) {
            walk.node(header.root, level)?;
        }
        Ok(walk.checker.finish())
    }
}

impl<T: Transaction> Walk<'_, T> {
    fn node(&mut self, place: RawPtr, level: u32) -> Result<()> {
        if !self.checker.meet(place, "node") {
            return Ok(());
        }
        if level == 0 {
            let read = read_leaf(self.tx, place);
            if let Some(leaf) = self.checker.readable(place, read)? {
                for item in leaf.items() {
                    self.item(place, &leaf.head, item)?;
                }
            }
            return Ok(());
        }
        let read = read_inner(self.tx, place, level);
        if let Some(inner) = self.checker.readable(place, read)? {
            self.node(inner.children[0], level - 1)?;
            for (item, child) in inner.items().iter().zip(&inner.children()[1..]) {
                self.item(place, &inner.head, item)?;
                self.node(*child, level - 1)?;
            }
        }
        Ok(())
    }

    fn item(&mut self, node: RawPtr, head: &NodeHead, item: &Item) -> Result<()> {
        if !self.checker.meet(item.entry, "entry") {
            return Ok(());
        }
        let mut key = Vec::new();
        let loaded = self.buf.load(self.tx, item.entry);
        let read = loaded.and_then(|()| self.buf.key_into(self.tx, &mut key));
        if self.checker.readable(item.entry, read)?.is_none() {
            return Ok(());
        }
        self.checker.entry();
        let common = &head.common[..usize::from(head.skip)];
        let rest = key.strip_prefix(common);
        let fits = rest.is_some_and(|rest| prefix_of(rest) == item.prefix);
        self.checker.expect(fits, || {
            format!("node {node}: entry {} has another key than its item says", item.entry)
        });
        self.checker.expect(!self.started || self.before < key, || {
            format!("node {node}: entry {} is out of order", item.entry)
        });
        (self.before, self.started) = (key, true);
        Ok(())
    }
}
