//! Byte strings: keys that look for trouble, and values that can be checked without being kept.

use crate::rng::{Rng, SplitMix64};

/// Random byte strings of bounded length that like the places where comparisons and encodings go
/// wrong: the empty string, the longest one, long common prefixes, strings that are prefixes of
/// others, and runs of the bytes 0x00 and 0xFF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteStrings {
    longest: usize,
    /// The last string made, from which the next may be derived.
    last: Vec<u8>,
}

impl ByteStrings {
    /// Strings of 0 to `longest` bytes.
    #[must_use]
    pub const fn new(longest: usize) -> Self {
        Self { longest, last: Vec::new() }
    }

    /// The next string.
    pub fn next_string(&mut self, rng: &mut Rng) -> Vec<u8> {
        let mut string = match rng.below(10) {
            0..4 => self.any(rng),
            4 => vec![if rng.below(2) == 0 { 0x00 } else { 0xFF }; self.length(rng)],
            5 => self.last[..rng.below(self.last.len() as u64 + 1) as usize].to_vec(),
            6 => [&self.last[..], &self.any(rng)].concat(),
            7 | 8 => self.neighbour(rng),
            _ => vec![0; if rng.below(2) == 0 { 0 } else { self.longest }],
        };
        string.truncate(self.longest);
        self.last.clone_from(&string);
        string
    }

    /// Short lengths are as likely as long ones, whatever the bound.
    fn length(&self, rng: &mut Rng) -> usize {
        let bits = usize::BITS - self.longest.leading_zeros();
        let within = 1_u64 << rng.below(u64::from(bits) + 1);
        (rng.below(within) as usize).min(self.longest)
    }

    fn any(&self, rng: &mut Rng) -> Vec<u8> {
        let mut string = vec![0; self.length(rng)];
        rng.fill(&mut string);
        string
    }

    /// The last string with one byte moved by one: a neighbour in the order, or close to it.
    fn neighbour(&self, rng: &mut Rng) -> Vec<u8> {
        let mut string = self.last.clone();
        if !string.is_empty() {
            let at = rng.below(string.len() as u64) as usize;
            let step = if rng.below(2) == 0 { 1 } else { 255 };
            string[at] = string[at].wrapping_add(step);
        }
        string
    }
}

/// The content of version `version` of what is stored under number `key`: any length, the same on
/// every machine. Values of 8 bytes or more of different keys or versions differ.
#[must_use]
pub fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    fill_value(key, version, &mut value);
    value
}

/// `value`, into a buffer.
pub fn fill_value(key: u64, version: u64, buffer: &mut [u8]) {
    stream(key, version).fill(buffer);
}

/// The first position at which a buffer is not `value(key, version, buffer.len())`.
#[must_use]
pub fn first_wrong_byte(key: u64, version: u64, buffer: &[u8]) -> Option<usize> {
    let mut rng = stream(key, version);
    let mut expect = [0; 8];
    for (i, chunk) in buffer.chunks(8).enumerate() {
        rng.fill(&mut expect[..chunk.len()]);
        let wrong = chunk.iter().zip(&expect).position(|(found, want)| found != want);
        if let Some(at) = wrong {
            return Some(8 * i + at);
        }
    }
    None
}

/// A stream of its own for each pair: the key is spread before the version is added.
const fn stream(key: u64, version: u64) -> Rng {
    Rng::new(SplitMix64::new(key).next_u64().wrapping_add(version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn strings_cover_the_awkward_places() {
        let mut rng = Rng::new(1);
        for longest in [0, 1, 2, 7, 64, 1_000] {
            let mut strings = ByteStrings::new(longest);
            let all: Vec<_> = (0..5_000).map(|_| strings.next_string(&mut rng)).collect();
            assert!(all.iter().all(|s| s.len() <= longest));
            let lengths: BTreeSet<_> = all.iter().map(Vec::len).collect();
            assert!(lengths.contains(&0) && lengths.contains(&longest));
            assert!(lengths.len() > longest.min(64) * 3 / 4);
            if longest >= 7 {
                let set: BTreeSet<_> = all.iter().collect();
                let prefixes =
                    all.iter().filter(|s| s.len() > 1 && set.contains(&s[..s.len() - 1].to_vec()));
                assert!(prefixes.count() > 100, "prefixes of each other");
                assert!(all.iter().any(|s| s.len() > 2 && s.iter().all(|&b| b == 0xFF)));
                assert!(set.len() > 1_000, "not too many repeats: {}", set.len());
            }
        }
    }

    #[test]
    fn values_can_be_checked_without_being_kept() {
        for len in 0..40 {
            let buffer = value(5, 9, len);
            assert_eq!(first_wrong_byte(5, 9, &buffer), None);
            for at in 0..len {
                let mut wrong = buffer.clone();
                wrong[at] ^= 0x10;
                assert_eq!(first_wrong_byte(5, 9, &wrong), Some(at));
            }
        }
    }

    #[test]
    fn values_of_keys_and_versions_differ() {
        let heads = (0..100).flat_map(|key| (0..100).map(move |version| value(key, version, 8)));
        assert_eq!(heads.collect::<BTreeSet<_>>().len(), 10_000);
        assert_eq!(value(3, 4, 100)[..60], value(3, 4, 60));
    }
}
