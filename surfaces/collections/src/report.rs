//! What a check of a structure finds.

use std::collections::BTreeSet;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, TxError};

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
                let dangling = matches!(error, TxError::Dangling { .. });
                if dangling && self.report.objects.last() == Some(&object) {
                    // It names no object, so it is none of the structure's.
                    self.report.objects.pop();
                }
                self.find(error.to_string());
                Ok(None)
            }
        }
    }

    /// The end of the check.
    pub(crate) fn finish(self) -> CheckReport {
        self.report
    }
}
