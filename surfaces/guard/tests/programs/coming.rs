//! More of what the programs do: reads into mappings, and files that come and go by their names.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{LEFT, Map, PAGE, PAGES, beside, mark, wait_for};

/// Pages of a large read.
const LARGE: usize = 256;
/// At most so often until it shows.
const ROUNDS: u8 = 5;

/// Programs that do not open their file as others do.
pub(super) fn tell_first(story: &str, path: &Path) -> bool {
    match story {
        "inherits" => inherits(path),
        "names" => names(path),
        "many" => many(path, if path.exists() { 30 } else { 6 }),
        "very many" => many(path, 260),
        "opens" => opens(path),
        "covers" => covers(path),
        "late" => late(path),
        "saves" => saves(path),
        "saves hastily" => saves_hastily(path),
        "moves at rest" => std::fs::rename(path, beside(path, "old")).unwrap(),
        _ => return false,
    }
    true
}

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "fills" => fills(file, path),
        "replaces" => replaces(file, path, false),
        "replaces busily" => replaces_busily(path),
        "replaces by a stream" => replaces(file, path, true),
        "anew" => anew(file, path),
        "rotates" => rotates(file, path),
        "swaps" => swaps(file, path),
        _ => return false,
    }
    true
}

fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn new(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).open(path).unwrap()
}

/// What a file holds that takes the place of another.
fn other_content(seed: usize) -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / 7 + at / PAGE * 13 + seed) as u8).collect()
}

/// Large direct reads into a mapping: their bytes come long after they began.
fn fills(file: &File, path: &Path) {
    let source = beside(path, "source");
    std::fs::write(&source, other_content(3)).unwrap();
    File::open(&source).unwrap().sync_all().unwrap();
    let mut direct = OpenOptions::new();
    let direct = direct.read(true).custom_flags(libc::O_DIRECT).open(&source);
    let Ok(mut direct) = direct else { std::process::exit(77) };
    let map = Map::new(file, 0, PAGES);
    let len = LARGE * PAGE;
    let fd = direct.as_raw_fd();
    // SAFETY: a stream of that file, which stays open.
    let stream = unsafe { libc::fdopen(libc::dup(fd), c"r".as_ptr()) };
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < Duration::from_millis(2500) {
        let from = (round % 8 * 32) as i64 * PAGE as i64;
        let to = map.place((round * 5 % 40) * PAGE);
        let part = libc::iovec { iov_base: to, iov_len: len };
        direct.seek(SeekFrom::Start(from as u64)).unwrap();
        // SAFETY: room for so many bytes in the mapping; a stream, and a list that live across.
        let done = unsafe {
            match round % 7 {
                0 => libc::pread(fd, to, len, from),
                1 => libc::read(fd, to, len),
                2 => libc::preadv(fd, &raw const part, 1, from),
                3 => libc::preadv2(fd, &raw const part, 1, from, 0),
                4 => libc::readv(fd, &raw const part, 1),
                5 => libc::syscall(libc::SYS_pread64, fd, to, len, from) as isize,
                _ => {
                    assert_eq!(libc::fseek(stream, from, libc::SEEK_SET), 0);
                    libc::fread(to, 1, len, stream) as isize
                }
            }
        };
        if done < 0 {
            std::process::exit(77);
        }
        assert_eq!(done as usize, len, "{round}");
        round += 1;
    }
}

/// A new file takes the name of the guarded one, and goes on being written to by what there was
/// before it had the name: a mapping, a descriptor, a stream.
fn replaces(file: &File, path: &Path, streams: bool) {
    file.write_all_at(&[1; 100], 0).unwrap();
    let aside = beside(path, "tmp");
    let other = new(&aside);
    other.write_all_at(&other_content(1), 0).unwrap();
    let map = Map::new(&other, 0, PAGES);
    map.store(10 * PAGE, b"before");
    // SAFETY: names that end with a zero; a stream that is used while it is open.
    unsafe {
        let open = || libc::fopen(name(&aside).as_ptr(), c"r+".as_ptr());
        let stream = streams.then(open);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(libc::rename(name(&aside).as_ptr(), name(path).as_ptr()), 0);
        map.store(20 * PAGE, b"stored");
        other.write_all_at(b"written", 30 * PAGE as u64).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        map.store(21 * PAGE, b"stored");
        other.write_all_at(b"written", 31 * PAGE as u64).unwrap();
        if let Some(stream) = stream {
            // A store may count for all that one entry of a page table shows.
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(libc::fseek(stream, 40 * PAGE as i64, libc::SEEK_SET), 0);
            assert_eq!(libc::fwrite(b"streamed".as_ptr().cast(), 1, 8, stream), 8);
            assert_eq!(libc::fflush(stream), 0);
            // Announced ones end at the same time.
            other.write_all_at(b"written", 32 * PAGE as u64).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(libc::fclose(stream), 0);
        }
    }
    // What had the name before is still there, for who has it open.
    file.write_all_at(&[2; 100], 50 * PAGE as u64).unwrap();
    std::thread::sleep(Duration::from_millis(100));
}

/// The same with many mappings, which it takes a while to tell of, and a thread that stores to the
/// last one all the time.
fn replaces_busily(path: &Path) {
    let aside = beside(path, "tmp");
    let other = new(&aside);
    other.write_all_at(&other_content(1), 0).unwrap();
    let maps: Vec<Map> = (0..100).map(|map| Map::new(&other, map, 1)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, base) = (&over, maps[99].at as usize);
        scope.spawn(move || {
            let map = Map { at: base as *mut u8, len: PAGE };
            let mut round = 0_u64;
            while !over.load(Ordering::SeqCst) {
                map.store(100, &round.to_le_bytes());
                round += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        std::thread::sleep(Duration::from_millis(30));
        std::fs::rename(&aside, path).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        over.store(true, Ordering::SeqCst);
    });
}

/// The name is given up, and used again.
fn anew(file: &File, path: &Path) {
    file.write_all_at(&[1; 100], 0).unwrap();
    std::fs::remove_file(path).unwrap();
    let other = new(path);
    other.write_all_at(&other_content(2), 0).unwrap();
    let map = Map::new(&other, 0, PAGES);
    map.store(10 * PAGE, b"stored");
    file.write_all_at(&[2; 100], 50 * PAGE as u64).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    map.store(11 * PAGE, b"stored");
}

/// The file gets another name, and a new one its own; by their numbers.
fn rotates(file: &File, path: &Path) {
    let map = Map::new(file, 0, PAGES);
    map.store(PAGE, b"before");
    let old = beside(path, "old");
    // SAFETY: names that end with a zero.
    let done = unsafe {
        let (from, to) = (name(path), name(&old));
        libc::syscall(
            libc::SYS_renameat,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
        )
    };
    assert_eq!(done, 0);
    let other = new(path);
    other.write_all_at(&other_content(4), 0).unwrap();
    map.store(2 * PAGE, b"after");
    std::thread::sleep(Duration::from_millis(100));
    file.write_all_at(&[3; 100], 3 * PAGE as u64).unwrap();
    other.write_all_at(&[4; 100], 4 * PAGE as u64).unwrap();
}

/// Two guarded files change their names.
fn swaps(file: &File, path: &Path) {
    let second = path.with_file_name("second.bin");
    let other = new(&second);
    other.write_all_at(&other_content(5), 0).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    // SAFETY: names that end with a zero.
    let done = unsafe {
        let (from, to) = (name(path), name(&second));
        let flags = libc::RENAME_EXCHANGE;
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    };
    if done != 0 {
        std::process::exit(77);
    }
    file.write_all_at(b"the first", 7 * PAGE as u64).unwrap();
    other.write_all_at(b"the second", 7 * PAGE as u64).unwrap();
    std::thread::sleep(Duration::from_millis(60));
}

/// Has its file from whoever started it.
fn inherits(path: &Path) {
    let key = |fd: i32| {
        // SAFETY: a structure to be written; fails if it is no descriptor.
        unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
        }
    };
    let named = File::open(path).unwrap();
    let fd = if key(0) == key(named.as_raw_fd()) { 0 } else { LEFT };
    // SAFETY: a descriptor that was inherited and belongs to nobody else here.
    let file = unsafe { File::from_raw_fd(fd) };
    file.write_all_at(&[7; 300], 5 * PAGE as u64).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    file.write_all_at(&[8; 300], 6 * PAGE as u64).unwrap();
    core::mem::forget(file);
}

/// Files that are made under a name of the library's making, and one that gets its name last.
fn names(path: &Path) {
    let folder = path.parent().unwrap();
    let template = name(&folder.join("madeXXXXXX.bin")).into_bytes_with_nul();
    let mut made = template.clone();
    // SAFETY: a name that ends with a zero, which is written over; descriptors of these files.
    let (made, last) = unsafe {
        let made = File::from_raw_fd(libc::mkstemps(made.as_mut_ptr().cast(), 4));
        let fd = libc::open(name(folder).as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600);
        (made, (fd >= 0).then(|| File::from_raw_fd(fd)))
    };
    made.write_all_at(&other_content(6), 0).unwrap();
    if let Some(last) = last {
        last.write_all_at(&other_content(7), 0).unwrap();
        let map = Map::new(&last, 0, PAGES);
        let from = name(Path::new(&format!("/proc/self/fd/{}", last.as_raw_fd())));
        let to = name(&folder.join("linked.bin"));
        // SAFETY: names that end with a zero.
        let done = unsafe {
            let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
            libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow)
        };
        assert_eq!(done, 0);
        map.store(3 * PAGE, b"stored");
        last.write_all_at(b"written", 4 * PAGE as u64).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Has many files, one after the other, and the first one once more.
fn many(path: &Path, count: usize) {
    let at = |file: usize| path.with_file_name(format!("{file}.bin"));
    for file in 0..count {
        new(&at(file)).write_all_at(&[file as u8; 5000], 0).unwrap();
    }
    mark(path, "closed");
    wait_for(path, "go");
    let again = OpenOptions::new().write(true).open(at(0)).unwrap();
    again.write_all_at(b"again", 4500).unwrap();
    std::thread::sleep(Duration::from_millis(60));
}

/// Opens files of no interest while `act` lasts; how many of those began and ended meanwhile.
pub(super) fn open_meanwhile(path: &Path, act: impl FnOnce()) -> usize {
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let name = in_memory(path);
    let count = std::thread::scope(|scope| {
        let opens = scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::SeqCst) {
                let waits = begun.load(Ordering::SeqCst);
                drop(OpenOptions::new().write(true).create(true).truncate(false).open(&name));
                count += usize::from(waits && !over.load(Ordering::SeqCst));
                std::thread::sleep(Duration::from_millis(1));
            }
            count
        });
        // So that it has begun.
        std::thread::sleep(Duration::from_millis(20));
        begun.store(true, Ordering::SeqCst);
        act();
        over.store(true, Ordering::SeqCst);
        opens.join().unwrap()
    });
    let _ = std::fs::remove_file(&name);
    count
}

/// A name that nobody guards, and where no disk keeps those waiting who make the file, if there is
/// such a place. Whoever makes it removes it.
pub(super) fn in_memory(path: &Path) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let alone = path.parent().unwrap().file_name().unwrap();
    if memory.is_dir() { memory.join(alone) } else { beside(path, "other") }
}

pub(super) fn report(path: &Path, count: usize) {
    std::fs::write(beside(path, "count"), count.to_string()).unwrap();
}

/// Opens a large file for the first time, and small ones meanwhile.
fn opens(path: &Path) {
    let count = open_meanwhile(path, || {
        OpenOptions::new().write(true).open(path).unwrap();
    });
    report(path, count);
}

/// The same while all of it is covered on a sync; again if that was over too soon to tell.
fn covers(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let rounds = (0..ROUNDS).map(|round| {
        for at in (0..len).step_by(1 << 20) {
            file.write_all_at(&vec![at as u8 ^ round; 1 << 20], at).unwrap();
        }
        // Around the hooks it covers nothing: afterwards, a sync takes as long as covering does.
        // SAFETY: the function of that name and version takes a descriptor.
        unsafe {
            type Sync = unsafe extern "C" fn(i32) -> i32;
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            let found = libc::dlvsym(library, c"fdatasync".as_ptr(), c"GLIBC_2.2.5".as_ptr());
            assert_eq!(core::mem::transmute::<*mut libc::c_void, Sync>(found)(file.as_raw_fd()), 0);
        }
        open_meanwhile(path, || file.sync_data().unwrap())
    });
    report(path, rounds.into_iter().find(|count| *count >= 2).unwrap_or(0));
}

/// Saves as editors do: the file is never open under its name. At last it has another.
fn saves(path: &Path) {
    let aside = beside(path, "tmp");
    for seed in [8, 9] {
        std::fs::write(&aside, other_content(seed)).unwrap();
        std::fs::rename(&aside, path).unwrap();
        // Nobody has it any more.
        std::thread::sleep(Duration::from_millis(500));
    }
    std::fs::rename(path, beside(path, "old")).unwrap();
}

/// The same again and again, now and then by a name that is given up first.
fn saves_hastily(path: &Path) {
    let aside = beside(path, "tmp");
    for seed in 0..40 {
        std::fs::write(&aside, other_content(seed)).unwrap();
        if seed % 3 == 0 {
            std::fs::remove_file(path).unwrap();
        }
        if seed % 4 == 0 {
            std::fs::copy(&aside, path).unwrap();
        }
        std::fs::rename(&aside, path).unwrap();
        std::thread::sleep(Duration::from_millis(seed as u64 % 5 * 12));
    }
}

/// Opens a file while its supervisor stands still.
fn late(path: &Path) {
    mark(path, "ready");
    wait_for(path, "open");
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.write_all_at(b"unseen", 70 * PAGE as u64).unwrap();
    mark(path, "opened");
    wait_for(path, "go");
    file.write_all_at(b"seen", 90 * PAGE as u64).unwrap();
}
