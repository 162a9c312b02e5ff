//! What a forked child must know: that its parent's mappings are not its own.
//!
//! The views are excluded from inheritance, so a child can neither read nor damage the pool. Two
//! things follow. First, code above must be able to ask cheaply whether it runs in such a child:
//! one page, wiped by the kernel at fork, holds the number of the process generation; a mapping
//! remembers the number it was made under. Second, the holes left in the child's address space
//! must not be handed to its allocator, or a library access through an inherited handle would hit
//! foreign bytes: a fork hook fills them with inaccessible pages, so that such an access answers
//! an error.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::io;
use std::sync::Once;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::call::ask;
use crate::medium::PAGE;
use crate::registry;
use crate::track;

/// Address of the page that a fork wipes; 0 before the first use.
static FLAG: AtomicUsize = AtomicUsize::new(0);
/// The last process generation given out, counted in ordinary (inherited) memory.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The process generation under which something was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    flag: &'static AtomicU64,
    mine: u64,
}

impl Stamp {
    /// The present generation; begins one where the page is wiped.
    pub(crate) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        let flag = flag_page()?;
        HOOK.call_once(|| {
            // SAFETY: the hook stores to atomics, and calls only mmap, on ranges that the fork has
            // just emptied.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let mut mine = flag.load(Ordering::Relaxed);
        if mine == 0 {
            let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            // Another thread may be first; then its number holds.
            mine = match flag.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => next,
                Err(theirs) => theirs,
            };
        }
        Ok(Self { flag, mine })
    }

    /// Whether this process is a forked child of the one that took the stamp.
    #[inline(always)]
    pub(crate) fn forked(self) -> bool {
        self.flag.load(Ordering::Relaxed) != self.mine
    }

    /// The generation as a number, for the registry.
    pub(crate) fn number(self) -> u64 {
        self.mine
    }
}

/// The present generation, or 0 in a child that has opened nothing. Async-signal-safe.
pub(crate) fn generation() -> u64 {
    let address = FLAG.load(Ordering::Acquire);
    if address == 0 {
        return 0;
    }
    // SAFETY: a published address is that of a page that is never unmapped.
    unsafe { &*(address as *const AtomicU64) }.load(Ordering::Relaxed)
}

fn flag_page() -> io::Result<&'static AtomicU64> {
    let mut address = FLAG.load(Ordering::Acquire);
    if address == 0 {
        let page = PAGE as usize;
        ask("mmap", Errno::NOMEM)?;
        // SAFETY: a new anonymous page; nothing is replaced.
        let fresh = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        // SAFETY: the page mapped above, not yet shown to anyone.
        unsafe { madvise(fresh, page, Advice::LinuxWipeOnFork)? };
        address = fresh as usize;
        if let Err(theirs) = FLAG.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: another thread was first, so nobody knows our page.
            unsafe { munmap(fresh, page)? };
            address = theirs;
        }
    }
    // SAFETY: the address of a zeroed, page-aligned, readable and writable page that stays mapped.
    Ok(unsafe { &*(address as *const AtomicU64) })
}

/// Runs in the child, before `fork` returns there.
extern "C" fn in_child() {
    track::begin_child();
    track::bar::begin_child();
    registry::for_each_mapped(|address, len| {
        // SAFETY: the range held a view that the child did not inherit; `FIXED_NOREPLACE` makes
        // the call fail rather than replace anything that is there now.
        let _ = unsafe {
            mmap_anonymous(
                address as *mut _,
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE,
            )
        };
    });
}
