//! Ctrl-C: the first one asks the command to stop where it can, the second one ends it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::exit::Exit;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Listens from now on.
pub(crate) fn listen() {
    let asked = Arc::clone(ASKED.get_or_init(Arc::default));
    // In this order: the second signal finds the flag that the first one set.
    let code = i32::from(Exit::CANCELLED.code());
    if flag::register_conditional_shutdown(SIGINT, code, Arc::clone(&asked)).is_ok() {
        // Without it, Ctrl-C ends the command at once: nothing is lost, a pool recovers.
        let _ = flag::register(SIGINT, asked);
    }
}

/// Whether somebody asked the command to stop.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Acquire))
}
