//! The pages of the adjacent log: both areas as one ring, in which batches lie end to end.
//!
//! A batch never spans the gap between the areas: where it does not fit, the rest of the area is
//! skipped. Room is promised *before* a commit draws its number, so that whoever has drawn one
//! gets its record written without waiting for anybody: only that makes waiting for room safe,
//! for room is made by completing commits that have drawn.

use std::collections::VecDeque;

use holdfast_layout::Superblock;

use crate::error::LogError;
use crate::format::{ADJACENT_MARK_PAGES, ADJACENT_MARK_STRIDE, LINE_LEN, PAGE_LEN, RECORD_LINES_MAX};

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
    /// batches. Records share pages, so together they never need more than was promised to each;
    /// at either end of an area, less than a batch is skipped.
    pub(crate) fn promise(&mut self, len: usize) -> Option<u64> {
        let need = self.pages_of(len);
        let skips = 2 * (self.batch_max - 1);
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
