//! The thread that gives back what loads of the program could not have.
//!
//! | step | meanwhile, or then |
//! |---|---|
//! | 1 a load meets a page that cannot be read | its thread waits in the handler |
//! | 2 the engine judges the page, as a scrub does | good, or damaged, or in doubt |
//! | 3 our own writes are kept out; stores to this page are held up ([`Bar`]) | others go on |
//! | 4 the page is rebuilt, and replaced in the file | stores go on |
//! | 5 what the program has mapped there cannot be read yet | it is mapped anew, and armed |
//! | 6 the load is repeated | |
//!
//! Threads of the program are not stopped for it ([`ProtectOptions::writers`] is not asked): one
//! that waits in a handler could not be. To a page that nobody can read nobody can store; should
//! it become readable by itself meanwhile, a store waits at the bar or is known to the source, and
//! then nothing is replaced. In doubt the program gets the signal, as without us. Where the memory
//! itself failed, what was stored there since it was covered is gone, although the page can be read
//! again: it is in doubt then.
//!
//! [`ProtectOptions::writers`]: crate::protect::ProtectOptions::writers

use core::time::Duration;
use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use holdfast_mapped::{LoadFault, Mended, Writers};
use holdfast_pmem::call::start_thread;
use holdfast_pmem::track::{Bar, DirtySource};
use holdfast_pmem::{Fault, Mapped as Mapping, Medium, PAGE, Verdict};

use crate::error::Result;
use crate::protect::live::Shared;

/// How long it waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The thread of one mapped file.
#[derive(Debug)]
pub(crate) struct Healer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Healer {
    /// Starts the thread, where the program has addresses to load from.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<Self>> {
        let Some(mapping) = shared.window() else { return Ok(None) };
        let mailbox = mapping.faults();
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, weak) = (Arc::clone(&stop), Arc::downgrade(shared));
        let thread = start_thread("holdfast-heal", move || {
            while !ended.load(Ordering::Acquire) {
                let Some(fault) = mailbox.wait(LOOK) else { continue };
                let healed = heal(&weak, fault);
                mailbox.answer(fault, if healed { Verdict::Healed } else { Verdict::Lost });
            }
        })?;
        Ok(Some(Self { stop, thread }))
    }

    /// Ends the thread: loads that meet a media error from now on are the program's affair.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // One that panicked has given back nothing, and its mailbox is gone.
        let _ = self.thread.join();
    }
}

fn heal(weak: &Weak<Shared>, fault: Fault) -> bool {
    let Some(shared) = weak.upgrade() else { return false };
    let Some(mapping) = shared.window() else { return false };
    let end = fault.at.saturating_add(fault.len).min(mapping.len());
    let met = |fault: Fault| match fault.memory_age_ns() {
        Some(age_ns) => LoadFault::Memory { age_ns },
        None => LoadFault::Unread,
    };
    // All of them: of memory that failed, each page may have lost what was stored there.
    let pages = fault.at / PAGE..end / PAGE;
    pages.fold(true, |all, page| match shared.heal_page(mapping, page, met(fault)) {
        Ok(healed) => all && healed,
        Err(error) => {
            shared.note(&error);
            false
        }
    })
}

impl Shared {
    fn heal_page(&self, mapping: &Mapping, page: u64, met: LoadFault) -> Result<bool> {
        let listens = self.listen();
        if let (Err(_), LoadFault::Memory { .. }) = (&listens, met) {
            let doubted = self.engine().doubt_load(page);
            doubted.map_err(|error| self.explain(&error))?;
        }
        listens?;
        let quiet = HeldUp { shared: self, at: page * PAGE, bar: RefCell::default() };
        let mended = self.engine().heal_load(page, met, &quiet);
        let mended = mended.map_err(|error| self.explain(&error))?;
        let given = matches!(mended, Mended::Good | Mended::Repaired);
        Ok(given && self.show(mapping, page * PAGE))
    }

    /// Has the mapping show a page of the file that is right; whether it does.
    fn show(&self, mapping: &Mapping, at: u64) -> bool {
        let reads = || mapping.read(at, &mut [0]).is_ok();
        if reads() {
            return true;
        }
        // What was stored to was told when the page was judged. From here on, it counts as stored
        // to until a pass has looked.
        let anew = mapping.remap(at, at, PAGE).is_ok();
        anew && self.engine().source().arm(at, PAGE).is_ok() && reads()
    }
}

/// Nobody stores to one page.
struct HeldUp<'a> {
    shared: &'a Shared,
    at: u64,
    bar: RefCell<Option<Bar>>,
}

impl Writers for HeldUp<'_> {
    fn freeze(&self) -> bool {
        // The gate first: who is inside may be about to store to this page.
        if !self.shared.close_gate() {
            return false;
        }
        *self.bar.borrow_mut() = self.shared.engine().source().bar(self.at);
        if self.bar.borrow().is_some() && self.shared.is_alone() {
            return true;
        }
        self.thaw();
        false
    }

    fn thaw(&self) {
        *self.bar.borrow_mut() = None;
        self.shared.open_gate();
    }
}
