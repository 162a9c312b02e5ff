//! Stray writes of every length, wherever they begin, up to a row and beyond; and two damages of
//! one page column, at different bytes and at the same ones.

use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, crash, create_with, get, pattern, put, quick};
use holdfast_faultmem::{Clear, Config, FaultMedium, Image};
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{
    CreateOptions, Error, Parity, Pool, ScrubControl, ScrubOptions, Scrubbed, VerifyReads,
};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_redundancy::events::{Event, Journal, Outcome};
use holdfast_txn::{Transaction, TxError};

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

/// Every length up to a line and within 16 bytes of a page and of a row; in between every 24th up
/// to a page, every 96th up to a row; and the neighbours of each power of two. All lengths are
/// tried if `HOLDFAST_ALL` is set, which takes minutes.
fn lengths(row: u64) -> Vec<u64> {
    if std::env::var_os("HOLDFAST_ALL").is_some() {
        return (1..=row).collect();
    }
    let mut lengths: Vec<u64> = (1..=64).chain((72..=PAGE).step_by(24)).collect();
    lengths.extend((PAGE..row).step_by(96));
    lengths.extend((PAGE - 16..PAGE + 16).chain(row - 16..=row));
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

/// What reads and the journal say of damage that may be beyond the redundancy: nothing is ever
/// wrong, what is lost is named, and only what was `hit` is.
fn contained(f: &mut Filled, hit: &[(u64, u64)], what: &str) -> usize {
    f.scrub();
    let events = f.events();
    let mut lost = 0;
    for object in &f.objects {
        match get(&f.pool, object.0) {
            Ok(found) => assert_eq!(found, object.1, "{what}: {} is silently wrong", object.0),
            Err(Error::Tx(TxError::Lost { .. })) => {
                lost += 1;
                let whole = range(object);
                assert!(hit.iter().any(|hit| meet(*hit, whole)), "{what}: {} is lost", object.0);
                let names = |e: &Event| e.outcome == Outcome::Lost && meet((e.at, e.len), whole);
                assert!(events.iter().any(names), "{what}: {} is not named: {events:?}", object.0);
            }
            Err(error) => panic!("{what}: {}: {error}", object.0),
        }
    }
    lost
}

#[test]
fn stray_writes_longer_than_a_row_are_contained_and_named() {
    let (mut partly, mut all) = (0, 0);
    for more in [1, 8, 100, 1024, 3000, PAGE, 2 * PAGE] {
        let mut f = filled(Parity::P);
        let (p, len) = (f.long().0, f.zone.row_len() + more);
        let what = format!("{len} bytes");
        let at = p.offset() + 5_003;
        f.stray(at, len);
        let lost = contained(&mut f, &[(at, len)], &what);
        assert_eq!(lost, 1, "{what}: what is hit twice in a column is one object's");
        assert!(f.pool.stats().lost > 0, "{what}");
        // What is hit once is repaired: all bytes of the stray write but these.
        let twice = [(at, more), (at + f.zone.row_len(), more)];
        let mut byte = [0];
        for i in (0..len).step_by(7) {
            let granule = |at: u64| (at.saturating_sub(1024), 2049);
            if !twice.iter().any(|range| meet(granule(at + i), *range)) {
                f.pool.medium().read(at + i, &mut byte).unwrap();
                let right = f.long().1[(at + i - p.offset()) as usize];
                assert_eq!(byte[0], right, "{what}: byte {i} was hit once");
                partly += 1;
            }
        }
        // It can be let go, and its room is as good as any.
        let again = f.objects.iter().find(|(of, _)| *of == p).unwrap().1.clone();
        f.objects.retain(|(of, _)| *of != p);
        f.all_right();
        f.objects.push((put(&f.pool, &again), again));
        f.all_right();
        all += 1;
    }
    assert!(all == 7 && partly > 1000, "{partly}");
}

/// Offset and length.
type Bytes = (u64, u64);

/// Where two damages lie in one page column: bytes from the start of it, and how many.
const PAIRS: [(&str, Bytes, Bytes); 6] = [
    ("in other granules", (100, 300), (2100, 300)),
    ("in one granule", (100, 30), (600, 30)),
    ("side by side", (100, 200), (300, 200)),
    ("overlapping", (100, 300), (300, 300)),
    ("one inside the other", (100, 500), (200, 20)),
    ("the whole page", (0, PAGE), (0, PAGE)),
];

/// Two pages of one column that are all a long object's, in rows `rows` apart.
fn two_pages(f: &Filled, apart: u64) -> [u64; 2] {
    let first = f.long().0.offset().next_multiple_of(PAGE);
    [first, first + apart * f.zone.row_len()]
}

#[test]
fn two_stray_writes_over_a_column_are_repaired_unless_p_has_to_do_for_both() {
    for parity in [Parity::P, Parity::PQ] {
        for (how, a, b) in PAIRS {
            for apart in [1, 2] {
                let mut f = filled(parity);
                let [one, other] = two_pages(&f, apart);
                let hit = [(one + a.0, a.1), (other + b.0, b.1)];
                hit.iter().for_each(|(at, len)| f.stray(*at, *len));
                let what = format!("{parity:?} {how}, {apart} rows apart");
                let lost = contained(&mut f, &hit, &what);
                let shared = meet(a, b) && parity == Parity::P;
                assert_eq!(lost, usize::from(shared), "{what}");
                assert_eq!(f.pool.stats().lost > 0, shared, "{what}");
                if !shared {
                    let report = f.pool.check(|_, _| {}).unwrap();
                    assert!(report.is_clean(), "{what}: {:?}", report.findings);
                }
            }
        }
    }
}

#[test]
fn two_stray_writes_over_a_column_that_two_objects_share_cost_both_with_p_and_none_with_q() {
    for parity in [Parity::P, Parity::PQ] {
        for (how, a, b) in PAIRS {
            let mut f = filled(parity);
            let zone = f.zone;
            // A page of each of two long objects, in one column.
            let long: Vec<_> = f.objects.iter().filter(|(_, b)| b.len() == 28_000).collect();
            let page = |n: usize| long[n].0.offset().next_multiple_of(PAGE) + PAGE;
            let col = |at| zone.place(at).unwrap().col;
            let (one, mut other) = (page(1), page(3));
            if col(one) != col(other) {
                other += PAGE;
            }
            assert_eq!(col(one), col(other));
            let hit = [(one + a.0, a.1), (other + b.0, b.1)];
            hit.iter().for_each(|(at, len)| f.stray(*at, *len));
            let what = format!("{parity:?} {how}");
            let lost = contained(&mut f, &hit, &what);
            let shared = meet(a, b) && parity == Parity::P;
            assert_eq!(lost, if shared { 2 } else { 0 }, "{what}");
        }
    }
}

#[test]
fn two_unreadable_pages_of_a_column_are_rebuilt_with_q_and_named_without() {
    for parity in [Parity::P, Parity::PQ] {
        for apart in [1, 2] {
            let mut f = filled(parity);
            let pages = two_pages(&f, apart);
            for page in pages {
                f.pool.medium().poison(page, PAGE, Clear::Able).unwrap();
            }
            let what = format!("{parity:?}, {apart} rows apart");
            let lost = contained(&mut f, &pages.map(|page| (page, PAGE)), &what);
            assert_eq!(lost, usize::from(parity == Parity::P), "{what}");
        }
    }
}

#[test]
fn an_unreadable_page_and_a_stray_write_over_its_column_are_told_apart_with_q() {
    for parity in [Parity::P, Parity::PQ] {
        let mut f = filled(parity);
        let [one, other] = two_pages(&f, 2);
        f.pool.medium().poison(one, PAGE, Clear::Able).unwrap();
        f.stray(other + 700, 60);
        let what = format!("{parity:?}");
        let lost = contained(&mut f, &[(one, PAGE), (other + 700, 60)], &what);
        assert_eq!(lost, usize::from(parity == Parity::P), "{what}");
    }
}

#[test]
fn two_stray_writes_over_the_columns_of_a_replay_are_repaired_before_it() {
    for parity in [Parity::P, Parity::PQ] {
        for (how, a, b) in PAIRS {
            let mut f = filled(parity);
            let [one, other] = two_pages(&f, 1);
            // The change lies over all of the same columns, in a third row.
            let (p, changed) = (f.long().0, other + f.zone.row_len());
            let (from, new) = ((changed - p.offset()) as usize, pattern(99, 2500));
            let image: Arc<Mutex<Option<Image>>> = Arc::default();
            let (sink, hooked) = (Arc::clone(&image), f.pool.clone());
            f.pool.medium().on_step(Box::new(move |site| {
                if site.name() == "object.commit.step-durable" {
                    let point = hooked.medium().crash_point();
                    *sink.lock().unwrap() = Some(point.persisted());
                }
            }));
            f.pool.run(|tx| tx.write_bytes(p, from as u64, &new)).unwrap();
            f.pool.medium().clear_on_step();
            let long = f.objects.iter_mut().find(|(of, _)| *of == p).unwrap();
            long.1[from..from + new.len()].copy_from_slice(&new);
            let m = image.lock().unwrap().take().expect("the step was passed");
            let m = FaultMedium::from_crash(m, MediumKind::Shm, &Config::default());
            for (at, len) in [(one + a.0, a.1), (other + b.0, b.1)] {
                m.stray(at, &pattern(at, len as usize)).unwrap();
            }
            let what = format!("{parity:?} {how}");
            let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
            assert!(opened.recovered.replayed > 0, "{what}");
            pool.set_verify_reads(VerifyReads::Always);
            f.pool = pool;
            let hit = [(one + a.0, a.1), (other + b.0, b.1)];
            let lost = contained(&mut f, &hit, &what);
            assert_eq!(lost, usize::from(meet(a, b) && parity == Parity::P), "{what}");
        }
    }
}

/// A page of an object and one that nobody needs are wrong in one column: no sum says which the
/// second one is.
#[test]
fn a_page_beside_one_of_free_bytes_is_repaired_with_q() {
    for unreadable in [false, true] {
        let mut f = filled(Parity::PQ);
        let zone = f.zone;
        let long: Vec<_> = f.objects.iter().filter(|(_, b)| b.len() == 28_000).collect();
        let page = |n: usize| long[n].0.offset().next_multiple_of(PAGE) + PAGE;
        let col = |at| zone.place(at).unwrap().col;
        let (one, mut other, freed) = (page(1), page(3), long[3].0);
        if col(one) != col(other) {
            other += PAGE;
        }
        f.pool.run(|tx| tx.free(freed)).unwrap();
        f.objects.retain(|(of, _)| *of != freed);
        f.stray(other, PAGE);
        match unreadable {
            true => f.pool.medium().poison(one, PAGE, Clear::Able).unwrap(),
            false => f.stray(one, PAGE),
        }
        let what = format!("unreadable: {unreadable}");
        assert_eq!(contained(&mut f, &[], &what), 0, "{what}");
        let report = f.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    }
}

/// A stray write of a row's length begins in the last granule of an object, and ends in the same
/// column of the next row, where nobody needs anything: no sum there says how far it goes.
#[test]
fn a_stray_write_of_a_row_that_ends_in_free_bytes_is_repaired_with_p() {
    let count = filled(Parity::P).objects.iter().filter(|(_, b)| b.len() == 28_000).count();
    for n in 0..count {
        let mut f = filled(Parity::P);
        let long: Vec<_> = f.objects.iter().filter(|(_, b)| b.len() == 28_000).collect();
        let p = long[n].0;
        let at = p.offset() + 27 * 1024 + 200;
        let over = (at + f.zone.row_len() - 2048, 2048);
        let gone = |o: &&(RawPtr, Vec<u8>)| o.0 != p && meet(range(o), over);
        let gone: Vec<RawPtr> = f.objects.iter().filter(gone).map(|o| o.0).collect();
        for of in gone {
            f.pool.run(|tx| tx.free(of)).unwrap();
            f.objects.retain(|(o, _)| *o != of);
        }
        f.trial(at, f.zone.row_len());
        f.all_right();
    }
}

/// Sums of a long object lie on a page of their own, each four bytes for a KiB elsewhere: as parity
/// says that it was, it is judged with the pages of all these, whose columns do not add up either.
/// Nothing but free bytes was hit.
#[test]
fn a_frame_of_free_bytes_leaves_no_doubt_about_long_objects_over_its_columns() {
    let options = CreateOptions { size: 45 << 20, parity: Parity::P, ..CreateOptions::default() };
    let pool = create_with(MediumKind::Shm, &options);
    let bytes = pattern(1, 3 << 20);
    let of = put(&pool, &bytes);
    let zone = Zone::new(pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap(), 0);
    let last = zone.map(|zone| zone.at(zone.data_rows() - 1, 0)).unwrap();
    pool.medium().stray(last, &pattern(2, 2 << 20)).unwrap();
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
    assert!(done.repaired > 0);
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings.last());
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    assert_eq!(get(&pool, of).unwrap(), bytes);
}
