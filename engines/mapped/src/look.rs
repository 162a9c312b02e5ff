//! Step 4 of a pass: what the rows of a stripe are. The table is in `commit.rs`.

use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{MediaCause, Medium, PAGE, Site};
use holdfast_redundancy::Unsure;
use holdfast_redundancy::events::{Event, Finder, Outcome};

use crate::bits::Bits;
use crate::commit::{Covered, Work};
use crate::engine::{Inner, Mapped, cause};
use crate::error::Result;
use crate::header::Header;
use crate::side::Entry;

/// Verifying the rows that were not stored to.
const NEIGHBOURS: Site = Site::new("mapped.look.neighbours");
/// Asking again whether a row was stored to before it is called corrupt.
const AGAIN: Site = Site::new("mapped.look.again");
/// Asking whether a store would have been told, too.
const INTACT: Site = Site::new("mapped.look.intact");
/// Asking whoever listens for untracked writers before a neighbour is called damaged.
const VOUCHES: Site = Site::new("mapped.look.vouches");
/// Keeping pages undecided whose memory failed.
const LOST: Site = Site::new("mapped.look.lost");
/// Letting parity vouch for pages whose sums are lost.
const VOUCH: Site = Site::new("mapped.look.vouch");
/// Nor do they vouch for a page that they agree with where parity says otherwise.
const DENIED: Site = Site::new("mapped.look.denied");
/// Asking parity for the rows beside one that was stored to.
const GIVES_BACK: Site = Site::new("mapped.look.gives-back");

/// Undecided pages of one batch that are told one by one. After a crash they may be very many; all
/// are counted, and every look finds them.
const UNDECIDED_TOLD: u64 = 64;

/// What the rows of a stripe turned out to be.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) changed: Vec<(u32, u32)>,
    pub(crate) corrupt: Vec<u32>,
    /// Those of them that cannot be read.
    pub(crate) unread: Vec<u32>,
    pub(crate) unsure: Vec<(u32, Unsure, u32)>,
    /// Rows being stored to right now.
    pub(crate) moving: Vec<u32>,
    pub(crate) unchanged: u64,
    /// Whether the last row changed.
    pub(crate) last: bool,
}

impl<F: Medium, S: Medium, D: DirtySource> Mapped<F, S, D> {
    /// Whether parity says, where sums are damaged, that a stripe is what was last covered; `None`
    /// if it cannot tell.
    fn vouched(&self, inner: &mut Inner, work: &Work, stripe: u32, rows: &Rows) -> Option<bool> {
        let still = rows.changed.is_empty() && rows.corrupt.is_empty() && rows.moving.is_empty();
        let readable = rows.unsure.iter().all(|(_, why, _)| *why == Unsure::SumsDamaged);
        if !still || !self.side.s.enabled(VOUCH) {
            return None;
        }
        let place = (work.number, stripe);
        let said = self.parity_says(&work.region, place, &inner.rows, &mut inner.parity);
        said.filter(|adds_up| readable || !adds_up)
    }

    /// Whether the rest of a stripe is known to be what was last covered, where entries are damaged
    /// and some rows were stored to: with it, parity gives back what these were by their entries.
    fn gives_back(&self, inner: &mut Inner, work: &Work, stripe: u32, rows: &Rows) -> bool {
        let stored = rows.changed.iter().map(|(row, _)| *row).chain(rows.moving.iter().copied());
        let stored: Vec<u32> = stored.collect();
        let others = rows.corrupt.iter().copied().chain(rows.unsure.iter().map(|(row, ..)| *row));
        let missing: Vec<u32> = stored.iter().copied().chain(others).collect();
        if self.side.parity(work.number, stripe, &mut inner.parity).is_err() {
            return false;
        }
        let mut before = inner.rows.clone();
        if !self.stripes.rebuild(&mut before, &missing, &inner.parity, [true; 2]) {
            return false;
        }
        let sums = inner.header.value.sums();
        stored.iter().all(|row| {
            let inside = stripe * self.stripes.data() + row;
            let entry = Entry::decode(work.entries[inside as usize]);
            let at = *row as usize * PAGE as usize;
            let bytes = &before[at..at + PAGE as usize];
            // What the file grew by since was zeros to parity.
            let grown = !entry.is_covered() && holdfast_codes::is_zero(bytes);
            let sum = self.sum(self.number(work.number, inside), bytes);
            grown || sums && entry.is_covered() && self.certify_pages().agrees(entry.current, sum)
        })
    }

    /// Where the entries of a region are damaged, those of a stripe count for as much as parity
    /// says: its rows are what was covered, or none is known to be, as an entry may be an older
    /// one, and the row with it. Without parity nothing can tell, and entries count.
    pub(crate) fn hold_against_parity(
        &self,
        inner: &mut Inner,
        work: &Work,
        stripe: u32,
        rows: &mut Rows,
    ) {
        let damaged = rows.unsure.iter().any(|(_, why, _)| *why == Unsure::SumsDamaged);
        if work.why != Unsure::SumsDamaged && !damaged {
            return;
        }
        let stored = !rows.changed.is_empty() || !rows.moving.is_empty();
        let known = self.stripes.parity() > 0 && work.region.parity_usable(stripe);
        let adds_up = match self.vouched(inner, work, stripe, rows) {
            Some(adds_up) => adds_up,
            None if !stored || !known || !self.side.s.enabled(GIVES_BACK) => return,
            None if self.gives_back(inner, work, stripe, rows) => return,
            None => false,
        };
        // Where crashes left entries of several passes, parity may be of any of them.
        if !adds_up && work.region.torn {
            return;
        }
        if adds_up {
            rows.changed.extend(rows.unsure.drain(..).map(|(row, _, sum)| (row, sum)));
            return;
        }
        let first = stripe * self.stripes.data();
        let there = work.region.record.pages.saturating_sub(first);
        for row in 0..self.stripes.data().min(there) {
            let told = rows.unsure.iter().map(|(row, ..)| row).chain(&rows.corrupt);
            let told = told.chain(&rows.moving).chain(rows.changed.iter().map(|(row, _)| row));
            // Of what was stored to for certain nothing else has to tell.
            if told.copied().any(|it| it == row) || work.observed.has(first + row) {
                continue;
            }
            let at = row as usize * PAGE as usize;
            let page = self.number(work.number, first + row);
            let sum = self.sum(page, &inner.rows[at..at + PAGE as usize]);
            rows.unsure.push((row, Unsure::SumsDamaged, sum));
            rows.unchanged = rows.unchanged.saturating_sub(1);
        }
    }

    /// Reads a stripe into the buffer and says what each row is.
    pub(crate) fn look(&self, inner: &mut Inner, work: &Work, stripe: u32) -> Result<Rows> {
        let data = self.stripes.data();
        let mut rows = Rows::default();
        let mut buffer = core::mem::take(&mut inner.rows);
        // All at once where nothing is in the way; then nobody asks for the rows one by one.
        let at = self.number(work.number, stripe * data).saturating_mul(PAGE);
        let whole = at.saturating_add(buffer.len() as u64) <= inner.size;
        let whole = whole && self.f.read(at, &mut buffer).is_ok();
        let next = at.saturating_add(buffer.len() as u64);
        let done = (0..data).zip(buffer.chunks_mut(PAGE as usize)).try_for_each(|(row, bytes)| {
            // While this row is summed, that of the next stripe is on its way from memory.
            self.f.prefetch(next.saturating_add(u64::from(row) * PAGE), PAGE);
            self.look_at(inner, work, stripe * data + row, (row, whole), bytes, &mut rows)
        });
        inner.rows = buffer;
        done.map(|()| rows)
    }

    fn look_at(
        &self,
        inner: &Inner,
        work: &Work,
        inside: u32,
        (row, read): (u32, bool),
        bytes: &mut [u8],
        rows: &mut Rows,
    ) -> Result<()> {
        let header = &inner.header.value;
        let page = self.number(work.number, inside);
        rows.last = false;
        let readable = if read { Ok(()) } else { self.read_page(inner.size, page, bytes) };
        if inside >= work.region.record.pages {
            return Ok(());
        }
        let asked = work.observed.or(work.blanket).has(inside);
        if let Err(error) = readable {
            bytes.fill(0);
            if matches!(error.cause, MediaCause::OutOfRange | MediaCause::Truncated) {
                // Cut off since the size was asked for: the next pass sees to it.
                rows.moving.push(row);
            } else if asked || self.may_be_strange(&inner.header.value) {
                rows.unsure.push((row, Unsure::Media(error), 0));
            } else if !self.would_be_told(work, page) {
                rows.unsure.push((row, Unsure::TrackingLost, 0));
            } else {
                rows.corrupt.push(row);
                rows.unread.push(row);
            }
            return Ok(());
        }
        let sum = self.sum(page, bytes);
        if let Some(why) = self.stays(work, inside) {
            rows.unsure.push((row, why, sum));
            return Ok(());
        }
        let entry = Entry::decode(work.entries[inside as usize]);
        let certify = self.certify_pages();
        let same = if header.sums() { certify.agrees(entry.current, sum) } else { !asked };
        if same && (entry.is_covered() || !header.sums()) {
            rows.unchanged += u64::from(asked);
            return Ok(());
        }
        // Nothing else throws back a page whose cover was complete: then it is a lost write.
        let cut_off = work.left.has(inside) && !work.region.reasons.contains_key(&inside);
        let thrown = work.thrown || cut_off && inner.stopped;
        let reverted = thrown && header.previous() && certify.agrees(entry.previous, sum);
        let new = !entry.is_covered() && !work.doubted && !work.left.has(inside);
        let written = work.observed.has(inside) || new || !header.sums();
        if written || work.blanket.has(inside) && reverted {
            rows.changed.push((row, sum));
            rows.last = true;
        } else if !asked && !self.side.s.enabled(NEIGHBOURS) {
            rows.unchanged += 1;
        } else if self.side.s.enabled(AGAIN) && self.is_dirty(&work.region, page)? {
            rows.moving.push(row);
        } else if work.blanket.has(inside) {
            rows.unsure.push((row, work.why, sum));
        } else if self.may_be_strange(header) {
            rows.unsure.push((row, Unsure::Contested, sum));
        } else if !self.would_be_told(work, page) {
            rows.unsure.push((row, Unsure::TrackingLost, sum));
        } else {
            rows.corrupt.push(row);
        }
        Ok(())
    }

    /// Why a page that nobody has stored to since stays undecided, though it agrees with its entry:
    /// whoever lost what was stored there may agree with that for what was before, and where parity
    /// denied that a page is what was covered, the sum is of its entry since.
    fn stays(&self, work: &Work, inside: u32) -> Option<Unsure> {
        if !work.left.has(inside) || work.observed.has(inside) {
            return None;
        }
        let s = &self.side.s;
        match work.region.reason(inside) {
            why @ Unsure::MemoryFailed => s.enabled(LOST).then_some(why),
            why if work.region.is_denied(inside) && s.enabled(DENIED) => Some(why),
            _ => None,
        }
    }

    /// Whether a store to a page would have been told, had there been one. Asked when no store
    /// was: what dies in the middle of a pass takes along what it had not told yet.
    fn would_be_told(&self, work: &Work, page: u64) -> bool {
        let told = || self.d.intact(page.saturating_mul(PAGE), PAGE);
        !work.region.admitted || !self.side.s.enabled(INTACT) || told()
    }

    /// Whether somebody untracked writes to the file, or may.
    fn may_be_strange(&self, header: &Header) -> bool {
        header.contested() || self.side.s.enabled(VOUCHES) && !self.facts.vouches()
    }

    /// Counts and reports what was found, each page once while it stays so.
    pub(crate) fn tell(
        &self,
        inner: &mut Inner,
        work: &mut Work,
        stripe: u32,
        rows: &Rows,
        total: &mut Covered,
        finder: Finder,
    ) {
        let first = stripe * self.stripes.data();
        let verified_ns = work.region.record.verified_ns;
        total.unchanged += rows.unchanged;
        let bad = rows.corrupt.iter().chain(rows.unsure.iter().map(|(row, ..)| row));
        let mut here = Bits::range(first, self.stripes.data());
        for row in bad {
            here = here.without(Bits::one(first + row));
        }
        // All others verify, or hold what was stored: damage that comes now is another one.
        work.region.reported.remove(here);
        for row in &rows.corrupt {
            total.corrupt += 1;
            if work.region.reported.has(first + row) {
                continue;
            }
            work.region.reported.insert(first + row);
            inner.counts.corrupt += 1;
            let at = *row as usize * PAGE as usize;
            let page = self.number(work.number, first + row);
            let readable = !rows.unread.contains(row);
            let sum = self.sum(page, &inner.rows[at..at + PAGE as usize]);
            let before_sum = if readable { sum } else { 0 };
            let event = self.event((page, verified_ns), finder, Outcome::Detected);
            self.report(inner, &Event { cause: cause(readable), before_sum, ..event });
        }
        for (row, why, _) in &rows.unsure {
            work.undecided.insert(first + row);
            let known = work.region.is_told(first + row);
            // An opening counts those that earlier ones have told.
            total.undecided += u64::from(!known || finder == Finder::Open);
            if known {
                continue;
            }
            // What a pass that was cut off took it to be, it is.
            let why = work.region.reasons.entry(first + row).or_insert(*why);
            let why = *why;
            work.region.presumed.remove(Bits::one(first + row));
            inner.counts.undecided += 1;
            if total.undecided > UNDECIDED_TOLD {
                continue;
            }
            let page = self.number(work.number, first + row);
            let event = self.unsure((page, verified_ns), finder, why);
            self.report(inner, &event);
        }
    }
}
