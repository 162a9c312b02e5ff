//! Damage done on purpose: found by a check, repaired by a scrub, a repair or their dry runs, told
//! by events, taken back by its record.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Here, ended, until};
use holdfast::{Owner, Pool};
use serde_json::Value;

const KINDS: [&str; 6] = ["bitflip", "stray", "poison", "lost", "misdirect", "torn"];

/// All that is in the map, as the command prints it.
fn contents(here: &Here) -> String {
    here.good(&["map", "scan", "a.pool", "words"]).out
}

#[test]
fn every_kind_is_found_and_repaired() {
    let here = Here::new();
    here.pool("a.pool");
    let whole = contents(&here);
    for (seed, kind) in (1..).zip(KINDS) {
        let seed = seed.to_string();
        let words = ["inject", kind, "a.pool", "--count", "3", "--seed", &seed, "--json"];
        let lines = here.good(&words).out;
        assert_eq!(lines.lines().count(), 3, "{kind}");
        assert!(
            lines.lines().all(|line| line.contains(&format!("\"kind\":\"{kind}\""))),
            "{lines}"
        );
        let before = std::fs::read(here.path("a.pool")).unwrap();
        let report = here.json(4, &["check", "a.pool"]);
        assert!(report["found"].as_u64() >= Some(1), "{kind}: {report}");
        let dry = here.json(4, &["check", "a.pool", "--repair", "--dry-run"]);
        assert!(dry["repaired"].as_u64() >= Some(1) && dry["lost"] == 0, "{kind}: {dry}");
        assert!(
            std::fs::read(here.path("a.pool")).unwrap() == before,
            "{kind}: changed by a check"
        );
        let done = here.json(1, &["scrub", "start", "-w", "a.pool"]);
        assert!(done["repaired"].as_u64() >= Some(1) && done["lost"] == 0, "{kind}: {done}");
        // A look, a dry run and the repair itself tell of the same damages.
        let found = [&report["found"], &dry["found"], &done["found"]];
        assert!(found.iter().all(|one| *one == found[0]), "{kind}: {found:?}");
        here.good(&["check", "a.pool"]);
        assert_eq!(contents(&here), whole, "{kind}");
    }
    let events = here.good(&["events", "a.pool", "--json"]).out;
    assert!(events.lines().count() >= 2 * KINDS.len());
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["outcome"], "repaired", "{event}");
    }
    assert!(here.good(&["events", "a.pool"]).out.contains("repaired in"));
    let status = here.json(0, &["scrub", "status", "a.pool"]);
    assert_eq!(status["pass"], KINDS.len());
    assert_eq!(status["state"], "idle");
}

#[test]
fn repair_and_check_with_repair_do_the_same() {
    let here = Here::new();
    here.pool("a.pool");
    for words in [&["repair", "a.pool"][..], &["check", "a.pool", "--repair"]] {
        here.good(words);
        here.good(&["inject", "stray", "a.pool", "--count", "8", "--seed", "5"]);
        let report = here.json(1, words);
        assert_eq!(report["left"], 0, "{report}");
        assert!(report["repaired"].as_u64() >= Some(1), "{report}");
        here.good(words);
    }
}

#[test]
fn every_part_can_be_chosen() {
    let here = Here::new();
    here.pool("a.pool");
    for part in ["object", "slot", "directory", "parity", "metadata"] {
        let words = ["inject", "bitflip", "a.pool", "--count", "2", "--part", part];
        let lines = here.good(&words).out;
        assert!(lines.contains(part), "{part}: {lines}");
        here.expect(1, &["repair", "a.pool"]);
    }
    // No object is long enough to have sums of its own, and a closed pool has no live log.
    for part in ["sums", "log"] {
        let done = here.expect(8, &["inject", "bitflip", "a.pool", "--part", part]);
        assert!(done.err.contains("no place left"), "{part}: {}", done.err);
    }
}

#[test]
fn a_record_takes_damage_back() {
    let here = Here::new();
    here.pool("a.pool");
    let whole = std::fs::read(here.path("a.pool")).unwrap();
    for kind in KINDS {
        here.good(&["inject", kind, "a.pool", "--count", "4", "--record", "record"]);
    }
    assert!(std::fs::read(here.path("a.pool")).unwrap() != whole);
    let restored = here.json(0, &["inject", "restore", "a.pool", "--record", "record"]);
    assert_eq!(restored["restored"], 4 * KINDS.len());
    assert!(std::fs::read(here.path("a.pool")).unwrap() == whole, "not as it was");
    let hit = r#"{"at":1,"in_file":18446744073709551615,"before":"00","after":"01"}"#;
    let hostile = format!(r#"{{"kind":"stray","part":"slot","hits":[{hit}]}}"#);
    for text in ["rubbish\n", &hostile] {
        std::fs::write(here.path("record"), text).unwrap();
        here.expect(8, &["inject", "restore", "a.pool", "--record", "record"]);
    }
    // A pool is no record: lines at its end would be no part of it.
    here.json(8, &["inject", "stray", "a.pool", "--record", "a.pool"]);
    assert!(std::fs::read(here.path("a.pool")).unwrap() == whole, "changed by a bad record");
}

#[test]
fn the_same_seed_does_the_same_damage() {
    let here = Here::new();
    here.pool("a.pool");
    let lines = |seed: &str| {
        let words = ["inject", "stray", "a.pool", "--count", "6", "--seed", seed];
        let out = here.good(&[&words[..], &["--json", "--record", "record"]].concat()).out;
        here.good(&["inject", "restore", "a.pool", "--record", "record"]);
        std::fs::remove_file(here.path("record")).unwrap();
        out
    };
    assert_eq!(lines("3"), lines("3"));
    assert_ne!(lines("3"), lines("4"));
}

#[test]
fn pools_not_made_for_it_are_left_alone() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M"]);
    let before = std::fs::read(here.path("a.pool")).unwrap();
    for kind in KINDS {
        let done = here.expect(8, &["inject", kind, "a.pool"]);
        assert!(done.err.contains("--allow-inject"), "{}", done.err);
    }
    assert!(std::fs::read(here.path("a.pool")).unwrap() == before);
}

#[test]
fn damage_beyond_redundancy_is_named_and_contained() {
    let here = Here::new();
    let create =
        ["pool", "create", "a.pool", "--size", "16M", "--parity", "none", "--allow-inject"];
    here.good(&create);
    std::fs::write(here.path("lines"), "a\t1\nb\t2\n").unwrap();
    here.good(&["map", "load", "a.pool", "m", "lines"]);
    here.good(&["inject", "bitflip", "a.pool", "--part", "object", "--count", "1", "--seed", "9"]);
    let report = here.json(4, &["check", "a.pool"]);
    assert_eq!(report["found"].as_u64().map(|n| n > 0), Some(true), "{report}");
    let repair = here.run(&["repair", "a.pool", "--json"]);
    assert_eq!(repair.code & 4, 4, "{}{}", repair.out, repair.err);
    let value: Value = serde_json::from_str(&repair.out).unwrap();
    assert!(value["left"].as_u64() > Some(0) || value["error"].is_object(), "{value}");
}

#[test]
fn a_pool_in_use_is_served_by_its_owner() {
    let here = Here::new();
    here.pool("a.pool");
    let pool = Pool::open(here.path("a.pool")).unwrap();
    assert!(Owner::reach(here.path("a.pool")).is_some());
    let info = here.json(0, &["pool", "info", "a.pool"]);
    assert_eq!(info["in_use"], true);
    assert_eq!(info["state"], format!("in use by process {}", std::process::id()));
    here.good(&["check", "a.pool"]);
    here.good(&["inject", "stray", "a.pool", "--count", "5"]);
    here.good(&["inject", "poison", "a.pool", "--count", "3", "--part", "object"]);
    let report = here.json(4, &["check", "a.pool"]);
    assert_eq!(report["by"], "owner");
    let done = here.json(1, &["scrub", "start", "-w", "a.pool"]);
    assert_eq!((&done["by"], &done["lost"]), (&"owner".into(), &0.into()), "{done}");
    here.good(&["repair", "a.pool"]);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
    assert!(pool.stats().repaired >= 8, "{:?}", pool.stats());
    here.good(&["scrub", "start", "a.pool"]);
    until("the end of the scrub", || {
        here.json(0, &["scrub", "status", "a.pool"])["state"] == "idle"
    });
    // Objects belong to the owner alone: who that is, and what to do.
    for words in [
        &["map", "put", "a.pool", "words", "k", "v"][..],
        &["map", "get", "a.pool", "words", "key001"],
        &["map", "del", "a.pool", "words", "key001"],
        &["map", "scan", "a.pool", "words"],
        &["map", "list", "a.pool"],
        &["map", "load", "a.pool", "words", "lines"],
    ] {
        let done = here.expect(8, words);
        let id = format!("process {}", std::process::id());
        assert!(done.err.contains(&id), "{words:?}: {}", done.err);
        assert_eq!(here.json(8, words)["error"]["kind"], "locked");
    }
    let refused = here.json(8, &["check", "a.pool", "--repair", "--dry-run"]);
    assert_eq!(refused["error"]["kind"], "locked", "{refused}");
}

#[test]
fn an_owner_that_takes_no_commands_is_named() {
    let here = Here::new();
    here.pool("a.pool");
    let _pool = Pool::options().commands(false).open(here.path("a.pool")).unwrap();
    let id = format!("process {}", std::process::id());
    let named = [
        &["check", "a.pool"][..],
        &["repair", "a.pool"],
        &["scrub", "start", "a.pool"],
        &["map", "put", "a.pool", "words", "k", "v"],
    ];
    let others = [&["inject", "poison", "a.pool"][..], &["scrub", "pause", "a.pool"]];
    // Each waits for seconds: beside each other.
    let both = |words| (here.started(words), here.started(&[words, &["--json"]].concat()));
    let begun: Vec<_> = named.into_iter().map(|words| (words, both(words))).collect();
    let others = others.map(|words| here.started(words));
    for (words, (plain, json)) in begun {
        let (plain, json) = (ended(plain), ended(json));
        assert_eq!((plain.code, json.code), (8, 8), "{words:?}: {}", plain.err);
        assert!(plain.err.contains(&id), "{words:?}: {}", plain.err);
        let told: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(told["error"]["kind"], "locked", "{words:?}: {told}");
    }
    for other in others {
        assert_eq!(ended(other).code, 8);
    }
}

#[test]
fn followed_events_come_as_they_happen() {
    let here = Here::new();
    here.pool("a.pool");
    let mut command = here.command(&["events", "a.pool", "--follow", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    here.good(&["inject", "stray", "a.pool", "--count", "4"]);
    here.expect(1, &["scrub", "start", "a.pool"]);
    // Waits for the fourth event, however long it takes: the command would not end by itself.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..4 {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(event["outcome"], "repaired", "{event}");
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_scrub_is_paused_by_others_and_goes_on_where_it_was() {
    let here = Here::new();
    here.pool("a.pool");
    let child = slow_scrub(&here);
    // Two processes of the command: the one that scrubs owns the pool, the others ask it.
    let id = format!("process {}", child.id());
    let refused = here.expect(8, &["map", "get", "a.pool", "words", "key001"]);
    assert!(refused.err.contains(&id) && refused.err.contains("close it"), "{}", refused.err);
    assert_eq!(here.json(0, &["pool", "info", "a.pool"])["state"], format!("in use by {id}"));
    assert_eq!(here.json(0, &["check", "a.pool"])["by"], "owner");
    here.good(&["events", "a.pool"]);
    let second = here.json(8, &["scrub", "start", "-w", "a.pool"]);
    assert_eq!(second["error"]["kind"], "locked", "{second}");
    here.good(&["scrub", "pause", "a.pool"]);
    is_resumed(&here, child);
}

#[test]
fn an_interrupted_scrub_goes_on_where_it_was() {
    let here = Here::new();
    here.pool("a.pool");
    let child = slow_scrub(&here);
    interrupt(&child);
    is_resumed(&here, child);
}

/// A process that scrubs for long, and has begun to: it listens, and most of the pool is ahead.
fn slow_scrub(here: &Here) -> std::process::Child {
    let words = ["scrub", "start", "a.pool", "--rate", "512K"];
    let child = here.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the scrub", || here.json(0, &["scrub", "status", "a.pool"])["state"] == "running");
    child
}

/// A scrub that was stopped ends, and goes on in the same pass.
fn is_resumed(here: &Here, child: std::process::Child) {
    let done = crate::common::Done::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, 32, "{}{}", done.out, done.err);
    let status = here.json(0, &["scrub", "status", "a.pool"]);
    assert_eq!((&status["state"], &status["pass"]), (&"paused".into(), &1.into()), "{status}");
    here.good(&["scrub", "resume", "a.pool"]);
    let status = here.json(0, &["scrub", "status", "a.pool"]);
    assert_eq!((&status["state"], &status["pass"]), (&"idle".into(), &1.into()), "{status}");
}

/// Ctrl-C.
fn interrupt(child: &std::process::Child) {
    let id = rustix::process::Pid::from_child(child);
    assert!(rustix::process::kill_process(id, rustix::process::Signal::INT).is_ok());
}
