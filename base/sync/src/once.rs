//! A cell that is set once. Neither checker has one, and that of the standard library would hide
//! from them that a reader who sees the value sees what was done before it was set.

use crate::atomic::{AtomicBool, Ordering};

/// The value in a cell of the standard library, and a modelled flag that says so.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// An empty cell.
    #[must_use]
    pub fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    /// Sets the value, unless somebody was earlier.
    ///
    /// # Errors
    /// `value`, if somebody was.
    pub fn set(&self, value: T) -> Result<(), T> {
        let set = self.value.set(value);
        if set.is_ok() {
            self.is_set.store(true, Ordering::Release);
        } else {
            self.wait();
        }
        set
    }

    /// The value; what `make` answers if there is none. Two may make one; the first one counts.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        // An error is the value of somebody earlier, which is the one to be used.
        let _ = self.set(make());
        self.wait();
        self.value.get().expect("set above, by this thread or another")
    }

    /// Until who was earlier has said so.
    fn wait(&self) {
        while !self.is_set.load(Ordering::Acquire) {
            crate::thread::yield_now();
        }
    }
}
