//! Bad input: every command on every file that is no usable pool says what is wrong and what to do,
//! ends with the right code, and changes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Here, crc32c};
use holdfast::Transaction;

/// Commands that take a pool.
const COMMANDS: [&[&str]; 20] = [
    &["pool", "info", "P"],
    &["pool", "grow", "P", "64M"],
    &["stats", "P"],
    &["top", "P", "--once"],
    &["export", "P", "m"],
    &["import", "P", "m"],
    &["bench", "P"],
    &["check", "P"],
    &["check", "P", "--dry-run"],
    &["check", "P", "--repair"],
    &["check", "P", "--repair", "--dry-run"],
    &["repair", "P"],
    &["scrub", "start", "-w", "P"],
    &["scrub", "status", "P"],
    &["events", "P"],
    &["inject", "stray", "P"],
    &["map", "get", "P", "m", "k"],
    &["map", "put", "P", "m", "k", "v"],
    &["map", "scan", "P", "m"],
    &["map", "list", "P"],
];

/// Runs every command on a file; each fails with this kind and leaves the file as it was.
fn refused(here: &Here, name: &str, kind: &str) {
    let before = fs::read(here.path(name)).ok();
    for command in COMMANDS {
        let words: Vec<&str> =
            command.iter().map(|word| if *word == "P" { name } else { word }).collect();
        let done = here.run(&words);
        assert_ne!(done.code & 8, 0, "{words:?}: {} {}", done.code, done.err);
        assert!(done.err.starts_with("holdfast: ") && done.err.contains(name), "{}", done.err);
        assert!(done.err.contains("; "), "no remedy: {}", done.err);
        let value = here.json(done.code, &words);
        assert_eq!(value["error"]["kind"], kind, "{words:?}: {value}");
        assert_ne!(value["error"]["remedy"], "", "{words:?}");
    }
    assert!(fs::read(here.path(name)).ok() == before, "{name} was changed");
}

#[test]
fn missing_empty_foreign_and_directories() {
    let here = Here::new();
    refused(&here, "missing.pool", "not-found");
    refused(&here, "no/folder.pool", "not-found");
    fs::create_dir(here.path("folder.pool")).unwrap();
    refused(&here, "folder.pool", "not-a-file");
    fs::write(here.path("empty.pool"), b"").unwrap();
    refused(&here, "empty.pool", "not-a-pool");
    fs::write(here.path("short.pool"), b"HOLDFAST").unwrap();
    refused(&here, "short.pool", "not-a-pool");
    fs::write(here.path("foreign.pool"), b"something else\n".repeat(1000)).unwrap();
    refused(&here, "foreign.pool", "not-a-pool");
}

#[test]
fn truncated() {
    let here = Here::new();
    here.pool("a.pool");
    let whole = fs::read(here.path("a.pool")).unwrap();
    for (name, len) in [("page.pool", 4096), ("half.pool", whole.len() / 2)] {
        fs::write(here.path(name), &whole[..len]).unwrap();
        refused(&here, name, "truncated");
    }
}

#[test]
fn newer_version() {
    let here = Here::new();
    here.pool("a.pool");
    let mut bytes = fs::read(here.path("a.pool")).unwrap();
    let side =
        holdfast::Observer::open(here.path("a.pool")).unwrap().superblock().unwrap().side_len;
    for at in [0, side as usize] {
        let page = &mut bytes[at..at + 4096];
        page[12] = 9; // the version; then the sum, right again
        page[8..12].fill(0);
        let sum = crc32c(page).to_le_bytes();
        page[8..12].copy_from_slice(&sum);
    }
    fs::write(here.path("newer.pool"), &bytes).unwrap();
    refused(&here, "newer.pool", "newer-version");
}

#[test]
fn read_only_files_can_be_looked_at_but_not_changed() {
    let here = Here::new();
    here.pool("a.pool");
    fs::set_permissions(here.path("a.pool"), fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(here.path("a.pool")).is_ok() {
        eprintln!("skipped: this user may write to read-only files");
        return;
    }
    let before = fs::read(here.path("a.pool")).unwrap();
    here.good(&["check", "a.pool"]);
    here.good(&["pool", "info", "a.pool"]);
    for words in [&["repair", "a.pool"][..], &["map", "put", "a.pool", "m", "k", "v"]] {
        assert_eq!(here.json(8, words)["error"]["kind"], "read-only");
    }
    assert!(fs::read(here.path("a.pool")).unwrap() == before);
}

#[test]
fn pools_that_cannot_be_made() {
    let here = Here::new();
    fs::write(here.path("taken.pool"), b"mine").unwrap();
    for (words, kind) in [
        (&["taken.pool"][..], "exists"),
        (&["."], "exists"),
        (&["no/folder.pool"], "not-found"),
        (&["a.pool", "--size", "0"], "invalid"),
        (&["a.pool", "--size", "1M"], "invalid"),
        (&["a.pool", "--size", "15M"], "invalid"),
        (&["a.pool", "--size", "8000000T"], "invalid"),
        (&["a.pool", "--size", "16T"], "no-space"),
        (&["a.pool", "--rows", "1"], "invalid"),
        (&["a.pool", "--frame", "3000"], "invalid"),
        (&["a.pool", "--chunk", "3000"], "invalid"),
        (&["a.pool", "--label", &"x".repeat(100)], "invalid"),
    ] {
        let words = [&["pool", "create"], words].concat();
        let value = here.json(8, &words);
        assert_eq!(value["error"]["kind"], kind, "{words:?}: {value}");
        assert!(!here.path("a.pool").exists(), "{words:?}");
    }
    assert_eq!(fs::read(here.path("taken.pool")).unwrap(), b"mine");
    // Whoever asks for too little is told how much it takes.
    let told = here.expect(8, &["pool", "create", "a.pool", "--size", "1"]).err;
    assert!(told.contains("at least 16777216 bytes"), "{told}");
}

#[test]
fn a_full_file_system() {
    let here = Here::new();
    let full = std::path::Path::new("/dev/full");
    assert!(full.exists(), "the system has it");
    // A record that cannot be written stops an injection before anything is damaged.
    here.pool("a.pool");
    let before = fs::read(here.path("a.pool")).unwrap();
    here.expect(8, &["inject", "stray", "a.pool", "--record", "/dev/full"]);
    assert!(fs::read(here.path("a.pool")).unwrap() == before);
    // Values that do not fit, one or all of them together.
    let big = "v".repeat(100_000);
    let lines: String = (0..400).map(|n| format!("{n}\t{big}\n")).collect();
    fs::write(here.path("lines"), lines).unwrap();
    let done = here.json(8, &["map", "load", "a.pool", "words", "lines", "--batch", "5"]);
    assert_eq!(done["error"]["kind"], "no-space", "{done}");
    here.good(&["check", "a.pool"]);
    assert_eq!(here.good(&["map", "get", "a.pool", "words", "key007"]).out, "value 7\n");
}

#[test]
fn pipes_devices_links_and_files_of_zeros() {
    let here = Here::new();
    let made = std::process::Command::new("mkfifo").arg(here.path("pipe.pool")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("nowhere", here.path("link.pool")).unwrap();
    fs::File::create(here.path("zeros.pool")).unwrap().set_len(1 << 30).unwrap();
    for (name, kind) in
        [("pipe.pool", "not-a-file"), ("/dev/null", "not-a-file"), ("link.pool", "not-found")]
    {
        for words in [&["check", name][..], &["repair", name], &["map", "put", name, "m", "k", "v"]]
        {
            assert_eq!(here.json(8, words)["error"]["kind"], kind, "{words:?}");
        }
    }
    for words in [&["check", "zeros.pool"][..], &["repair", "zeros.pool"]] {
        assert_eq!(here.json(8, words)["error"]["kind"], "not-a-pool", "{words:?}");
    }
}

#[test]
fn records_that_are_none_are_refused_whatever_they_are() {
    let here = Here::new();
    here.pool("a.pool");
    here.good(&["inject", "stray", "a.pool", "--record", "record"]);
    let before = fs::read(here.path("a.pool")).unwrap();
    let whole = fs::read_to_string(here.path("record")).unwrap();
    fs::write(here.path("half"), format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
    fs::write(here.path("bytes"), b"\xff\n").unwrap();
    for (name, kind, what) in [
        ("half", "invalid", "half, line 2: tells of no fault"),
        ("bytes", "invalid", "bytes, line 1: is no UTF-8 text"),
        ("a.pool", "invalid", "a.pool, line 1: is no UTF-8 text"),
        // It never ends.
        ("/dev/zero", "invalid", "/dev/zero, line 1: is longer than 1048576 bytes"),
        (".", "not-a-file", ".: "),
        ("missing", "not-found", "missing: "),
    ] {
        let told = here.json(8, &["inject", "restore", "a.pool", "--record", name]);
        assert_eq!(told["error"]["kind"], kind, "{told}");
        assert!(told["error"]["cause"].as_str().unwrap().starts_with(what), "{told}");
    }
    assert!(fs::read(here.path("a.pool")).unwrap() == before);
    here.good(&["inject", "restore", "a.pool", "--record", "record"]);
    here.good(&["check", "a.pool"]);
}

#[test]
fn longer_files_than_their_pools_are_used_and_the_rest_is_left_alone() {
    let here = Here::new();
    here.pool("a.pool");
    let mut file = fs::OpenOptions::new().append(true).open(here.path("a.pool")).unwrap();
    std::io::Write::write_all(&mut file, &[0xab; 5000]).unwrap();
    for words in [
        &["pool", "info", "a.pool"][..],
        &["check", "a.pool"],
        &["map", "put", "a.pool", "words", "k", "v"],
        &["check", "a.pool", "--repair"],
    ] {
        here.good(words);
    }
    let bytes = fs::read(here.path("a.pool")).unwrap();
    assert_eq!(bytes.len(), (16 << 20) + 5000);
    assert!(bytes[16 << 20..].iter().all(|byte| *byte == 0xab));
}

#[test]
fn roots_of_programs_are_left_to_them() {
    let here = Here::new();
    let pool = holdfast::Pool::options().size(16 << 20).create(here.path("a.pool")).unwrap();
    let root = pool.run(|tx| {
        let root = tx.alloc(7_u64)?;
        tx.set_root(root)?;
        Ok(root)
    });
    drop(pool);
    let none = here.json(8, &["map", "get", "a.pool", "m", "k"]);
    assert_eq!(none["error"]["kind"], "not-found", "{none}");
    here.good(&["check", "a.pool"]);
    here.good(&["map", "put", "a.pool", "m", "k", "v"]);
    here.good(&["repair", "a.pool"]);
    let pool = holdfast::Pool::open(here.path("a.pool")).unwrap();
    assert_eq!(pool.read(root.unwrap()).unwrap(), 7);
    assert_eq!(pool.root::<i64>().unwrap_err().kind(), holdfast::ErrorKind::WrongType);
}

#[test]
fn misuse_is_code_16() {
    let here = Here::new();
    here.pool("a.pool");
    for words in [
        &[][..],
        &["nonsense"],
        &["pool"],
        &["pool", "create"],
        &["pool", "create", "b.pool", "--size", "lots"],
        &["pool", "create", "b.pool", "--parity", "three"],
        &["map", "get", "a.pool"],
        &["map", "scan", "a.pool", "m", "--prefix", "a", "--from", "b"],
        &["inject", "everything", "a.pool"],
        &["scrub", "start", "a.pool", "--rate", "0"],
        &["map", "load", "a.pool", "m", "lines", "--separator", ""],
    ] {
        let done = here.expect(16, words);
        assert!(!done.err.is_empty(), "{words:?}");
    }
    for words in [&["--help"][..], &["--version"], &["inject", "--help"]] {
        here.good(words);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = here.command(words).stdout(full).output().unwrap();
        assert_eq!(done.status.code(), Some(8), "{words:?} reaches nobody");
    }
}
