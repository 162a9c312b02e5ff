//! The command: what it refuses, what it lists, and that a replay does the same again.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Exit code and all that was said.
fn campaign(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-campaign"));
    let Output { status, stdout, stderr } = command.args(args).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn what_it_does_not_understand_is_said_at_once() {
    for (args, says) in [
        (&["nonsense"][..], "known are: object, mapped, all"),
        (&["mapped", "--only", "nonsense"], "--list shows all"),
        (&["object", "--tier", "short"], "possible values: ci, long"),
        (&["object", "--case", "x"], "--case"),
        (&["mapped", "--only", "sigkill", "--case", "99999"], "row sigkill has "),
        (&["object", "--only", "fail-nth", "--case", "99999"], "there is no case 99999"),
        (&["mapped", "--only", "crash", "--case", "24"], "crash has 24 in tier ci, from 0 on"),
        (&[], "required"),
    ] {
        let (code, text) = campaign(args);
        assert_eq!(code, Some(16), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
}

#[test]
fn a_list_that_cannot_be_added_to_is_told_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("no/such/folder/evidence.md");
    let no_list = folder.path().join("notes.md");
    std::fs::write(&no_list, "what I thought\n").unwrap();
    for path in [&nowhere, &no_list] {
        let (code, text) = campaign(&["mapped", "--ledger", path.to_str().unwrap()]);
        assert_eq!(code, Some(8), "{text}");
        assert!(text.contains("could not be noted") && !text.contains("row "), "{text}");
    }
    assert_eq!(std::fs::read_to_string(&no_list).unwrap(), "what I thought\n");
}

#[test]
fn rows_are_listed() {
    for (name, row) in [("object", "crash-single"), ("mapped", "writers"), ("all", "sigkill")] {
        let (code, text) = campaign(&[name, "--list"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.lines().any(|line| line.starts_with(row)), "{name}: {text}");
    }
}

#[test]
fn whoever_reads_no_further_hears_no_complaint() {
    for words in [&["all", "--list"][..], &["mapped", "--only", "damage", "--case", "3"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast-campaign"));
        let ended = command.args(words).stdout(writer).output().unwrap();
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && !complaint.contains("panic"), "{words:?}: {complaint}");
    }
}

#[test]
fn a_case_is_the_same_each_time() {
    let report = || -> Value {
        let args = ["mapped", "--only", "damage", "--case", "3", "--seed", "7", "--json"];
        let (code, text) = campaign(&args);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let (mut first, mut again) = (report(), report());
    for report in [&mut first, &mut again] {
        for row in report["rows"].as_array_mut().unwrap() {
            assert!(row["tally"]["count"].as_u64() > Some(0), "{row}");
            row.as_object_mut().unwrap().remove("seconds").unwrap();
        }
    }
    assert_eq!(first["rows"], again["rows"]);
}

/// Ctrl-C, as a terminal sends it to a program: cases that are under way end, and what is told says
/// that it was stopped. Nothing was wrong, so nothing is noted.
#[test]
fn somebody_stops_a_row_that_would_take_hours() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("evidence.md");
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast-campaign"))
        .args(["object", "--tier", "long", "--only", "damage", "--threads", "1", "--json"])
        .arg("--ledger")
        .arg(&list)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // By then it listens, and cases are under way.
    let begun = Instant::now();
    while !list.exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if ended.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(i32::from(holdfast_evidence::stop::CANCELLED)), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("it was stopped: goals are not judged"), "{said}");
    let rows = std::fs::read_to_string(&list).unwrap();
    assert_eq!(holdfast_evidence::rows(&rows).unwrap().len(), 0, "{rows}");
}
