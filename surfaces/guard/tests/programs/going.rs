//! More of what the programs do: files that nobody has for a while, names that come and go, and
//! ends in the middle of something.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::coming::{open_meanwhile, report};
use super::hands;
use super::{Map, PAGE, PAGES, beside, mark, wait_for};

pub(super) fn tell(story: &str, path: &Path) -> bool {
    match story {
        "comes and goes" => comes_and_goes(path),
        "cuts off by name" => cuts_off(path),
        "comes back" => comes_back(path),
        "is killed while it tells" => tells(path, libc::SIGKILL),
        "is stopped while it tells" => tells(path, libc::SIGSTOP),
        "goes on without its first thread" => headless(path),
        "hides" => hides(path),
        "syncs late" => syncs_late(path),
        "syncs" => syncs(path),
        "tells beside a large file" => tells_beside(path),
        "links" => links(path),
        "links at the first look" => links_at_the_first_look(path),
        "links at the last look" => links_at_the_last_look(path),
        "has moved" => has_moved(path),
        "takes another's name" => std::fs::rename(open(path).1, second(path)).unwrap(),
        "waits for its file" => drop(open(path)),
        "one after the other" => one_after_the_other(path),
        "waits for a number" => waits_for_a_number(path),
        "leases" => leases(path),
        "keeps it in a socket" => keeps_in_a_socket(path),
        "lives apart" => lives_apart(path),
        _ => return false,
    }
    true
}

/// Has its handle nowhere but in a socket, until it was to be let go of.
fn keeps_in_a_socket(path: &Path) {
    let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
    hands::send(&to, open(path).0);
    nap(600);
    hands::received(from.as_raw_fd()).write_all_at(&[42; 100], 70 * PAGE as u64).unwrap();
    nap(100);
}

fn nap(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

/// Milliseconds that the test says.
fn delay(path: &Path) -> u64 {
    std::fs::read_to_string(beside(path, "delay")).unwrap().parse().unwrap()
}

fn second(path: &Path) -> PathBuf {
    path.with_file_name("second.bin")
}

fn open(path: &Path) -> (File, &Path) {
    (OpenOptions::new().read(true).write(true).open(path).unwrap(), path)
}

fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Has its file for moments, and writes twice in each; at other times of the supervisor's in each.
fn comes_and_goes(path: &Path) {
    for round in 0..14_u64 {
        nap(round * 37 % 140);
        let file = open(path).0;
        nap(70);
        file.write_all_at(&[1; 100], round * PAGE as u64).unwrap();
        nap(70);
        file.write_all_at(&[2; 100], (100 + round) * PAGE as u64).unwrap();
    }
}

/// Cuts a file off that it never has open for long.
fn cuts_off(path: &Path) {
    open(path).0.write_all_at(b"first", 0).unwrap();
    for round in 0..25_i64 {
        nap(round as u64 * 41 % 130);
        let pages = PAGES as i64 - round;
        if round % 4 == 3 {
            let again = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
            again.write_all_at(&vec![round as u8; PAGES * PAGE], 0).unwrap();
            continue;
        }
        // SAFETY: a name that ends with a zero.
        let done = unsafe { libc::truncate(name(path).as_ptr(), pages * PAGE as i64 - 7) };
        assert_eq!(done, 0);
    }
}

/// Wants its file again while that is looked at for the last time.
fn comes_back(path: &Path) {
    let len = std::fs::metadata(path).unwrap().len() as usize;
    let mut longest = Duration::ZERO;
    for round in 0..6 {
        let began = Instant::now();
        let file = open(path).0;
        if round > 0 {
            longest = longest.max(began.elapsed());
        }
        let map = Map::new(&file, 0, len / PAGE);
        for part in 0..4 {
            map.store((len / 4 * part + round * PAGE) / PAGE * PAGE, b"stored");
        }
        // SAFETY: this program's own mapping, not used any more.
        assert_eq!(unsafe { libc::munmap(map.place(0), map.len) }, 0);
        drop(file);
        nap(80 + round as u64 * 30);
    }
    report(path, longest.as_millis() as usize);
}

/// Gives a file that is mapped many times a guarded name, and gets a signal while it tells of that.
fn tells(path: &Path, signal: i32) {
    let kept = open(path).0;
    kept.write_all_at(b"kept", 0).unwrap();
    nap(60);
    let aside = beside(path, "tmp");
    std::fs::write(&aside, vec![5; PAGES * PAGE]).unwrap();
    let other = open(&aside).0;
    let maps: Vec<Map> = (0..300).map(|map| Map::new(&other, map, 1)).collect();
    mark(path, "ready");
    wait_for(path, "go");
    let delay = delay(path);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, base) = (&over, maps[299].at as usize);
        scope.spawn(move || {
            let map = Map { at: base as *mut u8, len: PAGE };
            let mut round = 0_u64;
            while !over.load(Ordering::SeqCst) {
                map.store(100, &round.to_le_bytes());
                round += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let side = second(path).with_extension("bin.holdfast");
        scope.spawn(move || {
            while !side.exists() {
                std::thread::sleep(Duration::from_micros(200));
            }
            nap(delay);
            // SAFETY: a signal to this process.
            unsafe { libc::kill(libc::getpid(), signal) };
        });
        std::fs::rename(&aside, second(path)).unwrap();
        mark(path, "renamed");
        nap(100);
        over.store(true, Ordering::SeqCst);
    });
}

/// The first thread ends; the second one goes on writing.
fn headless(path: &Path) {
    let file = open(path).0;
    file.write_all_at(b"first", 0).unwrap();
    std::thread::spawn(move || {
        nap(700);
        file.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
        nap(60);
        std::process::exit(0);
    });
    // SAFETY: ends this thread only.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Lets nobody but root look into it.
fn hides(path: &Path) {
    let file = open(path).0;
    file.write_all_at(b"first", 0).unwrap();
    // SAFETY: a flag of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
    nap(700);
    file.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    nap(60);
}

/// Syncs while its supervisor stands still.
fn syncs_late(path: &Path) {
    let file = open(path).0;
    mark(path, "ready");
    wait_for(path, "open");
    file.write_all_at(b"synced", 70 * PAGE as u64).unwrap();
    file.sync_data().unwrap();
    mark(path, "opened");
    wait_for(path, "go");
    file.write_all_at(b"seen", 90 * PAGE as u64).unwrap();
}

/// Syncs, and opens other files meanwhile.
fn syncs(path: &Path) {
    let file = open(path).0;
    let map = Map::new(&file, 0, PAGES);
    map.store(5 * PAGE, &[5; 100]);
    file.write_all_at(&[6; 100], 9 * PAGE as u64).unwrap();
    let count = open_meanwhile(path, || {
        file.sync_data().unwrap();
        map.sync();
    });
    report(path, count);
}

/// Changes all of a large file, then gives a small one a guarded name that it has mapped.
fn tells_beside(path: &Path) {
    let file = open(path).0;
    let len = file.metadata().unwrap().len();
    for at in (0..len).step_by(1 << 20) {
        file.write_all_at(&vec![at as u8; 1 << 20], at).unwrap();
    }
    let aside = beside(path, "tmp");
    std::fs::write(&aside, vec![5; PAGES * PAGE]).unwrap();
    let other = open(&aside).0;
    let map = Map::new(&other, 0, PAGES);
    map.store(PAGE, b"before");
    std::fs::rename(&aside, second(path)).unwrap();
    map.store(2 * PAGE, b"after");
}

/// The file gets a second name, and loses the first.
fn links(path: &Path) {
    let file = open(path).0;
    file.write_all_at(b"first", 0).unwrap();
    if !second(path).exists() {
        std::fs::hard_link(path, second(path)).unwrap();
    }
    loses(&file, path);
}

/// The file loses the name that it was opened by.
fn loses(file: &File, path: &Path) {
    std::fs::remove_file(path).unwrap();
    nap(200);
    file.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    nap(200);
}

/// The file gets its second name while it is looked at for the first time.
fn links_at_the_first_look(path: &Path) {
    let (making, side) = (beside(path, "bin.holdfast.making"), beside(path, "bin.holdfast"));
    let file = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !making.exists() && !side.exists() {
                std::thread::yield_now();
            }
            std::fs::hard_link(path, second(path)).unwrap();
        });
        open(path).0
    });
    loses(&file, path);
}

/// The same while it is looked at for the last time: after two waits of its supervisor's, in the
/// third one.
fn links_at_the_last_look(path: &Path) {
    open(path).0.write_all_at(b"first", 0).unwrap();
    nap(1250);
    std::fs::hard_link(path, second(path)).unwrap();
    loses(&open(&second(path)).0, path);
}

/// Opens its file once more, under the name that somebody gave it.
fn has_moved(path: &Path) {
    open(path).0.write_all_at(b"first", 0).unwrap();
    mark(path, "closed");
    wait_for(path, "go");
    open(&second(path)).0.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    nap(100);
}

/// Opens a file that there is no room for, and once more when there is.
fn one_after_the_other(path: &Path) {
    std::fs::write(beside(path, "tmp"), vec![5; PAGES * PAGE]).unwrap();
    let file = open(path).0;
    std::fs::rename(beside(path, "tmp"), second(path)).unwrap();
    drop(open(&second(path)));
    drop(file);
    nap(delay(path));
    open(&second(path)).0.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    nap(100);
}

/// Opens a file whose number is that of a large one, which is being closed.
fn waits_for_a_number(path: &Path) {
    std::fs::write(beside(path, "tmp"), vec![5; PAGES * PAGE]).unwrap();
    drop(open(path));
    let count = open_meanwhile(path, || {
        std::fs::rename(beside(path, "tmp"), second(path)).unwrap();
    });
    open(&second(path)).0.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    report(path, count);
}

/// Has a lease of a file that gets a guarded name, and does not give it up.
fn leases(path: &Path) {
    let aside = beside(path, "tmp");
    std::fs::write(&aside, vec![5; PAGES * PAGE]).unwrap();
    let file = open(&aside).0;
    // SAFETY: ignores a signal, and asks for a lease.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        if libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) != 0 {
            std::process::exit(77);
        }
    }
    let began = Instant::now();
    std::fs::rename(&aside, second(path)).unwrap();
    report(path, began.elapsed().as_millis() as usize);
    file.write_all_at(b"on its own", 0).unwrap();
}

/// In a world of names of its own, where something else lies in the folder of its file: makes files
/// there, one by its name and one by renaming.
fn lives_apart(path: &Path) {
    let folder = name(path.parent().unwrap());
    let (none, root, kind) = (c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr());
    let alone = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: names that end with zeros.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, core::ptr::null(), alone, core::ptr::null()) == 0
            && libc::mount(none, folder.as_ptr(), kind, 0, core::ptr::null()) == 0
    };
    if !done {
        std::process::exit(77);
    }
    let made = File::create_new(path).unwrap();
    made.write_all_at(&[1; 3 * PAGE], 0).unwrap();
    let aside = path.with_file_name("aside");
    std::fs::write(&aside, [2; 2 * PAGE]).unwrap();
    std::fs::rename(&aside, second(path)).unwrap();
    made.write_all_at(&[3; PAGE], 0).unwrap();
}
