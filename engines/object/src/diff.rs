//! Which bytes of a private copy differ from what was verified.

/// Bytes of a word: differences are found and logged in whole words.
const WORD: usize = 8;
/// Bytes of a line: what one byte of bits tells of.
pub(crate) const LINE: usize = 64;
/// Bits of a line all of whose words differ.
const WHOLE: u32 = 0xff;
/// Unchanged bytes between two changed ranges that are not worth an entry of their own.
const MERGE_GAP: usize = 24;

/// Whether all of `len` bytes differ, and are whole lines. No bytes do not differ.
#[inline]
pub(crate) fn is_whole(words: &[u8], len: usize) -> bool {
    len > 0 && len.is_multiple_of(LINE) && words.iter().all(|bits| u32::from(*bits) == WHOLE)
}

/// Calls `each(from, to)` for every range of `len` bytes that differs, in whole words, close ranges
/// merged. `words` has a bit for each word that differs, as [`holdfast_codes::delta_words`] sets
/// them.
#[inline]
pub(crate) fn each_change(words: &[u8], len: usize, mut each: impl FnMut(usize, usize)) {
    let mut open: Option<(usize, usize)> = None;
    let mut add = |from: usize, to: usize| {
        // The last word may be a short one.
        let to = to.min(len);
        open = match open {
            Some((start, end)) if from - end <= MERGE_GAP => Some((start, to)),
            Some((start, end)) => {
                each(start, end);
                Some((from, to))
            }
            None => Some((from, to)),
        };
    };
    for (i, bits) in words.iter().enumerate() {
        let line = i * LINE;
        let mut differ = u32::from(*bits);
        if differ == WHOLE {
            add(line, line + LINE);
            continue;
        }
        while differ != 0 {
            let first = differ.trailing_zeros() as usize;
            let count = (!(differ >> first)).trailing_zeros() as usize;
            let from = line + first * WORD;
            add(from, from + count * WORD);
            // The run just noted is the lowest: adding one to it carries it away.
            differ &= differ.wrapping_add(1 << first);
        }
    }
    if let Some((start, end)) = open {
        each(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(old: &[u8], new: &[u8]) -> Vec<(usize, usize)> {
        let (mut delta, mut words) = (vec![0; old.len()], vec![0; old.len().div_ceil(LINE)]);
        holdfast_codes::delta_words(&mut delta, old, new, &mut words);
        let mut found = Vec::new();
        each_change(&words, old.len(), |a, b| found.push((a, b)));
        found
    }

    #[test]
    fn changes_are_found_in_words_and_merged_when_close() {
        let old = [0; 200];
        let mut new = old;
        assert!(changes(&old, &new).is_empty());
        new[3] = 1;
        assert_eq!(changes(&old, &new), [(0, 8)]);
        new[35] = 1;
        assert_eq!(changes(&old, &new), [(0, 40)]);
        new[199] = 1;
        assert_eq!(changes(&old, &new), [(0, 40), (192, 200)]);
    }

    #[test]
    fn only_whole_lines_that_differ_everywhere_are_whole() {
        assert!(is_whole(&[0xff, 0xff], 128));
        assert!(!is_whole(&[0xff, 0x7f], 128) && !is_whole(&[0xff, 0xff], 120));
        assert!(!is_whole(&[], 0), "an empty object that was opened did not change");
    }

    #[test]
    fn every_pattern_of_changed_words_is_found_exactly() {
        for bits in 0..1_u32 << 12 {
            let mut new = [0; 96];
            for word in (0..12).filter(|w| bits >> w & 1 == 1) {
                new[word * 8 + word % 8] = 1;
            }
            let found = changes(&[0; 96], &new);
            let covers = |word: usize| found.iter().any(|(a, b)| (a / 8..b / 8).contains(&word));
            assert!((0..12).all(|w| bits >> w & 1 == 0 || covers(w)), "{bits:b}");
            let ends = |word: usize| bits >> word & 1 == 1;
            assert!(found.iter().all(|(a, b)| ends(a / 8) && ends(b / 8 - 1)), "{bits:b}");
            assert!(found.windows(2).all(|w| w[1].0 - w[0].1 > MERGE_GAP), "{bits:b}");
        }
    }

    #[test]
    fn a_short_tail_is_compared_too() {
        let mut new = [7; 13];
        new[12] = 8;
        assert_eq!(changes(&[7; 13], &new), [(8, 13)]);
    }
}
