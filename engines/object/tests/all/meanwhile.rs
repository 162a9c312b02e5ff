//! What is judged while somebody else repairs, frees or damages it: a verdict is about bytes that
//! lay there together, and about a place that there still is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::{TestPool, crash, create_with, get, pattern, put, reopened};
use holdfast_faultmem::{Clear, FailMode};
use holdfast_heap::ZoneTable;
use holdfast_heap::format::GRANULE;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{
    CreateOptions, Error, Parity, ScrubControl, ScrubOptions, Scrubbed, VerifyReads,
};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_txn::{Transaction, TxError};

fn tiny(parity: Parity, len: u64) -> TestPool {
    let pool = create_with(MediumKind::Shm, &CreateOptions { parity, ..CreateOptions::tiny(len) });
    pool.set_verify_reads(VerifyReads::Always);
    pool
}

fn region(pool: &TestPool) -> Region {
    *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap()
}

fn scrub(pool: &TestPool) -> Scrubbed {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
}

fn clean(pool: &TestPool) {
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// The chunk in which an object begins: of one that has chunks of its own, its slot.
fn head(pool: &TestPool, of: RawPtr) -> u64 {
    let table = ZoneTable::new(0, &region(pool));
    table.chunk_at(table.chunk_of(of.offset()).unwrap())
}

/// Where the slot of an object of a run is, known by its length.
fn slot(pool: &TestPool, of: RawPtr, len: u32) -> u64 {
    let head = head(pool, of);
    let says = |at: &u64| {
        let mut bytes = [0; 4];
        pool.medium().read(at + 12, &mut bytes).unwrap();
        u32::from_le_bytes(bytes) == len
    };
    (head..of.offset()).step_by(16).find(says).unwrap()
}

/// Does something on another thread the first time that `step` is passed.
pub(crate) fn at_step(
    pool: &TestPool,
    step: &'static str,
    what: impl Fn(&TestPool) + Send + Sync + 'static,
) {
    let (hooked, what, done) = (pool.clone(), Arc::new(what), AtomicBool::new(false));
    pool.medium().on_step(Box::new(move |site| {
        if site.name() == step && !done.swap(true, Ordering::AcqRel) {
            let (pool, what) = (hooked.clone(), Arc::clone(&what));
            std::thread::spawn(move || what(&pool)).join().unwrap();
        }
    }));
}

/// A flipped bit of a slot is repaired between the look at the slot and its verification. Nothing
/// that the damaged slot said may be answered.
#[test]
fn a_slot_that_is_repaired_while_it_is_judged_says_nothing() {
    let generation = 4 * 8;
    let (state, kind, len) = (6 * 8, 8 * 8 + 3, 12 * 8);
    for bit in [generation, state, kind, len] {
        let pool = tiny(Parity::P, 1 << 20);
        let bytes = pattern(1, 777);
        let p = put(&pool, &bytes);
        let slot = slot(&pool, p, 777);
        pool.medium().flip_bit(slot + bit / 8, (bit % 8) as u8).unwrap();
        at_step(&pool, "object.judged.step-read", move |pool| {
            assert!(pool.heal_load(slot, 16));
        });
        let read = pool.run(|tx| Ok((tx.type_of(p)?, tx.len_of(p)?)));
        assert_eq!(read.unwrap(), (holdfast_layout::TypeNumber::BYTES, 777), "bit {bit}");
        assert_eq!(get(&pool, p).unwrap(), bytes, "bit {bit}");
        pool.medium().clear_on_step();
        clean(&pool);
    }
}

/// The page of a large object is repaired unit by unit; before the second one, the object is freed.
#[test]
fn an_object_that_is_freed_beside_a_repair_is_not_lost() {
    let pool = tiny(Parity::P, 1 << 20);
    let p = put(&pool, &pattern(1, 20_000));
    let page = (p.offset() + 9_000) / PAGE * PAGE;
    pool.medium().poison(page, PAGE, holdfast_faultmem::Clear::Able).unwrap();
    at_step(&pool, "object.repair.step-held", move |pool| {
        pool.run(|tx| tx.free(p)).unwrap();
    });
    // The head's page has the sums of all of it.
    assert!(pool.heal_load(head(&pool, p), PAGE));
    pool.medium().clear_on_step();
    let done = scrub(&pool);
    assert_eq!(done.lost, 0, "{:?}", done.report.findings);
    assert_eq!(pool.stats().lost, 0);
    clean(&pool);
}

/// A large object is being freed: its slot says so already, its entry does not. A scrub that finds
/// parity wrong over another page of it holds neither.
#[test]
fn an_object_that_is_being_freed_is_nothing_that_is_lost() {
    // On a busy machine the free may take longer than a scrub waits: not each time.
    assert!(std::iter::repeat_with(undecided_beside_a_free).take(5).any(|number| number == 0));
}

fn undecided_beside_a_free() -> u64 {
    let pool = tiny(Parity::P, 1 << 20);
    let p = put(&pool, &pattern(1, 20_000));
    let zone = Zone::new(&region(&pool), 0).unwrap();
    let place = zone.place((p.offset() + 9_000) / PAGE * PAGE).unwrap();
    pool.medium().flip_bit(zone.p_at(place.col) + 7, 3).unwrap();
    let (hooked, freeing, pause) =
        (pool.clone(), AtomicBool::new(false), Duration::from_millis(30));
    pool.medium().on_step(Box::new(move |site| match site.name() {
        "object.scrub.step-settle" if !freeing.swap(true, Ordering::AcqRel) => {
            let pool = hooked.clone();
            std::thread::spawn(move || pool.run(|tx| tx.free(p)).unwrap());
            std::thread::sleep(pause);
        }
        "object.commit.step-applied" => std::thread::sleep(2 * pause),
        _ => {}
    }));
    let done = scrub(&pool);
    pool.medium().clear_on_step();
    assert_eq!(done.lost, 0, "{:?}", done.report.findings);
    while get(&pool, p).is_ok() {
        std::thread::yield_now();
    }
    let again = scrub(&pool);
    assert_eq!(again.lost + again.undecided, 0, "{:?}", again.report.findings);
    clean(&pool);
    done.undecided
}

/// Columns do not add up, and their rows were mended; before the columns are settled, a row turns
/// bad. It is mended as it would have been a moment earlier, and nothing over them is given up.
#[test]
fn what_turns_bad_before_columns_are_settled_is_mended() {
    for parity in [Parity::P, Parity::PQ] {
        let pool = tiny(parity, 1 << 20);
        let p = put(&pool, &pattern(1, 900));
        let zone = Zone::new(&region(&pool), 0).unwrap();
        let place = zone.place(p.offset()).unwrap();
        pool.medium().flip_bit(zone.p_at(place.col) + 7, 3).unwrap();
        at_step(&pool, "object.scrub.step-settle", move |pool| {
            pool.medium().flip_bit(p.offset() + 400, 3).unwrap();
        });
        let done = scrub(&pool);
        pool.medium().clear_on_step();
        assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
        assert_eq!(pool.stats().lost, 0);
        assert_eq!(get(&pool, p).unwrap(), pattern(1, 900));
        clean(&pool);
    }
}

/// Free bytes are damaged, and parity made to agree with that, between the look at them and the
/// commit of the object that is put there.
#[test]
fn parity_goes_by_what_is_overwritten() {
    for len in [300_usize, 5_000] {
        let pool = tiny(Parity::P, 1 << 20);
        let _ = put(&pool, &pattern(1, len));
        let bytes = pattern(2, len);
        let mut flipped = false;
        let p = pool.run(|tx| {
            let p = tx.alloc_from(holdfast_layout::TypeNumber::BYTES, &bytes)?;
            if !std::mem::replace(&mut flipped, true) {
                pool.medium().flip_bit(p.offset() + 77, 3).unwrap();
                let other = pool.clone();
                let done = std::thread::spawn(move || scrub(&other)).join().unwrap();
                assert_eq!((done.lost, done.undecided), (0, 0));
            }
            Ok(p)
        });
        clean(&pool);
        assert_eq!(get(&pool, p.unwrap()).unwrap(), bytes);
    }
}

/// A pool, an object of three granules, and its slot, whose sum is damaged.
fn with_a_damaged_sum() -> (TestPool, RawPtr, u64) {
    let pool = tiny(Parity::P, 1 << 20);
    let p = put(&pool, &pattern(1, 2_222));
    let slot = head(&pool, p);
    pool.medium().flip_bit(slot + 1, 2).unwrap();
    (pool, p, slot)
}

/// The sum in a slot is damaged; only a later granule of its object is opened, and it is freed.
#[test]
fn what_a_freed_slot_was_is_verified() {
    let (pool, p, _) = with_a_damaged_sum();
    pool.run(|tx| {
        tx.write_bytes(p, GRANULE + 5, &[7; 8])?;
        tx.free(p)
    })
    .unwrap();
    clean(&pool);
}

/// The same, but the damage is repaired before the object is freed: what the later granule was
/// opened with is not what there was.
#[test]
fn what_a_freed_slot_was_is_what_was_verified() {
    let (pool, p, slot) = with_a_damaged_sum();
    pool.run(|tx| {
        tx.write_bytes(p, GRANULE + 5, &[7; 8])?;
        let other = pool.clone();
        assert!(std::thread::spawn(move || other.heal_load(slot, 16)).join().unwrap());
        tx.free(p)
    })
    .unwrap();
    clean(&pool);
}

/// The sums before a very long object fill more than a chunk: it begins in the next one.
#[test]
fn an_object_whose_sums_fill_a_chunk_is_one() {
    let pool = tiny(Parity::P, 8 << 20);
    let bytes = pattern(1, 3 << 20);
    let p = put(&pool, &bytes);
    assert_eq!(get(&pool, p).unwrap(), bytes);
    let before = pool.check(|_, _| {}).unwrap();
    pool.medium().flip_bit(p.offset() + (1 << 20), 3).unwrap();
    assert_eq!(scrub(&pool).repaired, 1);
    assert_eq!(get(&pool, p).unwrap(), bytes);
    let (pool, _) = crash(pool);
    assert_eq!(get(&pool, p).unwrap(), bytes);
    pool.run(|tx| tx.free(p)).unwrap();
    clean(&pool);
    assert_eq!(pool.check(|_, _| {}).unwrap().objects + 1, before.objects);
}

/// Two pages of one column cannot be read, and nothing that anybody needs lies on either: with P
/// and Q both come back.
#[test]
fn a_second_page_of_a_column_that_cannot_be_read_is_found() {
    let pool = tiny(Parity::PQ, 1 << 20);
    let p = put(&pool, &pattern(1, 300));
    let Region { start, row_len, data_rows, .. } = region(&pool);
    for rows in [[data_rows - 2, data_rows - 1], [data_rows - 1, data_rows]] {
        for row in rows {
            let at = start + u64::from(row) * row_len + PAGE;
            pool.medium().poison(at, PAGE, holdfast_faultmem::Clear::Able).unwrap();
        }
        let done = scrub(&pool);
        assert_eq!(done.lost, 0, "{:?}", done.report.findings);
        clean(&pool);
    }
    assert_eq!(get(&pool, p).unwrap(), pattern(1, 300));
}

/// A commit that freed chunks met a media error and is still to be completed: what it says of them
/// is stored again then. Who takes them for a run, or a long object, meanwhile waits.
#[test]
fn chunks_that_an_owed_commit_freed_are_nobodys_until_it_is_completed() {
    for len in [388, 9_000] {
        let pool = tiny(Parity::P, 1 << 20);
        let [freed, hit] = [1, 2].map(|seed| put(&pool, &pattern(seed, 9_000)));
        let bad = head(&pool, hit) / PAGE * PAGE;
        let (owed, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        let other = pool.clone();
        let (send, made) = mpsc::channel();
        let (start, started) = mpsc::channel();
        pool.medium().on_step(Box::new(move |site| match site.name() {
            "object.commit.step-durable" if !owed.swap(true, Ordering::AcqRel) => {
                other.medium().poison(bad, PAGE, Clear::Able).unwrap();
            }
            "object.owed.step-owed" if !taken.swap(true, Ordering::AcqRel) => {
                let (other, send) = (other.clone(), send.clone());
                let taker = std::thread::spawn(move || {
                    let bytes = pattern(2, len);
                    send.send((put(&other, &bytes), bytes)).unwrap();
                });
                let soon = Instant::now() + Duration::from_millis(500);
                while !taker.is_finished() && Instant::now() < soon {
                    std::thread::yield_now();
                }
                start.send(taker).unwrap();
            }
            _ => {}
        }));
        pool.run(|tx| tx.free(freed).and_then(|()| tx.free(hit))).unwrap();
        let (of, bytes) = made.recv_timeout(Duration::from_secs(60)).unwrap();
        // It has the pool as well, until it has ended.
        started.recv().unwrap().join().unwrap();
        pool.medium().clear_on_step();
        assert_eq!(head(&pool, of), head(&pool, freed), "the same chunk");
        clean(&pool);
        assert_eq!(pool.stats().lost, 0);
        let pool = reopened(pool);
        clean(&pool);
        assert_eq!(get(&pool, of).unwrap(), bytes);
    }
}

#[test]
fn what_is_in_the_log_alone_is_served_by_nobody_until_the_next_open() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let options = CreateOptions { parity: Parity::P, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(kind, &options);
        pool.set_verify_reads(VerifyReads::Always);
        let [hit, other] = [1, 2].map(|seed| put(&pool, &pattern(seed, 900)));
        let (hooked, failing) = (pool.clone(), AtomicBool::new(false));
        pool.medium().on_step(Box::new(move |site| {
            if site.name() == "object.commit.step-durable" && !failing.swap(true, Ordering::AcqRel)
            {
                hooked.medium().fail_nth(hooked.medium().calls() + 1, FailMode::Forever);
            }
        }));
        // Its record is durable: it is committed, though nothing of it can be stored.
        pool.run(|tx| tx.write_bytes(hit, 0, &[7; 900])).unwrap();
        pool.medium().clear_on_step();
        pool.medium().fail_none();
        assert!(pool.is_read_only());
        let refused = get(&pool, hit).unwrap_err();
        assert!(matches!(refused, Error::Tx(TxError::ReadOnly)), "{kind}: {refused}");
        assert!(matches!(pool.view_raw(hit), Err(Error::Tx(TxError::ReadOnly))), "{kind}");
        assert_eq!(get(&pool, other).unwrap(), pattern(2, 900), "{kind}");
        // It ends, and says so.
        let report = pool.check(|_, _| {}).unwrap();
        assert!(!report.is_clean(), "{kind}");
        let (pool, _) = crash(pool);
        assert_eq!(get(&pool, hit).unwrap(), [7; 900], "{kind}");
        assert_eq!(get(&pool, other).unwrap(), pattern(2, 900), "{kind}");
        clean(&pool);
    }
}

/// More is bad over a column than parity can give back: what is lost there stays lost, and whoever
/// stores over another row of it finds parity to patch.
#[test]
fn one_scrub_leaves_no_page_of_a_lost_column_unreadable() {
    let pool = tiny(Parity::P, 1 << 20);
    let lens = [900; 200];
    let all: Vec<RawPtr> =
        lens.iter().zip(1..).map(|(len, seed)| put(&pool, &pattern(seed, *len))).collect();
    let zone = Zone::new(&region(&pool), 0).unwrap();
    let unit = |of: &RawPtr| zone.unit(of.offset()).unwrap();
    // An object in one row, and one in another over the same page.
    let pages = |of: &RawPtr| (unit(of).0, unit(of).1 / PAGE);
    let (kept, lost) = all
        .iter()
        .flat_map(|a| all.iter().map(move |b| (a, b)))
        .find(|(a, b)| pages(a).1 == pages(b).1 && pages(a).0 != pages(b).0)
        .unwrap();
    let col = unit(lost).1 / PAGE * PAGE;
    let rows = (0..zone.data_rows()).map(|row| zone.at(row, col));
    let mut bad: Vec<u64> = rows.filter(|page| *page != kept.offset() / PAGE * PAGE).collect();
    bad.push(zone.p_at(col));
    for page in bad.iter().copied() {
        pool.medium().poison(page, PAGE, Clear::Able).unwrap();
    }
    assert!(scrub(&pool).lost > 0);
    for page in bad {
        let mut bytes = [0; PAGE as usize];
        pool.medium().read(page, &mut bytes).unwrap();
    }
    pool.run(|tx| tx.write_bytes(*kept, 0, &[7; 900])).unwrap();
    assert_eq!(get(&pool, *kept).unwrap(), [7; 900]);
    assert!(matches!(get(&pool, *lost), Err(Error::Tx(TxError::Lost { .. }))));
}

/// A page turns bad under a commit that frees an object with chunks of its own: the commit is
/// durable, and stored once more. Whoever takes the second chunk meanwhile, on which nothing tells
/// that it is held, would have its entry stored over.
#[test]
fn a_chunk_is_had_once_the_commit_that_frees_it_is_complete() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        // Its records carry all of an object with a chunk of its own.
        let options = CreateOptions { log: 20 * 8192, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(kind, &options);
        let all: Vec<RawPtr> = std::iter::from_fn(|| {
            pool.run(|tx| tx.alloc_from(holdfast_layout::TypeNumber::BYTES, &pattern(1, 1_500)))
                .ok()
        })
        .collect();
        // Two chunks beside each other become one object's.
        let two = all.windows(2).find(|two| two[0].offset() + 8192 == two[1].offset()).unwrap();
        pool.run(|tx| two.iter().try_for_each(|of| tx.free(*of))).unwrap();
        let freed = put(&pool, &pattern(3, 9_000));
        let (hooked, met) = (pool.clone(), std::sync::atomic::AtomicU64::new(0));
        let taken = Arc::new(std::sync::Mutex::new(None));
        let sink = Arc::clone(&taken);
        pool.medium().on_step(Box::new(move |site| {
            let first = |bit| met.fetch_or(bit, Ordering::AcqRel) & bit == 0;
            match site.name() {
                "object.commit.step-durable" if first(1) => {
                    let page = crate::stale::parity_page(&hooked, freed.offset());
                    hooked.medium().poison(page, PAGE, holdfast_faultmem::Clear::Able).unwrap();
                }
                "object.owed.step-owed" if first(2) => {
                    let (pool, bytes) = (hooked.clone(), pattern(2, 1_500));
                    let taker = std::thread::spawn(move || {
                        loop {
                            let made = pool.run(|tx| {
                                tx.alloc_from(holdfast_layout::TypeNumber::BYTES, &bytes)
                            });
                            if let Ok(made) = made {
                                break made;
                            }
                        }
                    });
                    // Long enough for it to commit, if nothing keeps it from that.
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    *sink.lock().unwrap() = Some(taker);
                }
                _ => {}
            }
        }));
        pool.run(|tx| tx.free(freed)).unwrap();
        let taker = taken.lock().unwrap().take().expect("the commit was owed");
        let made = taker.join().unwrap();
        pool.medium().clear_on_step();
        let within = freed.offset() / 8_192 * 8_192;
        assert!((within..within + 16_384).contains(&made.offset()), "{kind}: {freed}, {made}");
        assert!(get(&pool, made).unwrap() == pattern(2, 1_500), "{kind}");
        clean(&pool);
        let (pool, _) = crash(pool);
        assert!(get(&pool, made).unwrap() == pattern(2, 1_500), "{kind}");
        clean(&pool);
    }
}

/// A commit is durable, and what it came upon cannot be repaired after it: that is no answer to who
/// made it.
#[test]
fn a_durable_commit_is_told_as_one_whatever_fails_after_it() {
    let mut stopped = 0;
    for nth in 1..60 {
        let pool = create_with(MediumKind::File, &CreateOptions::tiny(1 << 20));
        let old = put(&pool, &pattern(1, 100));
        let slot = crate::returning::spot(&pool, old).slot;
        let mut live = [0; 16];
        pool.medium().read(slot, &mut live).unwrap();
        pool.run(|tx| tx.free(old)).unwrap();
        pool.medium().sync(holdfast_pmem::Site::new("test.meanwhile.sync")).unwrap();
        // The write that freed it is lost: who takes the place comes upon it.
        pool.medium().stray(slot, &live).unwrap();
        let hooked = pool.clone();
        pool.medium().on_step(Box::new(move |site| {
            if site.name() == "object.scrub.step-settle" {
                hooked.medium().fail_nth(hooked.medium().calls() + nth, FailMode::Once);
            }
        }));
        let bytes = pattern(2, 100);
        let made = pool.run(|tx| tx.alloc_from(holdfast_layout::TypeNumber::BYTES, &bytes));
        let made = made.unwrap_or_else(|error| panic!("call {nth}: {error}"));
        pool.medium().clear_on_step();
        pool.medium().fail_none();
        stopped += u64::from(pool.is_read_only());
        let (pool, _) = crash(pool);
        assert_eq!(get(&pool, made).unwrap(), bytes, "call {nth}");
    }
    assert!(stopped > 0, "a sync failed");
}
