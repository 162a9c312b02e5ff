//! Slots whose last write was lost, and what happens to them and beside them while their columns
//! are settled. Such a slot verifies, as that of a place where nothing was put yet: parity made
//! from it would have everybody call a committed object dangling.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{TestPool, get, pattern, put};
use crate::meanwhile::at_step;
use crate::returning::spot;
use crate::stale::{KINDS, pool, scrub, settled};
use holdfast_faultmem::{Clear, FaultMedium};
use holdfast_heap::ChunkKind;
use holdfast_heap::format::SLOT_LEN;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::Parity;
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_txn::Transaction;

pub(crate) fn zone(pool: &TestPool) -> Zone {
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    Zone::new(&region, 0).unwrap()
}

fn read(pool: &TestPool, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; SLOT_LEN];
    pool.medium().read(at, &mut bytes).unwrap();
    bytes
}

/// An object, and its slot as it was before.
pub(crate) struct Made {
    pub(crate) of: RawPtr,
    bytes: Vec<u8>,
    pub(crate) slot: u64,
    before: Vec<u8>,
}

impl Made {
    /// Frees an object and makes another at its place.
    pub(crate) fn at(pool: &TestPool, place: RawPtr, bytes: Vec<u8>) -> Self {
        let slot = spot(pool, place).slot;
        pool.run(|tx| tx.free(place)).unwrap();
        let before = read(pool, slot);
        let of = put(pool, &bytes);
        assert_eq!(of.offset(), place.offset(), "the last place freed is the next one taken");
        if pool.medium().kind() == MediumKind::File {
            pool.medium().sync(holdfast_pmem::Site::new("test.fallen.sync")).unwrap();
        }
        Self { of, bytes, slot, before }
    }

    /// The write of the slot is lost after all.
    pub(crate) fn fall(&self, m: &FaultMedium) {
        assert_ne!(read_on(m, self.slot), self.before);
        m.stray(self.slot, &self.before).unwrap();
    }

    pub(crate) fn is_there(&self, pool: &TestPool, what: &str) {
        match get(pool, self.of) {
            Ok(bytes) => assert!(bytes == self.bytes, "{what}: other bytes"),
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

fn read_on(m: &FaultMedium, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; SLOT_LEN];
    m.read(at, &mut bytes).unwrap();
    bytes
}

/// Fifty objects of a hundred bytes; of those at places that satisfy `which`, `count` made anew.
fn made(pool: &TestPool, count: usize, which: impl Fn(u64, RawPtr) -> bool) -> Vec<Made> {
    let all: Vec<RawPtr> = (0..50).map(|i| put(pool, &pattern(i, 100))).collect();
    settled(pool);
    let places = all.into_iter().filter(|of| which(spot(pool, *of).slot, *of));
    let made: Vec<Made> = places
        .take(count)
        .zip(100..)
        .map(|(place, seed)| Made::at(pool, place, pattern(seed, 100)))
        .collect();
    assert_eq!(made.len(), count, "there are such places");
    settled(pool);
    made
}

/// A long object with bytes over the same columns in another row, and where these are.
pub(crate) fn over(pool: &TestPool, slot: u64) -> (RawPtr, u64) {
    let zone = zone(pool);
    let col = zone.place(slot).unwrap().col;
    let found = (0..20).find_map(|seed| {
        let of = put(pool, &pattern(seed, 20_000));
        let inside = of.offset() + PAGE..of.offset() + 20_000 - 128;
        let mut all = (0..zone.data_rows()).map(|row| zone.at(row, col));
        Some((of, all.find(|at| inside.contains(at))?))
    });
    settled(pool);
    found.expect("a long object lies over these columns")
}

/// Two slots fell. While their columns are settled, the page with the bytes of the second one
/// cannot be read: that is no reason to take what its slot is now for the truth.
#[test]
fn a_slot_whose_bytes_cannot_be_read_just_then_is_not_given_up() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let all: Vec<RawPtr> = (0..50).map(|i| put(&pool, &pattern(i, 100))).collect();
        settled(&pool);
        // The last object of a page and the first one of the next, of one run.
        let slot = |of: RawPtr| spot(&pool, of).slot;
        let pages = |of: RawPtr| (slot(of) / PAGE, of.offset() / PAGE);
        let border = all.windows(2).find(|two| {
            let beside = slot(two[0]) + SLOT_LEN as u64 == slot(two[1]);
            beside && pages(two[0]).0 == pages(two[0]).1 && pages(two[1]).0 != pages(two[1]).1
        });
        let two: Vec<Made> = { border.expect("a run has two pages").iter().zip(100..) }
            .map(|(place, seed)| Made::at(&pool, *place, pattern(seed, 100)))
            .collect();
        settled(&pool);
        two.iter().for_each(|made| made.fall(pool.medium()));
        let page = two[1].of.offset() / PAGE * PAGE;
        at_step(&pool, "object.scrub.step-settle", move |pool| {
            pool.medium().poison(page, PAGE, Clear::Able).unwrap();
        });
        settled(&pool);
        pool.medium().clear_on_step();
        two.iter().for_each(|made| made.is_there(&pool, &format!("{kind} {parity:?}")));
    }
}

/// Parity is wrong on both sides of a slot, which falls once everything over these columns was
/// judged, and before parity is made from it.
#[test]
fn a_slot_that_falls_after_it_was_judged_is_not_in_the_parity_that_is_made_then() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let one = made(&pool, 1, |slot, _| slot % PAGE > 192 && slot % PAGE < PAGE - 192).remove(0);
        let zone = zone(&pool);
        let col = zone.place(one.slot).unwrap().col;
        for col in [col - 96, col + 96] {
            pool.medium().flip_bit(zone.p_at(col), 3).unwrap();
        }
        let (slot, before) = (one.slot, one.before.clone());
        at_step(&pool, "object.scrub.step-remake", move |pool| {
            pool.medium().stray(slot, &before).unwrap();
        });
        settled(&pool);
        pool.medium().clear_on_step();
        one.is_there(&pool, &format!("{kind} {parity:?}"));
    }
}

/// The same while a commit is completed whose page turned bad under it.
#[test]
fn a_slot_that_falls_while_a_commit_is_completed_is_not_in_the_parity_of_its_columns() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let one = made(&pool, 1, |slot, of| slot / PAGE == of.offset() / PAGE).remove(0);
        let (long, at) = over(&pool, one.slot);
        let (hooked, slot, before) = (pool.clone(), one.slot, one.before.clone());
        let met = Arc::new(AtomicU64::new(0));
        let times = Arc::clone(&met);
        let bad = at / PAGE * PAGE;
        pool.medium().on_step(Box::new(move |site| {
            let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
            match site.name() {
                "object.commit.step-durable" if first(1) => {
                    hooked.medium().poison(bad, PAGE, Clear::Able).unwrap();
                }
                "object.redo_parity.step-sum" if first(2) => {
                    hooked.medium().stray(slot, &before).unwrap();
                }
                _ => {}
            }
        }));
        let from = at - long.offset();
        pool.run(|tx| tx.write_bytes(long, from, &pattern(8, 60))).unwrap();
        pool.medium().clear_on_step();
        let what = format!("{kind} {parity:?}");
        assert_eq!(met.load(Ordering::Acquire), 3, "{what}");
        settled(&pool);
        one.is_there(&pool, &what);
    }
}

/// Free bytes are hit, something is put over them, and the write of its slot is lost. The columns
/// of the bytes come before those of the slot: until these are settled, nobody knows that they are
/// not free.
#[test]
fn bytes_of_a_place_whose_slot_fell_are_not_taken_for_free_ones() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = pool(kind, Parity::PQ);
        let zone = zone(&pool);
        let col = |at| zone.place(at).unwrap().col / PAGE;
        let mut all = (0..2_000).map(|i| put(&pool, &pattern(i, 100)));
        let place = all.find(|of| {
            let spot = spot(&pool, *of);
            col(spot.slot) > col(spot.object)
        });
        let place = place.expect("a chunk lies over the end of a row");
        settled(&pool);
        let slot = spot(&pool, place).slot;
        pool.run(|tx| tx.free(place)).unwrap();
        settled(&pool);
        let before = read(&pool, slot);
        pool.medium().stray(place.offset(), &pattern(77, 100)).unwrap();
        let bytes = pattern(300, 100);
        let of = put(&pool, &bytes);
        assert_eq!(of.offset(), place.offset());
        if kind == MediumKind::File {
            pool.medium().sync(holdfast_pmem::Site::new("test.fallen.sync")).unwrap();
        }
        let one = Made { of, bytes, slot, before };
        one.fall(pool.medium());
        let done = scrub(&pool);
        one.is_there(&pool, &format!("{kind}"));
        assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
        settled(&pool);
        one.is_there(&pool, &format!("{kind}"));
    }
}

/// Something that is waited for.
#[derive(Default)]
struct Gate {
    told: Mutex<bool>,
    turned: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.told.lock().unwrap() = true;
        self.turned.notify_all();
    }

    fn wait(&self) {
        let told = self.told.lock().unwrap();
        drop(self.turned.wait_while(told, |told| !*told).unwrap());
    }
}

/// Does `work` while a thread has a view of an object, until that is told to let go of it: by the
/// first of these gates. It opens the second one then.
fn with_a_view<R>(pool: &TestPool, of: RawPtr, work: impl FnOnce([Arc<Gate>; 2]) -> R) -> R {
    let gates: [Arc<Gate>; 2] = Default::default();
    let held = Gate::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let view = pool.view_raw(of).unwrap();
            held.open();
            gates[0].wait();
            drop(view);
            gates[1].open();
        });
        held.wait();
        // What goes wrong must not leave the thread waiting.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(gates.clone())));
        gates[0].open();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A slot fell whose object somebody has a view of, and free bytes beside it were hit. These are
/// settled at once; who has the view is waited for, as if it were the slot alone.
#[test]
fn a_slot_that_somebody_holds_is_waited_for_beside_what_is_settled() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut three = made(&pool, 2, |slot, of| slot / PAGE == of.offset() / PAGE);
        let (one, free) = (three.remove(0), three.remove(0));
        pool.run(|tx| tx.free(free.of)).unwrap();
        settled(&pool);
        let done = with_a_view(&pool, one.of, |[let_go, gone]| {
            one.fall(pool.medium());
            pool.medium().stray(free.of.offset() + 8, &pattern(9, 60)).unwrap();
            let times = AtomicU64::new(0);
            pool.medium().on_step(Box::new(move |site| {
                let settles = site.name() == "object.scrub.step-settle";
                if settles && times.fetch_add(1, Ordering::AcqRel) == 1 {
                    let_go.open();
                    gone.wait();
                }
            }));
            let done = scrub(&pool);
            pool.medium().clear_on_step();
            done
        });
        let what = format!("{kind} {parity:?}");
        assert_eq!((done.lost, done.undecided), (0, 0), "{what}: {:?}", done.report.findings);
        settled(&pool);
        one.is_there(&pool, &what);
    }
}

/// The same under a commit that is completed: at first somebody holds the object, so its columns
/// are to say of it what they did. Something else there goes bad, and then it is brought back.
#[test]
fn what_is_brought_back_after_all_is_in_the_parity_of_a_completed_commit() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let which =
            |slot: u64, of: RawPtr| slot / PAGE == of.offset() / PAGE && slot.is_multiple_of(64);
        let one = made(&pool, 1, which).remove(0);
        let (long, at) = over(&pool, one.slot);
        let (hooked, met) = (pool.clone(), Arc::new(AtomicU64::new(0)));
        let times = Arc::clone(&met);
        // The page that goes bad at first lies in other columns: P alone makes up one of each.
        let (bad, beside) = ((at - PAGE) / PAGE * PAGE, one.slot + SLOT_LEN as u64);
        with_a_view(&pool, one.of, |[let_go, gone]| {
            one.fall(pool.medium());
            pool.medium().on_step(Box::new(move |site| {
                let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
                match site.name() {
                    "object.commit.step-durable" if first(1) => {
                        hooked.medium().poison(bad, PAGE, Clear::Able).unwrap();
                    }
                    "object.redo_parity.step-sum" if first(2) => {
                        hooked.medium().flip_bit(beside + 3, 3).unwrap();
                        let_go.open();
                        gone.wait();
                    }
                    _ => {}
                }
            }));
            let from = at - long.offset();
            let both = pool.run(|tx| {
                tx.write_bytes(long, from - PAGE, &pattern(8, 60))?;
                tx.write_bytes(long, from, &pattern(8, 60))
            });
            both.unwrap();
            pool.medium().clear_on_step();
        });
        let what = format!("{kind} {parity:?}");
        assert_eq!(met.load(Ordering::Acquire), 3, "{what}");
        settled(&pool);
        one.is_there(&pool, &what);
    }
}

/// Bytes of a row beside an object's, over these columns, that nobody has.
fn free_beside(pool: &TestPool, at: u64) -> u64 {
    let (zone, table) = (zone(pool), crate::older::table(pool));
    let place = zone.place(at).unwrap();
    let free = |at: &u64| {
        let map = crate::erased::map(pool);
        let chunk = table.chunk_of(*at);
        chunk.is_some_and(|chunk| {
            map.heap.zone(0).unwrap().entry(chunk).is_none_or(|e| e.kind == ChunkKind::Free)
        })
    };
    let mut all = (0..zone.data_rows()).rev().map(|row| zone.at(row, place.col));
    all.find(free).expect("a free chunk lies over these columns")
}

/// A page went back with an object and its slot, and free bytes of another row are hit between the
/// two, or beside the slot: each byte names the row that is wrong there.
#[test]
fn a_page_that_went_back_is_told_from_what_is_hit_in_another_row() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for beside in [true, false] {
            let pool = pool(kind, Parity::PQ);
            let all: Vec<RawPtr> = (0..20).map(|i| put(&pool, &pattern(i, 100))).collect();
            settled(&pool);
            let place = all[5];
            let before = crate::stale::page(&pool, place.offset());
            let slot = spot(&pool, place).slot;
            assert_eq!(slot / PAGE, place.offset() / PAGE);
            let one = Made::at(&pool, place, pattern(100, 100));
            settled(&pool);
            let at = if beside { slot + SLOT_LEN as u64 } else { slot + 200 };
            assert!(at < place.offset());
            let hit = free_beside(&pool, at);
            pool.medium().stray(hit, &pattern(3, 40)).unwrap();
            pool.medium().stray(place.offset() / PAGE * PAGE, &before).unwrap();
            settled(&pool);
            one.is_there(&pool, &format!("{kind} beside {beside}"));
        }
    }
}

/// The same of a slot and its bytes on another page, in whose columns the other row is hit.
#[test]
fn two_pages_that_went_back_are_told_from_what_is_hit_in_another_row() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = pool(kind, Parity::PQ);
        let all: Vec<RawPtr> = (0..50).map(|i| put(&pool, &pattern(i, 100))).collect();
        settled(&pool);
        let apart = |of: &&RawPtr| spot(&pool, **of).slot / PAGE != of.offset() / PAGE;
        let place = *all.iter().find(apart).unwrap();
        let before = crate::stale::page(&pool, place.offset());
        let one = Made::at(&pool, place, pattern(100, 100));
        settled(&pool);
        let hit = free_beside(&pool, place.offset() + 500);
        pool.medium().stray(hit, &pattern(3, 40)).unwrap();
        pool.medium().stray(place.offset() / PAGE * PAGE, &before).unwrap();
        one.fall(pool.medium());
        settled(&pool);
        one.is_there(&pool, &format!("{kind}"));
    }
}

/// A slot fell, and parity over it cannot be read: it is made anew from the row as it is, and the
/// other parity knows better.
#[test]
fn a_slot_that_fell_under_parity_that_cannot_be_read_comes_back() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for (q, scrubbed) in [(false, false), (false, true), (true, false), (true, true)] {
            let pool = pool(kind, Parity::PQ);
            let one = made(&pool, 1, |slot, of| slot / PAGE == of.offset() / PAGE).remove(0);
            let zone = zone(&pool);
            let col = zone.place(one.slot).unwrap().col;
            let parity = if q { zone.q_at(col) } else { zone.p_at(col) } / PAGE * PAGE;
            one.fall(pool.medium());
            pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
            let what = format!("{kind} Q {q}, scrubbed {scrubbed}");
            if scrubbed {
                settled(&pool);
            } else {
                assert!(pool.heal_load(parity, PAGE), "{what}");
            }
            one.is_there(&pool, &what);
            settled(&pool);
            one.is_there(&pool, &what);
        }
    }
}

/// The same where that is found by a commit over these columns.
#[test]
fn a_slot_that_fell_under_parity_that_a_commit_cannot_write_comes_back() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for (q, further) in [(false, 0), (false, 1_000), (true, 0), (true, 1_000)] {
            let pool = pool(kind, Parity::PQ);
            let which =
                |slot: u64, of: RawPtr| slot / PAGE == of.offset() / PAGE && slot % PAGE < 2_000;
            let one = made(&pool, 1, which).remove(0);
            let (long, at) = over(&pool, one.slot);
            let zone = zone(&pool);
            let col = zone.place(one.slot).unwrap().col;
            let parity = if q { zone.q_at(col) } else { zone.p_at(col) } / PAGE * PAGE;
            one.fall(pool.medium());
            at_step(&pool, "object.commit.step-durable", move |pool| {
                pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
            });
            let from = at - long.offset() + further;
            pool.run(|tx| tx.write_bytes(long, from, &pattern(8, 60))).unwrap();
            pool.medium().clear_on_step();
            settled(&pool);
            one.is_there(&pool, &format!("{kind} Q {q} further {further}"));
        }
    }
}

/// Writes to an object: a page before `at`, and so far behind it so many bytes. The first page
/// turns bad under the commit, which is completed.
pub(crate) fn complete(pool: &TestPool, of: RawPtr, at: u64, writes: &[(u64, usize)]) {
    let (bad, from) = ((at - PAGE) / PAGE * PAGE, at - of.offset());
    at_step(pool, "object.commit.step-durable", move |pool| {
        pool.medium().poison(bad, PAGE, Clear::Able).unwrap();
    });
    let all = pool.run(|tx| {
        tx.write_bytes(of, from - PAGE, &pattern(8, 60))?;
        writes
            .iter()
            .try_for_each(|(behind, len)| tx.write_bytes(of, from + behind, &pattern(8, *len)))
    });
    all.unwrap();
    pool.medium().clear_on_step();
}

/// Somebody holds an object whose page went back while a commit is completed, also over bytes of it
/// that are the same: parity goes on saying what the rest was.
#[test]
fn parity_of_a_completed_commit_goes_on_saying_what_somebody_holds() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let all: Vec<RawPtr> = (0..20).map(|i| put(&pool, &pattern(i, 100))).collect();
        let (place, before) = (all[5], crate::stale::page(&pool, all[5].offset()));
        assert_eq!(spot(&pool, place).slot / PAGE, place.offset() / PAGE);
        // The middle of what is put there is what was there before.
        let mut bytes = pattern(5, 100);
        [0, 99].iter().for_each(|at: &usize| bytes[*at] = !bytes[*at]);
        let one = Made::at(&pool, place, bytes);
        let (long, at) = over(&pool, one.slot);
        with_a_view(&pool, one.of, |_| {
            pool.medium().stray(place.offset() / PAGE * PAGE, &before).unwrap();
            complete(&pool, long, at, &[(0, 60), (40 + one.of.offset() - one.slot, 20)]);
        });
        settled(&pool);
        one.is_there(&pool, &format!("{kind} {parity:?}"));
    }
}

/// The same where the completion begins anew: parity of another page, which it comes to later,
/// stays bad, and moves.
#[test]
fn parity_of_a_completed_commit_goes_on_saying_it_though_that_is_done_twice() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let same = |slot: u64, of: RawPtr| slot / PAGE == of.offset() / PAGE;
        let one = made(&pool, 1, same).remove(0);
        // More than a row.
        let (zone, long) = (zone(&pool), put(&pool, &pattern(9, 150_000)));
        settled(&pool);
        let col = zone.place(one.slot).unwrap().col;
        let inside = long.offset()..long.offset() + 150_000 - 2 * PAGE;
        let mut all = (0..zone.data_rows()).map(|row| zone.at(row, col));
        let at = all.find(|at| inside.contains(at)).expect("it is longer than a row");
        let from = at - long.offset();
        let later = zone.place(at + PAGE).unwrap().col;
        assert!(later > zone.place(at).unwrap().col, "both lie in one row");
        let bad = zone.p_at(later) / PAGE * PAGE;
        with_a_view(&pool, one.of, |_| {
            one.fall(pool.medium());
            at_step(&pool, "object.commit.step-durable", move |pool| {
                pool.medium().poison(bad, PAGE, Clear::Unable).unwrap();
            });
            let both = pool.run(|tx| {
                tx.write_bytes(long, from, &pattern(8, 60))?;
                tx.write_bytes(long, from + PAGE, &pattern(8, 60))
            });
            both.unwrap();
            pool.medium().clear_on_step();
        });
        settled(&pool);
        one.is_there(&pool, &format!("{kind} {parity:?}"));
    }
}

/// A slot and its bytes on another page fell, and a commit over the columns of the slot is
/// completed: both are judged together then as well.
#[test]
fn a_slot_and_bytes_that_fell_together_come_back_under_a_completed_commit() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let all: Vec<RawPtr> = (0..50).map(|i| put(&pool, &pattern(i, 100))).collect();
        let apart = |of: &&RawPtr| spot(&pool, **of).slot / PAGE != of.offset() / PAGE;
        let place = *all.iter().find(apart).unwrap();
        let before = crate::stale::page(&pool, place.offset());
        let one = Made::at(&pool, place, pattern(100, 100));
        let (long, at) = over(&pool, one.slot);
        one.fall(pool.medium());
        pool.medium().stray(place.offset() / PAGE * PAGE, &before).unwrap();
        complete(&pool, long, at, &[(0, 60)]);
        settled(&pool);
        one.is_there(&pool, &format!("{kind} {parity:?}"));
    }
}
