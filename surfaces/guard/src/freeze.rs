//! Stopping everybody who may store, while a page is replaced.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_guard_wire::Ledger;
use holdfast_mapped::Writers;
use rustix::process::{Pid, Signal, kill_process};

use crate::proc;

/// How long a stop may take, and how long one of somebody who cannot reach the file: it may wait in
/// the kernel for something that does not come, where no signal stops it.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_APART: Duration = Duration::from_millis(40);
/// How long children go on at the most since their parents do not stand yet.
const PATIENCE_IN_ORDER: Duration = Duration::from_millis(40);
const NAP: Duration = Duration::from_micros(200);

/// All guarded processes, and what must hold once they stand.
pub(crate) struct Freezer<'a> {
    pub(crate) roots: &'a BTreeSet<u32>,
    /// Whether all that they did until now is known, asked while they stand.
    pub(crate) sure: &'a dyn Fn() -> bool,
    /// Whether a process has the file, or may have it.
    reaches: &'a dyn Fn(u32) -> bool,
    /// Those that were stopped here, parents before their children.
    stopped: RefCell<Vec<u32>>,
    /// All that stood when it was looked last.
    still: RefCell<BTreeSet<u32>>,
    /// Those that cannot be stopped, and had not the file.
    apart: RefCell<BTreeSet<u32>>,
    /// One that did not stand any more before it was let go.
    ran: Cell<Option<u32>>,
    /// They stand until they are let go, whatever happens before.
    lasts: bool,
    /// Processes of the family that are left alone: they store nothing.
    anchors: BTreeSet<u32>,
    /// Where it is noted who stands, so that they go on if this process dies.
    noted: Option<&'a Ledger>,
}

impl<'a> Freezer<'a> {
    pub(crate) fn new(
        roots: &'a BTreeSet<u32>,
        sure: &'a dyn Fn() -> bool,
        reaches: &'a dyn Fn(u32) -> bool,
    ) -> Self {
        let (stopped, still) = (RefCell::default(), RefCell::default());
        let (apart, ran) = (RefCell::default(), Cell::new(None));
        let (lasts, anchors, noted) = (false, BTreeSet::new(), None);
        Self { roots, sure, reaches, stopped, still, apart, ran, lasts, anchors, noted }
    }

    /// Leaves anchors alone, which may be of the family of a program that adopts orphans: they see
    /// to it that nobody is left standing.
    pub(crate) fn but_for(mut self, anchors: BTreeSet<u32>) -> Self {
        self.anchors = anchors;
        self
    }

    /// Has anchors make them go on if this process dies. Not those who would find damage.
    pub(crate) fn noted(mut self, ledger: &'a Ledger) -> Self {
        self.noted = Some(ledger);
        self
    }

    /// Nobody goes on unless all is well: what they would find is damaged on purpose.
    pub(crate) fn lasting(mut self) -> Self {
        self.lasts = true;
        self
    }

    /// A process that went on by itself while a page was being replaced, or could not be stopped
    /// and came to have the file: what it stored there meanwhile may be lost.
    pub(crate) fn ran(&self) -> Option<u32> {
        self.ran.get()
    }

    fn signal(process: u32, signal: Signal) {
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // One that is gone needs no signal.
            let _ = kill_process(process, signal);
        }
    }

    /// Lets all go on that were stopped here, children before their parents: who waits for children
    /// that stand never finds one.
    fn go_on(&self) {
        for process in self.stopped.take().into_iter().rev() {
            Self::signal(process, Signal::CONT);
        }
        if let Some(ledger) = self.noted {
            ledger.all_go_on();
        }
    }

    /// Stops processes until no new ones appear; those that were stopped before are left to whoever
    /// stopped them. Those that stand because a debugger looks at them are stopped as well: it may
    /// let them go at any time.
    fn stop(&self) -> bool {
        let in_order = Instant::now() + PATIENCE_IN_ORDER;
        let (mut started, mut known) = (None, BTreeSet::new());
        loop {
            // Whom nobody can find cannot be stopped.
            let Some(family) = proc::lineage(self.roots) else { return false };
            let all = family.keys().copied().filter(|id| !self.anchors.contains(id));
            let new: Vec<u32> = all.filter(|id| known.insert(*id)).collect();
            // This process may have ended up as a child of whom it supervises.
            let new: Vec<u32> = new.into_iter().filter(|id| *id != std::process::id()).collect();
            if new.is_empty() {
                let apart = self.apart.borrow();
                known.retain(|process| !apart.contains(process));
                self.still.replace(known);
                return true;
            }
            self.stop_in_order(&new, &family, in_order);
            if !self.wait_for(new, *started.get_or_insert_with(Instant::now)) {
                return false;
            }
        }
    }

    /// Stops parents before their children: whoever runs while its child stands may be told so
    /// (`waitpid`), and act on it, as shells do.
    fn stop_in_order(&self, new: &[u32], family: &BTreeMap<u32, u32>, until: Instant) {
        let mut generations: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for process in new {
            generations.entry(proc::depth(family, *process)).or_default().push(*process);
        }
        let mut parents: Vec<u32> = Vec::new();
        for generation in generations.into_values() {
            // One that cannot be stopped does not look at its children either.
            while Instant::now() < until && !parents.iter().all(|process| proc::stands(*process)) {
                sleep(NAP);
            }
            for process in &generation {
                if !proc::is_stopped(*process) {
                    self.stopped.borrow_mut().push(*process);
                    // Before it stands.
                    self.noted.inspect(|ledger| ledger.stops(*process));
                    Self::signal(*process, Signal::STOP);
                }
            }
            parents = generation;
        }
    }

    /// Waits until all of them stand, but for those that cannot be stopped and do not have it.
    fn wait_for(&self, mut new: Vec<u32>, started: Instant) -> bool {
        let mut until = [PATIENCE_APART, PATIENCE].into_iter();
        let mut patience = until.next();
        loop {
            new.retain(|process| !proc::stands(*process));
            if new.is_empty() {
                return true;
            }
            if patience.is_some_and(|patience| started.elapsed() > patience) {
                if !new.iter().any(|process| (self.reaches)(*process)) {
                    self.apart.borrow_mut().extend(new);
                    return true;
                }
                patience = until.next();
            }
            if patience.is_none() {
                return false;
            }
            sleep(NAP);
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
            self.apart.take();
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
        for process in self.apart.take() {
            if (self.reaches)(process) {
                self.ran.set(Some(process));
            }
        }
        self.go_on();
    }
}

/// Whatever becomes of a repair, nobody is left standing.
impl Drop for Freezer<'_> {
    fn drop(&mut self) {
        if !self.lasts {
            self.go_on();
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
        let roots = BTreeSet::from([child.id()]);
        assert!(wait_for(|| proc::family(&roots).unwrap().len() == 2));
        let freezer = Freezer::new(&roots, &|| true, &|_| true);
        assert!(stops(&freezer));
        let family = proc::family(&roots).unwrap();
        assert!(family.len() == 2 && family.iter().all(|process| proc::stands(*process)));
        freezer.thaw();
        assert!(wait_for(|| family.iter().all(|process| !proc::stands(*process))));
        let unsure = Freezer::new(&roots, &|| false, &|_| true);
        assert!(!unsure.freeze() && !proc::stands(child.id()), "and nobody is left standing");
        for process in family {
            Freezer::signal(process, Signal::KILL);
        }
        child.wait().unwrap();
    }

    /// In the middle of a repair, everybody goes on; in that of a drill, nobody does.
    #[test]
    fn a_panic_leaves_those_standing_alone_who_would_find_damage() {
        let _alone = crate::alone();
        for lasts in [false, true] {
            let (mut child, roots) = sleeper();
            let work = std::panic::AssertUnwindSafe(|| {
                let freezer = Freezer::new(&roots, &|| true, &|_| true);
                let freezer = if lasts { freezer.lasting() } else { freezer };
                assert!(stops(&freezer) && proc::stands(child.id()));
                panic!("in the middle of it");
            });
            assert!(std::panic::catch_unwind(work).is_err());
            sleep(Duration::from_millis(20));
            let stands = proc::stands(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(stands, lasts);
        }
    }

    #[test]
    fn who_stands_is_noted_and_anchors_are_left_alone() {
        let _alone = crate::alone();
        let mut parent = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let roots = BTreeSet::from([parent.id()]);
        assert!(wait_for(|| proc::family(&roots).unwrap().len() == 2));
        let family = proc::family(&roots).unwrap();
        let child = family.into_iter().find(|process| *process != parent.id()).unwrap();
        let ledger = Ledger::create().unwrap();
        let freezer = Freezer::new(&roots, &|| true, &|_| true).noted(&ledger);
        assert!(stops(&freezer));
        assert_eq!(ledger.standing().collect::<Vec<_>>(), [child, parent.id()]);
        freezer.thaw();
        assert_eq!((ledger.standing().count(), freezer.ran()), (0, None));
        let freezer = Freezer::new(&roots, &|| true, &|_| true).but_for(BTreeSet::from([child]));
        assert!(wait_for(|| !proc::stands(parent.id()) && !proc::stands(child)));
        assert!(stops(&freezer));
        assert!(proc::stands(parent.id()) && !proc::stands(child));
        freezer.thaw();
        assert_eq!((ledger.standing().count(), freezer.ran()), (0, None));
        [child, parent.id()].into_iter().for_each(|it| Freezer::signal(it, Signal::KILL));
        parent.wait().unwrap();
    }

    fn sleeper() -> (std::process::Child, BTreeSet<u32>) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let roots = BTreeSet::from([child.id()]);
        sleep(Duration::from_millis(50));
        (child, roots)
    }

    /// Has everybody stand. A process that gets no processor in time is given up, and the product
    /// tries again later, too.
    fn stops(freezer: &Freezer<'_>) -> bool {
        (0..50).any(|_| freezer.freeze())
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        (0..60_000).any(|_| {
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
        let freezer = Freezer::new(&roots, &|| true, &|_| true);
        assert!(stops(&freezer));
        freezer.thaw();
        assert!(freezer.ran().is_none() && proc::stands(child.id()), "others stopped it");
        assert!(stops(&freezer));
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
            let freezer = Freezer::new(&roots, &|| true, &|_| true);
            assert!(stops(&freezer));
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

    /// A process that waits in the kernel until its child ends, and is stopped by nothing.
    fn unstoppable() -> (u32, BTreeSet<u32>) {
        // SAFETY: the children make system calls only, and end without coming back.
        let process = unsafe {
            let process = libc::fork();
            if process == 0 {
                let flags = i64::from(libc::CLONE_VFORK | libc::SIGCHLD);
                if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                    libc::sleep(60);
                }
                libc::_exit(0);
            }
            process
        };
        let roots = BTreeSet::from([process as u32]);
        assert!(wait_for(|| proc::family(&roots).unwrap().len() == 2));
        (process as u32, roots)
    }

    #[test]
    fn who_cannot_be_stopped_keeps_only_what_it_has() {
        let _alone = crate::alone();
        let (process, roots) = unstoppable();
        let has = Cell::new(true);
        let reaches = |who: u32| who == process && has.get();
        let freezer = Freezer::new(&roots, &|| true, &reaches);
        assert!(!freezer.freeze(), "it has the file, and runs");
        has.set(false);
        assert!(stops(&freezer) && !proc::stands(process));
        freezer.thaw();
        assert_eq!(freezer.ran(), None);
        assert!(stops(&freezer));
        has.set(true);
        freezer.thaw();
        assert_eq!(freezer.ran(), Some(process), "it came to have it meanwhile");
        let family = proc::family(&roots).unwrap();
        family.into_iter().for_each(|process| Freezer::signal(process, Signal::KILL));
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(process as i32, core::ptr::null_mut(), 0) };
    }
}
