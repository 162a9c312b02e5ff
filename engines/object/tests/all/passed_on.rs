//! Damage that nobody met, since nothing lay there, is passed on to parity by who stores over it.
//! With P and Q that is one of two damages that a column survives.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Filled, TestPool, filled, get, pattern, put};
use holdfast_faultmem::Clear;
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions};
use holdfast_pmem::PAGE;
use holdfast_txn::Transaction;

const LEN: u64 = 700;

#[test]
fn a_row_that_was_stored_over_while_damaged_costs_no_other_row_of_its_column() {
    let options = CreateOptions { parity: Parity::PQ, rows: 40, ..CreateOptions::tiny(1 << 20) };
    let f = filled(&options, LEN);
    // An object whose place another one gets, and one over the same column.
    let (gone, other, at) = f.pair(8);
    let Filled { pool, objects, .. } = f;
    let (gone, (other, bytes)) = (objects[gone].0, &objects[other]);
    pool.run(|tx| tx.free(gone)).unwrap();
    pool.medium().stray(gone.offset() + 8, &[0xa5; 16]).unwrap();
    let fresh = put(&pool, &pattern(300, LEN as usize));
    assert_eq!(fresh.offset(), gone.offset(), "the place is taken again");
    pool.medium().stray(at, &[0x5a; 16]).unwrap();
    assert!(get(&pool, *other).is_ok_and(|found| found == *bytes), "{other}");
    assert!(get(&pool, fresh).is_ok_and(|found| found == pattern(300, LEN as usize)));
    // Parity is of what is there again: one more damage in each row is made good.
    scrub(&pool);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    pool.medium().stray(fresh.offset() + 8, &[0x11; 16]).unwrap();
    pool.medium().stray(at, &[0x22; 16]).unwrap();
    assert!(get(&pool, *other).is_ok_and(|found| found == *bytes));
    assert!(get(&pool, fresh).is_ok_and(|found| found == pattern(300, LEN as usize)));
}

fn scrub(pool: &TestPool) {
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
}

/// Of two losses in each of their columns objects survive whose slots and bytes lie on pages that
/// cannot be read: a bad slot alone says that they are bad, and their bytes are needed to cure it.
#[test]
fn pages_that_cannot_be_read_are_made_good_beside_a_row_that_was_overwritten() {
    let options = CreateOptions { parity: Parity::PQ, rows: 10, ..CreateOptions::tiny(1 << 20) };
    for pages in [1, 2, 4] {
        for meanwhile in [false, true] {
            let Filled { pool, mut objects, zone, .. } = filled(&options, LEN);
            let place = zone.place(objects[10].0.offset()).unwrap();
            let col = place.col / PAGE * PAGE;
            // A row that nothing lies in, so that no sum says which it is.
            let free = zone.data_rows() - 1;
            let trash = pattern(7, (pages * PAGE) as usize);
            pool.medium().stray(zone.at(free, col), &trash).unwrap();
            pool.medium().poison(zone.at(place.row, col), pages * PAGE, Clear::Able).unwrap();
            if meanwhile {
                for seed in 400..420 {
                    objects.push((put(&pool, &pattern(seed, 64)), pattern(seed, 64)));
                }
                for (of, bytes) in objects.iter_mut().step_by(3) {
                    bytes[..32].fill(0x77);
                    pool.run(|tx| tx.write_bytes(*of, 0, &bytes[..32])).unwrap();
                }
            }
            for (of, bytes) in &objects {
                assert_eq!(get(&pool, *of).ok().as_ref(), Some(bytes), "{pages} pages, {of}");
            }
            scrub(&pool);
            assert!(pool.check(|_, _| {}).unwrap().is_clean());
        }
    }
}

/// A page of objects and the page of their slots cannot be read. Over the one, Q was overwritten as
/// well; over the other, a row that nothing lies in: two losses in each column.
#[test]
fn columns_of_slots_and_of_bytes_may_have_lost_different_things() {
    let options = CreateOptions { parity: Parity::PQ, rows: 10, ..CreateOptions::tiny(1 << 20) };
    for both in [false, true] {
        let Filled { pool, objects, zone, .. } = filled(&options, LEN);
        let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let table = ZoneTable::new(0, &region);
        let head = |of: RawPtr| table.chunk_at(table.chunk_of(of.offset()).unwrap());
        let is_apart = |(of, _): &&(RawPtr, Vec<u8>)| of.offset() / PAGE != head(*of) / PAGE;
        let (of, _) = objects.iter().skip(10).find(is_apart).unwrap();
        let slots = zone.place(head(*of)).unwrap();
        let whole = zone.place(of.offset() / PAGE * PAGE).unwrap();
        let (trash, free) = (pattern(7, PAGE as usize), zone.data_rows() - 1);
        pool.medium().stray(zone.at(free, slots.col), &trash).unwrap();
        pool.medium().stray(zone.q_at(whole.col), &trash).unwrap();
        pool.medium().poison(zone.at(slots.row, slots.col), PAGE, Clear::Able).unwrap();
        if both {
            pool.medium().poison(zone.at(whole.row, whole.col), PAGE, Clear::Able).unwrap();
        } else {
            pool.medium().stray(zone.at(whole.row, whole.col), &trash).unwrap();
        }
        for (of, bytes) in &objects {
            assert!(get(&pool, *of).is_ok_and(|found| found == *bytes), "{both} {of}");
        }
        scrub(&pool);
        assert!(pool.check(|_, _| {}).unwrap().is_clean());
    }
}

/// A commit met a page that could not be read, and is completed; then a page of P or Q turns bad.
/// An object beside what it changes is damaged, over other bytes of the page: the other one makes
/// it good before parity of the page is made anew.
#[test]
fn parity_made_anew_under_a_commit_takes_nothing_damaged_for_right() {
    let options = CreateOptions { parity: Parity::PQ, rows: 10, ..CreateOptions::tiny(1 << 20) };
    for q in [false, true] {
        let Filled { pool, mut objects, zone, .. } = filled(&options, LEN);
        let page = |of: RawPtr| (of.offset() / PAGE, (of.offset() + LEN - 1) / PAGE);
        let beside = |pair: &&[(RawPtr, Vec<u8>)]| {
            let (one, two) = (page(pair[0].0), page(pair[1].0));
            one == two && one.0 == one.1
        };
        let (changed, other) = match objects.windows(2).skip(10).find(beside).unwrap() {
            [one, two] => (one.0, two.0),
            _ => unreachable!(),
        };
        let place = zone.place(changed.offset()).unwrap();
        let col = place.col / PAGE * PAGE;
        let parity = if q { zone.q_at(col) } else { zone.p_at(col) };
        let (medium, stages) = (pool.clone(), AtomicU32::new(0));
        pool.medium().on_step(Box::new(move |site| match site.name() {
            "object.commit.step-durable" if stages.fetch_max(1, Ordering::AcqRel) == 0 => {
                medium.medium().poison(changed.offset(), 1, Clear::Able).unwrap();
            }
            "object.redo_parity.step-sum" if stages.fetch_max(2, Ordering::AcqRel) == 1 => {
                medium.medium().stray(other.offset() + 300, &[0x5a; 16]).unwrap();
                medium.medium().poison(parity, PAGE, Clear::Able).unwrap();
            }
            _ => {}
        }));
        pool.run(|tx| tx.write_bytes(changed, 0, &[0x77; 32])).unwrap();
        pool.medium().clear_on_step();
        let at = objects.iter().position(|(of, _)| *of == changed).unwrap();
        objects[at].1[..32].fill(0x77);
        for (of, bytes) in &objects {
            assert!(get(&pool, *of).is_ok_and(|found| found == *bytes), "{q} {of}");
        }
        assert_eq!(pool.stats().lost, 0);
        scrub(&pool);
        assert!(pool.check(|_, _| {}).unwrap().is_clean());
    }
}
