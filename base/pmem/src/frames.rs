//! Which file range serves which range of the pool: the identity, except for relocated frames.

use std::collections::BTreeMap;

/// The relocated ranges, disjoint, by their place in the pool.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    moved: BTreeMap<u64, Moved>,
}

/// Where one range went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    physical: u64,
    len: u64,
}

impl Frames {
    /// Serves `[at, at + len)` from `physical` on. Earlier moves of parts of it are forgotten.
    pub(crate) fn set(&mut self, at: u64, physical: u64, len: u64) {
        let end = at + len;
        let touched: Vec<_> = self
            .moved
            .range(..end)
            .rev()
            .take_while(|(start, moved)| **start + moved.len > at)
            .map(|(start, moved)| (*start, *moved))
            .collect();
        for (start, moved) in touched {
            self.moved.remove(&start);
            if start < at {
                self.moved.insert(start, Moved { len: at - start, ..moved });
            }
            let stop = start + moved.len;
            if stop > end {
                let physical = moved.physical + (end - start);
                self.moved.insert(end, Moved { physical, len: stop - end });
            }
        }
        if at != physical {
            self.moved.insert(at, Moved { physical, len });
        }
    }

    /// Where `at` lies in the file, and how many of the next `len` bytes lie there in one piece.
    pub(crate) fn locate(&self, at: u64, len: u64) -> (u64, u64) {
        if let Some((start, moved)) = self.moved.range(..=at).next_back() {
            let inside = at - start;
            if inside < moved.len {
                return (moved.physical + inside, len.min(moved.len - inside));
            }
        }
        let next = self.moved.range(at + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        (at, len.min(next - at))
    }

    /// Every place of the pool that the file range `[physical, physical + len)` serves, as
    /// (place, bytes). A range served by no place yields nothing.
    pub(crate) fn places_of(&self, physical: u64, len: u64) -> Vec<(u64, u64)> {
        let end = physical + len;
        let mut places = Vec::new();
        for (at, moved) in &self.moved {
            let from = physical.max(moved.physical);
            let to = end.min(moved.physical + moved.len);
            if from < to {
                places.push((at + (from - moved.physical), to - from));
            }
        }
        // The identity serves what was not moved away from there.
        let mut at = physical;
        while at < end {
            let (found, run) = self.locate(at, end - at);
            if found == at {
                places.push((at, run));
            }
            at += run;
        }
        places.sort_unstable();
        places
    }

    /// Relocated ranges.
    pub(crate) fn count(&self) -> usize {
        self.moved.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain table of pages.
        #[test]
        fn equals_a_table_of_pages(
            moves in prop::collection::vec((0u64..32, 0u64..32, 1u64..8), 0..12),
        ) {
            let mut frames = Frames::default();
            let mut table: Vec<u64> = (0..40).collect();
            for (at, physical, len) in moves {
                frames.set(at, physical, len);
                for page in 0..len {
                    table[(at + page) as usize] = physical + page;
                }
            }
            for at in 0..40u64 {
                let (physical, run) = frames.locate(at, 40 - at);
                prop_assert!(run >= 1 && at + run <= 40);
                for page in 0..run {
                    prop_assert_eq!(table[(at + page) as usize], physical + page);
                }
            }
            for physical in 0..32u64 {
                let expected: Vec<u64> =
                    (0..40).filter(|at| table[*at as usize] == physical).collect();
                let found: Vec<u64> =
                    frames.places_of(physical, 1).into_iter().map(|(at, _)| at).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
