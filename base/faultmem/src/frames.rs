//! Relocation: which page of the file serves which page of the pool.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_pmem::PAGE;

/// Pages of the pool that are served from elsewhere. Everything else lies at its own place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frames {
    /// Page of the pool to page of the file.
    moved: BTreeMap<u64, u64>,
    /// Page of the file to the relocated pages of the pool it serves, ascending.
    served: BTreeMap<u64, Vec<u64>>,
    /// Pages of the pool that memory stands in for: nothing of the file is seen there.
    stand_ins: BTreeSet<u64>,
}

impl Frames {
    /// The page of the file behind a page of the pool.
    pub(crate) fn physical_page(&self, page: u64) -> u64 {
        if self.moved.is_empty() {
            return page;
        }
        self.moved.get(&page).copied().unwrap_or(page)
    }

    /// The byte of the file behind a byte of the pool.
    pub(crate) fn physical(&self, at: u64) -> u64 {
        self.physical_page(at / PAGE) * PAGE + at % PAGE
    }

    /// Whether memory stands in for a page of the pool.
    pub(crate) fn stands_in(&self, page: u64) -> bool {
        self.stand_ins.contains(&page)
    }

    /// Whether it does for any page of a range of bytes.
    pub(crate) fn stands_in_any(&self, at: u64, len: u64) -> bool {
        len > 0 && self.stand_ins.range(at / PAGE..=(at + len - 1) / PAGE).next().is_some()
    }

    /// Has memory stand in for a page from now on.
    pub(crate) fn stand_in(&mut self, page: u64) {
        self.stand_ins.insert(page);
    }

    /// Calls `each` for every page of the pool that shows the given page of the file.
    pub(crate) fn for_each_alias(&self, physical: u64, mut each: impl FnMut(u64)) {
        let mut each = |page| {
            if !self.stand_ins.contains(&page) {
                each(page);
            }
        };
        if self.moved.is_empty() {
            return each(physical);
        }
        if !self.moved.contains_key(&physical) {
            each(physical);
        }
        for &page in self.served.get(&physical).into_iter().flatten() {
            each(page);
        }
    }

    /// Serves `page` of the pool from `physical` of the file from now on.
    pub(crate) fn relocate(&mut self, page: u64, physical: u64) {
        self.stand_ins.remove(&page);
        if let Some(old) = self.moved.remove(&page)
            && let Some(pages) = self.served.get_mut(&old)
        {
            pages.retain(|&p| p != page);
        }
        if page != physical {
            self.moved.insert(page, physical);
            let pages = self.served.entry(physical).or_default();
            let place = pages.partition_point(|&p| p < page);
            pages.insert(place, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(frames: &Frames, physical: u64) -> Vec<u64> {
        let mut pages = Vec::new();
        frames.for_each_alias(physical, |page| pages.push(page));
        pages
    }

    #[test]
    fn follows_moves_and_moves_back() {
        let mut frames = Frames::default();
        assert_eq!(aliases(&frames, 3), [3]);
        frames.relocate(3, 9);
        assert_eq!(frames.physical(3 * PAGE + 5), 9 * PAGE + 5);
        assert_eq!(aliases(&frames, 9), [9, 3], "the spare is still seen at its own place");
        assert!(aliases(&frames, 3).is_empty(), "nobody sees the bad page any more");
        frames.relocate(3, 8);
        assert_eq!(aliases(&frames, 9), [9]);
        assert_eq!(aliases(&frames, 8), [8, 3]);
        frames.stand_in(3);
        assert_eq!(aliases(&frames, 8), [8], "what memory shows is nothing of the file");
        assert!(frames.stands_in_any(2 * PAGE, PAGE + 1) && !frames.stands_in_any(2 * PAGE, PAGE));
        frames.relocate(3, 3);
        assert!(!frames.stands_in(3));
        assert_eq!(frames.physical_page(3), 3);
        assert_eq!(aliases(&frames, 3), [3]);
    }
}
