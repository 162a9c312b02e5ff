//! The events journal: the newest events of the pool, in both sides, and live to subscribers.
//!
//! The journal has as many entries as fit its fixed length. Event number n is in entry n modulo
//! that number, so the oldest is overwritten; an entry certifies itself and its place, so there is
//! no head to keep. It is written by whoever repairs, never on the path of a commit.
//!
//! # Life of an append
//!
//! 1. the entry is stored in side B. **Drain.**
//! 2. the entry is stored in side A. **Drain.**
//! 3. subscribers get it
//!
//! A crash in 1 leaves the entry that was to be overwritten in side A; a crash in 2 leaves the new
//! one in side B: made good by the next scrub, and no damage. On a file each store is an `append`.
//! A bad page of the journal is rewritten with the entries of the other side. Observers of a pool
//! in use read the same entries and write nothing: what they see half written does not verify and
//! is skipped.

use holdfast_sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use holdfast_sync::{Mutex, MutexGuard, PoisonError};

use holdfast_codes::crc32c;
use holdfast_layout::bytes;
use holdfast_layout::format::SEQUENCE_MAX;
use holdfast_layout::format::{EVENTS_START, PAGE_LEN};
use holdfast_layout::{Certify, Superblock};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site};

use crate::error::{Error, Result};
pub use crate::event::{Cause, Event, Finder, Outcome};
use crate::format::EVENT_LEN;
use crate::mirror::Mirror;
use crate::verdict::Side;

/// Entries of a page.
const PER_PAGE: u64 = (PAGE_LEN / EVENT_LEN) as u64;
/// Events a subscriber may be behind before it misses some (it sees that by their sequence).
const BACKLOG: usize = 4096;

const ENTRY_B: Site = Site::new("redundancy.events.b");
const DRAIN_B: Site = Site::new("redundancy.events.drain-b");
const ENTRY_A: Site = Site::new("redundancy.events.a");
const DRAIN_A: Site = Site::new("redundancy.events.drain-a");
const HEAL: Site = Site::new("redundancy.events.heal");
const HEAL_PAGE: Site = Site::new("redundancy.events.heal-page");
/// Believing only entries whose sum is right.
const VERIFY: Site = Site::new("redundancy.events.verify");
/// The sum of an entry.
const SUM: Site = Site::new("redundancy.events.sum");

/// The events journal of a pool that is open.
#[derive(Debug)]
pub struct Journal {
    mirror: Mirror,
    /// Entries the journal has.
    entries: u64,
    /// Sequence of the next event. Held while an event is written: appends are in order.
    next: Mutex<u64>,
    subscribers: Mutex<Vec<SyncSender<Event>>>,
}

/// What happened to the two copies of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The event's number.
    pub sequence: u64,
    /// The copy that could not be written, although the other could.
    pub failed: Option<(Side, MediaError)>,
    /// Pages that had been bad and were cleared by it: side, and offset into the pool.
    pub cleared: [Option<(Side, u64)>; 2],
}

/// What became of one copy of an event.
#[derive(Debug, Clone, Copy, Default)]
struct Stored {
    failed: Option<MediaError>,
    cleared: Option<u64>,
}

/// A page of the journal that was not the same in both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten {
    /// The side whose page was rewritten.
    pub side: Side,
    /// Where it is, as an offset into the pool.
    pub at: u64,
    /// CRC-32C of what it held before; 0 if it could not be read.
    pub before_sum: u32,
    /// Only the newest event was missing, and in its place there was an older one or none: what a
    /// crash leaves between the two copies, or a lost write. Nothing was damaged.
    pub cut_short: bool,
    /// Set if the page stays bad: its frame has to be relocated.
    pub error: Option<MediaError>,
}

impl Journal {
    /// Finds the end of the journal. Writes nothing; unreadable pages count as empty.
    pub fn open<M: Medium>(m: &M, superblock: &Superblock) -> Self {
        Self::open_at(m, Mirror::of(superblock), superblock.events_len)
    }

    /// The same for sides that no superblock describes: `len` bytes at `EVENTS_START` of each.
    pub fn open_at<M: Medium>(m: &M, mirror: Mirror, len: u64) -> Self {
        let entries = len / PAGE_LEN as u64 * PER_PAGE;
        let this =
            Self { mirror, entries, next: Mutex::new(1), subscribers: Mutex::new(Vec::new()) };
        let mut last = 0;
        this.scan(m, |event| last = last.max(event.sequence));
        *lock(&this.next) = last.saturating_add(1);
        this
    }

    /// Entries the journal can hold.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.entries
    }

    /// A stream of the events from now on. A subscriber that falls thousands of events behind
    /// misses some, sees that by their sequence, and finds them in the journal.
    pub fn subscribe(&self) -> Receiver<Event> {
        let (sender, receiver) = sync_channel(BACKLOG);
        lock(&self.subscribers).push(sender);
        receiver
    }

    /// Writes `event` with the next sequence and passes it to the subscribers, which get it even
    /// if it could not be written.
    ///
    /// # Errors
    /// [`Error::Media`] if no copy could be written; [`Error::Sync`] if a write of the file
    /// failed: the pool must not be written any more.
    pub fn append<M: Medium>(&self, m: &M, event: &Event) -> Result<Appended> {
        let mut next = lock(&self.next);
        let event = Event { sequence: *next, ..*event };
        *next = next.saturating_add(1);
        let written = self.write(m, &event);
        drop(next);
        lock(&self.subscribers)
            .retain(|s| !matches!(s.try_send(event), Err(TrySendError::Disconnected(_))));
        written
    }

    /// Nobody appends while the answer lives: the journal's pages are being moved.
    #[must_use]
    pub fn hold_still(&self) -> impl Sized + '_ {
        lock(&self.next)
    }

    fn write<M: Medium>(&self, m: &M, event: &Event) -> Result<Appended> {
        let Some(entry) = event.sequence.checked_rem(self.entries) else {
            let (what, expected) = ("events journal", "at least one page");
            return Err(Error::Table { what, place: EVENTS_START, expected, found: 0 });
        };
        let place = entry * EVENT_LEN as u64;
        let mut bytes = event.encode(self.mirror.seed, place);
        if !m.enabled(SUM) {
            bytes[..4].fill(0);
        }
        let in_b = self.store(m, Side::B, place, &bytes, (ENTRY_B, DRAIN_B))?;
        let in_a = self.store(m, Side::A, place, &bytes, (ENTRY_A, DRAIN_A))?;
        let failed = match (in_a.failed, in_b.failed) {
            (Some(error), Some(_)) => return Err(Error::Media(error)),
            (Some(error), None) if self.mirror.copies < 2 => return Err(Error::Media(error)),
            (Some(error), None) => Some((Side::A, error)),
            (None, error) => error.map(|error| (Side::B, error)),
        };
        let cleared = [in_a.cleared.map(|at| (Side::A, at)), in_b.cleared.map(|at| (Side::B, at))];
        Ok(Appended { sequence: event.sequence, failed, cleared })
    }

    /// Stores an entry durably in one side; a media error that stays is an answer, because the
    /// other side may still take it.
    fn store<M: Medium>(
        &self,
        m: &M,
        side: Side,
        place: u64,
        entry: &[u8],
        sites: (Site, Site),
    ) -> Result<Stored> {
        let done = Stored::default();
        let Some(at) = self.mirror.at(side, EVENTS_START + place) else { return Ok(done) };
        if m.kind() == MediumKind::File {
            // A bad page must not look like a failed sync, after which nothing may be written.
            if m.read(at, &mut [0; EVENT_LEN]).is_ok() {
                m.append(sites.0, at, entry)?;
                return Ok(done);
            }
        } else if m.put(sites.0, at, entry).is_ok() {
            m.drain(sites.1);
            return Ok(done);
        }
        let inside = place % PAGE_LEN as u64;
        let mut page = self.page(m, side.other(), place - inside);
        bytes::put(&mut page, inside as usize, entry);
        let at = at - inside;
        Ok(match m.heal(HEAL, at, &page) {
            Ok(()) => Stored { cleared: Some(at), ..done },
            Err(error) => Stored { failed: Some(error), ..done },
        })
    }

    /// The page of the journal at `place` as `side` has it; zeros if it cannot be read.
    fn page<M: Medium>(&self, m: &M, side: Side, place: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_LEN];
        if let Some(at) = self.mirror.at(side, EVENTS_START + place)
            && m.read(at, &mut page).is_err()
        {
            page.fill(0);
        }
        page
    }

    /// Events from `sequence` on that are in the journal, ascending; at most its capacity.
    /// Observers may call this while another process appends.
    #[must_use]
    pub fn read_from<M: Medium>(&self, m: &M, sequence: u64) -> Vec<Event> {
        let mut found = Vec::new();
        self.scan(m, |event| {
            if event.sequence >= sequence {
                found.push(*event);
            }
        });
        found.sort_by_key(|event| event.sequence);
        found
    }

    /// All events in the journal, ascending.
    #[must_use]
    pub fn read_all<M: Medium>(&self, m: &M) -> Vec<Event> {
        self.read_from(m, 0)
    }

    /// Rewrites the pages of the journal in which the copies differ with the newest entries of
    /// both, and clears poison. For the one writer of the pool, in a scrub.
    pub fn heal<M: Medium>(&self, m: &M) -> Vec<Rewritten> {
        let next = lock(&self.next);
        let mut done = Vec::new();
        for place in self.pages() {
            let mut best = vec![0; PAGE_LEN];
            self.scan_page(m, place, |at, event| {
                bytes::put(&mut best, (at - place) as usize, &event.encode(self.mirror.seed, at));
            });
            for side in [Side::B, Side::A] {
                let Some(at) = self.mirror.at(side, EVENTS_START + place) else { continue };
                let mut page = vec![0; PAGE_LEN];
                let readable = m.read(at, &mut page).is_ok();
                if !readable || page != best {
                    let before_sum = if readable { crc32c(0, &page) } else { 0 };
                    let cut_short =
                        readable && self.lacks_only_last(m, (*next, place), &page, &best);
                    let error = m.heal(HEAL_PAGE, at, &best).err();
                    done.push(Rewritten { side, at, before_sum, cut_short, error });
                }
            }
        }
        done
    }

    /// Whether a page of one side, of the journal's `place` on, is `best` but for the event before
    /// number `next`, instead of which it has an older one, or none yet.
    fn lacks_only_last<M: Medium>(
        &self,
        m: &M,
        (next, place): (u64, u64),
        page: &[u8],
        best: &[u8],
    ) -> bool {
        let Some(entry) = next.saturating_sub(1).checked_rem(self.entries) else { return false };
        let at = entry * EVENT_LEN as u64;
        let Some(inside) = at.checked_sub(place).filter(|inside| *inside < PAGE_LEN as u64) else {
            return false;
        };
        let range = inside as usize..inside as usize + EVENT_LEN;
        let stale = &page[range.clone()];
        let mut whole = page.to_vec();
        whole[range.clone()].copy_from_slice(&best[range]);
        let was_there = self.decode(at, stale, certify(m)).is_some();
        whole == best && (was_there || stale.iter().all(|byte| *byte == 0))
    }

    fn pages(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.entries / PER_PAGE).map(|page| page * PAGE_LEN as u64)
    }

    fn scan<M: Medium>(&self, m: &M, mut each: impl FnMut(&Event)) {
        for place in self.pages() {
            self.scan_page(m, place, |_, event| each(event));
        }
    }

    /// Calls `each` with the newest valid copy of every entry of a page, and its place.
    fn scan_page<M: Medium>(&self, m: &M, page: u64, mut each: impl FnMut(u64, &Event)) {
        let a = self.page(m, Side::A, page);
        let b = self.page(m, Side::B, page);
        let certify = certify(m);
        for i in 0..PER_PAGE {
            let inside = i as usize * EVENT_LEN;
            let place = page + inside as u64;
            let one =
                |bytes: &[u8]| self.decode(place, &bytes[inside..inside + EVENT_LEN], certify);
            let newest = match (one(&a), one(&b)) {
                (Some(a), Some(b)) if b.sequence > a.sequence => Some(b),
                (a, b) => a.or(b),
            };
            if let Some(event) = newest {
                each(place, &event);
            }
        }
    }

    /// An entry that verifies and belongs where it was found.
    fn decode(&self, place: u64, entry: &[u8], certify: Certify) -> Option<Event> {
        let event = Event::decode(self.mirror.seed, place, entry, certify)?;
        let belongs = event.sequence.checked_rem(self.entries)? == place / EVENT_LEN as u64;
        (belongs && (1..=SEQUENCE_MAX).contains(&event.sequence)).then_some(event)
    }
}

/// Whether only entries whose sum is right are believed.
fn certify<M: Medium>(m: &M) -> Certify {
    Certify::when(m.enabled(VERIFY))
}

/// A thread that panicked while it held one of these locks left nothing half done in memory.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
