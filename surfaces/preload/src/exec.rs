//! New programs: they find their supervisor by the environment, whatever the old one made of that.
//!
//! The lists that a new environment needs are built on the stack. `execl` and its like call the
//! others inside the C library, where nobody stands, so they are done here, by way of the others.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use holdfast_guard_wire::{Request, Spawned};

use crate::real::{self, Address, Errno, Real, hooks};
use crate::state::{self, Cell};
use crate::{faults, fork};

/// Most variables of an environment that is mended; larger ones are passed on as they are.
const MOST: usize = 2048;
const LONGEST: usize = 4096;
/// Up to so many variables, and bytes of a list of libraries, less of the stack is used.
const FEW: usize = 125;
const SHORT: usize = 512;
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
    execvp(name: *const c_char, arguments: Strings) -> c_int = plainly_found;
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
/// libraries is kept; ours stands before them. One that leads back already is passed on as it is:
/// whoever calls may stand on a small stack, and on that of a program that goes on.
unsafe fn with_environment(environment: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    let (Some(preload), Some(guard)) = (KEPT[0].text(), KEPT[1].text()) else {
        return call(environment);
    };
    // SAFETY: looks at what the program says is a list.
    if !environment.is_null() && unsafe { real::copied(environment) }.is_none() {
        return call(environment);
    }
    // SAFETY: the caller's promise: null, or a list that ends with a null.
    let found = unsafe { Found::of(environment) };
    if found.leads_back() || found.count > MOST {
        return call(environment);
    }
    let mut call = Some(call);
    let mut call = |list| call.take().map_or(-1, |call| call(list));
    let mended = Mended { environment, count: found.count, guard, call: &mut call };
    let ours = OURS.text().map_or(&b""[..], CStr::to_bytes);
    match found.preload {
        None => mended.with(preload),
        Some(given) if is_in(ours, given.to_bytes()) => mended.with(given),
        Some(given) if ours.len() + given.to_bytes().len() < SHORT => {
            mended.with_joined::<SHORT>(ours, given, preload)
        }
        Some(given) => mended.with_joined::<{ 2 * LONGEST }>(ours, given, preload),
    }
}

/// What an environment says of us.
struct Found {
    /// Variables.
    count: usize,
    /// The first list of libraries. Nobody reads a second one, so that is not passed on.
    preload: Option<&'static CStr>,
    preloads: usize,
    /// Whether what is said of a supervisor names ours, and how often something is said.
    ours: bool,
    guards: usize,
}

impl Found {
    /// # Safety
    /// Null, or a list that ends with a null, of texts; used while they last.
    unsafe fn of(environment: Strings) -> Self {
        let mut found = Self { count: 0, preload: None, preloads: 0, ours: false, guards: 0 };
        // SAFETY: the caller's promise.
        for text in unsafe { texts(environment) } {
            found.count += 1;
            if is_named(text, PRELOAD) {
                found.preload = found.preload.or(Some(text));
                found.preloads += 1;
            } else if is_named(text, GUARD) {
                found.ours = KEPT[1].text() == Some(text);
                found.guards += 1;
            }
        }
        found
    }

    /// Whether it names the supervisor and this library.
    fn leads_back(&self) -> bool {
        let ours = OURS.text().map_or(&b""[..], CStr::to_bytes);
        let loaded = self.preload.is_some_and(|list| is_in(ours, list.to_bytes()));
        loaded && self.ours && (self.preloads, self.guards) == (1, 1)
    }
}

/// The texts of a list.
///
/// # Safety
/// Null, or a list that ends with a null, of texts; used while they last.
unsafe fn texts(list: Strings) -> impl Iterator<Item = &'static CStr> {
    let mut at = list;
    core::iter::from_fn(move || {
        // SAFETY: the caller's promise; the list goes on until its null.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let text = CStr::from_ptr(*at);
            at = at.add(1);
            Some(text)
        }
    })
}

fn is_named(text: &CStr, name: &CStr) -> bool {
    text.to_bytes().strip_prefix(name.to_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}

/// An environment that is to lead back, and what is to be done with it. Each step takes no more of
/// the stack than what it has to do.
struct Mended<'a> {
    environment: Strings,
    count: usize,
    guard: &'static CStr,
    call: &'a mut dyn FnMut(Strings) -> c_int,
}

impl Mended<'_> {
    /// With a list of libraries in which ours stands before those that were given; as at the start
    /// if that is too long.
    #[inline(never)]
    fn with_joined<const ROOM: usize>(self, ours: &[u8], given: &CStr, otherwise: &CStr) -> c_int {
        let mut room = [0_u8; ROOM];
        let joined = join(ours, given.to_bytes(), &mut room);
        self.with(joined.unwrap_or(otherwise))
    }

    fn with(self, preload: &CStr) -> c_int {
        if self.count <= FEW { self.listed::<{ FEW + 3 }>(preload) } else { self.long(preload) }
    }

    #[inline(never)]
    fn long(self, preload: &CStr) -> c_int {
        self.listed::<{ MOST + 3 }>(preload)
    }

    #[inline(never)]
    fn listed<const ROOM: usize>(self, preload: &CStr) -> c_int {
        let mut list = [core::ptr::null::<c_char>(); ROOM];
        // SAFETY: an environment of the program's, which it does not change meanwhile.
        let others = unsafe { texts(self.environment) }
            .filter(|text| !is_named(text, PRELOAD) && !is_named(text, GUARD))
            .take(ROOM - 3);
        for (slot, text) in list.iter_mut().zip(others.chain([self.guard])) {
            *slot = text.as_ptr();
        }
        // Two places are left at the least: one for this, one for the end.
        if let Some(slot) = list.iter_mut().find(|slot| slot.is_null()) {
            *slot = preload.as_ptr();
        }
        (self.call)(list.as_ptr())
    }
}

/// Whether a list of libraries has ours. Both with their names before them.
fn is_in(ours: &[u8], list: &[u8]) -> bool {
    let begin = PRELOAD.to_bytes().len() + 1;
    let (own, list) = (ours.get(begin..).unwrap_or(b""), list.get(begin..).unwrap_or(b""));
    !own.is_empty() && parts(list).any(|part| part == own)
}

/// Puts `NAME=ours` before the libraries of `NAME=others`; `None` if there is no room for that.
fn join<'a>(ours: &[u8], others: &[u8], room: &'a mut [u8]) -> Option<&'a CStr> {
    let begin = PRELOAD.to_bytes().len() + 1;
    let rest = others.get(begin..).unwrap_or(b"");
    let between: &[u8] = if rest.is_empty() { b"" } else { b":" };
    let mut len = 0;
    for byte in ours.iter().chain(between).chain(rest) {
        *room.get_mut(len)? = *byte;
        len += 1;
    }
    *room.get_mut(len).filter(|_| ours.len() > begin)? = 0;
    CStr::from_bytes_until_nul(room).ok()
}

/// Replaces this program, or fails to.
unsafe fn replace(environment: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    if !state::on() {
        return call(environment);
    }
    let space = state::space();
    // A child as of `vfork` is about to take the descriptors of its parent with it, whose memory
    // this is.
    fork::share();
    state::tell(&Request::Exec { space, stays: false }, None);
    let ignored = faults::before_exec();
    // SAFETY: the caller's promise.
    let failed = unsafe { with_environment(environment, call) };
    {
        let _errno = Errno::keep();
        drop(ignored);
    }
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

/// With this program's environment, by the functions that are given one. The variable that names it
/// is left alone: a child as of `vfork` shares it with a program that goes on, and its stack, too.
unsafe fn plainly(real: ExecPlain, name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { if state::on() { execve(name, arguments, environ) } else { real(name, arguments) } }
}

/// The same, found by its name where programs are.
unsafe fn plainly_found(real: ExecPlain, name: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { if state::on() { execvpe(name, arguments, environ) } else { real(name, arguments) } }
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

/// A replacement that is made by its number; `call` is told which environment.
///
/// # Safety
/// Arguments as the call of that number has them.
pub(crate) unsafe fn raw(environment: i64, call: impl FnOnce(i64) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replace(environment as Strings, |list| call(list as i64)) }
}

/// Defines functions whose words are their arguments: `act` is called with the first argument, and
/// with the list of all others as it is in the caller's memory.
macro_rules! listed {
    ($($name:ident = $real:ident, $text:literal, $act:path;)*) => {
        $(
            static $real: Real = Real::new($text);

            #[doc = concat!("Stands before `", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As the function of that name.
            #[allow(unreachable_pub, reason = "the dynamic linker reaches it")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                // Five arguments came in registers, the others lie behind the place to return to:
                // that makes room, so that all of them lie in a row. Six words in place of one
                // keep the stack aligned for the call.
                core::arch::naked_asm!(
                    "pop r11",
                    "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                    "mov rsi, rsp",
                    "push r11",
                    "call {act}",
                    "pop r11",
                    "add rsp, 40",
                    "push r11",
                    "ret",
                    act = sym $act,
                )
            }
        )*

        /// Finds the real functions, those of the other hooks among them.
        pub(crate) fn find_all() {
            find();
            $(let _ = $real.find();)*
        }

        /// The hook that stands before the function at that place.
        pub(crate) fn any_before(real: Address) -> Option<Address> {
            $(if $real.is_at(real) {
                return Some($name as *const () as Address);
            })*
            hook_of(real)
        }
    };
}

listed! {
    execl = LISTED, c"execl", listed_words;
    execlp = LISTED_SEARCHED, c"execlp", listed_searched;
    execle = LISTED_WITH, c"execle", listed_with;
}

extern "C" fn listed_words(name: *const c_char, words: Strings) -> c_int {
    // SAFETY: the caller's promise: words that end with a null.
    unsafe { execv(name, words) }
}

extern "C" fn listed_searched(name: *const c_char, words: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { execvp(name, words) }
}

/// The environment stands behind the null.
extern "C" fn listed_with(name: *const c_char, words: Strings) -> c_int {
    let mut behind = words;
    // SAFETY: as above, and an environment.
    unsafe {
        while !(*behind).is_null() {
            behind = behind.add(1);
        }
        execve(name, words, behind.add(1).cast::<Strings>().read())
    }
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
    let mut child = 0;
    // What it does on the way may keep handles open that were to be closed.
    // SAFETY: the caller's promise: null, or actions, of which the second number is how many.
    let start = Start::begin(!actions.is_null() && unsafe { *actions.cast::<c_int>().add(1) != 0 });
    // SAFETY: the caller's promise.
    let failed = unsafe {
        with_environment(environment, |list| {
            real(&raw mut child, name, actions, attributes, arguments, list)
        })
    };
    start.end(match u32::try_from(child) {
        Ok(process) if failed == 0 => Spawned::Process(process),
        _ => Spawned::Nobody,
    });
    if failed == 0 && !pid.is_null() {
        // SAFETY: the caller's promise: null, or room for a number.
        unsafe { *pid = child };
    }
    failed
}

/// A child that is to be another program is about to be made. Told before and after: what it is
/// given stays undecided until it has introduced itself.
pub(crate) struct Start {
    ticket: u64,
    ignored: Option<faults::Starting>,
}

impl Start {
    pub(crate) fn begin(all: bool) -> Self {
        static TICKETS: AtomicU64 = AtomicU64::new(1);
        let _errno = Errno::keep();
        fork::share();
        let ticket = TICKETS.fetch_add(1, Ordering::Relaxed);
        state::tell(&Request::Spawn { space: state::space(), ticket, all }, None);
        Self { ticket, ignored: faults::before_start() }
    }

    pub(crate) fn end(self, child: Spawned) {
        let _errno = Errno::keep();
        drop(self.ignored);
        let (space, ticket) = (state::space(), self.ticket);
        state::tell(&Request::Spawned { space, ticket, child }, None);
    }
}

/// Calls with an environment in place of this program's that leads back to the supervisor. That is
/// left alone if it does so already: others may be reading it.
pub(crate) unsafe fn with_own_environment(mut call: impl FnMut()) {
    // SAFETY: this program's own list.
    if unsafe { Found::of(environ) }.leads_back() {
        return call();
    }
    // SAFETY: as above; it is put back.
    unsafe {
        with_environment(environ, |list| {
            let before = environ;
            environ = list;
            call();
            environ = before;
            0
        });
    }
}

/// This program's environment.
pub(crate) fn own_environment() -> Strings {
    // SAFETY: reads a variable of the C library's, as it does itself.
    unsafe { environ }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stands_before_what_others_put_there() {
        let ours = b"LD_PRELOAD=/a/us.so";
        let mut room = [0; 40];
        let mut to = |others: &str| {
            let text = join(ours, others.as_bytes(), &mut room);
            text.map(|text| text.to_str().unwrap().to_owned())
        };
        assert_eq!(to("LD_PRELOAD=x.so").as_deref(), Some("LD_PRELOAD=/a/us.so:x.so"));
        assert_eq!(to("LD_PRELOAD=").as_deref(), Some("LD_PRELOAD=/a/us.so"));
        let other = to("LD_PRELOAD=/a/us.sox");
        assert_eq!(other.as_deref(), Some("LD_PRELOAD=/a/us.so:/a/us.sox"));
        assert_eq!(to("LD_PRELOAD=x.so:y.so:z.so:zzzzzzzzzzzz.so"), None, "too long");
        assert!(is_in(ours, b"LD_PRELOAD=x.so:/a/us.so y.so"));
        assert!(!is_in(ours, b"LD_PRELOAD=/a/us.sox") && !is_in(b"LD_PRELOAD=", b"LD_PRELOAD=:"));
    }
}
