//! Names that files are given: `rename`, `link`, `mkstemp` and what is like them. A file that gets
//! a name which is guarded is taken under guard then, although it may have been open, and mapped,
//! for long.
//!
//! What this program has of such a file is told in one go, during which nothing is judged: streams
//! that write to it, and mappings. Writes of other threads meanwhile show as not announced.

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use holdfast_guard_wire::Place;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fstat, major, minor, open, openat, statat,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, munmap};

use crate::files::{self, Guarded};
use crate::real::{self, Errno, hooks, path};
use crate::state::{self, Uncancelled};
use crate::table::Mapping;
use crate::{fork, maps, raw, streams};

type Two = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> c_int;
type TwoAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, *const c_char) -> c_int;
type TwoWith =
    unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int;
type LinkAt =
    unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int;
type Temporary = unsafe extern "C-unwind" fn(*mut c_char) -> c_int;
type With = unsafe extern "C-unwind" fn(*mut c_char, c_int) -> c_int;
type WithBoth = unsafe extern "C-unwind" fn(*mut c_char, c_int, c_int) -> c_int;

hooks! {
    rename(old: *const c_char, new: *const c_char) -> c_int = moved;
    renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int = two_at;
    renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint)
        -> c_int = two_with;
    link(old: *const c_char, new: *const c_char) -> c_int = two;
    linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int)
        -> c_int = link_at;
    mkstemp(name: *mut c_char) -> c_int = temporary;
    mkstemp64(name: *mut c_char) -> c_int = temporary;
    mkostemp(name: *mut c_char, flags: c_int) -> c_int = with;
    mkostemp64(name: *mut c_char, flags: c_int) -> c_int = with;
    mkstemps(name: *mut c_char, behind: c_int) -> c_int = with;
    mkstemps64(name: *mut c_char, behind: c_int) -> c_int = with;
    mkostemps(name: *mut c_char, behind: c_int, flags: c_int) -> c_int = with_both;
    mkostemps64(name: *mut c_char, behind: c_int, flags: c_int) -> c_int = with_both;
}

/// A call that gave a file a name, if it went well.
///
/// # Safety
/// `name` is null or ends with a zero.
unsafe fn given(done: c_int, folder: c_int, name: *const c_char) {
    if done != 0 || !state::on() {
        return;
    }
    let (_errno, _uncancelled) = (Errno::keep(), Uncancelled::begin());
    // SAFETY: the caller's promise.
    if let Some(fd) = unsafe { probe(folder, name) } {
        files::named(fd.as_fd());
    }
}

/// The regular file of a name. Where there is no descriptor left for it, it is not guarded, and
/// nothing is said of it.
unsafe fn probe(folder: c_int, name: *const c_char) -> Option<OwnedFd> {
    // SAFETY: the caller's promise.
    let name = unsafe { real::name(folder, name, libc::AT_SYMLINK_NOFOLLOW)? };
    // SAFETY: used for calls that fail if it is no descriptor.
    let folder = unsafe { files::borrow(folder) }.unwrap_or(CWD);
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    regular.then(|| openat(folder, name, flags, Mode::empty()).ok())?
}

/// A file is about to lose a name. If it has a side file by that, or is about to, it is guarded
/// from now on, so that its side file goes where it goes. What has none is not covered for being
/// moved.
///
/// # Safety
/// `name` is null or ends with a zero.
unsafe fn taken(folder: c_int, name: *const c_char) {
    if !state::on() {
        return;
    }
    let (_errno, _uncancelled) = (Errno::keep(), Uncancelled::begin());
    // SAFETY: the caller's promise; names that are there.
    unsafe {
        let Some(fd) = probe(folder, name) else { return };
        let Some(name) = path(name) else { return };
        if [SIDE, MAKING].iter().any(|ending| is_beside(folder, name, ending)) {
            let _ = files::of_or_ask(fd.as_fd());
        }
    }
}

/// Endings of the names of side files, and of those that are being made.
const SIDE: &[u8] = b".holdfast";
const MAKING: &[u8] = b".holdfast.making";
/// Longest name of a file, with its folders.
const LONGEST: usize = libc::PATH_MAX as usize;

/// Whether there is a file of that name and ending; what is too long to be looked for might be.
fn is_beside(folder: c_int, name: &CStr, ending: &[u8]) -> bool {
    let mut room = [0_u8; LONGEST];
    let whole = name.to_bytes().iter().chain(ending);
    if name.count_bytes() + ending.len() >= LONGEST {
        return true;
    }
    room.iter_mut().zip(whole).for_each(|(slot, byte)| *slot = *byte);
    // SAFETY: a name that ends with a zero.
    unsafe { real::name(folder, room.as_ptr().cast(), libc::AT_SYMLINK_NOFOLLOW).is_some() }
}

/// A file that was made and opened at once.
fn made(fd: c_int) -> c_int {
    if fd >= 0 && state::on() {
        let _errno = Errno::keep();
        // SAFETY: a descriptor that was just opened.
        if let Some(fd) = unsafe { files::borrow(fd) } {
            let _ = files::of_or_ask(fd);
        }
        if fd < 3 {
            raw::forever(fd);
        }
    }
    fd
}

unsafe fn moved(real: Two, old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        taken(libc::AT_FDCWD, old);
        let done = real(old, new);
        given(done, libc::AT_FDCWD, new);
        done
    }
}

unsafe fn two(real: Two, old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let done = real(old, new);
        given(done, libc::AT_FDCWD, new);
        done
    }
}

unsafe fn two_at(
    real: TwoAt,
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        taken(from, old);
        let done = real(from, old, to, new);
        given(done, to, new);
        done
    }
}

unsafe fn two_with(
    real: TwoWith,
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        taken(from, old);
        let done = real(from, old, to, new, flags);
        given(done, to, new);
        if flags & libc::RENAME_EXCHANGE != 0 {
            given(done, from, old);
        }
        done
    }
}

unsafe fn link_at(
    real: LinkAt,
    from: c_int,
    old: *const c_char,
    to: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let done = real(from, old, to, new, flags);
        given(done, to, new);
        done
    }
}

unsafe fn temporary(real: Temporary, name: *mut c_char) -> c_int {
    // SAFETY: the caller's promise.
    made(unsafe { real(name) })
}

unsafe fn with(real: With, name: *mut c_char, other: c_int) -> c_int {
    // SAFETY: the caller's promise.
    made(unsafe { real(name, other) })
}

unsafe fn with_both(real: WithBoth, name: *mut c_char, behind: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    made(unsafe { real(name, behind, flags) })
}

/// A call that gives a name, made by its number.
///
/// # Safety
/// Arguments as the call of that number has them.
pub(crate) unsafe fn raw(
    number: i64,
    [a, b, c, d, e]: [i64; 5],
    call: impl Fn() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_rename => taken(libc::AT_FDCWD, a as *const c_char),
            libc::SYS_renameat | libc::SYS_renameat2 => taken(a as c_int, b as *const c_char),
            _ => {}
        }
    }
    let done = call();
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_rename | libc::SYS_link => {
                given(done, libc::AT_FDCWD, b as *const c_char);
            }
            _ => given(done, c as c_int, d as *const c_char),
        }
        if number == libc::SYS_renameat2 && e & i64::from(libc::RENAME_EXCHANGE) != 0 {
            given(done, a as c_int, b as *const c_char);
        }
    }
    done
}

/// Descriptors that are tried where there is no list of them.
const TRIED: c_int = 1024;

/// Asks about the files that a program was started with: nobody saw those opened that it has from
/// outside, or that were opened for it on the way from one program to the next. Allocates nothing:
/// it may be asked for from inside of an allocator.
pub(crate) fn inherited() {
    let folder = open(c"/proc/self/fd", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(folder) = folder else {
        // What nobody asks about is not guarded; who has it is found, should it be guarded later.
        (0..TRIED).for_each(ask_about);
        fork::share();
        return;
    };
    let mut room = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(&folder, &mut room);
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { return fork::share() };
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        number.into_iter().for_each(ask_about);
    }
}

fn ask_about(number: c_int) {
    // SAFETY: used for calls that fail if it is no descriptor.
    let fd = unsafe { files::borrow(number) };
    if let Some(fd) = fd.filter(|fd| files::is_writable(*fd)) {
        // Whoever started this program may have it as well.
        fork::share_position(fd);
        let _ = files::of_or_ask(fd);
    }
}

/// Tells what this program has of a file that is guarded since now.
pub(crate) fn tell_of(fd: BorrowedFd<'_>, stat: &Stat, file: &Guarded) {
    streams::taken(stat.st_dev, stat.st_ino, file);
    raw::inherited();
    let shown = shown(fd)
        .unwrap_or(Shown { device: (major(stat.st_dev), minor(stat.st_dev)), inode: stat.st_ino });
    let listed = each_line(|line| {
        let Some(found) = line.filter(|line| line.shared && line.of == shown) else { return };
        let (read, write) = (MprotectFlags::READ, MprotectFlags::WRITE);
        let rights = if found.writable { read | write } else { read };
        let Line { place, at, writable, .. } = found;
        maps::adopt_late(Mapping { place, file: file.number, at, writable, rights });
    });
    if listed.is_none() {
        state::ledger().lose();
    }
}

/// A file as lists of mappings show it; on some file systems the numbers are not those of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    device: (u32, u32),
    inode: u64,
}

/// Found by mapping it.
fn shown(fd: BorrowedFd<'_>) -> Option<Shown> {
    let mut name = [0_u8; 32];
    let name = link_of(fd.as_raw_fd(), &mut name)?;
    let file: OwnedFd = open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Nobody would open anything else by that name but what it was.
    fstat(&file).ok().filter(files::regular)?;
    let len = holdfast_pmem::PAGE as usize;
    // SAFETY: a new mapping wherever the kernel likes, which nobody ever loads from.
    let base = unsafe {
        mmap(core::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0).ok()?
    };
    let mut found = None;
    let listed = each_line(|line| {
        let here = |line: &Line| (line.place.start..line.place.end).contains(&(base as u64));
        found = found.or(line.filter(here).map(|line| line.of));
    });
    // SAFETY: the mapping just made, which nobody else knows.
    let _ = unsafe { munmap(base, len) };
    listed.and(found)
}

/// The name by which a descriptor can be opened again.
fn link_of(fd: c_int, room: &mut [u8; 32]) -> Option<&core::ffi::CStr> {
    let start = b"/proc/self/fd/";
    let mut digits = [0_u8; 10];
    let (mut left, mut count) = (u32::try_from(fd).ok()?, 0);
    while left > 0 || count == 0 {
        *digits.get_mut(count)? = b'0' + (left % 10) as u8;
        (left, count) = (left / 10, count + 1);
    }
    let text = start.iter().chain(digits.get(..count)?.iter().rev());
    for (slot, byte) in room.iter_mut().zip(text) {
        *slot = *byte;
    }
    core::ffi::CStr::from_bytes_until_nul(room).ok()
}

/// A line of the list of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    place: Place,
    /// The file's byte at the start.
    at: u64,
    writable: bool,
    shared: bool,
    of: Shown,
}

/// Tells each line of the list of this program's mappings, `None` for what is none. Allocates
/// nothing. `None` if the list cannot be read.
fn each_line(mut each: impl FnMut(Option<Line>)) -> Option<()> {
    let list = open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut room = [0_u8; 8192];
    let mut len = 0;
    loop {
        let read = rustix::io::read(&list, room.get_mut(len..)?);
        let read = match read {
            Err(rustix::io::Errno::INTR) => continue,
            read => read.ok()?,
        };
        if read == 0 {
            return Some(());
        }
        len += read;
        let mut from = 0;
        while let Some(end) = room.get(from..len)?.iter().position(|byte| *byte == b'\n') {
            each(parse(room.get(from..from + end)?));
            from += end + 1;
        }
        // The longest name of a file leaves room for the words before it.
        room.copy_within(from..len, 0);
        len -= from;
    }
}

/// `start-end rights offset major:minor inode path`.
fn parse(line: &[u8]) -> Option<Line> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (start, end) = pair(words.next()?, b'-')?;
    let rights = words.next()?;
    let at = number(words.next()?, 16)?;
    let (major, minor) = pair(words.next()?, b':')?;
    let inode = number(words.next()?, 10)?;
    let device = (u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    let place = Place::new(start, end.checked_sub(start)?)?;
    let (writable, shared) = (rights.get(1) == Some(&b'w'), rights.get(3) == Some(&b's'));
    Some(Line { place, at, writable, shared, of: Shown { device, inode } })
}

fn pair(word: &[u8], between: u8) -> Option<(u64, u64)> {
    let cut = word.iter().position(|byte| *byte == between)?;
    Some((number(word.get(..cut)?, 16)?, number(word.get(cut + 1..)?, 16)?))
}

fn number(word: &[u8], base: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(word).ok()?, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_a_file_are_found() {
        let path = std::env::temp_dir().join(format!("hf-names-{}", std::process::id()));
        std::fs::write(&path, [1; 9000]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let shown = shown(file.as_fd()).unwrap();
        assert_eq!(shown.inode, std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()));
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, given up below.
        let at =
            unsafe { mmap(core::ptr::null_mut(), 8192, rights, MapFlags::SHARED, &file, 4096) };
        let at = at.unwrap();
        let mut found = Vec::new();
        each_line(|line| found.extend(line.filter(|line| line.of == shown))).unwrap();
        let place = Place::new(at as u64, 8192).unwrap();
        assert_eq!(found, [Line { place, at: 4096, writable: true, shared: true, of: shown }]);
        // SAFETY: as above.
        unsafe { munmap(at, 8192).unwrap() };
        std::fs::remove_file(&path).unwrap();
        assert_eq!(parse(b"9000-7000 rw-s 0 08:01 77"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn descriptors_have_names() {
        let mut room = [0; 32];
        assert_eq!(link_of(0, &mut room), Some(c"/proc/self/fd/0"));
        let mut room = [0; 32];
        assert_eq!(link_of(i32::MAX, &mut room), Some(c"/proc/self/fd/2147483647"));
        assert_eq!(link_of(-1, &mut [0; 32]), None);
    }
}
