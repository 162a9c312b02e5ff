//! Files that cannot grow and file systems that are full or read-only: an error that says so, and
//! nothing is changed. Limits on the length of files stand in for quotas; full and read-only file
//! systems are true ones in memory, mounted where nobody else sees them, if the system allows it.

use std::fs;
use std::process::Command;

use crate::common::{Done, Here, finish};
use serde_json::Value;

/// Runs a command under a limit that no write into a pool's heap keeps to.
fn limited(here: &Here, words: &[&str]) -> Done {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_holdfast")]);
    finish(words, command.args(words).current_dir(here.folder()))
}

/// Runs a script in a folder that is a file system of its own for it; nothing if the system does
/// not allow that. In the script, `t WORDS` runs the command and tells its code.
fn mounted(here: &Here, options: &str, script: &str) -> Option<String> {
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o {options} none {} || exit 77", here.folder().display());
    let bin = env!("CARGO_BIN_EXE_holdfast");
    let script = format!(
        "{mount}\ncd {}\nt() {{ '{bin}' \"$@\" --json 2>&1; echo \"code $?\"; }}\n{script}",
        here.folder().display(),
    );
    command.args(["-rm", "sh", "-c", &script]);
    let Ok(probe) = Command::new("unshare").args(["-rm", "true"]).output() else { return None };
    let done = if probe.status.success() { finish(&[], &mut command) } else { return None };
    if done.code == 77 {
        return None;
    }
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    Some(done.out)
}

/// The kinds of the errors in the output of a script, in order; each command failed with 8.
fn kinds(out: &str) -> Vec<String> {
    let codes: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    let objects = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let errors = objects.filter(|object| object["error"].is_object());
    let kinds: Vec<String> =
        errors.map(|object| object["error"]["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(codes, vec!["8"; kinds.len()], "{out}");
    kinds
}

#[test]
fn files_that_may_not_grow() {
    let here = Here::new();
    let done = limited(&here, &["pool", "create", "a.pool", "--size", "16M", "--json"]);
    let value: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.code, &value["error"]["kind"]), (8, &"no-space".into()), "{value}");
    assert!(!here.path("a.pool").exists());
    // A commit that the system refuses ends the command; what was there before stays.
    here.pool("a.pool");
    fs::write(here.path("more"), "more\tof it\n".repeat(10)).unwrap();
    for words in
        [&["map", "load", "a.pool", "words", "more"][..], &["map", "put", "a.pool", "m", "k", "v"]]
    {
        let done = limited(&here, words);
        assert_eq!(done.code, 8, "{words:?}: {}", done.err);
        assert!(done.err.contains("raise the limit"), "{}", done.err);
    }
    here.good(&["check", "a.pool"]);
    assert_eq!(here.good(&["map", "scan", "a.pool", "words"]).out.lines().count(), 500);
    here.expect(8, &["map", "get", "a.pool", "words", "more"]);
}

#[test]
fn full_file_systems() {
    let (here, there) = (Here::new(), Here::new());
    here.pool("a.pool");
    let pool = here.path("a.pool");
    let script = format!(
        "t pool create new.pool --size 16M
         test -e new.pool && exit 1
         cp --sparse=always '{pool}' a.pool && cp a.pool '{copy}'
         t map put a.pool words k v
         t repair a.pool
         t check a.pool
         t map get a.pool words key001
         cmp a.pool '{copy}' || exit 2",
        pool = pool.display(),
        copy = here.path("copy").display(),
    );
    let Some(out) = mounted(&there, "size=6M", &script) else {
        eprintln!("skipped: this system lets nobody mount a file system for himself");
        return;
    };
    assert_eq!(kinds(&out), ["no-space"; 5], "{out}");
    assert!(!out.contains("corrupt"), "no room is no damage: {out}");
}

#[test]
fn no_room_for_a_side_file_is_no_damage() {
    let (here, there) = (Here::new(), Here::new());
    let content: Vec<u8> = (0..700 * 4096).map(|at| (at / 4096 * 31 + at % 251) as u8).collect();
    fs::write(here.path("a.db"), content).unwrap();
    // Behind the states, entries and records of the first regions lies their parity.
    let parity = (32 + 1 + 16 + 2 + 5) * 4096;
    let script = format!(
        "cp '{data}' a.db
         dd if=/dev/zero of=full bs=4k count=736 2>&1 || exit 3
         t protect a.db
         ls a.db.holdfast* 2>/dev/null && exit 1
         rm full
         t protect a.db >/dev/null
         test -e a.db.holdfast || exit 4
         fallocate -p -o {parity} -l 4096 a.db.holdfast || exit 77
         dd if=/dev/zero of=full bs=4k 2>/dev/null
         t repair a.db
         rm full
         t repair a.db >done
         grep 'code 1' done || exit 5
         t verify a.db >done
         grep 'code 0' done || exit 6
         cmp a.db '{data}' || exit 2",
        data = here.path("a.db").display(),
    );
    let Some(out) = mounted(&there, "size=6M", &script) else {
        eprintln!("skipped: this system lets nobody mount a file system for himself, or no holes");
        return;
    };
    let out: String = out
        .lines()
        .filter(|line| !["code 0", "code 1"].contains(line))
        .fold(String::new(), |out, line| out + line + "\n");
    assert_eq!(kinds(&out), ["no-space"; 2], "{out}");
    assert!(!out.contains("damaged"), "no room is no damage: {out}");
}

#[test]
fn read_only_file_systems() {
    let (here, there) = (Here::new(), Here::new());
    here.pool("a.pool");
    let script = format!(
        "cp '{}' a.pool && mount -o remount,ro . || exit 77
         t map put a.pool words k v
         t repair a.pool
         t scrub start a.pool
         t inject stray a.pool
         t pool create b.pool
         echo looks
         t check a.pool
         t check a.pool --repair --dry-run
         t pool info a.pool
         t events a.pool
         t map get a.pool words key001",
        here.path("a.pool").display(),
    );
    let Some(out) = mounted(&there, "size=32M", &script) else {
        eprintln!("skipped: this system lets nobody mount a file system for himself");
        return;
    };
    let (changes, looks) = out.split_once("looks\n").unwrap();
    assert_eq!(kinds(changes), ["read-only"; 5], "{out}");
    let codes: Vec<&str> = looks.lines().filter(|line| line.starts_with("code ")).collect();
    assert_eq!(codes, vec!["code 0"; 5], "{looks}");
    assert!(looks.contains("\"value\":\"value 1\""), "{looks}");
}

#[test]
fn objects_larger_than_the_pool() {
    let here = Here::new();
    let small = ["--size", "1M", "--frame", "4K", "--log", "64K", "--rows", "8"];
    here.good(&[&["pool", "create", "a.pool"][..], &small].concat());
    here.good(&["map", "put", "a.pool", "m", "k", "v"]);
    fs::write(here.path("big"), format!("big\t{}\n", "v".repeat(1_000_000))).unwrap();
    let done = here.json(8, &["map", "load", "a.pool", "m", "big"]);
    assert_eq!(done["error"]["kind"], "no-space", "{done}");
    assert_ne!(done["error"]["remedy"], "", "{done}");
    assert_eq!(here.good(&["map", "scan", "a.pool", "m"]).out, "k\tv\n");
    here.good(&["check", "a.pool"]);
}
