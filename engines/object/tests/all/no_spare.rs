//! Pages that stay bad while no spare frame is left: memory stands in for them, nothing else is
//! concerned, and what is committed meanwhile survives the process. And an open that is refused
//! leaves the medium as it found it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::beyond::reopen;
use crate::common::{TestPool, clock, crash, create_with, get, pattern, put, quick};
use crate::erased::{Class, Filled, Map, crashed_at, events_from, filled, map, overflow};
use crate::returning::spot;
use holdfast_faultmem::{Clear, Config, FaultMedium, Image};
use holdfast_heap::{ChunkKind, Spot};
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{CreateOptions, Error, Parity, Pool, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::{MediaCause, Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_redundancy::{Verdict, verdict::Reason};
use holdfast_txn::{Transaction, TxError};

const KINDS: [MediumKind; 2] = [MediumKind::Dax, MediumKind::File];
const PARITIES: [Parity; 2] = [Parity::P, Parity::PQ];

type Objects = [(RawPtr, Vec<u8>)];

/// No frame can move: each spare one stays bad.
pub(crate) fn spoil_spares(m: &FaultMedium, regions: &[Region]) {
    let spares: Vec<&Region> = regions.iter().filter(|r| r.kind == RegionKind::Spare).collect();
    assert!(!spares.is_empty());
    for spare in spares {
        m.poison(spare.start, spare.len, Clear::Unable).unwrap();
    }
}

fn scrub(pool: &TestPool) -> Scrubbed {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
}

fn holds(pool: &TestPool, objects: &Objects, what: &str) {
    for (p, bytes) in objects {
        let found = get(pool, *p);
        assert!(found.as_ref().is_ok_and(|found| found == bytes), "{what}: {p}: {found:?}");
    }
}

const fn in_zone(class: Class) -> bool {
    use Class::{Directory, Free, Object, Overflow, P, Q, Slots};
    matches!(class, Directory | Slots | Object | Free | Overflow | P | Q)
}

/// A check names exactly these pages, as staying bad.
fn told(pool: &TestPool, pages: &[u64], what: &str) {
    assert_eq!(pool.stand_ins(), pages, "{what}");
    let report = pool.check(|_, _| {}).unwrap();
    let found: Vec<u64> = report.findings.iter().map(|finding| finding.at).collect();
    assert_eq!(found, pages, "{what}: {:?}", report.findings);
    for finding in report.findings {
        let Verdict::Undecided(Reason::Media(e)) = finding.verdict else {
            panic!("{what}: {finding:?}");
        };
        assert_eq!(e.cause, MediaCause::Unclearable, "{what}: {finding:?}");
    }
}

/// Whether the pool goes on being written. Without its superblock's page it does not; nor on a file
/// once an append met a page of the log that stays bad.
fn goes_on(kind: MediumKind, class: Class) -> bool {
    class != Class::Pool && (class, kind) != (Class::Log, MediumKind::File)
}

/// Changes every object, and makes new ones.
fn work(pool: &TestPool, objects: &mut Vec<(RawPtr, Vec<u8>)>, seed: u64, what: &str) {
    for (i, (of, bytes)) in objects.iter_mut().enumerate() {
        let new = pattern(seed + i as u64, 40);
        pool.run(|tx| tx.write_bytes(*of, 0, &new)).expect(what);
        bytes[..40].copy_from_slice(&new);
    }
    for i in 0..5 {
        let bytes = pattern(seed + 100 + i, 700);
        objects.push((put(pool, &bytes), bytes));
    }
}

/// Pages of each class: the first and the last.
fn of_each_class(pool: &TestPool) -> Vec<(Class, u64)> {
    let map = map(pool);
    let mut classes: BTreeMap<Class, Vec<u64>> = BTreeMap::new();
    for page in (0..pool.superblock().size).step_by(PAGE as usize) {
        classes.entry(map.class(page)).or_default().push(page);
    }
    classes
        .into_iter()
        .flat_map(|(class, pages)| [(class, pages[0]), (class, pages[pages.len() - 1])])
        .collect()
}

#[test]
fn a_page_of_a_pool_in_use_is_served_from_memory_and_survives_what_follows() {
    for (kind, parity) in KINDS.into_iter().zip(PARITIES).chain([(MediumKind::Dax, Parity::PQ)]) {
        for (class, page) in of_each_class(&filled(kind, parity).pool) {
            let what = format!("{kind} {parity:?} {class:?} {page:#x}");
            let Filled { pool, mut objects } = filled(kind, parity);
            spoil_spares(pool.medium(), &pool.regions());
            pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
            holds(&pool, &objects, &what);
            let done = scrub(&pool);
            holds(&pool, &objects, &what);
            if in_zone(class) {
                assert_eq!((done.lost, pool.stats().lost), (0, 0), "{what}");
                assert!(done.undecided > 0, "{what}");
                told(&pool, &[page], &what);
                let events = events_from(&pool, 0);
                let here = |e: &&_| holdfast_redundancy::events::Event { at: page, ..**e } == **e;
                let outcomes: Vec<Outcome> =
                    events.iter().filter(here).map(|e| e.outcome).collect();
                assert_eq!(outcomes, [Outcome::StoodIn], "{what}");
            }
            if goes_on(kind, class) {
                work(&pool, &mut objects, 1000, &what);
            }
            holds(&pool, &objects, &what);
            let (pool, _) = crash(pool);
            holds(&pool, &objects, &what);
            if !goes_on(kind, class) {
                continue;
            }
            work(&pool, &mut objects, 2000, &what);
            if kind == MediumKind::Dax {
                let (pool, opened) = Pool::open(reopen(pool, true), quick(), clock()).expect(&what);
                assert!(opened.clean || !in_zone(class), "{what}");
                holds(&pool, &objects, &what);
                work(&pool, &mut objects, 3000, &what);
                assert!(!in_zone(class) || scrub(&pool).lost == 0, "{what}");
                holds(&pool, &objects, &what);
            }
        }
    }
}

#[test]
fn every_page_of_a_crashed_pool_may_stay_bad_when_it_is_opened() {
    for (kind, parity) in KINDS.into_iter().zip(PARITIES) {
        let mut f = filled(kind, parity);
        let (superblock, regions) = (f.pool.superblock(), f.pool.regions());
        let image = crashed_at(&mut f, "object.commit.step-durable");
        let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let opened =
            |image: &Image| FaultMedium::from_crash(image.clone(), kind, &Config::default());
        let map = Map::new(&opened(&image), superblock, zone);
        for page in (0..opened(&image).len()).step_by(PAGE as usize) {
            let class = map.class(page);
            let what = format!("{kind} {parity:?} {class:?} {page:#x}");
            let m = opened(&image);
            spoil_spares(&m, &regions);
            m.poison(page, PAGE, Clear::Unable).unwrap();
            let (pool, opened) = Pool::open(m, quick(), clock()).expect(&what);
            assert_eq!(opened.recovered.lost, 0, "{what}: {opened:?}");
            assert!(opened.recovered.replayed > 0, "{what}");
            let mut objects = f.objects.clone();
            holds(&pool, &objects, &what);
            if in_zone(class) {
                assert_eq!(scrub(&pool).lost, 0, "{what}");
                told(&pool, &[page], &what);
            }
            if goes_on(kind, class) {
                work(&pool, &mut objects, 1000, &what);
            }
            let (pool, _) = crash(pool);
            holds(&pool, &objects, &what);
        }
    }
}

#[test]
fn a_page_that_stays_bad_under_a_commit_costs_nothing() {
    for (parity, step) in
        PARITIES.into_iter().zip(["object.commit.step-durable", "object.commit.step-columns"])
    {
        for (class, page) in of_each_class(&filled(MediumKind::Dax, parity).pool) {
            if !in_zone(class) {
                continue;
            }
            let what = format!("{parity:?} {step} {class:?} {page:#x}");
            let Filled { pool, mut objects } = filled(MediumKind::Dax, parity);
            spoil_spares(pool.medium(), &pool.regions());
            let (hooked, once) = (pool.clone(), Mutex::new(Some(())));
            pool.medium().on_step(Box::new(move |site| {
                if site.name() == step && once.lock().unwrap().take().is_some() {
                    hooked.medium().poison(page, PAGE, Clear::Unable).unwrap();
                }
            }));
            let all: Vec<_> = objects.iter().map(|(of, bytes)| (*of, bytes.len())).collect();
            // One record over everything: the page is met in the middle of what it changes.
            pool.run(|tx| {
                all.iter().enumerate().try_for_each(|(i, (of, len))| {
                    tx.write_bytes(*of, 0, &pattern(9000 + i as u64, (*len).min(90)))
                })
            })
            .expect(&what);
            pool.medium().clear_on_step();
            for (i, (_, bytes)) in objects.iter_mut().enumerate() {
                let len = bytes.len().min(90);
                bytes[..len].copy_from_slice(&pattern(9000 + i as u64, len));
            }
            holds(&pool, &objects, &what);
            work(&pool, &mut objects, 1000, &what);
            assert_eq!(scrub(&pool).lost, 0, "{what}");
            told(&pool, &[page], &what);
            let (pool, opened) = crash(pool);
            assert_eq!(opened.recovered.lost, 0, "{what}");
            holds(&pool, &objects, &what);
        }
    }
}

#[test]
fn there_are_as_many_stand_ins_in_a_column_as_parity_can_give_back() {
    for (parity, rows) in PARITIES.into_iter().zip([1, 2]) {
        let Filled { pool, objects } = filled(MediumKind::Dax, parity);
        spoil_spares(pool.medium(), &pool.regions());
        let zone = map(&pool).zone;
        let col = (objects[0].0.offset() - zone.data_start()) % zone.row_len() / PAGE * PAGE;
        let pages: Vec<u64> = (0..=rows).map(|row| zone.at(row, col)).collect();
        for page in &pages {
            pool.medium().poison(*page, PAGE, Clear::Unable).unwrap();
            pool.heal_load(*page, PAGE);
        }
        let rows = rows as usize;
        assert_eq!(pool.stand_ins(), pages[..rows], "{parity:?}");
        let (mut lost, mut kept) = (0, objects.clone());
        kept.retain(|(of, bytes)| match get(&pool, *of) {
            Ok(found) => found == *bytes || panic!("{parity:?}: {of} is wrong"),
            Err(Error::Tx(TxError::Lost { .. })) => {
                lost += 1;
                false
            }
            Err(error) => panic!("{parity:?}: {of}: {error}"),
        });
        // Those of the one page, and what is described there.
        assert!(lost < objects.len() / 2, "{parity:?}: {lost} of {}", objects.len());
        let named = events_from(&pool, 0);
        let of_page = |e: &&Event| e.at == pages[rows] && e.len == PAGE;
        assert!(named.iter().filter(of_page).any(|e| e.outcome == Outcome::Lost));
        // Once by a repair, and not again for each object there.
        let next = named.last().map_or(0, |e| e.sequence + 1);
        assert!(!pool.heal_load(pages[rows], PAGE), "{parity:?}");
        let again = events_from(&pool, next);
        assert_eq!(again.iter().filter(of_page).count(), 1, "{parity:?}: {again:?}");
        // Nothing is committed that only memory would hold.
        for (of, _) in &kept {
            let _ = pool.run(|tx| tx.write_bytes(*of, 0, &[7; 8]));
        }
        assert_eq!(pool.stand_ins(), pages[..rows], "{parity:?}");
        // The next open finds more than parity covers: what it serves is right.
        let (pool, _) = crash(pool);
        let mut served = 0;
        for (of, bytes) in &objects {
            if let Ok(found) = get(&pool, *of) {
                assert!(
                    found == *bytes || found[..8] == [7; 8] && found[8..] == bytes[8..],
                    "{of}"
                );
                served += 1;
            }
        }
        assert!(served > 0, "{parity:?}");
    }
}

#[test]
fn an_object_whose_slot_is_damaged_is_lost_with_its_page_and_not_refused_with_an_error_of_it() {
    for (parity, rows) in PARITIES.into_iter().zip([1, 2]) {
        let Filled { pool, objects } = filled(MediumKind::Dax, parity);
        spoil_spares(pool.medium(), &pool.regions());
        let zone = map(&pool).zone;
        let mut tried = 0;
        for (of, _) in &objects {
            let Spot { object, slot, .. } = spot(&pool, *of);
            let place = zone.place(object).unwrap();
            let col = place.col / PAGE * PAGE;
            let page = zone.at(place.row, col);
            if slot / PAGE == object / PAGE || zone.place(slot).unwrap().col / PAGE * PAGE == col {
                continue;
            }
            let all: Vec<u64> = (0..zone.data_rows()).map(|row| zone.at(row, col)).collect();
            if pool.stand_ins().iter().any(|page| all.contains(page)) {
                continue;
            }
            // Memory stands in for as many others of the column as may be.
            for other in all.into_iter().filter(|other| *other != page).take(rows).chain([page]) {
                pool.medium().poison(other, PAGE, Clear::Unable).unwrap();
                pool.heal_load(other, PAGE);
            }
            assert!(!pool.stand_ins().contains(&page));
            // What parity says of the bytes there goes with what it says of the slot; but there is
            // nowhere to put them.
            pool.medium().stray(slot, &[0xff; 16]).unwrap();
            let found = get(&pool, *of);
            assert!(
                matches!(found, Err(Error::Tx(TxError::Lost { .. }))),
                "{parity:?}: {of}: {found:?}"
            );
            tried += 1;
        }
        assert!(tried > 0, "{parity:?}");
        let done = scrub(&pool);
        assert!(done.lost > 0, "{parity:?}");
        for (of, bytes) in &objects {
            match get(&pool, *of) {
                Ok(found) => assert_eq!(found, *bytes, "{parity:?}: {of}"),
                Err(Error::Tx(TxError::Lost { .. })) => {}
                Err(error) => panic!("{parity:?}: {of}: {error}"),
            }
        }
    }
}

#[test]
fn a_crashed_pool_with_more_bad_pages_than_parity_covers_is_opened() {
    let mut f = filled(MediumKind::Dax, Parity::P);
    let (superblock, regions) = (f.pool.superblock(), f.pool.regions());
    let pages = of_each_class(&f.pool);
    let image = crashed_at(&mut f, "object.commit.step-durable");
    let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let medium = || FaultMedium::from_crash(image.clone(), MediumKind::Dax, &Config::default());
    let map = Map::new(&medium(), superblock, zone);
    for (class, page) in pages {
        let Some(place) = map.zone.place(page) else { continue };
        let what = format!("{class:?} {page:#x}");
        let m = medium();
        spoil_spares(&m, &regions);
        m.poison(page, PAGE, Clear::Unable).unwrap();
        m.poison(map.zone.p_at(place.col), PAGE, Clear::Unable).unwrap();
        let (pool, _) = Pool::open(m, quick(), clock()).expect(&what);
        let mut served = 0;
        for (of, bytes) in &f.objects {
            if let Ok(found) = get(&pool, *of) {
                assert!(found == *bytes, "{what}: {of} is wrong");
                served += 1;
            }
        }
        assert!(served > 0 || class == Class::Directory, "{what}");
        let named = |e: &Event| e.outcome == Outcome::Lost;
        assert!(served == f.objects.len() || events_from(&pool, 0).iter().any(named), "{what}");
        scrub(&pool);
    }
}

#[test]
fn without_parity_a_page_that_stays_bad_under_a_replay_costs_what_is_on_it() {
    let options = CreateOptions { parity: Parity::None, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Dax, &options);
    let objects: Vec<(RawPtr, Vec<u8>)> =
        (0..60).map(|i| pattern(i + 1, 900)).map(|b| (put(&pool, &b), b)).collect();
    let long: Vec<u8> = pattern(77, 3000);
    let across = put(&pool, &pattern(78, 3000));
    pool.run(|tx| tx.write_bytes(across, 0, &long)).unwrap();
    let page = across.offset() / PAGE * PAGE;
    let image = pool.medium().crash_point().persisted();
    let regions = pool.regions();
    drop(pool);
    let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
    spoil_spares(&m, &regions);
    m.poison(page, PAGE, Clear::Unable).unwrap();
    let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
    assert!(opened.recovered.replayed > 0);
    assert!(pool.stand_ins().is_empty(), "nothing could give its bytes back");
    assert!(get(&pool, across).is_err());
    let mut served = 0;
    for (of, bytes) in &objects {
        if let Ok(found) = get(&pool, *of) {
            assert_eq!(found, *bytes, "{of}");
            served += 1;
        }
    }
    assert!(served >= 50, "{served}");
    assert!(events_from(&pool, 0).iter().any(|e| e.at == page && e.outcome == Outcome::Lost));
}

#[test]
fn entries_of_a_large_transaction_are_not_kept_where_memory_stands_in() {
    let mut f = filled(MediumKind::Dax, Parity::PQ);
    spoil_spares(f.pool.medium(), &f.pool.regions());
    let map = map(&f.pool);
    let table = map.heap.zone(0).unwrap();
    let is_free = |c: &u32| table.entry(*c).is_some_and(|e| e.kind == ChunkKind::Free);
    let free: Vec<u32> = (0..table.chunks()).filter(is_free).collect();
    // All free chunks but the last ones have a page in memory, as far as the columns allow.
    let (used, kept) = free.split_at(free.len() - 12);
    for page in used.iter().map(|c| table.chunk_at(*c)) {
        f.pool.medium().poison(page, PAGE, Clear::Unable).unwrap();
        f.pool.heal_load(page, PAGE);
    }
    assert!(f.pool.stand_ins().len() > 4, "{:?}", f.pool.stand_ins());
    let chunks: Arc<Mutex<Vec<u32>>> = Arc::default();
    let sink = Arc::clone(&chunks);
    overflow(&mut f, "object.commit.step-durable", move |pool| {
        let map = self::map(pool);
        let table = map.heap.zone(0).unwrap();
        let log = |c: &u32| table.entry(*c).is_some_and(|e| e.kind == ChunkKind::Log);
        sink.lock().unwrap().extend((0..table.chunks()).filter(log));
    });
    let chunks = chunks.lock().unwrap();
    assert!(chunks.len() >= 4 && chunks.iter().all(|c| kept.contains(c)), "{chunks:?} of {kept:?}");
    holds(&f.pool, &f.objects, "after it");
}

#[test]
fn an_open_that_is_refused_changes_nothing() {
    for kind in KINDS {
        let mut f = filled(kind, Parity::P);
        let (superblock, regions) = (f.pool.superblock(), f.pool.regions());
        let image = crashed_at(&mut f, "object.commit.step-durable");
        let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let map = Map::new(&m, superblock.clone(), zone);
        // What a committed transaction changed is gone in both copies; and one copy of each table
        // is damaged, which an open that succeeds would mend.
        for page in (0..m.len()).step_by(PAGE as usize) {
            let class = map.class(page);
            if class == Class::Overflow {
                m.stray(page, &[0x5a; PAGE as usize]).unwrap();
            } else if !in_zone(class) && page < superblock.side_len && class != Class::Log {
                m.stray(page + 8, &[0x5a; 8]).unwrap();
            }
        }
        let before = m.crash_point().newest();
        let m = Arc::new(m);
        for _ in 0..2 {
            let error = Pool::open(Arc::clone(&m), quick(), clock()).unwrap_err();
            assert!(matches!(error, Error::Fatal { .. }), "{kind}: {error}");
            let after = m.crash_point().newest();
            assert!(after.bytes() == before.bytes(), "{kind}: a refused open wrote");
        }
    }
}
