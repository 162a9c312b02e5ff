//! More of what the programs do with mappings: a second one of the same bytes, parts that children
//! are not given, handlers that run in a child before all others.

use std::ffi::{CStr, c_char, c_int};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use super::{Map, PAGE, PAGES, beside, mark, wait_for};

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "copies" => copies(file),
        "stays behind" => stays_behind(file),
        "not for children" => not_for_children(file),
        "stores in a handler" => stores_in_a_handler(file),
        "forks beside an allocator" => forks_beside_an_allocator(file),
        "goes before others" => goes_before_others(file),
        "takes advice" => takes_advice(file),
        "syncs two" => syncs_two(file, path),
        "keeps busy" => keeps_busy(file, path),
        _ => return super::flows::tell(story, file, path),
    }
    true
}

/// Long enough for a pass or two.
fn rest() {
    std::thread::sleep(Duration::from_millis(100));
}

impl Map {
    /// The mapping that some call made.
    fn made(at: *mut libc::c_void, pages: usize) -> Self {
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { at: at.cast(), len: pages * PAGE }
    }

    fn give_up(self) {
        // SAFETY: nobody uses it any more.
        assert_eq!(unsafe { libc::munmap(self.place(0), self.len) }, 0);
    }
}

/// Stores to all of two regions, without a pause; later not to two stripes of them.
fn keeps_busy(file: &File, path: &Path) {
    let map = Map::new(file, 0, PAGES);
    let mut round = 0_u8;
    let mut store = |but: [usize; 2]| {
        round = round.wrapping_add(1);
        for page in (0..512).filter(|page| !but.contains(&(page / 4))) {
            map.store(page * PAGE + 40, &[round; 16]);
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // As many periods as it takes to be left open, and some.
    (0..100).for_each(|_| store([usize::MAX; 2]));
    mark(path, "ready");
    while !beside(path, "go").exists() {
        store([102 / 4, 301 / 4]);
    }
}

/// Maps parts of a mapping a second time, and stores through both.
fn copies(file: &File) {
    let map = Map::new(file, 0, PAGES);
    map.store(500 * PAGE, &[1; 10]);
    rest();
    for (round, pages) in [1, 8, 8].into_iter().enumerate() {
        let first = 100 * round;
        // SAFETY: leaves the mapping alone; the target is a mapping of this function's.
        let copy = Map::made(
            unsafe {
                if round < 2 {
                    libc::mremap(map.place(first * PAGE), 0, pages * PAGE, libc::MREMAP_MAYMOVE)
                } else {
                    let under = Map::new(file, 300, pages);
                    under.store(0, &[7; 30]);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    let (at, len) = (map.place(first * PAGE), pages * PAGE);
                    libc::mremap(at, 0, len, flags, under.place(0))
                }
            },
            pages,
        );
        copy.store((pages - 1) * PAGE, &[round as u8 + 2; 100]);
        rest();
        copy.store(0, &[round as u8 + 5; 100]);
        copy.give_up();
        map.store(first * PAGE + 2000, &[round as u8 + 9; 100]);
        map.store((first + 5) * PAGE, &[round as u8 + 9; 100]);
        rest();
    }
}

/// Moves pages to another place, and the place where they were stays.
fn stays_behind(file: &File) {
    let map = Map::new(file, 0, PAGES);
    map.store(90 * PAGE, &[1; 100]);
    rest();
    let (at, len) = (map.place(80 * PAGE), 20 * PAGE);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    let nowhere = core::ptr::null_mut::<libc::c_void>();
    // SAFETY: pages of the mapping; no target is named.
    let moved = Map::made(unsafe { libc::mremap(at, len, len, flags, nowhere) }, 20);
    moved.store(PAGE, &[2; 100]);
    map.store(82 * PAGE, &[3; 100]);
    rest();
    moved.store(3 * PAGE, &[4; 100]);
    map.store(84 * PAGE, &[5; 100]);
    moved.give_up();
    map.store(86 * PAGE, &[6; 100]);
    rest();
}

/// Runs something in a child, and waits for its end.
fn child(run: impl FnOnce()) {
    // SAFETY: the child stores and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            run();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    rest();
}

/// A child that has parts of the mapping only, and stores to those.
fn not_for_children(file: &File) {
    let map = Map::new(file, 0, PAGES);
    for (first, pages) in [(8, 1), (40, 100), (PAGES - 1, 1), (20, 3)] {
        let at = map.place(first * PAGE);
        // SAFETY: pages of the mapping.
        assert_eq!(unsafe { libc::madvise(at, pages * PAGE, libc::MADV_DONTFORK) }, 0);
    }
    rest();
    child(|| {
        for page in [0, 7, 9, 19, 23, 39, 140, PAGES - 2] {
            map.store(page * PAGE, &[page as u8 + 1; 100]);
        }
    });
    map.store(50 * PAGE, &[50; 100]);
}

/// Where the handler stores.
static PLACE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn in_child() {
    let place = PLACE.load(Ordering::Relaxed);
    if !place.is_null() {
        // SAFETY: inside a mapping that lives as long as the process.
        unsafe { place.write_bytes(b'N', 100) };
    }
}

/// Before any library is set up: what is to be done after a fork is in place before all others'.
extern "C" fn early(count: c_int, words: *const *const c_char) {
    let asked = |story: &CStr| {
        // SAFETY: the words that this program was started with.
        count == 4 && unsafe { libc::strcmp(*words.add(2), story.as_ptr()) == 0 }
    };
    // SAFETY: functions that stay where they are.
    unsafe {
        if asked(c"stores in a handler") {
            libc::pthread_atfork(None, None, Some(in_child));
        }
        if asked(c"forks beside an allocator") {
            libc::pthread_atfork(Some(take), Some(give_back), Some(give_back));
        }
    }
}

/// The lock of an allocator, which is held over a fork, so that no child finds it taken.
static ALLOCATES: AtomicBool = AtomicBool::new(false);

extern "C" fn take() {
    while ALLOCATES.swap(true, Ordering::Acquire) {
        // SAFETY: lets others run.
        unsafe { libc::sched_yield() };
    }
}

extern "C" fn give_back() {
    ALLOCATES.store(false, Ordering::Release);
}

/// Memory of an allocator's, which it gets, changes and gives up with its lock held.
fn allocate() {
    let (none, flags) = (core::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    take();
    // SAFETY: a new mapping, over which another is made, and which is given up.
    unsafe {
        let at = libc::mmap(none, 4 * PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_eq!(libc::mprotect(at, 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
        assert_eq!(libc::mmap(at, PAGE, 0, flags | libc::MAP_FIXED, -1, 0), at);
        assert_eq!(libc::madvise(at, 2 * PAGE, libc::MADV_DONTNEED), 0);
        assert_eq!(libc::munmap(at, 4 * PAGE), 0);
    }
    give_back();
    // SAFETY: lets others run.
    unsafe { libc::sched_yield() };
}

/// Ends this process after a minute, in which everybody may stand still.
fn ends_anyway() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        // SAFETY: runs nothing of this process any more.
        unsafe { libc::_exit(70) };
    });
}

/// This thread shares one processor with all others that ask for that.
fn share_a_processor() {
    // SAFETY: sets of processors that live across the calls; zeros are an empty one.
    unsafe {
        let (mut may, mut one): (libc::cpu_set_t, libc::cpu_set_t) = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&may), &raw mut may), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|cpu| libc::CPU_ISSET(*cpu, &may));
        libc::CPU_SET(first.unwrap(), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
    }
}

/// Maps while another thread does, which runs only when this one has nothing to do.
fn goes_before_others(file: &File) {
    let over = AtomicBool::new(false);
    ends_anyway();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            share_a_processor();
            while !over.load(Ordering::Relaxed) {
                Map::new(file, 300, 1).give_up();
            }
        });
        share_a_processor();
        let first = libc::sched_param { sched_priority: 1 };
        // SAFETY: changes how this thread is scheduled.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) } != 0 {
            std::process::exit(77);
        }
        let begun = std::time::Instant::now();
        for round in 0..100 {
            let map = Map::new(file, round, 1);
            map.store(9, &[1; 9]);
            map.give_up();
            // The other one begins, and is kept from going on.
            std::thread::sleep(Duration::from_micros(500));
        }
        over.store(true, Ordering::Relaxed);
        // Whoever takes all the time there is gets it for most of each second.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

/// Forks again and again, while one thread allocates and another maps the file and gives it up.
fn forks_beside_an_allocator(file: &File) {
    let map = Map::new(file, 0, PAGES);
    let over = AtomicBool::new(false);
    ends_anyway();
    std::thread::scope(|scope| {
        let until_then = |act: &dyn Fn()| {
            while !over.load(Ordering::Relaxed) {
                act();
            }
        };
        scope.spawn(move || until_then(&allocate));
        scope.spawn(move || {
            until_then(&|| {
                Map::new(file, 300, 1).give_up();
                std::thread::sleep(Duration::from_millis(1));
            });
        });
        for _ in 0..100 {
            // SAFETY: the child exits.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(0);
                }
                assert_eq!(libc::waitpid(child, core::ptr::null_mut(), 0), child);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    map.store(30 * PAGE, &[1; 100]);
}

#[used]
#[unsafe(link_section = ".preinit_array")]
static EARLY: extern "C" fn(c_int, *const *const c_char) = early;

fn stores_in_a_handler(file: &File) {
    let map = Map::new(file, 0, PAGES);
    rest();
    for page in [3, 150, 333] {
        PLACE.store(map.place(page * PAGE).cast(), Ordering::Relaxed);
        child(|| {});
    }
}

/// One sync of two files whose mappings follow each other.
fn syncs_two(file: &File, path: &Path) {
    let second = path.with_file_name("second.bin");
    std::fs::write(&second, vec![5; PAGES * PAGE]).unwrap();
    let second = OpenOptions::new().read(true).write(true).open(&second).unwrap();
    let first = Map::new(file, 0, 2 * PAGES);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let behind = Map::with(&second, 0, PAGES, rights, Some(first.place(PAGES * PAGE).cast()));
    first.store(PAGE, &[1; 100]);
    behind.store(2 * PAGE, &[2; 100]);
    first.sync();
    mark(path, "synced");
    wait_for(path, "go");
}

/// The flags of the mapping at an address, by its entry in the detailed list of mappings.
fn flags_of(at: *mut libc::c_void) -> String {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let begin = all.find(&format!("{:x}-", at as usize)).unwrap();
    let line = all[begin..].lines().find(|line| line.starts_with("VmFlags:"));
    line.unwrap().to_owned()
}

/// Asks for large pages, and gives up what is mapped, for itself and by way of a handle of itself.
fn takes_advice(file: &File) {
    let map = Map::new(file, 0, PAGES);
    let guarded = std::env::var_os("HOLDFAST_GUARD").is_some();
    // A kernel without large pages takes no such advice, with a guard or without.
    let large = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let look = || {
        let flags = flags_of(map.place(0));
        let single = flags.contains(" nh") && !flags.contains(" hg");
        assert!(!large || !guarded || single, "{flags}");
    };
    look();
    // SAFETY: a handle of this process, and advice about its own mapping.
    unsafe {
        let me = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        let whole = libc::iovec { iov_base: map.place(0), iov_len: map.len };
        let by_handle = |advice: c_int| {
            libc::syscall(libc::SYS_process_madvise, me, &raw const whole, 1, advice, 0)
        };
        let done = libc::madvise(map.place(0), map.len, libc::MADV_HUGEPAGE);
        assert_eq!(done == 0, large);
        look();
        if by_handle(libc::MADV_HUGEPAGE) != map.len as i64 {
            println!("  skipped: this kernel takes no such advice by a handle");
        }
        look();
        for (page, advice) in [(3, libc::MADV_DONTNEED), (5, libc::MADV_DONTNEED_LOCKED)] {
            map.store(page * PAGE, &[page as u8; 100]);
            assert_eq!(libc::madvise(map.place(0), map.len, advice), 0);
            rest();
            map.store((page + 100) * PAGE, &[page as u8; 100]);
            by_handle(advice);
            rest();
        }
        libc::close(me as c_int);
    }
    map.store(300 * PAGE, &[3; 100]);
}
