//! Files whose redundancy is in a pool, on the command line: all commands find it, the pool's lock
//! holds, and nothing is left of what was killed.

use std::fs::{self, File};
use std::time::Duration;

use crate::common::{Here, rot};

const PAGE: usize = 4096;

fn content(pages: usize) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

/// A folder with a file and a pool.
fn with_pool(pages: usize, size: &str) -> Here {
    let here = Here::new();
    fs::write(here.path("a.db"), content(pages)).unwrap();
    here.good(&["pool", "create", "k.pool", "--size", size]);
    here
}

#[test]
fn every_command_finds_it() {
    let here = with_pool(700, "32M");
    let made = here.json(0, &["protect", "a.db", "--in", "k.pool"]);
    assert!(made["pool"].as_str().unwrap().ends_with("/k.pool"), "{made}");
    here.good(&["verify", "a.db"]);
    rot(&here.path("a.db"), 3);
    assert_eq!(here.json(4, &["verify", "a.db"])["corrupt"], 1);
    let status = here.json(0, &["status", "a.db"]);
    assert_eq!((&status["pool"], &status["pages"]), (&made["pool"], &700.into()), "{status}");
    assert!(here.good(&["status", "a.db"]).out.contains("k.pool"));
    let done = here.json(1, &["repair", "a.db"]);
    assert_eq!(done["repaired_pages"], serde_json::json!([3]));
    assert!(fs::read(here.path("a.db")).unwrap() == content(700));
    here.json(0, &["repair", "a.db", "--before", "b"]);
    assert!(fs::read(here.path("b")).unwrap() == content(700));
    here.good(&["protect", "a.db", "--again"]);
    // The pool is whole, and has one region; a guard does not take the pointer for a side file.
    here.good(&["check", "k.pool"]);
    assert_eq!(here.good(&["map", "list", "k.pool"]).out.matches("holdfast.side.").count(), 1);
    let pointer = fs::read(here.path("a.db.holdfast")).unwrap();
    let done = here.expect(8, &["guard", "--", "sh", "-c", "exec 3<>a.db"]);
    assert!(done.err.contains("not guarded"), "{}", done.err);
    assert!(fs::read(here.path("a.db.holdfast")).unwrap() == pointer);
    // Somewhere else.
    fs::rename(here.path("k.pool"), here.path("m.pool")).unwrap();
    let done = here.expect(12, &["verify", "a.db"]);
    assert!(done.err.contains("k.pool") && done.err.contains("--in"), "{}", done.err);
    here.good(&["verify", "a.db", "--in", "m.pool"]);
    here.good(&["unprotect", "a.db", "--in", "m.pool"]);
    assert!(!here.path("a.db.holdfast").exists());
    assert!(!here.good(&["map", "list", "m.pool"]).out.contains("holdfast.side."));
    here.expect(16, &["protect", "a.db", "--in", "m.pool", "--side", "x"]);
    // Gone for good.
    here.good(&["protect", "a.db", "--in", "m.pool"]);
    fs::remove_file(here.path("m.pool")).unwrap();
    let done = here.expect(12, &["unprotect", "a.db"]);
    assert!(done.err.contains("--force"), "{}", done.err);
    here.good(&["unprotect", "a.db", "--force"]);
    assert!(!here.path("a.db.holdfast").exists());
    assert!(fs::read(here.path("a.db")).unwrap() == content(700));
}

#[test]
fn a_pool_in_use_and_a_pool_without_room_are_told() {
    let here = with_pool(700, "32M");
    here.good(&["protect", "a.db", "--in", "k.pool"]);
    let mut owner = here.started(&["map", "load", "k.pool", "m", "-"]);
    while !here.good(&["pool", "info", "k.pool"]).out.contains("in use by") {}
    for command in ["verify", "repair", "status", "unprotect"] {
        let done = here.expect(8, &[command, "a.db"]);
        assert!(done.err.contains("k.pool") && done.err.contains("in use"), "{}", done.err);
    }
    drop(owner.stdin.take());
    owner.wait().unwrap();
    here.good(&["verify", "a.db"]);
    // What the file grows by does not fit: told, and what was covered stays so.
    let here = with_pool(100, "16M");
    here.good(&["protect", "a.db", "--in", "k.pool"]);
    let file = File::options().append(true).open(here.path("a.db")).unwrap();
    std::io::Write::write_all(&mut &file, &content(20_000)).unwrap();
    drop(file);
    let done = here.expect(8, &["repair", "a.db"]);
    assert!(done.err.contains("no free space"), "{}", done.err);
    let found = here.json(0, &["verify", "a.db"]);
    assert_eq!((&found["good"], &found["corrupt"]), (&100.into(), &0.into()), "{found}");
    here.good(&["pool", "grow", "k.pool", "96M"]);
    here.good(&["repair", "a.db"]);
    assert_eq!(here.json(0, &["verify", "a.db"])["good"], 20_100);
}

#[test]
fn whatever_a_kill_leaves_the_next_command_puts_in_order() {
    let here = with_pool(6000, "48M");
    let whole = content(6000);
    let kill = |words: &[&str], after: u64| {
        let mut child = here.started(words);
        std::thread::sleep(Duration::from_millis(after));
        let _ = child.kill();
        child.wait().unwrap().success()
    };
    let mut early = 0;
    for round in 0..8 {
        let ended = kill(&["protect", "a.db", "--in", "k.pool"], 20 + round * 25);
        early += u32::from(!ended);
        if !here.path("a.db.holdfast").exists() {
            here.good(&["protect", "a.db", "--in", "k.pool"]);
        }
        here.good(&["verify", "a.db"]);
        let maps = here.good(&["map", "list", "k.pool"]).out;
        assert_eq!(maps.matches("holdfast.side.").count(), 1, "{maps}");
        rot(&here.path("a.db"), 7 * round as usize);
        kill(&["repair", "a.db"], 10 + round * 15);
        let left = here.run(&["repair", "a.db"]);
        assert!(left.code & !7 == 0, "{}{}", left.out, left.err);
        if left.code & 6 != 0 {
            // In the middle of its replacement: nobody vouches for it.
            here.expect(1, &["repair", "a.db", "--force"]);
        }
        assert!(fs::read(here.path("a.db")).unwrap() == whole, "{round}");
        kill(&["unprotect", "a.db"], 10 + round * 15);
        if here.path("a.db.holdfast").exists() {
            here.good(&["unprotect", "a.db"]);
        }
    }
    assert!(early > 0, "nothing was ever cut short");
    here.good(&["protect", "a.db", "--in", "k.pool"]);
    let maps = here.good(&["map", "list", "k.pool"]).out;
    assert_eq!(maps.matches("holdfast.side.").count(), 1, "{maps}");
    here.good(&["check", "k.pool"]);
}
