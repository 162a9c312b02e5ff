//! Hooks, and the functions of the C library behind them.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Where a function is.
pub(crate) type Address = *mut c_void;

/// A function of the C library, found once.
#[derive(Debug)]
pub(crate) struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The next function of that name after ours; `None` if this system has none.
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            found = crate::handles::next(self.name);
            self.found.store(found, Ordering::Relaxed);
        }
        (!found.is_null()).then_some(found)
    }

    /// Whether it was found there.
    pub(crate) fn is_at(&self, place: Address) -> bool {
        !place.is_null() && self.found.load(Ordering::Relaxed) == place
    }
}

/// A variable of the C library; `None` if this one has none of that name.
pub(crate) fn variable(name: &CStr) -> Option<*mut c_void> {
    // The first of that name: a program may have its own copy, which is the one that counts.
    let found = crate::handles::first(name);
    (!found.is_null()).then_some(found)
}

/// What a function answers that does not exist.
pub(crate) trait Missing {
    const MISSING: Self;
}

impl Missing for c_int {
    const MISSING: Self = -1;
}

impl Missing for usize {
    // A handler that could not be set: `SIG_ERR`.
    const MISSING: Self = usize::MAX;
}

impl Missing for i64 {
    const MISSING: Self = -1;
}

impl Missing for isize {
    const MISSING: Self = -1;
}

impl Missing for () {
    const MISSING: Self = ();
}

impl<T> Missing for *mut T {
    // A failed `mmap` is -1, but every system has that one.
    const MISSING: Self = core::ptr::null_mut();
}

/// `errno`, kept as it is found until dropped.
#[derive(Debug)]
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Self {
        // SAFETY: the calling thread's own variable.
        Self(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn set(value: c_int) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = value };
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// A path as rustix takes it.
///
/// # Safety
/// `path` is null or ends with a zero.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// A name by which something is there. One that cannot be read is the kernel's to refuse, so the
/// kernel looks first.
///
/// # Safety
/// If anything can be read there, it ends with a zero.
pub(crate) unsafe fn name<'a>(
    folder: c_int,
    name: *const c_char,
    flags: c_int,
) -> Option<&'a CStr> {
    let _errno = Errno::keep();
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fails if it is no descriptor, or no name; writes what it finds.
    let done = unsafe { libc::fstatat(folder, name, found.as_mut_ptr(), flags) };
    // SAFETY: the kernel has read it, so it is there; the caller's promise.
    if done == 0 { unsafe { path(name) } } else { None }
}

/// What lies where the program says that something does; `None` if nothing can be read there, which
/// is the kernel's to tell.
///
/// # Safety
/// If anything can be read there, it is a value of that type.
pub(crate) unsafe fn copied<T: Copy>(from: *const T) -> Option<T> {
    let mut one = [MaybeUninit::uninit()];
    // SAFETY: the caller's promise.
    unsafe { copy(from, &mut one) }.then(|| {
        let [one] = one;
        // SAFETY: it was copied.
        unsafe { one.assume_init() }
    })
}

/// The same of many values.
///
/// # Safety
/// As [`copied`].
pub(crate) unsafe fn copy<T: Copy>(from: *const T, into: &mut [MaybeUninit<T>]) -> bool {
    let _errno = Errno::keep();
    let len = size_of_val(into);
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: len };
    let there = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len };
    // SAFETY: reads from this process whatever can be read, into room of that length.
    let got = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const here, 1, &raw const there, 1, 0)
    };
    // SAFETY: the calling thread's own variable.
    if got >= 0 || unsafe { *libc::__errno_location() } == libc::EFAULT {
        return usize::try_from(got) == Ok(len);
    }
    // Some are not permitted to ask the kernel for it.
    // SAFETY: the caller's promise, and that of whoever called the hook.
    unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr().cast(), into.len()) };
    true
}

/// Whether so many values can be read there. A few at a time: this may be a handler on a small
/// stack.
///
/// # Safety
/// As [`copied`].
pub(crate) unsafe fn are_there<T: Copy>(from: *const T, count: usize) -> bool {
    const SOME: usize = 64;
    let mut room = [const { MaybeUninit::<T>::uninit() }; SOME];
    (0..count).step_by(SOME).all(|at| {
        let some = room.get_mut(..SOME.min(count - at)).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { copy(from.wrapping_add(at), some) }
    })
}

/// Defines hooks: each calls its handler with the real function and the arguments.
///
/// They may be unwound through, since the C library cancels threads that way.
macro_rules! hooks {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $handler:path;)*) => {
        #[allow(non_upper_case_globals, reason = "named after functions")]
        mod found {
            $(pub(super) static $name: crate::real::Real = {
                const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                crate::real::Real::new(NAME)
            };)*
        }

        /// Finds the real functions, so that no hook has to look for them later.
        pub(crate) fn find() {
            $(let _ = found::$name.find();)*
        }

        /// The hook that stands before the function at that place.
        pub(crate) fn hook_of(real: crate::real::Address) -> Option<crate::real::Address> {
            $(if found::$name.is_at(real) {
                return Some($name as *const () as crate::real::Address);
            })*
            None
        }

        $(
            #[doc = concat!("Stands before `", stringify!($name), "` of the C library.")]
            ///
            /// # Safety
            /// As the function of that name.
            #[allow(unreachable_pub, reason = "the dynamic linker reaches it")]
            #[allow(non_snake_case, reason = "named after functions")]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
                type Function = unsafe extern "C-unwind" fn($($ty),*) -> $ret;
                let Some(real) = found::$name.find() else {
                    crate::real::Errno::set(libc::ENOSYS);
                    return <$ret as crate::real::Missing>::MISSING;
                };
                // SAFETY: the function of this name has these arguments, as integers or pointers
                // in registers; those that it does not take are ignored by it.
                let real = unsafe { core::mem::transmute::<crate::real::Address, Function>(real) };
                // SAFETY: the caller's promise.
                unsafe { $handler(real, $($arg),*) }
            }
        )*
    };
}
pub(crate) use hooks;
