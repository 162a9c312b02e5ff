//! Media errors under the program's loads. They are made by mapping a file without bytes over one
//! page, by a system call that no hook sees: the kernel signals as it does for a page it has lost.
//! Where the kernel can poison memory, a true one is made as well.

use std::ffi::{CStr, CString, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_guard::Options;
use holdfast_redundancy::Unsure;

use crate::checks::{is_good, launch_of, options, place, run_of};
use crate::stories::{PAGE, PAGES, mark, wait_for};

static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// The program's own handler: gives whatever failed an empty page.
extern "C" fn own(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    let fault = FAULTS.fetch_add(1, Ordering::SeqCst);
    if let Some(mask) = MASKS.get(fault) {
        mask.store(blocked(), Ordering::SeqCst);
    }
    let next = NEXT.swap(null_mut(), Ordering::SeqCst);
    if !next.is_null() {
        load(next);
    }
    // SAFETY: the address of the fault; a page of its own takes the place of one without bytes.
    unsafe {
        let at = ((*info).si_addr() as usize & !(PAGE - 1)) as *mut c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::syscall(libc::SYS_mmap, at, PAGE, libc::PROT_READ, flags, -1, 0);
    }
}

/// What was blocked in the handler, at each of the first faults, and what it loads itself then.
static MASKS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static NEXT: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The signals that this thread blocks, a bit each.
fn blocked() -> u64 {
    // SAFETY: zeros are an empty set, which is filled in; its first word has all signals.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut set);
        (&raw const set).cast::<u64>().read()
    }
}

fn own_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid action; the handler has the signature that its flag says.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = own;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action
}

fn map(fd: i32) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), PAGES * PAGE, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Has every access to a page fail, behind everybody's back.
fn fail(at: *mut u8) {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: takes the place of a page of the caller's mapping.
    unsafe {
        let empty = libc::memfd_create(c"nothing".as_ptr(), 0);
        let done: usize;
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_mmap as usize => done,
            in("rdi") at, in("rsi") PAGE, in("rdx") i64::from(libc::PROT_READ),
            in("r10") i64::from(flags), in("r8") i64::from(empty), in("r9") 0,
            out("rcx") _, out("r11") _,
        );
        assert_eq!(done, at as usize);
    }
}

fn load(at: *mut u8) -> u8 {
    // SAFETY: an address of a mapping; what fails is signalled.
    unsafe { at.read_volatile() }
}

unsafe extern "C" {
    fn sysv_signal(number: i32, handler: usize) -> usize;
    fn sigset(number: i32, handler: usize) -> usize;
    fn sigignore(number: i32) -> i32;
}

/// What the program is told that its action is, and with which flags.
fn asked() -> (usize, i32) {
    // SAFETY: zeros are an action, which is filled in.
    unsafe {
        let mut now: libc::sigaction = core::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, core::ptr::null(), &mut now), 0);
        (now.sa_sigaction, now.sa_flags)
    }
}

extern "C" fn useless(_: i32) {}

/// Handlers that ask for more than to be called. Pages that fail are those of a file without any.
fn asks_for_more() {
    let file = tempfile::tempfile().unwrap();
    let base = map(file.as_raw_fd());
    let page = |page: usize| base.wrapping_add(page * PAGE);
    let (bus, user) = (1 << (libc::SIGBUS - 1), 1 << (libc::SIGUSR1 - 1));
    let seen = |fault: usize| MASKS[fault].load(Ordering::SeqCst) & (bus | user);
    let mut action = own_action();
    // SAFETY: actions of this program with handlers of their signatures; a child that exits or
    // dies of a signal.
    unsafe {
        // A fault in the handler comes to the handler.
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
        action.sa_flags |= libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, null_mut()), 0);
        NEXT.store(page(1), Ordering::SeqCst);
        assert_eq!((load(page(0)), FAULTS.load(Ordering::SeqCst)), (0, 2));
        assert_eq!((seen(0), seen(1), blocked() & (bus | user)), (user, user, 0));
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, null_mut()), 0);
        assert_eq!((load(page(2)), seen(2)), (0, bus | user));
        // One time only, of which the program is told.
        let handler = useless as *const () as usize;
        assert_eq!(sysv_signal(libc::SIGBUS, handler), action.sa_sigaction);
        let (now, flags) = asked();
        let once = libc::SA_RESETHAND | libc::SA_NODEFER;
        assert_eq!((now, flags & once), (handler, once));
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            load(page(3));
            libc::_exit(1);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:x}");
        // Blocked, let through, ignored. `SIG_HOLD` is 2.
        assert_eq!((sigset(libc::SIGBUS, 2), blocked() & bus), (handler, bus));
        assert_eq!((sigset(libc::SIGBUS, libc::SIG_DFL), blocked() & bus), (2, 0));
        assert_eq!((sigignore(libc::SIGBUS), asked().0), (0, libc::SIG_IGN));
        libc::signal(libc::SIGBUS, own as *const () as usize);
        assert_eq!(asked().0, own as *const () as usize);
    }
}

/// Says to this thread what the kernel says to one whose load met memory that failed, which is not
/// there for it any more. Only a thread itself may be told so by anybody but the kernel.
fn tell_of_failed_memory(at: *mut u8) {
    // As the kernel lays it out on x86-64: signal, error, code, a gap, address, extent.
    let mut words = [0_u64; 16];
    words[0] = libc::SIGBUS as u64;
    words[1] = 4;
    words[2] = at.expose_provenance() as u64;
    words[3] = 12;
    // SAFETY: a signal to this thread, for which it has a handler; as many words as are read.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        let call = libc::SYS_rt_tgsigqueueinfo;
        assert_eq!(libc::syscall(call, process, thread, libc::SIGBUS, words.as_ptr()), 0);
    }
}

/// Stores to one page and not to another; then the memory of both fails.
fn memory_fails(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let base = map(file.as_raw_fd());
    let page = |page: usize| base.wrapping_add(page * PAGE);
    // SAFETY: sets an action of this program; a page of the mapping.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGBUS, &own_action(), null_mut()), 0);
        page(50).write_volatile(77);
    }
    load(page(51));
    // Nothing that was covered before is as young as a failure may be.
    std::thread::sleep(Duration::from_millis(200));
    mark(path, "stored");
    wait_for(path, "go");
    tell_of_failed_memory(page(51));
    assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "nothing of that one was lost");
    assert_ne!(load(page(50)), 77, "the kernel has read in something else");
    tell_of_failed_memory(page(50));
    assert_eq!(FAULTS.load(Ordering::SeqCst), 1, "its own handler has to know");
}

/// Becomes another program, which ignores what this one did.
fn becomes_another(path: &Path) {
    // SAFETY: sets an action of this program.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
    let gone = Command::new(me()).args(["--story", "is ignored"]).arg(path).exec();
    panic!("{gone}");
}

/// Commands that succeed if the signal is ignored, and if it is not.
static COMMANDS: OnceLock<[CString; 2]> = OnceLock::new();

fn command(ignored: bool) -> &'static CStr {
    &COMMANDS.get().unwrap()[usize::from(ignored)]
}

fn make_commands(path: &Path) {
    let (me, path) = (me().display().to_string(), path.display());
    let make = |story| CString::new(format!("'{me}' --story '{story}' '{path}'")).unwrap();
    COMMANDS.set(["is not ignored", "is ignored"].map(make)).unwrap();
}

/// Starts others in each way, and goes on to load what fails. They ignore what this one ignores.
fn starts_others(path: &Path) {
    make_commands(path);
    let file = &OpenOptions::new().read(true).write(true).open(path).unwrap();
    let base = map(file.as_raw_fd());
    let healed = |page: usize| {
        let expected = file_byte(file, page);
        fail(base.wrapping_add(page * PAGE));
        assert_eq!(load(base.wrapping_add(page * PAGE)), expected, "page {page}");
    };
    // SAFETY: sets an action of this program; commands that are texts, and streams in use.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_IGN);
        assert_eq!(libc::system(command(true).as_ptr()), 0, "by system");
        let stream = libc::popen(command(true).as_ptr(), c"r".as_ptr());
        assert_eq!(libc::pclose(stream), 0, "by popen");
    }
    let mut again = Command::new(me());
    let again = again.args(["--story", "is ignored"]).arg(path).status().unwrap();
    assert!(again.success(), "by posix_spawn");
    healed(51);
    // Several at the same time, until the last of which is started.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..8 {
                    // SAFETY: as above.
                    assert_eq!(unsafe { libc::system(command(true).as_ptr()) }, 0);
                }
            });
        }
    });
    healed(52);
    assert_eq!(asked().0, libc::SIG_IGN);
    // SAFETY: as above.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        assert_eq!(libc::system(command(false).as_ptr()), 0);
    }
    healed(53);
}

/// What a child in this program's memory does, as `vfork` has it; how it ended.
fn borrows(act: extern "C" fn(*mut c_void) -> i32) -> i32 {
    let mut stack = vec![0_u8; 256 << 10];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let mut status = 0;
    // SAFETY: it runs on a stack of its own while this program stands still.
    unsafe {
        let top = stack.as_mut_ptr_range().end.map_addr(|at| at & !15).cast();
        let child = libc::clone(act, top, flags, null_mut());
        assert_eq!((child > 0, libc::waitpid(child, &mut status, 0)), (true, child));
    }
    status
}

/// Ends a child: how many of these do not hold.
fn end(all: &[bool]) -> i32 {
    all.iter().filter(|one| !**one).count() as i32
}

extern "C" fn sets(_: *mut c_void) -> i32 {
    let own = own as *const () as usize;
    let seen = asked().0 == own;
    // SAFETY: sets an action of the child.
    let before = unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let is_default = asked().0 == libc::SIG_DFL;
    // SAFETY: as above.
    let again = unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
    end(&[seen, before == own, is_default, again == libc::SIG_DFL, asked().0 == libc::SIG_IGN])
}

extern "C" fn is_ended(_: *mut c_void) -> i32 {
    // SAFETY: a signal to the child itself, which comes before it goes on.
    unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
    0
}

/// Counts, once.
extern "C" fn counts(_: i32) {
    FAULTS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn is_told_once(_: *mut c_void) -> i32 {
    let before = FAULTS.load(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
    end(&[FAULTS.load(Ordering::SeqCst) == before + 1, asked().0 == libc::SIG_DFL])
}

fn becomes_a_shell(ignored: bool) -> i32 {
    let words = [c"sh".as_ptr(), c"-c".as_ptr(), command(ignored).as_ptr(), core::ptr::null()];
    // SAFETY: texts, and a list of them that ends with a null.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), words.as_ptr()) };
    99
}

extern "C" fn becomes(_: *mut c_void) -> i32 {
    becomes_a_shell(true)
}

extern "C" fn resets_and_becomes(_: *mut c_void) -> i32 {
    // SAFETY: sets an action of the child.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    becomes_a_shell(false)
}

/// What children do in this program's memory changes nothing of its own action.
fn children_borrow(path: &Path) {
    make_commands(path);
    let file = &OpenOptions::new().read(true).write(true).open(path).unwrap();
    let base = map(file.as_raw_fd());
    let page = |page: usize| base.wrapping_add(page * PAGE);
    let none = tempfile::tempfile().unwrap();
    let bad = map(none.as_raw_fd());
    // SAFETY: actions of this program with handlers of their signatures.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGBUS, &own_action(), null_mut()), 0);
        assert_eq!(borrows(sets), 0);
        assert_eq!(asked().0, own_action().sa_sigaction);
        assert_eq!((load(bad), FAULTS.load(Ordering::SeqCst)), (0, 1), "its own handler");
        let handler = counts as *const () as usize;
        sysv_signal(libc::SIGBUS, handler);
        assert_eq!((borrows(is_told_once), asked().0), (0, handler));
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        let status = borrows(is_ended);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:x}");
        assert_eq!(asked().0, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_IGN);
        assert_eq!((borrows(becomes), borrows(resets_and_becomes)), (0, 0));
        assert_eq!(asked().0, libc::SIG_IGN);
    }
    let expected = file_byte(file, 51);
    fail(page(51));
    assert_eq!(load(page(51)), expected, "it is done again");
}

pub(crate) fn tell(story: &str, path: &Path) {
    match story {
        "asks for more" => return asks_for_more(),
        "starts others" => return starts_others(path),
        "children borrow" => return children_borrow(path),
        "ignores" => return becomes_another(path),
        "is ignored" => return assert_eq!(asked().0, libc::SIG_IGN),
        "memory" => return memory_fails(path),
        "is not ignored" => return assert_ne!(asked().0, libc::SIG_IGN),
        _ => {}
    }
    let file = &OpenOptions::new().read(true).write(true).open(path).unwrap();
    let base = map(file.as_raw_fd());
    let page = |page: usize| base.wrapping_add(page * PAGE);
    let mut before = own_action();
    // SAFETY: sets an action of this program, and reads what it is.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGBUS, &own_action(), null_mut()), 0);
        assert_eq!(libc::sigaction(libc::SIGBUS, core::ptr::null(), &mut before), 0);
    }
    assert_eq!(before.sa_sigaction, own_action().sa_sigaction, "it sees its own action");
    // SAFETY: inside the mapping.
    unsafe { page(50).write_volatile(77) };
    std::thread::sleep(std::time::Duration::from_millis(200));
    // Not guarded: its faults are the program's.
    let copy = tempfile::tempfile().unwrap();
    copy.set_len((PAGES * PAGE) as u64).unwrap();
    let other = map(copy.as_raw_fd());
    match story {
        "media" => {
            for healed in [50, 51, 52] {
                let expected = file_byte(file, healed);
                fail(page(healed));
                assert_eq!(load(page(healed)), expected, "page {healed}");
                // SAFETY: inside the mapping.
                unsafe { page(healed).add(9).write_volatile(99) };
            }
            assert_eq!(FAULTS.load(Ordering::SeqCst), 0, "the program noticed");
            fail(other);
            assert_eq!((load(other), FAULTS.load(Ordering::SeqCst)), (0, 1), "its own handler");
        }
        _ => {
            // SAFETY: poisons memory behind a page of the mapping, if that is permitted.
            let done = unsafe { libc::madvise(page(60).cast(), PAGE, libc::MADV_HWPOISON) };
            if done != 0 {
                std::process::exit(77);
            }
            assert_eq!(load(page(60)), first_byte(60), "it was given back");
        }
    }
}

/// Of a page nobody wrote to.
fn first_byte(page: usize) -> u8 {
    let at = page * PAGE;
    (at / 13 + page * 31 + at) as u8
}

fn file_byte(file: &File, page: usize) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, (page * PAGE) as u64).unwrap();
    byte[0]
}

fn byte(path: &Path, page: usize, at: usize) -> u8 {
    let mut byte = [0];
    let file = OpenOptions::new().read(true).open(path).unwrap();
    file.read_exact_at(&mut byte, (page * PAGE + at) as u64).unwrap();
    byte[0]
}

/// The stories of this file are told by this very program: they make calls of their own.
fn me() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// A load completes, the program notices nothing, and what it stores there afterwards is seen.
pub(crate) fn mapped_anew() {
    let place = place();
    let (summary, report) = run_of(&me(), "media", &place.file, options());
    assert!(summary.status.success(), "{summary}");
    for page in [50, 51, 52] {
        assert_eq!(byte(&place.file, page, 9), 99, "{summary}");
    }
    assert_eq!(byte(&place.file, 50, 0), 77);
    assert_eq!((report.counts.corrupt, report.lost), (0, 0), "{summary}");
    assert!(report.closed && report.contested.is_empty(), "{summary}");
    assert!(report.doubtful.iter().all(|(page, _)| (50..53).contains(page)), "{summary}");
}

/// The program's own handlers are as without us.
pub(crate) fn own_handlers() {
    for story in ["asks for more", "ignores", "starts others", "children borrow"] {
        let place = place();
        let summary = launch_of(&me(), story, &place.file, options()).run().unwrap();
        assert!(summary.status.success(), "{story}: {summary}");
    }
}

/// What was stored to memory that failed is gone: the program is told, and the page is undecided,
/// although it holds what was covered before.
pub(crate) fn stored_and_lost() {
    let place = place();
    let before = byte(&place.file, 50, 0);
    let slow = Options { period: Duration::from_secs(60), ..options() };
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run_of(&me(), "memory", &file, slow));
    wait_for(&place.file, "stored");
    // What the device has. The guard takes it for its own doing, and nobody announces it.
    let open = OpenOptions::new().write(true).open(&place.file).unwrap();
    open.write_all_at(&[before], (50 * PAGE) as u64).unwrap();
    drop(open);
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(summary.status.success() && report.closed, "{summary}");
    assert_eq!(report.doubtful, [(50, Unsure::MemoryFailed)], "{summary}");
    assert_eq!((report.counts.repaired, report.counts.undecided), (0, 1), "{summary}");
    assert!(report.contested.is_empty(), "{summary}");
    assert_eq!(byte(&place.file, 50, 0), before);
}

/// Memory that is truly lost.
pub(crate) fn poisoned() {
    let place = place();
    let (summary, report) = run_of(&me(), "poison", &place.file, options());
    if summary.status.code() == Some(77) {
        println!("  skipped: this kernel poisons no memory (CONFIG_MEMORY_FAILURE), or not for us");
        return;
    }
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    assert_eq!(report.counts.repaired, 1, "{summary}");
}
