//! The mappings of guarded files in this address space: no more than what decides whether a call
//! concerns us.

use core::cell::UnsafeCell;

use holdfast_guard_wire::Place;

/// Most mappings; more are not guarded, which is said.
pub(crate) const MOST: usize = 2048;

/// A mapping of a guarded file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) place: Place,
    pub(crate) file: u32,
    /// The file's byte at the start.
    pub(crate) at: u64,
    pub(crate) writable: bool,
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
        if let Some(entry) = self.entries.get_mut(free) {
            *entry = Some(mapping);
            self.used = self.used.max(free + 1);
        }
        true
    }

    /// All that overlap a place.
    pub(crate) fn over(&self, place: Place) -> impl Iterator<Item = Mapping> {
        let used = self.entries.iter().take(self.used).flatten();
        used.filter(move |mapping| mapping.place.and(place).is_some()).copied()
    }

    /// Takes a place out of all of them; false if there is no room for what is left.
    pub(crate) fn cut(&mut self, hole: Place) -> bool {
        let mut room = true;
        for index in 0..self.used {
            let Some(Some(old)) = self.entries.get(index).copied() else { continue };
            if old.place.and(hole).is_none() {
                continue;
            }
            self.entries[index] = None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Quiet;

    #[test]
    fn what_is_cut_out_leaves_both_ends() {
        let mut quiet = Quiet::take();
        let table = with(&mut quiet);
        let place = |start, end| Place { start, end };
        let mapping =
            Mapping { place: place(0x1000, 0x9000), file: 1, at: 0x2000, writable: false };
        assert!(table.add(mapping) && table.cut(place(0x3000, 0x4000)));
        let mut left: Vec<_> = table.all().map(|m| (m.place.start, m.place.end, m.at)).collect();
        left.sort_unstable();
        assert_eq!(left, [(0x1000, 0x3000, 0x2000), (0x4000, 0x9000, 0x5000)]);
        assert_eq!(table.over(place(0x3000, 0x4000)).count(), 0);
        table.make_writable(place(0x8000, 0x9000));
        assert_eq!(table.all().filter(|mapping| mapping.writable).count(), 1);
        assert!(table.cut(place(0, 0xa000)));
        assert_eq!(table.all().count(), 0);
        for page in 0..MOST as u64 {
            let place = place(page * 0x2000, page * 0x2000 + 0x1000);
            assert!(table.add(Mapping { place, ..mapping }));
        }
        assert!(!table.add(mapping), "no room");
        assert!(table.cut(place(0, u64::MAX)));
    }
}
