//! What may be lost in a storm beyond tolerance: objects with a part in a page that was hurt, over
//! a column that was hurt more often between two scrubs than it has rows of parity.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_layout::{RawPtr, Region};
use holdfast_pmem::PAGE;

use crate::object::driver::Driver;
use crate::object::raw::Bytes;
use crate::object::rows::spared::Range;
use crate::object::targets::{Chunks, Targets, parts_at};

/// Where the parts of what may lie at a place are.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// Slot and sums, by the first byte of the place.
    pub(super) parts: BTreeMap<u64, (u64, u64)>,
    /// Where the chunks are and their entries, whatever these say.
    pub(super) chunks: Vec<Chunks>,
}

impl Places {
    /// Those of a pool as it is now.
    pub(super) fn of(driver: &Driver) -> Self {
        let pool = Bytes::of(&driver.medium);
        Self { parts: Targets::places(&pool), chunks: Targets::chunks(&pool) }
    }

    /// The entries of the chunks in which something lies.
    fn entries(&self, at: u64, len: u64) -> Option<Range> {
        self.chunks.iter().find_map(|chunks| chunks.entries(at, len))
    }

    /// How many bytes a place has, up to the next one.
    fn room(&self, at: u64) -> Option<u64> {
        self.parts.get(&at)?;
        Some(self.parts.range(at + 1..).next()?.0 - at)
    }

    /// The pages of all parts of what has a part in one of these.
    fn with_parts(&self, exposed: &BTreeSet<u64>) -> BTreeSet<u64> {
        let parts = self.parts.keys().filter_map(|at| {
            let parts = self.all(*at, self.room(*at).unwrap_or(1))?;
            let mut of = parts.iter().copied().flat_map(pages);
            of.any(|page| exposed.contains(&page)).then_some(parts)
        });
        parts.flatten().flat_map(pages).collect()
    }

    fn all(&self, object: u64, len: u64) -> Option<Vec<Range>> {
        let parts = parts_at(object, *self.parts.get(&object)?, len);
        Some(parts.into_iter().chain(self.entries(object, len)).collect())
    }
}

/// Pages that were hurt, and what lies there.
#[derive(Debug)]
pub(super) struct Exposed {
    pages: Vec<Range>,
    /// Before and after.
    places: Vec<Places>,
}

/// Something that was hurt, and whether a page of it stays bad.
pub(super) type Hurt = (Range, bool);

/// The pages that these are of.
fn pages((at, len): Range) -> impl Iterator<Item = u64> {
    at / PAGE..(at + len.max(1)).div_ceil(PAGE)
}

/// The pages of a zone that parity need not give back, if this was hurt between two scrubs each: of
/// a column that was hurt more often than it has rows of parity, those; and those that were hurt
/// twice, with Q as well: who takes a free place that is damaged passes the damage on to all
/// parity, and of the place, damaged again, nothing else is left. They stay so, as do pages that
/// are bad for good. Parity over the other parts of what is lost is left as it is, since it may be
/// what is right: whatever is hurt there later is exposed as well.
pub(super) fn beyond_parity<'a>(
    zone: &Region,
    rounds: impl Iterator<Item = &'a [Hurt]>,
    places: &[Places],
) -> Vec<Range> {
    let row_pages = zone.row_len / PAGE;
    let first = zone.start / PAGE;
    let all = u64::from(zone.data_rows + zone.parity_rows) * row_pages;
    let (mut exposed, mut for_good) = (BTreeSet::new(), BTreeSet::new());
    let mut unsettled: BTreeSet<u64> = BTreeSet::new();
    for round in rounds {
        let of_zone = |page: &u64| (first..first + all).contains(page);
        let hurt = round.iter().flat_map(|(range, stays)| pages(*range).map(move |p| (p, *stays)));
        let hurt: Vec<(u64, bool)> = hurt.filter(|(page, _)| of_zone(page)).collect();
        let mut columns: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let now = hurt.iter().map(|(page, _)| page);
        for page in now.chain(&for_good).chain(&exposed) {
            columns.entry((page - first) % row_pages).or_default().push(*page);
        }
        let fresh: BTreeSet<u64> =
            hurt.iter().map(|(page, _)| (page - first) % row_pages).collect();
        for (column, pages) in columns {
            let distinct: BTreeSet<u64> = pages.iter().copied().collect();
            let over = pages.len() > zone.parity_rows as usize
                || (unsettled.contains(&column) && fresh.contains(&column));
            if over || distinct.len() < pages.len() {
                exposed.extend(distinct);
            }
        }
        for_good.extend(hurt.into_iter().filter_map(|(page, stays)| stays.then_some(page)));
        let parts = places.iter().flat_map(|places| places.with_parts(&exposed));
        let of_zone = parts.filter(|page| (first..first + all).contains(page));
        unsettled = of_zone.map(|page| (page - first) % row_pages).collect();
    }
    exposed.into_iter().map(|page| (page * PAGE, PAGE)).collect()
}

impl Exposed {
    /// Of a pool in which the pages of these ranges were hurt, with its places before and after.
    pub(super) fn by(hurt: Vec<Range>, places: [Places; 2]) -> Self {
        let pages: BTreeSet<u64> = hurt.into_iter().flat_map(pages).collect();
        let pages = pages.into_iter().map(|page| (page * PAGE, PAGE)).collect();
        Self { pages, places: places.into() }
    }

    /// The same, where places are known from one more look. Of a pool that had stopped, its own
    /// directory may not have told where everything was.
    pub(super) fn also(&self, places: Places) -> Self {
        let all = self.places.iter().cloned().chain([places]).collect();
        Self { pages: self.pages.clone(), places: all }
    }

    /// Whether an object of so many bytes has a part in a page that was hurt: its bytes, its slot,
    /// its sums, or the entry of a chunk of it. Where nothing says where these are, it may have.
    pub(super) fn has(&self, word: u64, len: u64) -> bool {
        let at = RawPtr::from_word(word).offset();
        let mut all = self.places.iter().filter_map(|places| places.all(at, len)).peekable();
        all.peek().is_none() || all.flatten().any(|part| self.touches(part))
    }

    /// Whether a page of a range was hurt.
    pub(super) fn touches(&self, (at, len): Range) -> bool {
        self.pages.iter().any(|(page, n)| *page < at + len && at < page + n)
    }

    /// How many bytes a place has, as far as that is known before or now.
    pub(super) fn room(&self, at: u64) -> Option<u64> {
        self.places.iter().find_map(|places| places.room(at))
    }

    /// Whether nothing says where the parts of an object are.
    pub(super) fn is_unknown(&self, word: u64) -> bool {
        let at = RawPtr::from_word(word).offset();
        !self.places.iter().any(|places| places.parts.contains_key(&at))
    }

    /// Where an object of so many bytes has its parts, as far as that was known before or is now:
    /// of one whose slot is gone the pool itself says nothing any more.
    pub(super) fn parts(&self, word: u64, len: u64) -> Vec<Range> {
        let at = RawPtr::from_word(word).offset();
        let all = self.places.iter().filter_map(|places| places.all(at, len)).flatten();
        let entries = self.places.iter().filter_map(|places| places.entries(at, len));
        std::iter::once((at, len)).chain(all).chain(entries).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_layout::RegionKind;

    use super::*;

    fn zone(parity_rows: u32) -> Region {
        let (data_rows, row_len) = (5, 4 * PAGE);
        let len = u64::from(data_rows + parity_rows) * row_len;
        let (start, kind, chunk) = (8 * PAGE, RegionKind::Zone, PAGE);
        Region { start, len, kind, data_rows, parity_rows, row_len, chunk }
    }

    fn page(row: u64, col: u64) -> u64 {
        8 + row * 4 + col
    }

    fn exposed(parity_rows: u32, rounds: &[&[(u64, bool)]]) -> Vec<u64> {
        let hurt = |round: &&[(u64, bool)]| {
            round.iter().map(|(page, stays)| ((page * PAGE + 7, 1), *stays)).collect::<Vec<Hurt>>()
        };
        let rounds: Vec<Vec<Hurt>> = rounds.iter().map(hurt).collect();
        let rounds = rounds.iter().map(Vec::as_slice);
        let parts = [(page(0, 1) * PAGE, (page(0, 2) * PAGE, page(0, 2) * PAGE))];
        let places = Places { parts: parts.into_iter().collect(), ..Places::default() };
        let pages = beyond_parity(&zone(parity_rows), rounds, &[places]);
        pages.into_iter().map(|(at, _)| at / PAGE).collect()
    }

    #[test]
    fn what_parity_makes_good_exposes_nothing() {
        let (one, two) = ((page(0, 1), false), (page(3, 1), false));
        assert_eq!(exposed(1, &[&[one], &[two]]), [0; 0], "a scrub was in between");
        assert_eq!(exposed(1, &[&[one, (page(3, 2), false)]]), [0; 0], "two columns");
        assert_eq!(exposed(1, &[&[one, two]]), [one.0, two.0]);
        assert_eq!(exposed(2, &[&[one, two]]), [0; 0]);
        assert_eq!(exposed(2, &[&[one, one]]), [one.0], "stored over in between");
        assert_eq!(exposed(2, &[&[one, two, (page(4, 1), false)]]).len(), 3);
        assert_eq!(exposed(2, &[&[one], &[two]]), [0; 0]);
        assert_eq!(exposed(1, &[&[one, one]]), [one.0], "stored over in between");
        assert_eq!(exposed(0, &[&[one]]), [one.0]);
        assert_eq!(exposed(1, &[&[(one.0, true)], &[two]]), [one.0, two.0], "bad for good");
        let third = (page(4, 1), false);
        assert_eq!(exposed(1, &[&[one, two], &[third]]), [one.0, two.0, third.0], "lost for good");
        let slot = (page(0, 2), false);
        let all = [one.0, slot.0, two.0];
        assert_eq!(exposed(1, &[&[one, two], &[slot]]), all, "the slot of what is lost");
        assert_eq!(exposed(1, &[&[one, two, slot]]), [one.0, two.0], "at once");
    }
}
