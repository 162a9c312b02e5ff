//! The mappings of guarded files in this address space: no more than what decides whether a call
//! concerns us.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use holdfast_guard_wire::Place;
use rustix::mm::MprotectFlags as Rights;

/// Most mappings; more are not guarded, which is said.
pub(crate) const MOST: usize = 2048;

/// Mappings in the table: most programs have none, and pay for no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any guarded file may be mapped here. Asked without the lock.
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// Where a mapping lies, for whoever asks without the lock; empty if there is none.
struct Span {
    start: AtomicU64,
    end: AtomicU64,
}

static SPANS: [Span; MOST] =
    [const { Span { start: AtomicU64::new(0), end: AtomicU64::new(0) } }; MOST];
/// Spans behind this one are empty.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Changes of the table that are under way, and those that were ever begun.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Whether a mapping may lie in a place. Asked without the lock, by calls that are frequent: *no*
/// is certain of a mapping whose address the caller knows; *yes* is to be looked at under the lock.
pub(crate) fn may_hold(place: Place) -> bool {
    if is_empty() {
        return false;
    }
    // A change that is begun after this shows at the end, one that was begun before shows now.
    let begun = BEGUN.load(Ordering::SeqCst);
    if UNDER_WAY.load(Ordering::SeqCst) != 0 {
        return true;
    }
    let used = USED.load(Ordering::SeqCst);
    let there = SPANS.iter().take(used).any(|span| {
        let (start, end) = (span.start.load(Ordering::SeqCst), span.end.load(Ordering::SeqCst));
        start < place.end && place.start < end
    });
    there || BEGUN.load(Ordering::SeqCst) != begun
}

/// A change of the table, from its beginning until it is dropped.
struct Change;

impl Change {
    fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        BEGUN.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Mappings are on their way out of the table and back: until this is dropped it is not empty, and
/// nobody is told that nothing lies anywhere.
pub(crate) struct Busy(Change);

pub(crate) fn busy(_quiet: &mut crate::state::Quiet) -> Busy {
    COUNT.fetch_add(1, Ordering::AcqRel);
    Busy(Change::begin())
}

impl Drop for Busy {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A mapping of a guarded file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) place: Place,
    pub(crate) file: u32,
    /// The file's byte at the start.
    pub(crate) at: u64,
    /// Whether it may have been stored to, now or ever.
    pub(crate) writable: bool,
    /// What the program may do there, as it was told.
    pub(crate) rights: Rights,
}

/// All of them. Reached through [`with`] only.
#[derive(Debug)]
pub(crate) struct Table {
    entries: [Option<Mapping>; MOST],
    /// Entries behind this one are empty.
    used: usize,
}

struct Shared(UnsafeCell<Table>);

// SAFETY: used under the lock only, see `with`.
unsafe impl Sync for Shared {}

static TABLE: Shared = Shared(UnsafeCell::new(Table { entries: [None; MOST], used: 0 }));

/// The table, for as long as the lock is held.
pub(crate) fn with(_quiet: &mut crate::state::Quiet) -> &mut Table {
    // SAFETY: the one lock is held, and borrowed for as long as the answer lives.
    unsafe { &mut *TABLE.0.get() }
}

impl Table {
    /// Adds one; false if there is no room.
    pub(crate) fn add(&mut self, mapping: Mapping) -> bool {
        let Some(free) = self.entries.iter().position(Option::is_none) else { return false };
        COUNT.fetch_add(1, Ordering::AcqRel);
        self.used = self.used.max(free + 1);
        USED.store(self.used, Ordering::SeqCst);
        self.put(free, Some(mapping));
        true
    }

    /// Puts one into an entry, or nothing.
    fn put(&mut self, index: usize, mapping: Option<Mapping>) {
        let place = mapping.map_or(Place { start: 0, end: 0 }, |mapping| mapping.place);
        if let (Some(entry), Some(span)) = (self.entries.get_mut(index), SPANS.get(index)) {
            let _change = Change::begin();
            *entry = mapping;
            span.start.store(place.start, Ordering::SeqCst);
            span.end.store(place.end, Ordering::SeqCst);
        }
    }

    /// All that overlap a place.
    pub(crate) fn over(&self, place: Place) -> impl Iterator<Item = Mapping> {
        let used = self.entries.iter().take(self.used).flatten();
        used.filter(move |mapping| mapping.place.and(place).is_some()).copied()
    }

    /// Takes a place out of all of them; false if there is no room for what is left.
    pub(crate) fn cut(&mut self, hole: Place) -> bool {
        let _change = Change::begin();
        let mut room = true;
        for index in 0..self.used {
            let Some(Some(old)) = self.entries.get(index).copied() else { continue };
            if old.place.and(hole).is_none() {
                continue;
            }
            self.put(index, None);
            COUNT.fetch_sub(1, Ordering::AcqRel);
            for place in old.place.without(hole).into_iter().flatten() {
                let at = old.at + (place.start - old.place.start);
                room &= self.add(Mapping { place, at, ..old });
            }
        }
        room
    }

    /// Notes that a place may be stored to.
    pub(crate) fn make_writable(&mut self, place: Place) {
        for mapping in self.entries.iter_mut().take(self.used).flatten() {
            mapping.writable |= mapping.place.and(place).is_some();
        }
    }

    /// Notes what the program may do in a place, and nowhere else. Without room for the parts of
    /// what was one mapping, all of it counts as what any of it may be.
    pub(crate) fn set_rights(&mut self, place: Place, rights: Rights) {
        let _change = Change::begin();
        for index in 0..self.used {
            let Some(Some(old)) = self.entries.get(index).copied() else { continue };
            let Some(inside) = old.place.and(place).filter(|_| old.rights != rights) else {
                continue;
            };
            let rest = old.place.without(inside);
            let room = self.entries.iter().filter(|entry| entry.is_none()).take(2).count();
            if room < rest.iter().flatten().count() {
                self.put(index, Some(Mapping { rights: old.rights | rights, ..old }));
                continue;
            }
            let part = |place: Place| {
                let at = old.at + (place.start - old.place.start);
                Mapping { place, at, ..old }
            };
            self.put(index, Some(Mapping { rights, ..part(inside) }));
            for place in rest.into_iter().flatten() {
                self.add(part(place));
            }
        }
    }

    /// The one at an index, if there is one.
    pub(crate) fn all_at(&self, index: usize) -> Option<Mapping> {
        self.entries.get(index).copied().flatten()
    }

    /// All.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = Mapping> {
        self.entries.iter().take(self.used).flatten().copied()
    }
}

/// Held by tests that use the one table.
#[cfg(test)]
pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Quiet;

    const READ: Rights = Rights::READ;
    const WRITE: Rights = Rights::WRITE;

    #[test]
    fn what_is_cut_out_leaves_both_ends() {
        let _alone = alone();
        let mut quiet = Quiet::take();
        let table = with(&mut quiet);
        let place = |start, end| Place { start, end };
        let mapping = Mapping {
            place: place(0x1000, 0x9000),
            file: 1,
            at: 0x2000,
            writable: false,
            rights: READ,
        };
        assert!(is_empty());
        assert!(table.add(mapping) && table.cut(place(0x3000, 0x4000)));
        let mut left: Vec<_> = table.all().map(|m| (m.place.start, m.place.end, m.at)).collect();
        left.sort_unstable();
        assert_eq!(left, [(0x1000, 0x3000, 0x2000), (0x4000, 0x9000, 0x5000)]);
        assert_eq!(table.over(place(0x3000, 0x4000)).count(), 0);
        assert!(!may_hold(place(0x3000, 0x4000)) && may_hold(place(0x3000, 0x5000)));
        assert!(!may_hold(place(0, 0x1000)) && may_hold(place(0x8000, 0x9000)));
        let change = Change::begin();
        assert!(may_hold(place(0, 0x1000)), "nobody is sure of anything meanwhile");
        drop(change);
        table.make_writable(place(0x8000, 0x9000));
        assert_eq!(table.all().filter(|mapping| mapping.writable).count(), 1);
        assert!(!is_empty() && table.cut(place(0, 0xa000)));
        assert!(table.all().count() == 0 && is_empty(), "nobody pays any more");
        for page in 0..MOST as u64 {
            let place = place(page * 0x2000, page * 0x2000 + 0x1000);
            assert!(table.add(Mapping { place, ..mapping }));
        }
        assert!(!table.add(mapping), "no room");
        assert!(table.cut(place(0, u64::MAX)));

        // Rights are those of the place, and each part knows where it is in the file.
        assert!(table.add(mapping));
        table.set_rights(place(0x3000, 0x4000), READ | WRITE);
        let mut all: Vec<_> = table.all().map(|m| (m.place.start, m.at, m.rights)).collect();
        all.sort_unstable_by_key(|(start, ..)| *start);
        let parts =
            [(0x1000, 0x2000, READ), (0x3000, 0x4000, READ | WRITE), (0x4000, 0x5000, READ)];
        assert_eq!(all, parts);
        for page in 0..MOST as u64 - 3 {
            let place = place(0x10_0000 + page * 0x2000, 0x10_1000 + page * 0x2000);
            assert!(table.add(Mapping { place, ..mapping }));
        }
        table.set_rights(place(0x5000, 0x6000), WRITE);
        assert!(table.over(place(0x4000, 0x5000)).all(|m| m.rights == READ | WRITE));
        assert!(table.cut(place(0, u64::MAX)) && is_empty());
    }
}
