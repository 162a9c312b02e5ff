//! Records, certified words and sums: everything in the model that proves itself.
//!
//! Object sums are linear over exclusive-or, as real cyclic codes are, so that damage which a
//! linear sum and a linear parity would launder together is laundered here too. Seals of records
//! and headers stand for codes over the whole entry.

use super::geometry::{CHUNK_WORDS, RECORD_WORDS};
use crate::rng::mix;

/// Entries that fit a place of a ring; a longer transaction continues in log chunks.
pub(super) const MAX_ENTRIES: usize = 4;
/// Entries that fit a log chunk, two words each.
pub(super) const OVERFLOW_ENTRIES: usize = CHUNK_WORDS / 2;

const KIND_SHIFT: u32 = 32;
const KIND_WORD: u64 = 1;
const KIND_ZERO: u64 = 2;
const KIND_FRESH: u64 = 3;

/// One change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The word at `at` becomes `value`.
    Word {
        /// Heap word.
        at: usize,
        /// New content.
        value: u64,
    },
    /// All words of a chunk become zero.
    Zero {
        /// Unit number.
        chunk: usize,
    },
    /// The content of this chunk is about to be written unlogged: its parity is in doubt.
    Fresh {
        /// Unit number.
        chunk: usize,
    },
}

/// Where the entries beyond the ring lie: the same bytes in two log chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow {
    /// Both chunks (unit numbers).
    pub(super) chunks: [usize; 2],
    /// Seal of the words of either chunk.
    pub(super) seal: u64,
}

/// One self-certifying record. Number 0 marks a record that only carries a watermark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Commit number.
    pub(super) number: u64,
    /// Watermark L: every commit with a number up to this one is complete on the medium.
    pub(super) watermark: u64,
    /// Changes, in order.
    pub(super) entries: Vec<Entry>,
    /// Further changes in log chunks.
    pub(super) overflow: Option<Overflow>,
}

/// A seal over words that also binds them to a place and a purpose.
pub(super) fn seal(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(mix(seed.wrapping_add(1)), |sum, &word| {
        mix(sum ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15)
    })
}

impl Record {
    /// The words of a copy in a place of the log, valid in `generation` only.
    pub(super) fn encode(&self, generation: u64, place: u64) -> [u64; RECORD_WORDS] {
        assert!(self.entries.len() <= MAX_ENTRIES, "a record fits its place");
        let mut words = [0; RECORD_WORDS];
        words[..3].copy_from_slice(&[generation, self.number, self.watermark]);
        words[3] = self.entries.len() as u64;
        for (i, entry) in self.entries.iter().enumerate() {
            let (kind, at, value) = match *entry {
                Entry::Word { at, value } => (KIND_WORD, at, value),
                Entry::Zero { chunk } => (KIND_ZERO, chunk, 0),
                Entry::Fresh { chunk } => (KIND_FRESH, chunk, 0),
            };
            words[4 + 2 * i] = kind << KIND_SHIFT | at as u64;
            words[5 + 2 * i] = value;
        }
        if let Some(overflow) = self.overflow {
            let [first, second] = overflow.chunks;
            words[12] = 1 << 63 | (first as u64) << 32 | second as u64;
            words[13] = overflow.seal;
        }
        words[14] = seal(place, &words[..14]);
        words
    }

    /// Reads a copy; `None` if torn, rotten, of another place or another generation. The seal
    /// comes first: nothing else of an uncertified record is interpreted.
    pub(super) fn decode(words: &[u64], generation: u64, place: u64) -> Option<Self> {
        if words[14] != seal(place, &words[..14]) || words[0] != generation {
            return None;
        }
        let count = usize::try_from(words[3]).ok().filter(|&n| n <= MAX_ENTRIES)?;
        let mut entries = Vec::with_capacity(count);
        for i in 0..count {
            let head = words[4 + 2 * i];
            let at = (head & u64::from(u32::MAX)) as usize;
            entries.push(match head >> KIND_SHIFT {
                KIND_WORD => Entry::Word { at, value: words[5 + 2 * i] },
                KIND_ZERO => Entry::Zero { chunk: at },
                KIND_FRESH => Entry::Fresh { chunk: at },
                _ => return None,
            });
        }
        let overflow = (words[12] != 0).then(|| Overflow {
            chunks: [
                (words[12] >> 32 & 0x7FFF_FFFF) as usize,
                (words[12] & u64::from(u32::MAX)) as usize,
            ],
            seal: words[13],
        });
        Some(Self { number: words[1], watermark: words[2], entries, overflow })
    }
}

/// Packs the entries beyond the ring into the words of a log chunk.
pub(super) fn pack_overflow(writes: &[(usize, u64)]) -> [u64; CHUNK_WORDS] {
    assert!(writes.len() <= OVERFLOW_ENTRIES, "the overflow fits one chunk");
    let mut words = [0; CHUNK_WORDS];
    for (pair, &(at, value)) in words.chunks_exact_mut(2).zip(writes) {
        pair.copy_from_slice(&[at as u64 + 1, value]);
    }
    words
}

/// Reads back what `pack_overflow` wrote; the caller has checked the seal.
pub(super) fn unpack_overflow(words: &[u64]) -> Vec<Entry> {
    let used = words.chunks_exact(2).filter(|pair| pair[0] != 0);
    used.map(|pair| Entry::Word { at: pair[0] as usize - 1, value: pair[1] }).collect()
}

/// What a certifying word says about its unit. No state is the absence of a proof: zero, which
/// exclusive-or yields by coincidence more easily than anything else, means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meta {
    /// No object, and the word says so; the content is leftover bytes that parity counts as they
    /// are.
    Free,
    /// A live object; its content must have the sum in the word.
    Live,
    /// Log space; parity counts its content as zero.
    Log,
    /// The word does not certify itself.
    Bad,
}

/// The meaning of a certifying word. A slot proves itself only with its object; a directory word
/// carries a check of its own, because it decides how parity counts a whole chunk.
pub(super) fn read_meta(is_chunk: bool, unit: usize, word: u64) -> Meta {
    if word == free_meta(unit) {
        Meta::Free
    } else if !is_chunk {
        Meta::Live
    } else if word == log_meta(unit) {
        Meta::Log
    } else if word == certify(unit, word >> 32) {
        Meta::Live
    } else {
        Meta::Bad
    }
}

/// The certifying word of a free unit.
pub(super) fn free_meta(unit: usize) -> u64 {
    mix(0x4652_4545 ^ (unit as u64) << 32)
}

/// The directory word of a chunk used as log space.
pub(super) fn log_meta(unit: usize) -> u64 {
    mix(0x4C4F_4700 ^ unit as u64) | 1
}

/// How a change of one content word changes the sum: linearly, but such that two changes of few
/// bits do not cancel. A mere rotation here once accepted a wrong candidate: one rotten bit and
/// one bit of a small log word met in the same bit of the sum.
pub(super) const fn sum_delta(index: usize, delta: u64) -> u64 {
    let mut sum = delta.rotate_left(13 * index as u32 + 7);
    let mut round = 0;
    while round < 3 + index {
        sum ^= sum << 13;
        sum ^= sum >> 7;
        sum ^= sum << 17;
        round += 1;
    }
    sum
}

/// The certifying word of a live unit with this content.
pub(super) fn live_meta(is_chunk: bool, unit: usize, content: &[u64]) -> u64 {
    let seeded = mix(0x0B1E_C700 ^ unit as u64);
    let sum = content.iter().enumerate().fold(seeded, |s, (i, &w)| s ^ sum_delta(i, w));
    if is_chunk { certify(unit, (sum >> 32) ^ (sum & u64::from(u32::MAX))) } else { sum }
}

/// A directory word: 32 bits of sum, 32 bits that certify the sum and the place.
fn certify(unit: usize, sum: u64) -> u64 {
    sum << 32 | seal(unit as u64, &[sum]) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            number: 7,
            watermark: 5,
            entries: vec![
                Entry::Word { at: 99, value: u64::MAX },
                Entry::Zero { chunk: 6 },
                Entry::Fresh { chunk: 15 },
            ],
            overflow: Some(Overflow { chunks: [6, 7], seal: 3 }),
        }
    }

    #[test]
    fn a_record_reads_back_only_in_its_place_and_generation() {
        let words = sample().encode(4, 2);
        assert_eq!(Record::decode(&words, 4, 2), Some(sample()));
        assert_eq!(Record::decode(&words, 5, 2), None);
        assert_eq!(Record::decode(&words, 4, 3), None);
    }

    #[test]
    fn any_changed_word_invalidates_a_record() {
        for word in 0..RECORD_WORDS {
            let mut words = sample().encode(4, 2);
            words[word] ^= 1 << (word * 4);
            assert_eq!(Record::decode(&words, 4, 2), None, "word {word}");
        }
    }

    #[test]
    fn overflow_reads_back() {
        let writes = [(0, 5), (17, 0)];
        let entries = unpack_overflow(&pack_overflow(&writes));
        let expect: Vec<_> = writes.iter().map(|&(at, value)| Entry::Word { at, value }).collect();
        assert_eq!(entries, expect);
        assert!(unpack_overflow(&[0; CHUNK_WORDS]).is_empty());
    }

    #[test]
    fn sums_are_linear_and_bound_to_their_unit() {
        let (old, new) = ([3, 5], [3, 9]);
        let patched = live_meta(false, 1, &old) ^ sum_delta(1, 5 ^ 9);
        assert_eq!(patched, live_meta(false, 1, &new));
        assert_ne!(live_meta(false, 1, &old), live_meta(false, 2, &old));
    }

    #[test]
    fn changes_of_one_bit_each_do_not_cancel() {
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..CHUNK_WORDS {
            for bit in 0..64 {
                let sum = sum_delta(index, 1 << bit);
                assert!(seen.insert((sum >> 32) ^ (sum & u64::from(u32::MAX))));
            }
        }
    }

    #[test]
    fn directory_words_certify_themselves() {
        let live = live_meta(true, 6, &[1, 2, 3, 4]);
        assert_eq!(read_meta(true, 6, live), Meta::Live);
        assert_eq!(read_meta(true, 6, log_meta(6)), Meta::Log);
        assert_eq!(read_meta(true, 6, free_meta(6)), Meta::Free);
        assert_eq!(read_meta(true, 6, 0), Meta::Bad);
        for bit in 0..64 {
            assert_eq!(read_meta(true, 6, free_meta(6) ^ 1 << bit), Meta::Bad);
            assert_eq!(read_meta(true, 6, live ^ 1 << bit), Meta::Bad);
            assert_eq!(read_meta(true, 6, log_meta(6) ^ 1 << bit), Meta::Bad);
        }
    }
}
