//! The same again: a run is decided by its seed, and a replay line shows one crash.

use std::process::Command;

use holdfast_explore::{Budget, REPLAY};

use crate::transfer::{Wrong, explorer};

#[test]
fn the_same_seed_gives_the_same_report() {
    let run = || explorer(Wrong::NoFence).samples(5, 9).run().to_string();
    assert_eq!(run(), run());
    let clean = || explorer(Wrong::Nothing).samples(5, 9).run().to_string();
    assert_eq!(clean(), clean());
}

#[test]
fn a_replay_line_shows_the_failure_again_at_any_depth() {
    for wrong in [Wrong::NoFence, Wrong::NoFlush, Wrong::NotIdempotent, Wrong::SecondRecovery] {
        let explorer = explorer(wrong).nested(2, Budget::default());
        let failure = explorer.run().failure.expect("convicted elsewhere");
        let line = failure.replay.to_string().parse().expect("its own line");
        let again = explorer.replay(&line);
        let same = again.failure.as_ref().expect("the same crash");
        assert_eq!(same.why, failure.why, "{wrong:?}");
        assert_eq!(same.replay, failure.replay, "{wrong:?}");
        assert_eq!(again.sequences, 1);
    }
}

#[test]
fn a_line_that_does_not_fit_says_so() {
    let lines = ["transfer;seq=9", "transfer;seq=", "transfer;seq=0;crash=0:8888.1", "other;seq=0"];
    for line in lines {
        let report = explorer(Wrong::Nothing).replay(&line.parse().expect("well formed"));
        let why = report.failure.expect("refused").why;
        assert!(why.contains("the replay line names"), "{line}: {why}");
    }
}

#[test]
fn a_crash_that_the_operation_does_not_come_to_is_not_clean() {
    let line = "transfer;seq=0;crash=99:".parse().expect("well formed");
    let report = explorer(Wrong::Nothing).replay(&line);
    assert!(report.failure.is_none() && !report.is_clean(), "{report}");
    assert!(report.to_string().contains("does not come to"), "{report}");
    // One that fails without a crash, and does no more, is clean without an image.
    let line = "transfer;seq=0".parse().expect("well formed");
    explorer(Wrong::Nothing).replay(&line).assert_clean();
}

/// What the next test runs in a process of its own.
#[test]
fn child_is_clean() {
    explorer(Wrong::Nothing).run().assert_clean();
}

#[test]
fn a_line_of_another_explorer_does_not_pass_for_a_run() {
    let child = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", "replays::child_is_clean"])
        .env(REPLAY, "other;mode=words;seq=0;crash=0:")
        .output()
        .expect("the same program runs");
    let said = [child.stdout, child.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!child.status.success(), "{said}");
    assert!(said.contains("is about `other`, and this is `transfer`"), "{said}");
}

/// What the next test runs in a process of its own.
#[test]
fn child_obeys_the_environment() {
    let report = explorer(Wrong::NoFence).run();
    assert!(report.failure.is_some());
    match std::env::var(REPLAY) {
        Ok(_) => assert_eq!((report.sequences, report.images), (1, 1), "{report}"),
        Err(_) => assert!(report.images > 1),
    }
}

#[test]
fn the_environment_decides_what_is_run() {
    let line = explorer(Wrong::NoFence).run().failure.expect("a fence is missing").replay;
    let status = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", "replays::child_obeys_the_environment"])
        .env(REPLAY, line.to_string())
        .output()
        .expect("the same program runs");
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
}
