//! Ctrl-C of a program that runs for hours: the first one asks it to stop where it can, the second
//! one ends it. Either way the exit code says so.
//!
//! A campaign that is stopped notes what it has found, and a storm of fuzz targets which inputs it
//! has run. What others had under way is not noted, nor what was found in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// Exit code of what somebody stopped.
pub const CANCELLED: u8 = 32;

static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Listens from now on. Whoever does has to ask [`asked`] now and then.
pub fn listen() {
    // In this order: the second signal finds the flag that the first one set. Without it, the
    // first one would be the last that is heard, and the program could not be ended.
    if flag::register_conditional_shutdown(SIGINT, CANCELLED.into(), Arc::clone(&ASKED)).is_ok() {
        // Without it, Ctrl-C ends the program at once.
        let _ = flag::register(SIGINT, Arc::clone(&ASKED));
    }
}

/// Has Ctrl-C end the program at once, for one that has nothing to tell before its end.
pub fn end_at_once() {
    // Where it cannot be heard, the program ends by the signal.
    let always = Arc::new(AtomicBool::new(true));
    let _ = flag::register_conditional_shutdown(SIGINT, CANCELLED.into(), always);
}

/// Whether somebody asked the program to stop.
#[must_use]
pub fn asked() -> bool {
    ASKED.load(Ordering::Acquire)
}
