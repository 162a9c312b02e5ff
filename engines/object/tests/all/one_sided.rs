//! One of P and Q cannot be read, and is made anew from rows one of which lost its last write: the
//! other one is all that knows better, as P where it is alone.

use std::sync::{Arc, Mutex};

use crate::common::{TestPool, get, pattern, put, reopened};
use crate::erased::Class;
use crate::fallen::{Made, over, zone};
use crate::meanwhile::at_step;
use crate::older::losing_entries;
use crate::returning::{over_a_border, spot};
use crate::stale::{forgetting, pool, scrub, settled};
use holdfast_faultmem::Clear;
use holdfast_layout::RawPtr;
use holdfast_object::Parity;
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_txn::Transaction;

const KINDS: [MediumKind; 2] = [MediumKind::Shm, MediumKind::File];

/// The page of Q, or of P, over the page around `at`.
fn parity_page(pool: &TestPool, at: u64, q: bool) -> u64 {
    let zone = zone(pool);
    let col = zone.place(at).unwrap().col;
    (if q { zone.q_at(col) } else { zone.p_at(col) }) / PAGE * PAGE
}

/// An object whose bytes lie on another page than its slot; both pages went back.
fn fallen_over_two_pages(pool: &TestPool) -> Made {
    let all: Vec<RawPtr> = (0..50).map(|i| put(pool, &pattern(i, 100))).collect();
    let apart = |of: &&RawPtr| spot(pool, **of).slot / PAGE != of.offset() / PAGE;
    let place = *all.iter().find(apart).unwrap();
    settled(pool);
    let before = crate::stale::page(pool, place.offset());
    let one = Made::at(pool, place, pattern(100, 100));
    settled(pool);
    one.fall(pool.medium());
    pool.medium().stray(place.offset() / PAGE * PAGE, &before).unwrap();
    one
}

/// Which parity pages of an object over two pages cannot be read: over its slot, over its bytes, or
/// over both.
#[test]
fn an_object_over_two_pages_comes_back_by_the_parity_that_is_left() {
    for kind in KINDS {
        for (q, over) in [0, 1, 2].into_iter().flat_map(|over| [(false, over), (true, over)]) {
            for scrubbed in [false, true] {
                let pool = pool(kind, Parity::PQ);
                let one = fallen_over_two_pages(&pool);
                let pages = [one.slot, one.of.offset()].map(|at| parity_page(&pool, at, q));
                let bad = if over == 2 { &pages[..] } else { &pages[over..=over] };
                for page in bad {
                    pool.medium().poison(*page, PAGE, Clear::Able).unwrap();
                }
                let what = format!("{kind} Q {q}, over {over}, scrubbed {scrubbed}");
                if !scrubbed {
                    bad.iter().for_each(|page| assert!(pool.heal_load(*page, PAGE), "{what}"));
                }
                settled(&pool);
                one.is_there(&pool, &what);
            }
        }
    }
}

/// A long object, and new bytes for a further granule on its first page.
fn further(pool: &TestPool) -> (RawPtr, Vec<u8>, impl Fn(&mut Vec<u8>)) {
    let (of, _, model) = over_a_border(pool, 20_000);
    let write = move |model: &mut Vec<u8>| {
        let bytes = pattern(7, 300);
        pool.run(|tx| tx.write_bytes(of, 1_100, &bytes)).unwrap();
        model[1_100..1_400].copy_from_slice(&bytes);
    };
    (of, model, write)
}

/// No number of a further granule tells which state came last. One parity says that this page went
/// back, the other was made from it as it is: that is in doubt, and stays so.
#[test]
fn what_nothing_orders_is_in_doubt_and_not_blessed() {
    for kind in KINDS {
        for (q, healed) in [(false, true), (true, true), (false, false), (true, false)] {
            let pool = pool(kind, Parity::PQ);
            let (of, mut model, write) = further(&pool);
            forgetting(&pool, of.offset(), || write(&mut model));
            let parity = parity_page(&pool, of.offset(), q);
            pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
            let what = format!("{kind} Q {q}, healed {healed}");
            if healed {
                assert!(pool.heal_load(parity, PAGE), "{what}");
            }
            for pass in 0..2 {
                let done = scrub(&pool);
                assert_eq!(done.lost, 0, "{what}");
                assert!(done.undecided > 0, "{what}, pass {pass}: {:?}", done.report.findings);
                assert!(!pool.check(|_, _| {}).unwrap().is_clean(), "{what}, pass {pass}");
            }
            // Written anew it is in doubt no longer.
            let bytes = pattern(9, 20_000);
            pool.run(|tx| tx.write_bytes(of, 0, &bytes)).unwrap();
            scrub(&pool);
            settled(&pool);
            assert!(get(&pool, of).unwrap() == bytes, "{what}");
        }
    }
}

/// The same, where that is found by a commit over these columns.
#[test]
fn what_nothing_orders_stays_in_doubt_under_a_completed_commit() {
    for kind in KINDS {
        for (q, further) in [(false, 0), (true, 0), (false, 1_000), (true, 1_000)] {
            let pool = pool(kind, Parity::PQ);
            let (of, mut model, write) = self::further(&pool);
            let (long, at) = over(&pool, of.offset() + 1_100);
            forgetting(&pool, of.offset(), || write(&mut model));
            commit_under_bad_parity(
                &pool,
                (long, at + further),
                parity_page(&pool, of.offset(), q),
            );
            let what = format!("{kind} Q {q}, further {further}");
            for pass in 0..2 {
                let done = scrub(&pool);
                assert_eq!(done.lost, 0, "{what}");
                let now = get(&pool, of).unwrap();
                assert!(done.undecided > 0 || now == model, "{what}, pass {pass}: blessed");
            }
        }
    }
}

/// Writes to a long object at `at`; a parity page turns bad under the commit.
fn commit_under_bad_parity(pool: &TestPool, (long, at): (RawPtr, u64), parity: u64) {
    at_step(pool, "object.commit.step-durable", move |pool| {
        pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
    });
    let from = at - long.offset();
    pool.run(|tx| tx.write_bytes(long, from, &pattern(8, 60))).unwrap();
    pool.medium().clear_on_step();
}

/// What went back is a parity, and the other one cannot be read: the page is not taken back.
#[test]
fn what_nothing_orders_is_not_taken_back() {
    for kind in KINDS {
        for (q, further) in [(false, None), (true, None), (false, Some(0)), (true, Some(0))]
            .into_iter()
            .chain([(false, Some(1_000)), (true, Some(1_000))])
        {
            let pool = pool(kind, Parity::PQ);
            let (of, mut model, write) = self::further(&pool);
            let (long, at) = over(&pool, of.offset() + 1_100);
            let left = parity_page(&pool, of.offset(), !q);
            forgetting(&pool, left, || write(&mut model));
            let parity = parity_page(&pool, of.offset(), q);
            let what = format!("{kind} Q {q}, by a commit {further:?}");
            if let Some(further) = further {
                commit_under_bad_parity(&pool, (long, at + further), parity);
            } else {
                pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
                assert!(pool.heal_load(parity, PAGE), "{what}");
            }
            for _ in 0..2 {
                assert_eq!(scrub(&pool).lost, 0, "{what}");
                assert!(get(&pool, of).unwrap() == model, "{what}: taken back");
            }
        }
    }
}

/// Parity over a slot that fell was made from it, and then a commit is completed over its columns.
#[test]
fn a_slot_under_parity_that_was_made_from_it_comes_back_under_a_completed_commit() {
    for kind in KINDS {
        for q in [false, true] {
            let pool = pool(kind, Parity::PQ);
            let all: Vec<RawPtr> = (0..50).map(|i| put(&pool, &pattern(i, 100))).collect();
            settled(&pool);
            let same = |of: &&RawPtr| spot(&pool, **of).slot / PAGE == of.offset() / PAGE;
            let one = Made::at(&pool, *all.iter().find(same).unwrap(), pattern(100, 100));
            let (long, at) = over(&pool, one.slot);
            one.fall(pool.medium());
            let parity = parity_page(&pool, one.slot, q);
            pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
            assert!(pool.heal_load(parity, PAGE));
            crate::fallen::complete(&pool, long, at, &[(0, 60)]);
            settled(&pool);
            one.is_there(&pool, &format!("{kind} Q {q}"));
        }
    }
}

/// Objects of several sizes, a long one, and free chunks with old bytes in them.
fn full_of_old_bytes(pool: &TestPool) -> (Vec<RawPtr>, RawPtr) {
    let sizes = [100, 150, 200, 300, 400, 600, 800, 1_200];
    let all = sizes.iter().flat_map(|len| (0..4).map(|i| put(pool, &pattern(i, *len))));
    let all: Vec<RawPtr> = all.collect();
    let long = put(pool, &pattern(1, 20_000));
    let gone: Vec<RawPtr> = (0..20).map(|i| put(pool, &pattern(i, 24_000))).collect();
    gone.into_iter().for_each(|of| pool.run(|tx| tx.free(of)).unwrap());
    settled(pool);
    (all, long)
}

/// The pages of the first of the chunks that a record takes which is too long for the log.
fn taken(pool: &TestPool, long: RawPtr) -> Vec<u64> {
    let pages: Arc<Mutex<Vec<u64>>> = Arc::default();
    let found = Arc::clone(&pages);
    at_step(pool, "object.overflow.step-taken", move |pool| {
        let (zone, map) = (zone(pool), crate::erased::map(pool));
        let data = (0..zone.data_rows()).flat_map(|row| {
            (0..zone.row_len()).step_by(PAGE as usize).map(move |col| zone.at(row, col))
        });
        let log = data.filter(|at| map.class(*at) == Class::Overflow);
        found.lock().unwrap().extend(log);
    });
    pool.run(|tx| tx.write_bytes(long, 0, &pattern(3, 20_000))).unwrap();
    pool.medium().clear_on_step();
    let pages = pages.lock().unwrap().clone();
    let run =
        pages.iter().zip(pages[0]..).take_while(|(at, i)| **at == pages[0] + (i - pages[0]) * PAGE);
    run.map(|(at, _)| *at).collect()
}

/// A slot fell over a chunk that a record takes, whose bytes leave parity: a page of it turns bad
/// under that, so some of its columns are those of before and some are those of afterwards.
#[test]
fn a_slot_under_a_chunk_that_has_left_parity_in_part_comes_back() {
    for kind in KINDS {
        let first = pool(kind, Parity::PQ);
        let (all, long) = full_of_old_bytes(&first);
        let pages = taken(&first, long);
        let (last, before) = pages.split_last().unwrap();
        let pool = pool(kind, Parity::PQ);
        full_of_old_bytes(&pool);
        let of_page = |at: u64| zone(&pool).place(at).unwrap().col / PAGE;
        let old = |page: u64| crate::stale::page(&pool, page).iter().filter(|b| **b != 0).count();
        let over = |of: &RawPtr| {
            let col = of_page(spot(&pool, *of).slot);
            before.iter().any(|page| of_page(*page) == col && old(*page) > 3_000)
        };
        let place = *all.iter().find(|of| over(of)).expect("a slot lies over these chunks");
        let len = spot(&pool, place).capacity as usize;
        let one = Made::at(&pool, place, pattern(100, len.min(100)));
        settled(&pool);
        one.fall(pool.medium());
        let bad = *last;
        at_step(&pool, "logs.ring.recorded", move |pool| {
            pool.medium().poison(bad, PAGE, Clear::Able).unwrap();
        });
        pool.run(|tx| tx.write_bytes(long, 0, &pattern(3, 20_000))).unwrap();
        pool.medium().clear_on_step();
        settled(&pool);
        one.is_there(&pool, &format!("{kind}"));
    }
}

/// A granule and its sum lie in two rows over the same page of columns, and the last write of both
/// was lost: each is judged with what the other was.
#[test]
fn what_fell_in_two_rows_of_the_same_columns_comes_back_together() {
    for kind in KINDS {
        let pool = pool(kind, Parity::PQ);
        let zone = zone(&pool);
        let mut model = pattern(1, 200_000);
        let of = put(&pool, &model);
        settled(&pool);
        let spot = spot(&pool, of);
        let page = |at: u64| zone.place(at).unwrap().col / PAGE;
        // Bytes over the page of their own sum, beside it in the columns.
        let good = |granule: &u64| {
            let (sum, at) = (spot.sum_at(*granule), of.offset() + granule * 1024 + 100);
            let cols = [sum, at].map(|at| zone.place(at).unwrap().col % PAGE);
            let two_rows = sum / PAGE != at / PAGE && page(sum) == page(at);
            two_rows && page(at) == page(at + 40) && cols[0].abs_diff(cols[1]) > 200
        };
        let granule = (1..190).find(good).expect("a row is shorter than the object");
        let (sum, from) = (spot.sum_at(granule), granule * 1024 + 100);
        let at = of.offset() + from;
        let before = [sum, at].map(|at| (at / PAGE * PAGE, crate::stale::page(&pool, at)));
        crate::stale::write(&pool, of, from as usize, &pattern(5, 40), &mut model);
        settled(&pool);
        for (page, bytes) in before {
            pool.medium().stray(page, &bytes).unwrap();
        }
        settled(&pool);
        assert!(get(&pool, of).unwrap() == model, "{kind}: blessed");
    }
}

/// The entries of an object are older ones, as whoever opens the pool next finds. Before a scrub
/// comes to them, columns over its chunks are settled, where its bytes were hit.
#[test]
fn bytes_under_an_older_entry_are_no_free_ones_before_the_first_scrub() {
    for kind in KINDS {
        let first = pool(kind, Parity::PQ);
        let bytes = pattern(3, 7_000);
        let of = losing_entries(&first, || put(&first, &bytes));
        let pool = reopened(first);
        let hit = of.offset() + 3_000;
        pool.medium().flip_bit(hit, 3).unwrap();
        let parity = parity_page(&pool, hit, false);
        pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
        assert!(pool.heal_load(parity, PAGE), "{kind}");
        put(&pool, &pattern(4, 50));
        let found = get(&pool, of);
        assert!(found.as_ref().is_ok_and(|found| *found == bytes), "{kind}: {:?}", found.err());
        settled(&pool);
        assert!(get(&pool, of).unwrap() == bytes, "{kind}");
    }
}
