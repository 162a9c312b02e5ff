//! Where a repair thread hears of loads by the program that met a bad page.

use std::sync::Arc;
use std::time::Duration;

use crate::registry::{Fault, Registration, Verdict};

/// The mailbox of one mapping. While at least one exists, a program's thread whose load meets a
/// media error waits until the repair thread has answered; without one, the signal is passed on
/// at once and ends the process as with any mapped file.
///
/// The repair thread repairs through the library's own accesses (which answer errors) and with
/// [`heal`](crate::Medium::heal) or [`remap`](crate::Medium::remap), then answers. Its own loads
/// through the view are not waited for: they would wait for themselves.
#[derive(Debug)]
pub struct FaultMailbox {
    registration: Arc<Registration>,
}

impl FaultMailbox {
    pub(crate) fn new(registration: Arc<Registration>) -> Self {
        registration.entry().attach();
        Self { registration }
    }

    /// Waits up to `timeout` for a fault that nobody is repairing, and makes the calling thread
    /// the one that repairs it. Threads that wait for the same page are answered together.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<Fault> {
        self.registration.entry().wait(timeout)
    }

    /// Lets every thread go on that waits for the extent of `fault` (of one that could not be read
    /// in, not those that wait because its memory failed since): its load is repeated if
    /// healed, and ends the process if lost. A thread that comes back again and again although
    /// it was told *healed* is treated as if it were told *lost*.
    pub fn answer(&self, fault: Fault, verdict: Verdict) {
        self.registration.entry().answer_fault(fault, verdict);
    }
}

impl Drop for FaultMailbox {
    fn drop(&mut self) {
        self.registration.entry().detach();
    }
}
