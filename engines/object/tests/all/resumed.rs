//! A scrub that is stopped anywhere, and gone on with after the pool was opened anew, tells the
//! same as one that was not: everything it saw, and everything it repaired.

use crate::common::{TestPool, crash, create, pattern, put};
use holdfast_layout::RegionKind;
use holdfast_object::{CheckReport, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::progress::ScrubState;

/// A pool with damage that the first steps of a pass find, and some that later ones do.
fn damaged() -> TestPool {
    let pool = create(MediumKind::Dax);
    let objects: Vec<_> = (0..60).map(|i| put(&pool, &pattern(i, 700))).collect();
    for object in objects.iter().step_by(20) {
        pool.medium().flip_bit(object.offset() + 7, 3).unwrap();
    }
    let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let parity = zone.start + u64::from(zone.data_rows) * zone.row_len;
    for page in [1, zone.row_len / 4096 - 1] {
        pool.medium().flip_bit(parity + page * 4096 + 5, 1).unwrap();
    }
    pool
}

/// Scrubs until that many steps are done.
fn scrub(pool: &TestPool, resume: bool, steps: u64) -> Scrubbed {
    let control = ScrubControl::default();
    let mut done = 0;
    let options = ScrubOptions { rate: None, resume };
    let scrubbed = pool.scrub(options, &control, |_, _| {
        done += 1;
        if done == steps {
            control.pause();
        }
    });
    scrubbed.unwrap()
}

/// The figures of a report.
fn figures(done: &Scrubbed) -> [u64; 7] {
    let CheckReport { objects, object_bytes, column_bytes, found, .. } = done.report;
    [objects, object_bytes, column_bytes, found, done.repaired, done.lost, done.undecided]
}

#[test]
fn a_pass_in_parts_tells_what_a_pass_in_one_does() {
    let whole = scrub(&damaged(), false, u64::MAX);
    let (wanted, [objects, .., found, repaired, _, _]) = (figures(&whole), figures(&whole));
    assert!(objects > 60 && found == 5 && repaired == 5, "{whole:?}");
    let (mut steps, mut in_both) = (1, 0);
    loop {
        let first = damaged();
        let part = scrub(&first, false, steps);
        if part.state == ScrubState::Idle {
            break;
        }
        assert_eq!(part.state, ScrubState::Paused);
        let (pool, _) = crash(first);
        let done = scrub(&pool, true, u64::MAX);
        assert_eq!(figures(&done), wanted, "stopped after {steps} steps");
        let kept = pool.scrub_progress();
        assert_eq!((kept.pass, kept.state), (1, ScrubState::Idle));
        assert_eq!(
            [kept.objects, kept.object_bytes, kept.scanned - kept.object_bytes],
            wanted[..3],
            "stopped after {steps} steps"
        );
        assert_eq!([kept.found, kept.repaired, kept.lost, kept.undecided], wanted[3..]);
        in_both += u32::from((1..repaired).contains(&part.repaired));
        // The next one begins to count anew.
        let next = scrub(&pool, false, u64::MAX);
        assert_eq!((next.report.objects, next.report.found, next.repaired), (objects, 0, 0));
        steps += 1;
    }
    assert!(steps > 8 && in_both > 3, "{steps} steps, {in_both} with repairs before and after");
}

/// Who pauses often does not look at the entries of all chunks each time: that is told of, too,
/// while the pass stands where it was left.
#[test]
fn a_pass_that_is_taken_up_again_goes_on_where_it_was() {
    let standing = |pool: &TestPool| {
        let (left, mut standing) = (pool.scrub_progress(), 0);
        let options = ScrubOptions { rate: None, resume: true };
        let scrubbed = pool.scrub(options, &ScrubControl::default(), |now, _| {
            standing += u32::from(now.next == left.next);
        });
        assert_eq!(scrubbed.unwrap().state, ScrubState::Idle);
        standing
    };
    let pool = damaged();
    assert_eq!(scrub(&pool, false, 8).state, ScrubState::Paused);
    assert_eq!(standing(&pool), 0);
    // Another process knows nothing of them.
    let pool = damaged();
    assert_eq!(scrub(&pool, false, 8).state, ScrubState::Paused);
    assert!(standing(&crash(pool).0) > 0);
}

#[test]
fn a_pass_that_finds_a_longer_pool_than_it_left_counts_nothing_twice() {
    let mut steps = 1;
    loop {
        let pool = damaged();
        if scrub(&pool, false, steps).state == ScrubState::Idle {
            break;
        }
        pool.grow(3 << 20).unwrap();
        let done = scrub(&pool, true, u64::MAX);
        let next = scrub(&pool, false, u64::MAX);
        assert_eq!(figures(&done)[..2], figures(&next)[..2], "stopped after {steps} steps");
        assert_eq!(pool.scrub_progress().pass, 2);
        steps += 1;
    }
    assert!(steps > 8, "{steps}");
}
