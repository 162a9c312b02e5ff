//! The write family: announced before, marked after.
//!
//! | position | counts as under way | marked afterwards |
//! |---|---|---|
//! | given | the range | the range |
//! | the descriptor's | from there on; all, if others may move it | what was written |
//! | the end (a flag to append) | all from the end on | from the old end to the new one |
//! | flags nobody knows | everything | everything |
//!
//! A descriptor's position is shared by threads, and by all processes that have the descriptor:
//! several writes at a time move it on, so a write goes to where nobody looked. If the position
//! ends up elsewhere than behind what was written, everything between counts as written, and if
//! anybody may have moved it back, the whole file. Of another process, nobody knows what it moved.
//!
//! `RWF_NOAPPEND` undoes `O_APPEND` for one call.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

use holdfast_guard_wire::Request;
use libc::{iovec, off_t, size_t, ssize_t};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fstat, seek};

use crate::files::{self, Guarded};
use crate::real::{copied, copy, hooks};
use crate::{fork, leaps, reads, state};

type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Pwrite = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type Writev = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type Pwritev = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type Pwritev2 = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type Sendfile = unsafe extern "C-unwind" fn(c_int, c_int, *mut off_t, size_t) -> ssize_t;
type Copy =
    unsafe extern "C-unwind" fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
type Add = unsafe extern "C-unwind" fn(c_int, u64) -> c_int;
type Lseek = unsafe extern "C-unwind" fn(c_int, off_t, c_int) -> off_t;
type Aio = unsafe extern "C-unwind" fn(*mut libc::aiocb) -> c_int;
type List =
    unsafe extern "C-unwind" fn(c_int, *const *mut libc::aiocb, c_int, *mut c_void) -> c_int;

hooks! {
    write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = at_position;
    pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    __write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = at_position;
    __pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t = at_offset;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = parts_at_position;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = parts_at_offset;
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t
        = parts_at_offset;
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = parts_with_flags;
    pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t
        = parts_with_flags;
    sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t = send;
    sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t = send;
    copy_file_range(
        from: c_int, at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint,
    ) -> ssize_t = copy_between;
    splice(
        from: c_int, at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint,
    ) -> ssize_t = copy_between;
    lseek(fd: c_int, by: off_t, from: c_int) -> off_t = moved;
    lseek64(fd: c_int, by: off_t, from: c_int) -> off_t = moved;
    __lseek(fd: c_int, by: off_t, from: c_int) -> off_t = moved;
    llseek(fd: c_int, by: off_t, from: c_int) -> off_t = moved;
    eventfd_write(fd: c_int, value: u64) -> c_int = add;
    aio_write(what: *mut libc::aiocb) -> c_int = aio;
    aio_write64(what: *mut libc::aiocb) -> c_int = aio;
    lio_listio(mode: c_int, list: *const *mut libc::aiocb, count: c_int, signal: *mut c_void)
        -> c_int = aio_list;
    lio_listio64(mode: c_int, list: *const *mut libc::aiocb, count: c_int, signal: *mut c_void)
        -> c_int = aio_list;
}

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    Offset(u64),
    Position,
    End,
    Anywhere,
}

/// `RWF_NOSIGNAL`, which changes nothing about where a write goes.
const NO_SIGNAL: c_int = 0x100;
/// Flags of one write that leave it where it is.
const STAYS: c_int = libc::RWF_HIPRI
    | libc::RWF_DSYNC
    | libc::RWF_SYNC
    | libc::RWF_NOWAIT
    | libc::RWF_ATOMIC
    | libc::RWF_DONTCACHE
    | NO_SIGNAL;

impl To {
    /// As `pwritev2` is told: at an offset, or at the position if that is -1.
    fn given(at: off_t) -> Self {
        if at == -1 { Self::Position } else { Self::Offset(at.max(0) as u64) }
    }

    /// Where a write with flags of its own goes, through a descriptor that appends or not.
    fn flagged(self, flags: c_int, appends: bool) -> Self {
        if flags & !(STAYS | libc::RWF_APPEND | libc::RWF_NOAPPEND) != 0 {
            return Self::Anywhere;
        }
        match (flags & libc::RWF_APPEND != 0, flags & libc::RWF_NOAPPEND != 0) {
            (true, _) => Self::End,
            (false, true) => self,
            (false, false) if appends => Self::End,
            (false, false) => self,
        }
    }
}

fn size(fd: BorrowedFd<'_>) -> u64 {
    fstat(fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

fn position(fd: BorrowedFd<'_>) -> u64 {
    seek(fd, SeekFrom::Current(0)).unwrap_or(0)
}

/// One write, between its announcement and its marks, if it is to a guarded file.
fn around(fd: c_int, to: To, len: u64, write: impl FnOnce() -> ssize_t) -> ssize_t {
    with_flags(fd, to, len, 0, write)
}

/// The same with flags of its own, as `pwritev2` has them.
fn with_flags(fd: c_int, to: To, len: u64, own: c_int, write: impl FnOnce() -> ssize_t) -> ssize_t {
    if !state::on() {
        return write();
    }
    // SAFETY: used for calls that fail if it is no descriptor.
    let (Some(file), Some(fd)) = (files::of(fd), unsafe { files::borrow(fd) }) else {
        return write();
    };
    leaps::settle(leaps::stack());
    let flags = fcntl_getfl(fd).unwrap_or(OFlags::empty());
    let done = match to.flagged(own, flags.contains(OFlags::APPEND)) {
        To::Offset(at) => {
            let _announced = file.announce(at, len);
            write()
        }
        To::Position => here(&file, fd, len, write),
        To::End => append(&file, fd, write),
        To::Anywhere => {
            let _announced = file.announce(0, u64::MAX);
            write()
        }
    };
    let synced = own & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    if done > 0 && (synced || flags.intersects(OFlags::DSYNC | OFlags::SYNC)) {
        // It is durable when it returns: then it is to be covered as well.
        let (file, at) = (file.number, 0);
        state::tell_in_time_or_not(&Request::Cover { file, at, len: u64::MAX });
    }
    done
}

fn append(file: &Guarded, fd: BorrowedFd<'_>, write: impl FnOnce() -> ssize_t) -> ssize_t {
    let before = size(fd);
    let mut announced = file.announce(before, u64::MAX);
    let done = write();
    let (wrote, after) = (done.max(0) as u64, size(fd));
    if after < before.saturating_add(wrote) {
        // Somebody cut it off meanwhile: the end was somewhere else.
        announced.narrow(0, before.saturating_add(wrote));
    } else {
        announced.narrow(before, after - before);
    }
    done
}

fn here(file: &Guarded, fd: BorrowedFd<'_>, len: u64, write: impl FnOnce() -> ssize_t) -> ssize_t {
    let seeks = Seeks::now();
    let before = position(fd);
    let mut announced = file.announce(if fork::is_alone(fd) { before } else { 0 }, u64::MAX);
    let done = write();
    let wrote = done.max(0) as u64;
    let after = position(fd);
    if after == before.saturating_add(wrote) {
        announced.narrow(before, u64::try_from(done).unwrap_or(len));
    } else if after > before.saturating_add(wrote) && seeks.none_since() && !fork::is_shared(fd) {
        // Other threads wrote, or read: all of them moved it on.
        announced.narrow(before, after - before);
    } else {
        announced.narrow(0, size(fd).max(file.size).max(before.saturating_add(wrote)));
    }
    done
}

/// Moves of positions by threads of this process, of any file: begun, and over.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static OVER: AtomicU64 = AtomicU64::new(0);

/// How many there were at a moment at which none was under way; `None` if one was.
struct Seeks(Option<u64>);

impl Seeks {
    fn now() -> Self {
        let over = OVER.load(Ordering::SeqCst);
        Self((BEGUN.load(Ordering::SeqCst) == over).then_some(over))
    }

    fn none_since(&self) -> bool {
        self.0 == Some(BEGUN.load(Ordering::SeqCst))
    }
}

/// A move of a position, counted.
pub(crate) fn raw_seek<T>(call: impl FnOnce() -> T) -> T {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let done = call();
    OVER.fetch_add(1, Ordering::SeqCst);
    done
}

unsafe fn moved(real: Lseek, fd: c_int, by: off_t, from: c_int) -> off_t {
    // SAFETY: the caller's promise.
    raw_seek(|| unsafe { real(fd, by, from) })
}

unsafe fn at_position(real: Write, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    around(fd, To::Position, len as u64, || unsafe { real(fd, from, len) })
}

/// Writes a number, to whatever it is given.
unsafe fn add(real: Add, fd: c_int, value: u64) -> c_int {
    const LEN: ssize_t = size_of::<u64>() as ssize_t;
    // SAFETY: the caller's promise.
    let write = || if unsafe { real(fd, value) } == 0 { LEN } else { -1 };
    if around(fd, To::Position, LEN as u64, write) == LEN { 0 } else { -1 }
}

unsafe fn at_offset(
    real: Pwrite,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    at: off_t,
) -> ssize_t {
    let to = To::Offset(at.max(0) as u64);
    // SAFETY: the caller's promise.
    around(fd, to, len as u64, || unsafe { real(fd, from, len, at) })
}

/// Parts of a list that are looked at at a time.
const SOME: usize = 64;

/// Bytes of a list of parts; any number, if nobody can read it: the kernel will say so.
///
/// # Safety
/// As the list of a `writev`.
unsafe fn total(parts: *const iovec, count: c_int) -> u64 {
    let Ok(count @ 1..=1024) = usize::try_from(count) else { return 0 };
    let mut room = [const { MaybeUninit::<iovec>::uninit() }; SOME];
    let mut sum = 0_u64;
    for from in (0..count).step_by(SOME) {
        let some = room.get_mut(..SOME.min(count - from)).unwrap_or_default();
        // SAFETY: the caller's promise: so many parts, if there are any.
        if !unsafe { copy(parts.wrapping_add(from), some) } {
            return u64::MAX;
        }
        // SAFETY: it was copied.
        let lens = some.iter().map(|part| unsafe { part.assume_init_ref() }.iov_len as u64);
        sum = lens.fold(sum, u64::saturating_add);
    }
    sum
}

/// A write by a bare call: at a position if there is one.
pub(crate) fn raw(
    fd: c_int,
    at: Option<off_t>,
    len: u64,
    write: impl FnOnce() -> ssize_t,
) -> ssize_t {
    around(fd, at.map_or(To::Position, |at| To::Offset(at.max(0) as u64)), len, write)
}

/// The same of a list of parts.
///
/// # Safety
/// As the list of a `writev`.
pub(crate) unsafe fn raw_parts(
    fd: c_int,
    at: Option<off_t>,
    parts: *const iovec,
    count: i64,
    write: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let count = c_int::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise.
    let len = if ours(fd) { unsafe { total(parts, count) } } else { 0 };
    raw(fd, at, len, write)
}

/// `pwritev2` by a bare call.
///
/// # Safety
/// As the list of a `writev`.
pub(crate) unsafe fn raw_flagged(
    fd: c_int,
    at: off_t,
    parts: *const iovec,
    count: i64,
    flags: c_int,
    write: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let count = c_int::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise.
    let len = if ours(fd) { unsafe { total(parts, count) } } else { 0 };
    with_flags(fd, To::given(at), len, flags, write)
}

/// Whether a descriptor is a guarded file's, asked before the program's lists are read.
fn ours(fd: c_int) -> bool {
    state::on() && files::of(fd).is_some()
}

unsafe fn parts_at_position(real: Writev, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = if ours(fd) { unsafe { total(parts, count) } } else { 0 };
    // SAFETY: the caller's promise.
    around(fd, To::Position, len, || unsafe { real(fd, parts, count) })
}

unsafe fn parts_at_offset(
    real: Pwritev,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = if ours(fd) { unsafe { total(parts, count) } } else { 0 };
    // SAFETY: the caller's promise.
    around(fd, To::Offset(at.max(0) as u64), len, || unsafe { real(fd, parts, count, at) })
}

unsafe fn parts_with_flags(
    real: Pwritev2,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = if ours(fd) { unsafe { total(parts, count) } } else { 0 };
    // SAFETY: the caller's promise.
    with_flags(fd, To::given(at), len, flags, || unsafe { real(fd, parts, count, at, flags) })
}

unsafe fn send(real: Sendfile, to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    around(to, To::Position, len as u64, || unsafe { real(to, from, at, len) })
}

/// From one file to another: to the offset that lies there, if it is given one.
///
/// # Safety
/// `at` is null, or an offset lies there if anything does.
pub(crate) unsafe fn raw_between(
    to: c_int,
    at: *const off_t,
    len: u64,
    write: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let target = match at.is_null() || !ours(to) {
        true => To::Position,
        // SAFETY: the caller's promise.
        false => match unsafe { copied(at) } {
            Some(at) => To::Offset(at.max(0) as u64),
            None => To::Anywhere,
        },
    };
    around(to, target, len, write)
}

unsafe fn copy_between(
    real: Copy,
    from: c_int,
    at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { raw_between(to, to_at, len as u64, || real(from, at, to, to_at, len, flags)) }
}

/// Writes by threads of the C library, of which we see neither the beginning nor the end.
unsafe fn aio(real: Aio, what: *mut libc::aiocb) -> c_int {
    // SAFETY: the caller's promise: null, or a request.
    if !what.is_null() && ours(unsafe { (*what).aio_fildes }) {
        crate::real::Errno::set(libc::ENOSYS);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { real(what) }
}

unsafe fn aio_list(
    real: List,
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    signal: *mut c_void,
) -> c_int {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        if list.is_null() {
            break;
        }
        // SAFETY: the caller's promise: so many requests, or nulls.
        let what = unsafe { list.add(index).read().as_ref() };
        let refused = what.is_some_and(|what| match what.aio_lio_opcode {
            libc::LIO_WRITE => ours(what.aio_fildes),
            // SAFETY: the caller's promise: a request.
            libc::LIO_READ => unsafe { reads::fills(what) },
            _ => false,
        });
        if refused {
            crate::real::Errno::set(libc::ENOSYS);
            return -1;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { real(mode, list, count, signal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_one_write_say_where_it_goes() {
        let at = To::Offset(7);
        let (append, not) = (libc::RWF_APPEND, libc::RWF_NOAPPEND);
        assert_eq!((at.flagged(0, false), at.flagged(0, true)), (at, To::End));
        assert_eq!((at.flagged(append, false), at.flagged(not, true)), (To::End, at));
        assert_eq!(at.flagged(not | libc::RWF_DSYNC, true), at);
        assert_eq!(at.flagged(1 << 20, false), To::Anywhere);
        assert_eq!((To::given(-1), To::given(7)), (To::Position, at));
    }
}
