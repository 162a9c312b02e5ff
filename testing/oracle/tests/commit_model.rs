//! The commit protocol: never convicted as it is, always convicted with a rule left out.

use holdfast_oracle::commit_model::{Config, MediumKind, Mutant, Report, run};

const TRIALS: u64 = 800;

/// Runs the right protocol and checks that the trials reached what they are about.
fn right(medium: MediumKind) -> Report {
    let report = run(&Config::new(medium, None, TRIALS));
    println!("{medium:?}, all rules: {report}");
    assert_eq!(report.violated, 0);
    let t = &report.tally;
    assert!(t.least_wraps >= 3, "a ring wrapped only {} times", t.least_wraps);
    let reached = [t.waits, t.nested, t.replayed, t.marks, t.overflows, t.orphans, t.fresh];
    assert!(reached.iter().all(|&n| n > TRIALS / 2), "too little of something: {reached:?}");
    let reached = [t.growths, t.rots, t.repairs, t.closes];
    assert!(reached.iter().all(|&n| n > TRIALS / 10), "too little of something: {reached:?}");
    assert!(t.images > 50 * TRIALS);
    report
}

#[test]
fn flushed_memory_keeps_every_promise() {
    let report = right(MediumKind::Flushed);
    assert_eq!(report.tally.syncs, 0);
}

#[test]
fn files_keep_every_promise() {
    let report = right(MediumKind::File);
    assert!(report.tally.syncs > TRIALS && report.tally.failed_syncs > TRIALS / 20);
}

#[test]
fn more_lanes_and_longer_rings_change_nothing() {
    for medium in [MediumKind::Flushed, MediumKind::File] {
        let mut config = Config::new(medium, None, 100);
        (config.lanes, config.ring, config.wraps) = (5, 5, 3);
        let report = run(&config);
        println!("{medium:?}, 5 lanes: {report}");
        assert_eq!(report.violated, 0);
    }
}

#[test]
fn the_same_seeds_give_the_same_report() {
    let mut config = Config::new(MediumKind::Flushed, Some(Mutant::NoColumnLocks), 40);
    config.first_seed = 7_000;
    let report = run(&config);
    assert!(report.violated > 0);
    assert_eq!(report, run(&config));
    let seed = report.violations[0].seed;
    (config.first_seed, config.trials) = (seed, 1);
    assert_eq!(run(&config).violations, report.violations[..1], "a seed repeats its violation");
}

/// Trials until the first conviction, at most `most`.
fn trials_to_convict(mutant: Mutant, medium: MediumKind, most: u64) -> Option<u64> {
    let mut config = Config::against(mutant, medium, most);
    config.stop_at_first = true;
    let mut trials = 0;
    while trials < most {
        config.first_seed = trials + 1;
        config.trials = most - trials;
        let report = run(&config);
        trials += report.trials;
        if report.by_kind.keys().any(|&kind| mutant.convicted_by(kind)) {
            return Some(trials);
        }
    }
    None
}

#[test]
fn every_missing_rule_is_convicted() {
    let mut alive = Vec::new();
    for mutant in Mutant::ALL {
        for &medium in mutant.media() {
            let trials = trials_to_convict(mutant, medium, 6_000);
            println!("{mutant:?} on {medium:?}: {trials:?} trials");
            if trials.is_none() {
                alive.push((mutant, medium));
            }
        }
    }
    assert!(alive.is_empty(), "survived: {alive:?}");
}
