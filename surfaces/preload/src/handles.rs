//! Functions asked for by a handle: `dlsym` of the C library itself would lead around the hooks.
//!
//! | asked | answered |
//! |---|---|
//! | the first or the next of a name (`RTLD_DEFAULT`, `RTLD_NEXT`) | as without us |
//! | a name of one library, and it is the function behind a hook | the hook |
//! | another | as without us |
//!
//! A library that is loaded so that it looks into itself first (`RTLD_DEEPBIND`), or into a world
//! of its own (`dlmopen`), does not find the hooks. That is told: from then on what the program
//! does is doubted, as of one that makes system calls by itself. `dlvsym` is not followed.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use holdfast_guard_wire::Request;

use crate::raw::{go_on, in_passing};
use crate::real::{Address, Errno, Real};
use crate::{
    exec, faults, handing, lengths, maps, names, opens, raw, reads, state, streams, strict, syncs,
    writes,
};

type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> Address;

/// The C library's own `dlsym`, which is not found by itself.
static LOOKUP: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static OPEN: Real = Real::new(c"dlopen");
static OPEN_APART: Real = Real::new(c"dlmopen");

in_passing! {
    dlsym = on_dlsym;
    dlopen = on_dlopen;
    dlmopen = on_dlmopen;
}

/// Finds the real functions.
pub(crate) fn find() {
    let _ = [OPEN.find(), OPEN_APART.find()];
}

fn lookup() -> Option<Address> {
    let mut found = LOOKUP.load(Ordering::Relaxed);
    if found.is_null() {
        // Since it moved into the C library proper, and before.
        for version in [c"GLIBC_2.34", c"GLIBC_2.2.5"] {
            if found.is_null() {
                // SAFETY: texts that end with a zero.
                found =
                    unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            }
        }
        LOOKUP.store(found, Ordering::Relaxed);
    }
    (!found.is_null()).then_some(found)
}

/// Asks the C library, as this library.
fn ask(handle: *mut c_void, name: *const c_char) -> Address {
    let Some(lookup) = lookup() else { return core::ptr::null_mut() };
    // SAFETY: the function of this name has these arguments.
    let lookup = unsafe { core::mem::transmute::<Address, Lookup>(lookup) };
    // SAFETY: a handle that the caller has, and a name that ends with a zero.
    unsafe { lookup(handle, name) }
}

/// The function of that name that comes after ours.
pub(crate) fn next(name: &CStr) -> Address {
    ask(libc::RTLD_NEXT, name.as_ptr())
}

/// The first of that name.
pub(crate) fn first(name: &CStr) -> Address {
    ask(libc::RTLD_DEFAULT, name.as_ptr())
}

/// The hook before a function of the C library.
fn hook(real: Address) -> Option<Address> {
    let find: [fn(Address) -> Option<Address>; 13] = [
        exec::any_before,
        faults::hook_of,
        handing::hook_of,
        lengths::hook_of,
        maps::hook_of,
        names::hook_of,
        opens::hook_of,
        raw::any_before,
        reads::hook_of,
        streams::hook_of,
        strict::hook_of,
        syncs::hook_of,
        writes::hook_of,
    ];
    find.into_iter().find_map(|find| find(real))
}

extern "C" fn on_dlsym(handle: *mut c_void) -> Address {
    let ordinary = handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT || !state::on();
    match lookup() {
        Some(lookup) if ordinary => lookup,
        _ => by_handle as *mut c_void,
    }
}

/// A name of one library.
extern "C" fn by_handle(handle: *mut c_void, name: *const c_char) -> Address {
    let found = ask(handle, name);
    hook(found).unwrap_or(found)
}

extern "C" fn on_dlopen(_name: *const c_char, flags: c_int) -> Address {
    if flags & libc::RTLD_DEEPBIND != 0 {
        unfollowed();
    }
    go_on(&OPEN)
}

extern "C" fn on_dlmopen(space: c_long, _name: *const c_char, _flags: c_int) -> Address {
    // The first world is the program's own.
    if space != 0 {
        unfollowed();
    }
    go_on(&OPEN_APART)
}

/// Something here does not find the hooks, as this process and its children know.
static UNFOLLOWED: AtomicBool = AtomicBool::new(false);

pub(crate) fn unfollowed() {
    if state::on() && !UNFOLLOWED.swap(true, Ordering::AcqRel) {
        tell();
    }
}

fn tell() {
    let _errno = Errno::keep();
    state::tell(&Request::Unfollowed { space: state::space() }, None);
}

/// Tells it of a child.
pub(crate) fn inherited() {
    if UNFOLLOWED.load(Ordering::Acquire) {
        tell();
    }
}
