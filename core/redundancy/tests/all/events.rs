//! The events journal: the newest events survive crashes, damage and the end of the ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::common::{PAGE, SIDE, budget, medium, superblock};
use holdfast_faultmem::{Clear, Config, FailMode, FaultMedium};
use holdfast_layout::format::EVENTS_START;
use holdfast_layout::{Certify, Superblock};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::events::{Cause, Finder, Outcome};
use holdfast_redundancy::format::{EVENT_LEN, FIELDS_EVENT};
use holdfast_redundancy::{Error, Event, Journal, Side, Wrong};
use proptest::prelude::*;

const KINDS: [MediumKind; 3] = [MediumKind::Dax, MediumKind::Shm, MediumKind::File];
const CAPACITY: u64 = 2 * PAGE / EVENT_LEN as u64;

fn event(n: u64) -> Event {
    Event {
        sequence: 0,
        time_ns: 1000 + n,
        cause: Cause::Sum,
        finder: Finder::Scrub,
        at: n * 64,
        len: 64,
        wrong: Some(Wrong::Data),
        before_sum: n as u32,
        after_sum: !n as u32,
        outcome: Outcome::Repaired,
        duration_ns: 7,
        object: n << 48 | n,
        verified_ns: n << 3,
    }
}

fn journal(m: &FaultMedium) -> Journal {
    Journal::open(m, &superblock(2))
}

fn fill(m: &FaultMedium, journal: &Journal, count: u64) {
    for n in 1..=count {
        assert_eq!(journal.append(m, &event(n)).unwrap().sequence, n);
    }
}

fn sequences(m: &FaultMedium) -> Vec<u64> {
    journal(m).read_all(m).iter().map(|e| e.sequence).collect()
}

#[test]
fn the_newest_events_are_kept_in_order() {
    for kind in KINDS {
        let m = medium(kind);
        let first = journal(&m);
        assert_eq!((first.capacity(), sequences(&m)), (CAPACITY, vec![]));
        fill(&m, &first, 3 * CAPACITY + 5);
        let found = journal(&m).read_all(&m);
        assert_eq!(found.len() as u64, CAPACITY);
        for (n, found) in (2 * CAPACITY + 6..).zip(&found) {
            assert_eq!(*found, Event { sequence: n, ..event(n) });
        }
        assert_eq!(journal(&m).append(&m, &event(0)).unwrap().sequence, 3 * CAPACITY + 6);
        let tail = first.read_from(&m, 3 * CAPACITY + 5);
        assert_eq!(
            tail.iter().map(|e| e.sequence).collect::<Vec<_>>(),
            [3 * CAPACITY + 5, 3 * CAPACITY + 6]
        );
    }
}

/// Events acknowledged at a crash are there, but for the one being overwritten; counts images
/// in which that is not so, with a place switched off. `lose` damages an image before it is read.
fn wrong(kind: MediumKind, off: &str, lose: Option<Side>) -> u64 {
    let (acked, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let m = medium(kind);
    m.elide_name(off);
    let (a, w) = (acked.clone(), wrong.clone());
    m.on_barrier(Box::new(move |_, _, point| {
        let last = a.load(SeqCst);
        if last < CAPACITY - 1 {
            return;
        }
        for image in point.images(&budget()) {
            let m = FaultMedium::from_crash(image, kind, &Config::default());
            if let Some(side) = lose {
                let start = if side == Side::A { 0 } else { SIDE };
                m.poison(start + EVENTS_START, 2 * PAGE, Clear::Able).unwrap();
            }
            let found = sequences(&m);
            // While event n is written, its slot holds event n - CAPACITY or n, never neither.
            let mut all: Vec<u64> = (last + 2 - CAPACITY..=last).collect();
            let new = found.contains(&(last + 1));
            if new {
                all.push(last + 1);
            } else if last >= CAPACITY {
                all.insert(0, last + 1 - CAPACITY);
            }
            w.fetch_add(u64::from(found != all), SeqCst);
        }
    }));
    let journal = journal(&m);
    for n in 1..=CAPACITY + 4 {
        journal.append(&m, &event(n)).unwrap();
        acked.store(n, SeqCst);
    }
    if let Some(side) = lose {
        // Acknowledged means: in both sides.
        let image = m.crash_point().persisted();
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let start = if side == Side::A { 0 } else { SIDE };
        m.poison(start + EVENTS_START, 2 * PAGE, Clear::Able).unwrap();
        return u64::from(sequences(&m) != (5..=CAPACITY + 4).collect::<Vec<_>>());
    }
    wrong.load(SeqCst)
}

#[test]
fn a_crash_loses_no_event_that_was_written() {
    for kind in KINDS {
        assert_eq!(wrong(kind, "nothing", None), 0, "{kind}");
        assert_eq!(wrong(kind, "nothing", Some(Side::A)), 0, "{kind}");
        assert_eq!(wrong(kind, "nothing", Some(Side::B)), 0, "{kind}");
    }
    let name = |what: &str| format!("redundancy.events.{what}");
    assert!(wrong(MediumKind::Dax, &name("drain-b"), None) > 0);
    assert!(wrong(MediumKind::Dax, &name("b"), Some(Side::A)) > 0);
    assert!(wrong(MediumKind::Dax, &name("a"), Some(Side::B)) > 0);
    assert!(wrong(MediumKind::Dax, &name("drain-a"), Some(Side::B)) > 0);
    assert!(wrong(MediumKind::File, &name("b"), Some(Side::A)) > 0);
    assert!(wrong(MediumKind::File, &name("a"), Some(Side::B)) > 0);
}

#[test]
fn damage_to_one_side_loses_nothing_and_is_healed() {
    let m = medium(MediumKind::Dax);
    let journal = journal(&m);
    fill(&m, &journal, CAPACITY + 9);
    let all = journal.read_all(&m);
    m.poison(EVENTS_START, 1, Clear::Able).unwrap();
    m.stray(SIDE + EVENTS_START + PAGE + 1000, &[0x5a; 300]).unwrap();
    assert_eq!(journal.read_all(&m), all);
    let done = journal.heal(&m);
    let places: Vec<_> = done.iter().map(|d| (d.side, d.at, d.error)).collect();
    assert_eq!(
        places,
        [(Side::A, EVENTS_START, None), (Side::B, SIDE + EVENTS_START + PAGE, None)]
    );
    assert_eq!((journal.read_all(&m), journal.heal(&m).len()), (all.clone(), 0));
    m.poison(SIDE + EVENTS_START, 1, Clear::Able).unwrap();
    m.poison(EVENTS_START + PAGE, 1, Clear::Able).unwrap();
    assert_eq!(journal.read_all(&m), all, "each page is whole in the side that was healed");
}

#[test]
fn an_event_that_a_crash_left_in_one_copy_is_no_damage() {
    // The first of all, one that replaces an older one, and the first that does.
    for before in [0, CAPACITY + 9, CAPACITY - 1] {
        let m = medium(MediumKind::Dax);
        let journal = journal(&m);
        fill(&m, &journal, before);
        let (older, place) = (m.crash_point().persisted().into_bytes(), (before + 1) % CAPACITY);
        journal.append(&m, &event(before + 1)).unwrap();
        let at = EVENTS_START + place * EVENT_LEN as u64;
        let stale = older[at as usize..at as usize + EVENT_LEN].to_vec();
        // Between the two stores of the append; the page of the other side; another entry as well.
        for (side, start) in [(Side::A, 0), (Side::B, SIDE)] {
            m.stray(start + at, &stale).unwrap();
            let done = journal.heal(&m);
            let seen: Vec<_> = done.iter().map(|d| (d.side, d.cut_short)).collect();
            assert_eq!(seen, [(side, true)], "{before}");
        }
        m.stray(at, &stale).unwrap();
        m.flip_bit(EVENTS_START + (place + 1) % 32 * EVENT_LEN as u64, 0).unwrap();
        assert!(journal.heal(&m).iter().all(|d| !d.cut_short), "{before}");
        m.flip_bit(at, 0).unwrap();
        let torn: Vec<_> = journal.heal(&m).iter().map(|d| d.cut_short).collect();
        assert_eq!(torn, [false], "{before}");
    }
}

#[test]
fn what_is_healed_survives_a_crash() {
    for (off, found) in [
        ("nothing", CAPACITY),
        ("redundancy.events.heal", CAPACITY - 32),
        ("redundancy.events.heal-page", CAPACITY - 32),
    ] {
        let m = medium(MediumKind::Dax);
        let journal = journal(&m);
        fill(&m, &journal, CAPACITY);
        m.elide_name(off);
        // The first page is healed by the append to it, the second by a scrub.
        m.poison(EVENTS_START, 2 * PAGE, Clear::Able).unwrap();
        journal.append(&m, &event(1)).unwrap();
        assert_eq!(journal.heal(&m).len(), 1);
        let image = m.crash_point().persisted();
        let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
        m.poison(SIDE + EVENTS_START, 2 * PAGE, Clear::Able).unwrap();
        assert_eq!(sequences(&m).len() as u64, found, "{off}");
    }
}

#[test]
fn an_append_to_a_bad_page_heals_it_or_goes_to_the_other_side() {
    for kind in KINDS {
        let m = medium(kind);
        let journal = journal(&m);
        fill(&m, &journal, CAPACITY);
        m.poison(EVENTS_START, 2 * PAGE, Clear::Able).unwrap();
        assert_eq!(journal.append(&m, &event(1)).unwrap().failed, None, "{kind}");
        m.poison(SIDE + EVENTS_START, 2 * PAGE, Clear::Unable).unwrap();
        let appended = journal.append(&m, &event(2)).unwrap();
        assert_eq!(appended.failed.map(|f| f.0), Some(Side::B));
        assert_eq!(sequences(&m).last(), Some(&appended.sequence));
        m.poison(EVENTS_START, 2 * PAGE, Clear::Unable).unwrap();
        let stream = journal.subscribe();
        assert!(matches!(journal.append(&m, &event(3)), Err(Error::Media(_))));
        assert_eq!(stream.try_recv().unwrap().at, event(3).at, "streamed although not written");
        assert_eq!(sequences(&m), Vec::<u64>::new());
    }
}

#[test]
fn a_failed_write_of_the_file_is_told() {
    let m = medium(MediumKind::File);
    let journal = journal(&m);
    m.fail_nth(m.calls() + 2, FailMode::Once);
    assert!(matches!(journal.append(&m, &event(1)), Err(Error::Sync(_))));
}

#[test]
fn subscribers_get_what_is_appended_from_then_on() {
    let m = medium(MediumKind::Dax);
    let journal = journal(&m);
    fill(&m, &journal, 2);
    let (stream, dropped) = (journal.subscribe(), journal.subscribe());
    drop(dropped);
    for n in 3..6 {
        journal.append(&m, &event(n)).unwrap();
    }
    let got: Vec<u64> = stream.try_iter().map(|e| e.sequence).collect();
    assert_eq!(got, [3, 4, 5]);
    // One that does not listen holds nobody up.
    for n in 0..5000 {
        journal.append(&m, &event(n)).unwrap();
    }
    assert!(stream.try_iter().count() < 5000);
}

#[test]
fn appends_of_many_threads_are_numbered_once_each() {
    let m = medium(MediumKind::Dax);
    let journal = journal(&m);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..15 {
                    journal.append(&m, &event(n)).unwrap();
                }
            });
        }
    });
    assert_eq!(sequences(&m), (1..=45).collect::<Vec<_>>());
}

#[test]
fn one_copy_is_enough_where_no_more_are_kept() {
    let m = medium(MediumKind::Dax);
    let journal = Journal::open(&m, &Superblock { copies: 1, ..superblock(2) });
    fill(&m, &journal, 3);
    assert_eq!(crate::common::bytes(&m, SIDE + EVENTS_START, PAGE), vec![0; PAGE as usize]);
    m.poison(EVENTS_START, 2 * PAGE, Clear::Unable).unwrap();
    assert!(matches!(journal.append(&m, &event(1)), Err(Error::Media(_))));
}

#[test]
fn a_journal_without_room_is_an_error() {
    let m = medium(MediumKind::Dax);
    let journal = Journal::open(&m, &Superblock { events_len: 0, ..superblock(2) });
    assert!(matches!(journal.append(&m, &event(1)), Err(Error::Table { .. })));
}

#[test]
fn fields_are_where_the_format_says() {
    let entry = Event { sequence: 3, ..event(2) }.encode(9, 128);
    assert_eq!(EVENT_LEN as u64, FIELDS_EVENT.iter().map(|f| f.len).sum::<u64>());
    let field = |name| {
        let field = FIELDS_EVENT.iter().find(|f| f.name == name).unwrap().of(&entry).unwrap();
        field.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let expected = [
        ("cause", 3),
        ("finder", 4),
        ("wrong", 1),
        ("outcome", 2),
        ("sequence", 3),
        ("time", 1002),
        ("at", 128),
        ("len", 64),
        ("object", 2 << 48 | 2),
        ("duration", 7),
        ("before_sum", 2),
        ("after_sum", u64::from(!2u32)),
    ];
    for (name, value) in expected {
        assert_eq!(field(name), value, "{name}");
    }
}

#[test]
fn every_code_is_read_back() {
    let wrong = [
        Wrong::Data,
        Wrong::Slot,
        Wrong::Sum,
        Wrong::Directory,
        Wrong::ParityP,
        Wrong::ParityQ,
        Wrong::Mirror { side: Side::A },
        Wrong::Mirror { side: Side::B },
        Wrong::Log,
        Wrong::FreeOrParity,
    ];
    for wrong in wrong.into_iter().map(Some).chain([None]) {
        let event = Event { wrong, ..event(1) };
        assert_eq!(Event::decode(1, 2, &event.encode(1, 2), Certify::when(true)), Some(event));
    }
    for code in 0..=255 {
        assert_eq!(Cause::from_code(code).code(), code);
        assert_eq!(Finder::from_code(code).code(), code);
        assert_eq!(Outcome::from_code(code).code(), code);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_entry_is_valid_only_whole_and_in_its_place(
        n in any::<u32>(), seed in any::<u32>(), place in any::<u64>(),
        at in 0..EVENT_LEN, flip in 1..=255u8,
    ) {
        let event = Event { sequence: u64::from(n), ..event(u64::from(n)) };
        let mut entry = event.encode(seed, place);
        let read = |seed, place, entry: &[u8]| {
            Event::decode(seed, place, entry, Certify::when(true))
        };
        prop_assert_eq!(read(seed, place, &entry), Some(event));
        prop_assert_eq!(read(seed, place.wrapping_add(128), &entry), None);
        prop_assert_eq!(read(!seed, place, &entry), None);
        entry[at] ^= flip;
        prop_assert_eq!(read(seed, place, &entry), None);
        prop_assert_eq!(read(seed, place, &entry[..EVENT_LEN - 1]), None);
    }

    #[test]
    fn any_journal_is_read_without_harm(seed in any::<u64>(), garbage in 0..2 * PAGE) {
        let m = medium(MediumKind::Dax);
        let first = journal(&m);
        fill(&m, &first, CAPACITY + 3);
        let mut numbers = crate::common::Numbers(seed);
        for side in [0, SIDE] {
            m.stray(side + EVENTS_START, &numbers.bytes(garbage as usize)).unwrap();
        }
        let found = journal(&m);
        let all = found.read_all(&m);
        prop_assert_eq!(all.len() as u64, CAPACITY - garbage.div_ceil(EVENT_LEN as u64));
        prop_assert!(all.windows(2).all(|w| w[0].sequence < w[1].sequence));
        prop_assert!(all.iter().all(|e| e.at == event(e.sequence).at));
        found.append(&m, &event(1)).unwrap();
        prop_assert!(found.heal(&m).iter().all(|d| d.error.is_none()));
    }
}
