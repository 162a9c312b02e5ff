//! The six core mixes of the benchmark others publish numbers for (YCSB A to F), as streams.
//!
//! | mix | operations | keys |
//! |---|---|---|
//! | A | 50 % read, 50 % update | scrambled Zipfian |
//! | B | 95 % read, 5 % update | scrambled Zipfian |
//! | C | 100 % read | scrambled Zipfian |
//! | D | 95 % read, 5 % insert | latest |
//! | E | 95 % scan of 1 to 100, 5 % insert | scrambled Zipfian |
//! | F | 50 % read, 50 % read-modify-write | scrambled Zipfian |
//!
//! A stream is one client. Several clients that insert must share what has been inserted, which is
//! the harness's business: give each its own stream and its own range of key numbers.

use crate::keys::{KeyChooser, Latest, ScrambledZipfian, fnv_hash_64};
use crate::rng::Rng;

/// Keys a scan returns at most.
pub const LONGEST_SCAN: u64 = 100;

/// A core mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mix {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read-modify-write.
    F,
}

impl Mix {
    /// All six.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// The more frequent operation, its percentage, and the other.
    const fn kinds(self) -> (Kind, u64, Kind) {
        match self {
            Self::A => (Kind::Read, 50, Kind::Update),
            Self::B => (Kind::Read, 95, Kind::Update),
            Self::C => (Kind::Read, 100, Kind::Read),
            Self::D => (Kind::Read, 95, Kind::Insert),
            Self::E => (Kind::Scan, 95, Kind::Insert),
            Self::F => (Kind::Read, 50, Kind::ReadModifyWrite),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

/// One operation. Keys are numbers; `key_name` turns them into byte strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the value of a key.
    Read {
        /// Key number.
        key: u64,
    },
    /// Replace the value of a key.
    Update {
        /// Key number.
        key: u64,
    },
    /// Add a key; numbers follow each other.
    Insert {
        /// Key number.
        key: u64,
    },
    /// Read up to `count` pairs from the name of a key on.
    Scan {
        /// Key number.
        key: u64,
        /// Pairs, 1 to `LONGEST_SCAN`.
        count: u64,
    },
    /// Read the value of a key, then replace it.
    ReadModifyWrite {
        /// Key number.
        key: u64,
    },
}

#[derive(Clone, Debug)]
enum Chooser {
    /// Drawn from all keys there will be, until it hits one that is there: popularity then does
    /// not move when keys are inserted.
    Scrambled {
        chooser: ScrambledZipfian,
        space: u64,
    },
    Latest(Latest),
}

/// An endless stream of operations of one client.
#[derive(Clone, Debug)]
pub struct Operations {
    rng: Rng,
    mix: Mix,
    chooser: Chooser,
    keys: u64,
}

impl Operations {
    /// A stream over `records` keys loaded before (at least 1). `operations` is how many will be
    /// drawn, roughly: the skewed choice leaves room for the inserts among them.
    ///
    /// # Panics
    ///
    /// If no keys are loaded.
    #[must_use]
    pub fn new(mix: Mix, seed: u64, records: u64, operations: u64) -> Self {
        assert!(records > 0, "load at least one record first");
        let room = match mix {
            Mix::E => operations / 10,
            _ => 0,
        };
        let chooser = match mix {
            Mix::D => Chooser::Latest(Latest::new(records)),
            _ => {
                let space = records.saturating_add(room);
                Chooser::Scrambled { chooser: ScrambledZipfian::new(), space }
            }
        };
        Self { rng: Rng::new(seed), mix, chooser, keys: records }
    }

    /// Keys loaded or inserted so far.
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.keys
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op {
        let (often, percent, seldom) = self.mix.kinds();
        match if self.rng.below(100) < percent { often } else { seldom } {
            Kind::Insert => {
                self.keys += 1;
                Op::Insert { key: self.keys - 1 }
            }
            Kind::Read => Op::Read { key: self.key() },
            Kind::Update => Op::Update { key: self.key() },
            Kind::ReadModifyWrite => Op::ReadModifyWrite { key: self.key() },
            Kind::Scan => Op::Scan { key: self.key(), count: 1 + self.rng.below(LONGEST_SCAN) },
        }
    }

    fn key(&mut self) -> u64 {
        match &mut self.chooser {
            Chooser::Latest(latest) => latest.next_key(&mut self.rng, self.keys),
            Chooser::Scrambled { chooser, space } => loop {
                let key = chooser.next_key(&mut self.rng, (*space).max(self.keys));
                if key < self.keys {
                    return key;
                }
            },
        }
    }
}

impl Iterator for Operations {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        Some(self.next_op())
    }
}

/// The name of a key: `user` and the decimal hash of its number, so that names of keys inserted
/// one after the other lie far apart.
#[must_use]
pub fn key_name(key: u64) -> Vec<u8> {
    format!("user{}", fnv_hash_64(key)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const DRAWS: u64 = 50_000;

    /// Shares of read, update, insert, scan, read-modify-write.
    fn shares(mix: Mix) -> [f64; 5] {
        let mut counts = [0_u64; 5];
        for op in Operations::new(mix, 3, 1_000, DRAWS).take(DRAWS as usize) {
            counts[match op {
                Op::Read { .. } => 0,
                Op::Update { .. } => 1,
                Op::Insert { .. } => 2,
                Op::Scan { .. } => 3,
                Op::ReadModifyWrite { .. } => 4,
            }] += 1;
        }
        counts.map(|n| n as f64 / DRAWS as f64)
    }

    #[test]
    fn mixes_have_their_shares() {
        let expect = [
            (Mix::A, [0.5, 0.5, 0.0, 0.0, 0.0]),
            (Mix::B, [0.95, 0.05, 0.0, 0.0, 0.0]),
            (Mix::C, [1.0, 0.0, 0.0, 0.0, 0.0]),
            (Mix::D, [0.95, 0.0, 0.05, 0.0, 0.0]),
            (Mix::E, [0.0, 0.0, 0.05, 0.95, 0.0]),
            (Mix::F, [0.5, 0.0, 0.0, 0.0, 0.5]),
        ];
        for (mix, expect) in expect {
            let near = shares(mix).iter().zip(expect).all(|(found, want)| {
                (found - want).abs() < 0.01 && (*found == 0.0) == (want == 0.0)
            });
            assert!(near, "{mix:?}: {:?}", shares(mix));
        }
    }

    #[test]
    fn keys_exist_when_they_are_used() {
        for mix in Mix::ALL {
            let mut stream = Operations::new(mix, 4, 10, 2_000);
            for _ in 0..20_000 {
                let before = stream.keys();
                match stream.next_op() {
                    Op::Insert { key } => assert_eq!((key, stream.keys()), (before, before + 1)),
                    Op::Scan { key, count } => {
                        assert!(key < before && (1..=LONGEST_SCAN).contains(&count));
                    }
                    Op::Read { key } | Op::Update { key } | Op::ReadModifyWrite { key } => {
                        assert!(key < before);
                    }
                }
            }
        }
    }

    #[test]
    fn inserted_keys_are_chosen_in_time() {
        for mix in [Mix::D, Mix::E] {
            let stream = Operations::new(mix, 5, 1_000, 20_000).take(20_000);
            let new = stream.filter(|op| match op {
                Op::Read { key } | Op::Scan { key, .. } => *key >= 1_000,
                _ => false,
            });
            let new = new.count();
            assert!(new > 1_000, "{mix:?} chose new keys {new} times");
        }
    }

    #[test]
    fn a_seed_repeats_its_stream() {
        let stream = |seed| Operations::new(Mix::E, seed, 100, 100).take(100).collect::<Vec<_>>();
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
    }

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<_> = (0..10_000).map(key_name).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.starts_with(b"user")));
    }
}
