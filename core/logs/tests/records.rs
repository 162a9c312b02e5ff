//! Records as bytes: what is built is what is read, and what is not a record is not taken for one.

mod common;

use common::superblock;
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::{LogPlacement, Superblock};
use holdfast_logs::{Entry, EntryError, Log, Numbers, RecordBuilder, Scan, Seed, entries, scan};
use holdfast_pmem::{Medium, MediumKind, Site};
use proptest::prelude::*;

const STRAY: Site = Site::new("test.records.stray");

/// One entry, as a strategy draws it.
#[derive(Debug, Clone)]
enum Change {
    Data(u64, Vec<u8>),
    Slot(u64, [u8; 16]),
    Fresh(u64, u64),
    Overflow(u64, u64, u64, u32),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..1_u64 << 40;
    prop_oneof![
        (at.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, bytes)| Change::Data(at, bytes)),
        (at.clone(), any::<[u8; 16]>()).prop_map(|(at, slot)| Change::Slot(at, slot)),
        (at.clone(), 0..1_u64 << 30).prop_map(|(at, len)| Change::Fresh(at, len)),
        (at.clone(), at, 0..1_u64 << 30, any::<u32>())
            .prop_map(|(a, b, len, crc)| Change::Overflow(a, b, len, crc)),
    ]
}

fn build(record: &mut RecordBuilder, changes: &[Change]) {
    record.clear();
    for change in changes {
        match change {
            Change::Data(at, bytes) => {
                // Half of them in two pieces.
                let cut = if at % 2 == 0 { bytes.len() } else { bytes.len() / 16 * 8 };
                let place = record.data(*at, &bytes[..cut]);
                if cut < bytes.len() {
                    assert!(record.extend_data(place, cut, &bytes[cut..]));
                }
                assert_eq!(record.payload(place, bytes.len()), bytes);
            }
            Change::Slot(at, slot) => {
                let place = record.slot(*at, slot);
                assert_eq!(record.payload(place, 16), slot);
            }
            Change::Fresh(at, len) => record.fresh(*at, *len),
            Change::Overflow(a, b, len, crc) => record.overflow(*a, *b, *len, *crc),
        }
    }
}

#[test]
fn only_the_last_entry_grows_and_only_by_whole_words() {
    let mut record = RecordBuilder::default();
    let first = record.data(64, &[1; 16]);
    let last = record.data(128, &[2; 12]);
    assert!(!record.extend_data(first, 16, &[3]), "not the last");
    assert!(!record.extend_data(last, 12, &[3]), "padded");
    let slot = record.slot(192, &[4; 16]);
    assert!(!record.extend_data(slot, 16, &[3]), "no data");
    let data = record.data(256, &[5; 8]);
    assert!(record.extend_data(data, 8, &[6; 8]) && record.extend_data(data, 16, &[7; 3]));
    assert!(!record.extend_data(data, 19, &[8]), "padded by now");
    assert_eq!(record.entries(), 4);
    let grown = [[5; 8], [6; 8]].concat().into_iter().chain([7; 3]).collect::<Vec<u8>>();
    let read: Vec<_> = record.parsed(1 << 20).collect::<Result<_, _>>().unwrap();
    assert_eq!(read[3], Entry::Data { at: 256, bytes: &grown });
    record.clear();
    assert!(!record.extend_data(data, 16, &[3]), "nothing there");
}

fn same<'a>(changes: &'a [Change], read: impl Iterator<Item = Result<Entry<'a>, EntryError>>) {
    let read: Vec<_> = read.collect();
    assert_eq!(read.len(), changes.len());
    for (change, entry) in changes.iter().zip(read) {
        let expected = match change {
            Change::Data(at, bytes) => Entry::Data { at: *at, bytes },
            Change::Slot(at, slot) => Entry::Slot { at: *at, slot },
            Change::Fresh(at, len) => Entry::Fresh { at: *at, len: *len },
            Change::Overflow(a, b, len, crc) => {
                Entry::Overflow { a: *a, b: *b, len: *len, crc: *crc }
            }
        };
        assert_eq!(entry, Ok(expected));
    }
}

/// A pool whose log holds this record, committed by lane 1.
fn committed(superblock: &Superblock, changes: &[Change]) -> FaultMedium {
    let kind = match superblock.log_placement {
        LogPlacement::Apart => MediumKind::Dax,
        LogPlacement::Adjacent => MediumKind::File,
    };
    let m = FaultMedium::new(superblock.size, kind, &Config::default());
    let log = Log::open(&m, superblock).expect("the geometry is good");
    let numbers = Numbers::new(log.lanes(), 5);
    let mut lane = log.acquire(&m, 1).expect("nobody holds it");
    let mut record = RecordBuilder::default();
    build(&mut record, changes);
    lane.reserve(&m, &numbers, record.len(), || false).expect("the log is empty");
    let number = numbers.draw(&m, lane.id());
    lane.commit_record(&m, &numbers, number, &mut record).expect("nothing fails");
    m
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_built_is_what_is_read(changes in prop::collection::vec(change(), 1..20)) {
        let mut record = RecordBuilder::default();
        build(&mut record, &changes);
        prop_assert_eq!(record.entries(), changes.len());
        prop_assert_eq!(record.len() % 64, 0);
        same(&changes, entries(record.body(), 1 << 48));
        // A second use leaves nothing of the first.
        build(&mut record, &changes[..1]);
        same(&changes[..1], record.parsed(1 << 48));
    }

    #[test]
    fn random_entries_are_read_in_bounds(
        body in prop::collection::vec(any::<u8>(), 0..400), size: u64,
    ) {
        for entry in entries(&body, size) {
            let range = match entry {
                Ok(Entry::Data { at, bytes }) => (at, bytes.len() as u64),
                Ok(Entry::Slot { at, .. }) => (at, 16),
                Ok(Entry::Fresh { at, len }) => (at, len),
                Ok(Entry::Overflow { a, b, len, .. }) => {
                    prop_assert!(b + len <= size);
                    (a, len)
                }
                Err(error) => {
                    prop_assert!(error.at <= body.len());
                    continue;
                }
            };
            prop_assert!(range.0.checked_add(range.1).unwrap() <= size);
        }
    }

    /// Entries that are almost right: one byte of a valid body changed.
    #[test]
    fn damaged_entries_are_read_in_bounds(
        changes in prop::collection::vec(change(), 1..8), at: prop::sample::Index, byte: u8,
    ) {
        let mut record = RecordBuilder::default();
        build(&mut record, &changes);
        let mut body = record.body().to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        let read = entries(&body, 1 << 41).count();
        prop_assert!(read <= body.len() / 8);
    }

    #[test]
    fn a_log_of_random_bytes_holds_nothing(
        seed: u64, lanes in 1_u32..4, adjacent: bool, copies in 1_u32..3, plausible: bool,
    ) {
        let placement = if adjacent { LogPlacement::Adjacent } else { LogPlacement::Apart };
        let superblock = superblock(placement, lanes, 8, copies);
        let m = FaultMedium::new(superblock.size, MediumKind::Shm, &Config::default());
        let mut state = seed;
        let mut bytes = vec![0; 2 * superblock.side_len as usize];
        for line in bytes.chunks_exact_mut(64) {
            for word in line.chunks_exact_mut(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.copy_from_slice(&(state ^ state >> 31).to_le_bytes());
            }
            if plausible {
                // A header that says it is a record, of any length and date.
                line[6] |= 1;
                line[12..16].fill(0);
                line[16..24].fill(0);
            }
        }
        m.put(STRAY, 0, &bytes).unwrap();
        let found = scan(&m, &superblock).unwrap();
        prop_assert_eq!(found, Scan::default());
    }

    #[test]
    fn one_changed_byte_kills_that_copy_and_no_other(
        changes in prop::collection::vec(change(), 1..6), at: prop::sample::Index, flip in 1_u8..,
        adjacent: bool, second: bool,
    ) {
        let placement = if adjacent { LogPlacement::Adjacent } else { LogPlacement::Apart };
        let superblock = superblock(placement, 4, 8, 2);
        let m = committed(&superblock, &changes);
        let before = scan(&m, &superblock).unwrap();
        prop_assert_eq!(before.records.len(), 1);
        let record = &before.records[0];
        prop_assert!(!record.copy_damaged && record.number == 5 && record.l <= 4);
        let distance = match placement {
            LogPlacement::Apart => superblock.side_len,
            LogPlacement::Adjacent => (record.bytes.len() as u64).next_multiple_of(4096),
        };
        let start = record.at + if second { distance } else { 0 };
        let at = start + at.index(record.bytes.len()) as u64;
        let mut byte = [0];
        m.read(at, &mut byte).unwrap();
        m.stray(at, &[byte[0] ^ flip]).unwrap();
        let after = scan(&m, &superblock).unwrap();
        prop_assert_eq!(after.records.len(), 1);
        prop_assert!(after.records[0].copy_damaged);
        prop_assert_eq!(after.max_number, 5);
        same(&changes, after.records[0].entries(1 << 48));
    }
}

#[test]
fn a_record_counts_only_in_its_pool_place_and_generation() {
    let home = superblock(LogPlacement::Apart, 4, 1, 2);
    let m = committed(&home, &[Change::Fresh(0, 8)]);
    assert_eq!(scan(&m, &home).unwrap().records.len(), 1);
    let later = Superblock { log_generation: home.log_generation + 1, ..home.clone() };
    assert_eq!(scan(&m, &later).unwrap(), Scan::default());
    let other = Superblock { uuid: [9; 16], ..home.clone() };
    assert_eq!(scan(&m, &other).unwrap(), Scan::default());
    // Moved within its ring, or into another lane's.
    let mut ring = vec![0; 4096];
    for (from, to) in [(4096, 0), (0, 64)] {
        let m = committed(&home, &[Change::Fresh(0, 8)]);
        for side in [0, home.side_len] {
            let start = side + home.log_start + home.ring_len;
            m.read(start, &mut ring).unwrap();
            m.put(STRAY, start, &[0; 4096]).unwrap();
            m.put(STRAY, start + from + to, &ring[..4096 - to as usize]).unwrap();
        }
        assert_eq!(scan(&m, &home).unwrap(), Scan::default());
    }
}

#[test]
fn a_record_gone_in_both_copies_is_missed_by_the_next_one_of_its_lane() {
    for placement in [LogPlacement::Apart, LogPlacement::Adjacent] {
        let home = superblock(placement, 4, 2, 2);
        let kind = match placement {
            LogPlacement::Apart => MediumKind::Dax,
            LogPlacement::Adjacent => MediumKind::File,
        };
        let m = FaultMedium::new(home.size, kind, &Config::default());
        let log = Log::open(&m, &home).expect("the geometry is good");
        let numbers = Numbers::new(log.lanes(), 5);
        let mut record = RecordBuilder::default();
        let mut drawn = Vec::new();
        // Two lanes by turns, nothing complete: all are to be replayed.
        for lane in [0, 1, 0, 1, 0] {
            let mut lane = log.acquire_exact(&m, lane).expect("nobody holds it");
            build(&mut record, &[Change::Fresh(0, 8)]);
            lane.reserve(&m, &numbers, record.len(), || false).expect("there is room");
            drawn.push(numbers.draw(&m, lane.id()));
            let number = drawn[drawn.len() - 1];
            lane.commit_record(&m, &numbers, number, &mut record).expect("nothing fails");
        }
        let whole = scan(&m, &home).unwrap();
        assert_eq!((whole.records.len(), whole.missing.len()), (5, 0));
        // The third of them: the second of lane 0. One copy is enough; without both, it is missed.
        let gone = whole.records[2].clone();
        let places = |m: &FaultMedium| {
            let mut places = Vec::new();
            for at in (0..2 * home.side_len).step_by(64) {
                let mut line = [0; 64];
                m.read(at, &mut line).unwrap();
                if line[4..24] == gone.bytes[4..24] {
                    places.push(at);
                }
            }
            places
        };
        let copies = places(&m);
        assert_eq!(copies.len(), 2);
        m.stray(copies[0], &[0; 8]).unwrap();
        assert_eq!(scan(&m, &home).unwrap().missing, []);
        m.stray(copies[1], &[0; 8]).unwrap();
        let after = scan(&m, &home).unwrap();
        assert_eq!(after.records.len(), 4);
        assert_eq!(after.missing.len(), 1);
        assert_eq!(after.missing[0].0, gone.number);
    }
}

#[test]
fn overflow_sums_are_bound_to_number_and_generation() {
    let home = superblock(LogPlacement::Apart, 1, 1, 2);
    let seed = Seed::new(&home);
    let whole = seed.overflow(7, b"one two");
    assert_ne!(seed.overflow(7, b"one twO"), whole);
    assert_ne!(seed.overflow(8, b"one two"), whole);
    let later = Superblock { log_generation: home.log_generation + 1, ..home };
    assert_ne!(Seed::new(&later).overflow(7, b"one two"), whole);
}

#[test]
fn what_a_record_says_wrongly_is_named() {
    let mut record = RecordBuilder::default();
    record.data(100, b"12345678");
    let body = record.body().to_vec();
    let error = |body: &[u8], size| entries(body, size).next().unwrap().unwrap_err().what;
    assert_eq!(error(&body, 107), "names a range outside the pool");
    assert_eq!(error(&body[..20], 1000), "is cut off");
    for (at, byte, what) in [
        (6, 77, "has a kind this build does not know"),
        (7, 1, "has a reserved byte that is not zero"),
        (12, 1, "has a reserved word that is not zero"),
        (11, 1, "names a range outside the pool"),
    ] {
        let mut body = body.clone();
        body[at] = byte;
        assert_eq!(error(&body, 1000), what);
    }
}
