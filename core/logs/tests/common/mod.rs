//! What the tests of this crate share: small pools, a medium that takes turns, an engine in
//! miniature, and the judge of crash images.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_layout::{LogPlacement, SumKind, Superblock};
use holdfast_logs::{Entry, Scan};

pub(crate) mod engine;
pub(crate) mod gated;
pub(crate) mod lockstep;

/// A linear congruential generator: the tests' only source of chance.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678);
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let x = self.0 ^ self.0 >> 29;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A pool as small as it gets: `lanes` rings of `ring_pages` pages in each side, then data.
pub(crate) fn superblock(
    placement: LogPlacement,
    lanes: u32,
    ring_pages: u64,
    copies: u32,
) -> Superblock {
    let log = u64::from(lanes) * ring_pages * 4096;
    let side_len = 4096 + log;
    Superblock {
        sequence: 1,
        uuid: *b"sixteen bytes it",
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        log_generation: 3,
        clean: false,
        size: 2 * side_len + DATA_PAGES * 4096,
        frame: 4096,
        chunk: 4096,
        side_len,
        events_len: 4096,
        log_start: 4096,
        ring_len: ring_pages * 4096,
        lanes,
        log_placement: placement,
        sum_kind: SumKind::Crc32c,
        parity: 0,
        copies,
        allow_inject: true,
        anchor: 0,
        rows: 2,
        label: String::new(),
    }
}

/// Pages of data behind the sides.
pub(crate) const DATA_PAGES: u64 = 1;
/// Words of an object.
pub(crate) const WORDS: usize = 8;
/// Objects in the data.
pub(crate) const OBJECTS: usize = 40;

/// Place of an object.
pub(crate) fn place(superblock: &Superblock, object: usize) -> u64 {
    2 * superblock.side_len + (object * WORDS * 8) as u64
}

/// New contents of an object: each word different, and none equal to another commit's.
pub(crate) fn contents(stamp: u64) -> [u8; WORDS * 8] {
    let mut bytes = [0; WORDS * 8];
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(stamp << 8 | i as u64).to_le_bytes());
    }
    bytes
}

/// What the test knows about every commit.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// Number drawn, not acknowledged: object and stamp of each write.
    pub(crate) pending: BTreeMap<u64, Vec<(usize, u64)>>,
    /// Acknowledged.
    pub(crate) acked: BTreeMap<u64, Vec<(usize, u64)>>,
    /// Complete, as the engine said.
    pub(crate) done: BTreeSet<u64>,
    /// The durable watermark, as the log answered it last.
    pub(crate) durable: u64,
    /// Crash images looked at.
    pub(crate) images: u64,
    /// Records replayed in them.
    pub(crate) replayed: u64,
    /// Most records replayed in one of them.
    pub(crate) most: usize,
    /// What was wrong, by kind.
    pub(crate) wrong: BTreeMap<String, u64>,
}

/// Shared between the threads of a test and its hooks.
pub(crate) type SharedOracle = Arc<Mutex<Oracle>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Oracle {
    fn blame(&mut self, what: &str) {
        *self.wrong.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn violations(&self) -> u64 {
        self.wrong.values().sum()
    }

    /// Judges a crash image: `data` is its data area, `scan` what was found in its log.
    pub(crate) fn judge(&mut self, superblock: &Superblock, data: &[u8], scan: &Scan) {
        self.images += 1;
        self.replayed += scan.records.len() as u64;
        self.most = self.most.max(scan.records.len());
        let base = 2 * superblock.side_len;
        let mut data = data.to_vec();
        for record in scan.to_replay() {
            for entry in record.entries(superblock.size) {
                let Ok(Entry::Data { at, bytes }) = entry else {
                    return self.blame("a found record does not parse");
                };
                let Some(from) = at.checked_sub(base) else {
                    return self.blame("a found record writes outside the data");
                };
                data[from as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        let acked = self.acked.keys().filter(|number| !self.done.contains(number));
        let mut incomplete = acked.chain(self.pending.keys());
        if incomplete.any(|number| *number <= scan.max_l) {
            self.blame("the watermark covers a commit that is not complete");
        }
        if scan.max_l < self.durable {
            self.blame("a watermark said to be durable is gone");
        }
        let mut expected = BTreeMap::new();
        let found: BTreeSet<u64> = scan.records.iter().map(|record| record.number).collect();
        let leaked = self.pending.iter().filter(|(number, _)| found.contains(number));
        let all: BTreeMap<_, _> = self.acked.iter().chain(leaked).collect();
        for writes in all.values() {
            expected.extend(writes.iter().copied());
        }
        for object in 0..OBJECTS {
            let bytes = &data[object * WORDS * 8..][..WORDS * 8];
            let right = expected.get(&object).map_or([0; WORDS * 8], |stamp| contents(*stamp));
            if bytes != right {
                return self.blame("an acknowledged update is lost or wrong");
            }
        }
    }
}
