//! Stopping everybody who may store, while a page is replaced.

use std::cell::{Cell, RefCell};
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
    /// All that stood when it was looked last.
    still: RefCell<BTreeSet<u32>>,
    /// One that did not stand any more before it was let go.
    ran: Cell<Option<u32>>,
}

impl<'a> Freezer<'a> {
    pub(crate) fn new(roots: &'a BTreeSet<u32>, sure: &'a dyn Fn() -> bool) -> Self {
        let (stopped, still) = (RefCell::default(), RefCell::default());
        Self { roots, sure, stopped, still, ran: Cell::new(None) }
    }

    /// A process that went on by itself while a page was being replaced: what it stored meanwhile
    /// may be lost.
    pub(crate) fn ran(&self) -> Option<u32> {
        self.ran.get()
    }

    fn signal(process: u32, signal: Signal) {
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // One that is gone needs no signal.
            let _ = kill_process(process, signal);
        }
    }

    /// Stops processes until no new ones appear; those that were stopped before are left to whoever
    /// stopped them. Those that stand because a debugger looks at them are stopped as well: it may
    /// let them go at any time.
    fn stop(&self) -> bool {
        let started = Instant::now();
        let mut known = BTreeSet::new();
        loop {
            let new: Vec<u32> =
                proc::family(self.roots).into_iter().filter(|id| known.insert(*id)).collect();
            // This process may have ended up as a child of whom it supervises.
            let new: Vec<u32> = new.into_iter().filter(|id| *id != std::process::id()).collect();
            if new.is_empty() {
                self.still.replace(known);
                return true;
            }
            for process in &new {
                if !proc::is_stopped(*process) {
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

/// Whether a process that does not stand is on its way out: one that is killed stores no more.
fn dies(process: u32) -> bool {
    (0..20).any(|_| {
        sleep(NAP);
        proc::is_dead(process)
    })
}

impl Writers for Freezer<'_> {
    fn freeze(&self) -> bool {
        let done = self.stop() && (self.sure)();
        if !done {
            // Nothing was replaced, so it is all the same who ran.
            self.still.take();
            self.thaw();
        }
        done
    }

    fn thaw(&self) {
        for process in self.still.take() {
            if process != std::process::id() && !proc::stands(process) && !dies(process) {
                self.ran.set(Some(process));
            }
        }
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
        let _alone = crate::alone();
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

    fn sleeper() -> (std::process::Child, BTreeSet<u32>) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let roots = BTreeSet::from([child.id()]);
        sleep(Duration::from_millis(50));
        (child, roots)
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        (0..500).any(|_| {
            sleep(Duration::from_millis(2));
            what()
        })
    }

    #[test]
    fn who_goes_on_by_itself_is_told() {
        let _alone = crate::alone();
        let (mut child, roots) = sleeper();
        Freezer::signal(child.id(), Signal::STOP);
        assert!(wait_for(|| proc::is_stopped(child.id())));
        let freezer = Freezer::new(&roots, &|| true);
        assert!(freezer.freeze());
        freezer.thaw();
        assert!(freezer.ran().is_none() && proc::stands(child.id()), "others stopped it");
        assert!(freezer.freeze());
        Freezer::signal(child.id(), Signal::CONT);
        assert!(wait_for(|| !proc::stands(child.id())));
        freezer.thaw();
        assert_eq!(freezer.ran(), Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_debugger_that_lets_one_go_does_not_make_it_run() {
        let _alone = crate::alone();
        let (mut child, roots) = sleeper();
        let number = child.id() as i32;
        let null = core::ptr::null_mut::<libc::c_void>();
        // SAFETY: looks at a child of this process, from this thread alone.
        let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, number, null, null) };
        if attached == 0 {
            let mut status = 0;
            // SAFETY: waits for that child to stand, and lets it go on.
            let go = |signal: usize| unsafe {
                libc::ptrace(libc::PTRACE_CONT, number, null, signal as *mut libc::c_void)
            };
            // SAFETY: as above.
            unsafe { libc::waitpid(number, &raw mut status, libc::__WALL) };
            assert!(proc::stands(child.id()) && !proc::is_stopped(child.id()));
            let freezer = Freezer::new(&roots, &|| true);
            assert!(freezer.freeze());
            assert_eq!(go(0), 0);
            sleep(Duration::from_millis(30));
            assert!(proc::stands(child.id()), "it runs while a page is replaced");
            freezer.thaw();
            assert_eq!(freezer.ran(), None);
        } else {
            println!("skipped: nobody may be looked at here");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
