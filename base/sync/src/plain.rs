//! The standard library, as it is.

pub use std::sync::{
    Barrier, Condvar, Mutex, MutexGuard, Once, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use std::thread_local;

/// Atomic numbers and fences.
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Channels with a bound.
pub mod mpsc {
    pub use std::sync::mpsc::{
        Receiver, RecvError, SendError, SyncSender, TryRecvError, TrySendError, sync_channel,
    };
}

/// Threads.
pub mod thread {
    pub use std::thread::{
        JoinHandle, Thread, ThreadId, current, park, scope, sleep, spawn, yield_now,
    };
}

/// What a waiting thread tells the processor.
pub mod hint {
    pub use core::hint::spin_loop;
}

/// A lock that nobody sleeps for.
pub mod spin {
    pub use spin::mutex::{SpinMutex, SpinMutexGuard};
}

/// The system's monotonic time.
pub mod time {
    pub use std::time::Instant;
}
