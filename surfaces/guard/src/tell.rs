//! What others are told of a guarded file while it is guarded: asked by `holdfast status`, answered
//! on a thread of the desk, so that the supervisor goes on meanwhile.
//!
//! The engine is asked as a scrub asks it: nothing is forgotten by it, and what the supervisor does
//! to a source comes before a question or after it. Whoever hears strangers is not asked for a
//! judgement: what a source hears of streams is kept for the supervisor's next look.
//!
//! Where a file cannot be told about, since its name at the desk is taken, or there is no desk (no
//! descriptor, no thread), it is tried again at later looks, at longer and longer distances, and
//! given up after a while. That is told once; who asks meanwhile reads the side file.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use holdfast_mapped::Scrubbed;
use holdfast_mapped::live::{Keeping, Tally};
use holdfast_pmem::desk::{Desk, Key, Tells};
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Clock, ForeignFile};

use crate::file::Engine;

/// Tells about one file. Does not keep its engine.
pub(crate) struct Teller {
    engine: Weak<Engine>,
    data: ForeignFile,
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
}

/// What only the supervisor knows.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    tally: Tally,
    period: Duration,
    longest: Duration,
}

impl Teller {
    pub(crate) fn of(engine: &Arc<Engine>, data: &ForeignFile, clock: &Arc<dyn Clock>) -> Self {
        let (data, clock) = (data.clone(), Arc::clone(clock));
        Self { engine: Arc::downgrade(engine), data, clock, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step of a scrub was made.
    pub(crate) fn scrubbed(&self, step: &Scrubbed) {
        let now = self.clock.now();
        self.known().tally.add(step, now);
    }

    /// A look at the whole file was made, beside the steps.
    pub(crate) fn looked(&self, whole: &Scrubbed) {
        let now = self.clock.now();
        self.known().tally.look(whole, now);
    }

    /// Time between two passes, and the longest that a store can have waited until now.
    pub(crate) fn paced(&self, (period, longest): (Duration, Duration)) {
        let mut known = self.known();
        (known.period, known.longest) = (period, longest);
    }
}

impl Tells for Teller {
    fn tell(&self) -> Option<String> {
        let Known { tally, period, longest } = *self.known();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let engine = self.engine.upgrade()?;
        let keeping = Keeping {
            guards: true,
            period_ns: nanos(period),
            longest_ns: nanos(longest),
            tracking: engine.source().kind(),
        };
        engine.live(keeping, &tally, self.data.size()).ok().map(|live| live.words())
    }
}

impl core::fmt::Debug for Teller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Teller").field("known", &self.known()).finish_non_exhaustive()
    }
}

/// How often it is tried to tell about a file, and looks between two tries at the most.
const TRIES: u32 = 40;
const LONGEST: u32 = 64;

/// A file that is not told about yet.
#[derive(Debug)]
struct Untold {
    key: Key,
    teller: Arc<Teller>,
    tries: u32,
    /// Looks until the next try.
    rest: u32,
}

impl Untold {
    /// Waits twice as long as the last time.
    fn failed(&mut self) {
        self.rest = 1_u32.checked_shl(self.tries).unwrap_or(LONGEST).min(LONGEST);
        self.tries += 1;
    }
}

/// The desk at which others are told about all files.
#[derive(Debug, Default)]
pub(crate) struct Front {
    desk: Option<Desk>,
    /// By their numbers.
    untold: BTreeMap<usize, Untold>,
}

impl Front {
    /// One more file; why it cannot be told about now.
    pub(crate) fn add(&mut self, file: usize, key: Key, teller: Arc<Teller>) -> Option<io::Error> {
        let error = self.try_add(key, &teller).err()?;
        self.untold.insert(file, Untold { key, teller, tries: 0, rest: 0 });
        Some(error)
    }

    fn try_add(&mut self, key: Key, teller: &Arc<Teller>) -> io::Result<()> {
        let desk = match &mut self.desk {
            Some(desk) => desk,
            none => none.insert(Desk::open()?),
        };
        desk.add(key, Arc::clone(teller) as Arc<dyn Tells>)
    }

    /// Nobody is told about a file any more.
    pub(crate) fn remove(&mut self, file: usize, key: Key) {
        self.untold.remove(&file);
        if let Some(desk) = &self.desk {
            desk.remove(key);
        }
    }

    /// Tries once more, at a look.
    pub(crate) fn try_again(&mut self) {
        let mut untold = core::mem::take(&mut self.untold);
        untold.retain(|_, it| {
            if it.rest > 0 {
                it.rest -= 1;
                return true;
            }
            if self.try_add(it.key, &it.teller).is_ok() {
                return false;
            }
            it.failed();
            it.tries < TRIES
        });
        self.untold = untold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    #[test]
    fn a_name_that_is_taken_is_tried_for_a_while() {
        let _alone = crate::alone();
        let folder = tempfile::tempdir().unwrap();
        let file = crate::release::tests::guarded(&folder.path().join("a.db"));
        let name = |inode: u64| format!("holdfast-kept-{:x}-{inode:x}", u64::MAX);
        let take = |inode| {
            let name = SocketAddr::from_abstract_name(name(inode)).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        };
        let ask = |inode| {
            holdfast_pmem::desk::ask((u64::MAX, inode), 1 << 20, Duration::from_secs(5)).is_some()
        };
        let (one, two) = (u64::from(std::process::id()), u64::from(std::process::id()) << 32);
        let (taken, for_good) = (take(one), take(two));
        let mut front = Front::default();
        for (number, inode) in [one, two].into_iter().enumerate() {
            assert!(front.add(number, (u64::MAX, inode), Arc::clone(file.teller())).is_some());
        }
        front.try_again();
        drop(taken);
        front.try_again();
        front.try_again();
        assert!(ask(one) && front.untold.len() == 1);
        let mut looks = 0;
        while !front.untold.is_empty() {
            front.try_again();
            looks += 1;
            assert!(looks < TRIES * (LONGEST + 1), "it is tried for ever");
        }
        drop(for_good);
        front.try_again();
        assert!(looks > TRIES && !ask(two));
        front.remove(0, (u64::MAX, one));
        assert!(!ask(one));
    }
}
