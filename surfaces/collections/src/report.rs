//! What a check of a structure finds.

use std::collections::BTreeSet;

use holdfast_layout::{Ptr, RawPtr};
use holdfast_txn::{Result, Transaction, TxError};

use crate::bucket::Full;
use crate::common::{Core, Spot};
use crate::format::Bucket;
use crate::item::{KeyBuf, Sought};
use crate::separator::Separator;

/// Findings kept; more add nothing to the verdict.
const FINDINGS_MAX: usize = 100;

/// Result of checking a structure: what it consists of and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every object that can be reached from the header, the header included, in the order they
    /// were met, each once. What is live in the store and in no such list has leaked.
    pub objects: Vec<RawPtr>,
    /// Entries met.
    pub entries: u64,
    /// What contradicts itself or cannot be read, with its place. Empty if all is well; at most
    /// 100 are kept.
    pub findings: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// A check in progress.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    report: CheckReport,
    seen: BTreeSet<RawPtr>,
}

impl Checker {
    /// Notes an object; `false` if it was met before, so that a structure that bites its tail is
    /// walked once.
    pub(crate) fn meet(&mut self, object: RawPtr, as_what: &str) -> bool {
        if !self.seen.insert(object) {
            self.find(format!("{as_what} {object} is reached twice"));
            return false;
        }
        self.report.objects.push(object);
        true
    }

    /// Notes an entry.
    pub(crate) fn entry(&mut self) {
        self.report.entries += 1;
    }

    /// Notes something wrong.
    pub(crate) fn find(&mut self, what: String) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(what);
        }
    }

    /// Notes something wrong unless `holds`.
    pub(crate) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.find(what());
        }
    }

    /// The value that was read, or a finding why it could not be. Errors that may pass if the
    /// transaction runs again are handed on, so that it does.
    pub(crate) fn readable<R>(&mut self, object: RawPtr, read: Result<R>) -> Result<Option<R>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_transient() => Err(error),
            Err(error) => {
                let dangling = matches!(error, TxError::Dangling { .. } | TxError::InDoubt { .. });
                if dangling && self.report.objects.last() == Some(&object) {
                    // It names no object by what is there, so it is none of the structure's.
                    self.report.objects.pop();
                }
                self.find(error.to_string());
                Ok(None)
            }
        }
    }

    /// The items of a bucket with their keys, in order. Entries that cannot be read, or have
    /// other keys than their items, are findings and not among them.
    pub(crate) fn items<T: Transaction>(
        &mut self,
        tx: &T,
        at: Ptr<Bucket>,
        bucket: &Bucket,
    ) -> Result<Vec<Full>> {
        let mut all = Vec::new();
        for (slot, item) in bucket.used() {
            if let Some(entry) = item.entry() {
                if !self.meet(entry, "entry") {
                    continue;
                }
                let read = KeyBuf::of_entry(tx, entry);
                let Some(stored) = self.readable(entry, read)? else { continue };
                let short = self.readable(RawPtr::NULL, item.short_key())?.flatten();
                self.expect(short.is_none_or(|key| key.bytes() == stored.bytes()), || {
                    format!("bucket {at:?}: entry {entry} has another key than its item")
                });
            }
            let read = KeyBuf::read(tx, item);
            if let Some(key) = self.readable(RawPtr::NULL, read)? {
                self.entry();
                all.push(Full { key, item: *item, slot });
            }
        }
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for pair in all.windows(2).filter(|pair| pair[0].key == pair[1].key) {
            let (a, b) = (pair[0].slot, pair[1].slot);
            self.find(format!("bucket {at:?}: items {a} and {b} have the same key"));
        }
        Ok(all)
    }

    /// Checks a bucket of a structure in order of keys: its items come behind `before`, and the
    /// structure finds their keys in it.
    pub(crate) fn ordered<T: Transaction>(
        &mut self,
        tx: &T,
        core: &impl Core,
        at: Ptr<Bucket>,
        before: &mut Option<KeyBuf>,
    ) -> Result<()> {
        let read = tx.read(at);
        let Some(bucket) = self.readable(at.raw(), read)? else { return Ok(()) };
        let look = |sought: &Sought<'_>| {
            let mut spot = Spot::new();
            Ok(core.look(tx, sought, &mut spot)?.then_some(spot.at))
        };
        self.expect(bucket.len() > 0, || format!("bucket {at:?} is empty"));
        self.expect(bucket.depth == 0 && bucket.next.is_null(), || {
            format!("bucket {at:?} is one of a hash table")
        });
        for full in self.items(tx, at, &bucket)? {
            let sought = Sought::ordered(full.key.bytes());
            self.expect(sought.among(&[full.item], 0).is_some(), || {
                format!("bucket {at:?}: item {} has another key than it says", full.slot)
            });
            self.expect(before.as_ref().is_none_or(|before| *before < full.key), || {
                format!("bucket {at:?}: item {} is out of order", full.slot)
            });
            let found = self.readable(RawPtr::NULL, look(&sought))?.flatten();
            self.expect(found == Some(at), || {
                format!("bucket {at:?}: item {} is not found where it is", full.slot)
            });
            *before = Some(full.key);
        }
        Ok(())
    }

    /// Checks the entry of a separator, if it has one.
    pub(crate) fn separator<T: Transaction>(
        &mut self,
        tx: &T,
        separator: &Separator,
    ) -> Result<()> {
        let Some(at) = separator.entry() else { return Ok(()) };
        if !self.meet(at, "separator") {
            return Ok(());
        }
        let read = KeyBuf::of_entry(tx, at);
        if let Some(key) = self.readable(at, read)? {
            self.expect(separator.is_of(key.bytes()), || {
                format!("separator {at} has another key than its number says")
            });
        }
        Ok(())
    }

    /// The end of the check.
    pub(crate) fn finish(self) -> CheckReport {
        self.report
    }
}
