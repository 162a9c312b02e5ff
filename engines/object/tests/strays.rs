//! Stray writes of every length, wherever they begin, up to a row and beyond; and two damages of
//! one page column, at different bytes and at the same ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use common::{TestPool, create_with, crash, get, pattern, put};
use holdfast_faultmem::Clear;
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{CreateOptions, Error, Parity, ScrubControl, ScrubOptions, Scrubbed, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_redundancy::events::{Event, Journal, Outcome};
use holdfast_txn::TxError;

/// A pool whose rows are two pages long, so that every length up to a row can be tried.
struct Filled {
    pool: TestPool,
    objects: Vec<(RawPtr, Vec<u8>)>,
    region: Region,
    zone: Zone,
    /// Events before this one were looked at.
    next: u64,
}

fn filled(parity: Parity) -> Filled {
    let options =
        CreateOptions { parity, rows: 100, events: 32 << 10, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let lengths = [48, 200, 1000, 3000, 5000, 28_000];
    let mut objects = Vec::new();
    for i in 0..42_u64 {
        let bytes = pattern(i + 1, lengths[i as usize % lengths.len()]);
        objects.push((put(&pool, &bytes), bytes));
    }
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    assert_eq!(region.row_len, 2 * PAGE);
    let zone = Zone::new(&region, 0).unwrap();
    Filled { pool, objects, region, zone, next: 0 }
}

/// Whether two ranges (offset, length) share a byte.
fn meet(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

fn range((p, bytes): &(RawPtr, Vec<u8>)) -> (u64, u64) {
    (p.offset(), bytes.len() as u64)
}

impl Filled {
    /// Replaces every byte of a range by another one.
    fn stray(&self, at: u64, len: u64) {
        let mut bytes = vec![0; len as usize];
        self.pool.medium().read(at, &mut bytes).unwrap();
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        self.pool.medium().stray(at, &bytes).unwrap();
    }

    fn scrub(&self) -> Scrubbed {
        self.pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
    }

    /// Events since the last call.
    fn events(&mut self) -> Vec<Event> {
        let journal = Journal::open(self.pool.medium(), &self.pool.superblock());
        let events = journal.read_from(self.pool.medium(), self.next);
        self.next = events.last().map_or(self.next, |event| event.sequence + 1);
        events
    }

    /// A stray write that a scrub repairs, and tells of all it hit.
    fn trial(&mut self, at: u64, len: u64) {
        let what = format!("{len} bytes at {at:#x}");
        self.stray(at, len);
        let done = self.scrub();
        assert_eq!((done.lost, done.undecided), (0, 0), "{what}: {:?}", done.report.findings);
        assert!(done.repaired > 0, "{what}");
        let events = self.events();
        let tells = |hit| events.iter().any(|e| meet((e.at, e.len), hit));
        assert!(events.iter().all(|e| e.outcome == Outcome::Repaired), "{what}: {events:?}");
        for object in self.objects.iter().filter(|object| meet(range(object), (at, len))) {
            let of = object.0;
            assert!(tells(range(object)), "{what}: {of} is not named: {events:?}");
            assert!(get(&self.pool, of).is_ok_and(|found| found == object.1), "{what}: {of}");
        }
        let table = ZoneTable::new(0, &self.region);
        for entry in (0..table.chunks()).map(|chunk| (table.entry_at(chunk), 32)) {
            assert!(!meet(entry, (at, len)) || tells(entry), "{what}: no entry named: {events:?}");
        }
        let report = self.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    }

    /// All lengths up to a row, from where `at` says for each.
    fn every_length(mut self, at: impl Fn(u64) -> u64) {
        for len in lengths(self.zone.row_len()) {
            let at = at(len);
            assert!(self.zone.contains_range(at, len));
            self.trial(at, len);
        }
        self.all_right();
        let (pool, _) = crash(self.pool);
        for (p, bytes) in &self.objects {
            assert_eq!(&get(&pool, *p).unwrap(), bytes, "{p} after a crash");
        }
    }

    fn all_right(&self) {
        for (p, bytes) in &self.objects {
            assert_eq!(&get(&self.pool, *p).unwrap(), bytes, "{p}");
        }
    }

    /// A long object.
    fn long(&self) -> &(RawPtr, Vec<u8>) {
        self.objects.iter().filter(|(_, bytes)| bytes.len() == 28_000).nth(2).unwrap()
    }

    /// The first border of rows in the middle of a long object.
    fn border(&self) -> u64 {
        let inside = self.long().0.offset() + self.zone.row_len() - self.zone.data_start();
        self.zone.data_start() + inside.next_multiple_of(self.zone.row_len())
    }

    /// A run with live slots at its head, on which objects lie too.
    fn run(&self) -> u64 {
        let table = ZoneTable::new(0, &self.region);
        let (p, _) = self.objects.iter().find(|(_, bytes)| bytes.len() == 200).unwrap();
        table.chunk_at(table.chunk_of(p.offset()).unwrap())
    }
}

/// Every length up to two lines, then every eighth and the neighbours of each power of two, up to
/// a row and no more.
fn lengths(row: u64) -> Vec<u64> {
    let mut lengths: Vec<u64> = (1..=128).chain((136..=row).step_by(8)).collect();
    let powers = (0..).map(|n| 1 << n).take_while(|power| *power <= row);
    lengths.extend(powers.flat_map(|power: u64| [power - 1, power, power + 1]));
    lengths.retain(|len| (1..=row).contains(len));
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[test]
fn stray_writes_of_every_length_in_the_middle_of_an_object_are_repaired() {
    let f = filled(Parity::P);
    let middle = f.long().0.offset() + 9_001;
    f.every_length(|_| middle);
}

#[test]
fn stray_writes_of_every_length_across_a_row_border_are_repaired() {
    let f = filled(Parity::P);
    let border = f.border();
    f.every_length(|len| border - len.div_ceil(2));
}

#[test]
fn stray_writes_of_every_length_over_a_slot_are_repaired() {
    let f = filled(Parity::P);
    let run = f.run();
    f.every_length(|_| run + 3);
}

#[test]
fn stray_writes_of_every_length_that_end_in_a_slot_are_repaired() {
    let f = filled(Parity::P);
    let end = f.run() + 37;
    f.every_length(|len| end - len);
}

#[test]
fn stray_writes_of_every_length_over_a_directory_entry_are_repaired() {
    let f = filled(Parity::P);
    let entry = ZoneTable::new(0, &f.region).entry_at(2);
    f.every_length(|_| entry + 5);
}
