//! New programs: they find their supervisor by the environment, whatever the old one made of that.
//!
//! The lists that a new environment needs are built on the stack.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use holdfast_guard_wire::Request;

use crate::real::hooks;
use crate::state::{self, Cell};

/// Most variables of an environment that is mended; larger ones are passed on as they are.
const MOST: usize = 2048;
const LONGEST: usize = 4096;
const PRELOAD: &CStr = c"LD_PRELOAD";
const GUARD: &CStr = c"HOLDFAST_GUARD";

type Strings = *const *const c_char;
type Exec = unsafe extern "C-unwind" fn(*const c_char, Strings, Strings) -> c_int;
type ExecPlain = unsafe extern "C-unwind" fn(*const c_char, Strings) -> c_int;
type Fexec = unsafe extern "C-unwind" fn(c_int, Strings, Strings) -> c_int;
type ExecAt = unsafe extern "C-unwind" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int;
type Spawn = unsafe extern "C-unwind" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

hooks! {
    execve(name: *const c_char, arguments: Strings, environment: Strings) -> c_int = by_name;
    execvpe(name: *const c_char, arguments: Strings, environment: Strings) -> c_int = by_name;
    execv(name: *const c_char, arguments: Strings) -> c_int = plainly;
    execvp(name: *const c_char, arguments: Strings) -> c_int = plainly;
    fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int = by_descriptor;
    execveat(
        fd: c_int, name: *const c_char, arguments: Strings, environment: Strings, flags: c_int,
    ) -> c_int = at;
    posix_spawn(
        pid: *mut c_int, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings,
    ) -> c_int = spawn;
    posix_spawnp(
        pid: *mut c_int, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: Strings, environment: Strings,
    ) -> c_int = spawn;
}

/// One variable as it was at the start: `NAME=value`, and a zero.
struct Kept {
    bytes: Cell<[u8; LONGEST]>,
    /// With the zero; 0 if it is not kept.
    len: AtomicUsize,
}

static KEPT: [Kept; 2] = [const { Kept { bytes: Cell::new(), len: AtomicUsize::new(0) } }; 2];

/// Our own library, as it is named in the list of libraries, with the variable's name before it.
static OURS: Kept = Kept { bytes: Cell::new(), len: AtomicUsize::new(0) };

/// Keeps what new programs need. Called once, at the start.
pub(crate) fn remember() {
    for (kept, name) in KEPT.iter().zip([PRELOAD, GUARD]) {
        if let Some(value) = state::environment(name) {
            kept.keep(name, [value.to_bytes(), b"", b""]);
        }
    }
    let list = state::environment(PRELOAD).map_or(&b""[..], CStr::to_bytes);
    // The name that the dynamic linker was given, or else the first: that is where a guard puts us.
    let own = own_name().filter(|own| parts(list).any(|part| part == own.to_bytes()));
    let own = own.map(CStr::to_bytes).or_else(|| parts(list).next());
    OURS.keep(PRELOAD, [own.unwrap_or(b""), b"", b""]);
}

/// The libraries of a list.
fn parts(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b':' || *byte == b' ').filter(|part| !part.is_empty())
}

/// This library as the dynamic linker calls it.
fn own_name() -> Option<&'static CStr> {
    let mut found = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: looks up an address of this library, and writes what it finds.
    let done = unsafe { libc::dladdr(own_name as *const c_void, &raw mut found) };
    if done == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own name for a library that stays loaded.
    Some(unsafe { CStr::from_ptr(found.dli_fname) })
}

/// The same for a program that attached itself: before the libraries that it preloads, ours.
pub(crate) fn remember_late(library: Option<&CStr>, supervisor: &[u8]) {
    let Some(library) = library else { return };
    let others = state::environment(PRELOAD).map_or(&b""[..], CStr::to_bytes);
    let between: &[u8] = if others.is_empty() { b"" } else { b":" };
    KEPT[0].keep(PRELOAD, [library.to_bytes(), between, others]);
    OURS.keep(PRELOAD, [library.to_bytes(), b"", b""]);
    KEPT[1].keep(GUARD, [supervisor, b"", b""]);
}

impl Kept {
    /// Keeps `NAME=` and the parts of a value, if they are not too long.
    fn keep(&self, name: &CStr, value: [&[u8]; 3]) {
        let mut bytes = [0; LONGEST];
        let text = name.to_bytes().iter().chain(b"=").chain(value.into_iter().flatten());
        let mut len = 0;
        for byte in text {
            let Some(slot) = bytes.get_mut(len) else { return };
            *slot = *byte;
            len += 1;
        }
        if len == LONGEST {
            return;
        }
        // SAFETY: only the thread that starts writes it; read once the length says it is there.
        unsafe { self.bytes.set(bytes) };
        self.len.store(len + 1, Ordering::Release);
    }

    fn text(&self) -> Option<&'static CStr> {
        let len = self.len.load(Ordering::Acquire);
        if len == 0 {
            return None;
        }
        // SAFETY: set before the length was; the table is static.
        let bytes: &'static [u8; LONGEST] = unsafe { &*core::ptr::from_ref(self.bytes.get()) };
        CStr::from_bytes_until_nul(bytes).ok()
    }
}

/// Calls with an environment that leads back to the supervisor. What the program says about other
/// libraries is kept; ours stands before them.
unsafe fn with_environment(environment: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    let (Some(preload), Some(guard)) = (KEPT[0].text(), KEPT[1].text()) else {
        return call(environment);
    };
    let mut list = [core::ptr::null::<c_char>(); MOST + 3];
    let mut given = None;
    let mut len = 0;
    let mut at = environment;
    // SAFETY: the caller's promise: null, or a list that ends with a null.
    while !at.is_null() && unsafe { !(*at).is_null() } {
        if len == MOST {
            return call(environment);
        }
        // SAFETY: as above; every entry ends with a zero.
        let (entry, text) = unsafe { (*at, CStr::from_ptr(*at)) };
        let named = |name: &CStr| {
            text.to_bytes().strip_prefix(name.to_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        };
        if named(PRELOAD) {
            // Nobody reads a second one.
            given = given.or(Some(text));
        } else if !named(GUARD) {
            if let Some(slot) = list.get_mut(len) {
                *slot = entry;
            }
            len += 1;
        }
        // SAFETY: the list goes on until its null.
        at = unsafe { at.add(1) };
    }
    let mut room = [0_u8; 2 * LONGEST];
    let ours = OURS.text().map_or(&b""[..], CStr::to_bytes);
    let preload = match given.map(|given| (given, join(ours, given.to_bytes(), &mut room))) {
        Some((given, Join::There)) => given,
        Some((_, Join::Before(joined))) => joined,
        Some((_, Join::TooLong)) | None => preload,
    };
    for (slot, text) in list.iter_mut().skip(len).zip([preload, guard]) {
        *slot = text.as_ptr();
    }
    call(list.as_ptr())
}

/// A list of libraries, and ours.
#[derive(Debug, PartialEq, Eq)]
enum Join<'a> {
    There,
    Before(&'a CStr),
    TooLong,
}

/// Puts `NAME=ours` before the libraries of `NAME=others`, unless ours is there.
fn join<'a>(ours: &[u8], others: &[u8], room: &'a mut [u8]) -> Join<'a> {
    let begin = PRELOAD.to_bytes().len() + 1;
    let (own, rest) = (ours.get(begin..).unwrap_or(b""), others.get(begin..).unwrap_or(b""));
    if !own.is_empty() && parts(rest).any(|part| part == own) {
        return Join::There;
    }
    let between: &[u8] = if rest.is_empty() { b"" } else { b":" };
    let mut len = 0;
    for byte in ours.iter().chain(between).chain(rest) {
        let Some(slot) = room.get_mut(len) else { return Join::TooLong };
        *slot = *byte;
        len += 1;
    }
    match room.get_mut(len) {
        Some(slot) if !own.is_empty() => *slot = 0,
        _ => return Join::TooLong,
    }
    CStr::from_bytes_until_nul(room).map_or(Join::TooLong, Join::Before)
}

/// Replaces this program, or fails to.
unsafe fn replace(environment: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    if !state::on() {
        return call(environment);
    }
    let space = state::space();
    state::tell(&Request::Exec { space, stays: false }, None);
    // SAFETY: the caller's promise.
    let failed = unsafe { with_environment(environment, call) };
    state::tell(&Request::Exec { space, stays: true }, None);
    failed
}

unsafe extern "C" {
    static mut environ: Strings;
}

unsafe fn by_name(
    real: Exec,
    name: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replace(environment, |environment| real(name, arguments, environment)) }
}

unsafe fn plainly(real: ExecPlain, name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's promise; the program is about to be replaced, and its environment is
    // put back if it is not.
    unsafe {
        replace(environ, |environment| {
            let before = environ;
            environ = environment;
            let failed = real(name, arguments);
            environ = before;
            failed
        })
    }
}

unsafe fn by_descriptor(real: Fexec, fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replace(environment, |environment| real(fd, arguments, environment)) }
}

unsafe fn at(
    real: ExecAt,
    fd: c_int,
    name: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replace(environment, |list| real(fd, name, arguments, list, flags)) }
}

unsafe fn spawn(
    real: Spawn,
    pid: *mut c_int,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    if !state::on() {
        // SAFETY: the caller's promise.
        return unsafe { real(pid, name, actions, attributes, arguments, environment) };
    }
    // SAFETY: the caller's promise.
    unsafe {
        with_environment(environment, |list| real(pid, name, actions, attributes, arguments, list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stands_before_what_others_put_there() {
        let mut room = [0; 40];
        let mut to = |others: &str| match join(b"LD_PRELOAD=/a/us.so", others.as_bytes(), &mut room)
        {
            Join::Before(text) => text.to_str().unwrap().to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(to("LD_PRELOAD=x.so"), "LD_PRELOAD=/a/us.so:x.so");
        assert_eq!(to("LD_PRELOAD=x.so:/a/us.so y.so"), "There");
        assert_eq!(to("LD_PRELOAD="), "LD_PRELOAD=/a/us.so");
        assert_eq!(to("LD_PRELOAD=/a/us.sox"), "LD_PRELOAD=/a/us.so:/a/us.sox");
        assert_eq!(to("LD_PRELOAD=x.so:y.so:z.so:zzzzzzzzzzzz.so"), "TooLong");
    }
}
