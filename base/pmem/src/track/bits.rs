//! One bit per page, and runs of them.

use core::ops::Range;

use crate::medium::PAGE;

/// Pages of a word.
pub(crate) const WORD: u64 = u64::BITS as u64;

/// The words that hold the pages of a range, each with the bits of it that count.
pub(crate) fn words(pages: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = pages;
    (start / WORD..end.div_ceil(WORD)).map(move |word| {
        let first = word * WORD;
        let low = start.saturating_sub(first);
        let high = (end - first).min(WORD);
        let below = if high == WORD { u64::MAX } else { (1 << high) - 1 };
        (word as usize, below & !((1 << low) - 1))
    })
}

/// Words of a part of a bitmap, whose pages are 16 MiB.
const PART: usize = 64;
/// Pages of a part.
const PART_PAGES: u64 = PART as u64 * WORD;

/// A part of a bitmap. Most are all alike: whole files are armed, and most pages are at rest.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Clear,
    Set,
    Mixed(Box<[u64; PART]>),
}

impl Part {
    fn word(&self, word: usize) -> u64 {
        match self {
            Self::Clear => 0,
            Self::Set => u64::MAX,
            Self::Mixed(words) => words[word],
        }
    }

    /// Changes one word, all of whose part may be alike afterwards.
    fn change(&mut self, word: usize, to: u64) {
        if self.word(word) == to {
            return;
        }
        let words = match self {
            Self::Mixed(words) => words,
            Self::Clear | Self::Set => {
                *self = Self::Mixed(Box::new([self.word(word); PART]));
                let Self::Mixed(words) = self else { return };
                words
            }
        };
        words[word] = to;
        let alike = (to == 0 || to == u64::MAX) && words.iter().all(|other| *other == to);
        if alike {
            *self = if to == 0 { Self::Clear } else { Self::Set };
        }
    }
}

/// A bitmap that takes room for what is neither all clear nor all set. Bits beyond the last that
/// was set are clear and take none: a source covers addresses that the file may grow into one day,
/// many times its length.
#[derive(Debug, Default)]
pub(crate) struct PageBits {
    parts: Vec<Part>,
}

impl PageBits {
    /// No bit set.
    pub(crate) const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    fn word(&self, word: usize) -> u64 {
        self.parts.get(word / PART).map_or(0, |part| part.word(word % PART))
    }

    /// The part of that number, which is made where it is beyond the last.
    fn part(&mut self, number: usize) -> &mut Part {
        if self.parts.len() <= number {
            self.parts.resize_with(number + 1, Part::default);
        }
        &mut self.parts[number]
    }

    /// Sets the bits of a range.
    pub(crate) fn set(&mut self, pages: Range<u64>) {
        for (number, inside, whole) in parts(pages) {
            let part = self.part(number);
            if whole {
                *part = Part::Set;
            } else {
                words(inside).for_each(|(word, mask)| part.change(word, part.word(word) | mask));
            }
        }
    }

    /// Clears them.
    pub(crate) fn clear(&mut self, pages: Range<u64>) {
        for (number, inside, whole) in parts(pages) {
            let Some(part) = self.parts.get_mut(number) else { return };
            if whole {
                *part = Part::Clear;
            } else {
                words(inside).for_each(|(word, mask)| part.change(word, part.word(word) & !mask));
            }
        }
    }

    /// Sets in `self` what is set in `other`, in a range.
    pub(crate) fn join(&mut self, other: &Self, pages: Range<u64>) {
        for (number, inside, whole) in parts(pages) {
            match other.parts.get(number) {
                None => return,
                Some(Part::Clear) => {}
                Some(Part::Set) if whole => *self.part(number) = Part::Set,
                Some(theirs) => {
                    let part = self.part(number);
                    for (word, mask) in words(inside) {
                        part.change(word, part.word(word) | theirs.word(word) & mask);
                    }
                }
            }
        }
    }

    /// Sets the bits of one word.
    pub(crate) fn join_word(&mut self, word: usize, bits: u64) {
        if bits != 0 {
            let part = self.part(word / PART);
            part.change(word % PART, part.word(word % PART) | bits);
        }
    }

    /// Clears in `self` what is clear in `other`, in a range.
    pub(crate) fn restrict(&mut self, other: &Self, pages: Range<u64>) {
        for (number, inside, _) in parts(pages) {
            let Some(part) = self.parts.get_mut(number) else { return };
            for (word, mask) in words(inside) {
                let theirs = other.word(number * PART + word);
                part.change(word, part.word(word) & (theirs | !mask));
            }
        }
    }

    /// Whether all bits of a range are set.
    pub(crate) fn all(&self, pages: Range<u64>) -> bool {
        parts(pages).all(|(number, inside, _)| match self.parts.get(number) {
            None | Some(Part::Clear) => false,
            Some(Part::Set) => true,
            Some(part) => words(inside).all(|(word, mask)| part.word(word) & mask == mask),
        })
    }

    /// Whether any bit of a range is set.
    pub(crate) fn any(&self, pages: Range<u64>) -> bool {
        parts(pages).any(|(number, inside, _)| match self.parts.get(number) {
            None | Some(Part::Clear) => false,
            Some(Part::Set) => true,
            Some(part) => words(inside).any(|(word, mask)| part.word(word) & mask != 0),
        })
    }

    /// Tells the set bits of a range.
    pub(crate) fn tell(&self, pages: Range<u64>, runs: &mut Runs<'_>) {
        for (number, inside, _) in parts(pages) {
            let first = number as u64 * PART_PAGES;
            match self.parts.get(number) {
                None => return,
                Some(Part::Clear) => {}
                Some(Part::Set) => runs.push(first + inside.start..first + inside.end),
                Some(Part::Mixed(bits)) => words(inside).for_each(|(word, mask)| {
                    runs.word(first + word as u64 * WORD, bits[word] & mask);
                }),
            }
        }
    }
}

/// The parts that hold the pages of a range: number, pages counted from its first, and whether
/// those are all of it.
fn parts(pages: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>, bool)> {
    let Range { start, end } = pages;
    // Of an empty range there is none.
    let numbers = start / PART_PAGES..if start < end { end.div_ceil(PART_PAGES) } else { 0 };
    numbers.map(move |number| {
        let first = number * PART_PAGES;
        let low = start.saturating_sub(first);
        let high = (end - first).min(PART_PAGES);
        (number as usize, low..high, high - low == PART_PAGES)
    })
}

/// Joins pages to runs as long as they can be, and tells them in bytes of the file.
pub(crate) struct Runs<'a> {
    /// The file's byte at which page 0 lies.
    origin: u64,
    open: Range<u64>,
    each: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Runs<'a> {
    /// Nothing told yet.
    pub(crate) fn new(origin: u64, each: &'a mut dyn FnMut(u64, u64)) -> Self {
        Self { origin, open: 0..0, each }
    }

    /// Adds a run that begins where, or after, the last one ended.
    pub(crate) fn push(&mut self, pages: Range<u64>) {
        if pages.start == self.open.end && !self.open.is_empty() {
            self.open.end = pages.end;
        } else if !pages.is_empty() {
            self.tell();
            self.open = pages;
        }
    }

    /// Adds the set bits of a word, the lowest of which is page `first`.
    pub(crate) fn word(&mut self, first: u64, mut bits: u64) {
        let mut at = 0;
        while bits != 0 {
            let gap = u64::from(bits.trailing_zeros());
            bits >>= gap;
            let run = u64::from(bits.trailing_ones());
            at += gap;
            self.push(first + at..first + at + run);
            at += run;
            bits = if run == WORD { 0 } else { bits >> run };
        }
    }

    /// Tells the last run.
    pub(crate) fn end(mut self) {
        self.tell();
    }

    fn tell(&mut self) {
        if !self.open.is_empty() {
            let len = self.open.end - self.open.start;
            (self.each)(self.origin + self.open.start * PAGE, len * PAGE);
            self.open = 0..0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 3 * PART_PAGES;

    /// Pages at which ranges begin and end: often where parts do.
    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![0..=MOST, 0u64..200, (0..=3u64).prop_map(|part| part * PART_PAGES)]
    }

    proptest! {
        /// Against a plain table of truth values.
        #[test]
        fn equals_a_table(
            steps in prop::collection::vec((any::<bool>(), edge(), edge()), 0..12),
            asked in (edge(), edge()),
        ) {
            let mut bits = PageBits::new();
            let mut table = [false; MOST as usize];
            for (on, from, to) in steps {
                let pages = from.min(to)..from.max(to);
                table[pages.start as usize..pages.end as usize].fill(on);
                if on { bits.set(pages) } else { bits.clear(pages) }
            }
            let asked = asked.0.min(asked.1)..asked.0.max(asked.1);
            let inside = &table[asked.start as usize..asked.end as usize];
            prop_assert_eq!(bits.all(asked.clone()), inside.iter().all(|on| *on));
            prop_assert_eq!(bits.any(asked.clone()), inside.iter().any(|on| *on));
            let mut told = Vec::new();
            let mut each = |at, len| told.push((at, len));
            let mut runs = Runs::new(7 * PAGE, &mut each);
            bits.tell(asked.clone(), &mut runs);
            runs.end();
            let mut expected: Vec<(u64, u64)> = Vec::new();
            for page in asked.filter(|page| table[*page as usize]) {
                let at = (page + 7) * PAGE;
                match expected.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += PAGE,
                    _ => expected.push((at, PAGE)),
                }
            }
            prop_assert_eq!(told, expected);
        }

        /// Two of them, against tables.
        #[test]
        fn joins_and_restricts_as_tables_do(
            steps in prop::collection::vec((any::<(bool, bool)>(), edge(), edge()), 0..12),
            both in (any::<bool>(), edge(), edge()),
        ) {
            let mut bits = [PageBits::new(), PageBits::new()];
            let mut tables = [[false; MOST as usize]; 2];
            for ((which, on), from, to) in steps {
                let pages = from.min(to)..from.max(to);
                let which = usize::from(which);
                tables[which][pages.start as usize..pages.end as usize].fill(on);
                if on { bits[which].set(pages) } else { bits[which].clear(pages) }
            }
            let (joined, from, to) = both;
            let pages = from.min(to)..from.max(to);
            let [one, other] = &mut bits;
            if joined { one.join(other, pages.clone()) } else { one.restrict(other, pages.clone()) }
            for word in 0..MOST / WORD {
                let expected = (0..WORD).fold(0, |bits, bit| {
                    let page = word * WORD + bit;
                    let (ours, theirs) = (tables[0][page as usize], tables[1][page as usize]);
                    let inside = pages.contains(&page);
                    let both = if joined { ours | theirs } else { ours & theirs };
                    let on = if inside { both } else { ours };
                    bits | u64::from(on) << bit
                });
                prop_assert_eq!(one.word(word as usize), expected, "word {}", word);
            }
            for part in &one.parts {
                let Part::Mixed(words) = part else { continue };
                let first = words[0];
                let alike = words.iter().all(|it| *it == first) && [0, u64::MAX].contains(&first);
                prop_assert!(!alike, "it takes room for nothing");
            }
        }
    }
}
