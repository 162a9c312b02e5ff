//! The same again: a run is decided by its seed, and a replay line shows one crash.

use std::process::Command;

use holdfast_explore::{Budget, Explorer, Failure, MediumKind, Mode, Model, REPLAY, Replay, Seen};

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
    for wrong in [
        Wrong::NoFence,
        Wrong::NoFlush,
        Wrong::DataFirst,
        Wrong::PublishBeforePersist,
        Wrong::CheckAfterDamage,
        Wrong::NotIdempotent,
        Wrong::SecondRecovery,
    ] {
        for mode in [Mode::Words, Mode::Lines] {
            let explorer = explorer(wrong).nested(2, Budget::default()).modes(&[mode]);
            let Some(failure) = explorer.run().failure else {
                assert_eq!((wrong, mode), (Wrong::PublishBeforePersist, Mode::Lines));
                continue;
            };
            shows_again(&explorer, &failure);
        }
    }
}

#[test]
fn the_last_line_is_a_whole_command() {
    let report = explorer(Wrong::NoFence).run().to_string();
    let name = std::thread::current().name().map(str::to_owned).expect("a test's thread");
    let command = format!("' cargo test -p holdfast-explore -- --exact {name} --nocapture\n");
    assert!(report.contains(&command) || name == "main", "{report}");
}

#[test]
fn a_setup_that_fails_is_replayed() {
    let explorer = explorer(Wrong::NoFence).setup(|_| Err("there is no room".into()));
    let report = explorer.run();
    let failure = report.failure.expect("it cannot begin");
    let line = failure.replay.to_string().parse().expect("its own line");
    let again = explorer.replay(&line).failure.expect("it cannot begin");
    assert_eq!(again.why, failure.why);
}

/// Whether its line says of a failure all that the report did, but what was tried.
fn shows_again<H: 'static, A: Model>(explorer: &Explorer<H, A>, failure: &Failure) {
    let line = failure.replay.to_string().parse().expect("its own line");
    let again = explorer.replay(&line);
    let same = again.failure.as_ref().expect("the same crash");
    assert_eq!(same.why, failure.why, "{failure}");
    assert_eq!(same.hinge, failure.hinge, "{failure}");
    assert_eq!((&same.arrived, &same.missing), (&failure.arrived, &failure.missing), "{failure}");
    assert_eq!(same.crashes, failure.crashes, "{failure}");
    assert_eq!(same.replay, failure.replay, "{failure}");
    assert_eq!((again.sequences, again.images), (1, 1), "{again}");
}

#[test]
fn a_line_that_does_not_fit_says_so_and_accuses_nobody() {
    let lines = [
        ("seq=9", "an operation that there is not"),
        ("seq=", "an operation that there is not"),
        ("seq=0;crash=99:", "an instant that the operation does not come to"),
        ("seq=0;crash=0:8888.1", "a unit that the operation has not stored to"),
        ("seq=0;crash=0:128.9", "a unit that the operation has not stored to"),
        ("seq=0;crash=0:/8888.1", "a unit that the operation has not stored to"),
        // A recovery after the first fence has three barriers at most, and stores the two values.
        ("seq=0;crash=1:;crash=9:", "an instant that the recovery does not come to"),
        ("seq=0;crash=1:;crash=0:8888.1", "a unit that the recovery has not stored to"),
        ("seq=0;crash=1:;crash=0:/8888.1", "a unit that the recovery has not stored to"),
    ];
    for (line, what) in lines {
        let line = format!("transfer;{line}").parse().expect("well formed");
        refuses(&line, &format!("the replay line names {what}"));
    }
    refuses(&"other;seq=0".parse().expect("well formed"), "the replay line names `other`");
}

/// Whether a structure that is right is not accused by a line, and told what is wrong with that.
fn refuses(line: &Replay, what: &str) {
    let report = explorer(Wrong::Nothing).replay(line);
    assert!(report.failure.is_none() && !report.is_clean(), "{line}: {report}");
    let text = report.to_string();
    assert!(text.contains(what), "{line}: {text}");
    assert!(!text.contains("FAILED") && !text.contains("hinge"), "{line}: {text}");
}

#[test]
fn a_line_that_does_not_say_what_was_missing_shows_the_crash_all_the_same() {
    let failure = explorer(Wrong::NoFence).run().failure.expect("a fence is missing");
    let mut line = failure.replay.clone();
    assert!(line.crashes[0].missing.take().is_some_and(|missing| !missing.is_empty()));
    let again = explorer(Wrong::NoFence).replay(&line).failure.expect("the same crash");
    assert_eq!((again.why, &again.arrived), (failure.why, &failure.arrived));
    assert!(again.missing.len() > failure.missing.len(), "all that had not arrived");
}

#[test]
fn a_run_that_failed_without_a_crash_and_does_no_more_is_clean_without_an_image() {
    let line = "transfer;seq=0".parse().expect("well formed");
    explorer(Wrong::Nothing).replay(&line).assert_clean();
}

/// What the next tests run in a process of its own: two explorers, and each place of the first.
#[test]
fn child_is_clean() {
    explorer(Wrong::Nothing).elisions().assert_all_needed();
    explorer(Wrong::Nothing).run().assert_clean();
    Explorer::new("none", 64, MediumKind::Dax, |_| Ok(()), |(), _: &Seen<()>| Ok(()))
        .op("nothing", |()| Ok(()), |()| ())
        .run()
        .assert_clean();
}

/// Runs it with this line; whether it passes, and what it says.
fn child(line: &str) -> (bool, String) {
    let child = Command::new(std::env::current_exe().expect("this program has a file"))
        .args(["--exact", "replays::child_is_clean", "--nocapture"])
        .env(REPLAY, line)
        .output()
        .expect("the same program runs");
    let said = [child.stdout, child.stderr].concat();
    (child.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_line_of_another_explorer_runs_nothing_says_so_and_stops_no_test() {
    let (passed, said) = child("none;mode=words;seq=0");
    assert!(passed, "{said}");
    let what = format!("NOTHING was explored: {REPLAY} is about `none`, and this is `transfer`");
    assert!(said.contains(&what), "{said}");
    // Unless nobody is called so.
    let (passed, said) = child("other;mode=words;seq=0;crash=0:");
    assert!(!passed && said.contains("is about `other`, and no explorer here"), "{said}");
    let other = explorer(Wrong::Nothing).replay(&"other;seq=0".parse().expect("well formed"));
    assert!(!other.is_clean(), "who asks for it by hand is told: {other}");
}

#[test]
fn the_line_of_a_place_that_is_needed_shows_what_fails_without_it() {
    let elisions = explorer(Wrong::Nothing).elisions();
    for one in elisions.tried {
        let failure = one.failure.expect("each is needed");
        let off = failure.replay.off.clone().expect("something was off");
        assert!(off.ends_with(&format!("@{}", one.place)), "{off}");
        assert!(failure.to_string().contains(&format!("switched off: {off}\n")), "{failure}");
        shows_again(&explorer(Wrong::Nothing), &failure);
        let (passed, said) = child(&failure.replay.to_string());
        let shown = said.contains(&failure.why) && said.contains(&off);
        assert!(!passed && shown, "{said}");
        // Nothing is wrong with that crash while all is on.
        let on = Replay { off: None, ..failure.replay };
        let report = explorer(Wrong::Nothing).replay(&on);
        assert!(report.failure.is_none(), "{report}");
    }
    let line = "transfer;seq=0;off=a:drain@b.rs:1:1".parse().expect("well formed");
    refuses(&line, "the replay line names a place that is not passed");
}

#[test]
fn what_is_no_line_is_refused_and_accuses_nobody() {
    let (passed, said) = child("transfer;what=1");
    assert!(!passed, "{said}");
    assert!(said.contains("NOTHING was explored") && said.contains("no replay line"), "{said}");
    assert!(!said.contains("hinge"), "{said}");
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
