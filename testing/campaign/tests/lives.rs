//! Lives of a pool, one after the other: what one said is what the next one finds, or it says so.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use holdfast_campaign::object::lives::REPEATED;

/// Bytes that a life says of its first transactions.
const ENOUGH: u64 = 4096;
/// Longest time to wait for them.
const LIMIT: Duration = Duration::from_secs(120);

/// Lives for a while after it has repeated what is there, and is killed; how it ended, and what it
/// said on the console.
fn life(folder: &Path, seed: u64) -> (ExitStatus, String) {
    let said = folder.join("said.new");
    let life = serde_json::json!({
        "pool": folder.join("pool"), "said": folder.join("said"), "seed": seed, "crash": null
    });
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast-campaign"))
        .args(["object", "--life", &life.to_string()])
        .stdout(File::create(&said).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut console = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    console.read_line(&mut line).unwrap();
    if line.starts_with(REPEATED) {
        // Some of what it does after that is to be acknowledged.
        let begun = Instant::now();
        let told = || std::fs::metadata(&said).unwrap().len();
        let before = told();
        while told() < before + ENOUGH && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        std::fs::rename(&said, folder.join("said")).unwrap();
    }
    (child.wait().unwrap(), line)
}

#[test]
fn each_life_finds_what_the_last_one_was_told_and_misses_what_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    let (_, line) = life(folder.path(), 1);
    assert!(line.starts_with(REPEATED), "{line}");
    std::fs::copy(&pool, folder.path().join("old")).unwrap();
    for seed in 2..5 {
        let (_, line) = life(folder.path(), seed);
        assert!(line.starts_with(REPEATED) && line.contains("acknowledged"), "{line}");
    }
    // A machine that lost all that came after the first life.
    std::fs::copy(folder.path().join("old"), &pool).unwrap();
    let (ended, line) = life(folder.path(), 5);
    assert_eq!(ended.code(), Some(1), "{line}");
    assert!(line.starts_with("life: Violation"), "{line}");
}
