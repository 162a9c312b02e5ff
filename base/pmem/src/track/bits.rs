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

/// A plain bitmap. Bits beyond the last that was set are clear and take no room: a source covers
/// addresses that the file may grow into one day, many times its length.
#[derive(Debug, Default)]
pub(crate) struct PageBits {
    words: Vec<u64>,
}

impl PageBits {
    /// No bit set.
    pub(crate) const fn new() -> Self {
        Self { words: Vec::new() }
    }

    fn word(&self, word: usize) -> u64 {
        self.words.get(word).copied().unwrap_or(0)
    }

    fn at(&mut self, word: usize) -> &mut u64 {
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        &mut self.words[word]
    }

    /// Sets the bits of a range.
    pub(crate) fn set(&mut self, pages: Range<u64>) {
        for (word, mask) in words(pages) {
            *self.at(word) |= mask;
        }
    }

    /// Clears them.
    pub(crate) fn clear(&mut self, pages: Range<u64>) {
        for (word, mask) in words(pages) {
            if let Some(bits) = self.words.get_mut(word) {
                *bits &= !mask;
            }
        }
    }

    /// Sets in `self` what is set in `other`, in a range.
    pub(crate) fn join(&mut self, other: &Self, pages: Range<u64>) {
        for (word, mask) in words(pages) {
            self.join_word(word, other.word(word) & mask);
        }
    }

    /// Sets the bits of one word.
    pub(crate) fn join_word(&mut self, word: usize, bits: u64) {
        if bits != 0 {
            *self.at(word) |= bits;
        }
    }

    /// Clears in `self` what is clear in `other`, in a range.
    pub(crate) fn restrict(&mut self, other: &Self, pages: Range<u64>) {
        for (word, mask) in words(pages) {
            if let Some(bits) = self.words.get_mut(word) {
                *bits &= other.word(word) | !mask;
            }
        }
    }

    /// Whether all bits of a range are set.
    pub(crate) fn all(&self, pages: Range<u64>) -> bool {
        words(pages).all(|(word, mask)| self.word(word) & mask == mask)
    }

    /// Whether any bit of a range is set.
    pub(crate) fn any(&self, pages: Range<u64>) -> bool {
        words(pages).any(|(word, mask)| self.word(word) & mask != 0)
    }

    /// Tells the set bits of a range.
    pub(crate) fn tell(&self, pages: Range<u64>, runs: &mut Runs<'_>) {
        let held = self.words.len() as u64 * WORD;
        let mut rest = pages.start..pages.end.min(held);
        while !rest.is_empty() {
            // Most words of a sparse file are clear: passed over as fast as they can be read.
            let word = (rest.start / WORD) as usize;
            let last = rest.end.div_ceil(WORD) as usize;
            let clear = self.words[word..last].iter().take_while(|bits| **bits == 0).count();
            rest.start = rest.start.max((word + clear) as u64 * WORD).min(rest.end);
            let end = rest.end.min((rest.start / WORD + 1) * WORD);
            for (word, mask) in words(rest.start..end) {
                runs.word(word as u64 * WORD, self.words[word] & mask);
            }
            rest.start = end;
        }
    }
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

    proptest! {
        /// Against a plain table of truth values.
        #[test]
        fn equals_a_table(
            steps in prop::collection::vec((any::<bool>(), 0u64..200, 0u64..200), 0..12),
            asked in (0u64..200, 0u64..200),
        ) {
            let mut bits = PageBits::new();
            let mut table = [false; 200];
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
    }
}
