//! Reads into mappings of guarded files.
//!
//! The kernel marks a page that it is about to fill as stored to when the read begins. Where the
//! device writes there by itself (`O_DIRECT`, and file systems that do so unasked), the bytes come
//! later: a pass in between takes the mark and covers what was there before. So such a read is
//! announced, like a write to the part of the file behind the buffer: it counts from before it
//! begins until after it is over. Others are announced as well, since nobody tells which these are.
//!
//! | where the buffer lies | costs |
//! |---|---|
//! | nothing guarded is mapped | one load |
//! | elsewhere | a look at the spans of the mappings, without the lock |
//! | in a mapping | the lock, a slot |
//!
//! `fread` reads large parts right into the buffer of its caller, so it is among them.

use core::ffi::{c_int, c_void};

use holdfast_guard_wire::Place;
use libc::{FILE, iovec, off_t, size_t, ssize_t};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::files::{self, Change};
use crate::leaps;
use crate::real::{are_there, hooks};
use crate::state::{self, Quiet};
use crate::table;

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
type Pread = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type Readv = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type Preadv = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type Preadv2 = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type ReadChk = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
type PreadChk = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
type Fread = unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, *mut FILE) -> size_t;
type FreadChk =
    unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, size_t, *mut FILE) -> size_t;
type Aio = unsafe extern "C-unwind" fn(*mut libc::aiocb) -> c_int;

hooks! {
    read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = plain;
    __read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t = plain;
    __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t = checked;
    pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    __pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    __pread_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t
        = checked_at_offset;
    __pread64_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t
        = checked_at_offset;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = into_parts;
    preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = parts_at_offset;
    preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t
        = parts_at_offset;
    preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = parts_with_flags;
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = parts_with_flags;
    fread(to: *mut c_void, size: size_t, count: size_t, from: *mut FILE) -> size_t = of_stream;
    fread_unlocked(to: *mut c_void, size: size_t, count: size_t, from: *mut FILE) -> size_t
        = of_stream;
    __fread_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, from: *mut FILE)
        -> size_t = checked_of_stream;
    __fread_unlocked_chk(
        to: *mut c_void, room: size_t, size: size_t, count: size_t, from: *mut FILE,
    ) -> size_t = checked_of_stream;
    aio_read(what: *mut libc::aiocb) -> c_int = aio;
    aio_read64(what: *mut libc::aiocb) -> c_int = aio;
}

/// Files that one read fills, at most; more are said to be lost.
const MOST: usize = 16;
/// Most parts of one read, as the kernel has it.
const LISTED: usize = 1024;
/// Bytes behind those that it told that a direct read may change: what devices transfer at a time.
const SECTOR: u64 = 64 << 10;

/// The part of a file that a read may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    file: u32,
    /// First byte, and the one behind the last.
    at: u64,
    end: u64,
    /// Bytes of the read that go elsewhere before it; `None` if there are several parts.
    skips: Option<u64>,
}

/// The parts of all files.
#[derive(Debug)]
struct Parts {
    all: [Option<Part>; MOST],
    /// There are more.
    more: bool,
}

impl Parts {
    const fn new() -> Self {
        Self { all: [None; MOST], more: false }
    }

    /// Adds a part; of one file, all between counts.
    fn add(&mut self, new: Part) {
        for slot in &mut self.all {
            match slot {
                Some(part) if part.file == new.file => {
                    (part.at, part.end) = (part.at.min(new.at), part.end.max(new.end));
                    part.skips = None;
                    return;
                }
                Some(_) => {}
                None => {
                    *slot = Some(new);
                    return;
                }
            }
        }
        self.more = true;
    }

    /// What lies behind buffers.
    fn behind(buffers: &[iovec]) -> Self {
        let mut parts = Self::new();
        let needed = || buffers.iter().filter_map(place).any(table::may_hold);
        let Some(mut quiet) = Quiet::take_while(needed) else { return parts };
        let mut before = 0_u64;
        for buffer in buffers {
            let (start, len) = (buffer.iov_base as u64, buffer.iov_len as u64);
            let end = start.saturating_add(len);
            let nowhere = Place { start: 0, end: 0 };
            for mapping in table::with(&mut quiet).over(place(buffer).unwrap_or(nowhere)) {
                let from = start.max(mapping.place.start);
                let to = end.min(mapping.place.end);
                if from < to {
                    let at = mapping.at + (from - mapping.place.start);
                    let skips = Some(before.saturating_add(from - start));
                    let (file, end) = (mapping.file, at + (to - from));
                    parts.add(Part { file, at, end, skips });
                }
            }
            before = before.saturating_add(len);
        }
        parts
    }
}

fn place(buffer: &iovec) -> Option<Place> {
    Place::new(buffer.iov_base as u64, buffer.iov_len as u64)
}

/// Whether any of the buffers may lie in a mapping of a guarded file. An address that is none is
/// none of ours.
fn concerned(buffers: &[iovec]) -> bool {
    buffers.iter().filter_map(place).any(table::may_hold) && state::on()
}

/// A read that fills parts of files, from before it begins until it is dropped.
struct Filling {
    parts: Parts,
    changes: [Option<Change>; MOST],
}

impl Filling {
    /// `began` is where the caller stands on its stack: this takes more of it than a handler leaves
    /// to the call that it interrupts.
    fn begin(buffers: &[iovec], began: usize) -> Self {
        let parts = Parts::behind(buffers);
        if parts.more {
            state::ledger().lose();
        }
        let open = |part: Part| {
            let len = part.end.saturating_sub(part.at);
            files::by_number(part.file).change_from(began, part.at, len)
        };
        Self { changes: core::array::from_fn(|at| parts.all[at].map(open)), parts }
    }

    /// It is over. A read that failed may have filled anything, unless there was nothing to read.
    fn over(&mut self, fd: c_int, done: i64) {
        // SAFETY: the calling thread's own variable.
        let error = unsafe { *libc::__errno_location() };
        let nothing = done < 0 && [libc::EAGAIN, libc::EBADF].contains(&error);
        let filled = match u64::try_from(done) {
            Err(_) if nothing => 0,
            Err(_) => return,
            Ok(done) if is_direct(fd) => done.saturating_add(SECTOR),
            Ok(done) => done,
        };
        for (part, change) in self.parts.all.iter().zip(&mut self.changes) {
            if let (Some(part), Some(change)) = (part, change) {
                let skips = if filled == 0 { Some(u64::MAX) } else { part.skips };
                if let Some(skips) = skips {
                    change.narrow(part.at, filled.saturating_sub(skips).min(part.end - part.at));
                }
            }
        }
    }
}

/// Whether a read may leave more than it says.
fn is_direct(fd: c_int) -> bool {
    // SAFETY: used for a call that fails if it is no descriptor.
    let flags = unsafe { files::borrow(fd) }.and_then(|fd| fcntl_getfl(fd).ok());
    flags.is_none_or(|flags| flags.contains(OFlags::DIRECT))
}

/// One read into buffers.
fn around(fd: c_int, buffers: &[iovec], read: impl FnOnce() -> ssize_t) -> ssize_t {
    if !concerned(buffers) {
        return read();
    }
    let mut filling = Filling::begin(buffers, leaps::stack());
    let done = read();
    filling.over(fd, done as i64);
    done
}

/// A read into one buffer.
pub(crate) fn raw(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    read: impl FnOnce() -> ssize_t,
) -> ssize_t {
    around(fd, &[iovec { iov_base: to, iov_len: len }], read)
}

/// A read into a list of buffers.
///
/// # Safety
/// As the list of a `readv`.
pub(crate) unsafe fn raw_parts(
    fd: c_int,
    parts: *const iovec,
    count: i64,
    read: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let count = usize::try_from(count).ok().filter(|count| (1..=LISTED).contains(count));
    let Some(count) = count.filter(|_| !table::is_empty()) else { return read() };
    // SAFETY: the caller's promise: so many parts, if there are any.
    if !unsafe { are_there(parts, count) } {
        return read();
    }
    // SAFETY: the caller's promise; they can be read.
    around(fd, unsafe { core::slice::from_raw_parts(parts, count) }, read)
}

unsafe fn plain(real: Read, fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    raw(fd, to, len, || unsafe { real(fd, to, len) })
}

unsafe fn checked(real: ReadChk, fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    raw(fd, to, len, || unsafe { real(fd, to, len, room) })
}

unsafe fn at_offset(real: Pread, fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    raw(fd, to, len, || unsafe { real(fd, to, len, at) })
}

unsafe fn checked_at_offset(
    real: PreadChk,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    raw(fd, to, len, || unsafe { real(fd, to, len, at, room) })
}

unsafe fn into_parts(real: Readv, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { raw_parts(fd, parts, count.into(), || real(fd, parts, count)) }
}

unsafe fn parts_at_offset(
    real: Preadv,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { raw_parts(fd, parts, count.into(), || real(fd, parts, count, at)) }
}

unsafe fn parts_with_flags(
    real: Preadv2,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { raw_parts(fd, parts, count.into(), || real(fd, parts, count, at, flags)) }
}

/// A read from a stream. How much of it came by a direct read, nobody tells.
fn streamed(to: *mut c_void, len: size_t, read: impl FnOnce() -> size_t) -> size_t {
    let buffer = [iovec { iov_base: to, iov_len: len }];
    let _filling = concerned(&buffer).then(|| Filling::begin(&buffer, leaps::stack()));
    read()
}

unsafe fn of_stream(
    real: Fread,
    to: *mut c_void,
    size: size_t,
    count: size_t,
    from: *mut FILE,
) -> size_t {
    // SAFETY: the caller's promise.
    streamed(to, size.saturating_mul(count), || unsafe { real(to, size, count, from) })
}

unsafe fn checked_of_stream(
    real: FreadChk,
    to: *mut c_void,
    room: size_t,
    size: size_t,
    count: size_t,
    from: *mut FILE,
) -> size_t {
    // SAFETY: the caller's promise.
    streamed(to, size.saturating_mul(count), || unsafe { real(to, room, size, count, from) })
}

/// Whether a request of the C library's threads, of which we see neither the beginning nor the end,
/// fills a mapping of a guarded file.
///
/// # Safety
/// A request.
pub(crate) unsafe fn fills(what: &libc::aiocb) -> bool {
    let buffer = [iovec { iov_base: what.aio_buf, iov_len: what.aio_nbytes }];
    concerned(&buffer) && Parts::behind(&buffer).all[0].is_some()
}

unsafe fn aio(real: Aio, what: *mut libc::aiocb) -> c_int {
    // SAFETY: the caller's promise: null, or a request.
    if unsafe { what.as_ref() }.is_some_and(|what| unsafe { fills(what) }) {
        crate::real::Errno::set(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real(what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Mapping;
    use rustix::mm::MprotectFlags;

    fn buffer(start: u64, len: usize) -> iovec {
        iovec { iov_base: start as *mut c_void, iov_len: len }
    }

    #[test]
    fn what_lies_behind_buffers() {
        let _alone = table::alone();
        let part = |file, at, end, skips| Some(Part { file, at, end, skips });
        {
            let mut quiet = Quiet::take();
            let rights = MprotectFlags::READ;
            for (start, file, at) in [(0x10_0000, 3, 0x5000), (0x20_0000, 4, 0)] {
                let place = Place { start, end: start + 0x4000 };
                let mapping = Mapping { place, file, at, writable: true, rights };
                assert!(table::with(&mut quiet).add(mapping));
            }
        }
        assert!(Parts::behind(&[buffer(0x7000, 9)]).all[0].is_none());
        // It begins before the mapping and ends inside.
        let parts = Parts::behind(&[buffer(0xf_f000, 0x1800)]);
        assert_eq!((parts.all[0], parts.all[1]), (part(3, 0x5000, 0x5800, Some(0x1000)), None));
        let parts = Parts::behind(&[buffer(0x20_0010, 0x10), buffer(0x10_0100, 0x10)]);
        assert_eq!(parts.all[0], part(4, 0x10, 0x20, Some(0)));
        assert_eq!(parts.all[1], part(3, 0x5100, 0x5110, Some(0x10)));
        // All between two parts of one file counts.
        let parts = Parts::behind(&[buffer(0x20_3000, 8), buffer(0x20_0000, 8)]);
        assert_eq!((parts.all[0], parts.more), (part(4, 0, 0x3008, None), false));
        assert!(place(&buffer(u64::MAX, 2)).is_none());
        let mut quiet = Quiet::take();
        assert!(table::with(&mut quiet).cut(Place { start: 0, end: u64::MAX }));
    }
}
