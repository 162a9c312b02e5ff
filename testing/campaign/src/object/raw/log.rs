//! Records of the log, read from the format page: every line is tried, in both copies.

use holdfast_layout::format::FIELDS_SUPERBLOCK;
use holdfast_logs::format::{
    DATA_LEN, FIELDS_DATA, FIELDS_OVERFLOW, FIELDS_RECORD, FRESH_LEN, KIND_DATA, KIND_FRESH,
    KIND_OVERFLOW, KIND_SLOT, LINE_LEN, NO_LANE, NUMBER_END, OVERFLOW_LEN, RECORD_LEN, SLOT_LEN,
};

use super::sums::crc;
use super::{Bytes, number};

/// What the sum of a record starts from, apart from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSeed {
    /// Sum over pool and generation.
    live: u32,
    /// Sum over pool, generation and lane.
    start: u32,
    /// Place that goes into the sum, for a record at offset 0 of the pool.
    place: u64,
}

/// One copy of a record that certifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// First byte in the pool.
    pub at: u64,
    /// Bytes, whole lines.
    pub len: u64,
    /// Commit number.
    pub number: u64,
    /// Watermark.
    pub watermark: u64,
    /// Kind and first byte of each entry.
    pub entries: Vec<(u8, u64)>,
    /// What its sum starts from.
    pub seed: LogSeed,
}

impl LogSeed {
    /// Sum of a record at `at` whose bytes from the fifth on are `covered`.
    #[must_use]
    pub fn sum(self, at: u64, covered: &[u8]) -> u32 {
        crc(crc(self.start, &at.wrapping_sub(self.place).to_le_bytes()), covered)
    }

    /// Sum of what overflowed of the record of that number.
    #[must_use]
    pub fn overflow(self, number: u64, payload: &[u8]) -> u32 {
        crc(crc(self.live, &number.to_le_bytes()), payload)
    }
}

/// What of a record lies in chunks of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// First bytes of both copies.
    pub copies: [u64; 2],
    /// Bytes of each.
    pub len: u64,
    /// Where the record has their sum.
    pub sum_at: u64,
    /// Kind and first byte of each entry, from the start of a copy on.
    pub entries: Vec<(u8, u64)>,
}

impl Overflow {
    /// What the entry at `at` says, if its first copy certifies.
    #[must_use]
    pub fn of(pool: &Bytes, record: &Record, at: u64) -> Option<Self> {
        let entry = pool.get(at, OVERFLOW_LEN as u64)?;
        let field = |name| number(FIELDS_OVERFLOW, name, entry);
        let (first, len) = (field("offset"), field("len"));
        let payload = pool.get(first, len)?;
        if u64::from(record.seed.overflow(record.number, payload)) != field("crc") {
            return None;
        }
        let sum = FIELDS_OVERFLOW.iter().find(|field| field.name == "crc")?;
        let entries = entries(payload, 0, u64::MAX)?;
        Some(Self { copies: [first, field("replica")], len, sum_at: at + sum.at, entries })
    }
}

/// Kind and first byte of so many entries, or of all, from a byte on.
fn entries(bytes: &[u8], mut next: usize, count: u64) -> Option<Vec<(u8, u64)>> {
    let mut found = Vec::new();
    while (found.len() as u64) < count && next < bytes.len() {
        let entry = bytes.get(next..)?;
        let kind = number(FIELDS_DATA, "kind", entry) as u8;
        found.push((kind, next as u64));
        next += match kind {
            KIND_DATA => DATA_LEN + number(FIELDS_DATA, "len", entry).next_multiple_of(8) as usize,
            KIND_SLOT => SLOT_LEN,
            KIND_FRESH => FRESH_LEN,
            KIND_OVERFLOW => OVERFLOW_LEN,
            _ => return None,
        };
    }
    Some(found)
}

/// Every record that certifies under the live generation, by place.
#[must_use]
pub fn records(pool: &Bytes, superblock: &[u8], seed: u32) -> Vec<Record> {
    let field = |name| number(FIELDS_SUPERBLOCK, name, superblock);
    let (start, ring, lanes) = (field("log_start"), field("ring_len"), field("lanes"));
    let live = crc(seed, &field("log_generation").to_le_bytes());
    let adjacent = field("log_placement") == 1;
    let mut found = Vec::new();
    for side in [0, field("side_len")] {
        for lane in 0..lanes {
            let first = side + start + lane * ring;
            let (id, place) = if adjacent { (NO_LANE, 0) } else { (lane as u32, first) };
            let seed = LogSeed { live, start: crc(live, &id.to_le_bytes()), place };
            let end = if adjacent { side + start + lanes * ring } else { first + ring };
            for at in (first..first + ring).step_by(LINE_LEN) {
                found.extend(record(pool, at, end, seed));
            }
        }
    }
    found
}

fn record(pool: &Bytes, at: u64, end: u64, seed: LogSeed) -> Option<Record> {
    let head = pool.get(at, RECORD_LEN as u64)?;
    let field = |name| number(FIELDS_RECORD, name, head);
    let len = field("lines") * LINE_LEN as u64;
    if len == 0 || at + len > end || field("number") == 0 || field("number") >= NUMBER_END {
        return None;
    }
    let bytes = pool.get(at, len)?;
    if u64::from(seed.sum(at, &bytes[4..])) != field("crc") {
        return None;
    }
    let entries = entries(bytes, RECORD_LEN, field("entries"))?;
    if entries.len() as u64 != field("entries") {
        return None;
    }
    let entries = entries.into_iter().map(|(kind, from)| (kind, at + from)).collect();
    let (number, watermark) = (field("number"), field("watermark"));
    Some(Record { at, len, number, watermark, entries, seed })
}

/// The watermark records in force, by place: both copies of the one, or of the ones, that nothing
/// else in the log says as much as.
#[must_use]
pub fn marks(pool: &Bytes, superblock: &[u8], seed: u32) -> Vec<Record> {
    let (marks, others): (Vec<_>, Vec<_>) =
        records(pool, superblock, seed).into_iter().partition(|record| record.entries.is_empty());
    let told = others.iter().map(|record| record.watermark).max().unwrap_or(0);
    let most = marks.iter().map(|mark| mark.watermark).max().unwrap_or(0);
    marks.into_iter().filter(|mark| mark.watermark == most && most > told).collect()
}

/// The records that a recovery has to replay, both copies of each, by place.
#[must_use]
pub fn pending(pool: &Bytes, superblock: &[u8], seed: u32) -> Vec<Record> {
    let mut all = records(pool, superblock, seed);
    let complete = all.iter().map(|record| record.watermark).max().unwrap_or(0);
    all.retain(|record| record.number > complete && !record.entries.is_empty());
    all
}
