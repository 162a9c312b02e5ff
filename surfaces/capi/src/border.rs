//! The border: what C hands over is looked at before it is used, panics stop, errors become a code
//! and a text of the thread.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_void};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use holdfast::{Error, ErrorKind, TxError};

use crate::mapped;

/// Longest name or path taken; what has no end before it is no text.
const TEXT_MAX: usize = 1 << 16;

/// How a call ended. The text is in `holdfast_message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[allow(clippy::enum_variant_names, reason = "C has no other way to say whose they are")]
pub enum holdfast_code {
    /// It was done.
    HoldfastOk = 0,
    /// Another transaction came between, or damage was repaired: nothing was committed. Commit
    /// starts the transaction over; do its work again.
    HoldfastAgain = 1,
    /// There is no such file, map or key.
    HoldfastNotFound = 2,
    /// There is one already.
    HoldfastExists = 3,
    /// The path names no regular file.
    HoldfastNotAFile = 4,
    /// The file is no pool.
    HoldfastNotAPool = 5,
    /// A newer build wrote the pool.
    HoldfastNewerVersion = 6,
    /// The file is shorter than the pool in it.
    HoldfastTruncated = 7,
    /// Somebody else writes to the pool, or scrubs it.
    HoldfastLocked = 8,
    /// The pool can only be read.
    HoldfastReadOnly = 9,
    /// The system forbids it.
    HoldfastPermission = 10,
    /// No space, on the file system or in the pool.
    HoldfastNoSpace = 11,
    /// Damage beyond the redundancy.
    HoldfastDamaged = 12,
    /// An argument makes no sense: null, misaligned, too long, an unknown value.
    HoldfastInvalid = 13,
    /// The object or map is of another type.
    HoldfastWrongType = 14,
    /// The program decided not to commit.
    HoldfastCancelled = 15,
    /// The transaction did something that is not allowed.
    HoldfastRefused = 16,
    /// A system call failed.
    HoldfastSystem = 17,
    /// The handle is null, was given back, or is of another sort.
    HoldfastHandle = 18,
    /// The transaction belongs to another thread.
    HoldfastThread = 19,
    /// Not now: something that is under way has to end first.
    HoldfastBusy = 20,
    /// The pointer names no object: null, freed, or of another pool. Where a lost write leaves that
    /// in doubt, it is `HOLDFAST_DAMAGED`.
    HoldfastDangling = 21,
    /// A range ends beyond the object.
    HoldfastBounds = 22,
    /// The program wrote beyond its copy of an object; nothing was committed.
    HoldfastOverrun = 23,
    /// The room for the answer is too small; the length needed was told.
    HoldfastRoom = 24,
    /// An error inside Holdfast was stopped at the border. Please report it.
    HoldfastPanic = 25,
}

use holdfast_code as Code;

/// An error on its way to C.
#[derive(Debug)]
pub(crate) struct Fail {
    pub(crate) code: Code,
    text: String,
}

/// Result of what stands behind a call.
pub(crate) type Done<T = ()> = Result<T, Fail>;

impl Fail {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Code::HoldfastInvalid, text)
    }

    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Self::new(Code::HoldfastBusy, text)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        let code = match error.as_tx() {
            // It was executed again as often as makes sense.
            Some(TxError::Conflict) => Code::HoldfastBusy,
            Some(error) if !error.is_transient() => code_of_tx(error),
            _ => code_of(error.kind()),
        };
        Self { code, text: error.to_string() }
    }
}

impl From<TxError> for Fail {
    fn from(error: TxError) -> Self {
        let code = code_of_tx(&error);
        Self { code, text: Error::from(error).to_string() }
    }
}

fn code_of_tx(error: &TxError) -> Code {
    match error {
        TxError::Conflict | TxError::Damaged { .. } => Code::HoldfastAgain,
        TxError::TooManyViews { .. } => Code::HoldfastBusy,
        TxError::Dangling { .. } => Code::HoldfastDangling,
        TxError::OutOfBounds { .. } => Code::HoldfastBounds,
        TxError::Overrun { .. } => Code::HoldfastOverrun,
        TxError::WrongType { .. } => Code::HoldfastWrongType,
        TxError::Lost { .. } | TxError::InDoubt { .. } | TxError::Inconsistent(_) => {
            Code::HoldfastDamaged
        }
        TxError::NoSpace { .. } | TxError::TooLarge { .. } => Code::HoldfastNoSpace,
        TxError::ReadOnly => Code::HoldfastReadOnly,
        TxError::Cancelled(_) => Code::HoldfastCancelled,
        _ => Code::HoldfastRefused,
    }
}

const fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::NotFound => Code::HoldfastNotFound,
        ErrorKind::Exists => Code::HoldfastExists,
        ErrorKind::NotAFile => Code::HoldfastNotAFile,
        ErrorKind::NotAPool => Code::HoldfastNotAPool,
        ErrorKind::NewerVersion => Code::HoldfastNewerVersion,
        ErrorKind::Truncated => Code::HoldfastTruncated,
        ErrorKind::Locked => Code::HoldfastLocked,
        ErrorKind::ReadOnly => Code::HoldfastReadOnly,
        ErrorKind::Permission => Code::HoldfastPermission,
        ErrorKind::NoSpace => Code::HoldfastNoSpace,
        ErrorKind::Damaged => Code::HoldfastDamaged,
        ErrorKind::Invalid => Code::HoldfastInvalid,
        ErrorKind::WrongType => Code::HoldfastWrongType,
        ErrorKind::Cancelled => Code::HoldfastCancelled,
        ErrorKind::Refused => Code::HoldfastRefused,
        _ => Code::HoldfastSystem,
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs what stands behind a call: no panic gets past, and an error leaves its text.
pub(crate) fn border(call: impl FnOnce() -> Done) -> Code {
    let fail = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Code::HoldfastOk,
        Ok(Err(fail)) => fail,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            Fail::new(Code::HoldfastPanic, format!("an error inside Holdfast: {text}"))
        }
    };
    let text = fail.text.replace('\0', "?");
    // A thread that is ending has no room for texts any more; the code still tells.
    let _ = MESSAGE.try_with(|message| {
        if let (Ok(mut message), Ok(text)) = (message.try_borrow_mut(), CString::new(text)) {
            *message = text;
        }
    });
    fail.code
}

/// Text of the last call of this thread that failed: where, what, what to do. Empty if none did.
/// Valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_message() -> *const c_char {
    MESSAGE
        .try_with(|message| message.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Refuses memory that overlaps: what is read and what is written has to be apart. Each is an
/// address and a length.
pub(crate) fn apart(all: &[(usize, usize)], what: &str) -> Done {
    for (i, (at, len)) in all.iter().enumerate() {
        let end = at.saturating_add(*len);
        let meets = |from: usize, to: usize| from.max(*at) < to.min(end);
        if all[..i].iter().any(|(from, len)| meets(*from, from.saturating_add(*len))) {
            return Err(Fail::invalid(format!("{what} overlap")));
        }
    }
    Ok(())
}

/// Refuses a pointer that is null or not aligned for what it is said to point to.
fn usable<T>(pointer: *const T, what: &str) -> Done {
    if pointer.is_null() {
        return Err(Fail::invalid(format!("{what} is null")));
    }
    if !pointer.is_aligned() {
        let align = align_of::<T>();
        return Err(Fail::invalid(format!("{what} is not aligned to {align} bytes")));
    }
    Ok(())
}

/// A text handed over.
///
/// # Safety
/// Unless it is null, `text` points to bytes up to and including a zero, which stay for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Done<&'a str> {
    // SAFETY: as the caller vouches.
    let bytes = unsafe { terminated(text, what)? };
    core::str::from_utf8(bytes).map_err(|_| Fail::invalid(format!("{what} is not UTF-8")))
}

/// A path handed over: bytes, as the system takes them, of whatever encoding.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path_of<'a>(path: *const c_char, what: &str) -> Done<&'a Path> {
    // SAFETY: as the caller vouches.
    Ok(Path::new(OsStr::from_bytes(unsafe { terminated(path, what)? })))
}

/// The bytes before the zero.
///
/// # Safety
/// As [`text`].
unsafe fn terminated<'a>(text: *const c_char, what: &str) -> Done<&'a [u8]> {
    usable(text, what)?;
    // SAFETY: not null; the caller vouches for the bytes up to the zero; none behind it is read.
    let is_end = |at: &usize| unsafe { text.add(*at).read() } == 0;
    let Some(len) = (0..=TEXT_MAX).find(is_end) else {
        return Err(Fail::invalid(format!("{what} is longer than {TEXT_MAX} bytes")));
    };
    // SAFETY: these bytes were just read.
    Ok(unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len) })
}

fn length(len: usize, what: &str) -> Done {
    if isize::try_from(len).is_err() {
        return Err(Fail::invalid(format!("{what}: no memory is {len} bytes long")));
    }
    Ok(())
}

/// Bytes handed over. Null is fine for none.
///
/// # Safety
/// Unless `len` is 0, `from` is null or points to `len` bytes that stay unchanged for `'a`.
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize, what: &str) -> Done<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    usable(from.cast::<u8>(), what)?;
    length(len, what)?;
    // SAFETY: not null, no longer than memory can be; the caller vouches for the rest.
    Ok(unsafe { core::slice::from_raw_parts(from.cast(), len) })
}

/// Room for bytes. Null is fine for none.
///
/// # Safety
/// Unless `len` is 0, `into` is null or points to `len` initialised bytes that nobody else uses
/// for `'a`.
pub(crate) unsafe fn room<'a>(into: *mut c_void, len: usize, what: &str) -> Done<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    usable(into.cast::<u8>().cast_const(), what)?;
    length(len, what)?;
    mapped::refuse(into.addr(), len, what)?;
    // SAFETY: as in `bytes`, and the caller vouches that nobody else uses it. A byte of memory
    // that C did not set is read by nobody before it is written here.
    Ok(unsafe { core::slice::from_raw_parts_mut(into.cast(), len) })
}

/// A place for an answer, known to be usable.
#[derive(Debug)]
pub(crate) struct Place<T>(*mut T);

impl<T: Copy> Place<T> {
    /// # Safety
    /// Unless it is null, `place` points to memory for a `T` that nobody else uses while the call
    /// lasts.
    pub(crate) unsafe fn new(place: *mut T, what: &str) -> Done<Self> {
        usable(place.cast_const(), what)?;
        mapped::refuse(place.addr(), size_of::<T>(), what)?;
        Ok(Self(place))
    }

    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` checked null and alignment; its caller vouched for the memory.
        unsafe { self.0.write(value) }
    }
}

/// Refuses what is no place for an answer of `size` bytes.
pub(crate) fn expect_sized<T>(into: *const T, size: usize) -> Done {
    usable(into, "the place for the answer")?;
    if size == 0 || size > 1 << 16 {
        return Err(Fail::invalid(format!("{size} bytes are no size of an answer")));
    }
    mapped::refuse(into.addr(), size, "the place for the answer")
}

/// Writes as much of `value` as the caller's build knows, which is `size` bytes. What that knows
/// and this one does not becomes 0.
///
/// # Safety
/// Unless it is null, `into` points to `size` bytes for an older or newer `T`.
pub(crate) unsafe fn put_sized<T: Copy>(into: *mut T, size: usize, value: &T) -> Done {
    expect_sized(into, size)?;
    let count = size.min(size_of::<T>());
    // SAFETY: `value` has `size_of::<T>()` bytes, `into` has `size` by the caller's word, and the
    // smaller of both is copied; the rest lies in front of `size`. All types told like this are
    // integers without gaps.
    unsafe {
        let into = into.cast::<u8>();
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast::<u8>(), into, count);
        into.add(count).write_bytes(0, size - count);
    }
    Ok(())
}

/// Reads a struct of which the caller's build knows `size` bytes; the rest is as in `default`.
///
/// # Safety
/// Unless it is null, `from` points to `size` bytes of an older or newer `T`, and every bit
/// pattern is a `T`.
pub(crate) unsafe fn get_sized<T: Copy>(
    from: *const T,
    size: usize,
    default: T,
    what: &str,
) -> Done<T> {
    usable(from, what)?;
    if size > size_of::<T>() || size < size_of::<u64>() {
        let text = format!("{what}: {size} bytes are no size of it; {} are", size_of::<T>());
        return Err(Fail::invalid(text));
    }
    let mut value = default;
    // SAFETY: `size` is at most the size of `value`, and `from` has as many by the caller's word.
    unsafe {
        core::ptr::copy_nonoverlapping(
            from.cast::<u8>(),
            core::ptr::from_mut(&mut value).cast(),
            size,
        )
    };
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the text lives until the next error of this thread.
        unsafe { CStr::from_ptr(holdfast_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_stops_and_leaves_its_text() {
        assert_eq!(border(|| panic!("in {}", "here")), Code::HoldfastPanic);
        assert!(message().ends_with("in here"), "{}", message());
        assert_eq!(border(|| Ok(())), Code::HoldfastOk);
    }

    #[test]
    fn the_text_is_the_threads_own() {
        border(|| Err(Fail::invalid("a\0b")));
        assert_eq!(message(), "a?b");
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(message(), ""));
        });
    }

    #[test]
    fn structs_of_other_builds_are_read_and_told_as_far_as_they_go() {
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[repr(C)]
        struct Two(u64, u64);
        let mut short = Two(7, 7);
        // SAFETY: the struct has more bytes than are said.
        unsafe { put_sized(&raw mut short, 8, &Two(1, 2)).unwrap() };
        assert_eq!(short, Two(1, 7));
        let mut long = [Two(7, 7); 2];
        // SAFETY: it has the bytes of two.
        unsafe { put_sized(long.as_mut_ptr(), size_of_val(&long), &Two(1, 2)).unwrap() };
        assert_eq!(long, [Two(1, 2), Two(0, 0)]);
        // SAFETY: as above.
        let read = unsafe { get_sized(&raw const short, 8, Two(3, 4), "it").unwrap() };
        assert_eq!(read, Two(1, 4));
        for size in [0, 7, 17] {
            // SAFETY: a wrong size is refused before anything is read.
            assert!(unsafe { get_sized(&raw const short, size, Two(3, 4), "it") }.is_err());
        }
    }
}
