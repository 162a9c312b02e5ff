//! shuttle, and what it lacks: a cell that is set once, a spin lock, time.

pub use shuttle::sync::{
    Barrier, Condvar, Mutex, MutexGuard, Once, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use shuttle::thread_local;

pub use crate::once::OnceLock;

/// Atomic numbers and fences. A fence is no step: shuttle's atomics are in one order anyway, and
/// it refuses weaker fences than that.
pub mod atomic {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };

    /// Does nothing.
    pub fn fence(_: Ordering) {}
}

/// Channels with a bound.
pub mod mpsc {
    pub use shuttle::sync::mpsc::{Receiver, SyncSender, sync_channel};
    pub use std::sync::mpsc::{RecvError, SendError, TryRecvError, TrySendError};
}

/// Threads.
pub mod thread {
    pub use shuttle::thread::{
        JoinHandle, Thread, ThreadId, current, park, scope, sleep, spawn, yield_now,
    };
}

/// What a waiting thread tells the checker: that it waits.
pub mod hint {
    pub use shuttle::hint::spin_loop;
}

#[path = "spin_lock.rs"]
pub mod spin;

#[path = "time.rs"]
pub mod time;
