//! More of what the programs do: those that stand still now and then, and look who does.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::coming::{in_memory, report};
use super::{Map, PAGE, PAGES, beside, mark, wait_for};

pub(super) fn tell(story: &str, path: &Path) -> bool {
    match story {
        "looks after its children" => looks_after(path),
        "tells who it is" => tells_who(path),
        "has a network of its own" => lives_alone(path),
        "opens again and again" => opens(path),
        _ => return false,
    }
    true
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Has children, and looks all the time whether one of them stands, as shells do.
fn looks_after(path: &Path) {
    let file = open(path);
    let map = Map::new(&file, 0, PAGES);
    map.store(PAGE, b"stored");
    let born = || {
        // SAFETY: the child waits until it is killed, at the latest when its parent is gone.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            loop {
                // SAFETY: waits.
                unsafe { libc::pause() };
            }
        }
        child
    };
    let children: Vec<i32> = (0..20).map(|_| born()).collect();
    mark(path, "ready");
    let (mut stood, go) = (0, beside(path, "go"));
    while !go.exists() {
        for _ in 0..1000 {
            let (mut status, how) = (0, libc::WUNTRACED | libc::WNOHANG);
            // SAFETY: asks about children of this process; a number that lives across the call.
            let found = unsafe { libc::waitpid(-1, &raw mut status, how) };
            assert!(found >= 0);
            stood += usize::from(found > 0 && libc::WIFSTOPPED(status));
        }
    }
    for child in children {
        let mut status = 0;
        // SAFETY: ends a child of this process, and waits for it.
        unsafe {
            assert_eq!(libc::kill(child, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
    }
    report(path, stood);
}

/// Tells its number before it opens its file.
fn tells_who(path: &Path) {
    report(path, std::process::id() as usize);
    mark(path, "begun");
    wait_for(path, "open");
    let file = open(path);
    file.write_all_at(b"first", 0).unwrap();
    wait_for(path, "go");
}

/// Opens files while its supervisor stands still, and makes some that are to be guarded when it
/// does not, until it is answered sooner than hasty ones give up, or often enough.
fn opens(path: &Path) {
    let file = open(path);
    mark(path, "ready");
    wait_for(path, "open");
    let mut took = String::new();
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false);
    let other = in_memory(path);
    for _ in 0..3 {
        let began = Instant::now();
        options.open(&other).unwrap();
        took += &format!("{} ", began.elapsed().as_millis());
    }
    let _ = std::fs::remove_file(&other);
    std::fs::write(beside(path, "took"), took).unwrap();
    mark(path, "opened");
    wait_for(path, "go");
    for number in 2..12 {
        let began = Instant::now();
        let other = File::create(path.with_file_name(format!("{number}.bin"))).unwrap();
        let answered = began.elapsed() < Duration::from_millis(100);
        other.write_all_at(&[1; 3 * PAGE], 0).unwrap();
        if answered {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    file.write_all_at(b"the last", 0).unwrap();
}

/// Leaves the network in which its supervisor listens, opens files, and goes on writing to the one
/// that it had.
fn lives_alone(path: &Path) {
    let file = open(path);
    let map = Map::new(&file, 0, PAGES);
    map.store(PAGE, b"before");
    // SAFETY: gives this process a network of its own, or fails.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        std::process::exit(77);
    }
    for other in [beside(path, "other"), path.with_file_name("second.bin")] {
        File::create(other).unwrap().write_all_at(&[1; 100], 0).unwrap();
    }
    map.store(2 * PAGE, b"after");
    file.write_all_at(b"written", 3 * PAGE as u64).unwrap();
    mark(path, "ready");
    wait_for(path, "go");
    file.write_all_at(b"the last", 4 * PAGE as u64).unwrap();
}
