//! A pool file that somebody cuts off while it is in use: the commands at work on it end soon, say
//! so, and do not lengthen it again.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Done, Here, SURELY, until, until_committed};

/// A command that takes so long after the cut goes on for ever.
const SOON: Duration = SURELY;

/// Pages of one write of a commit of one line: a record of the log.
const ONE_WRITE: usize = 2;

/// On the disk's file system and in shared memory, where commits make no system call.
fn places() -> [Here; 2] {
    [Here::new(), Here::within(Path::new("/dev/shm"))]
}

fn started(here: &Here, words: &[&str]) -> Child {
    let mut command = here.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The end of a command that has to come by itself, and soon.
fn ended(mut child: Child, what: &str) -> Done {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > SOON {
            child.kill().unwrap();
            panic!("{what} goes on for ever");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Done::of(child.wait_with_output().unwrap())
}

fn told(done: &Done, what: &str) {
    assert_eq!(done.code, 8, "{what}: {}{}", done.out, done.err);
    assert_eq!(done.err.matches("cut off while in use").count(), 1, "{what}: {}", done.err);
    assert!(done.err.contains("; restore the whole file from a copy"), "{what}: {}", done.err);
}

fn cut(here: &Here, len: u64) {
    let file = fs::OpenOptions::new().write(true).open(here.path("s.pool")).unwrap();
    file.set_len(len).unwrap();
}

/// A file that was cut off has the length it was cut to. The one exception: writes that were under
/// way on a file system, past their own look at the length, while the file was cut. There is at
/// most one of each thread; it ends where it ends, and nothing is written after it.
fn assert_not_lengthened(here: &Here, to: u64, threads: usize, what: &str) {
    let bytes = fs::read(here.path("s.pool")).unwrap();
    let new = bytes.get(to as usize..).unwrap_or_else(|| panic!("{what}: it was shortened"));
    let written = new.chunks(4096).filter(|page| page.iter().any(|byte| *byte != 0)).count();
    let in_memory = here.folder().starts_with("/dev/shm");
    let most = if in_memory { 0 } else { threads * ONE_WRITE };
    assert!(written <= most, "{what}: {written} pages were written behind its end");
    assert!(written > 0 || new.is_empty(), "{what}: it was lengthened by {}", new.len());
}

/// Starts to load lines that come one by one and without an end, and returns once some are in.
fn loading(here: &Here) -> (Child, std::thread::JoinHandle<()>) {
    let mut child = started(here, &["map", "load", "s.pool", "live", "-", "--batch", "1"]);
    let mut lines = child.stdin.take().unwrap();
    let (tell, fed) = std::sync::mpsc::channel();
    let feeder = std::thread::spawn(move || {
        for n in 0.. {
            // Fails once the command has ended, as it has to; whoever waits for that kills it if
            // it goes on.
            if writeln!(lines, "key{:04}\t{}", n % 2000, "value ".repeat(n % 47)).is_err() {
                return;
            }
            if n == 50 {
                tell.send(()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    fed.recv().unwrap();
    // What was fed may wait in the pipe still. The first commit is the map, the next one a line.
    until_committed(here, "s.pool", 2);
    (child, feeder)
}

#[test]
fn loads_end_wherever_it_is_cut() {
    for here in places() {
        // In the log, in the objects, behind everything that a commit touches.
        for at in [0, 4096, 1 << 20, 7 << 20, (16 << 20) - 4096] {
            here.good(&["pool", "create", "s.pool", "--size", "16M"]);
            let (child, feeder) = loading(&here);
            cut(&here, at);
            let what = format!("loading into {} cut at {at}", here.folder().display());
            told(&ended(child, &what), &what);
            feeder.join().unwrap();
            assert_not_lengthened(&here, at, 1, &what);
            fs::remove_file(here.path("s.pool")).unwrap();
        }
    }
}

#[test]
fn scrubs_by_the_owner_end_and_those_who_follow_are_told() {
    for here in places() {
        here.good(&["pool", "create", "s.pool", "--size", "64M"]);
        let (child, feeder) = loading(&here);
        let follower = started(&here, &["events", "--follow", "s.pool"]);
        // One that opens the pool after the cut meets a short file, not one that becomes short.
        let maps = format!("/proc/{}/maps", follower.id());
        until("a follower", || fs::read_to_string(&maps).unwrap().contains("s.pool"));
        let mut scrub = started(&here, &["scrub", "start", "-w", "--rate", "4M", "s.pool"]);
        while !here.good(&["scrub", "status", "s.pool"]).out.contains("running") {
            assert!(scrub.try_wait().unwrap().is_none(), "it had to take seconds");
        }
        cut(&here, 1 << 20);
        told(&ended(child, "loading"), "loading");
        feeder.join().unwrap();
        let done = ended(scrub, "the scrub");
        // The owner may be gone before it could answer.
        let answers = ["cut off while in use", "does not answer"];
        assert!(answers.iter().any(|text| done.err.contains(text)), "{}", done.err);
        assert_eq!(done.code, 8);
        told(&ended(follower, "following"), "following");
        // One that loads, one that scrubs, one that keeps the journal.
        assert_not_lengthened(&here, 1 << 20, 3, "loading and scrubbing");
    }
}

#[test]
fn passes_over_a_pool_end() {
    for here in places() {
        here.good(&["pool", "create", "s.pool", "--size", "64M"]);
        let mut child = started(&here, &["scrub", "start", "s.pool", "--rate", "4M"]);
        while !here.good(&["scrub", "status", "s.pool"]).out.contains("running") {
            assert!(child.try_wait().unwrap().is_none(), "it had to take seconds");
        }
        cut(&here, 8 << 20);
        told(&ended(child, "the pass"), "the pass");
    }
}

#[test]
fn a_scan_that_is_read_slowly_tells_of_it_at_its_end() {
    let here = Here::new();
    here.good(&["pool", "create", "s.pool", "--size", "16M"]);
    let lines: String = (0..20_000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    fs::write(here.path("lines"), lines).unwrap();
    here.good(&["map", "load", "s.pool", "m", "lines"]);
    let mut child = started(&here, &["map", "scan", "s.pool", "m"]);
    // The rest waits in the pipe, which is shorter than the map.
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert_eq!(first, "key00000\tvalue 0\n");
    cut(&here, 1 << 20);
    let rest = std::thread::spawn(move || out.lines().map_while(Result::ok).count());
    told(&ended(child, "the scan"), "the scan");
    rest.join().unwrap();
}
