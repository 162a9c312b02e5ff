//! Running the built command: in a folder of its own, as a shell would.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// A command that takes so long hangs, however slow the machine: some make hundreds of commits one
/// by one, and a disk that is busy may take seconds for each.
const PATIENCE: Duration = Duration::from_secs(300);
/// What takes so long to come does not come. A limit of hangs only: nobody waits for it otherwise.
pub(crate) const SURELY: Duration = Duration::from_secs(120);

/// A folder to work in; gone afterwards.
pub(crate) struct Here {
    folder: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Here {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The same, below a folder.
    pub(crate) fn within(folder: &Path) -> Self {
        Self { folder: tempfile::tempdir_in(folder).unwrap() }
    }

    /// With a file `a.db` of so many pages.
    pub(crate) fn with_file(pages: usize) -> Self {
        let here = Self::new();
        let byte = |at: usize| (at / PAGE * 7 + at % 251) as u8;
        fs::write(here.path("a.db"), (0..pages * PAGE).map(byte).collect::<Vec<u8>>()).unwrap();
        here
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        // Whoever runs the tests may have a configuration.
        command.env_remove("HOLDFAST_CONFIG").env("TERM", "xterm");
        command.current_dir(self.folder.path()).args(words);
        command
    }

    /// Starts the command, with pipes for all it reads and prints.
    pub(crate) fn started(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the command; it must neither panic nor die nor hang.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        finish(words, &mut self.command(words))
    }

    /// Runs the command and expects this code.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> Done {
        let done = self.run(words);
        assert_eq!(done.code, code, "{words:?}: {}{}", done.out, done.err);
        done
    }

    /// Runs a command that has to find nothing wrong.
    pub(crate) fn good(&self, words: &[&str]) -> Done {
        self.expect(0, words)
    }

    /// Runs a command with `--json` and expects this code; the one object it printed.
    pub(crate) fn json(&self, code: i32, words: &[&str]) -> Value {
        let done = self.expect(code, &[words, &["--json"]].concat());
        let value: Value = serde_json::from_str(&done.out)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", done.out));
        assert_eq!(value["schema"], 1, "{words:?}");
        value
    }

    /// Makes a pool with some entries, that faults may be injected into.
    pub(crate) fn pool(&self, name: &str) {
        let size = ["--size", "16M", "--parity", "pq", "--allow-inject"];
        self.good(&[&["pool", "create", name][..], &size].concat());
        let lines: String = (0..500).map(|n| format!("key{n:03}\tvalue {n}\n")).collect();
        std::fs::write(self.path("lines"), lines).unwrap();
        self.good(&["map", "load", name, "words", "lines"]);
    }
}

/// Overwrites a page of `a.db` by `write`, through the shell's own tools.
pub(crate) fn dd(page: usize) -> String {
    format!("printf '%04096d' {page} | dd of=a.db bs=4096 seek={page} conv=notrunc status=none")
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < SURELY, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the process that has a pool open takes commands. It has the pool before: opening it
/// makes commits, for which a slow disk takes longer than a command waits.
pub(crate) fn owner_listens(here: &Here, pool: &str) {
    until("an owner", || holdfast::Owner::reach(here.path(pool)).is_some());
}

/// How many transactions the owner of a pool has committed; nothing if it did not answer in time.
pub(crate) fn commits(here: &Here, pool: &str) -> Option<u64> {
    here.json(0, &["stats", pool])["owner"]["commits"].as_u64()
}

/// Waits until the owner of a pool has committed so many transactions.
pub(crate) fn until_committed(here: &Here, pool: &str, number: u64) {
    owner_listens(here, pool);
    until("a commit", || commits(here, pool) >= Some(number));
}

/// Waits until a command handles interrupts, or has ended: before, one ends it like any program.
pub(crate) fn handles_int(child: &Child) {
    until("a handler", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        // Interrupts are given two handlers one after the other; SIGXFSZ gets its own after them.
        let has = |signal: Signal| caught >> (signal.as_raw() - 1) & 1 == 1;
        has(Signal::INT) && has(Signal::XFSZ) || status.contains("State:\tZ")
    });
}

/// Waits until every thread of a process has stopped: the signal alone says that they will.
pub(crate) fn until_it_stands(process: u32) {
    until("a process that stands", || {
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let stats = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")));
        // A thread that has ended since it was listed answers nothing.
        stats.into_iter().all(|stat| stat.map_or(true, |stat| stat.contains(") T ")))
    });
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Runs a command to its end; it must neither panic nor die nor hang.
pub(crate) fn finish(words: &[&str], command: &mut Command) -> Done {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = rustix::process::Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    let waiter = std::thread::spawn(move || tell.send(child.wait_with_output()));
    let Ok(output) = told.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        panic!("{words:?} hangs");
    };
    let _ = waiter.join();
    let done = Done::of(output.unwrap());
    let died = done.code < 0 || done.code == 101 || done.err.contains("panicked");
    assert!(!died, "{words:?}: {} {}", done.code, done.err);
    done
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// CRC-32C bit by bit, as the definition says.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    !sum
}

/// The same side file as a newer build would write it: both headers verify.
pub(crate) fn newer(side: &[u8], at: usize) -> Vec<u8> {
    forged(side, at + 8, &9_u32.to_le_bytes())
}

/// A side file both headers of which hold other bytes at a place, and verify.
pub(crate) fn forged(side: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut side = side.to_vec();
    // The sum covers the number of the page, which is 0, and what follows the sum.
    let sum = |page: &[u8]| crc32c(&[&[0; 8], &page[4..]].concat()).to_le_bytes();
    for copy in [0, 64 << 10] {
        let page = &mut side[copy..copy + 4096];
        assert_eq!(page[..4], sum(page));
        page[at..at + bytes.len()].copy_from_slice(bytes);
        let new = sum(page);
        page[..4].copy_from_slice(&new);
    }
    side
}

/// The end of a command that has to come soon.
pub(crate) fn ended(mut child: Child) -> Done {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Done::of(child.wait_with_output().unwrap())
}

/// A terminal: the end of whoever sits at it, and the end of the command.
pub(crate) fn terminal() -> (std::fs::File, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let sits = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&sits).unwrap();
    unlockpt(&sits).unwrap();
    let name = ptsname(&sits, Vec::new()).unwrap();
    let runs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 45, ws_col: 130, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&runs, size).unwrap();
    (sits.into(), runs)
}

/// What appears on a terminal until this does; fails if it does not.
pub(crate) fn shown_until(sits: &mut std::fs::File, marker: &str) -> String {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::Read;
    let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut shown = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&shown);
        if text.contains(marker) {
            return text.into_owned();
        }
        let ready = poll(&mut [PollFd::new(&*sits, PollFlags::IN)], Some(&wait)).unwrap();
        assert!(ready > 0, "`{marker}` does not appear: {text}");
        let mut bytes = [0; 4096];
        let read = sits.read(&mut bytes).unwrap();
        shown.extend_from_slice(&bytes[..read]);
    }
}

/// Damages a page as rot does.
pub(crate) fn rot(path: &Path, page: usize) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.write_all_at(b"rotten", (page * 4096 + 77) as u64).unwrap();
    file.set_modified(time).unwrap();
}
