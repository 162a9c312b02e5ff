//! The crash at the end of an era: an instant at a barrier, and what it leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_faultmem::{CrashPoint, FaultMedium, Image};
use holdfast_oracle::linear::{Crash, Ticker};

use crate::object::handle::Handle;

/// Barriers before the crash at which a wrong recovery stops: at least one whole commit.
const EARLIER: u64 = 6;

/// When an era is to crash, and what of it arrives.
#[derive(Debug, Clone, Copy)]
pub struct Lot {
    /// Which barrier, counted from 1.
    pub barrier: u64,
    /// Decides what of the stores on their way arrives.
    pub seed: u64,
    /// Whether what is left is that of some barriers before: what must be convicted.
    pub earlier: bool,
}

impl Lot {
    /// What is left: any subset of what no barrier has made durable, now and then all or nothing.
    fn image(self, point: &CrashPoint) -> Image {
        match self.seed % 16 {
            0 => point.persisted(),
            1 => point.newest(),
            number => point.sample(self.seed, number),
        }
    }
}

/// Burns down barrier by barrier.
#[derive(Debug)]
pub struct Fuse {
    lot: Lot,
    ticker: Arc<Ticker>,
    caught: Mutex<Option<(Crash, Image)>>,
    blown: AtomicBool,
}

impl Fuse {
    /// A fuse of a medium, and its end.
    #[must_use]
    pub fn light(medium: &Handle, lot: Lot, ticker: &Arc<Ticker>) -> Arc<Self> {
        let ticker = Arc::clone(ticker);
        let (caught, blown) = (Mutex::new(None), AtomicBool::new(false));
        let fuse = Arc::new(Self { lot, ticker, caught, blown });
        let burning = Arc::clone(&fuse);
        let (mut passed, mut before) = (0, None);
        medium.on_barrier(Box::new(move |medium, _, point| {
            passed += 1;
            if lot.earlier && passed + EARLIER == lot.barrier {
                before = Some(point.clone());
            }
            if passed == lot.barrier {
                burning.blow(medium, before.take());
            }
        }));
        fuse
    }

    /// Whether the machine is no more.
    #[must_use]
    pub fn is_blown(&self) -> bool {
        self.blown.load(Ordering::Acquire)
    }

    /// Crashes now, unless it has crashed. The two times are taken around the instant, so a call
    /// answered before the first is in it for certain, and one begun after the second is not.
    pub fn blow(&self, medium: &FaultMedium, instead: Option<CrashPoint>) {
        let mut caught = self.caught();
        if caught.is_some() {
            return;
        }
        let before = self.ticker.tick();
        let point = medium.crash_point();
        let after = self.ticker.tick();
        self.blown.store(true, Ordering::Release);
        *caught = Some((Crash { before, after }, self.lot.image(&instead.unwrap_or(point))));
    }

    /// What the crash left.
    pub fn take(&self) -> Option<(Crash, Image)> {
        self.caught().take()
    }

    fn caught(&self) -> MutexGuard<'_, Option<(Crash, Image)>> {
        self.caught.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
