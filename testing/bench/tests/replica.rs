//! One bit of an object flips, or a whole file is lost: a replica does nothing about the one, and
//! is what the other is brought back from, but only while the pool is closed. Ours serves the right
//! byte and has no second file.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the part; what it printed, and its figures. It must end well and leave nothing behind.
fn replica(more: &[&str]) -> (String, Value) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let json = dir.path().join("figures.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-bench"));
    command.args(["object", "--quick", "--check", "--only", "replica", "--dir"]).arg(dir.path());
    let output = command.arg("--json").arg(&json).args(more).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let all: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{text}");
    (text, all["figures"].clone())
}

/// A figure of the part, if it is there.
fn figure(figures: &Value, name: &str) -> Option<f64> {
    figures[format!("replica: {name}")]["median"].as_f64()
}

fn ours_repairs(figures: &Value) {
    for when in ["in use", "at rest"] {
        let of = |what: &str| figure(figures, &format!("{what}, flipped {when}, full"));
        assert_eq!(of("wrong bytes read"), Some(0.0), "{when}: {figures:#}");
        assert!(of("repairs") >= Some(1.0), "{when}: {figures:#}");
    }
}

#[test]
fn without_the_libraries_our_side_is_shown_alone() {
    let (text, figures) = replica(&["--alone"]);
    assert!(text.contains("only our side was run"), "{text}");
    ours_repairs(&figures);
    assert_eq!(figure(&figures, "wrong bytes read, flipped in use, libpmemobj-replica"), None);
}

#[test]
fn a_replica_serves_a_flipped_bit_and_brings_a_lost_file_back_while_closed() {
    // Tests fetch nothing: they take what the command has fetched before.
    let target = Path::new(env!("CARGO_BIN_EXE_holdfast-bench")).ancestors().nth(2).unwrap();
    if !target.join("foreign/libpmempool1.unpacked").exists() {
        let how = "cargo xtask bench object --only replica fetches it";
        return println!("skipped: no libpmempool in {}: {how}", target.display());
    }
    let (text, figures) = replica(&[]);
    ours_repairs(&figures);
    if let Some(line) = text.lines().find(|line| line.contains("takes no part")) {
        return println!("skipped: {line}");
    }
    let theirs = |what: &str| figure(&figures, &format!("{what}, libpmemobj-replica"));
    for (what, value) in [
        ("wrong bytes read, flipped in use", 1.0),
        ("wrong bytes in the replica meanwhile", 0.0),
        ("wrong bytes read, flipped at rest", 1.0),
        ("wrong bytes read, then synced", 1.0),
        ("opened without its file", 0.0),
        ("wrong bytes read, file lost and synced", 0.0),
    ] {
        assert_eq!(theirs(what), Some(value), "{what}: {text}");
    }
    assert!(theirs("sync while closed") > Some(0.0), "{text}");
}
