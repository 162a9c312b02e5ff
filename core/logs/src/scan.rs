//! Finding the records of a log whose pool stopped, whatever its bytes are by now.
//!
//! There is no head pointer: every line of every ring, in both copies, may start a record, and a
//! record proves itself. Work is bounded by the length of the log, not by what is in it: sums of
//! all prefixes are kept, so that each candidate costs the same however long it claims to be.
//! Memory is bounded by a window and by the records that are to be replayed.
//!
//! Reading changes nothing, so a scan may be repeated: recovery raises the log generation only
//! after everything found was replayed and drained.

use holdfast_codes::{crc32c, crc32c_combine};
use holdfast_layout::bytes::get_u32;
use holdfast_layout::{Certify, LogPlacement, Superblock};
use holdfast_pmem::{MediaError, Medium, Site};

use crate::entry::Entries;
use crate::error::LogError;
use crate::format::{
    LINE_LEN, NO_LANE, PAGE_LEN, RECORD_COVERED_AT, RECORD_CRC_AT, RECORD_LINES_MAX,
};
use crate::lanes;
use crate::record::{Head, record_entries};
use crate::seed::Seed;

/// Bytes looked at in one go. Longer than any record, so that each lies whole in some window.
const WINDOW: u64 = 2 * RECORD_MAX;
/// Bytes of the longest record, in whole pages.
const RECORD_MAX: u64 = (RECORD_LINES_MAX as u64 * LINE_LEN as u64).next_multiple_of(PAGE_LEN);
/// Records kept in mind before those already known to be complete are forgotten.
const PRUNE: usize = 1 << 14;

/// Believe only records whose sum is right.
const CERTIFY: Site = Site::new("logs.scan.certify");
/// Look at copy B too.
const EITHER: Site = Site::new("logs.scan.either");
/// Ignore records up to the largest watermark.
const COMPLETE: Site = Site::new("logs.scan.complete");
/// Replay in order of number.
const ORDER: Site = Site::new("logs.scan.order");

/// A record that is to be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// Commit number.
    pub number: u64,
    /// Watermark it carries.
    pub l: u64,
    /// The sealed record.
    pub bytes: Vec<u8>,
    /// Where the copy it was read from starts.
    pub at: u64,
    /// Whether the other copy is missing, torn or unreadable.
    pub copy_damaged: bool,
}

impl FoundRecord {
    /// The entries, for a pool of `size` bytes.
    #[must_use]
    pub fn entries(&self, size: u64) -> Entries<'_> {
        record_entries(&self.bytes, size)
    }
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Records above the largest watermark, in order of number: at most one per commit that was
    /// under way, and those the watermark lags behind.
    pub records: Vec<FoundRecord>,
    /// Largest watermark in any record: all commits up to it are complete on the medium.
    pub max_l: u64,
    /// Largest number or watermark in any record; 0 if there is none.
    pub max_number: u64,
    /// Log pages that could not be read: start and length, ascending. To be rewritten once
    /// everything was replayed and drained; until then they are not touched.
    pub bad: Vec<(u64, u64)>,
    /// Valid records seen, in either copy, complete ones included.
    pub valid: u64,
    /// Numbers of commits whose records are gone in both copies though later records of their
    /// lanes name them, each with the place of one that does: they were committed, and what they
    /// changed may be lost. The last record of a lane has nobody to miss it.
    pub missing: Vec<(u64, u64)>,
}

impl Scan {
    /// The records to replay, in the order to replay them.
    #[must_use]
    pub fn to_replay(&self) -> &[FoundRecord] {
        &self.records
    }
}

/// A valid record, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sighting {
    number: u64,
    last: u64,
    watermark: u64,
    at: u64,
    place: u64,
    lines: usize,
    strip: usize,
}

/// A stretch of the medium in which records lie.
#[derive(Debug, Clone, Copy)]
struct Strip {
    start: u64,
    len: u64,
    seed: Seed,
    /// Place, as the seed counts it, of the first byte.
    place: u64,
}

/// Finds every record of the superblock's log generation, in either copy. Unreadable pages are
/// listed and passed over.
///
/// # Errors
/// [`LogError::Geometry`] if the log does not lie inside the medium, [`LogError::Media`] if a
/// page could be read first and then, to get a record to replay, could not.
pub fn scan<M: Medium>(m: &M, superblock: &Superblock) -> Result<Scan, LogError> {
    lanes::check(m, superblock)?;
    let certify = Certify::when(m.enabled(CERTIFY));
    let mut search = Search { scan: Scan::default(), found: Vec::new(), sums: Vec::new(), certify };
    let strips = strips(superblock, m.enabled(EITHER));
    let longest = strips.iter().map(|strip| strip.len).max().unwrap_or(0);
    let mut window = vec![0; longest.min(WINDOW) as usize];
    for (index, strip) in strips.iter().enumerate() {
        search.strip(m, index, strip, &mut window);
    }
    search.scan.bad.sort_unstable();
    search.scan.bad.dedup();
    search.collect(m, &strips, superblock)
}

/// Every stretch to look at: a ring and its copy, or the areas of the adjacent log.
fn strips(superblock: &Superblock, either: bool) -> Vec<Strip> {
    let Superblock { log_start, ring_len, side_len, lanes, .. } = *superblock;
    let seed = Seed::new(superblock);
    match superblock.log_placement {
        LogPlacement::Apart => {
            let copies = if superblock.copies > 1 && either { 2 } else { 1 };
            let ring = |lane: u32, copy: u64| Strip {
                start: copy * side_len + log_start + u64::from(lane) * ring_len,
                len: ring_len,
                seed: seed.lane(lane),
                place: 0,
            };
            (0..copies).flat_map(|copy| (0..lanes).map(move |lane| ring(lane, copy))).collect()
        }
        LogPlacement::Adjacent => {
            let area = |start: u64| Strip {
                start,
                len: u64::from(lanes) * ring_len,
                seed: seed.lane(NO_LANE),
                place: start,
            };
            vec![area(log_start), area(side_len + log_start)]
        }
    }
}

/// A scan under way.
#[derive(Debug)]
struct Search {
    scan: Scan,
    found: Vec<Sighting>,
    /// Sum of all lines of the window before this one, for each line and its end.
    sums: Vec<u32>,
    /// Whether sums are looked at.
    certify: Certify,
}

impl Search {
    /// Looks at every line of a strip, a window at a time.
    fn strip<M: Medium>(&mut self, m: &M, index: usize, strip: &Strip, window: &mut [u8]) {
        let (mut from, mut skip) = (0, 0);
        while from < strip.len {
            let len = (strip.len - from).min(window.len() as u64);
            let bytes = &mut window[..len as usize];
            let bad = self.fill(m, strip.start + from, bytes);
            // What starts behind this may end behind the window: the next one starts there.
            let last = from + len == strip.len;
            let end = if last { len } else { len - RECORD_MAX };
            let mut at = u64::max(skip, from) - from;
            while at < end {
                let place = strip.place + from + at;
                let seed = strip.seed.place(place);
                let Some(head) = self.certified(bytes, at as usize, seed, &bad) else {
                    at += LINE_LEN as u64;
                    continue;
                };
                let sighting = Sighting {
                    number: head.number,
                    last: head.last,
                    watermark: head.watermark,
                    at: strip.start + from + at,
                    place,
                    lines: head.lines,
                    strip: index,
                };
                self.note(&sighting, head.entries);
                at += (head.lines * LINE_LEN) as u64;
            }
            (from, skip) = (from + end, from + at);
        }
    }

    /// Reads a window and sums its lines. Pages that cannot be read become zero and are listed:
    /// lines of the window, from and to.
    fn fill<M: Medium>(&mut self, m: &M, start: u64, bytes: &mut [u8]) -> Vec<(usize, usize)> {
        let mut bad = Vec::new();
        if m.read(start, bytes).is_err() {
            for (i, page) in bytes.chunks_mut(PAGE_LEN as usize).enumerate() {
                let at = i * PAGE_LEN as usize;
                if let Err(MediaError { .. }) = m.read(start + at as u64, page) {
                    page.fill(0);
                    bad.push((at / LINE_LEN, (at + page.len()) / LINE_LEN));
                    self.scan.bad.push((start + at as u64, page.len() as u64));
                }
            }
        }
        self.sums.clear();
        self.sums.push(0);
        let mut sum = 0;
        for line in bytes.chunks_exact(LINE_LEN) {
            sum = crc32c(sum, line);
            self.sums.push(sum);
        }
        bad
    }

    /// The header of the record that starts at byte `at` of the window, if one does.
    fn certified(
        &self,
        bytes: &[u8],
        at: usize,
        seed: u32,
        bad: &[(usize, usize)],
    ) -> Option<Head> {
        let (first, line) = (at / LINE_LEN, &bytes[at..at + LINE_LEN]);
        let head = Head::of(line, bytes.len() / LINE_LEN - first)?;
        let end = first + head.lines;
        // Lists are short: a page is bad once in a blue moon.
        if bad.iter().any(|&(from, to)| from < end && first < to) {
            return None;
        }
        let rest = (head.lines - 1) * LINE_LEN;
        let (before, all) = (self.sums[first + 1], self.sums[end]);
        let tail = crc32c_combine(before, all, rest);
        let sum = crc32c_combine(crc32c(seed, &line[RECORD_COVERED_AT..]), tail, rest);
        self.certify.agrees(get_u32(line, RECORD_CRC_AT), sum).then_some(head)
    }

    /// Takes down a valid record.
    fn note(&mut self, sighting: &Sighting, entries: usize) {
        let scan = &mut self.scan;
        scan.valid += 1;
        scan.max_l = scan.max_l.max(sighting.watermark);
        scan.max_number = scan.max_number.max(sighting.number);
        if entries > 0 {
            self.found.push(*sighting);
            if self.found.len().is_multiple_of(PRUNE) {
                let complete = scan.max_l;
                self.found.retain(|sighting| sighting.number > complete);
            }
        }
    }

    /// Looks for the record before each record of a lane. It was durable before its successor was
    /// written, and is overwritten only once a durable watermark covers it.
    fn miss(&mut self, complete: u64) {
        let mut numbers: Vec<u64> = self.found.iter().map(|s| s.number).collect();
        numbers.sort_unstable();
        let gone = |s: &&Sighting| s.last > complete && numbers.binary_search(&s.last).is_err();
        let missing = self.found.iter().filter(gone).map(|s| (s.last, s.at));
        self.scan.missing = missing.collect();
        self.scan.missing.sort_unstable();
        self.scan.missing.dedup_by_key(|(number, _)| *number);
    }

    /// Gets the bytes of what is to be replayed, one copy of each.
    fn collect<M: Medium>(
        mut self,
        m: &M,
        strips: &[Strip],
        superblock: &Superblock,
    ) -> Result<Scan, LogError> {
        let complete = if m.enabled(COMPLETE) { self.scan.max_l } else { 0 };
        self.found.retain(|sighting| sighting.number > complete);
        if m.enabled(ORDER) {
            self.found.sort_unstable_by_key(|sighting| (sighting.number, sighting.at));
        } else {
            self.found.sort_unstable_by_key(|s| (u64::MAX - s.number, s.at));
        }
        self.miss(complete);
        for copies in self.found.chunk_by(|a, b| a.number == b.number) {
            let best = copies[0];
            let mut bytes = vec![0; best.lines * LINE_LEN];
            m.read(best.at, &mut bytes).map_err(LogError::Media)?;
            let seed = strips[best.strip].seed.place(best.place);
            let sum = crc32c(seed, &bytes[RECORD_COVERED_AT..]);
            if !self.certify.agrees(get_u32(&bytes, RECORD_CRC_AT), sum) {
                // It changed under our eyes; nobody writes here, so the medium does not hold.
                let (at, len) = (best.at, bytes.len() as u64);
                let cause = holdfast_pmem::MediaCause::Poison;
                return Err(LogError::Media(MediaError { at, len, cause }));
            }
            self.scan.records.push(FoundRecord {
                number: best.number,
                l: best.watermark,
                bytes,
                at: best.at,
                copy_damaged: superblock.copies > 1 && copies.len() < 2,
            });
        }
        Ok(self.scan)
    }
}
