//! One committed state takes the place of an older one that verifies as well: under transactions
//! that hold the older one, under views of it, over several pages, and in a replay.

use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, get, pattern, put, quick};
use crate::erased::{Map, map};
use crate::no_spare::spoil_spares;
use crate::stale::{KINDS, forgetting, page, parity_page, pool, scrub, settled, ten, write};
use holdfast_faultmem::{Clear, Config, FaultMedium, Image};
use holdfast_heap::Spot;
use holdfast_layout::RawPtr;
use holdfast_object::{Parity, Pool, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::{Journal, Wrong, Zone};
use holdfast_txn::Transaction;

#[test]
fn who_opened_the_older_state_runs_again_on_the_newer_one() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut ten = ten(&pool);
        let (of, model) = &mut ten[3];
        forgetting(&pool, of.offset(), || write(&pool, *of, 40, &pattern(30, 9), model));
        let mut runs = 0;
        pool.run(|tx| {
            tx.write_bytes(*of, 90, &[7])?;
            runs += 1;
            if runs == 1 {
                std::thread::scope(|s| s.spawn(|| scrub(&pool)).join().unwrap());
            }
            Ok(())
        })
        .unwrap();
        model[90] = 7;
        assert_eq!(runs, 2, "{kind} {parity:?}");
        assert_eq!(get(&pool, *of).unwrap(), *model, "{kind} {parity:?}");
        settled(&pool);
        assert_eq!(pool.stats().lost, 0, "{kind} {parity:?}");
    }
}

#[test]
fn who_read_the_older_state_does_not_see_the_newer_one_beside_it() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut ten = ten(&pool);
        let (of, model) = &mut ten[3];
        forgetting(&pool, of.offset(), || write(&pool, *of, 40, &pattern(30, 9), model));
        let mut once = Some(());
        pool.run(|tx| {
            let (mut first, mut second) = ([0; 9], [0; 9]);
            tx.read_bytes(*of, 40, &mut first)?;
            if once.take().is_some() {
                std::thread::scope(|s| s.spawn(|| scrub(&pool)).join().unwrap());
            }
            tx.read_bytes(*of, 40, &mut second)?;
            assert_eq!(first, second, "{kind} {parity:?}");
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn bytes_under_a_view_stay_and_the_next_pass_brings_the_newer_ones() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut ten = ten(&pool);
        let (of, model) = &mut ten[3];
        let old = model.clone();
        forgetting(&pool, of.offset(), || write(&pool, *of, 40, &pattern(30, 9), model));
        let view = pool.view_raw(*of).unwrap();
        let done = scrub(&pool);
        assert!(done.undecided > 0, "{kind} {parity:?}: {:?}", done.report.findings);
        let mut seen = vec![0; old.len()];
        pool.medium().read(of.offset(), &mut seen).unwrap();
        assert_eq!(seen, old, "{kind} {parity:?}: under a view");
        drop(view);
        settled(&pool);
        assert_eq!(get(&pool, *of).unwrap(), *model, "{kind} {parity:?}");
    }
}

#[test]
fn a_place_handed_out_is_not_changed_behind_its_new_owner() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let ten = ten(&pool);
        let free = |of| pool.run(|tx| tx.free(of)).unwrap();
        let place = ten[3].0.offset();
        free(ten[3].0);
        settled(&pool);
        // The place is free in both states.
        let last = forgetting(&pool, place, || {
            let last = put(&pool, &pattern(32, 100));
            assert_eq!(last.offset(), place);
            free(last);
            last
        });
        let bytes = pattern(33, 100);
        let mut runs = 0;
        let made = pool.run(|tx| {
            let made = tx.alloc_from(holdfast_layout::TypeNumber::BYTES, &bytes)?;
            runs += 1;
            if runs == 1 {
                std::thread::scope(|s| s.spawn(|| scrub(&pool)).join().unwrap());
            }
            Ok(made)
        });
        let made = made.unwrap();
        assert_eq!((made.offset(), runs), (place, 2), "{kind} {parity:?}");
        assert!(made != last && get(&pool, last).is_err(), "{kind} {parity:?}: two of one name");
        assert_eq!(get(&pool, made).unwrap(), bytes, "{kind} {parity:?}");
        let found = pool.check(|_, _| {}).unwrap();
        assert!(found.is_clean(), "{kind} {parity:?}: {:?}", found.findings);
    }
}

pub(crate) fn spot(pool: &TestPool, of: RawPtr) -> Spot {
    map(pool).heap.zone(0).unwrap().locate(of.offset()).unwrap()
}

#[test]
fn a_slot_and_its_bytes_on_another_page_come_back_together() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let mut many: Vec<_> =
            (0..50).map(|i| pattern(i, 100)).map(|bytes| (put(&pool, &bytes), bytes)).collect();
        settled(&pool);
        let apart = many.iter().position(|(of, _)| {
            let spot = spot(&pool, *of);
            spot.slot / PAGE != spot.object / PAGE
        });
        let (of, model) = &mut many[apart.expect("some object lies on the second page")];
        let slot = spot(&pool, *of).slot;
        forgetting(&pool, of.offset(), || {
            forgetting(&pool, slot, || write(&pool, *of, 40, &pattern(30, 9), model));
        });
        settled(&pool);
        for (of, bytes) in &many {
            assert_eq!(get(&pool, *of).unwrap(), *bytes, "{kind} {parity:?}");
        }
    }
}

#[test]
fn all_pages_of_a_long_object_come_back_together() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let old = put(&pool, &pattern(1, 20_000));
        pool.run(|tx| tx.free(old)).unwrap();
        let object = put(&pool, &pattern(2, 20_000));
        settled(&pool);
        let first = spot(&pool, object).slot / PAGE * PAGE;
        let mut model = pattern(2, 20_000);
        let pages: Vec<u64> = (first..object.offset() + 20_000).step_by(PAGE as usize).collect();
        let rewrite = || write(&pool, object, 0, &pattern(3, 20_000), &mut model);
        all_forgotten(&pool, &pages, Box::new(rewrite));
        settled(&pool);
        assert_eq!(get(&pool, object).unwrap(), model, "{kind} {parity:?}");
    }
}

/// Lengths of long objects, and from where on they are written anew: all of it and all but the
/// first granule. Of the short ones, only the granule at the border of the first page and the
/// second tells that the first page is an older one.
const REWRITES: [(usize, usize); 4] = [(4_060, 0), (4_060, 1_500), (20_000, 0), (20_000, 1_500)];

/// Such an object, a granule that lies on both pages, and what the object is.
pub(crate) fn over_a_border(pool: &TestPool, len: usize) -> (RawPtr, usize, Vec<u8>) {
    let model = pattern(1, len);
    let border = |of: &RawPtr| (PAGE - of.offset() % PAGE) as usize;
    let good = |of: &RawPtr| {
        let on_one = spot(pool, *of).slot / PAGE == of.offset() / PAGE;
        on_one && border(of) > 3 * 1024 && border(of) % 1024 > 200 && border(of) < len
    };
    let all: Vec<RawPtr> = (0..4).map(|_| put(pool, &model)).collect();
    settled(pool);
    let object = *all.iter().find(|of| good(of)).expect("one begins with its page");
    (object, border(&object) / 1024 * 1024, model)
}

#[test]
fn a_page_comes_back_as_a_whole_before_a_granule_at_its_border_is_cured() {
    for (kind, parity) in KINDS {
        for (len, from) in REWRITES {
            let pool = pool(kind, parity);
            let (object, _, mut model) = over_a_border(&pool, len);
            let bytes = pattern(2, len - from);
            forgetting(&pool, object.offset(), || {
                write(&pool, object, from, &bytes, &mut model);
            });
            // Who reads all of it comes upon the granule at the border.
            let seen = get(&pool, object).unwrap();
            assert!(seen == model, "{kind} {parity:?} {len} from {from}: what it never was");
            settled(&pool);
            assert!(get(&pool, object).unwrap() == model, "{kind} {parity:?} {len} from {from}");
            assert_eq!(pool.stats().lost, 0, "{kind} {parity:?}");
        }
    }
}

#[test]
fn a_page_comes_back_as_a_whole_before_a_granule_at_its_border_is_cured_in_a_replay() {
    for parity in [Parity::P, Parity::PQ] {
        for (len, from) in REWRITES {
            let pool = pool(MediumKind::Shm, parity);
            let (object, border, mut model) = over_a_border(&pool, len);
            let before = page(&pool, object.offset());
            write(&pool, object, from, &pattern(2, len - from), &mut model);
            settled(&pool);
            let image = cut(&pool, || write(&pool, object, border + 100, &[7; 20], &mut model));
            drop(pool);
            let m = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
            m.stray(object.offset() / PAGE * PAGE, &before).unwrap();
            let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
            let seen = get(&pool, object).unwrap();
            assert!(seen == model, "{parity:?} {len} from {from}: what it never was");
            settled(&pool);
            assert!(get(&pool, object).unwrap() == model, "{parity:?} {len} from {from}");
        }
    }
}

#[test]
fn a_page_is_not_taken_back_where_it_is_parity_that_came_back() {
    for (kind, parity) in KINDS {
        // With the first granule, the slot tells which state is the newer one.
        for first in [0, 1_100] {
            let pool = pool(kind, parity);
            let mut model = pattern(1, 20_000);
            let object = put(&pool, &model);
            settled(&pool);
            // Granules on the first page and on the second, the sums of all on the first. What is
            // lost is the second page, and parity over the first.
            let (second, sum) = (object.offset() + 4 * 1024, spot(&pool, object).sum_at(4));
            assert_ne!(sum / PAGE, second / PAGE);
            let bytes = pattern(2, 2048);
            forgetting(&pool, parity_page(&pool, sum), || {
                forgetting(&pool, second, || {
                    pool.run(|tx| {
                        tx.write_bytes(object, first as u64, &bytes[..700])?;
                        tx.write_bytes(object, 4 * 1024, &bytes)
                    })
                    .unwrap();
                });
            });
            model[first..first + 700].copy_from_slice(&bytes[..700]);
            model[4 * 1024..6 * 1024].copy_from_slice(&bytes);
            assert!(get(&pool, object).unwrap() == model, "{kind} {parity:?} {first}: taken back");
            // Without the first granule and Q nothing tells which of the two came last.
            assert_eq!(scrub(&pool).lost, 0);
            assert!(get(&pool, object).unwrap() == model, "{kind} {parity:?} {first}: by a scrub");
        }
    }
}

#[test]
fn bytes_that_no_sum_covers_do_not_hide_what_is_wrong_in_another_row() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let model = pattern(1, 9_000);
        let long = put(&pool, &model);
        let small: Vec<_> =
            (0..900).map(|i| pattern(i, 100)).map(|b| (put(&pool, &b), b)).collect();
        settled(&pool);
        let Map { zone, .. } = map(&pool);
        // Sums of granules that the object does not have lie on its first page.
        let unused = spot(&pool, long).sum_at(9)..spot(&pool, long).sum_at(12);
        assert!(unused.end <= long.offset() && unused.start / PAGE == long.offset() / PAGE);
        let at = |byte: u64| zone.place(byte).unwrap();
        let columns = at(unused.start).col..at(unused.end - 1).col;
        let (other, byte) = small
            .iter()
            .enumerate()
            .flat_map(|(i, (of, _))| (of.offset()..of.offset() + 100).map(move |b| (i, b)))
            .find(|(_, b)| columns.contains(&at(*b).col) && at(*b).row != at(long.offset()).row)
            .expect("something lies over these columns");
        pool.medium().flip_bit(byte, 2).unwrap();
        pool.medium().flip_bit(long.offset() + 3, 5).unwrap();
        assert!(get(&pool, long).unwrap() == model, "{kind} {parity:?}");
        settled(&pool);
        assert_eq!(get(&pool, small[other].0).unwrap(), small[other].1, "{kind} {parity:?}");
        assert_eq!(pool.stats().lost, 0, "{kind} {parity:?}");
    }
}

#[test]
fn a_view_on_the_page_keeps_a_repair_waiting_and_not_for_ever() {
    for parity in [Parity::P, Parity::PQ] {
        let pool = pool(MediumKind::Shm, parity);
        let (object, border, mut model) = over_a_border(&pool, 4_060);
        let old = model.clone();
        forgetting(&pool, object.offset(), || {
            write(&pool, object, 1_500, &pattern(2, 2_560), &mut model);
        });
        // Who has a view is who reads: it gets the granule at the border, cured by itself.
        pool.set_verify_reads(VerifyReads::Never);
        let view = pool.view_raw(object).unwrap();
        pool.set_verify_reads(VerifyReads::Always);
        let mut seen = [0; 100];
        pool.run(|tx| tx.read_bytes(object, border as u64, &mut seen)).unwrap();
        assert!(seen[..] == model[border..][..100], "{parity:?}");
        let mut beside = [0; 100];
        pool.medium().read(object.offset() + 1_500, &mut beside).unwrap();
        assert!(beside[..] == old[1_500..1_600], "{parity:?}: stored under a view");
        drop(view);
        assert_eq!(scrub(&pool).lost, 0, "{parity:?}");
    }
}

#[test]
fn of_a_free_place_only_the_slot_comes_back_in_a_replay() {
    let pool = pool(MediumKind::Shm, Parity::P);
    let many: Vec<_> = (0..50).map(|i| put(&pool, &pattern(i, 100))).collect();
    let apart = |of: &&RawPtr| spot(&pool, **of).slot / PAGE != spot(&pool, **of).object / PAGE;
    let second: Vec<RawPtr> = many.iter().filter(apart).copied().collect();
    let [written, freed @ ..] = &second[..] else { panic!("objects lie on the second page") };
    let places: Vec<Spot> = freed.iter().map(|of| spot(&pool, *of)).collect();
    freed.iter().for_each(|of| pool.run(|tx| tx.free(*of)).unwrap());
    settled(&pool);
    let zone = map(&pool).zone;
    let image = cut(&pool, || pool.run(|tx| tx.write_bytes(*written, 3, &[7; 20])).unwrap());
    drop(pool);
    let m = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
    // The free slots say anything, and parity is wrong over what was written and what is free.
    for place in &places {
        m.stray(place.slot, &[0xff; 16]).unwrap();
    }
    let col = zone.place(written.offset()).unwrap().col;
    m.stray(zone.p_at(col), &pattern(9, 700)).unwrap();
    let raw = |m: &FaultMedium, place: &Spot| {
        let mut bytes = vec![0; place.capacity as usize];
        m.read(place.object, &mut bytes).unwrap();
        bytes
    };
    let before: Vec<Vec<u8>> = places.iter().map(|place| raw(&m, place)).collect();
    let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
    settled(&pool);
    let mut expected = pattern(many.iter().position(|of| of == written).unwrap() as u64, 100);
    expected[3..23].fill(7);
    assert_eq!(get(&pool, *written).unwrap(), expected);
    let journal = Journal::open(pool.medium(), &pool.superblock());
    for (place, bytes) in places.iter().zip(before) {
        assert_eq!(raw(pool.medium(), place), bytes, "{place:?}");
        let said = journal.read_all(pool.medium()).into_iter().find(|event| {
            event.wrong == Some(Wrong::Slot) && event.at <= place.object && {
                place.object < event.at + event.len
            }
        });
        assert_eq!(said, None, "nothing was wrong with the bytes of {place:?}");
    }
}

/// As `forgetting`, of many pages.
fn all_forgotten(pool: &TestPool, pages: &[u64], work: Box<dyn FnOnce() + '_>) {
    match pages {
        [] => work(),
        [page, rest @ ..] => forgetting(pool, *page, || all_forgotten(pool, rest, work)),
    }
}

/// Row and page column of a byte.
fn place(zone: &Zone, at: u64) -> (u32, u64) {
    let place = zone.place(at).unwrap();
    (place.row, place.col / PAGE)
}

/// What a power cut leaves once the record of `work` is durable.
pub(crate) fn cut(pool: &TestPool, work: impl FnOnce()) -> Image {
    let taken: Arc<Mutex<Option<Image>>> = Arc::default();
    let (sink, hooked) = (Arc::clone(&taken), pool.clone());
    pool.medium().on_step(Box::new(move |site| {
        if site.name() == "object.commit.step-durable" {
            let point = hooked.medium().crash_point();
            sink.lock().unwrap().get_or_insert_with(|| point.persisted());
        }
    }));
    work();
    pool.medium().clear_on_step();
    let image = taken.lock().unwrap().take();
    image.unwrap()
}

#[test]
fn a_row_under_the_second_page_of_a_replayed_range_is_brought_back() {
    for (kind, parity) in KINDS {
        let pool = pool(kind, parity);
        let long: Vec<RawPtr> = (0..8).map(|i| put(&pool, &pattern(i, 20_000))).collect();
        let mut small: Vec<_> =
            (0..900).map(|i| pattern(i, 100)).map(|b| (put(&pool, &b), b)).collect();
        settled(&pool);
        // A range that ends a little behind the start of a page, over which another row has slots.
        let Map { heap, zone, .. } = map(&pool);
        let slot = |of: RawPtr| heap.zone(0).unwrap().locate(of.offset()).unwrap().slot;
        let starts: Vec<(usize, (u32, u64))> = (0..small.len())
            .map(|i| (i, slot(small[i].0)))
            .filter(|(_, slot)| slot % PAGE < 100)
            .map(|(i, slot)| (i, place(&zone, slot)))
            .collect();
        let found = long.iter().find_map(|of| {
            let second = (of.offset() + 400).next_multiple_of(PAGE);
            (second..of.offset() + 19_000).step_by(PAGE as usize).find_map(|page| {
                let (row, col) = place(&zone, page);
                let over = starts.iter().find(|(_, (r, c))| *r != row && *c == col);
                over.map(|(i, _)| (*of, page - of.offset() - 96, *i))
            })
        });
        let (of, from, i) = found.expect("slots of one row lie over a long object of another");
        let (other, model) = &mut small[i];
        forgetting(&pool, other.offset(), || write(&pool, *other, 40, &pattern(30, 9), model));
        let image = cut(&pool, || {
            pool.run(|tx| tx.write_bytes(of, from, &pattern(31, 300))).unwrap();
        });
        drop(pool);
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
        assert!(opened.recovered.replayed > 0);
        assert_eq!(get(&pool, *other).unwrap(), *model, "{kind} {parity:?}");
        settled(&pool);
    }
}

#[test]
fn columns_beside_one_that_stays_bad_get_their_parity_in_a_replay() {
    for beyond in [false, true] {
        let pool = pool(MediumKind::Dax, Parity::P);
        let object = put(&pool, &pattern(1, 20_000));
        settled(&pool);
        let zone = map(&pool).zone;
        let (row, col) = place(&zone, object.offset());
        let image = cut(&pool, || {
            pool.run(|tx| tx.write_bytes(object, 0, &pattern(2, 20_000))).unwrap();
        });
        let regions = pool.regions();
        drop(pool);
        let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
        spoil_spares(&m, &regions);
        // Two pages in one column are more than P covers; one of them may be P itself.
        let other = if beyond { zone.at((row + 1) % 4, col * PAGE) } else { zone.p_at(col * PAGE) };
        for page in [zone.at((row + 2) % 4, col * PAGE), other] {
            m.poison(page, PAGE, Clear::Unable).unwrap();
        }
        let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
        let found = pool.check(|_, _| {}).unwrap();
        for finding in &found.findings {
            let (_, at) = zone.unit(finding.at).unwrap();
            assert_eq!(at / PAGE, col, "{finding:?}");
        }
    }
}
