//! Short operation sequences over a small namespace, for the crash explorer.
//!
//! Most crash bugs need one or two operations that meet on the same few names, so those are tried
//! in full; of three, a sample without repeats. `Sequences` works on any alphabet; `map_steps` and
//! `object_steps` are the alphabets of a map and of an object store.

use std::collections::BTreeSet;

use crate::rng::Rng;

/// Every sequence of `length` elements of an alphabet, in lexicographic order of positions.
#[derive(Clone, Debug)]
pub struct Sequences<'a, T> {
    alphabet: &'a [T],
    /// Positions of the next sequence; `None` when all have been given.
    next: Option<Vec<usize>>,
}

impl<'a, T> Sequences<'a, T> {
    /// All sequences of exactly this length. There are `alphabet.len()` to the power of `length`.
    #[must_use]
    pub fn new(alphabet: &'a [T], length: usize) -> Self {
        let next = (length == 0 || !alphabet.is_empty()).then(|| vec![0; length]);
        Self { alphabet, next }
    }
}

impl<T: Clone> Iterator for Sequences<'_, T> {
    type Item = Vec<T>;

    fn next(&mut self) -> Option<Vec<T>> {
        let positions = self.next.as_mut()?;
        let sequence = positions.iter().map(|&at| self.alphabet[at].clone()).collect();
        let last = self.alphabet.len().saturating_sub(1);
        match positions.iter().rposition(|&at| at < last) {
            None => self.next = None,
            Some(digit) => {
                positions[digit] += 1;
                positions[digit + 1..].fill(0);
            }
        }
        Some(sequence)
    }
}

/// `count` different sequences of `length` elements, drawn uniformly, in the order drawn. If there
/// are no more than `count` in all, all of them in order.
#[must_use]
pub fn sample<T: Clone>(alphabet: &[T], length: usize, count: usize, seed: u64) -> Vec<Vec<T>> {
    let letters = alphabet.len() as u128;
    let all = u32::try_from(length).ok().and_then(|length| letters.checked_pow(length));
    if all.is_some_and(|all| all <= count as u128) {
        return Sequences::new(alphabet, length).collect();
    }
    let mut rng = Rng::new(seed);
    let mut seen = BTreeSet::new();
    let mut sequences = Vec::with_capacity(count);
    while sequences.len() < count {
        let draw = |_| rng.below(alphabet.len() as u64) as usize;
        let positions: Vec<_> = (0..length).map(draw).collect();
        if seen.insert(positions.clone()) {
            sequences.push(positions.iter().map(|&at| alphabet[at].clone()).collect());
        }
    }
    sequences
}

/// One step on a map with a few keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapStep {
    /// Insert or replace.
    Put {
        /// Key number.
        key: usize,
        /// Length of the value in bytes.
        len: usize,
    },
    /// Remove, if there.
    Delete {
        /// Key number.
        key: usize,
    },
}

/// All steps on `keys` keys with values of these lengths. Values that fit in place, need space of
/// their own, and overflow a log should each have a length.
#[must_use]
pub fn map_steps(keys: usize, lengths: &[usize]) -> Vec<MapStep> {
    let of_key = |key| {
        let puts = lengths.iter().map(move |&len| MapStep::Put { key, len });
        puts.chain([MapStep::Delete { key }])
    };
    (0..keys).flat_map(of_key).collect()
}

/// One step on an object store in which a few names hold at most one object each. Steps on a name
/// that is not in the state they need are no operation, so that every sequence is meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectStep {
    /// Allocate under a free name.
    Create {
        /// Name number.
        name: usize,
        /// Size of the object in bytes.
        size: usize,
    },
    /// Replace the whole content.
    Overwrite {
        /// Name number.
        name: usize,
    },
    /// Change a few bytes in the middle.
    Patch {
        /// Name number.
        name: usize,
    },
    /// Change the object and free the next name's in one transaction.
    PatchAndFree {
        /// Name number.
        name: usize,
    },
    /// Free.
    Free {
        /// Name number.
        name: usize,
    },
    /// Change everything there is, then abort.
    Abort,
    /// Add a zone.
    Grow,
}

/// All steps on `names` names with objects of these sizes.
#[must_use]
pub fn object_steps(names: usize, sizes: &[usize]) -> Vec<ObjectStep> {
    let of_name = |name| {
        let creates = sizes.iter().map(move |&size| ObjectStep::Create { name, size });
        creates.chain([
            ObjectStep::Overwrite { name },
            ObjectStep::Patch { name },
            ObjectStep::PatchAndFree { name },
            ObjectStep::Free { name },
        ])
    };
    (0..names).flat_map(of_name).chain([ObjectStep::Abort, ObjectStep::Grow]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sequences_come_once_and_in_order() {
        let all: Vec<_> = Sequences::new(&['a', 'b', 'c'], 2).collect();
        assert_eq!(all.len(), 9);
        assert_eq!(all[0], ['a', 'a']);
        assert_eq!(all[5], ['b', 'c']);
        assert!(all.is_sorted() && all.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(Sequences::new(&[7], 3).collect::<Vec<_>>(), [[7, 7, 7]]);
    }

    #[test]
    fn empty_cases_have_their_meaning() {
        assert_eq!(Sequences::<u8>::new(&[], 0).count(), 1);
        assert_eq!(Sequences::<u8>::new(&[], 1).count(), 0);
        assert_eq!(Sequences::new(&[1, 2], 0).count(), 1);
        assert!(sample::<u8>(&[], 2, 5, 1).is_empty());
        assert_eq!(sample(&[1, 2], 0, 5, 1), [Vec::<i32>::new()]);
    }

    #[test]
    fn samples_are_distinct_uniform_and_repeatable() {
        let alphabet: Vec<u32> = (0..10).collect();
        let drawn = sample(&alphabet, 3, 500, 9);
        assert_eq!(drawn, sample(&alphabet, 3, 500, 9));
        assert_ne!(drawn, sample(&alphabet, 3, 500, 10));
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 500);
        let firsts = alphabet.iter().map(|a| drawn.iter().filter(|s| s[0] == *a).count());
        assert!(firsts.into_iter().all(|n| n.abs_diff(50) < 30));
        let few = sample(&alphabet, 2, 100, 9);
        assert_eq!(few, Sequences::new(&alphabet, 2).collect::<Vec<_>>());
    }

    #[test]
    fn alphabets_hold_every_step_once() {
        let steps = map_steps(2, &[0, 100]);
        assert_eq!(steps.len(), 6);
        assert!(steps.contains(&MapStep::Delete { key: 1 }));
        let steps = object_steps(3, &[16, 64, 5_000]);
        assert_eq!(steps.len(), 3 * 7 + 2);
        assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len());
    }
}
