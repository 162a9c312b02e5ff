//! Signals while a program is guarded. They are meant for the program: whoever supervises it lives
//! on to tell what became of its files.
//!
//! A terminal sends Ctrl-C and Ctrl-\ to both, so those are survived; a request to terminate and a
//! hang-up come to this process alone, so those are passed on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

/// Nothing ends this process from now on but what cannot be caught. The answer is the number of a
/// signal to be passed on, or 0.
///
/// # Errors
/// The system has no handler left.
pub(crate) fn catch() -> io::Result<Arc<AtomicUsize>> {
    let (pending, ignored) = (Arc::new(AtomicUsize::new(0)), ignored());
    // One that is ignored stays so, in the program as well.
    for signal in [SIGINT, SIGQUIT].into_iter().filter(|signal| !ignored(*signal)) {
        flag::register(signal, Arc::default())?;
    }
    for signal in [SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(*signal)) {
        flag::register_usize(signal, Arc::clone(&pending), signal as usize)?;
    }
    Ok(pending)
}

/// Which signals this process was started to ignore, as `nohup` has it.
fn ignored() -> impl Fn(i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}
