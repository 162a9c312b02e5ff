//! Deterministic hand-over between threads: one is parked at a named step of its commit while
//! another works, then goes on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use holdfast_pmem::MediumKind;

use super::handle::Handle;

/// Where a parked thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// On its way to the step.
    Coming,
    /// At the step.
    Parked,
    /// Past the step, or told not to stop.
    Going,
    /// Done with all it had to do.
    Done,
}

/// One thread's appointment with a step.
#[derive(Debug)]
pub struct Park {
    step: &'static str,
    /// Times the thread still passes the step before it stops there.
    passes: AtomicU32,
    stage: Mutex<Stage>,
    changed: Condvar,
}

thread_local! {
    /// The appointment of this thread, if it has one.
    static MINE: RefCell<Option<Arc<Park>>> = const { RefCell::new(None) };
}

/// A step at which a commit holds the watermark back and no column, so that others can go on.
#[must_use]
pub fn midway(kind: MediumKind) -> &'static str {
    match kind {
        // On a file the columns come after the commit point.
        MediumKind::File => "object.commit.step-durable",
        MediumKind::Dax | MediumKind::Shm => "object.commit.step-numbered",
    }
}

/// Has every thread with an appointment keep it on this medium.
pub fn install(medium: &Handle) {
    medium.on_step(Box::new(|site| {
        let mine = MINE.with_borrow(Clone::clone);
        if let Some(park) = mine
            && park.step == site.name()
        {
            park.arrive();
        }
    }));
}

impl Park {
    /// An appointment at this step.
    #[must_use]
    pub fn at(step: &'static str) -> Arc<Self> {
        Self::at_nth(step, 1)
    }

    /// An appointment at the `nth` time that the thread comes by this step; 1 is the first.
    #[must_use]
    pub fn at_nth(step: &'static str, nth: u32) -> Arc<Self> {
        let passes = AtomicU32::new(nth.saturating_sub(1));
        Arc::new(Self { step, passes, stage: Mutex::new(Stage::Coming), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.lock() = stage;
        self.changed.notify_all();
    }

    fn arrive(&self) {
        // Only the one thread that has this appointment comes here.
        let passes = self.passes.load(Ordering::Relaxed);
        if passes > 0 {
            self.passes.store(passes - 1, Ordering::Relaxed);
            return;
        }
        let mut stage = self.lock();
        if *stage != Stage::Coming {
            return;
        }
        *stage = Stage::Parked;
        self.changed.notify_all();
        while *stage == Stage::Parked {
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs `work` on the calling thread, which keeps the appointment once.
    pub fn keep<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        /// Says that the thread is done, also if it unwinds.
        struct Leave<'a>(&'a Park);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                MINE.set(None);
                self.0.set(Stage::Done);
            }
        }
        MINE.set(Some(Arc::clone(self)));
        let _leave = Leave(self);
        work()
    }

    /// Waits until the thread is parked (true), or done without having come by (false).
    #[must_use]
    pub fn wait(&self) -> bool {
        let mut stage = self.lock();
        while *stage == Stage::Coming {
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
        *stage == Stage::Parked
    }

    /// Lets the thread go on until it comes by the step once more.
    pub fn go_round(&self) {
        let mut stage = self.lock();
        if *stage == Stage::Parked {
            *stage = Stage::Coming;
        }
        drop(stage);
        self.changed.notify_all();
    }

    /// Lets the thread go on.
    pub fn release(&self) {
        let mut stage = self.lock();
        if matches!(*stage, Stage::Parked | Stage::Coming) {
            *stage = Stage::Going;
        }
        drop(stage);
        self.changed.notify_all();
    }
}
