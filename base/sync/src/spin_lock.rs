//! A spin lock on modelled atomics, with the steps and orderings of the one that ships: an exchange
//! that acquires, a store that releases.

#[cfg(not(loom))]
pub use shuttles::*;

#[cfg(loom)]
pub use looms::*;

/// What the lock guards is in a cell of loom, which finds two who use it at once.
#[cfg(loom)]
mod looms {
    use core::ops::{Deref, DerefMut};

    use loom::cell::{MutPtr, UnsafeCell};

    use crate::atomic::{AtomicBool, Ordering};

    /// A value that one thread at a time has.
    #[derive(Debug)]
    pub struct SpinMutex<T> {
        held: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached through a guard, of which there is one at a time: `try_lock`
    // makes one only if its exchange found the lock free.
    unsafe impl<T: Send> Sync for SpinMutex<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Send for SpinMutex<T> {}

    impl<T> SpinMutex<T> {
        /// A free lock.
        pub fn new(value: T) -> Self {
            Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
            self.held
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .ok()
                .map(|_| SpinMutexGuard { held: &self.held, value: Some(self.value.get_mut()) })
        }
    }

    /// The value, until dropped.
    #[derive(Debug)]
    pub struct SpinMutexGuard<'a, T> {
        held: &'a AtomicBool,
        /// Gone before the lock is free: loom counts it as a use as long as it is there.
        value: Option<MutPtr<T>>,
    }

    impl<T> Deref for SpinMutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            let value = self.value.as_ref().expect("there until dropped");
            // SAFETY: the lock is held as long as this guard lives, and the pointer is of the value
            // in it.
            unsafe { value.deref() }
        }
    }

    impl<T> DerefMut for SpinMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            let value = self.value.as_ref().expect("there until dropped");
            // SAFETY: as above; `&mut self` makes the borrow unique.
            unsafe { value.deref() }
        }
    }

    impl<T> Drop for SpinMutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.held.store(false, Ordering::Release);
        }
    }
}

/// One thread of the process runs at a time under shuttle: its mutex, tried and never waited for,
/// has the same steps.
#[cfg(not(loom))]
mod shuttles {
    pub use crate::MutexGuard as SpinMutexGuard;

    /// A value that one thread at a time has.
    #[derive(Debug)]
    pub struct SpinMutex<T>(crate::Mutex<T>);

    impl<T> SpinMutex<T> {
        /// A free lock.
        pub fn new(value: T) -> Self {
            Self(crate::Mutex::new(value))
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
