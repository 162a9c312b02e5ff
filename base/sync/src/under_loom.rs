//! loom, and what it lacks: a cell that is set once, a spin lock, channels with a bound, time.

pub use loom::sync::{
    Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

pub use crate::once::OnceLock;
pub use crate::weak::{Access, Weakened, weaken};

/// Atomic numbers and fences, which [`weaken`](crate::weaken) may make weaker.
pub mod atomic {
    pub use crate::weak::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub use core::sync::atomic::Ordering;
}

/// Channels with a bound: those of the standard library, since loom has none. Sending without
/// waiting, which is all that the crates above do, has no step in a model.
pub mod mpsc {
    pub use std::sync::mpsc::{
        Receiver, RecvError, SendError, SyncSender, TryRecvError, TrySendError, sync_channel,
    };
}

/// Threads. To sleep is to let others go on: a model has no time.
pub mod thread {
    pub use loom::thread::{JoinHandle, Thread, ThreadId, current, park, spawn, yield_now};

    /// Lets others go on.
    pub fn sleep(_: core::time::Duration) {
        yield_now();
    }
}

/// What a waiting thread tells the checker: that it waits.
pub mod hint {
    pub use loom::hint::spin_loop;
}

#[path = "spin_lock.rs"]
pub mod spin;

#[path = "time.rs"]
pub mod time;

/// Thread-local values that start anew with each run of a model.
#[macro_export]
macro_rules! thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $t:ty = const { $init:expr };) => {
        $crate::loom_thread_local!($(#[$attr])* $vis static $name: $t = $init;);
    };
}

#[doc(hidden)]
pub use loom::thread_local as loom_thread_local;
