//! An owner and those who look on or give it commands, within one process and by the same ways
//! that other processes take.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use holdfast::anatomy::{Part, Stripe};
use holdfast::pmem::MediumKind;
use holdfast::{ErrorKind, Observer, Outcome, Owner, Parity, Pool, ScrubOptions, VerifyReads};

fn pool(folder: &tempfile::TempDir) -> Pool {
    let path = folder.path().join("a.pool");
    let options = Pool::options().size(16 << 20).parity(Parity::PQ).allow_inject(true);
    let pool = options.verify_reads(VerifyReads::Always).create(path).unwrap();
    let map = pool.map::<u64, [u8]>("map").unwrap();
    for key in 0..200 {
        map.put(&key, &[key as u8; 300]).unwrap();
    }
    pool
}

#[test]
fn damage_behind_the_owners_back_is_repaired_at_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder);
    let path = pool.path().unwrap();
    let observer = Observer::open(path).unwrap();
    let anatomy = observer.anatomy().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut stripes = std::collections::BTreeSet::new();
    for place in anatomy.of(Part::Object).chain(anatomy.of(Part::Slot)) {
        if place.len >= 8 && stripes.insert(anatomy.stripe(place.at)) {
            file.write_all_at(&[0x5a; 8], anatomy.in_file(place.at)).unwrap();
        }
    }
    assert!(stripes.len() > 5 && !stripes.contains(&Stripe::None));
    let mut owner = Owner::reach(path).unwrap();
    let found = owner.check(|_, _| {}).unwrap();
    assert!(found.found > 5, "{found:?}");
    let done = owner.scrub(ScrubOptions::default(), |_, _| {}).unwrap();
    assert!(done.repaired > 5 && done.lost == 0, "{done:?}");
    assert_eq!(owner.check(|_, _| {}).unwrap().found, 0);
    assert!(owner.stats().unwrap().repaired >= done.repaired);
    let map = pool.map::<u64, [u8]>("map").unwrap();
    for key in 0..200 {
        assert_eq!(map.get(&key).unwrap(), Some(vec![key as u8; 300]), "{key}");
    }
    // The journal tells outsiders, too.
    let events = observer.events_from(0).unwrap();
    assert!(events.iter().filter(|event| event.outcome == Outcome::Repaired).count() > 5);
    assert_eq!(observer.scrub_progress().unwrap().pass, 1);
}

#[test]
fn poisoned_pages_are_healed_under_plain_loads() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder);
    let word = pool.run(|tx| holdfast::Transaction::alloc(tx, 0x0123_4567_89ab_cdef_u64)).unwrap();
    let view = pool.view(word).unwrap();
    let mut owner = Owner::reach(pool.path().unwrap()).unwrap();
    let page = word.raw().offset() / 4096 * 4096;
    owner.poison(page, true).unwrap();
    // The load below meets a true SIGBUS, waits for the repair, and goes on.
    assert_eq!(*view, 0x0123_4567_89ab_cdef);
    drop(view);
    assert_eq!(pool.stats().lost, 0);
    assert!(pool.events().iter().any(|event| event.at == page));
}

#[test]
fn pools_not_made_for_it_are_not_poisoned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let _pool = Pool::options().size(16 << 20).create(&path).unwrap();
    let error = Owner::reach(&path).unwrap().poison(1 << 20, true).unwrap_err();
    assert!(error.to_string().contains("does not allow"), "{error}");
}

#[test]
fn owners_that_take_no_commands_are_not_reached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    let quiet = Pool::options().size(16 << 20).commands(false).heal_loads(false);
    let pool = quiet.create(&path).unwrap();
    assert!(Owner::reach(&path).is_none());
    drop(pool);
    let pool = Pool::open(&path).unwrap();
    assert!(Owner::reach(&path).is_some());
    drop(pool);
    assert!(Owner::reach(&path).is_none(), "the name is free once the pool is closed");
    // A connection that is open does not keep the pool open, nor its successor from opening.
    let pool = Pool::open(&path).unwrap();
    let mut owner = Owner::reach(&path).unwrap();
    drop(pool);
    let _pool = Pool::open(&path).unwrap();
    assert_eq!(owner.stats().unwrap_err().kind(), ErrorKind::Locked);
}

#[test]
fn a_scrub_is_paused_and_resumed_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder);
    let path = pool.path().unwrap().to_path_buf();
    let slow = ScrubOptions { rate: Some(1 << 20), resume: false };
    Owner::reach(&path).unwrap().start_scrub(slow).unwrap();
    let error = pool.scrub(ScrubOptions::default(), |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    Owner::reach(&path).unwrap().pause_scrub().unwrap();
    let paused = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        pool.scrub_progress().state == holdfast::ScrubState::Paused
    });
    assert!(paused, "{:?}", pool.scrub_progress());
    let resume = ScrubOptions { rate: None, resume: true };
    let done = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        pool.scrub(resume, |_, _| {}).ok()
    });
    assert_eq!(done.unwrap().state, holdfast::ScrubState::Idle);
    assert_eq!(pool.scrub_progress().pass, 1, "it went on with the same pass");
}

#[test]
fn an_owner_tells_how_much_it_does_and_how_long_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder);
    let mut owner = Owner::reach(pool.path().unwrap()).unwrap();
    let (before, slept) = (owner.figures().unwrap(), owner.latency().unwrap());
    let map = pool.map::<u64, [u8]>("map").unwrap();
    for key in 0..640 {
        map.put(&key, &[7; 100]).unwrap();
    }
    let after = owner.figures().unwrap();
    assert!(after.stats.commits >= before.stats.commits + 640, "{before:?} {after:?}");
    assert!(after.nanos > before.nanos && after.reserved == pool.status().reserved);
    assert!(!after.read_only && after.stats == pool.stats());
    let latency = owner.latency().unwrap().since(&slept);
    // From a sample: the first of it may count for some before, the last leaves some out.
    assert!((640 - 256..=640 + 256).contains(&latency.count()), "{latency:?}");
    let (half, most) = (latency.quantile(0.5).unwrap(), latency.quantile(1.0).unwrap());
    assert!(64 < half && half <= most && most < after.nanos * 2, "{half} {most}");
}

#[test]
fn pools_grow_while_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder);
    let big = || {
        pool.run(|tx| holdfast::Transaction::alloc_bytes(tx, holdfast::TypeNumber::BYTES, 12 << 20))
    };
    assert_eq!(big().unwrap_err().kind(), ErrorKind::NoSpace);
    pool.grow(64 << 20).unwrap();
    big().unwrap();
    assert_eq!(pool.superblock().size, 64 << 20);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    assert_ne!(pool.status().kind, MediumKind::Dax, "tests run on files and memory");
}
