//! The demo, small: its report, its verdict, the command that repeats it, and paths it cannot use.

use std::fs;
use std::process::Command;

use crate::common::{Done, Here};
use serde_json::Value;

/// Faults asked for.
const FAULTS: u64 = 60;

/// A folder of text files.
fn texts(here: &Here) {
    fs::create_dir(here.path("texts")).unwrap();
    for file in 0..40_u64 {
        let words = (0..400).map(|n| format!("word{} ", (n * n + file * 7) % 997));
        fs::write(here.path(&format!("texts/{file}.txt")), words.collect::<String>()).unwrap();
    }
    fs::write(here.path("texts/binary"), [0, 159, 146, 150]).unwrap();
}

/// Runs the demo, which takes as long as the machine needs.
fn demo(here: &Here, words: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let faults = FAULTS.to_string();
    command.args(["demo", "texts", "--dir", ".", "--faults", &faults, "--kills", "4"]);
    Done::of(command.args(words).current_dir(here.folder()).output().unwrap())
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn a_small_demo_loses_nothing_and_says_so() {
    let here = Here::new();
    texts(&here);
    let done = demo(&here, &["--json"]);
    let report: Value = serde_json::from_str(&done.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", done.out, done.err));
    assert_eq!((done.code, &report["good"]), (0, &true.into()), "{report}");
    assert_eq!((&report["files"], &report["seed"]), (&40.into(), &1.into()), "{report}");
    let always = &report["always"];
    for what in ["wrong", "refused"] {
        assert_eq!(always[what], 0, "{report}");
    }
    assert!(always["queries"].as_u64() > Some(0), "{report}");
    let faults = &always["faults"];
    let count = |what: &str| faults[what].as_u64().unwrap();
    assert!(count("injected") >= FAULTS, "{report}");
    assert_eq!((count("missed"), count("lost")), (0, 0), "{report}");
    assert_eq!(count("injected"), count("repaired") + count("overwritten"), "{report}");
    let kinds = always["by_kind"].as_object().unwrap();
    let by_kind: u64 = kinds.values().map(|kind| kind["injected"].as_u64().unwrap()).sum();
    assert_eq!(by_kind, count("injected"), "{report}");
    let kills = &report["kills"];
    // The steps are many more than the kills asked for, and each has its death.
    assert!(sum(&kills["by_step"]) >= 8 && kills["survived"] == Value::Array(vec![]), "{report}");
    assert!(kills["by_step"].as_object().unwrap().values().all(|n| n.as_u64() > Some(0)));
    for what in ["lost", "wrong"] {
        assert_eq!(kills[what], 0, "{report}");
    }
    assert_eq!((&report["differences"], &report["left"]), (&0.into(), &0.into()), "{report}");
    let again = report["again"].as_str().unwrap();
    assert!(again.starts_with("cargo run --release -- demo texts --seed 1"), "{again}");
    // The pool is gone with the demo.
    assert_eq!(fs::read_dir(here.folder()).unwrap().count(), 1);
}

#[test]
fn paths_without_text_are_refused() {
    let here = Here::new();
    fs::create_dir(here.path("empty")).unwrap();
    fs::write(here.path("binary"), [0, 1, 2]).unwrap();
    for (path, kind) in [("missing", "not-found"), ("empty", "not-found"), ("binary", "not-found")]
    {
        let value = here.json(8, &["demo", path]);
        assert_eq!(value["error"]["kind"], kind, "{value}");
        assert!(value["error"]["cause"].as_str().unwrap().contains(path), "{value}");
    }
    texts(&here);
    let value = here.json(8, &["demo", "texts", "--dir", "nowhere"]);
    assert_eq!(value["error"]["kind"], "not-found", "{value}");
    here.expect(16, &["demo", "texts", "--faults", "many"]);
}
