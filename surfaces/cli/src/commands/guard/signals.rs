//! Signals while a program is guarded. They are meant for the program: whoever supervises it lives
//! on to tell what became of its files.
//!
//! A terminal sends Ctrl-C and Ctrl-\ to both, so those are survived; a request to terminate, a
//! hang-up and what programs have meanings of their own for come to this process alone, so those
//! are passed on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
};
use signal_hook::flag;

/// Those that are meant for the program, and come to this process alone.
const PASSED: [i32; 8] = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO];

/// A signal, and whether it came and is to be passed on.
type Pending = (i32, Arc<AtomicBool>);

/// None of these ends this process from now on. The answer tells which came.
///
/// # Errors
/// The system has no handler left.
pub(crate) fn catch() -> io::Result<Vec<Pending>> {
    let ignored = ignored();
    // One that is ignored stays so, in the program as well.
    for signal in [SIGINT, SIGQUIT].into_iter().filter(|signal| !ignored(*signal)) {
        flag::register(signal, Arc::default())?;
    }
    let passed = PASSED.into_iter().filter(|signal| !ignored(*signal));
    let pending: Vec<Pending> = passed.map(|signal| (signal, Arc::default())).collect();
    for (signal, came) in &pending {
        flag::register(*signal, Arc::clone(came))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Each of them would end this test otherwise.
    #[test]
    fn none_of_them_ends_this_process_and_each_is_passed_on() {
        let pending = catch().unwrap();
        for (signal, came) in &pending {
            assert!(!came.load(Ordering::SeqCst));
            signal_hook::low_level::raise(*signal).unwrap();
            assert!(came.load(Ordering::SeqCst), "{signal}");
        }
        assert!(pending.len() <= PASSED.len());
    }
}
