//! The pages of the adjacent log: both areas as one ring, in which batches lie end to end.
//!
//! A batch never spans the gap between the areas: where it does not fit, the rest of the area is
//! skipped. Room is promised *before* a commit draws its number, so that whoever has drawn one
//! gets its record written without waiting for anybody: only that makes waiting for room safe,
//! for room is made by completing commits that have drawn.

use std::collections::VecDeque;

use holdfast_layout::Superblock;

use crate::error::LogError;
use crate::format::{
    ADJACENT_MARK_PAGES, ADJACENT_MARK_STRIDE, LINE_LEN, PAGE_LEN, RECORD_LINES_MAX,
};

/// Fewest pages of an area.
const AREA_MIN: u64 = ADJACENT_MARK_PAGES + 4;
/// A batch takes at most this share of the ring: 1/8 leaves room for what waits.
const BATCH_SHARE: u64 = 8;
/// Lines in a page.
const PAGE_LINES: u64 = PAGE_LEN / LINE_LEN as u64;

/// A batch on the medium, with the pages skipped before it.
#[derive(Debug, Clone, Copy)]
struct Span {
    pages: u64,
    newest: u64,
}

/// Which pages are in use, promised, or free.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Start of each area's pages for batches, as an offset into the pool, and their number.
    areas: [(u64, u64); 2],
    /// Start of the watermark pages.
    marks: u64,
    copies: u64,
    /// Most pages of a batch, all copies together.
    batch_max: u64,
    /// Where the next batch goes: area, and page in it.
    head: (usize, u64),
    /// Batches that may still be needed, oldest first.
    spans: VecDeque<Span>,
    used: u64,
    promised: u64,
}

impl Pages {
    /// The empty ring of a pool. Geometry was bounded by the superblock's own check.
    pub(crate) fn new(superblock: &Superblock) -> Result<Self, LogError> {
        let len = u64::from(superblock.lanes) * superblock.ring_len;
        let pages = len / PAGE_LEN;
        if pages < AREA_MIN {
            let what = "its area has fewer than 8 pages";
            return Err(LogError::Geometry { what, value: pages });
        }
        let copies = if superblock.copies > 1 { 2 } else { 1 };
        let start = superblock.log_start;
        let first = (start + ADJACENT_MARK_PAGES * PAGE_LEN, pages - ADJACENT_MARK_PAGES);
        let areas = [first, (superblock.side_len + start, pages)];
        // Records longer than a record may be cannot fill a batch; what is left is for others.
        let longest = (RECORD_LINES_MAX as u64).div_ceil(PAGE_LINES) * copies;
        let share = ((first.1 + pages) / BATCH_SHARE).min(longest).max(copies);
        Ok(Self {
            areas,
            marks: start,
            copies,
            batch_max: share / copies * copies,
            head: (0, 0),
            spans: VecDeque::with_capacity(64),
            used: 0,
            promised: 0,
        })
    }

    /// Most bytes of a batch, one copy.
    pub(crate) fn batch_len(&self) -> usize {
        (self.batch_max / self.copies * PAGE_LEN) as usize
    }

    /// Copies of each batch.
    pub(crate) fn copies(&self) -> u64 {
        self.copies
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Pages of the whole ring.
    pub(crate) fn total(&self) -> u64 {
        self.areas[0].1 + self.areas[1].1
    }

    /// Where the watermark record of this turn goes; its replica is in the page behind it.
    pub(crate) fn mark(&self, turn: bool) -> u64 {
        self.marks + if turn { ADJACENT_MARK_STRIDE * PAGE_LEN } else { 0 }
    }

    /// Pages, all copies together, of a batch of `len` bytes.
    pub(crate) fn pages_of(&self, len: usize) -> u64 {
        (len as u64).div_ceil(PAGE_LEN) * self.copies
    }

    /// Promises room for a record of `len` bytes, if there is some whatever becomes of the
    /// batches; answers the pages promised. Records share pages, so together they never need more
    /// than was promised to each; at either end of an area, less than a batch is skipped, and no
    /// batch takes more than what is promised in all.
    pub(crate) fn promise(&mut self, len: usize) -> Option<u64> {
        let need = self.pages_of(len);
        let skips = 2 * (self.batch_max.min(self.promised + need) - 1);
        let room = self.used + self.promised + need + skips <= self.total();
        room.then(|| {
            self.promised += need;
            need
        })
    }

    /// Takes a promise back: its record is in a batch that was taken, or was given up.
    pub(crate) fn settle(&mut self, pages: u64) {
        self.promised = self.promised.saturating_sub(pages);
    }

    /// Takes `pages` pages for a batch whose newest record is `newest`; answers where it starts.
    /// `None` only if room was not promised.
    pub(crate) fn take(&mut self, pages: u64, newest: u64) -> Option<u64> {
        let (mut area, mut page) = self.head;
        let mut skipped = 0;
        if self.areas[area].1 - page < pages {
            skipped = self.areas[area].1 - page;
            (area, page) = (1 - area, 0);
        }
        let span = Span { pages: pages + skipped, newest };
        if pages > self.areas[area].1 || self.used + span.pages > self.total() {
            return None;
        }
        self.head = (area, page + pages);
        self.used += span.pages;
        self.spans.push_back(span);
        Some(self.areas[area].0 + page * PAGE_LEN)
    }

    /// Frees, from the oldest on, batches whose records are all covered by the durable watermark.
    pub(crate) fn free(&mut self, durable: u64) {
        while let Some(span) = self.spans.front()
            && span.newest <= durable
        {
            self.used -= span.pages;
            self.spans.pop_front();
        }
    }

    /// Whether the page at `at` belongs to the log.
    pub(crate) fn contains(&self, at: u64) -> bool {
        let within = |start: u64, pages: u64| at >= start && at - start < pages * PAGE_LEN;
        within(self.marks, ADJACENT_MARK_PAGES) || self.areas.iter().any(|&(s, p)| within(s, p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(lanes: u32, ring_pages: u64, copies: u32) -> Superblock {
        Superblock {
            sequence: 1,
            uuid: [1; 16],
            compatible: 0,
            read_only_compatible: 0,
            incompatible: 0,
            log_generation: 1,
            clean: false,
            size: 1 << 30,
            frame: PAGE_LEN,
            chunk: PAGE_LEN,
            side_len: 1 << 24,
            events_len: PAGE_LEN,
            log_start: 1 << 16,
            ring_len: ring_pages * PAGE_LEN,
            lanes,
            log_placement: holdfast_layout::LogPlacement::Adjacent,
            sum_kind: holdfast_layout::SumKind::Crc32c,
            parity: 1,
            copies,
            allow_inject: false,
            anchor: 0,
            rows: 2,
            label: String::new(),
        }
    }

    #[test]
    fn an_area_too_small_is_refused() {
        assert!(matches!(
            Pages::new(&superblock(1, 7, 2)),
            Err(LogError::Geometry { value: 7, .. })
        ));
        assert!(Pages::new(&superblock(2, 4, 2)).is_ok());
    }

    /// What may be skipped at the ends is less than what is promised, so short records find room up
    /// to the last pages.
    #[test]
    fn short_records_get_all_but_a_few_pages() {
        let mut pages = Pages::new(&superblock(1, 256, 2)).unwrap();
        let mut taken = 0;
        while let Some(promised) = pages.promise(64) {
            pages.settle(promised);
            taken += 1;
            pages.take(promised, taken).expect("it was promised");
        }
        assert!(pages.used() + 6 > pages.total(), "{} of {}", pages.used(), pages.total());
    }

    /// However batches are cut and wherever the ring's ends fall, what was promised is there.
    #[test]
    fn a_promise_is_always_kept() {
        for (ring_pages, copies) in [(8, 2), (8, 1), (16, 2), (33, 2), (100, 1), (257, 2)] {
            let mut pages = Pages::new(&superblock(1, ring_pages, copies)).unwrap();
            let (mut state, mut number, mut laps, mut last) = (ring_pages, 0_u64, 0, 0);
            let mut open: (usize, u64) = (0, 0);
            let mut refused = 0;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for _ in 0..50_000 {
                let len = (1 + draw(pages.batch_len() as u64 / 64) as usize) * 64;
                match draw(32) {
                    0 => pages.free(number.saturating_sub(draw(5))),
                    1..=15 => match pages.promise(len) {
                        Some(promised) if open.0 + len <= pages.batch_len() => {
                            (open.0, open.1, number) =
                                (open.0 + len, open.1 + promised, number + 1);
                        }
                        Some(promised) => pages.settle(promised),
                        None => refused += 1,
                    },
                    _ if open.0 > 0 => {
                        pages.settle(open.1);
                        let count = pages.pages_of(open.0);
                        let at = pages.take(count, number).expect("it was promised");
                        let end = at + count * PAGE_LEN;
                        assert!(pages.contains(at) && pages.contains(end - 1));
                        assert!(at >= pages.areas[0].0, "not over the marks");
                        laps += u64::from(at < last);
                        last = at;
                        open = (0, 0);
                    }
                    _ => {}
                }
            }
            assert!(laps > 3 && refused > 0, "{ring_pages} pages: {laps} laps, {refused} refused");
        }
    }
}
