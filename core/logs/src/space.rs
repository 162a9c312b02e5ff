//! Which lines of a lane's ring may be overwritten.
//!
//! A lane's records lie in its ring in order of their numbers. So it is enough to know, for each
//! of a few segments of the ring, the newest number that touches it: the records of a segment
//! about to be entered are overwritten all together, once the newest of them is complete. Exact
//! places of single records need not be remembered, and a commit inside a segment asks nothing.

use crate::format::RING_MARKS;

/// Segments of a ring. More make reuse finer, fewer keep this within a few cache lines.
const SEGMENTS: usize = 64;
/// No segment was entered yet.
const NONE: usize = usize::MAX;

/// A stretch of lines chosen for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// First line, counted from the start of the ring.
    pub(crate) line: u32,
    pub(crate) lines: u32,
    /// Segments that this record is the first of its lap to touch.
    entered: (usize, usize),
}

/// The lines of a ring behind its watermark lines.
#[derive(Debug)]
pub(crate) struct Space {
    /// Lines of the ring, those for watermarks included.
    lines: u32,
    /// Line where the next record goes, if it fits.
    next: u32,
    /// Segment that `next` lies in, if this lap has entered it.
    current: usize,
    /// log2 of the lines of a segment.
    shift: u32,
    /// Newest number that touches each segment, of this lap or the one before; 0 for none.
    newest: [u64; SEGMENTS],
}

impl Space {
    /// A ring of `lines` lines with nothing in it.
    pub(crate) fn new(lines: u32) -> Self {
        let mut shift = 0;
        while (lines.saturating_sub(1) >> shift) as usize >= SEGMENTS {
            shift += 1;
        }
        Self { lines, next: RING_MARKS, current: NONE, shift, newest: [0; SEGMENTS] }
    }

    /// Most lines of a record.
    #[inline]
    pub(crate) fn capacity(&self) -> u32 {
        self.lines - RING_MARKS
    }

    /// Where the next record goes, if it has `lines` lines (at most [`capacity`](Self::capacity)).
    #[inline]
    pub(crate) fn place(&self, lines: u32) -> Place {
        self.behind(self.next, self.current, lines)
    }

    /// Where a record goes of which the one before ends at `next`, in segment `current`.
    #[inline]
    fn behind(&self, next: u32, current: usize, lines: u32) -> Place {
        let fits = lines <= self.lines - next;
        let line = if fits { next } else { RING_MARKS };
        let first = (line >> self.shift) as usize;
        let last = ((line + lines - 1) >> self.shift) as usize;
        let entered = if fits && first == current { first + 1 } else { first };
        Place { line, lines, entered: (entered, last + 1) }
    }

    /// The newest number that a record in this place would overwrite; 0 for none.
    #[inline]
    pub(crate) fn overwrites(&self, place: &Place) -> u64 {
        let (first, end) = place.entered;
        let entered = self.newest.get(first..end).unwrap_or_default();
        entered.iter().copied().max().unwrap_or(0)
    }

    /// The newest number that a record as long as this one would overwrite right behind it.
    #[inline]
    pub(crate) fn overwrites_next(&self, place: &Place) -> u64 {
        let end = place.line + place.lines;
        let last = ((end - 1) >> self.shift) as usize;
        self.overwrites(&self.behind(end, last, place.lines))
    }

    /// The record `number` is in this place now.
    #[inline]
    pub(crate) fn take(&mut self, place: &Place, number: u64) {
        let first = (place.line >> self.shift) as usize;
        let last = ((place.line + place.lines - 1) >> self.shift) as usize;
        for newest in self.newest.get_mut(first..=last).into_iter().flatten() {
            *newest = number;
        }
        (self.next, self.current) = (place.line + place.lines, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_an_entered_segment_nothing_is_asked() {
        let mut space = Space::new(128);
        let first = space.place(1);
        assert_eq!((first.line, space.overwrites(&first)), (2, 0));
        for number in 1..=126 {
            let place = space.place(1);
            assert_eq!(space.overwrites(&place), 0);
            space.take(&place, number);
        }
        // Second lap: segments of two lines, of which the first holds no record's first line.
        let place = space.place(1);
        assert_eq!((place.line, space.overwrites(&place)), (2, 2));
        space.take(&place, 127);
        let place = space.place(1);
        assert_eq!((place.line, space.overwrites(&place)), (3, 0));
        let long = space.place(4);
        assert_eq!(space.overwrites(&long), 6);
    }

    #[test]
    fn a_record_that_does_not_fit_goes_to_the_start() {
        let mut space = Space::new(64);
        let place = space.place(60);
        space.take(&place, 1);
        let place = space.place(3);
        assert_eq!((place.line, space.overwrites(&place)), (2, 1));
        space.take(&place, 2);
        // The skipped tail still holds what was there; it is asked for when it is entered.
        let whole = space.place(59);
        assert_eq!((whole.line, space.overwrites(&whole)), (5, 1));
        let everything = space.place(62);
        assert_eq!((everything.line, space.overwrites(&everything)), (2, 2));
    }

    /// Against the exact answer, kept line by line: whatever is overwritten had been asked for.
    #[test]
    fn nothing_is_overwritten_unasked() {
        for lines in [64_u32, 65, 100, 128, 1000] {
            let mut space = Space::new(lines);
            let mut exact = vec![0_u64; lines as usize];
            let (mut asked, mut state) = (0, u64::from(lines));
            for number in 1..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let len = 1 + (state >> 33) as u32 % space.capacity().min(30);
                let place = space.place(len);
                let range = place.line as usize..(place.line + len) as usize;
                assert!(range.start >= RING_MARKS as usize && range.end <= lines as usize);
                asked = asked.max(space.overwrites(&place));
                let truth = exact[range.clone()].iter().copied().max().unwrap_or(0);
                assert!(truth <= asked, "record {number} at {place:?} overwrites {truth}");
                space.take(&place, number);
                exact[range].fill(number);
            }
            assert!(asked > 1000, "the ring wrapped");
        }
    }
}
