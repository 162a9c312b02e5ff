//! The command itself, short of starting a machine: what it lists, and what it does not
//! understand. It also has the program built where the tests are, for the step of CI that runs it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lab")).args(words).output().unwrap()
}

#[test]
fn scenes_are_listed_by_name() {
    let output = lab(&["--list"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for scene in ["track-dax", "stray", "badblocks", "hwpoison", "cuts", "blocklog"] {
        assert!(names.contains(&scene), "{scene} is not in {text}");
    }
}

#[test]
fn whoever_reads_no_further_hears_no_complaint() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let output = command.arg("--list").stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_is_not_understood_ends_with_sixteen_and_starts_nothing() {
    for words in [&["--only", "no-such-scene"][..], &["--cuts", "many"], &["--no-such-word"]] {
        let output = lab(words);
        assert_eq!(output.status.code(), Some(16), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words:?}: nothing is said");
    }
}
