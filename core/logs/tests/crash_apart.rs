//! Copies apart: lanes that run, one that crawls, rings that wrap, and a crash at every barrier.

mod common;

use common::engine::{Apart, Lose};
use common::{Oracle, superblock};
use holdfast_layout::LogPlacement;

/// Four lanes on rings of one page; the last two hardly ever run, and then stop anywhere.
fn run(seed: u64, weights: &[u64], turns: u64, lose: Lose, off: &'static str) -> Oracle {
    let run = Apart {
        superblock: superblock(LogPlacement::Apart, 4, 1, 2),
        weights: weights.to_vec(),
        turns,
        seed,
        lose,
        samples: 3,
        off,
    };
    run.run()
}

#[test]
fn no_acknowledged_update_is_ever_lost() {
    for seed in 0..2 {
        let oracle = run(seed, &[40, 40, 2, 1], 6000, Lose::Turns, "");
        let lanes = 2;
        // A commit takes two lines at least; a ring has 62.
        let laps = oracle.acked.len() as u64 * 2 / 62 / lanes;
        println!("{} commits, {laps} laps, {} images", oracle.acked.len(), oracle.images);
        assert_eq!(oracle.wrong, Default::default());
        assert!(laps >= 3, "rings wrap at least three times: {laps}");
        assert!(oracle.most >= 3, "records of several lanes are replayed together");
        assert!(oracle.images > 1000 && oracle.replayed > oracle.images / 2);
    }
}

/// Switches a site off and runs until the judge convicts it.
fn convicted(off: &'static str, lose: Lose) {
    for seed in 0..12 {
        let oracle = run(seed, &[40, 8, 2, 1], 3000, lose, off);
        if oracle.violations() > 0 {
            println!("{off}: seed {seed}, {} images, {:?}", oracle.images, oracle.wrong);
            return;
        }
    }
    panic!("{off} is not needed, or the judge is blind");
}

#[test]
fn the_commit_point_is_needed() {
    convicted("logs.ring.F1", Lose::Nothing);
}

#[test]
fn each_copy_is_needed_when_the_other_is_lost() {
    convicted("logs.ring.record_a", Lose::B);
    convicted("logs.ring.record_b", Lose::A);
    convicted("logs.scan.either", Lose::A);
}

#[test]
fn the_rule_of_reuse_is_needed() {
    convicted("logs.ring.reuse", Lose::Nothing);
}

#[test]
fn the_watermark_must_look_at_every_lane_in_the_right_order() {
    convicted("logs.numbers.busy", Lose::Nothing);
    convicted("logs.numbers.bound", Lose::Nothing);
}

#[test]
fn recovery_must_certify_skip_and_order() {
    convicted("logs.scan.certify", Lose::Nothing);
    convicted("logs.scan.complete", Lose::Nothing);
    convicted("logs.scan.order", Lose::Nothing);
}

#[test]
fn data_must_arrive_before_the_commit_is_complete() {
    convicted("test.engine.F2", Lose::Nothing);
}
