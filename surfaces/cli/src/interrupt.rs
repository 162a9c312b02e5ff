//! Signals. Ctrl-C: the first one asks the command to stop where it can, the second one ends it.
//! A limit on the length of files is an error of the write that meets it, not the end.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGXFSZ};
use signal_hook::flag;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::out::Out;

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
    // Whoever handles it, if only by a flag nobody reads, gets the error from the system call.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Ends a command that changes nothing, from wherever it is, if somebody asked it to stop.
pub(crate) fn end_if_asked(out: Out, command: &str) {
    if asked() {
        let failure = Failure::interrupted("nothing was changed; run it again");
        out.failure(command, &failure);
        std::process::exit(failure.exit().code().into());
    }
}

/// Whether somebody asked the command to stop.
pub(crate) fn asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Acquire))
}
