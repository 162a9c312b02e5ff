//! Recovery: what to do is decided from the image alone, then done in an order that may be cut
//! anywhere and started again.
//!
//! ```text
//! 1 heal the mirrored superblock, region table and zone headers
//! 2 collect the records of this generation; Lmax; replay set R in order of number
//! 3 in memory: apply R, verify every unit over a touched column, directory words first
//! 4 write repairs                                                  DRAIN
//! 5 write R, then the parity of touched columns                    DRAIN
//! 6 raise the log generation in B DRAIN, in A DRAIN                the log ends here, not before
//! ```
//!
//! Repairs precede the replay, with a drain between: parity as found may describe the rows before
//! the replay, and a crash in step 5 would take those rows away from the next attempt.

use super::geometry::{COLUMNS, Copy, Geometry, MAX_ZONES, RECORD_WORDS, UNITS};
use super::jobs::LOG_BYTES;
use super::mutant::Mutant;
use super::record::{Entry, Overflow, Record, seal, unpack_overflow};
use super::repair::{Evidence, directory_first, find_repair};
use super::state::{
    column_sum, header_words, read_superblock, read_table, superblock_words, table_words, verifies,
};

/// One write of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Store and flush a word.
    Store(usize, u64),
    /// Make everything flushed so far durable.
    Drain,
}

/// What a recovery found and will do.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// The writes, in order.
    pub(super) ops: Vec<Op>,
    /// The image after the replay and before any repair.
    pub(super) replayed: Vec<u64>,
    /// Records replayed.
    pub(super) records: usize,
    /// Words repaired.
    pub(super) repairs: usize,
    /// Units that do not verify and cannot be rebuilt.
    pub(super) lost: Vec<usize>,
}

/// The pool cannot be opened: no copy of something mirrored certifies itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable(pub(super) &'static str);

/// Plans a recovery of the pool in `image`.
pub(super) fn plan(
    geometry: Geometry,
    mutant: Option<Mutant>,
    image: &[u64],
) -> Result<Recovery, Unreadable> {
    let mut ops = Vec::new();
    let (generation, zones) = heal_mirrors(geometry, image, &mut ops)?;
    let records = replay_set(geometry, mutant, image, generation);
    let mut replay = Replay::new(geometry, image);
    for record in &records {
        record.iter().for_each(|entry| replay.apply(entry));
    }
    let replayed = replay.after.clone();
    let (repairs, lost) = verify_rows(&mut replay, mutant, image, zones);
    ops.extend(repairs.iter().map(|&(word, value)| Op::Store(word, value)));
    if mutant != Some(Mutant::RepairWithoutDrain) {
        ops.push(Op::Drain);
    }
    ops.extend(replay.writes());
    ops.push(Op::Drain);
    let mut raise = raise_generation(geometry, generation + 1);
    if mutant == Some(Mutant::GenerationOneDrain) {
        raise.remove(2);
    }
    match mutant {
        Some(Mutant::GenerationKept) => {}
        Some(Mutant::GenerationBeforeReplay) => drop(ops.splice(0..0, raise)),
        _ => ops.extend(raise),
    }
    Ok(Recovery { ops, replayed, records: records.len(), repairs: repairs.len(), lost })
}

/// The last step: from here on no record in the log is valid. The replica goes first, and only
/// when the primary is durable too may a new commit be written.
fn raise_generation(geometry: Geometry, generation: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for copy in [Copy::B, Copy::A] {
        store(&mut ops, geometry.superblock(copy), superblock_words(generation));
        ops.push(Op::Drain);
    }
    ops
}

fn store(ops: &mut Vec<Op>, at: usize, words: [u64; 2]) {
    ops.extend((at..).zip(words).map(|(word, value)| Op::Store(word, value)));
}

/// Reads what is mirrored, newest valid copy first, and rewrites copies that disagree. A zone in
/// the table without a header is a pool that cannot be opened.
fn heal_mirrors(
    geometry: Geometry,
    image: &[u64],
    ops: &mut Vec<Op>,
) -> Result<(u64, usize), Unreadable> {
    let generation = Copy::BOTH.iter();
    let generation =
        generation.filter_map(|&c| read_superblock(&image[geometry.superblock(c)..][..2]));
    let generation = generation.max().ok_or(Unreadable("superblock"))?;
    let zones = Copy::BOTH.iter().filter_map(|&c| read_table(&image[geometry.table(c)..][..2]));
    let zones = zones.max().ok_or(Unreadable("region table"))?;
    let mut heal = |at: usize, words: [u64; 2]| {
        if image[at..at + 2] != words {
            store(ops, at, words);
        }
    };
    for copy in Copy::BOTH {
        heal(geometry.superblock(copy), superblock_words(generation));
        heal(geometry.table(copy), table_words(zones));
    }
    for zone in 0..zones {
        let at = Copy::BOTH.map(|copy| geometry.zone_header(zone, copy));
        if at.iter().all(|&at| image[at..at + 2] != header_words(zone)) {
            return Err(Unreadable("zone header"));
        }
        at.iter().for_each(|&at| heal(at, header_words(zone)));
    }
    Ok((generation, zones))
}

/// The changes of the records above the largest watermark, in order of commit number.
fn replay_set(
    geometry: Geometry,
    mutant: Option<Mutant>,
    image: &[u64],
    generation: u64,
) -> Vec<Vec<Entry>> {
    let mut records = Vec::new();
    for lane in 0..geometry.lanes {
        for place in 0..geometry.places() {
            let copies = Copy::BOTH.map(|copy| {
                let at = geometry.record(lane, place, copy);
                Record::decode(&image[at..at + RECORD_WORDS], generation, lane as u64)
            });
            // Both copies may be valid and differ while one is being overwritten: either will do.
            records.extend(copies.into_iter().flatten());
        }
    }
    let complete = records.iter().map(|record| record.watermark).max().unwrap_or(0);
    records.retain(|record| record.number > complete);
    if mutant != Some(Mutant::ReplayUnordered) {
        records.sort_by_key(|record| record.number);
    }
    records.dedup_by_key(|record| record.number);
    records.into_iter().filter_map(|record| all_entries(geometry, image, record)).collect()
}

/// The entries of a record with those in log chunks; `None` if neither chunk has them, which
/// means that the record was not yet durable.
fn all_entries(geometry: Geometry, image: &[u64], record: Record) -> Option<Vec<Entry>> {
    let mut entries = record.entries;
    if let Some(Overflow { chunks, seal: expect }) = record.overflow {
        let copies = chunks.into_iter().filter(|&chunk| chunk < MAX_ZONES * UNITS);
        let mut copies = copies.map(|chunk| &image[geometry.content(chunk)]);
        entries.extend(unpack_overflow(copies.find(|words| seal(LOG_BYTES, words) == expect)?));
    }
    Some(entries)
}

/// A replay in memory.
struct Replay {
    geometry: Geometry,
    after: Vec<u64>,
    written: Vec<bool>,
    touched: Vec<bool>,
}

impl Replay {
    fn new(geometry: Geometry, image: &[u64]) -> Self {
        Self {
            geometry,
            after: image.to_vec(),
            written: vec![false; image.len()],
            touched: vec![false; MAX_ZONES * COLUMNS],
        }
    }

    fn apply(&mut self, entry: &Entry) {
        match *entry {
            Entry::Word { at, value } => self.set(at, value),
            Entry::Zero { chunk } => self.geometry.content(chunk).for_each(|w| self.set(w, 0)),
            Entry::Fresh { chunk } => {
                let geometry = self.geometry;
                geometry.content(chunk).for_each(|w| self.touched[geometry.column(w)] = true);
            }
        }
    }

    fn set(&mut self, word: usize, value: u64) {
        self.after[word] = value;
        self.written[word] = true;
        self.touched[self.geometry.column(word)] = true;
    }

    /// Whether the parity of a column of this unit is about to be recomputed.
    fn touches(&self, unit: usize) -> bool {
        let geometry = self.geometry;
        geometry.unit_words(unit).any(|word| self.touched[geometry.column(word)])
    }

    /// The replayed words, then the parity of every touched column.
    fn writes(&self) -> Vec<Op> {
        let words = (0..self.after.len()).filter(|&word| self.written[word]);
        let mut ops: Vec<_> = words.map(|word| Op::Store(word, self.after[word])).collect();
        for column in (0..MAX_ZONES * COLUMNS).filter(|&column| self.touched[column]) {
            let sum = column_sum(self.geometry, &self.after, column, None);
            ops.push(Op::Store(self.geometry.parity(column), sum));
        }
        ops
    }
}

/// Verifies what is about to be summed into parity: every unit with any word over a touched column,
/// wherever the word lies that certifies it. Returns the repairs and the units that are lost.
fn verify_rows(
    replay: &mut Replay,
    mutant: Option<Mutant>,
    found: &[u64],
    zones: usize,
) -> (Vec<(usize, u64)>, Vec<usize>) {
    let geometry = replay.geometry;
    let (mut repairs, mut lost) = (Vec::new(), Vec::new());
    if mutant == Some(Mutant::RecomputeUnverified) {
        return (repairs, lost);
    }
    for unit in directory_first(geometry, zones) {
        if !replay.touches(unit) || verifies(geometry, &replay.after, unit) {
            continue;
        }
        let evidence = Evidence { geometry, found, after: &replay.after };
        match find_repair(&evidence, unit, &|word| replay.written[word]) {
            Some((word, value)) => {
                replay.after[word] = value;
                repairs.push((word, value));
            }
            None => lost.push(unit),
        }
    }
    (repairs, lost)
}
