//! Hooks, and the functions of the C library behind them.

use core::ffi::{CStr, c_char, c_int, c_void};
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
