//! What stands beside a protected file is not what was expected: a copy, a pipe, a folder that may
//! not be written to. Nothing is lost by it, and nobody waits for ever.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{Done, Here, finish, rot};

const PAGE: usize = 4096;

fn content(pages: usize) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

fn with_pool() -> Here {
    let here = Here::new();
    fs::write(here.path("a.db"), content(200)).unwrap();
    here.good(&["pool", "create", "k.pool", "--size", "16M"]);
    here
}

#[test]
fn a_copied_pointer_changes_nothing_of_the_original() {
    let here = with_pool();
    here.good(&["protect", "a.db", "--in", "k.pool"]);
    for name in ["db", "db.holdfast"] {
        let (from, to) = (here.path(&format!("a.{name}")), here.path(&format!("b.{name}")));
        let time = fs::metadata(&from).unwrap().modified().unwrap();
        fs::copy(from, &to).unwrap();
        File::options().write(true).open(to).unwrap().set_modified(time).unwrap();
    }
    here.good(&["verify", "b.db"]);
    for words in [&["unprotect", "b.db"][..], &["protect", "b.db", "--again"], &["repair", "b.db"]]
    {
        let done = here.expect(8, words);
        assert!(done.err.contains("a copy") && done.err.contains("a.db.holdfast"), "{}", done.err);
        assert!(done.err.contains("unprotect --force"), "{}", done.err);
    }
    here.good(&["unprotect", "b.db", "--force"]);
    assert!(!here.path("b.db.holdfast").exists());
    here.good(&["verify", "a.db"]);
    rot(&here.path("a.db"), 5);
    here.expect(1, &["repair", "a.db"]);
    assert!(fs::read(here.path("a.db")).unwrap() == content(200));
    here.good(&["protect", "b.db", "--in", "k.pool"]);
    here.good(&["verify", "a.db"]);
}

#[test]
fn what_a_pool_keeps_for_nobody_is_told_and_removed() {
    let here = with_pool();
    here.good(&["protect", "a.db", "--in", "k.pool"]);
    let info = here.json(0, &["pool", "info", "k.pool"]);
    assert_eq!(info["files"][0]["standing"], "pointed", "{info}");
    assert!(here.good(&["pool", "info", "k.pool"]).out.contains("a.db.holdfast"));
    let region = info["files"][0]["region"].as_str().unwrap().to_owned();
    let done = here.expect(8, &["pool", "sweep", "k.pool", "--drop", &region]);
    assert!(done.err.contains("unprotect"), "{}", done.err);
    fs::rename(here.path("k.pool"), here.path("m.pool")).unwrap();
    let done = here.good(&["unprotect", "a.db", "--force"]);
    assert!(done.err.contains("k.pool") && done.err.contains("pool sweep"), "{}", done.err);
    let listed = here.json(0, &["pool", "sweep", "m.pool"]);
    assert_eq!(listed["regions"][0]["standing"], "lost", "{listed}");
    let done = here.good(&["pool", "sweep", "m.pool"]);
    assert!(done.out.contains("0 regions removed, 1 region left"), "{}", done.out);
    assert!(done.err.contains("--drop"), "{}", done.err);
    let swept = here.json(0, &["pool", "sweep", "m.pool", "--drop", &region]);
    assert_eq!(swept["removed"][0]["region"], region.as_str(), "{swept}");
    assert!(!here.good(&["map", "list", "m.pool"]).out.contains("holdfast.side."));
    // With --in it is found in either place.
    here.good(&["protect", "a.db", "--in", "m.pool"]);
    here.good(&["pool", "create", "other.pool", "--size", "16M"]);
    let at = fs::read(here.path("a.db.holdfast")).unwrap();
    // A pointer that can be read, to a region that cannot.
    here.expect(12, &["verify", "a.db", "--in", "other.pool"]);
    here.good(&["unprotect", "a.db", "--force", "--in", "other.pool"]);
    assert!(!at.is_empty() && !here.path("a.db.holdfast").exists());
    assert!(!here.good(&["map", "list", "m.pool"]).out.contains("holdfast.side."));
}

#[test]
fn a_pipe_keeps_nobody_waiting() {
    let here = Here::new();
    let pipe = |name: &str| {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, here.path(name), FileType::Fifo, mode, 0).unwrap();
    };
    fs::write(here.path("a.db"), content(9)).unwrap();
    here.good(&["pool", "create", "k.pool", "--size", "16M"]);
    pipe("a.db.holdfast");
    pipe("b.db");
    for name in ["a.db", "b.db"] {
        for words in [
            &["protect", name][..],
            &["protect", name, "--again"],
            &["protect", name, "--in", "k.pool"],
            &["verify", name],
            &["status", name],
            &["repair", name],
            &["repair", name, "--before", "out"],
            &["unprotect", name],
            &["unprotect", name, "--force"],
        ] {
            let done = here.expect(8, words);
            assert!(done.err.contains(name), "{words:?}: {}", done.err);
        }
    }
    assert!(fs::read(here.path("a.db")).unwrap() == content(9) && !here.path("out").exists());
    assert!(here.path("a.db.holdfast").symlink_metadata().is_ok());
}

/// A folder of a user who is not root, with a file and a pool; runs commands as that user, of whom
/// nobody else has a process: one that is just being started could not be looked into.
struct Theirs {
    here: Here,
    user: u32,
}

impl Theirs {
    fn new(user: u32) -> Option<Self> {
        let here = Here::new();
        fs::set_permissions(here.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["d", "p"] {
            fs::create_dir(here.path(folder)).unwrap();
        }
        fs::write(here.path("d/a.db"), content(200)).unwrap();
        fs::set_permissions(here.path("d/a.db"), fs::Permissions::from_mode(0o644)).unwrap();
        if rustix::process::geteuid().is_root() {
            for name in ["d", "p", "d/a.db"] {
                std::os::unix::fs::chown(here.path(name), Some(user), Some(user)).unwrap();
            }
        }
        let this = Self { here, user };
        if let Err(error) = this.command(&["--version"]).output() {
            println!("  skipped: another user cannot start this command: {error}");
            return None;
        }
        this.expect(0, &["pool", "create", "p/k.pool", "--size", "16M"]);
        Some(this)
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.here.command(words);
        if rustix::process::geteuid().is_root() {
            command.uid(self.user).gid(self.user);
        }
        command
    }

    fn expect(&self, code: i32, words: &[&str]) -> Done {
        let done = finish(words, &mut self.command(words));
        assert_eq!(done.code, code, "{words:?}: {}{}", done.out, done.err);
        done
    }

    fn mode(&self, mode: u32) {
        fs::set_permissions(self.here.path("d"), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Names in the folder of the file, and of regions in the pool.
    fn names(&self) -> (usize, usize) {
        self.mode(0o755);
        let names = fs::read_dir(self.here.path("d")).unwrap().count();
        let maps = self.expect(0, &["map", "list", "p/k.pool"]).out;
        (names, maps.matches("holdfast.side.").count())
    }

    /// Its redundancy is what it was: rot is repaired.
    fn is_protected(&self) {
        self.mode(0o755);
        self.expect(0, &["verify", "d/a.db"]);
        rot(&self.here.path("d/a.db"), 5);
        self.expect(1, &["repair", "d/a.db"]);
        assert!(fs::read(self.here.path("d/a.db")).unwrap() == content(200));
    }
}

#[test]
fn a_folder_that_cannot_be_read_costs_no_redundancy() {
    let Some(theirs) = Theirs::new(54_321) else { return };
    for within in [&[][..], &["--in", "p/k.pool"]] {
        theirs.mode(0o300);
        let protect = [&["protect", "d/a.db"], within].concat();
        let done = theirs.expect(8, &protect);
        assert!(done.err.contains("permission") && done.err.contains("folder"), "{}", done.err);
        assert_eq!(theirs.names(), (1, 0), "nothing is left");
        theirs.expect(0, &protect);
        theirs.mode(0o300);
        theirs.expect(8, &["protect", "d/a.db", "--again"]);
        assert_eq!(theirs.names(), (2, usize::from(!within.is_empty())));
        theirs.is_protected();
        theirs.expect(0, &["unprotect", "d/a.db"]);
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_keeps_the_protection() {
    let Some(theirs) = Theirs::new(54_322) else { return };
    for within in [&[][..], &["--in", "p/k.pool"]] {
        theirs.expect(0, &[&["protect", "d/a.db"], within].concat());
        theirs.mode(0o555);
        let done = theirs.expect(8, &["unprotect", "d/a.db"]);
        assert!(done.err.contains("folder"), "{}", done.err);
        theirs.expect(0, &["verify", "d/a.db"]);
        theirs.is_protected();
        theirs.expect(0, &["unprotect", "d/a.db"]);
        assert_eq!(theirs.names(), (1, 0));
    }
}

#[test]
fn what_has_ended_is_protected_anew() {
    let here = Here::new();
    fs::write(here.path("a.db"), content(9)).unwrap();
    here.good(&["protect", "a.db"]);
    let side = here.path("a.db.holdfast");
    ended(&side);
    let done = here.expect(8, &["verify", "a.db"]);
    assert!(done.err.contains("was ended"), "{}", done.err);
    here.good(&["protect", "a.db"]);
    here.good(&["verify", "a.db"]);
    ended(&side);
    // As it is now: there is nothing that it could be held against.
    here.good(&["protect", "a.db", "--again"]);
    here.good(&["verify", "a.db"]);
    let done = here.expect(8, &["protect", "a.db"]);
    assert!(done.err.contains("protected already"), "{}", done.err);
}

/// Lets both headers of a side file say that the protection was ended.
fn ended(side: &Path) {
    let mut bytes = fs::read(side).unwrap();
    let at = bytes.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    for copy in [0, 64 << 10] {
        let page = &mut bytes[copy..copy + PAGE];
        page[at + 12] = 3;
        let sum = crate::common::crc32c(&[&[0; 8], &page[4..]].concat()).to_le_bytes();
        page[..4].copy_from_slice(&sum);
    }
    fs::write(side, bytes).unwrap();
}
