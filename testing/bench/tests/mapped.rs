//! The benchmark of mapped files as a user meets it: what it refuses, that it runs, that a trace is
//! read.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(["mapped", "--quick", "--dir"]).arg(dir).args(args);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// A folder in memory.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn what_it_does_not_understand_is_said_at_once() {
    let dir = memory();
    for (args, says) in [
        (vec!["--only", "nonsense"], "the parts are costs, hash, tree"),
        (vec!["--trace", "x"], "add --only vulnerability"),
        (vec!["--fast"], "--fast"),
    ] {
        let (code, text) = bench(dir.path(), &args);
        assert_eq!(code, Some(16), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
}

/// Whether stores can be tracked here at all.
fn tracked(text: &str) -> bool {
    let here = !text.contains("no such source of dirty pages");
    if !here {
        eprintln!("skipped: this kernel tracks no stores: {text}");
    }
    here
}

#[test]
fn every_pattern_is_measured_and_held_against_its_model() {
    let dir = memory();
    let json = dir.path().join("figures.json");
    let charts = dir.path().join("charts");
    let to = ["--json", json.to_str().unwrap(), "--charts", charts.to_str().unwrap()];
    let (code, text) = bench(dir.path(), &[&["--only", "lines"], &to[..]].concat());
    if !tracked(&text) {
        return;
    }
    assert_eq!(code, Some(0), "{text}");
    let all: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let figures = &all["figures"];
    for pattern in ["uniform", "zipf", "sequential"] {
        for what in ["plain", "kept", "loss", "model", "dirty pages per pass"] {
            let name = format!("{what} lines {pattern}, lazy, 1 s, same core");
            assert!(figures[&name]["median"].is_f64(), "{name}: {text}");
        }
        let commit = format!("kept lines {pattern}, at each commit, 1 s, same core");
        assert!(figures[&commit]["median"].as_f64().unwrap() > 0.0, "{text}");
    }
    assert!(charts.join("mapped-losses.svg").exists(), "{text}");
    // Too short to judge a loss, and says so.
    assert!(text.contains("left out: lines_uniform_loss_1s"), "{text}");
}

/// Every row of the table of designs, and every other switch, runs and is verified.
#[test]
fn every_switch_is_run() {
    let dir = memory();
    let (code, text) = bench(dir.path(), &["--only", "switches"]);
    if !tracked(&text) {
        return;
    }
    assert_eq!(code, Some(0), "{text}");
    for how in [
        "dirty bits + lazy",
        "sums only",
        "parity only",
        "P and Q",
        "portable instructions",
        "batch of 512 pages",
        "durability power",
        "write-protect + lazy",
        "notification + lazy",
        "at each commit",
        "at each commit, bare",
        "volatile caches, lazy",
        "volatile caches, write-protect + lazy",
        "volatile caches, at each commit",
    ] {
        let kept = format!("kept hash zipf 100 %, {how}, 1 s, same core ");
        let skipped = format!("not run: {how} ");
        assert!(text.contains(&kept) || text.contains(&skipped), "{how}: {text}");
    }
}

#[test]
fn a_trace_is_reckoned_up_and_rubbish_is_not() {
    let dir = memory();
    let trace = dir.path().join("trace");
    let read = |text: &str| {
        std::fs::write(&trace, text).unwrap();
        bench(dir.path(), &["--only", "vulnerability", "--trace", trace.to_str().unwrap()])
    };
    let (code, text) = read("holdfast-trace 1\n1 100 0+10\n2 100\n3 100 4+1 50+20\n");
    assert_eq!(code, Some(0), "{text}");
    let line = text.lines().find(|line| line.starts_with("most pages, trace, windows of 1 "));
    assert!(line.unwrap().contains(" 21 pages"), "{text}");
    assert!(text.contains("3 windows by share, none, to 10 %, ... all: [1, 1, 0, 1,"), "{text}");
    let (code, text) = read("holdfast-trace 1\n1 100 0+101\n");
    assert_eq!(code, Some(8), "{text}");
    assert!(text.contains("line 2") && text.contains("beyond the file"), "{text}");
}
