//! Mirrored pages and the superblock: old or new at every crash, and no damage to one copy lost.

use crate::common::{PAGE, SIDE, medium, mirror, superblock, wrong};
use holdfast_faultmem::{Clear, Config, FailMode, FaultKind, FaultMedium, Torn, When};
use holdfast_layout::{Superblock, SuperblockError};
use holdfast_pmem::{Medium, MediumKind, Site};
use holdfast_redundancy::mirror::BODY_LEN;
use holdfast_redundancy::superblock::SUPERBLOCK_SITES;
use holdfast_redundancy::{
    CopyState, Error, Mirror, MirrorSites, Record, Side, heal_superblock, read_superblock,
    write_superblock,
};
use proptest::prelude::*;

const PLACE: u64 = PAGE;
const KIND: u32 = 0x1234_5678;
const STORE: Site = Site::new("test.store");
const SITES: MirrorSites = MirrorSites {
    b: Site::new("test.b"),
    drain_b: Site::new("test.drain-b"),
    a: Site::new("test.a"),
    drain_a: Site::new("test.drain-a"),
    clear: Site::new("test.clear"),
    heal: Site::new("test.heal"),
};
const KINDS: [MediumKind; 3] = [MediumKind::Dax, MediumKind::Shm, MediumKind::File];

fn write(m: &FaultMedium, sequence: u64) -> Result<(), Error> {
    let body = vec![sequence as u8; BODY_LEN];
    mirror().write(m, PLACE, KIND, sequence, sequence as u32, &body, SITES).map(|_| ())
}

/// The sequence of the page, if it is whole.
fn read(m: &FaultMedium) -> Option<u64> {
    let page = mirror().read(m, PLACE, KIND).ok()?.page;
    let whole = page.body == vec![page.sequence as u8; BODY_LEN];
    (whole && u64::from(page.count) == page.sequence).then_some(page.sequence)
}

#[test]
fn a_crash_leaves_the_old_page_or_the_new_one() {
    let prepare = |m: &FaultMedium| write(m, 0).unwrap();
    let wrong = |kind, off| wrong(kind, off, prepare, |m, n| write(m, n).unwrap(), read);
    for kind in KINDS {
        assert_eq!(wrong(kind, "nothing"), 0, "{kind}");
    }
    for site in ["test.b", "test.drain-b", "test.a", "test.drain-a"] {
        assert!(wrong(MediumKind::Dax, site) > 0, "{site} is not needed, or the check is blind");
    }
    for site in ["test.b", "test.a"] {
        assert!(wrong(MediumKind::File, site) > 0, "{site} is not needed, or the check is blind");
    }
}

fn new_pool(m: &FaultMedium) -> Superblock {
    let mut superblock = superblock(2);
    write_superblock(m, &mut superblock).unwrap();
    superblock
}

#[test]
fn a_crash_leaves_the_old_superblock_or_the_new_one() {
    let prepare = |m: &FaultMedium| {
        let mut superblock = Superblock { log_generation: 0, ..superblock(2) };
        write_superblock(m, &mut superblock).unwrap();
    };
    let step = |m: &FaultMedium, n| {
        let mut superblock = read_superblock(m).unwrap().superblock;
        superblock.log_generation = n;
        superblock.label = "x".repeat(n as usize);
        write_superblock(m, &mut superblock).unwrap();
    };
    let find = |m: &FaultMedium| {
        let found = read_superblock(m).ok()?.superblock;
        let n = found.log_generation;
        (found.label.len() as u64 == n).then_some(n)
    };
    for kind in KINDS {
        assert_eq!(wrong(kind, "nothing", prepare, step, find), 0, "{kind}");
    }
    let sites = SUPERBLOCK_SITES;
    for site in [sites.b, sites.drain_b, sites.a, sites.drain_a] {
        let wrong = wrong(MediumKind::Dax, site.name(), prepare, step, find);
        assert!(wrong > 0, "{site} is not needed, or the check is blind");
    }
}

#[test]
fn a_crash_during_a_write_over_a_damaged_copy_leaves_one() {
    // Copy A is bad when the write begins: overwriting B at once would leave nothing.
    for damage in [
        |m: &FaultMedium| m.flip_bit(PLACE + 100, 3).unwrap(),
        |m: &FaultMedium| m.poison(PLACE, 1, Clear::Able).unwrap(),
    ] {
        let prepare = |m: &FaultMedium| write(m, 0).unwrap();
        let step = |m: &FaultMedium, n| {
            damage(m);
            write(m, n).unwrap();
        };
        for kind in KINDS {
            assert_eq!(wrong(kind, "nothing", prepare, step, read), 0, "{kind}");
        }
        assert!(wrong(MediumKind::Dax, "test.heal", prepare, step, read) > 0, "heal not needed?");
    }
}

#[test]
fn one_damaged_copy_is_found_and_healed() {
    for kind in KINDS {
        for side in [Side::A, Side::B] {
            for clear in [None, Some(Clear::Able), Some(Clear::Unable)] {
                one_damaged_copy(kind, side, clear);
            }
        }
    }
}

fn one_damaged_copy(kind: MediumKind, side: Side, clear: Option<Clear>) {
    let m = medium(kind);
    write(&m, 4).unwrap();
    let at = mirror().at(side, PLACE).unwrap();
    match clear {
        None => m.flip_bit(at + 2000, 7).unwrap(),
        Some(clear) => m.poison(at, 1, clear).unwrap(),
    }
    let found = mirror().read(&m, PLACE, KIND).unwrap();
    assert_eq!((found.damaged(), found.page.sequence), (Some(side), 4));
    let healed = mirror().heal(&m, PLACE, KIND, &found, SITES);
    if clear == Some(Clear::Unable) {
        assert!(matches!(healed, Err(Error::Media(_))));
        assert_eq!(read(&m), Some(4), "the other copy is still there");
        return;
    }
    assert_eq!(healed.unwrap(), [side]);
    let found = mirror().read(&m, PLACE, KIND).unwrap();
    assert!(!found.needs_heal());
    m.poison(mirror().at(side.other(), PLACE).unwrap(), 1, Clear::Able).unwrap();
    assert_eq!(read(&m), Some(4), "the healed copy is complete");
}

#[test]
fn a_lost_write_leaves_a_stale_copy_that_is_not_believed() {
    for side in [Side::A, Side::B] {
        let m = medium(MediumKind::Dax);
        write(&m, 1).unwrap();
        m.arm(FaultKind::Lost, When::touching(mirror().at(side, PLACE).unwrap(), PAGE));
        write(&m, 2).unwrap();
        let found = mirror().read(&m, PLACE, KIND).unwrap();
        assert_eq!((found.page.sequence, found.damaged()), (2, None));
        let stale = if side == Side::A { found.a } else { found.b };
        assert_eq!(stale, CopyState::Stale(1));
        assert_eq!(mirror().heal(&m, PLACE, KIND, &found, SITES).unwrap(), [side]);
        assert!(!mirror().read(&m, PLACE, KIND).unwrap().needs_heal());
    }
}

#[test]
fn misdirected_and_torn_copies_do_not_verify() {
    let m = medium(MediumKind::Dax);
    write(&m, 1).unwrap();
    mirror().write(&m, 2 * PAGE, KIND, 1, 0, &[], SITES).unwrap();
    // The page of this place lands on the page of another record, of the same kind.
    m.arm(FaultKind::Misdirected { to: 2 * PAGE }, When::touching(PLACE, PAGE));
    write(&m, 2).unwrap();
    assert_eq!(mirror().read(&m, PLACE, KIND).unwrap().a, CopyState::Stale(1));
    assert_eq!(mirror().read(&m, 2 * PAGE, KIND).unwrap().damaged(), Some(Side::A));
    m.arm(FaultKind::Torn(Torn::Prefix(100)), When::touching(SIDE + PLACE, PAGE));
    write(&m, 3).unwrap();
    assert_eq!(mirror().read(&m, PLACE, KIND).unwrap().damaged(), Some(Side::B));
    assert_eq!(read(&m), Some(3));
    assert!(mirror().read(&m, PLACE, KIND + 1).is_err(), "another kind");
    assert!(Mirror { seed: 1, ..mirror() }.read(&m, PLACE, KIND).is_err(), "another pool");
}

#[test]
fn both_copies_gone_says_what_was_found() {
    let m = medium(MediumKind::Dax);
    write(&m, 1).unwrap();
    m.poison(PLACE, 1, Clear::Able).unwrap();
    m.flip_bit(SIDE + PLACE, 0).unwrap();
    match mirror().read(&m, PLACE, KIND) {
        Err(Error::BothCopies { place, kind, a, b }) => {
            assert_eq!((place, kind, b), (PLACE, KIND, CopyState::Invalid));
            assert!(matches!(a, CopyState::Unreadable(_)));
        }
        other => panic!("{other:?}"),
    }
    write(&m, 2).unwrap();
    assert_eq!(read(&m), Some(2), "a new record may be written over two bad copies");
}

#[test]
fn one_copy_is_enough_where_no_more_are_kept() {
    let m = medium(MediumKind::Dax);
    let single = Mirror { copies: 1, ..mirror() };
    single.write(&m, PLACE, KIND, 1, 0, &[1], SITES).unwrap();
    let found = single.read(&m, PLACE, KIND).unwrap();
    assert_eq!((found.b, found.damaged(), found.needs_heal()), (CopyState::None, None, false));
    assert_eq!(crate::common::bytes(&m, SIDE + PLACE, PAGE), vec![0; PAGE as usize]);
    m.flip_bit(PLACE + 7, 7).unwrap();
    assert!(matches!(single.read(&m, PLACE, KIND), Err(Error::BothCopies { .. })));
}

#[test]
fn a_record_counts_up_also_over_failed_writes() {
    for kind in KINDS {
        let m = medium(kind);
        let mut record = Record::create(mirror(), PLACE, KIND, SITES);
        record.write(&m, 1, b"one").unwrap();
        let calls = m.calls();
        let mut failures = 0;
        for nth in 1..=8 {
            m.fail_nth(m.calls() + nth, FailMode::Once);
            failures += u64::from(record.write(&m, 2, b"two").is_err());
            m.fail_none();
            let mut again = Record::load(&m, mirror(), PLACE, KIND, SITES).unwrap();
            again.heal(&m).unwrap();
            record = again;
        }
        assert!(m.calls() > calls && (failures > 0 || kind != MediumKind::File));
        record.write(&m, 3, b"three").unwrap();
        let found = Record::load(&m, mirror(), PLACE, KIND, SITES).unwrap();
        assert_eq!((&found.page().body[..5], found.needs_heal()), (&b"three"[..], false));
        assert!(record.write(&m, 1, &[0; BODY_LEN + 1]).is_err());
    }
}

#[test]
fn copy_b_of_the_superblock_is_found_without_copy_a() {
    for poison in [false, true] {
        let m = medium(MediumKind::Dax);
        let pool = new_pool(&m);
        // Something that looks like it, but says that it belongs elsewhere, lies before it.
        m.put(STORE, 3 * PAGE, &pool.encode()).unwrap();
        m.put(STORE, 4 * PAGE, b"HOLDFAST").unwrap();
        m.poison(5 * PAGE, 1, Clear::Able).unwrap();
        if poison {
            m.poison(0, 1, Clear::Able).unwrap();
        } else {
            m.stray(10, &[0xff; 100]).unwrap();
        }
        let found = read_superblock(&m).unwrap();
        assert_eq!((&found.superblock, found.damaged()), (&pool, Some(Side::A)));
        assert_eq!(heal_superblock(&m, &found).unwrap(), [Side::A]);
        let found = read_superblock(&m).unwrap();
        assert!(!found.needs_heal());
        m.poison(SIDE, 1, Clear::Able).unwrap();
        let found = read_superblock(&m).unwrap();
        assert_eq!((&found.superblock, found.damaged()), (&pool, Some(Side::B)));
    }
}

#[test]
fn a_file_that_is_no_pool_is_told_from_a_damaged_one() {
    let m = medium(MediumKind::File);
    match read_superblock(&m) {
        Err(Error::Superblock { source: SuperblockError::NotAPool, searched }) => {
            assert_eq!(searched, m.len());
        }
        other => panic!("{other:?}"),
    }
    let mut pool = new_pool(&m);
    m.flip_bit(300, 1).unwrap();
    m.flip_bit(SIDE + 300, 1).unwrap();
    let both = read_superblock(&m);
    let corrupt =
        |e: &Error| matches!(e, Error::Superblock { source: SuperblockError::Corrupt { .. }, .. });
    assert!(both.is_err_and(|e| corrupt(&e)));
    m.poison(0, 1, Clear::Able).unwrap();
    assert!(matches!(read_superblock(&m), Err(Error::Media(_))));
    // Not searched for a copy B that could be read: a newer build wrote both.
    pool.incompatible = 1 << 40;
    write_superblock(&m, &mut pool).unwrap();
    match read_superblock(&m) {
        Err(Error::Superblock { source: SuperblockError::UnknownFeatures(_), searched: 0 }) => {}
        other => panic!("{other:?}"),
    }
    let tiny = FaultMedium::new(100, MediumKind::File, &Config::default());
    assert!(read_superblock(&tiny).is_err());
}

#[test]
fn a_superblock_of_another_pool_in_side_b_is_not_newer() {
    let m = medium(MediumKind::Dax);
    let pool = new_pool(&m);
    let foreign = Superblock { uuid: [7; 16], sequence: 99, ..pool.clone() };
    m.put(STORE, SIDE, &foreign.encode()).unwrap();
    let found = read_superblock(&m).unwrap();
    assert_eq!((found.superblock, found.b), (pool, CopyState::Invalid));
}

#[test]
fn a_superblock_is_not_overwritten_while_it_is_the_only_one() {
    let prepare = |m: &FaultMedium| {
        let mut superblock = Superblock { log_generation: 0, ..superblock(2) };
        write_superblock(m, &mut superblock).unwrap();
    };
    let step = |m: &FaultMedium, n| {
        let mut superblock = read_superblock(m).unwrap().superblock;
        m.stray(64, &[0xee; 64]).unwrap();
        superblock.log_generation = n;
        write_superblock(m, &mut superblock).unwrap();
    };
    let find = |m: &FaultMedium| Some(read_superblock(m).ok()?.superblock.log_generation);
    assert_eq!(wrong(MediumKind::Dax, "nothing", prepare, step, find), 0);
    let heal = SUPERBLOCK_SITES.heal.name();
    assert!(wrong(MediumKind::Dax, heal, prepare, step, find) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_damage_to_one_side_is_survived(
        side in prop_oneof![Just(Side::A), Just(Side::B)],
        at in 0..PAGE, damage in prop::collection::vec(any::<u8>(), 1..600),
    ) {
        let m = medium(MediumKind::Dax);
        let pool = new_pool(&m);
        write(&m, 6).unwrap();
        for place in [0, PLACE] {
            let n = damage.len().min((PAGE - at) as usize);
            m.stray(mirror().at(side, place).unwrap() + at, &damage[..n]).unwrap();
        }
        prop_assert_eq!(read(&m), Some(6));
        prop_assert_eq!(read_superblock(&m).unwrap().superblock, pool);
    }

    #[test]
    fn any_bytes_are_read_without_harm(
        seed in any::<u64>(), keep in 0..400usize,
    ) {
        let m = medium(MediumKind::Dax);
        let pool = new_pool(&m);
        write(&m, 6).unwrap();
        let mut numbers = crate::common::Numbers(seed);
        for place in [0, PLACE, SIDE, SIDE + PLACE] {
            m.stray(place + keep as u64, &numbers.bytes(PAGE as usize - keep)).unwrap();
        }
        prop_assert_eq!(read(&m), None);
        let found = read_superblock(&m);
        prop_assert!(found.is_err() || found.unwrap().superblock == pool);
    }
}
