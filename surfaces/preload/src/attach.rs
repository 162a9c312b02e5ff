//! Attaching from inside: a program that was not started under guard, and has this library linked
//! in or preloaded, starts a supervisor of its own and introduces itself.
//!
//! What happened before, nobody saw. So what the program has mapped or open is told in one go,
//! during which the supervisor judges nothing, and with the word that it is *late*: a file that is
//! covered for the first time is covered once more, and in any other what differs is undecided.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use holdfast_guard_wire::{Place, Request, link};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::mm::MprotectFlags;

use crate::anchor::{Launch, launch};
use crate::real::Errno;
use crate::state::Begun;
use crate::table::Mapping;
use crate::{files, maps, state};

/// How long a supervisor may take to begin.
const PATIENCE: i64 = 20;
/// Most options, and the program's own variables, handed on.
const MOST: usize = 4096;

/// Has this program guarded from now on, by a supervisor that is started for it.
///
/// `supervisor` is the `holdfast` command; null finds it in the `PATH`. `options` are those of
/// `holdfast guard`, without a program, and end with a null; null is none. Answers 0, or -1 with
/// `errno`: `EALREADY` if it is guarded, `ENOTSUP` if the library does not stand before the C
/// library (it was loaded too late: link or preload it), `ENOENT` if there is no such supervisor,
/// `ECONNREFUSED` if it does not begin (it says why on standard error), `E2BIG`, `EAGAIN`.
///
/// # Safety
/// Both are null or as C has strings and lists of them. No other thread forks or changes the
/// environment meanwhile.
#[allow(unreachable_pub, reason = "programs reach it")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn holdfast_guard_attach(
    supervisor: *const c_char,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { words(supervisor, options) }.and_then(|words| attach(&words));
    match done {
        Ok(()) => 0,
        Err(error) => {
            Errno::set(error);
            -1
        }
    }
}

/// What is to be executed: the command as it is named, and its words.
unsafe fn words(
    supervisor: *const c_char,
    options: *const *const c_char,
) -> Result<Vec<CString>, c_int> {
    let command = match supervisor.is_null() {
        true => c"holdfast",
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(supervisor) },
    };
    let mut words = vec![command.to_owned(), c"guard".to_owned()];
    let mut at = options;
    // SAFETY: the caller's promise: null, or a list that ends with a null.
    while !at.is_null() && unsafe { !(*at).is_null() } {
        if words.len() == MOST {
            return Err(libc::E2BIG);
        }
        // SAFETY: as above.
        unsafe {
            words.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    Ok(words)
}

fn attach(words: &[CString]) -> Result<(), c_int> {
    let _uncancelled = state::Uncancelled::begin();
    let begun = Begun::late()?;
    if !stands_before() {
        return Err(libc::ENOTSUP);
    }
    let name = supervise(words)?;
    // A handler that syncs would wait for what this very thread has still to tell.
    let before = state::block();
    let ready = begun.finish(&name, own_path().as_deref());
    if ready.is_some() {
        tell_all();
        state::tell_in_time_or_not(&Request::Ready { space: state::space(), file: None });
    }
    state::unblock(&before);
    ready.ok_or(libc::ECONNREFUSED)?.done();
    Ok(())
}

/// Whether calls of the program come to the hooks: whether the first function of each name is ours.
fn stands_before() -> bool {
    let ours = library(attach as *const c_void);
    [c"write", c"mmap", c"munmap", c"open"].iter().all(|name| {
        // SAFETY: a name that ends with a zero.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        ours.is_some() && library(first) == ours
    })
}

/// Where the library is loaded that an address lies in.
fn library(address: *const c_void) -> Option<usize> {
    Some(info(address)?.dli_fbase as usize)
}

fn info(address: *const c_void) -> Option<libc::Dl_info> {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: looks up any address, and writes what it finds.
    let done = unsafe { libc::dladdr(address, &raw mut found) };
    (done != 0).then_some(found)
}

/// The file this library came from.
fn own_path() -> Option<CString> {
    let found = info(attach as *const c_void)?;
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own name for a library that stays loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    let path = std::fs::canonicalize(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()?;
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// The executable file of a command, as a shell finds it.
fn find(command: &CStr) -> Option<CString> {
    let name = std::ffi::OsStr::from_bytes(command.to_bytes());
    let found = if command.to_bytes().contains(&b'/') {
        Some(PathBuf::from(name))
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    let found = found.filter(|path| path.is_file())?;
    CString::new(found.as_os_str().as_bytes()).ok()
}

/// Starts a supervisor and waits until it listens; its name.
fn supervise(words: &[CString]) -> Result<Vec<u8>, c_int> {
    let command = words.first().and_then(|word| find(word)).ok_or(libc::ENOENT)?;
    let (read, write) = pipe()?;
    let number = CString::new(write.as_raw_fd().to_string()).map_err(|_| libc::EINVAL)?;
    let more = [c"--serve".to_owned(), number];
    let list = |texts: &[&CStr]| -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let all: Vec<&CStr> = words.iter().chain(&more).map(CString::as_c_str).collect();
    let environment: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD" && name != "HOLDFAST_GUARD")
        .filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        })
        .collect();
    let kept: Vec<&CStr> = environment.iter().map(CString::as_c_str).collect();
    let (words, variables) = (list(&all), list(&kept));
    let what = Launch {
        command: command.as_ptr(),
        words: words.as_ptr(),
        environment: variables.as_ptr(),
        keep: write.as_raw_fd(),
    };
    if !launch(&what) {
        return Err(libc::EAGAIN);
    }
    drop(write);
    listen(read).ok_or(libc::ECONNREFUSED)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), c_int> {
    let mut ends = [-1; 2];
    // SAFETY: writes two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(libc::EAGAIN);
    }
    // SAFETY: two descriptors that were just opened and belong to nobody yet.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// One line; `None` if it does not come.
fn listen(from: OwnedFd) -> Option<Vec<u8>> {
    let mut file = std::fs::File::from(from);
    let (mut name, mut byte) = (Vec::new(), [0]);
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    while name.len() <= link::MOST_NAME {
        let ready = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&patience));
        match ready {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(1..) if matches!(file.read(&mut byte), Ok(1)) => {}
            _ => return None,
        }
        if byte[0] == b'\n' {
            return (!name.is_empty()).then_some(name);
        }
        name.push(byte[0]);
    }
    None
}

/// Tells of all that the program has: open files first, since those may be guarded from now on,
/// then mappings.
fn tell_all() {
    for fd in descriptors() {
        // SAFETY: used for calls that fail if it is no descriptor any more.
        let Some(fd) = (unsafe { files::borrow(fd) }) else { continue };
        if files::is_writable(fd) {
            let _ = files::of_or_ask(fd);
        }
    }
    for (place, at, writable, path) in mapped() {
        let Ok(file) = std::fs::File::open(&path) else { continue };
        let regular = |stat: &rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        };
        let Some(stat) = fstat(&file).ok().filter(regular) else { continue };
        let found = match files::known(&stat) {
            Some(found) => Some(found),
            None if writable => files::of_or_ask(file.as_fd()),
            None => None,
        };
        if let Some(found) = found {
            let read = MprotectFlags::READ;
            let rights = if writable { read | MprotectFlags::WRITE } else { read };
            maps::adopt_late(Mapping { place, file: found.number, at, writable, rights });
        }
    }
}

fn descriptors() -> Vec<c_int> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        state::ledger().lose();
        return Vec::new();
    };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Shared mappings of files: where, from which byte, whether they may be stored to now, and the
/// file's name. One whose name leads elsewhere meanwhile is noticed by the supervisor.
fn mapped() -> Vec<(Place, u64, bool, PathBuf)> {
    let Ok(text) = std::fs::read("/proc/self/maps") else {
        state::ledger().lose();
        return Vec::new();
    };
    text.split(|byte| *byte == b'\n').filter_map(mapping).collect()
}

fn mapping(line: &[u8]) -> Option<(Place, u64, bool, PathBuf)> {
    let slash = line.iter().position(|byte| *byte == b'/')?;
    let (head, path) = line.split_at(slash);
    let mut words = core::str::from_utf8(head).ok()?.split_ascii_whitespace();
    let (range, rights, at) = (words.next()?, words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    let rights = rights.as_bytes();
    let place = Place::new(start, end.checked_sub(start)?)?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    (rights.get(3) == Some(&b's')).then(|| Some((place, number(at)?, rights[1] == b'w', path)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mappings_are_understood() {
        assert_eq!(mapping(b"9000-7000 rw-s 00003000 08:01 77 /c.db"), None, "backwards");
        let line = b"7000-9000 rw-s 00003000 08:01 77   /a b/c.db";
        let place = Place { start: 0x7000, end: 0x9000 };
        assert_eq!(mapping(line), Some((place, 0x3000, true, PathBuf::from("/a b/c.db"))));
        assert_eq!(mapping(b"7000-9000 rw-p 00003000 08:01 77 /c.db"), None, "its own copy");
        assert_eq!(mapping(b"7000-9000 rw-s 00003000 00:00 0"), None, "no file");
        assert_eq!(mapping(b"nonsense / and more"), None);
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        assert!(find(c"sh").is_some_and(|path| path.to_bytes().ends_with(b"/sh")));
        assert_eq!(find(c"/bin/sh").as_deref(), Some(c"/bin/sh"));
        assert!(find(c"no-such-command").is_none() && find(c"/nowhere/sh").is_none());
    }

    #[test]
    fn a_library_that_does_not_stand_before_the_others_is_refused() {
        // Tests export no hooks.
        assert!(!stands_before());
    }
}
