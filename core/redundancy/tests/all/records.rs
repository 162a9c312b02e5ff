//! Repair intent and scrub progress: what they leave for the next open, and hostile pages.

use crate::common::{PAGE, SIDE, bytes, dax, mirror, superblock, wrong};
use holdfast_faultmem::{Clear, FaultMedium};
use holdfast_layout::Field;
use holdfast_layout::format::{
    INTENT_PAGE, KIND_INTENT, KIND_PROGRESS, MIRRORED_LEN, PROGRESS_PAGE,
};
use holdfast_pmem::{MediumKind, Site};
use holdfast_redundancy::format::{FIELDS_INTENT, FIELDS_PROGRESS, INTENT_LEN, PROGRESS_LEN};
use holdfast_redundancy::progress::observe;
use holdfast_redundancy::{
    Error, Intent, MirrorSites, Progress, RepairIntent, ScrubProgress, ScrubState, Side,
};
use proptest::prelude::*;

const INTENT: Intent = Intent { at: 12345, len: 678, sum: 0xdead_beef };
const SITES: MirrorSites = MirrorSites {
    b: Site::new("test.b"),
    drain_b: Site::new("test.drain-b"),
    a: Site::new("test.a"),
    drain_a: Site::new("test.drain-a"),
    clear: Site::new("test.clear"),
    heal: Site::new("test.heal"),
};

fn size() -> u64 {
    superblock(2).size
}

fn number(field: &Field, body: &[u8]) -> u64 {
    field.of(body).unwrap().iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[test]
fn an_intent_outlives_the_process_until_it_is_cleared() {
    let m = dax();
    assert!(matches!(RepairIntent::load(&m, mirror(), size()), Err(Error::BothCopies { .. })));
    let mut intent = RepairIntent::create(&m, mirror()).unwrap();
    assert_eq!(intent.active(), None);
    intent.begin(&m, INTENT).unwrap();
    assert_eq!(intent.active(), Some(INTENT));
    let mut again = RepairIntent::load(&m, mirror(), size()).unwrap();
    assert_eq!(again.active(), Some(INTENT));
    again.clear(&m).unwrap();
    assert_eq!(again.active(), None);
    assert_eq!(RepairIntent::load(&m, mirror(), size()).unwrap().active(), None);
}

#[test]
fn an_intent_survives_the_loss_of_a_copy() {
    let m = dax();
    let mut intent = RepairIntent::create(&m, mirror()).unwrap();
    intent.begin(&m, INTENT).unwrap();
    m.poison(INTENT_PAGE, 1, Clear::Able).unwrap();
    let mut found = RepairIntent::load(&m, mirror(), size()).unwrap();
    assert_eq!((found.active(), found.record().damaged()), (Some(INTENT), Some(Side::A)));
    assert_eq!(found.record().heal(&m).unwrap(), [Side::A]);
    m.poison(SIDE + INTENT_PAGE, 1, Clear::Able).unwrap();
    let found = RepairIntent::load(&m, mirror(), size()).unwrap();
    assert_eq!(found.active(), Some(INTENT));
}

#[test]
fn intent_fields_are_where_the_format_says() {
    let m = dax();
    RepairIntent::create(&m, mirror()).unwrap().begin(&m, INTENT).unwrap();
    let body = bytes(&m, INTENT_PAGE + MIRRORED_LEN as u64, INTENT_LEN as u64);
    let values: Vec<u64> = FIELDS_INTENT.iter().take(3).map(|f| number(f, &body)).collect();
    assert_eq!(values, [INTENT.at, INTENT.len, u64::from(INTENT.sum)]);
    assert_eq!(INTENT_LEN as u64, FIELDS_INTENT.iter().map(|f| f.len).sum::<u64>());
}

#[test]
fn progress_goes_on_after_the_pool_is_reopened() {
    let m = dax();
    let mut record = ScrubProgress::create(&m, mirror()).unwrap();
    assert_eq!(observe(&m, mirror(), size()).unwrap(), Progress::default());
    for state in [ScrubState::Running, ScrubState::Paused, ScrubState::Cancelled, ScrubState::Idle]
    {
        let progress = Progress {
            pass: 1,
            next: 2 * PAGE,
            started_ns: 3,
            scanned: 4,
            objects: 9,
            object_bytes: 10,
            found: 5,
            repaired: 6,
            lost: 7,
            undecided: 8,
            state,
        };
        record.store(&m, &progress).unwrap();
        let (mut again, found) = ScrubProgress::load(&m, mirror(), size()).unwrap();
        assert_eq!((found, again.record().needs_heal()), (progress, false));
        record = again;
    }
    let body = bytes(&m, PROGRESS_PAGE + MIRRORED_LEN as u64, PROGRESS_LEN as u64);
    let values: Vec<u64> = FIELDS_PROGRESS.iter().map(|f| number(f, &body)).collect();
    assert_eq!(values, [1, 2 * PAGE, 3, 4, 5, 6, 7, 8, 0, 0, 9, 10, 0]);
    assert_eq!(PROGRESS_LEN as u64, FIELDS_PROGRESS.iter().map(|f| f.len).sum::<u64>());
}

#[test]
fn counts_that_no_pass_comes_to_can_be_gone_on_with() {
    let m = dax();
    let most = u64::MAX;
    let progress = Progress {
        scanned: most,
        objects: most,
        object_bytes: most,
        found: most,
        repaired: most,
        lost: most,
        undecided: most,
        ..Progress::default()
    };
    ScrubProgress::create(&m, mirror()).unwrap().store(&m, &progress).unwrap();
    let found = observe(&m, mirror(), size()).unwrap();
    let Progress { scanned, objects, object_bytes, found, repaired, lost, undecided, .. } = found;
    let counts = [scanned, objects, object_bytes, found, repaired, lost, undecided];
    let sum = counts.into_iter().try_fold(0_u64, u64::checked_add);
    assert!(sum.is_some_and(|sum| sum > 7 << 50), "{counts:?}");
}

/// Sites of one record, each of which a crash image must miss.
fn each_site_is_needed(record: &str, wrong: impl Fn(MediumKind, &str) -> u64) {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        assert_eq!(wrong(kind, "nothing"), 0, "{record} on {kind}");
    }
    for site in ["b", "drain-b", "a", "drain-a"] {
        let site = format!("redundancy.{record}.{site}");
        assert!(wrong(MediumKind::Dax, &site) > 0, "{site} is not needed, or the check is blind");
    }
}

#[test]
fn a_crash_leaves_the_old_intent_or_the_new_one() {
    fn load(m: &FaultMedium) -> Result<RepairIntent, Error> {
        RepairIntent::load(m, mirror(), size())
    }
    let prepare = |m: &FaultMedium| drop(RepairIntent::create(m, mirror()).unwrap());
    let step = |m: &FaultMedium, n| {
        let mut intent = load(m).unwrap();
        match n {
            2 => intent.clear(m).unwrap(),
            n => intent.begin(m, Intent { at: n, len: n, sum: n as u32 }).unwrap(),
        }
    };
    // States 0 (none), 1, 2 (none), 3: none is the old one or the new one of any two.
    let find = |m: &FaultMedium| match load(m).ok()?.active() {
        None => Some(load(m).ok()?.record().page().sequence - 1),
        Some(i) => (i.at == i.len && i.len == u64::from(i.sum)).then_some(i.at),
    };
    each_site_is_needed("intent", |kind, off| wrong(kind, off, prepare, step, find));
    let with_damage = |m: &FaultMedium, n| {
        m.flip_bit(INTENT_PAGE + 50, 1).unwrap();
        step(m, n);
    };
    let heal = "redundancy.intent.heal";
    assert_eq!(wrong(MediumKind::Dax, "nothing", prepare, with_damage, find), 0);
    assert!(wrong(MediumKind::Dax, heal, prepare, with_damage, find) > 0);
}

#[test]
fn a_crash_leaves_the_old_progress_or_the_new_one() {
    let prepare = |m: &FaultMedium| drop(ScrubProgress::create(m, mirror()).unwrap());
    let step = |m: &FaultMedium, n| {
        let (mut record, found) = ScrubProgress::load(m, mirror(), size()).unwrap();
        record.store(m, &Progress { pass: n, next: n, found: n, lost: n, ..found }).unwrap();
    };
    let find = |m: &FaultMedium| {
        let p = observe(m, mirror(), size()).ok()?;
        (p.pass == p.next && p.next == p.found && p.found == p.lost).then_some(p.pass)
    };
    each_site_is_needed("progress", |kind, off| wrong(kind, off, prepare, step, find));
    let with_damage = |m: &FaultMedium, n| {
        m.flip_bit(PROGRESS_PAGE + 50, 1).unwrap();
        step(m, n);
    };
    let heal = "redundancy.progress.heal";
    assert_eq!(wrong(MediumKind::Dax, "nothing", prepare, with_damage, find), 0);
    assert!(wrong(MediumKind::Dax, heal, prepare, with_damage, find) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn valid_pages_with_impossible_contents_are_refused(
        mut body in prop::collection::vec(any::<u8>(), 0..200), count in 0..3u32,
        high in any::<bool>(),
    ) {
        // Half of the time, small numbers that may be possible.
        if !high {
            body.iter_mut().enumerate().for_each(|(i, b)| if i % 8 > 1 || i >= 64 { *b = 0 });
        }
        let m = dax();
        mirror().write(&m, INTENT_PAGE, KIND_INTENT, 1, count, &body, SITES).unwrap();
        match RepairIntent::load(&m, mirror(), size()) {
            Ok(found) => if let Some(i) = found.active() {
                prop_assert!(i.len > 0 && i.at < size() && i.len <= size() - i.at);
            },
            Err(error) => prop_assert!(matches!(error, Error::Table { .. }), "{error}"),
        }
        mirror().write(&m, PROGRESS_PAGE, KIND_PROGRESS, 1, count, &body, SITES).unwrap();
        match observe(&m, mirror(), size()) {
            Ok(progress) => prop_assert!(progress.next <= size()),
            Err(error) => prop_assert!(matches!(error, Error::Table { .. }), "{error}"),
        }
    }
}
