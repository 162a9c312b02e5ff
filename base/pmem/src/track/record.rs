//! The persistent half of [`FirstStore`](super::FirstStore): which pages are going stale.

use std::sync::Arc;

use super::error::TrackError;
use super::span::out;
use crate::medium::{Medium, MediumKind, PAGE};
use crate::site::Site;

/// Remembers pages across a crash.
///
/// [`set`](Self::set) is called by a signal handler, in the place of a store to the tracked pages:
/// it must be async-signal-safe (atomics, loads and stores to memory that is mapped, plain system
/// calls; no lock that the interrupted thread could hold, no allocation) and must not store to
/// tracked pages itself. Calls for one page never overlap, nor do `set` and `clear` of one page;
/// calls for different pages do.
///
/// The bits of a record are its own. A pass that keeps a note of what it has taken keeps it
/// elsewhere: a store during the pass sets the record while the note still stands, and dropping the
/// note must not drop it.
pub trait Record: Send + Sync + 'static {
    /// Sees to it that the pages of `[at, at + len)` can be noted, and changes no note. Called
    /// before they are protected, never in a handler; `false` says that they cannot be: stores to
    /// them would be refused one by one.
    fn reach(&self, at: u64, len: u64) -> bool {
        let _ = (at, len);
        true
    }

    /// Notes durably that the page at `at` may differ from what its checksum covers. Returns once
    /// the note would survive a crash; `false` says that it would not, and then the store that
    /// wants it is refused.
    fn set(&self, at: u64) -> bool;

    /// Forgets the pages of `[at, at + len)`. In a file it need not be durable before the next
    /// sync; in memory it is on return. It may fail: a note too many only makes a page unknown
    /// after a crash.
    fn clear(&self, at: u64, len: u64);

    /// Whether the page is noted, or that cannot be read.
    fn is_set(&self, at: u64) -> bool;
}

/// What the byte of a noted page holds. Half of its bits differ from those of an empty one, so that
/// rot makes no note: who asks after a crash whether a page was stored to for certain believes this
/// value only. While the process lives, anything but zero counts.
pub const NOTED: u8 = 0xa5;

/// Writing bytes back as they are, to find out beforehand what cannot be written.
const REACH: Site = Site::new("pmem.track.Reach");

/// Where the bytes of a file's pages lie on a medium: in groups of so many in a row, each group so
/// far from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlaces {
    start: u64,
    pages: u64,
    distance: u64,
}

impl RecordPlaces {
    /// All in a row, that of page 0 at `start`.
    #[must_use]
    pub const fn in_a_row(start: u64) -> Self {
        Self { start, pages: u64::MAX, distance: u64::MAX }
    }

    /// Those of `pages` pages in a row, that of page 0 at `start`; then those of the next so many,
    /// `distance` bytes behind the first. `None` if groups are empty or would overlap.
    #[must_use]
    pub const fn in_groups(start: u64, pages: u64, distance: u64) -> Option<Self> {
        if pages == 0 || distance < pages { None } else { Some(Self { start, pages, distance }) }
    }

    /// Where the byte of the page numbered `page` is; `None` if no medium is so long.
    #[must_use]
    pub const fn of(&self, page: u64) -> Option<u64> {
        let Some(group) = (page / self.pages).checked_mul(self.distance) else { return None };
        let Some(group) = group.checked_add(self.start) else { return None };
        group.checked_add(page % self.pages)
    }

    /// How many of the pages from `page` on lie in a row.
    const fn in_row(&self, page: u64) -> u64 {
        self.pages - page % self.pages
    }
}

/// A record with one byte per page on a medium: pages share no word that two threads would have to
/// change together.
///
/// A note is one store, flush and fence; on a page-cache file whose owner asked for power cuts to
/// be survived ([`MediumKind::File`]) one durable write, which takes as long as the device does.
/// Neither locks nor allocates, unless it fails.
#[derive(Debug)]
pub struct MediumRecord<M> {
    medium: Arc<M>,
    places: RecordPlaces,
    /// The first page of the file that is noted, and the one behind the last.
    first: u64,
    end: u64,
}

impl<M: Medium> MediumRecord<M> {
    /// Keeps the notes of the file's pages `[at, at + len)` in bytes of the medium. They are used
    /// as they are found. The medium may be too short for the last of them and grow later: a page
    /// can be noted once its byte is on the medium. The medium's gate must be open (no `mprotect`
    /// around commits) and none of its frames moved: their locks have no place in a signal handler.
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`]: no whole pages, or no medium could be so long.
    pub fn new(
        medium: Arc<M>,
        places: RecordPlaces,
        at: u64,
        len: u64,
    ) -> Result<Self, TrackError> {
        let whole = at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let end = at.checked_add(len).filter(|_| whole).ok_or(out(at, len))? / PAGE;
        if end > 0 && places.of(end - 1).is_none() {
            return Err(out(at, len));
        }
        Ok(Self { medium, places, first: at / PAGE, end })
    }

    fn place(&self, at: u64) -> Option<u64> {
        let page = at / PAGE;
        if (self.first..self.end).contains(&page) { self.places.of(page) } else { None }
    }

    /// Calls `each` with the place and the length of each run of bytes that belong to
    /// `[at, at + len)`, as far as it is noted here; false, and no further call, once it says so.
    fn runs(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64) -> bool) -> bool {
        let end = (at.saturating_add(len) / PAGE).min(self.end);
        let mut page = (at / PAGE).max(self.first);
        while page < end {
            let count = self.places.in_row(page).min(end - page);
            if !self.places.of(page).is_some_and(|place| each(place, count)) {
                return false;
            }
            page += count;
        }
        true
    }
}

impl<M: Medium> Record for MediumRecord<M> {
    /// Writes each byte back as it is: where that goes wrong (the medium ends before it, its file
    /// system is full, the page is bad) it does so here and not in a handler.
    fn reach(&self, at: u64, len: u64) -> bool {
        let mut bytes = [0; PAGE as usize];
        let done = self.runs(at, len, &mut |place, count| {
            (0..count).step_by(bytes.len()).all(|from| {
                let part = &mut bytes[..(count - from).min(PAGE) as usize];
                let read = self.medium.read(place + from, part);
                let put = |()| self.medium.put(REACH, place + from, part);
                !self.medium.enabled(REACH) || read.and_then(put).is_ok()
            })
        });
        self.medium.drain(Site::new("pmem.track.Reached"));
        done && at.saturating_add(len) / PAGE <= self.end && at / PAGE >= self.first
    }

    fn set(&self, at: u64) -> bool {
        let Some(place) = self.place(at) else { return false };
        if self.medium.kind() == MediumKind::File {
            let site = Site::new("pmem.track.RecordAppend");
            return self.medium.append(site, place, &[NOTED]).is_ok();
        }
        let put = self.medium.put(Site::new("pmem.track.Record"), place, &[NOTED]).is_ok();
        self.medium.drain(Site::new("pmem.track.RecordF1"));
        put
    }

    fn clear(&self, at: u64, len: u64) {
        self.runs(at, len, &mut |place, count| {
            // One that stays makes a page unknown after a crash, or counts damage as a store.
            let _ = self.medium.zero(Site::new("pmem.track.Forget"), place, count);
            true
        });
        // The next note of these pages may come from another thread, and must not be overtaken
        // by zeros that go around the cache.
        self.medium.drain(Site::new("pmem.track.Forgotten"));
    }

    fn is_set(&self, at: u64) -> bool {
        let mut found = [0];
        self.place(at)
            .is_none_or(|place| self.medium.read(place, &mut found).is_err() || found[0] != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_parts_of_pages_or_beyond_all_media_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("record");
        let medium = crate::Mapped::create(&place, PAGE, &crate::Options::default()).unwrap();
        let medium = Arc::new(medium);
        let made = |places, at, len| MediumRecord::new(Arc::clone(&medium), places, at, len);
        let row = RecordPlaces::in_a_row(0);
        for (at, len) in [(1, PAGE), (PAGE, 9), (0_u64.wrapping_sub(PAGE), PAGE)] {
            assert!(made(row, at, len).is_err(), "{at:#x}+{len:#x}");
        }
        assert!(made(RecordPlaces::in_a_row(u64::MAX - 1), 0, 3 * PAGE).is_err());
        let none = made(row, 0, 0).unwrap();
        assert!(!none.set(0) && none.is_set(0), "what has no place counts as noted");
        let one = made(row, 0, PAGE).unwrap();
        assert!(one.set(0) && one.is_set(0));
        one.clear(0, PAGE);
        assert!(!one.is_set(0));
    }

    #[test]
    fn groups_lie_where_they_are_said_to() {
        let places = RecordPlaces::in_groups(1000, 16, 100).unwrap();
        let found: Vec<Option<u64>> = [0, 15, 16, 33].map(|page| places.of(page)).to_vec();
        assert_eq!(found, [Some(1000), Some(1015), Some(1100), Some(1201)]);
        assert_eq!((places.in_row(0), places.in_row(15), places.in_row(33)), (16, 1, 15));
        let row = RecordPlaces::in_a_row(7);
        assert_eq!((row.of(0), row.of(1 << 40)), (Some(7), Some((1 << 40) + 7)));
    }

    #[test]
    fn impossible_groups_are_refused_and_far_ones_have_no_place() {
        for (pages, distance) in [(0, 0), (0, 9), (16, 15)] {
            assert_eq!(RecordPlaces::in_groups(0, pages, distance), None);
        }
        for places in [
            RecordPlaces::in_groups(0, 1, u64::MAX).unwrap(),
            RecordPlaces::in_groups(u64::MAX, 1, 1).unwrap(),
            RecordPlaces::in_a_row(u64::MAX - 1),
        ] {
            assert_eq!(places.of(2), None, "{places:?}");
            assert_eq!(places.of(u64::MAX), None, "{places:?}");
        }
    }
}
