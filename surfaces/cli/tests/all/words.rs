//! What the command says: every message names what helps, says it once, and means what it says.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

use crate::common::{Here, ended, handles_int, owner_listens, until_committed};
use rustix::process::{Pid, Signal, kill_process};

/// The message of a command that fails with this code, without the path in front.
fn message(here: &Here, code: i32, words: &[&str]) -> String {
    let done = here.expect(code, words);
    let text = done.err.trim_end().strip_prefix("holdfast: ").unwrap().to_owned();
    assert!(!text.contains('\n'), "{words:?}: {text}");
    text
}

#[test]
fn files_that_are_no_pools_are_told_with_what_to_do() {
    let here = Here::new();
    fs::write(here.path("empty"), b"").unwrap();
    fs::write(here.path("short"), b"HOLDFAST").unwrap();
    fs::write(here.path("foreign"), b"something else\n".repeat(1000)).unwrap();
    for (name, cause, remedy) in [
        ("empty", "is empty", "restore the file from a copy"),
        ("short", "8 bytes", "restore the file from a copy"),
        ("foreign", "not a holdfast pool", "check the path, or create a pool under another name"),
    ] {
        for command in [&["check"][..], &["pool", "info"], &["repair"], &["map", "list"]] {
            let text = message(&here, 8, &[command, &[name]].concat());
            let (what, to_do) = text.split_once("; ").unwrap_or_else(|| panic!("{text}"));
            assert!(what.contains(cause) && to_do.contains(remedy), "{text}");
        }
    }
}

#[test]
fn a_message_says_a_thing_once() {
    let here = Here::new();
    here.pool("a.pool");
    let whole = fs::read(here.path("a.pool")).unwrap();
    fs::write(here.path("half.pool"), &whole[..8 << 20]).unwrap();
    for words in [&["check", "half.pool"][..], &["pool", "info", "half.pool"]] {
        let text = message(&here, 8, words);
        assert_eq!(text.matches("restore the whole file").count(), 1, "{text}");
        assert!(text.contains("16777216 bytes but its file only 8388608"), "{text}");
    }
    let big: String = (0..400).map(|n| format!("{n}\t{}\n", "v".repeat(60_000))).collect();
    fs::write(here.path("lines"), big).unwrap();
    let text = message(&here, 8, &["map", "load", "a.pool", "words", "lines", "--batch", "1"]);
    assert_eq!(text.matches("grow the pool").count(), 1, "{text}");
    assert!(text.contains("in the map `words`: the pool has no free space"), "{text}");
}

#[test]
fn limits_of_pools_are_told_in_sentences() {
    let here = Here::new();
    for (words, text) in [
        (&["--rows", "2"][..], "the number of rows must be from 3 to 254; "),
        (&["--size", "1M"], "with this frame a pool needs at least 16777216 bytes; make it larger"),
        (&["--size", "1M", "--frame", "4K"], "metadata and log alone need "),
        (&["--lanes", "2000"], "there can be at most 1023 lanes; "),
        (&["--size", "100T"], "of at most 35184372088832"),
        (&["--size", "16M", "--chunk", "8M"], "cannot be laid out like this: "),
    ] {
        let told = message(&here, 8, &[&["pool", "create", "a.pool"], words].concat());
        assert!(told.contains(text), "{told}");
    }
    for option in ["--lanes", "--log", "--chunk", "--events"] {
        let told = message(&here, 16, &["pool", "create", "a.pool", option, "0"]);
        assert!(told.starts_with(&format!("{option} 0: ")) && told.contains("; give "), "{told}");
    }
    assert!(!here.path("a.pool").exists());
}

#[test]
fn one_is_not_many_and_no_events_are_told_from_none_so_far() {
    let here = Here::new();
    here.pool("a.pool");
    let none = here.good(&["events", "a.pool", "--from", "99999"]).out;
    assert_eq!(none, "no events: nothing was ever found damaged\n");
    fs::write(here.path("one"), "k\tv\n").unwrap();
    let loaded = here.good(&["map", "load", "a.pool", "words", "one"]).out;
    assert_eq!(loaded, "1 line loaded, 1 key new\n");
    let injected = here.good(&["inject", "bitflip", "a.pool", "--part", "object"]).out;
    assert!(injected.contains("\n1 fault injected; "), "{injected}");
    // Every object of the map is read.
    let looked = here.expect(4, &["map", "scan", "a.pool", "words"]).err;
    assert!(looked.contains("1 damage found ("), "{looked}");
    here.expect(1, &["repair", "a.pool"]);
    let last = here.good(&["events", "a.pool", "--json"]).out.lines().count();
    let none = here.good(&["events", "a.pool", "--from", "99999"]).out;
    assert_eq!(none, format!("no events from number 99999 on: the last is {last}\n"));
    assert_eq!(here.good(&["events", "a.pool", "--from", "99999", "--json"]).out, "");
}

#[test]
fn what_goes_wrong_in_a_map_is_told_with_its_name() {
    let here = Here::new();
    here.pool("a.pool");
    here.good(&["map", "put", "a.pool", "hashed", "k", "v", "--kind", "hashmap"]);
    let text = message(&here, 8, &["map", "scan", "a.pool", "hashed"]);
    assert!(text.contains("`hashed` is a hash map") && text.contains("; "), "{text}");
    let text = message(&here, 8, &["map", "get", "a.pool", "hashed", "j"]);
    assert!(!text.contains("scan"), "a hash map cannot be scanned: {text}");
    let line = "k".repeat((1 << 20) + 1);
    fs::write(here.path("long"), format!("{}\tv\n{line}\n", "k".repeat(65_536))).unwrap();
    let text = message(&here, 8, &["map", "load", "a.pool", "words", "long", "--batch", "1"]);
    assert!(text.contains("line 2: is longer than 1048576 bytes"), "{text}");
    // The longest line there can be is one.
    let value = "v".repeat((1 << 20) - 2);
    fs::write(here.path("longest"), format!("k\t{value}\r\n")).unwrap();
    here.good(&["map", "load", "a.pool", "words", "longest"]);
    assert_eq!(here.good(&["map", "get", "a.pool", "words", "k"]).out.len(), value.len() + 1);
}

#[test]
fn output_that_nobody_reads_any_more_ends_a_command_quietly() {
    let here = Here::new();
    here.pool("a.pool");
    let lines: String = (0..20_000).map(|n| format!("more{n:05}\tvalue {n}\n")).collect();
    fs::write(here.path("lines"), lines).unwrap();
    here.good(&["map", "load", "a.pool", "words", "lines"]);
    for json in [&[][..], &["--json"]] {
        let mut child = here.started(&[&["map", "scan", "a.pool", "words"], json].concat());
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains("key000"), "{first}");
        let done = child.wait_with_output().unwrap();
        // As other programs end that write to a closed pipe.
        assert_eq!(done.status.signal(), Some(Signal::PIPE.as_raw()), "{:?}", done.status);
        assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = here.command(&["pool", "info", "a.pool"]).stdout(full).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(8), "{told}");
    assert!(told.starts_with("holdfast: standard output: ") && told.contains("; "), "{told}");
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn interrupts_end_long_commands_with_their_code() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "256M", "-q"]);
    let before = fs::read(here.path("a.pool")).unwrap();
    // A load that waits for lines: one interrupt is enough, and whole batches stay.
    let mut child = here.started(&["map", "load", "a.pool", "m", "-", "--batch", "1", "--json"]);
    let mut lines = child.stdin.take().unwrap();
    lines.write_all(b"a\t1\nb\t2\n").unwrap();
    // The map and two lines.
    until_committed(&here, "a.pool", 3);
    interrupt(&child);
    let done = ended(child);
    assert_eq!(done.code, 32, "{}{}", done.out, done.err);
    let told: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(told["interrupted"], true, "{told}");
    drop(lines);
    let there = here.good(&["map", "scan", "a.pool", "m"]).out;
    assert_eq!(told["lines"], there.lines().count(), "{there}");
    // A check changes nothing, so it may end wherever it is.
    fs::write(here.path("a.pool"), &before).unwrap();
    let mut ends = Vec::new();
    for wait in 0..40 {
        let child = here.started(&["check", "a.pool", "--json"]);
        handles_int(&child);
        std::thread::sleep(Duration::from_millis(5 * (wait % 10)));
        interrupt(&child);
        let done = ended(child);
        let value: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        assert!(value["error"]["kind"] == "cancelled" || done.code == 0, "{value}");
        ends.push(done.code);
        if done.code == 32 {
            break;
        }
    }
    assert!(ends.contains(&32), "{ends:?}");
    assert!(fs::read(here.path("a.pool")).unwrap() == before);
}

#[test]
fn whoever_waits_for_the_owner_can_interrupt_it() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "64M"]);
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-"]);
    let lines = owner.stdin.take().unwrap();
    owner_listens(&here, "a.pool");
    let child = here.started(&["scrub", "start", "-w", "a.pool", "--rate", "4M"]);
    while !here.good(&["scrub", "status", "a.pool"]).out.contains("running") {}
    interrupt(&child);
    let done = ended(child);
    assert_eq!(done.code, 32, "{}{}", done.out, done.err);
    assert!(done.out.contains("`scrub resume` goes on"), "{}", done.out);
    assert!(here.good(&["scrub", "status", "a.pool"]).out.contains("paused"));
    drop(lines);
    assert_eq!(ended(owner).code, 0);
}
