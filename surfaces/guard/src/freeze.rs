//! Stopping everybody who may store, while a page is replaced.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_mapped::Writers;
use rustix::process::{Pid, Signal, kill_process};

use crate::proc;

/// How long a stop may take.
const PATIENCE: Duration = Duration::from_millis(200);
const NAP: Duration = Duration::from_micros(200);

/// All guarded processes, and what must hold once they stand.
pub(crate) struct Freezer<'a> {
    pub(crate) roots: &'a BTreeSet<u32>,
    /// Whether all that they did until now is known, asked while they stand.
    pub(crate) sure: &'a dyn Fn() -> bool,
    pub(crate) stopped: RefCell<BTreeSet<u32>>,
}

impl<'a> Freezer<'a> {
    pub(crate) fn new(roots: &'a BTreeSet<u32>, sure: &'a dyn Fn() -> bool) -> Self {
        Self { roots, sure, stopped: RefCell::default() }
    }

    fn signal(process: u32, signal: Signal) {
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // One that is gone needs no signal.
            let _ = kill_process(process, signal);
        }
    }

    /// Stops processes until no new ones appear; those that stood before are left to whoever
    /// stopped them.
    fn stop(&self) -> bool {
        let started = Instant::now();
        let mut known = BTreeSet::new();
        loop {
            let new: Vec<u32> =
                proc::family(self.roots).into_iter().filter(|id| known.insert(*id)).collect();
            // This process may have ended up as a child of whom it supervises.
            let new: Vec<u32> = new.into_iter().filter(|id| *id != std::process::id()).collect();
            if new.is_empty() {
                return true;
            }
            for process in &new {
                if !proc::stands(*process) {
                    self.stopped.borrow_mut().insert(*process);
                    Self::signal(*process, Signal::STOP);
                }
            }
            while !new.iter().all(|process| proc::stands(*process)) {
                if started.elapsed() > PATIENCE {
                    return false;
                }
                sleep(NAP);
            }
        }
    }
}

impl Writers for Freezer<'_> {
    fn freeze(&self) -> bool {
        let done = self.stop() && (self.sure)();
        if !done {
            self.thaw();
        }
        done
    }

    fn thaw(&self) {
        for process in self.stopped.take() {
            Self::signal(process, Signal::CONT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn everybody_stands_and_goes_on() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        sleep(Duration::from_millis(50));
        let roots = BTreeSet::from([child.id()]);
        let freezer = Freezer::new(&roots, &|| true);
        assert!(freezer.freeze());
        let family = proc::family(&roots);
        assert!(family.len() == 2 && family.iter().all(|process| proc::stands(*process)));
        freezer.thaw();
        sleep(Duration::from_millis(5));
        assert!(family.iter().all(|process| !proc::stands(*process)));
        let unsure = Freezer::new(&roots, &|| false);
        assert!(!unsure.freeze() && !proc::stands(child.id()), "and nobody is left standing");
        for process in family {
            Freezer::signal(process, Signal::KILL);
        }
        child.wait().unwrap();
    }
}
