//! Growing: before and after are told, what was in the pool stays, and a growth that cannot be
//! leaves the pool and its file as they were and says why.

use std::fs;
use std::process::Command;

use crate::common::{Here, ended, finish, owner_listens};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn length(here: &Here) -> u64 {
    fs::metadata(here.path("a.pool")).unwrap().len()
}

#[test]
fn a_pool_that_is_full_takes_more_once_it_has_grown() {
    let here = Here::new();
    here.pool("a.pool");
    let big = "v".repeat(100_000);
    let lines: String = (0..160).map(|n| format!("big{n}\t{big}\n")).collect();
    fs::write(here.path("big"), lines).unwrap();
    let load = ["map", "load", "a.pool", "words", "big", "--batch", "4"];
    assert_eq!(here.json(8, &load)["error"]["kind"], "no-space");
    let told = here.json(0, &["pool", "grow", "a.pool", "48M"]);
    let found = (&told["before"], &told["after"], &told["by"]);
    assert_eq!(found, (&json!(16 * MIB), &json!(48 * MIB), &json!("command")));
    assert_eq!(length(&here), 48 * MIB);
    here.good(&load);
    here.good(&["check", "a.pool"]);
    assert_eq!(here.good(&["map", "scan", "a.pool", "words"]).out.lines().count(), 660);
    assert_eq!(here.json(0, &["pool", "info", "a.pool"])["size"], 48 * MIB);
    let told = here.good(&["pool", "grow", "a.pool", "80M"]).out;
    assert!(told.contains("48 MiB") && told.contains("80 MiB"), "{told}");
    // What is new is protected as the rest is.
    here.good(&["inject", "stray", "a.pool", "--count", "20"]);
    here.expect(1, &["repair", "a.pool"]);
    assert_eq!(here.good(&["map", "get", "a.pool", "words", "key007"]).out, "value 7\n");
}

#[test]
fn a_pool_in_use_is_grown_by_its_owner() {
    let here = Here::new();
    here.pool("a.pool");
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-"]);
    let lines = owner.stdin.take().unwrap();
    owner_listens(&here, "a.pool");
    let told = here.json(0, &["pool", "grow", "a.pool", "64M"]);
    let found = (&told["before"], &told["after"], &told["by"]);
    assert_eq!(found, (&json!(16 * MIB), &json!(64 * MIB), &json!("owner")));
    // 64 times the size it was opened with is what an opening can grow to.
    let told = here.json(8, &["pool", "grow", "a.pool", "2G"]);
    assert_eq!(told["error"]["kind"], "no-space", "{told}");
    assert!(told["error"]["cause"].as_str().unwrap().contains("address space"), "{told}");
    assert!(told["error"]["remedy"].as_str().unwrap().contains("close the pool there"), "{told}");
    let told = here.json(8, &["pool", "grow", "a.pool", "32M"]);
    assert_eq!(told["error"]["kind"], "invalid", "{told}");
    assert_eq!(length(&here), 64 * MIB);
    drop(lines);
    assert_eq!(ended(owner).code, 0);
    here.good(&["check", "a.pool"]);
    here.good(&["pool", "grow", "a.pool", "2G"]);
    assert_eq!(length(&here), 2048 * MIB);
    here.good(&["map", "get", "a.pool", "words", "key499"]);
}

#[test]
fn who_keeps_a_pool_from_growing_is_named() {
    let here = Here::new();
    here.pool("a.pool");
    let silent = holdfast::Pool::options().commands(false).open(here.path("a.pool")).unwrap();
    let told = here.expect(8, &["pool", "grow", "a.pool", "64M"]).err;
    let who = format!("process {} has it open and takes no commands; close", std::process::id());
    assert!(told.contains(&who), "{told}");
    drop(silent);
    let looking = holdfast::Pool::open_read_only(here.path("a.pool")).unwrap();
    let told = here.expect(8, &["pool", "grow", "a.pool", "64M"]).err;
    assert!(told.contains(&format!("is being read by process {}", std::process::id())), "{told}");
    drop(looking);
    assert_eq!(length(&here), 16 * MIB);
}

#[test]
fn sizes_that_cannot_be() {
    let here = Here::new();
    here.pool("a.pool");
    let before = fs::read(here.path("a.pool")).unwrap();
    for (size, kind, text) in [
        ("0", "invalid", "the next size it can have is "),
        ("15M", "invalid", "it has 16777216 bytes already, and a pool cannot shrink"),
        ("16M", "invalid", "the next size it can have is "),
        ("17M", "invalid", "ask for at least so many"),
        ("8000000T", "invalid", "; ask for less"),
        ("16T", "no-space", "make room"),
    ] {
        let done = here.json(8, &["pool", "grow", "a.pool", size]);
        assert_eq!(done["error"]["kind"], kind, "{size}: {done}");
        let told = here.expect(8, &["pool", "grow", "a.pool", size]).err;
        assert!(told.contains(text), "{size}: {told}");
        assert_eq!(length(&here), 16 * MIB, "{size}");
    }
    here.expect(16, &["pool", "grow", "a.pool"]);
    here.expect(16, &["pool", "grow", "a.pool", "more"]);
    here.expect(16, &["pool", "grow", "a.pool", "-1"]);
    here.good(&["check", "a.pool"]);
    // Opening and closing leave a mark in the superblock, nothing else.
    let after = fs::read(here.path("a.pool")).unwrap();
    assert_eq!(before.len(), after.len());
}

#[test]
fn a_file_that_may_not_be_longer() {
    let here = Here::new();
    here.pool("a.pool");
    let bin = env!("CARGO_BIN_EXE_holdfast");
    let script = "ulimit -f 32768 && exec \"$0\" \"$@\"";
    let words = ["-c", script, bin, "pool", "grow", "a.pool", "64M", "--json"];
    let mut command = Command::new("bash");
    let done = finish(&words, command.args(words).current_dir(here.folder()));
    let value: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.code, &value["error"]["kind"]), (8, &json!("no-space")), "{value}");
    assert!(done.err.contains("raise the limit"), "{}", done.err);
    assert_eq!(length(&here), 16 * MIB);
    here.good(&["check", "a.pool"]);
    here.good(&["pool", "grow", "a.pool", "64M"]);
}
