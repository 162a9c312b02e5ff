//! Pages that come back as they once were: the device forgot what was written to them last. All
//! that lies on such a page verifies, and only parity knows better.

use crate::beyond::outcomes_of;
use crate::common::{TestPool, create_with, get, pattern, put, reopened};
use crate::no_spare::spoil_spares;
use holdfast_faultmem::Clear;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Journal, Outcome};
use holdfast_redundancy::{Verdict, verdict::Reason};
use holdfast_txn::Transaction;

pub(crate) const KINDS: [(MediumKind, Parity); 4] = [
    (MediumKind::Shm, Parity::P),
    (MediumKind::Shm, Parity::PQ),
    (MediumKind::File, Parity::P),
    (MediumKind::File, Parity::PQ),
];

pub(crate) fn pool(kind: MediumKind, parity: Parity) -> TestPool {
    create_with(kind, &CreateOptions { parity, ..CreateOptions::tiny(1 << 20) })
}

/// The page of P over the page around `at`.
pub(crate) fn parity_page(pool: &TestPool, at: u64) -> u64 {
    let regions = pool.regions();
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let p = zone.start + u64::from(zone.data_rows) * zone.row_len;
    (p + (at - zone.start) % zone.row_len) / PAGE * PAGE
}

pub(crate) fn page(pool: &TestPool, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    pool.medium().read(at / PAGE * PAGE, &mut bytes).unwrap();
    bytes
}

/// Does `work`, after which the page around `at` is as it was before.
pub(crate) fn forgetting<R>(pool: &TestPool, at: u64, work: impl FnOnce() -> R) -> R {
    let before = page(pool, at);
    let done = work();
    if pool.medium().kind() == MediumKind::File {
        pool.medium().sync(holdfast_pmem::Site::new("test.stale.sync")).unwrap();
    }
    assert_ne!(before, page(pool, at), "the page changed");
    pool.medium().stray(at / PAGE * PAGE, &before).unwrap();
    done
}

pub(crate) fn scrub(pool: &TestPool) -> Scrubbed {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
}

/// A scrub leaves nothing, now and later.
pub(crate) fn settled(pool: &TestPool) {
    let done = scrub(pool);
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}

pub(crate) fn write(pool: &TestPool, of: RawPtr, from: usize, bytes: &[u8], model: &mut [u8]) {
    pool.run(|tx| tx.write_bytes(of, from as u64, bytes)).unwrap();
    model[from..from + bytes.len()].copy_from_slice(bytes);
}

/// Ten small objects beside each other, and their bytes.
pub(crate) fn ten(pool: &TestPool) -> Vec<(RawPtr, Vec<u8>)> {
    let all = (0..10).map(|i| pattern(i, 100)).map(|bytes| (put(pool, &bytes), bytes)).collect();
    settled(pool);
    all
}

#[test]
fn a_page_with_objects_made_and_freed_since_is_brought_back() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let ten = ten(&pool);
        let made = forgetting(&pool, ten[3].0.offset(), || {
            pool.run(|tx| tx.free(ten[3].0)).unwrap();
            put(&pool, &pattern(20, 90))
        });
        settled(&pool);
        assert_eq!(get(&pool, made).unwrap(), pattern(20, 90), "{kind} {parity:?}");
        assert!(get(&pool, ten[3].0).is_err(), "{kind} {parity:?}: it was freed");
        assert_eq!(get(&pool, ten[4].0).unwrap(), ten[4].1);
    }
}

#[test]
fn parity_that_was_forgotten_takes_nothing_back() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let ten = ten(&pool);
        let made = forgetting(&pool, parity_page(&pool, ten[3].0.offset()), || {
            pool.run(|tx| tx.free(ten[3].0)).unwrap();
            put(&pool, &pattern(20, 90))
        });
        settled(&pool);
        assert_eq!(get(&pool, made).unwrap(), pattern(20, 90), "{kind} {parity:?}");
        assert!(get(&pool, ten[3].0).is_err(), "{kind} {parity:?}: it was freed");
    }
}

#[test]
fn a_page_with_objects_changed_since_is_brought_back() {
    for (kind, parity) in KINDS {
        for of_parity in [false, true] {
            let pool = pool(kind, parity);
            let mut ten = ten(&pool);
            let at = ten[3].0.offset();
            let at = if of_parity { parity_page(&pool, at) } else { at };
            forgetting(&pool, at, || {
                for turn in 0..5 {
                    let (of, model) = &mut ten[3];
                    write(&pool, *of, 40, &pattern(turn + 30, 9), model);
                }
                let (of, model) = &mut ten[5];
                write(&pool, *of, 0, &pattern(50, 100), model);
            });
            settled(&pool);
            for (of, bytes) in &ten {
                assert_eq!(get(&pool, *of).unwrap(), *bytes, "{kind} {parity:?} {of_parity}");
            }
        }
    }
}

#[test]
fn what_was_overwritten_since_takes_the_rest_of_its_page_not_along() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut ten = ten(&pool);
        forgetting(&pool, ten[3].0.offset(), || {
            for i in [3, 5] {
                let (of, model) = &mut ten[i];
                write(&pool, *of, 40, &pattern(30, 9), model);
            }
        });
        // All of one object is written before anybody looks. The other is brought back.
        let (of, model) = &mut ten[3];
        write(&pool, *of, 0, &pattern(60, 100), model);
        settled(&pool);
        for (of, bytes) in &ten {
            assert_eq!(get(&pool, *of).unwrap(), *bytes, "{kind} {parity:?}");
        }
    }
}

/// A long object on whose first page are its slot, its sums and some of its bytes.
const LONG: usize = 20_000;

/// A long object of whose first page the device forgot a change; nothing on it tells that from
/// parity that was forgotten.
fn in_doubt(kind: MediumKind) -> (TestPool, RawPtr, Vec<u8>, Vec<u8>) {
    let pool = pool(kind, Parity::P);
    let old = pattern(1, LONG);
    let object = put(&pool, &old);
    settled(&pool);
    let mut new = old.clone();
    forgetting(&pool, object.offset(), || {
        write(&pool, object, 1100, &pattern(2, 300), &mut new);
    });
    (pool, object, old, new)
}

#[test]
fn what_nothing_decides_is_named_and_neither_side_is_changed() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let (pool, object, old, _) = in_doubt(kind);
        let all = || {
            let mut all = vec![0; pool.medium().len() as usize];
            pool.medium().read(0, &mut all).unwrap();
            let regions = pool.regions();
            all.split_off(
                regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap().start as usize,
            )
        };
        let before = all();
        for pass in 0..2 {
            let found = pool.check(|_, _| {}).unwrap();
            assert_eq!(found.found, 1, "{kind}, pass {pass}: {:?}", found.findings);
            let finding = found.findings[0];
            assert_eq!(finding.verdict, Verdict::Undecided(Reason::Older), "{kind}");
            assert_eq!(finding.object, object, "{kind}");
            let done = scrub(&pool);
            assert_eq!((done.repaired, done.lost, done.undecided), (0, 0, 1), "{kind}");
        }
        assert!(before == all(), "{kind}: neither rows nor parity");
        let journal = Journal::open(pool.medium(), &pool.superblock());
        let events = journal.read_all(pool.medium());
        let said = events.iter().filter(|e| e.outcome == Outcome::Undecided);
        assert_eq!(said.clone().count(), 2, "{kind}: once in each pass, {events:?}");
        assert!(said.clone().all(|e| e.object == object.word() && e.at == object.offset()));
        assert_eq!(get(&pool, object).unwrap(), old, "one of its committed states");
    }
}

#[test]
fn what_is_in_doubt_stays_so_over_an_open() {
    let (first, object, old, _) = in_doubt(MediumKind::Shm);
    let pool = reopened(first);
    assert_eq!(scrub(&pool).undecided, 1);
    assert_eq!(get(&pool, object).unwrap(), old);
}

#[test]
fn what_is_in_doubt_is_settled_when_it_is_overwritten_or_freed() {
    for overwrite in [true, false] {
        let (pool, object, old, _) = in_doubt(MediumKind::Shm);
        assert_eq!(scrub(&pool).undecided, 1);
        let mut last = old.clone();
        if overwrite {
            write(&pool, object, 0, &pattern(9, LONG), &mut last);
        } else {
            pool.run(|tx| tx.free(object)).unwrap();
        }
        settled(&pool);
        if overwrite {
            assert_eq!(get(&pool, object).unwrap(), last);
        }
    }
}

/// P and Q tell different things of a page that cannot be read, and nothing on it tells which of
/// them was forgotten: that is said wherever the page comes back, in its place, in another frame or
/// in memory.
#[test]
fn a_page_of_which_p_and_q_disagree_is_in_doubt_wherever_it_comes_back() {
    for (stays, spares) in [(Clear::Able, true), (Clear::Unable, true), (Clear::Unable, false)] {
        let pool = pool(MediumKind::Shm, Parity::PQ);
        let old = pattern(1, LONG);
        let object = put(&pool, &old);
        settled(&pool);
        let mut new = old.clone();
        forgetting(&pool, parity_page(&pool, object.offset()), || {
            write(&pool, object, 1100, &pattern(2, 300), &mut new);
        });
        if !spares {
            spoil_spares(pool.medium(), &pool.regions());
        }
        let page = object.offset() / PAGE * PAGE;
        pool.medium().poison(page, PAGE, stays).unwrap();
        scrub(&pool);
        let told = outcomes_of(&pool, page);
        assert_eq!(told, [Outcome::Undecided], "{stays:?}, spare frames: {spares}");
    }
}

/// A long object, and one of its bytes over the entries of the first chunks.
fn over_the_entries(pool: &TestPool) -> (RawPtr, u64) {
    let regions = pool.regions();
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let over = |of: RawPtr| {
        let mut rows = (1..u64::from(zone.data_rows)).map(|row| zone.start + row * zone.row_len);
        let bytes = of.offset() + 2_000..of.offset() + LONG as u64;
        rows.find_map(|row| bytes.contains(&(row + 100)).then_some((of, row + 100)))
    };
    let mut made = (0..24).map(|seed| put(pool, &pattern(seed, LONG)));
    made.find_map(over).expect("one lies over them")
}

#[test]
fn what_an_older_entry_calls_free_is_not_taken_for_free_bytes() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = pool(kind, Parity::PQ);
        let (gone, at) = over_the_entries(&pool);
        pool.run(|tx| tx.free(gone)).unwrap();
        settled(&pool);
        let directory = pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap().start;
        let made = forgetting(&pool, directory, || put(&pool, &pattern(30, LONG)));
        assert_eq!(made.offset(), gone.offset(), "{kind}: the same chunks");
        // Whoever opens the pool knows the entries as they are.
        let pool = reopened(pool);
        pool.medium().flip_bit(at, 3).unwrap();
        settled(&pool);
        assert!(get(&pool, made).unwrap() == pattern(30, LONG), "{kind}: what it never was");
    }
}
