//! Protected files on the command line: codes, objects, words, and what is never done unasked.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::SystemTime;

use crate::common::Here;

const PAGE: usize = 4096;
const PAGES: usize = 700;

fn content() -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

/// A folder with a protected file.
fn protected() -> Here {
    let here = Here::new();
    fs::write(here.path("a.db"), content()).unwrap();
    here.good(&["protect", "a.db"]);
    here
}

/// Changes a byte; as rot does, or as a program does.
fn change(here: &Here, page: usize, rot: bool) {
    let path = here.path("a.db");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let at = (page * PAGE + 100) as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.set_modified(if rot { before } else { SystemTime::now() }).unwrap();
}

fn bytes(here: &Here) -> Vec<u8> {
    fs::read(here.path("a.db")).unwrap()
}

#[test]
fn damage_is_found_told_and_repaired() {
    let here = protected();
    here.good(&["verify", "a.db"]);
    change(&here, 3, true);
    change(&here, 600, true);
    let found = here.json(4, &["verify", "a.db"]);
    assert_eq!(found["corrupt_pages"], serde_json::json!([3, 600]));
    assert_eq!((&found["undecided"], &found["changed"]), (&0.into(), &false.into()));
    let told = here.expect(4, &["verify", "a.db"]);
    assert!(told.out.contains("corrupt") && told.out.contains("holdfast repair"), "{}", told.out);
    let done = here.json(1, &["repair", "a.db"]);
    assert_eq!(done["repaired_pages"], serde_json::json!([3, 600]));
    assert!(bytes(&here) == content());
    here.good(&["verify", "a.db"]);
    here.good(&["repair", "a.db"]);
    let status = here.json(0, &["status", "a.db"]);
    assert_eq!(status["pages"], PAGES);
    assert_eq!((&status["without_sum"], &status["without_parity"]), (&0.into(), &0.into()));
    assert_eq!(status["journal"]["repaired"], 2);
    assert!(status["last_pass_ns"].as_u64().unwrap() > 0);
    // More in one stripe than parity can give back.
    change(&here, 8, true);
    change(&here, 9, true);
    let left = here.json(4, &["repair", "a.db"]);
    assert_eq!(left["lost_pages"], serde_json::json!([8, 9]));
}

#[test]
fn what_somebody_wrote_is_named_and_stays() {
    let here = protected();
    change(&here, 5, false);
    let written = bytes(&here);
    let found = here.json(4, &["verify", "a.db"]);
    assert_eq!((&found["corrupt"], &found["undecided"]), (&0.into(), &1.into()));
    assert_eq!(found["undecided_pages"][0]["page"], 5);
    let told = here.expect(4, &["verify", "a.db"]);
    assert!(told.out.contains("changed while it was not protected"), "{}", told.out);
    let done = here.json(4, &["repair", "a.db"]);
    assert_eq!((&done["repaired"], &done["undecided"]), (&0.into(), &1.into()));
    assert!(bytes(&here) == written);
    here.json(4, &["status", "a.db"]);
    // What it was, beside it.
    let done = here.json(0, &["repair", "a.db", "--before", "a.before"]);
    assert_eq!(done["given_back_pages"], serde_json::json!([5]));
    assert!(fs::read(here.path("a.before")).unwrap() == content());
    assert!(bytes(&here) == written);
    let again = here.expect(8, &["repair", "a.db", "--before", "a.before"]);
    assert!(again.err.contains("a.before"), "{}", again.err);
    here.expect(16, &["repair", "a.db", "--before", "b", "--force"]);
    // Taken for right, or brought back.
    let side = fs::read(here.path("a.db.holdfast")).unwrap();
    let time = fs::metadata(here.path("a.db")).unwrap().modified().unwrap();
    here.good(&["protect", "a.db", "--again"]);
    here.good(&["verify", "a.db"]);
    assert!(bytes(&here) == written);
    fs::write(here.path("a.db.holdfast"), side).unwrap();
    File::options().write(true).open(here.path("a.db")).unwrap().set_modified(time).unwrap();
    let done = here.json(1, &["repair", "a.db", "--force"]);
    assert_eq!(done["forced_pages"], serde_json::json!([5]));
    assert!(bytes(&here) == content());
    here.good(&["verify", "a.db"]);
}

#[test]
fn side_files_that_cannot_be_used_are_told_with_what_to_do() {
    let here = protected();
    let good = fs::read(here.path("a.db.holdfast")).unwrap();
    let at = good.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    let with = |bytes: &[u8], cause: &str| {
        fs::write(here.path("a.db.holdfast"), bytes).unwrap();
        for command in ["verify", "repair", "status", "unprotect"] {
            let done = here.run(&[command, "a.db"]);
            assert!(done.code & 8 != 0, "{command}: {} {}", done.code, done.err);
            let (what, to_do) = done.err.split_once("; ").unwrap();
            assert!(what.contains(cause) && !to_do.is_empty(), "{command}: {}", done.err);
            assert!(fs::read(here.path("a.db.holdfast")).unwrap() == bytes);
        }
        assert!(bytes_are(&here));
        here.good(&["unprotect", "a.db", "--force"]);
        assert!(!here.path("a.db.holdfast").exists());
    };
    with(&good[..1000], "cut off");
    with(&vec![0; 200_000], "not a side file");
    let mut damaged = good.clone();
    for copy in [0, 64 << 10] {
        damaged[copy + at + 60] ^= 1;
    }
    with(&damaged, "headers of the side file are damaged");
    with(&crate::common::newer(&good, at), "format version 9");
    let done = here.expect(8, &["verify", "a.db"]);
    assert!(done.err.contains("not protected") && done.err.contains("holdfast protect"));
    here.good(&["protect", "a.db", "--data", "8", "--parity", "2"]);
    let done = here.expect(8, &["protect", "a.db"]);
    assert!(done.err.contains("protected already"), "{}", done.err);
    here.good(&["verify", "a.db"]);
    here.expect(16, &["protect", "a.db", "--parity", "3"]);
}

fn bytes_are(here: &Here) -> bool {
    bytes(here) == content()
}

#[test]
fn a_file_in_use_is_left_alone() {
    let here = protected();
    // Somebody has it open for writing.
    let held = here.path("a.db");
    let mut holder = std::process::Command::new("sh")
        .args(["-c", "exec 3<>\"$0\"; echo ready; read line", held.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Read;
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    change(&here, 5, true);
    let done = here.expect(8, &["repair", "a.db"]);
    assert!(done.err.contains("open for writing"), "{}", done.err);
    let found = here.json(4, &["verify", "a.db"]);
    assert_eq!((&found["corrupt"], &found["undecided"]), (&0.into(), &1.into()));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    here.expect(1, &["repair", "a.db"]);
    // Damage keeps the side file from being removed by mistake.
    change(&here, 5, true);
    let done = here.expect(8, &["unprotect", "a.db"]);
    assert!(done.err.contains("1 damaged") && done.err.contains("--force"), "{}", done.err);
    here.expect(1, &["repair", "a.db"]);
    here.good(&["unprotect", "a.db"]);
    assert!(!here.path("a.db.holdfast").exists() && bytes_are(&here));
}
