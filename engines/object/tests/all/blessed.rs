//! Damage that comes about between a judgement and what is made from it: parity that is made anew
//! must not have it in, and what is written before anybody knows of it must be there in the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{TestPool, clock, closed, get, pattern, put};
use crate::meanwhile::at_step;
use crate::returning::cut;
use crate::stale::{KINDS, forgetting, scrub, ten, write};
use holdfast_faultmem::{Clear, Config, FaultMedium, Image};
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, OpenOptions, Parity, Pool, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_txn::Transaction;

const LONG: usize = 28_000;
/// Longest time until a thread comes to where it has to.
const PATIENCE: Duration = Duration::from_secs(60);

struct Two {
    pool: TestPool,
    zone: Zone,
    /// Long objects, and what they are.
    one: (RawPtr, Vec<u8>),
    other: (RawPtr, Vec<u8>),
}

fn two(kind: MediumKind, parity: Parity) -> Two {
    let options = CreateOptions { parity, rows: 100, ..CreateOptions::tiny(1 << 20) };
    let m = FaultMedium::new(options.size, kind, &Config::default());
    // Many words: a scrub waits at each place whose word a commit holds, if only by chance.
    let pool = Pool::create(m, &options, OpenOptions::default(), clock()).unwrap();
    pool.set_verify_reads(VerifyReads::Always);
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let [one, other] = [1, 2].map(|seed| (put(&pool, &pattern(seed, LONG)), pattern(seed, LONG)));
    Two { zone: Zone::new(&region, 0).unwrap(), pool, one, other }
}

impl Two {
    /// A byte of the other object that lies over the same column as one in the middle of the one.
    fn beside(&self, at: u64) -> u64 {
        let col = self.zone.place(at).unwrap().col;
        let (from, to) = (self.other.0.offset() + 2 * PAGE, self.other.0.offset() + 5 * PAGE);
        let all = (0..self.zone.data_rows()).map(|row| self.zone.at(row, col));
        all.into_iter().find(|at| (from..to).contains(at)).unwrap()
    }

    /// Opens what a crash left, with a record to replay, and has `harm` done once all that was
    /// damaged is cured.
    fn opened(&mut self, image: Image, harm: impl Fn(&FaultMedium) + Send + Sync + 'static) {
        self.opened_after(image, move |m, barrier| {
            if barrier == 0 {
                harm(m)
            }
        });
    }

    /// The same with `harm` at each barrier from then on, with its number.
    fn opened_after(
        &mut self,
        image: Image,
        harm: impl Fn(&FaultMedium, u64) + Send + Sync + 'static,
    ) {
        let m = FaultMedium::from_crash(image, self.pool.medium().kind(), &Config::default());
        let done = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&done);
        m.on_barrier(Box::new(move |m, site, _| {
            let cured = ["object.redo.cured", "object.redo.cured-sync"].contains(&site.name());
            if cured || told.load(Ordering::Acquire) > 0 {
                harm(m, told.fetch_add(1, Ordering::AcqRel));
            }
        }));
        let (pool, opened) = Pool::open(m, OpenOptions::default(), clock()).unwrap();
        pool.medium().clear_on_barrier();
        assert!(opened.recovered.replayed > 0 && done.load(Ordering::Acquire) > 0);
        pool.set_verify_reads(VerifyReads::Always);
        self.pool = pool;
    }

    fn nothing_is_lost(&self, what: &str) {
        for (of, bytes) in [&self.one, &self.other] {
            assert!(get(&self.pool, *of).unwrap() == *bytes, "{what}: {of}");
        }
        let done = scrub(&self.pool);
        assert_eq!(done.lost, 0, "{what}: {:?}", done.report.findings);
        let report = self.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
        assert_eq!(self.pool.stats().lost, 0, "{what}");
    }
}

fn invert(pool: &TestPool, at: u64, len: u64) {
    invert_on(pool.medium(), at, len);
}

pub(crate) fn invert_on(m: &FaultMedium, at: u64, len: u64) {
    let mut bytes = vec![0; len as usize];
    m.read(at, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    m.stray(at, &bytes).unwrap();
}

#[test]
fn damage_between_the_judgement_of_rows_and_parity_made_from_them_is_not_in_it() {
    for (kind, parity) in KINDS {
        let f = two(kind, parity);
        let at = f.one.0.offset() + 9_000;
        let (col, hit) = (f.zone.place(at).unwrap().col, f.beside(at));
        // Parity is wrong on both sides of what goes bad, and not over it.
        for col in [col - 1_500, col + 1_500] {
            f.pool.medium().flip_bit(f.zone.p_at(col), 3).unwrap();
        }
        at_step(&f.pool, "object.scrub.step-remake", move |pool| invert(pool, hit, 40));
        let done = scrub(&f.pool);
        f.pool.medium().clear_on_step();
        let what = format!("{kind} {parity:?}");
        assert_eq!(done.lost, 0, "{what}: {:?}", done.report.findings);
        f.nothing_is_lost(&what);
    }
}

/// Writes something at `at` of the one object, and something over half of the same columns of the
/// other. What a crash leaves of it before the first store, and a byte of the other write.
fn written_over_each_other(f: &mut Two, at: u64) -> (Image, u64) {
    let hit = f.beside(f.one.0.offset() + at) + 30;
    let within = hit - f.other.0.offset();
    let (one, other, new) = (f.one.0, f.other.0, [pattern(9, 60), pattern(10, 60)]);
    let image = cut(&f.pool, || {
        let both = f.pool.run(|tx| {
            tx.write_bytes(one, at, &new[0])?;
            tx.write_bytes(one, at - PAGE, &new[0])?;
            tx.write_bytes(other, within, &new[1])
        });
        both.unwrap();
    });
    for from in [at, at - PAGE] {
        f.one.1[from as usize..from as usize + 60].copy_from_slice(&new[0]);
    }
    f.other.1[within as usize..within as usize + 60].copy_from_slice(&new[1]);
    (image, hit)
}

/// The page of one object turns bad under the store of what a record says of it, once what it says
/// of another object over the same columns is stored: by then parity goes with neither. And so
/// often at the barriers that follow.
fn turned_bad_between_the_stores(times: u64) {
    for (kind, parity) in KINDS {
        let mut f = two(kind, parity);
        let at = f.one.0.offset() + 9_000;
        let (image, hit) = written_over_each_other(&mut f, 9_000);
        let bad = at.max(hit) / PAGE * PAGE;
        f.opened_after(image, move |m, barrier| {
            if barrier < times {
                m.poison(bad, PAGE, Clear::Able).unwrap();
            }
        });
        f.nothing_is_lost(&format!("{kind} {parity:?}"));
    }
}

#[test]
fn a_page_that_turns_bad_between_the_stores_of_a_record_comes_back() {
    turned_bad_between_the_stores(1);
}

/// The second time parity of another column is being stored: what its columns sum up to is still
/// known, so their parity does not wait for it.
#[test]
fn a_page_that_turns_bad_twice_comes_back() {
    turned_bad_between_the_stores(2);
}

/// A commit of `at` meets a page that turned bad once its record was durable, and is completed.
/// `before` happens with that, and `meanwhile` at a step of the completion.
fn completed(
    f: &mut Two,
    at: u64,
    before: impl Fn(&TestPool) + Send + Sync + 'static,
    (step, meanwhile): (&'static str, impl Fn(&TestPool) + Send + Sync + 'static),
) {
    let met = Arc::new(AtomicU64::new(0));
    let (pool, times) = (f.pool.clone(), Arc::clone(&met));
    f.pool.medium().on_step(Box::new(move |site| {
        let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if site.name() == "object.commit.step-durable" && first(1) {
            pool.medium().poison(at / PAGE * PAGE, PAGE, Clear::Able).unwrap();
            before(&pool);
        } else if site.name() == step && first(2) {
            meanwhile(&pool);
        }
    }));
    let (of, new) = (f.one.0, pattern(9, 60));
    let from = at - of.offset();
    f.pool.run(|tx| tx.write_bytes(of, from, &new)).unwrap();
    f.pool.medium().clear_on_step();
    f.one.1[from as usize..from as usize + 60].copy_from_slice(&new);
    assert_eq!(met.load(Ordering::Acquire), 3, "{step} was passed");
}

/// Something goes bad in another row of the columns that it changed.
#[test]
fn damage_while_a_commit_is_completed_is_not_in_the_parity_of_its_columns() {
    for (kind, parity) in KINDS {
        for step in ["object.redo_parity.step-sum", "object.redo.step-cured"] {
            let mut f = two(kind, parity);
            let at = f.one.0.offset() + 9_000;
            let hit = f.beside(at);
            completed(&mut f, at, |_| {}, (step, move |pool| invert(pool, hit + 5, 30)));
            f.nothing_is_lost(&format!("{kind} {parity:?} {step}"));
        }
    }
}

/// Something was bad in that other row: its page cannot be read any more when it is about to be
/// cured, or once it is known how.
#[test]
fn a_page_that_turns_bad_while_its_unit_is_cured_comes_back() {
    for (kind, parity) in KINDS {
        for step in ["object.redo.step-reached", "object.redo.step-cure"] {
            let mut f = two(kind, parity);
            let at = f.one.0.offset() + 9_000;
            let hit = f.beside(at);
            let page = hit / PAGE * PAGE;
            let turn_bad =
                move |pool: &TestPool| pool.medium().poison(page, PAGE, Clear::Able).unwrap();
            completed(&mut f, at, move |pool| invert(pool, hit + 5, 30), (step, turn_bad));
            f.nothing_is_lost(&format!("{kind} {parity:?} {step}"));
        }
    }
}

/// A write to another row of the columns was lost, as a completion finds: its page cannot be read
/// any more when it is about to be stored again.
#[test]
fn a_page_that_turns_bad_while_a_lost_write_is_brought_back_has_it() {
    for (kind, parity) in KINDS {
        let mut f = two(kind, parity);
        let mut ten = ten(&f.pool);
        let (small, model) = &mut ten[3];
        let hit = small.offset() + 40;
        forgetting(&f.pool, hit, || write(&f.pool, *small, 40, &pattern(30, 9), model));
        let col = f.zone.place(hit).unwrap().col;
        let (one, end) = (f.one.0.offset(), f.one.0.offset() + LONG as u64 - PAGE);
        let at = (0..f.zone.data_rows()).map(|row| f.zone.at(row, col));
        let at = at.into_iter().find(|at| (one + PAGE..end).contains(at)).unwrap();
        // The page that goes bad at first lies in other columns: P alone makes up one of each.
        let (bad, page) = ((at - PAGE) / PAGE * PAGE, hit / PAGE * PAGE);
        let (pool, times) = (f.pool.clone(), Arc::new(AtomicU64::new(0)));
        let met = Arc::clone(&times);
        f.pool.medium().on_step(Box::new(move |site| {
            let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
            let poison = |at| pool.medium().poison(at, PAGE, Clear::Able).unwrap();
            match site.name() {
                "object.commit.step-durable" if first(1) => poison(bad),
                "object.redo.step-newer" if first(2) => poison(page),
                _ => {}
            }
        }));
        let (of, new) = (f.one.0, pattern(9, 60));
        for at in [at - PAGE - one, at - one] {
            f.one.1[at as usize..at as usize + 60].copy_from_slice(&new);
        }
        let both = f.pool.run(|tx| {
            tx.write_bytes(of, at - PAGE - one, &new)?;
            tx.write_bytes(of, at - one, &new)
        });
        both.unwrap();
        f.pool.medium().clear_on_step();
        let what = format!("{kind} {parity:?}");
        assert_eq!(met.load(Ordering::Acquire), 3, "{what}");
        f.pool.run(|tx| tx.write_bytes(of, 0, &f.one.1[..8])).expect(&what);
        for (of, bytes) in &ten {
            assert!(get(&f.pool, *of).unwrap() == *bytes, "{what}: {of}");
        }
        f.nothing_is_lost(&what);
    }
}

/// A crash left a record of which nothing is applied: parity is that of the bytes it replaces.
/// Something goes bad in another row once all that was damaged is cured.
#[test]
fn damage_while_a_record_is_replayed_is_not_in_the_parity_of_its_columns() {
    for (kind, parity) in KINDS {
        let mut f = two(kind, parity);
        let at = f.one.0.offset() + 9_000;
        let hit = f.beside(at);
        let (of, new) = (f.one.0, pattern(9, 60));
        let image = cut(&f.pool, || f.pool.run(|tx| tx.write_bytes(of, 9_000, &new)).unwrap());
        f.one.1[9_000..9_060].copy_from_slice(&new);
        f.opened(image, move |m| invert_on(m, hit + 5, 30));
        f.nothing_is_lost(&format!("{kind} {parity:?}"));
    }
}

/// The chunks of a pool as they are, to find what is written into free ones.
struct Chunks {
    from: u64,
    bytes: Vec<u8>,
}

impl Chunks {
    fn of(pool: &TestPool) -> Self {
        let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let from = ZoneTable::new(0, &region).chunks_at();
        let end = region.start + u64::from(region.data_rows) * region.row_len;
        let mut bytes = vec![0; (end - from) as usize];
        pool.medium().read(from, &mut bytes).unwrap();
        Self { from, bytes }
    }

    /// Has a stray write hit what was written since, `past` its first byte, and a scrub come upon
    /// it, to which free bytes are free bytes. Answers where it hit.
    fn hit(&self, pool: &TestPool, past: u64, len: u64) -> u64 {
        let now = Self::of(pool).bytes;
        let first = (0..now.len()).find(|i| now[*i] != self.bytes[*i]).unwrap() as u64;
        let at = self.from + first + past;
        invert(pool, at, len);
        let done = std::thread::scope(|scope| scope.spawn(|| scrub(pool)).join().unwrap());
        assert_eq!((done.repaired, done.lost), (1, 0), "{:?}", done.report.findings);
        at
    }
}

/// Has what was written into free chunks hit when `step` is passed; another scrub comes when `then`
/// is.
fn hit_before_it_is_known<R>(
    f: &Two,
    [step, then]: [&'static str; 2],
    work: impl FnOnce() -> R,
) -> R {
    let (before, met) = (Chunks::of(&f.pool), Arc::new(AtomicU64::new(0)));
    let (pool, times) = (f.pool.clone(), Arc::clone(&met));
    f.pool.medium().on_step(Box::new(move |site| {
        let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if site.name() == step && first(1) {
            before.hit(&pool, 20, 200);
        } else if site.name() == then && first(2) {
            let done = std::thread::scope(|scope| scope.spawn(|| scrub(&pool)).join().unwrap());
            assert_eq!(done.lost, 0, "{:?}", done.report.findings);
        }
    }));
    let made = work();
    f.pool.medium().clear_on_step();
    assert_eq!(met.load(Ordering::Acquire), 3, "{step} and {then} were passed");
    made
}

#[test]
fn slots_that_are_hit_before_their_run_is_known_are_there_in_the_end() {
    for (kind, parity) in KINDS {
        let f = two(kind, parity);
        let what = format!("{kind} {parity:?}");
        let steps = ["object.chunks.step-slots", "object.chunks.step-shown"];
        let small = hit_before_it_is_known(&f, steps, || put(&f.pool, &[7; 90]));
        f.nothing_is_lost(&what);
        // All places of the run can be had.
        let more: Vec<RawPtr> = (0..40).map(|i| put(&f.pool, &[i; 90])).collect();
        assert_eq!(get(&f.pool, small).unwrap(), [7; 90], "{what}");
        for (i, of) in more.into_iter().enumerate() {
            assert_eq!(get(&f.pool, of).unwrap(), [i as u8; 90], "{what}");
        }
        f.nothing_is_lost(&what);
    }
}

#[test]
fn an_object_that_is_hit_before_its_commit_is_there_in_the_end() {
    for (kind, parity) in KINDS {
        let f = two(kind, parity);
        let (what, bytes) = (format!("{kind} {parity:?}"), pattern(5, LONG));
        let steps = ["object.in_place.step-stored", "object.commit.step-done"];
        let made = hit_before_it_is_known(&f, steps, || put(&f.pool, &bytes));
        assert!(get(&f.pool, made).unwrap() == bytes, "{what}");
        f.nothing_is_lost(&what);
    }
}

/// The same, and a repair comes by when the object is known and has not been stored again: it
/// waits.
#[test]
fn an_object_that_was_hit_before_its_commit_is_not_called_lost_after_it() {
    for (kind, parity) in KINDS {
        let f = two(kind, parity);
        let (what, bytes) = (format!("{kind} {parity:?}"), pattern(5, LONG));
        let before = Chunks::of(&f.pool);
        let (pool, judged) = (f.pool.clone(), (Mutex::new(0), Condvar::new()));
        let repaired = Arc::new(Mutex::new(None));
        let repairing = Arc::clone(&repaired);
        let (met, place) = (AtomicU64::new(0), AtomicU64::new(0));
        f.pool.medium().on_step(Box::new(move |site| {
            let first = |bit| met.fetch_or(bit, Ordering::AcqRel) & bit == 0;
            match site.name() {
                "object.in_place.step-stored" if first(1) => {
                    place.store(before.hit(&pool, 2_000, 200), Ordering::Release);
                }
                "object.in_place.step-known" if first(2) => {
                    let pool = pool.clone();
                    let at = place.load(Ordering::Acquire);
                    let repair = std::thread::spawn(move || pool.heal_load(at, 64));
                    *repairing.lock().unwrap() = Some(repair);
                    let held = judged.0.lock().unwrap();
                    // Twice: before the entry of its chunk was asked, and as the last word.
                    let last = judged.1.wait_timeout_while(held, PATIENCE, |times| *times < 2);
                    assert!(!last.unwrap().1.timed_out(), "the repair judges");
                }
                // Its columns are held: who made it cannot store it now.
                "object.mend_unit.step-held" if met.load(Ordering::Acquire) & 2 == 2 => {
                    *judged.0.lock().unwrap() += 1;
                    judged.1.notify_all();
                }
                _ => {}
            }
        }));
        let made = put(&f.pool, &bytes);
        f.pool.medium().clear_on_step();
        let repair = repaired.lock().unwrap().take().unwrap();
        assert!(repair.join().unwrap(), "{what}: what was hit is good again");
        assert!(get(&f.pool, made).unwrap() == bytes, "{what}");
        f.nothing_is_lost(&what);
    }
}

/// The same, and the commit meets a page that turned bad: what it made is stored again before it is
/// completed, and judged.
#[test]
fn an_object_that_was_hit_before_its_commit_is_not_called_lost_by_it() {
    for (kind, parity) in KINDS {
        let f = two(kind, parity);
        let (what, bytes) = (format!("{kind} {parity:?}"), pattern(5, LONG));
        let (pool, before, zone) = (f.pool.clone(), Chunks::of(&f.pool), f.zone);
        let met = Arc::new(AtomicU64::new(0));
        let (times, place) = (Arc::clone(&met), AtomicU64::new(0));
        f.pool.medium().on_step(Box::new(move |site| {
            let first = |bit| times.fetch_or(bit, Ordering::AcqRel) & bit == 0;
            match site.name() {
                "object.in_place.step-stored" if first(1) => {
                    place.store(before.hit(&pool, 20, 1_200), Ordering::Release);
                }
                "object.commit.step-durable" if first(2) => {
                    let p = zone.p_at(zone.place(place.load(Ordering::Acquire)).unwrap().col);
                    pool.medium().poison(p / PAGE * PAGE, PAGE, Clear::Able).unwrap();
                }
                _ => {}
            }
        }));
        let made = put(&f.pool, &bytes);
        f.pool.medium().clear_on_step();
        assert_eq!(met.load(Ordering::Acquire), 3, "{what}: both steps were passed");
        assert_eq!(f.pool.stats().lost, 0, "{what}");
        assert!(get(&f.pool, made).unwrap() == bytes, "{what}");
        f.nothing_is_lost(&what);
    }
}

/// An entry of the directory is damaged in a closed pool, and while an open mends it, its page
/// turns bad.
#[test]
fn a_page_that_turns_bad_while_an_open_mends_an_entry_keeps_no_pool_closed() {
    for (kind, parity) in KINDS {
        let mut f = two(kind, parity);
        let region = *f.pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let table = ZoneTable::new(0, &region);
        let entry = table.entry_at(table.chunk_of(f.one.0.offset()).unwrap());
        let image = closed(core::mem::replace(&mut f.pool, two(kind, parity).pool));
        let mut turn = 0;
        loop {
            let m = FaultMedium::from_crash(image.clone(), kind, &Config::default());
            invert_on(&m, entry + 4, 6);
            let passed = Arc::new(AtomicU64::new(0));
            let barriers = Arc::clone(&passed);
            m.on_barrier(Box::new(move |m, _, _| {
                if barriers.fetch_add(1, Ordering::AcqRel) == turn {
                    m.poison(entry / PAGE * PAGE, PAGE, Clear::Able).unwrap();
                }
            }));
            let what = format!("{kind} {parity:?}, bad at barrier {turn}");
            let opened = Pool::open(m, OpenOptions::default(), clock());
            let (pool, opened) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.medium().clear_on_barrier();
            assert!(opened.mended > 0, "{what}");
            f.pool = pool;
            f.nothing_is_lost(&what);
            if passed.load(Ordering::Acquire) <= turn {
                break;
            }
            turn += 1;
        }
        assert!(turn > 2, "{kind} {parity:?}: {turn} barriers");
    }
}
