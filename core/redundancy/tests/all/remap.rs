//! Relocation: the frame's bytes are right before, during and after, whatever breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::common::{
    Numbers, PAGE, SIDE, SPARE_FRAMES, SPARES, ZONE, budget, bytes, medium, mirror, regions,
    superblock, try_bytes,
};
use holdfast_faultmem::{Clear, Config, FailMode, FaultKind, FaultMedium, When};
use holdfast_layout::format::{INCOMPATIBLE_REMAP, INTENT_PAGE, KIND_REMAP, REMAP_PAGE};
use holdfast_layout::{Region, Remap, Superblock, remap};
use holdfast_pmem::{Medium, MediumKind, Site};
use holdfast_redundancy::{Error, MirrorSites, RemapTable, read_superblock, write_superblock};
use proptest::prelude::*;

const FRAME: u64 = ZONE + 2 * PAGE;
const STORE: Site = Site::new("test.store");
const SITES: MirrorSites = MirrorSites {
    b: Site::new("test.b"),
    drain_b: Site::new("test.drain-b"),
    a: Site::new("test.a"),
    drain_a: Site::new("test.drain-a"),
    clear: Site::new("test.clear"),
    heal: Site::new("test.heal"),
};

fn right() -> Vec<u8> {
    Numbers(1).bytes(PAGE as usize)
}

/// A pool with known bytes in the frame, all durable.
fn pool(m: &FaultMedium) -> (Superblock, RemapTable) {
    let mut superblock = superblock(2);
    write_superblock(m, &mut superblock).unwrap();
    let table = RemapTable::create(m, &superblock, &regions(2)).unwrap();
    m.put(STORE, FRAME, &right()).unwrap();
    m.sync(STORE).unwrap();
    (superblock, table)
}

fn open(m: &FaultMedium) -> Result<RemapTable, Error> {
    let superblock = read_superblock(m)?.superblock;
    let table = RemapTable::load(m, &superblock, &regions(2))?;
    table.apply(m)?;
    Ok(table)
}

fn fill(_at: u64, page: &mut [u8]) -> Result<(), Error> {
    page.copy_from_slice(&right());
    Ok(())
}

#[test]
fn a_relocated_frame_is_served_from_a_spare_one_for_good() {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        let m = medium(kind);
        let (mut superblock, mut table) = pool(&m);
        m.poison(FRAME, 1, Clear::Unable).unwrap();
        assert_eq!(table.frame_of(FRAME + 17), FRAME);
        let entry = table.relocate(&m, &mut superblock, FRAME, fill).unwrap();
        assert_eq!(entry, Remap { frame: FRAME, physical: SPARES });
        assert_eq!(bytes(&m, FRAME, PAGE), right());
        assert_eq!(table.spares(), (SPARE_FRAMES, SPARE_FRAMES - 1));
        assert_ne!(superblock.incompatible & INCOMPATIBLE_REMAP, 0);
        m.put(STORE, FRAME + 8, &[1; 8]).unwrap();
        m.sync(STORE).unwrap();
        let image = m.crash_point().persisted();
        let again = FaultMedium::from_crash(image, kind, &Config::default());
        let mut table = open(&again).unwrap();
        assert!(!table.record().needs_heal());
        assert_eq!(table.entries(), [entry]);
        assert_eq!(bytes(&again, FRAME + 8, 8), [1; 8]);
        assert_eq!(read_superblock(&again).unwrap().superblock, superblock);
    }
}

/// Counts crash images of three relocations of one frame, whose bytes change in between, in which
/// it does not have the bytes it had when the relocation began.
fn wrong(kind: MediumKind, off: &str, damage: impl Fn(&FaultMedium)) -> u64 {
    let m = medium(kind);
    let (mut superblock, mut table) = pool(&m);
    let (wrong, round) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(1)));
    let (w, r) = (wrong.clone(), round.clone());
    m.elide_name(off);
    m.on_barrier(Box::new(move |_, site, point| {
        for image in point.images(&budget()).filter(|_| site != STORE) {
            let m = FaultMedium::from_crash(image, kind, &Config::default());
            let right = Numbers(r.load(SeqCst)).bytes(PAGE as usize);
            let good = open(&m).is_ok_and(|_| try_bytes(&m, FRAME, PAGE) == right);
            w.fetch_add(u64::from(!good), SeqCst);
        }
    }));
    for n in 1..=3 {
        let right = Numbers(n).bytes(PAGE as usize);
        // By another thread, so that it does not drain what the relocation left undrained.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                m.put(STORE, FRAME, &right).unwrap();
                m.sync(STORE).unwrap();
            });
        });
        round.store(n, SeqCst);
        damage(&m);
        let fill = |_: u64, page: &mut [u8]| -> Result<(), Error> {
            page.copy_from_slice(&right);
            Ok(())
        };
        table.relocate(&m, &mut superblock, FRAME, fill).unwrap();
        assert_eq!(bytes(&m, FRAME, PAGE), right);
    }
    wrong.load(SeqCst)
}

#[test]
fn a_crash_leaves_the_old_mapping_or_the_new_one() {
    let spares_bad = |m: &FaultMedium| {
        for n in 0..SPARE_FRAMES {
            if bytes(m, FRAME, PAGE) != try_bytes(m, SPARES + n * PAGE, PAGE) {
                m.poison(SPARES + n * PAGE, 1, Clear::Able).unwrap();
            }
        }
    };
    let table_bad = |m: &FaultMedium| m.poison(REMAP_PAGE, 1, Clear::Able).unwrap();
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        assert_eq!(wrong(kind, "nothing", |_| ()), 0, "{kind}");
        assert_eq!(wrong(kind, "nothing", spares_bad), 0, "{kind}");
        assert_eq!(wrong(kind, "nothing", table_bad), 0, "{kind}");
    }
    for site in ["copy", "drain-copy", "b", "drain-b", "a", "drain-a"] {
        let site = format!("redundancy.remap.{site}");
        let wrong = wrong(MediumKind::Dax, &site, |_| ());
        assert!(wrong > 0, "{site} is not needed, or the check is blind");
    }
    assert!(wrong(MediumKind::File, "redundancy.remap.sync-copy", |_| ()) > 0);
    assert!(wrong(MediumKind::Dax, "redundancy.remap.heal-copy", spares_bad) > 0);
    assert!(wrong(MediumKind::Dax, "redundancy.remap.heal", table_bad) > 0);
}

#[test]
fn a_table_that_cannot_be_written_is_noticed_before_anything_moves() {
    for page in [REMAP_PAGE, SIDE + REMAP_PAGE] {
        let m = medium(MediumKind::Dax);
        let (mut superblock, mut table) = pool(&m);
        m.poison(page, 1, Clear::Unable).unwrap();
        let refused = table.relocate(&m, &mut superblock, FRAME, fill);
        assert!(matches!(refused, Err(Error::Media(_))), "{refused:?}");
        assert_eq!((table.spares().1, bytes(&m, FRAME, PAGE)), (SPARE_FRAMES, right()));
        assert!(open(&m).unwrap().entries().is_empty());
    }
}

#[test]
fn a_bad_spare_is_passed_over() {
    for damage in [
        |m: &FaultMedium| m.poison(SPARES, 1, Clear::Unable).unwrap(),
        |m: &FaultMedium| m.arm(FaultKind::Lost, When::touching(SPARES, PAGE)),
        |m: &FaultMedium| {
            m.arm(FaultKind::Misdirected { to: SPARES + 2 * PAGE }, When::touching(SPARES, PAGE));
        },
    ] {
        let m = medium(MediumKind::Dax);
        let (mut superblock, mut table) = pool(&m);
        damage(&m);
        let entry = table.relocate(&m, &mut superblock, FRAME, fill).unwrap();
        assert_eq!(entry.physical, SPARES + PAGE);
        assert_eq!(bytes(&m, FRAME, PAGE), right());
    }
    let m = medium(MediumKind::Dax);
    let (mut superblock, mut table) = pool(&m);
    m.elide_name("redundancy.remap.verify-copy");
    m.arm(FaultKind::Lost, When::touching(SPARES, PAGE));
    table.relocate(&m, &mut superblock, FRAME, fill).unwrap();
    assert_ne!(bytes(&m, FRAME, PAGE), right(), "reading the copy back is not what finds it");
}

#[test]
fn all_pages_of_a_long_frame_move_and_odd_ends_of_spares_are_left_out() {
    let frame = 4 * PAGE;
    let mut superblock =
        Superblock { frame, side_len: 12 * PAGE, size: 60 * PAGE, ..superblock(2) };
    let plain = regions(2)[2];
    // Only [32, 36) and [36, 40) pages are whole frames.
    let regions = [Region { start: 30 * PAGE, len: 11 * PAGE, ..plain }];
    let m = FaultMedium::new(60 * PAGE, MediumKind::Dax, &Config::default());
    write_superblock(&m, &mut superblock).unwrap();
    let mut table = RemapTable::create(&m, &superblock, &regions).unwrap();
    assert_eq!(table.spares(), (2, 2));
    let at = 44 * PAGE;
    let right = Numbers(3).bytes(frame as usize);
    m.poison(at + PAGE, PAGE, Clear::Unable).unwrap();
    m.poison(36 * PAGE - 1, 1, Clear::Unable).unwrap();
    let contents = |page: u64, into: &mut [u8]| -> Result<(), Error> {
        let from = (page - at) as usize;
        into.copy_from_slice(&right[from..from + PAGE as usize]);
        Ok(())
    };
    let entry = table.relocate(&m, &mut superblock, table.frame_of(at + 5), contents).unwrap();
    assert_eq!(entry, Remap { frame: at, physical: 36 * PAGE });
    assert_eq!(bytes(&m, at, frame), right);
    let found = read_superblock(&m).unwrap().superblock;
    let mut again = RemapTable::load(&m, &found, &regions).unwrap();
    assert_eq!(again.entries(), [entry]);
    let first = again.relocate(&m, &mut superblock, 8 * PAGE, fill);
    assert!(matches!(first, Err(Error::NoSpare { spares: 2, .. })), "a bad one is the only one");
    assert!(again.relocate(&m, &mut superblock, 12 * PAGE, fill).is_err(), "side B's head");
}

#[test]
fn spares_run_out_with_an_error_and_nothing_changed() {
    let m = medium(MediumKind::Dax);
    let (mut superblock, mut table) = pool(&m);
    for _ in 0..SPARE_FRAMES {
        table.relocate(&m, &mut superblock, FRAME, fill).unwrap();
    }
    assert_eq!(table.spares(), (SPARE_FRAMES, 0));
    let before = m.crash_point().newest();
    match table.relocate(&m, &mut superblock, FRAME, fill) {
        Err(Error::NoSpare { frame: FRAME, spares: SPARE_FRAMES }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!((table.entries().len(), bytes(&m, FRAME, PAGE)), (1, right()));
    assert!(m.crash_point().newest().bytes() == before.bytes(), "not even the table was written");
}

#[test]
fn what_leads_to_the_table_stays_where_it_is() {
    let m = medium(MediumKind::Dax);
    let (mut superblock, mut table) = pool(&m);
    for frame in [0, PAGE, REMAP_PAGE, SIDE, SIDE + REMAP_PAGE, SPARES, FRAME + 1] {
        let refused = table.relocate(&m, &mut superblock, frame, fill);
        assert!(matches!(refused, Err(Error::Unmovable { .. })), "{frame:#x}");
    }
    for frame in [INTENT_PAGE, SIDE + INTENT_PAGE] {
        table.relocate(&m, &mut superblock, frame, fill).unwrap();
        assert_eq!(bytes(&m, frame, PAGE), right());
    }
}

#[test]
fn an_error_of_the_contents_leaves_everything_as_it_was() {
    let m = medium(MediumKind::Dax);
    let (mut superblock, mut table) = pool(&m);
    let cannot = |_: u64, _: &mut [u8]| -> Result<(), Error> {
        Err(Error::TooManyMissing { zone: 0, col: 0, len: 1, missing: 2, limit: 1 })
    };
    let refused = table.relocate(&m, &mut superblock, FRAME, cannot);
    assert!(matches!(refused, Err(Error::TooManyMissing { .. })));
    assert_eq!((table.entries(), table.spares().1), (&[][..], SPARE_FRAMES));
    assert!(open(&m).unwrap().entries().is_empty());
}

#[test]
fn whichever_call_fails_the_frame_keeps_its_bytes() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let (mut nth, mut failed) = (1, 0);
        loop {
            let m = medium(kind);
            let (mut superblock, mut table) = pool(&m);
            let first = m.calls();
            m.fail_nth(first + nth, FailMode::Once);
            let result = table.relocate(&m, &mut superblock, FRAME, fill);
            let met = m.calls() >= first + nth;
            m.fail_none();
            assert_eq!(bytes(&m, FRAME, PAGE), right(), "{kind}, call {nth}: {result:?}");
            let after = FaultMedium::from_crash(m.crash_point().newest(), kind, &Config::default());
            open(&after).unwrap();
            assert_eq!(bytes(&after, FRAME, PAGE), right(), "{kind}, call {nth}, reopened");
            failed += u64::from(result.is_err());
            if !met {
                break;
            }
            nth += 1;
        }
        assert!(failed > 0 && nth > 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hostile_tables_are_refused_or_harmless(
        entries in prop::collection::vec(
            (0..60u64, 0..30u64, prop::option::weighted(0.1, any::<u64>())), 0..5),
        count in prop::option::weighted(0.2, any::<u32>()),
    ) {
        let m = medium(MediumKind::Dax);
        pool(&m);
        let all: Vec<Remap> = entries.iter()
            .map(|(f, p, odd)| Remap { frame: odd.unwrap_or(f * PAGE), physical: p * PAGE })
            .collect();
        let count = count.unwrap_or(all.len() as u32);
        let body = remap::encode(&all);
        mirror().write(&m, REMAP_PAGE, KIND_REMAP, 9, count, &body, SITES).unwrap();
        match open(&m) {
            Ok(table) => for e in table.entries() {
                let spare = (SPARES..SPARES + SPARE_FRAMES * PAGE).contains(&e.physical);
                prop_assert!(spare && e.frame % PAGE == 0 && e.frame < superblock(2).size);
                prop_assert!(!(SPARES..ZONE).contains(&e.frame));
            },
            Err(error) => prop_assert!(matches!(error, Error::Table { .. }), "{error}"),
        }
    }
}
