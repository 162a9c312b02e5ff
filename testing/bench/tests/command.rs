//! The command as a user meets it: what it refuses, how it ends, what it leaves behind.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The benchmark, on a part that takes no time; other people's libraries are left out.
fn bench(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(["object", "--quick", "--alone", "--dir"]).arg(dir).args(args);
    command
}

fn run(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

/// A folder in memory.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// What a folder holds.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_it_does_not_understand_is_said_at_once() {
    let dir = memory();
    for (args, says) in [
        (vec!["--only", "nonsense"], "the parts are race, race-maps, growth, steps"),
        (vec!["--len", "100"], "only [64, 256, 1024, 4096]"),
        (vec!["--fast"], "--fast"),
    ] {
        let (code, text) = run(bench(dir.path(), &args));
        assert_eq!(code, Some(16), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
    for args in [
        vec!["profile", "jump"],
        vec!["profile", "overwrite", "--mode", "9"],
        vec!["profile", "overwrite", "--len", "0"],
        vec!["profile", "overwrite", "--objects", "0"],
        vec!["profile", "free", "--count", "10", "--objects", "9"],
        vec!["profile", "remove", "--count", "10", "--entries", "9"],
        vec!["profile", "alloc", "--threads", "2"],
        vec!["profile", "insert", "--map", "none"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
        command.args(&args).arg("--dir").arg(dir.path());
        let (code, text) = run(command);
        assert_eq!(code, Some(16), "{args:?}: {text}");
    }
    assert!(names(dir.path()).is_empty());
}

#[test]
fn what_cannot_be_written_is_said_before_anything_runs() {
    let dir = memory();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("below");
    let below = below.to_str().unwrap();
    for option in ["--json", "--charts", "--disk"] {
        let (code, text) = run(bench(dir.path(), &["--only", "space", option, below]));
        assert_eq!(code, Some(8), "{option}: {text}");
        assert!(text.contains(option) && text.contains(below), "{option}: {text}");
        assert!(!text.contains("goal"), "{option}: {text}");
    }
    let (code, text) = run(bench(&dir.path().join("none"), &["--only", "space"]));
    assert_eq!(code, Some(8), "{text}");
    assert!(text.contains("--dir") && text.contains("none"), "{text}");
}

#[test]
fn figures_and_goals_are_in_the_file() {
    let dir = memory();
    let json = dir.path().join("figures.json");
    std::fs::write(&json, "what was there before").unwrap();
    let path = json.to_str().unwrap();
    let args = ["--only", "space", "--check", "--json", path];
    let (code, text) = run(bench(dir.path(), &args));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("goals: 2 met, 0 missed, 0 not measured, 0 left out"), "{text}");
    let all: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(all["goals"]["met"], 2);
    assert_eq!(all["figures"]["goal.parity_percent"]["met"], true);
    assert_eq!(all["figures"]["remark.complete"], true);
    std::fs::remove_file(json).unwrap();
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_reader_that_goes_away_ends_it_and_leaves_nothing() {
    let dir = memory();
    let mut command = bench(dir.path(), &["--only", "steps", "--len", "64"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // One line is read, and then the pipe is closed.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(8), "{said}");
    assert!(said.contains("standard output was closed") && !said.contains("panicked"), "{said}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    let dir = memory();
    // One that does not end by itself.
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(["profile", "overwrite", "--count", "1000000000000", "--dir"]).arg(dir.path());
    let mut child = command.spawn().unwrap();
    let made = |name: String| name.starts_with("holdfast-bench.");
    while !names(dir.path()).into_iter().any(made) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, text) = run(bench(dir.path(), &["--only", "waits"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("removed"), "one that lives is left alone: {text}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!names(dir.path()).is_empty());
    let (code, text) = run(bench(dir.path(), &["--only", "waits"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("removed") && text.contains("holdfast-bench."), "{text}");
    assert!(names(dir.path()).is_empty());
}
