//! How far the order of two states is known: numbers come round, places are used by many objects,
//! chunks live several lives. What is not certain is in doubt, unless P and Q agree on a row.

use crate::common::{TestPool, clock, get, pattern, put, quick, reopened};
use crate::fallen::over;
use crate::older::{LONG, losing_entries, put_at, table};
use crate::returning::cut;
use crate::stale::{KINDS, forgetting, parity_page, pool, scrub, settled, write};
use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, RegionKind, TypeNumber};
use holdfast_object::{
    CreateOptions, Error, OpenOptions, Parity, Pool, ScrubControl, ScrubOptions, Scrubbed,
};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::progress::ScrubState;
use holdfast_txn::{Transaction, TxError};

const CASES: [(Parity, bool); 3] = [(Parity::P, false), (Parity::P, true), (Parity::PQ, false)];

/// All rows and parity.
fn all(pool: &TestPool) -> Vec<u8> {
    let mut all = vec![0; pool.medium().len() as usize];
    pool.medium().read(0, &mut all).unwrap();
    let regions = pool.regions();
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    all.split_off(zone.start as usize)
}

/// Frees what is in a place and puts something else there, again and again.
fn used(pool: &TestPool, mut of: RawPtr, times: u64, len: usize) -> (RawPtr, Vec<u8>) {
    let (place, mut bytes) = (of.offset(), Vec::new());
    for turn in 0..times {
        bytes = pattern(turn, len);
        pool.run(|tx| tx.free(of)).unwrap();
        of = put(pool, &bytes);
        assert_eq!(of.offset(), place);
    }
    (of, bytes)
}

/// Either both sides are as they were, and that is said; or the last state is there.
fn last_or_in_doubt(pool: &TestPool, last: RawPtr, bytes: &[u8], may_doubt: bool, what: &str) {
    let before = all(pool);
    let done = scrub(pool);
    let found = get(pool, last);
    if done.undecided == 0 {
        assert_eq!(found.unwrap(), bytes, "{what}");
        return settled(pool);
    }
    assert!(may_doubt, "{what}: {:?}", done.report.findings);
    assert_eq!((done.lost, done.repaired), (0, 0), "{what}");
    assert!(before == all(pool), "{what}: neither rows nor parity");
    for _ in 0..2 {
        let again = scrub(pool);
        assert_eq!((again.lost, again.repaired, again.undecided), (0, 0, done.undecided), "{what}");
    }
}

#[test]
fn a_place_used_very_often_since() {
    for uses in [5, 600, 40_000] {
        // The many uses take long; what they are about is one case.
        let cases = if uses > 600 { &CASES[..1] } else { &CASES[..] };
        for (parity, of_parity) in cases.iter().copied() {
            let what = format!("{parity:?} {of_parity} after {uses} uses");
            let pool = pool(MediumKind::Shm, parity);
            let first = put(&pool, &pattern(0, 60));
            let _keeps_the_run = put(&pool, &pattern(1, 60));
            settled(&pool);
            let at = first.offset();
            let at = if of_parity { parity_page(&pool, at) } else { at };
            let (last, bytes) = forgetting(&pool, at, || used(&pool, first, uses, 60));
            let may_doubt = parity == Parity::P && uses > 5;
            last_or_in_doubt(&pool, last, &bytes, may_doubt, &what);
            if of_parity {
                assert_eq!(get(&pool, last).unwrap(), bytes, "{what}");
            }
            assert!(parity == Parity::P || get(&pool, first).is_err(), "{what}");
        }
    }
}

#[test]
fn a_pointer_to_what_was_lost_is_in_doubt_until_the_place_is_written() {
    let pool = pool(MediumKind::Shm, Parity::P);
    let first = put(&pool, &pattern(0, 60));
    let _keeps_the_run = put(&pool, &pattern(1, 60));
    settled(&pool);
    let (last, _) = forgetting(&pool, first.offset(), || used(&pool, first, 600, 60));
    // Of any other object that the place has never had, nothing is certain, either.
    for of in [last, RawPtr::new(first.offset(), first.generation() + 900)] {
        let told = Err(TxError::InDoubt { pointer: of });
        assert_eq!(get(&pool, of).map_err(tx_of), told, "one that nobody has looked at");
        assert_eq!(get(&pool, of).map_err(tx_of), told, "one that cannot be settled");
        assert_eq!(scrub(&pool).undecided, 1);
    }
    assert_eq!(get(&pool, first).unwrap(), pattern(0, 60), "one of its committed states");
    pool.run(|tx| tx.free(first)).unwrap();
    settled(&pool);
    assert_eq!(get(&pool, last).map_err(tx_of), Err(TxError::Dangling { pointer: last }));
}

/// What came back older is put right once nobody holds it any more, and until then it is damaged,
/// not in doubt. Views hold it: of others with the same version word.
#[test]
fn what_is_held_is_not_left_in_doubt() {
    let options = CreateOptions::tiny(1 << 20);
    let m = FaultMedium::new(options.size, MediumKind::Shm, &Config::default());
    let few = OpenOptions { version_bits: 4, ..OpenOptions::default() };
    let pool = Pool::create(m, &options, few, clock()).unwrap();
    let first = put(&pool, &pattern(0, 60));
    let others: Vec<_> = (0..64).map(|seed| put(&pool, &pattern(seed, 60))).collect();
    settled(&pool);
    let (last, bytes) = forgetting(&pool, first.offset(), || used(&pool, first, 1, 60));
    let kept = |of: &&RawPtr| of.offset() / PAGE != last.offset() / PAGE;
    let views: Vec<_> = others.iter().filter(kept).map(|of| pool.view_raw(*of).unwrap()).collect();
    assert!(views.len() >= 16);
    let told = get(&pool, last).map_err(tx_of);
    assert!(matches!(told, Err(TxError::Damaged { .. })), "{told:?}");
    drop(views);
    assert_eq!(get(&pool, last).unwrap(), bytes);
    settled(&pool);
}

fn tx_of(error: Error) -> TxError {
    let Error::Tx(error) = error else { panic!("{error}") };
    error
}

#[test]
fn an_object_written_very_often_since() {
    for writes in [20, 5_000, 30_000] {
        let cases = if writes > 5_000 { &CASES[..2] } else { &CASES[..] };
        for (parity, of_parity) in cases.iter().copied() {
            let what = format!("{parity:?} {of_parity} after {writes} writes");
            let pool = pool(MediumKind::Shm, parity);
            let mut model = pattern(0, 60);
            let of = put(&pool, &model);
            settled(&pool);
            let at = if of_parity { parity_page(&pool, of.offset()) } else { of.offset() };
            forgetting(&pool, at, || {
                for turn in 0..writes {
                    write(&pool, of, 8, &u64::to_le_bytes(turn + 1), &mut model);
                }
            });
            let may_doubt = parity == Parity::P && writes > 20;
            last_or_in_doubt(&pool, of, &model, may_doubt, &what);
            if of_parity {
                assert_eq!(get(&pool, of).unwrap(), model, "{what}");
            }
        }
    }
}

#[test]
fn a_run_whose_entry_was_lost_is_not_given_away() {
    for parity in [Parity::P, Parity::PQ] {
        let first = pool(MediumKind::Shm, parity);
        let made = losing_entries(&first, || put(&first, &pattern(0, 300)));
        let kept: Vec<_> = (1..20).map(|i| pattern(i, 300)).map(|b| (put(&first, &b), b)).collect();
        first.run(|tx| tx.free(made)).unwrap();
        for turn in 0..600 {
            let of = put_at(&first, made, &pattern(turn, 300));
            first.run(|tx| tx.free(of)).unwrap();
        }
        let pool = reopened(first);
        scrub(&pool);
        // Whatever else is put anywhere.
        let mut more = 0;
        while pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &pattern(more, 3000))).is_ok() {
            more += 1;
        }
        assert!(more > 20, "{more}");
        for (of, bytes) in &kept {
            assert_eq!(get(&pool, *of).unwrap(), *bytes, "{parity:?}");
        }
    }
}

/// Puts objects wherever there is room, until there is none; whether any came to lie in a chunk.
fn fill(pool: &TestPool, (chunk, len): (u64, u64)) -> (Vec<(RawPtr, Vec<u8>)>, bool) {
    let mut all = Vec::new();
    for long in [7000, 900, 60] {
        for seed in 0.. {
            let bytes = pattern(seed, long);
            let Ok(of) = pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes)) else { break };
            all.push((of, bytes));
        }
    }
    let there = all.iter().any(|(of, _)| (chunk..chunk + len).contains(&of.offset()));
    (all, there)
}

/// A whole scrub, paused once it is through with all that there is, and taken up again.
fn scrub_with_a_pause(pool: &TestPool) -> Scrubbed {
    let (control, options) = (ScrubControl::default(), ScrubOptions::default());
    let paused = pool.scrub(options, &control, |now, all| {
        if now.next >= all {
            control.pause();
        }
    });
    assert_eq!(paused.unwrap().state, ScrubState::Paused);
    let options = ScrubOptions { resume: true, ..options };
    pool.scrub(options, &ScrubControl::default(), |_, _| {}).unwrap()
}

/// A pool just opened, with chunks whose entries are in doubt, and what was put there last.
struct Doubted {
    pool: TestPool,
    directory: ZoneTable,
    chunk: u32,
    chunks: u64,
    last: RawPtr,
    /// Another object, of 60 bytes.
    kept: RawPtr,
}

/// What was there is an older state than anything whose order could be told.
fn doubted() -> Doubted {
    let first = pool(MediumKind::Shm, Parity::P);
    let kept = put(&first, &pattern(9, 60));
    let long = || put(&first, &pattern(1, LONG));
    let gone = long();
    first.run(|tx| tx.free(gone)).unwrap();
    let directory = table(&first);
    let chunk = directory.chunk_of(gone.offset()).unwrap();
    let chunks = (LONG as u64).div_ceil(directory.chunk_len());
    settled(&first);
    let last = forgetting(&first, directory.entry_at(chunk), || {
        for _ in 0..100 {
            let of = long();
            assert_eq!(directory.chunk_of(of.offset()), Some(chunk));
            first.run(|tx| tx.free(of)).unwrap();
        }
        long()
    });
    let pool = reopened(first);
    assert_eq!(scrub(&pool).undecided, chunks);
    Doubted { pool, directory, chunk, chunks, last, kept }
}

#[test]
fn a_chunk_whose_entry_is_in_doubt_is_given_to_nobody_until_it_is_not() {
    let Doubted { pool, directory, chunk, chunks, last, kept } = doubted();
    let (place, len) = (directory.chunk_at(chunk), chunks * directory.chunk_len());
    assert!(get(&pool, last).is_err());
    let bytes = |pool: &TestPool| {
        let mut bytes = vec![0; len as usize];
        pool.medium().read(place, &mut bytes).unwrap();
        bytes
    };
    let before = bytes(&pool);
    for _ in 0..2 {
        let (all, there) = fill(&pool, (place, len));
        assert!(!there && before == bytes(&pool));
        assert_eq!(scrub_with_a_pause(&pool).undecided, chunks);
        all.iter().for_each(|(of, _)| pool.run(|tx| tx.free(*of)).unwrap());
    }
    // Parity that is made anew from the rows knows of no other state.
    let page = parity_page(&pool, directory.entry_at(chunk));
    pool.medium().poison(page, PAGE, Clear::Able).unwrap();
    assert!(pool.heal_load(page, PAGE));
    settled(&pool);
    let (all, there) = fill(&pool, (place, len));
    assert!(there);
    settled(&pool);
    for (of, bytes) in &all {
        assert_eq!(get(&pool, *of).unwrap(), *bytes);
    }
    assert_eq!(get(&pool, kept).unwrap(), pattern(9, 60));
}

/// The page with the entries of chunks went back that were used very often since, which is found
/// while a record over the same columns is replayed. With P alone they go with what is told beside
/// them. What comes back is known to whoever opened the pool.
#[test]
fn entries_that_come_back_in_a_replay_are_known_however_often_they_changed() {
    for (kind, parity) in KINDS {
        let first = pool(kind, parity);
        let long = |seed| put(&first, &pattern(seed, LONG));
        let gone = long(1);
        let directory = table(&first);
        let chunk = directory.chunk_of(gone.offset()).unwrap();
        let (beside, at) = over(&first, directory.entry_at(chunk));
        first.run(|tx| tx.free(gone)).unwrap();
        settled(&first);
        let [last, near] = forgetting(&first, directory.entry_at(chunk), || {
            for _ in 0..100 {
                let of = long(2);
                first.run(|tx| tx.free(of)).unwrap();
            }
            let made = [3, 4].map(long);
            // Their records are not needed any more.
            settled(&first);
            made
        });
        assert_eq!(directory.chunk_of(last.offset()), Some(chunk));
        let image = cut(&first, || {
            let from = at - beside.offset();
            first.run(|tx| tx.write_bytes(beside, from, &pattern(8, 60))).unwrap();
        });
        drop(first);
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
        let what = format!("{kind} {parity:?}");
        assert!(opened.recovered.replayed > 0, "{what}");
        let are_there = |pool: &TestPool| {
            for (of, seed) in [(last, 3), (near, 4)] {
                let found = get(pool, of);
                assert!(found.is_ok_and(|found| found == pattern(seed, LONG)), "{what}: {seed}");
            }
        };
        are_there(&pool);
        let chunks = (LONG as u64).div_ceil(directory.chunk_len());
        let place = (directory.chunk_at(chunk), chunks * directory.chunk_len());
        fill(&pool, place);
        are_there(&pool);
        settled(&pool);
    }
}

/// The page of entries in doubt cannot be read, and comes back from parity: that decides it, also
/// for whoever has kept the chunks from being used.
#[test]
fn entries_in_doubt_are_what_parity_says_once_their_page_is_rebuilt() {
    let Doubted { pool, directory, chunk, chunks, last, .. } = doubted();
    let page = directory.entry_at(chunk) / PAGE * PAGE;
    pool.medium().poison(page, PAGE, Clear::Able).unwrap();
    assert!(pool.heal_load(page, PAGE));
    // A whole pass finds no doubt any more, and gives back what was withheld.
    settled(&pool);
    let is_there = || get(&pool, last).is_ok_and(|found| found == pattern(1, LONG));
    assert!(is_there(), "{:?}", get(&pool, last).err());
    let place = (directory.chunk_at(chunk), chunks * directory.chunk_len());
    let (all, there) = fill(&pool, place);
    assert!(!there && is_there(), "its chunks were given away");
    for (of, bytes) in &all {
        assert_eq!(get(&pool, *of).unwrap(), *bytes);
    }
    settled(&pool);
}
