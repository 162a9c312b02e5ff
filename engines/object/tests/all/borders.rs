//! A unit on both sides of a border of pages lies in two page columns. Each of them survives what
//! it would survive alone: parity that cannot be had over the one says nothing against the other.

use crate::common::{self, Filled, TestPool, clock, get, pattern};
use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_layout::RawPtr;
use holdfast_object::{CreateOptions, Parity, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::Place;
use holdfast_redundancy::events::{Journal, Outcome};
use holdfast_txn::Transaction;
use std::sync::{Arc, Mutex};

/// Bytes of each object: one unit, of which every few lie on a border.
const LEN: u64 = 700;

fn filled(parity: Parity) -> Filled {
    let options = CreateOptions { parity, rows: 40, ..CreateOptions::tiny(1 << 20) };
    common::filled(&options, LEN)
}

/// Objects over a border of two pages of one row.
fn on_borders(f: &Filled) -> Vec<usize> {
    let row = f.zone.row_len();
    let over = |at: u64, unit: u64| at / unit != (at + LEN - 1) / unit;
    let start = f.zone.at(0, 0);
    let is_there = |i: &usize| {
        let at = f.objects[*i].0.offset();
        over(at, PAGE) && !over(at - start, row)
    };
    (0..f.objects.len()).filter(is_there).collect()
}

fn check(pool: &TestPool, objects: &[(RawPtr, Vec<u8>)], what: &str) {
    for (p, bytes) in objects {
        assert_eq!(get(pool, *p).as_ref().ok(), Some(bytes), "{what}: {p}");
    }
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{what}: {:?}", done.report.findings);
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
    // Nor was anything given up on the way.
    let journal = Journal::open(pool.medium(), &pool.superblock());
    let told = journal.read_all(pool.medium());
    assert!(told.iter().all(|event| event.outcome != Outcome::Lost), "{what}: {told:?}");
}

/// What is wrong over the page column on the other side of the border.
#[derive(Debug, Clone, Copy)]
enum Beyond {
    P,
    Q,
    Row,
    Both,
}

/// Damages an object on one side of its border, another over the same column too if asked for, and
/// the column on the other side. False if nothing else lies over these columns.
fn hurt(
    f: &Filled,
    m: &FaultMedium,
    (object, first, twice): (usize, bool, bool),
    beyond: Beyond,
) -> bool {
    let border = f.objects[object].0.offset().next_multiple_of(PAGE);
    let (near, far) = if first { (border - 3, border + 3) } else { (border + 3, border - 3) };
    let (near, far) = (f.zone.place(near).unwrap(), f.zone.place(far).unwrap());
    let over = |place: Place| f.beside(place.row, place.col, 1).map(|(_, at)| at);
    let (Some(other), Some(row)) = (over(near), over(far)) else { return false };
    m.flip_bit(f.zone.at(near.row, near.col), 6).unwrap();
    if twice {
        m.flip_bit(other, 6).unwrap();
    }
    let (p, q) = (f.zone.p_at(far.col), f.zone.q_at(far.col));
    let bad = match beyond {
        Beyond::P => vec![p],
        Beyond::Q => vec![q],
        Beyond::Row => vec![row],
        Beyond::Both => vec![p, q],
    };
    bad.iter().for_each(|at| m.poison(at / PAGE * PAGE, PAGE, Clear::Able).unwrap());
    true
}

/// Each kind of damage, with as many of them over each column as parity covers.
fn each_damage(mut each: impl FnMut(Parity, bool, bool, Beyond)) {
    for first in [true, false] {
        for beyond in [Beyond::P, Beyond::Row] {
            each(Parity::P, first, false, beyond);
        }
        for twice in [false, true] {
            for beyond in [Beyond::P, Beyond::Q, Beyond::Row, Beyond::Both] {
                each(Parity::PQ, first, twice, beyond);
            }
        }
    }
}

#[test]
fn each_column_survives_what_it_would_alone() {
    each_damage(|parity, first, twice, beyond| {
        // Found by who reads it, and by a scrub, which may come to the other column before.
        for read in [true, false] {
            let f = filled(parity);
            let what = format!("{parity:?} first {first} twice {twice} {beyond:?} read {read}");
            let hurt = |object: &usize| hurt(&f, f.pool.medium(), (*object, first, twice), beyond);
            let object = on_borders(&f).into_iter().find(hurt).unwrap();
            if read {
                let (p, bytes) = &f.objects[object];
                assert_eq!(get(&f.pool, *p).as_ref().ok(), Some(bytes), "{what}");
            } else {
                let control = ScrubControl::default();
                let done = f.pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
                assert_eq!(done.lost, 0, "{what}: {:?}", done.report.findings);
            }
            check(&f.pool, &f.objects, &what);
        }
    });
}

/// A crash when a commit has stored all its bytes, parity too, and is not through.
fn crashed(
    f: &Filled,
    object: usize,
    (from, new): (usize, &[u8]),
    step: &'static str,
) -> FaultMedium {
    let image = Arc::new(Mutex::new(None));
    let (sink, pool) = (Arc::clone(&image), f.pool.clone());
    f.pool.medium().on_step(Box::new(move |site| {
        if site.name() == step {
            *sink.lock().unwrap() = Some(pool.medium().crash_point().newest());
        }
    }));
    let at = f.objects[object].0;
    f.pool.run(|tx| tx.write_bytes(at, from as u64, new)).unwrap();
    f.pool.medium().clear_on_step();
    let image = image.lock().unwrap().take().unwrap();
    FaultMedium::from_crash(image, MediumKind::Shm, &Config::default())
}

#[test]
fn so_does_what_a_commit_stored_that_a_crash_cut_short() {
    for step in ["object.commit.step-durable", "object.commit.step-applied"] {
        each_damage(|parity, first, twice, beyond| {
            // With two damages over one column a replay has more to tell than this.
            if twice {
                return;
            }
            let mut f = filled(parity);
            let what = format!("{step} {parity:?} first {first} {beyond:?}");
            let border = |i: usize| {
                let at = f.objects[i].0.offset();
                (at.next_multiple_of(PAGE) - at) as usize
            };
            let is_long = |i: &usize| (60..=LEN as usize - 40).contains(&border(*i));
            let object = on_borders(&f).into_iter().find(is_long).unwrap();
            // The bytes of the record are on the far side, the damage on this one.
            let from = if first { border(object) + 10 } else { border(object) - 60 };
            let new = pattern(4_711, 30);
            let medium = crashed(&f, object, (from, &new), step);
            f.objects[object].1[from..from + 30].copy_from_slice(&new);
            assert!(hurt(&f, &medium, (object, first, false), beyond), "{what}");
            let (pool, _) = Pool::open(medium, Default::default(), clock()).unwrap();
            check(&pool, &f.objects, &what);
        });
    }
}

#[test]
fn so_does_what_lies_beside_bytes_of_which_parity_alone_was_stored() {
    for first in [true, false] {
        for beyond in [Beyond::P, Beyond::Row] {
            let mut f = filled(Parity::P);
            let what = format!("first {first} {beyond:?}");
            // Another object over the bytes that will be damaged is the one that is changed.
            let found = on_borders(&f).into_iter().find_map(|object| {
                let border = f.objects[object].0.offset().next_multiple_of(PAGE);
                let near = f.zone.place(if first { border - 3 } else { border + 3 }).unwrap();
                let (_, other) = f.beside(near.row, near.col, 1)?;
                let is_other = |(p, _): &(RawPtr, Vec<u8>)| {
                    (p.offset() + 2..p.offset() + LEN - 2).contains(&other)
                };
                Some((object, f.objects.iter().position(is_other)?, other))
            });
            let (object, changed, at) = found.unwrap();
            let from = (at - 2 - f.objects[changed].0.offset()) as usize;
            let (old, new) = (f.objects[changed].1.clone(), pattern(4_712, 4));
            let medium = crashed(&f, changed, (from, &new), "object.commit.step-applied");
            f.objects[changed].1[from..from + 4].copy_from_slice(&new);
            medium.stray(at - 2, &old[from..from + 4]).unwrap();
            assert!(hurt(&f, &medium, (object, first, false), beyond), "{what}");
            let (pool, _) = Pool::open(medium, Default::default(), clock()).unwrap();
            check(&pool, &f.objects, &what);
        }
    }
}
