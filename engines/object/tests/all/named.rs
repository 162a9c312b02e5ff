//! What turns bad under a write of the engine's own, and is cured by that write, is named in the
//! journal as well; and what turns bad under a commit loses nothing to the way commits end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, create_with, get, pattern, put, quick};
use holdfast_codes::crc32c;
use holdfast_faultmem::{Clear, Config, CrashPoint, FaultMedium};
use holdfast_layout::format::{EVENTS_START, REGIONS_PAGE};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Event, Finder, Outcome};
use holdfast_redundancy::{Journal, Zone};
use holdfast_txn::Transaction;

const KINDS: [MediumKind; 2] = [MediumKind::Shm, MediumKind::File];

fn tiny(kind: MediumKind, parity: Parity) -> TestPool {
    create_with(kind, &CreateOptions { parity, ..CreateOptions::tiny(1 << 20) })
}

fn events(pool: &TestPool) -> Vec<Event> {
    Journal::open(pool.medium(), &pool.superblock()).read_all(pool.medium())
}

/// The journal names the page, as repaired.
fn named(pool: &TestPool, page: u64, what: &str) {
    let all = events(pool);
    let of_page: Vec<&Event> = all.iter().filter(|e| e.at == page && e.len == PAGE).collect();
    assert_eq!(of_page.len(), 1, "{what}, page {page:#x}: {all:?}");
    assert_eq!(of_page[0].outcome, Outcome::Repaired, "{what}");
}

fn sides(pool: &TestPool) -> [u64; 2] {
    [0, pool.superblock().side_len]
}

fn poison(pool: &TestPool, page: u64, clear: Clear) {
    pool.medium().poison(page, PAGE, clear).unwrap();
}

/// Runs a story on a pool of each kind, for the start of each of its sides.
fn on_each_side(story: impl Fn(MediumKind, TestPool, u64)) {
    for kind in KINDS {
        for side in 0..2 {
            let pool = tiny(kind, Parity::P);
            let start = sides(&pool)[side];
            story(kind, pool, start);
        }
    }
}

#[test]
fn a_relocation_names_the_superblock_that_it_cleared() {
    on_each_side(|kind, pool, side| {
        let bytes = pattern(1, 900);
        let p = put(&pool, &bytes);
        poison(&pool, side, Clear::Able);
        poison(&pool, p.offset() / PAGE * PAGE, Clear::Unable);
        assert_eq!(get(&pool, p).unwrap(), bytes);
        named(&pool, side, &format!("{kind}"));
    });
}

#[test]
fn a_growth_names_the_copies_that_it_cleared() {
    on_each_side(|kind, pool, side| {
        poison(&pool, side, Clear::Able);
        poison(&pool, side + REGIONS_PAGE, Clear::Able);
        pool.grow(2 << 20).unwrap();
        named(&pool, side, &format!("{kind}"));
        named(&pool, side + REGIONS_PAGE, &format!("{kind}"));
    });
}

#[test]
fn a_close_names_the_superblock_that_it_cleared() {
    on_each_side(|kind, pool, side| {
        poison(&pool, side, Clear::Able);
        let last: Arc<Mutex<Option<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&last);
        pool.medium().on_barrier(Box::new(move |_, _, point| {
            *sink.lock().unwrap() = Some(point.clone());
        }));
        drop(pool);
        let image = last.lock().unwrap().take().unwrap().newest();
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
        assert!(opened.clean, "{kind}");
        named(&pool, side, &format!("{kind}"));
    });
}

#[test]
fn an_event_names_the_page_of_the_journal_that_it_cleared() {
    on_each_side(|kind, pool, side| {
        let page = side + EVENTS_START;
        let bytes = pattern(2, 900);
        let p = put(&pool, &bytes);
        poison(&pool, page, Clear::Able);
        pool.medium().stray(p.offset() + 7, &[!bytes[7]]).unwrap();
        pool.set_verify_reads(holdfast_object::VerifyReads::Always);
        assert_eq!(get(&pool, p).unwrap(), bytes);
        named(&pool, page, &format!("{kind}"));
        assert_eq!(events(&pool).len(), 2);
    });
}

#[test]
fn an_event_that_a_crash_kept_out_of_one_copy_is_not_told_as_damage() {
    for kind in KINDS {
        let pool = tiny(kind, Parity::P);
        let bytes = pattern(4, 900);
        let p = put(&pool, &bytes);
        pool.medium().stray(p.offset() + 7, &[!bytes[7]]).unwrap();
        // The event is durable in side B, and nothing of it in side A.
        let between: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&between);
        pool.medium().on_barrier(Box::new(move |_, site, point| {
            let seen = ["redundancy.events.drain-a", "redundancy.events.a"];
            if seen.contains(&site.name()) {
                sink.lock().unwrap().push(point.clone());
            }
        }));
        pool.set_verify_reads(holdfast_object::VerifyReads::Always);
        assert_eq!(get(&pool, p).unwrap(), bytes);
        pool.medium().clear_on_barrier();
        drop(pool);
        let image = between.lock().unwrap().first().unwrap().persisted();
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
        let before = events(&pool);
        assert_eq!(before.len(), 1, "{kind}");
        let scrub = || pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        scrub().unwrap();
        assert_eq!(events(&pool), before, "{kind}: nothing was damaged");
        // Both copies have it now; one that is damaged from here on is told.
        let of_it = |side: u64| side + EVENTS_START + before[0].sequence * 128;
        pool.medium().flip_bit(of_it(sides(&pool)[1]) + 30, 1).unwrap();
        scrub().unwrap();
        named(&pool, sides(&pool)[1] + EVENTS_START, &format!("{kind}"));
    }
}

/// Poisons `page` when `run` passes a step of a commit.
fn poison_at(pool: &TestPool, step: &'static str, page: u64, clear: Clear, run: impl FnOnce()) {
    let (hooked, done) = (pool.clone(), Arc::new(AtomicBool::new(false)));
    let once = Arc::clone(&done);
    pool.medium().on_step(Box::new(move |site| {
        if site.name() == step && !once.swap(true, Ordering::AcqRel) {
            poison(&hooked, page, clear);
        }
    }));
    run();
    pool.medium().clear_on_step();
    assert!(done.load(Ordering::Acquire), "{step} was passed");
}

#[test]
fn the_head_of_a_large_object_goes_bad_while_it_is_freed() {
    for parity in [Parity::P, Parity::PQ] {
        for clear in [Clear::Able, Clear::Unable] {
            let pool = tiny(MediumKind::Shm, parity);
            let kept: Vec<(RawPtr, Vec<u8>)> =
                (0..6).map(|i| pattern(i, 20_000)).map(|b| (put(&pool, &b), b)).collect();
            let large = kept[2].0;
            let head = large.offset() / PAGE * PAGE;
            poison_at(&pool, "object.commit.step-columns", head, clear, || {
                pool.run(|tx| tx.free(large)).unwrap();
            });
            let all = events(&pool);
            assert_eq!(pool.stats().lost, 0, "{parity:?} {clear:?}: {all:?}");
            for (p, bytes) in kept.iter().filter(|(p, _)| *p != large) {
                assert_eq!(&get(&pool, *p).unwrap(), bytes);
            }
            assert!(pool.check(|_, _| {}).unwrap().is_clean());
        }
    }
}

/// Parity of the columns that a commit touched must hold for all other rows, too, as soon as the
/// columns are released: here the second page turns bad before the first was looked at again.
#[test]
fn a_page_that_refuses_leaves_the_other_columns_of_the_write_consistent() {
    for (parity, row) in [(Parity::P, 0), (Parity::PQ, 0), (Parity::PQ, 1), (Parity::PQ, 2)] {
        let pool = tiny(MediumKind::Shm, parity);
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let objects: Vec<_> =
            (0..9).map(|i| pattern(i, 7_000)).map(|b| (put(&pool, &b), b)).collect();
        let crosses = |p: &RawPtr| (p.offset() % PAGE) < PAGE - 600;
        let (p, old) = objects.iter().find(|(p, _)| crosses(p)).unwrap().clone();
        // The write lies over the end of a page; its second page, or parity of it, turns bad.
        let edge = p.offset() / PAGE * PAGE + PAGE;
        let col = (edge - zone.start) % zone.row_len;
        let bad = match row {
            0 => edge,
            n => zone.start + (u64::from(zone.data_rows) + n - 1) * zone.row_len + col,
        };
        let mut new = old.clone();
        let from = (edge - p.offset() - 300) as usize;
        new[from..from + 600].copy_from_slice(&pattern(77, 600));
        poison_at(&pool, "object.commit.step-columns", bad, Clear::Able, || {
            pool.run(|tx| tx.write_bytes(p, from as u64, &new[from..from + 600])).unwrap();
        });
        assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{parity:?} {row}");
        assert_eq!(get(&pool, p).unwrap(), new);
        // Everything over these columns can be rebuilt from them.
        for page in [edge - PAGE, edge] {
            poison(&pool, page, Clear::Able);
            assert_eq!(get(&pool, p).unwrap(), new, "{parity:?} {row}");
        }
        let scrub = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
        assert_eq!((scrub.unwrap().lost, pool.stats().lost), (0, 0));
    }
}

/// Bytes of the pool now.
fn bytes_at(pool: &TestPool, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    pool.medium().read(at, &mut bytes).unwrap();
    bytes
}

/// The newest event has the sums of what was found and of what is there now.
fn sums_are_told(pool: &TestPool, damaged: &[u8], what: &str) {
    let all = events(pool);
    let newest = all.last().expect(what);
    let (at, len) = (newest.at as usize, newest.len as usize);
    assert_eq!(newest.outcome, Outcome::Repaired, "{what}");
    assert_eq!(newest.before_sum, crc32c(0, &damaged[at..at + len]), "{what}: {newest:?}");
    assert_eq!(newest.after_sum, crc32c(0, &bytes_at(pool, newest.at, newest.len)), "{what}");
    assert_ne!(newest.before_sum, newest.after_sum, "{what}");
}

#[test]
fn events_tell_the_sums_before_and_after() {
    for kind in KINDS {
        let pool = tiny(kind, Parity::PQ);
        let p = put(&pool, &pattern(3, 900));
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let zone = Zone::new(&zone, 0).unwrap();
        let col = zone.place(p.offset()).unwrap().col;
        let side_b = sides(&pool)[1];
        let places = [
            ("an object", p.offset() + 3),
            ("P", zone.p_at(col)),
            ("Q", zone.q_at(col)),
            ("the superblock", 40),
            ("the region table", side_b + REGIONS_PAGE + 40),
        ];
        for (what, at) in places {
            pool.medium().flip_bit(at, 3).unwrap();
            let damaged = bytes_at(&pool, 0, pool.superblock().size);
            let options = ScrubOptions::default();
            pool.scrub(options, &ScrubControl::default(), |_, _| {}).unwrap();
            sums_are_told(&pool, &damaged, &format!("{kind}, {what}"));
        }
    }
}

#[test]
fn events_of_an_opening_tell_the_sums_before_and_after() {
    for kind in KINDS {
        let pool = tiny(kind, Parity::P);
        let p = put(&pool, &pattern(3, 900));
        let image = pool.medium().crash_point().newest();
        drop(pool);
        for (what, at) in [("the superblock", 40), ("the region table", REGIONS_PAGE + 40)] {
            let m = FaultMedium::from_crash(image.clone(), kind, &Config::default());
            m.flip_bit(at, 3).unwrap();
            let mut damaged = vec![0; m.len() as usize];
            m.read(0, &mut damaged).unwrap();
            let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
            assert_eq!(get(&pool, p).unwrap(), pattern(3, 900));
            let event = events(&pool)[0];
            let place = at as usize / 4096 * 4096;
            assert_eq!(event.at, place as u64, "{what}");
            assert_eq!(event.before_sum, crc32c(0, &damaged[place..place + 4096]), "{what}");
            assert!(event.after_sum != 0 && event.after_sum != event.before_sum, "{what}");
        }
    }
}

#[test]
fn a_range_over_a_page_end_meets_the_second_page_before_anything_is_logged() {
    for kind in KINDS {
        let pool = tiny(kind, Parity::P);
        let p = put(&pool, &pattern(4, 8000));
        let second = (p.offset() / PAGE + 1) * PAGE;
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let zone = Zone::new(&zone, 0).unwrap();
        let col = zone.place(second).unwrap().col;
        poison(&pool, zone.p_at(col) / PAGE * PAGE, Clear::Able);
        let from = second - 20 - p.offset();
        pool.run(|tx| tx.write_bytes(p, from, &[7; 40])).unwrap();
        let event = *events(&pool).last().unwrap();
        // Met by the probe, before the record: no commit had to be completed.
        assert_ne!(event.finder, Finder::Commit, "{kind}: {event:?}");
        assert_eq!(event.outcome, Outcome::Repaired, "{kind}");
    }
}

#[test]
fn a_growth_that_fails_half_way_leaves_the_pool_as_it_was() {
    let config = Config { reserve: 16 << 20, ..Config::default() };
    let medium = FaultMedium::new(1 << 20, MediumKind::Shm, &config);
    let pool = Pool::create(medium, &CreateOptions::tiny(1 << 20), quick(), clock()).unwrap();
    let as_it_is = |pool: &TestPool| (pool.superblock().size, pool.regions().len());
    let before = as_it_is(&pool);
    let side = pool.superblock().side_len;
    pool.medium().poison(side, 4096, Clear::Unable).unwrap();
    for size in 2..5_u64 {
        let refused = pool.grow(size << 20).unwrap_err();
        assert!(refused.to_string().contains("stays bad"), "{refused}");
        assert_eq!(as_it_is(&pool), before);
    }
    // What is put there has parity: a zone that half exists would have none.
    let object = put(&pool, &pattern(1, 50_000));
    pool.medium().flip_bit(object.offset() + 20_000, 3).unwrap();
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 50_000));
}
