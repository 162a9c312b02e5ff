//! loom's atomics, with orderings that a test may take away: a model that does not fail without
//! an ordering proves nothing about it.

use core::panic::Location;
use core::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// What is done to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An exchange, an addition and the like.
    Change,
    /// A fence, and what stands for one in an access that is `SeqCst`.
    Fence,
    /// The one order of all: what is `SeqCst` orders only what it meets.
    Total,
}

/// Accesses that are to be weaker: those of this sort in files whose path ends so.
static WEAKER: Mutex<Option<(&'static str, Access)>> = Mutex::new(None);

/// Makes accesses of a sort relaxed in files whose path ends with `file`, until the answer is
/// dropped. Fences there are left out.
#[must_use = "they are as they were as soon as this is dropped"]
pub fn weaken(file: &'static str, access: Access) -> Weakened {
    *WEAKER.lock().unwrap_or_else(PoisonError::into_inner) = Some((file, access));
    Weakened(())
}

/// Some accesses are weaker as long as this lives.
#[derive(Debug)]
pub struct Weakened(());

impl Drop for Weakened {
    fn drop(&mut self) {
        *WEAKER.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn is_weaker(access: Access, place: &Location<'_>) -> bool {
    let weaker = *WEAKER.lock().unwrap_or_else(PoisonError::into_inner);
    weaker.is_some_and(|(file, of)| of == access && place.file().ends_with(file))
}

/// The ordering of an access at the place that calls this.
#[track_caller]
fn of(access: Access, order: Ordering) -> Ordering {
    if is_weaker(access, Location::caller()) { Ordering::Relaxed } else { order }
}

/// loom takes `SeqCst` of an access for less than it is, and of a fence for what it is. So such an
/// access gets a fence on each side, which is one way for a processor to do it: x86 does for what
/// exchanges, and for a load the fence before it is that of the exchange which it follows.
#[track_caller]
fn total(order: Ordering) {
    let place = Location::caller();
    let sorts = [Access::Total, Access::Fence, Access::Change, Access::Load];
    if order == Ordering::SeqCst && !sorts.iter().any(|sort| is_weaker(*sort, place)) {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// A fence, unless it is to be left out.
#[track_caller]
pub fn fence(order: Ordering) {
    if !is_weaker(Access::Fence, Location::caller()) {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident $(<$of:ident>)?, $value:ty) => {
        #[doc = concat!("loom's `", stringify!($name), "`, as far as it is used.")]
        #[derive(Debug, Default)]
        pub struct $name $(<$of>)? (loom::sync::atomic::$name $(<$of>)?);

        impl $(<$of>)? $name $(<$of>)? {
            /// A word that holds `value`.
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                total(order);
                self.0.load(of(Access::Load, order))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                // A run that ended in a panic is cleared away: it is no run any more.
                if !std::thread::panicking() {
                    self.0.store(value, of(Access::Store, order));
                }
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, of(Access::Change, order))
            }

            /// As that of the standard library.
            ///
            /// # Errors
            /// What was there, if it was not `now`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                now: $value,
                next: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                total(done);
                let orders = (of(Access::Change, done), of(Access::Change, failed));
                let found = self.0.compare_exchange(now, next, orders.0, orders.1);
                total(done);
                found
            }

            /// As that of the standard library; never fails for nothing.
            ///
            /// # Errors
            /// What was there, if it was not `now`.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                now: $value,
                next: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(now, next, done, failed)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl $name {
            /// As that of the standard library.
            #[track_caller]
            pub fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                self.0.fetch_add(more, of(Access::Change, order))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                self.0.fetch_sub(less, of(Access::Change, order))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn fetch_or(&self, bits: $value, order: Ordering) -> $value {
                self.0.fetch_or(bits, of(Access::Change, order))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn fetch_and(&self, bits: $value, order: Ordering) -> $value {
                self.0.fetch_and(bits, of(Access::Change, order))
            }

            /// As that of the standard library.
            #[track_caller]
            pub fn fetch_max(&self, other: $value, order: Ordering) -> $value {
                self.0.fetch_max(other, of(Access::Change, order))
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
number!(AtomicU8, u8);
number!(AtomicU16, u16);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
