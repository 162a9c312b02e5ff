//! The end of a guarded file: nobody has it any more, and it is to be at rest.
//!
//! At rest a file is to survive power cuts, whatever it survived while it was in use. Its data has
//! to be on the disk for that, which may take as long as programs wrote without syncing. Nobody is
//! to wait for it:
//!
//! | who | waits |
//! |---|---|
//! | who opens the file | not for the data: the file is not let go of |
//! | who syncs it | for the last pass only |
//! | who waits for a number, or for a name, that this file has | not: closed as it was kept |
//! | any of them, in the last moment | for what is new since, and the side file |
//! | who waits for the guard, all programs being gone | for all of it |

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use holdfast_mapped::Writers;
use holdfast_pmem::Lease;

use super::Guarded;
use crate::lease::lease;
use crate::release::Call;

/// How often it is asked whether somebody waits.
const LOOK: Duration = Duration::from_millis(1);

/// How a side file is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// It survives power cuts from here on.
    AtRest,
    /// It survives what it survived while it was in use.
    AsKept,
}

impl Guarded {
    /// Has the data on the disk, as far as nobody waits for the file to be closed, or wants it
    /// back; how it is to be closed then.
    pub(crate) fn settle_down(&self, call: &Call) -> Close {
        if self.durable {
            return Close::AtRest;
        }
        let file = Arc::clone(&self.file);
        // What is wrong with it, the close finds as well.
        let sync = move || drop(file.sync_all());
        let whole = done_before(sync, &|| call.wanted() || call.is_hurried());
        if whole { Close::AtRest } else { Close::AsKept }
    }
}

/// Does something on a thread; whether it was done before it was not wanted any more. It goes on
/// then, and nobody waits for it.
fn done_before(work: impl FnOnce() + Send + 'static, given_up: &dyn Fn() -> bool) -> bool {
    let thread = std::thread::Builder::new().name("hf-sync".to_owned());
    // Without a thread it stays to be done by the close.
    let Ok(thread) = thread.spawn(work) else { return true };
    while !thread.is_finished() {
        if given_up() {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    !given_up()
}

/// A file that no guarded program has any more. While a page is replaced nobody gets it, where the
/// system grants that.
pub(super) struct Rest<'a> {
    pub(super) file: &'a Guarded,
    pub(super) lease: RefCell<Option<Lease>>,
}

impl Writers for Rest<'_> {
    fn freeze(&self) -> bool {
        let Ok(lease) = lease(&self.file.data) else { return false };
        *self.lease.borrow_mut() = lease;
        // Asked once nobody gets it any more.
        let sure = self.file.is_sure();
        if !sure {
            self.thaw();
        }
        sure
    }

    fn thaw(&self) {
        *self.lease.borrow_mut() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn nobody_waits_for_data_that_is_on_its_way() {
        let slow = || std::thread::sleep(Duration::from_secs(20));
        let began = Instant::now();
        assert!(!done_before(slow, &|| began.elapsed() > Duration::from_millis(20)));
        assert!(began.elapsed() < Duration::from_secs(10), "it waited for it");
        assert!(done_before(|| (), &|| false));
        assert!(!done_before(|| (), &|| true), "it is wanted, done or not");
    }
}
