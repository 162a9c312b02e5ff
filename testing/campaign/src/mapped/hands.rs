//! A program's own hands on a file that it has mapped: loads and stores by address. One that is
//! refused, because nobody could give the page back, is noted and left out; its program goes on.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_int;
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use holdfast_pmem::PAGE;

use super::ward::WORD;

/// Pages that can be told apart.
pub const MOST: u64 = 64;

/// Where the mapping is that is looked after, one at a time, and pages of it that were refused.
static BASE: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Where this thread goes on if its access is refused; 0 outside of one.
    static AFTER: Cell<usize> = const { Cell::new(0) };
}

/// The mapping.
#[derive(Debug, Clone, Copy)]
pub struct Hands {
    base: usize,
    words: u64,
}

impl Hands {
    /// Installs this program's own handler, as programs do that have one: before anybody else's.
    ///
    /// # Errors
    /// The system's.
    #[allow(unsafe_code, reason = "a program that hears of media errors has a signal handler")]
    pub fn begin() -> io::Result<()> {
        static INSTALLED: Once = Once::new();
        let mut done = Ok(());
        INSTALLED.call_once(|| {
            // SAFETY: all zeros is a valid action; the handler has the signature its flag says.
            let result = unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = refuse as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGBUS, &raw const action, core::ptr::null_mut())
            };
            if result != 0 {
                done = Err(io::Error::last_os_error());
            }
        });
        done
    }

    /// Hands on a mapping of so many bytes, which outlives all use of them.
    #[must_use]
    pub fn on((address, len): (*mut u8, u64)) -> Self {
        let base = address.expose_provenance();
        REFUSED.store(0, Ordering::SeqCst);
        BASE.store(base, Ordering::SeqCst);
        Self { base, words: len / WORD }
    }

    /// What a word is; zero if it is refused.
    #[allow(unsafe_code, reason = "what a program loads from its file is what is tested")]
    #[must_use]
    pub fn load(self, word: u64) -> u64 {
        let at = self.address(word);
        let mut value: u64 = 0;
        let after = AFTER.with(Cell::as_ptr);
        // SAFETY: `at` is an aligned word inside the mapping, which outlives this value; `after` is
        // this thread's own. The handler goes on behind the load, which then has done nothing.
        unsafe {
            asm!(
                "lea {label}, [rip + 2f]",
                "mov [{after}], {label}",
                "mov {value}, [{at}]",
                "2:",
                "mov qword ptr [{after}], 0",
                label = out(reg) _,
                after = in(reg) after,
                at = in(reg) at,
                value = inout(reg) value,
            );
        }
        value
    }

    /// Stores a word, unless that is refused.
    #[allow(unsafe_code, reason = "what a program stores to its file is what is tested")]
    pub fn store(self, word: u64, value: u64) {
        let at = self.address(word);
        let after = AFTER.with(Cell::as_ptr);
        // SAFETY: as above, of a store.
        unsafe {
            asm!(
                "lea {label}, [rip + 2f]",
                "mov [{after}], {label}",
                "mov [{at}], {value}",
                "2:",
                "mov qword ptr [{after}], 0",
                label = out(reg) _, after = in(reg) after, at = in(reg) at, value = in(reg) value,
            );
        }
    }

    /// Has the kernel report to this thread that the memory of a page has failed, in the middle of
    /// the call. If that is refused, because nobody gives the page back, it is noted.
    ///
    /// # Errors
    /// The kernel does not do that, or not for us.
    #[allow(unsafe_code, reason = "a signal in the middle of a call is what is tested")]
    pub fn strike(self, page: u64) -> io::Result<()> {
        let at = self.address(page * PAGE / WORD);
        let mut done = libc::SYS_madvise;
        let after = AFTER.with(Cell::as_ptr);
        // SAFETY: as above, of a call that changes no byte; the signal comes before it returns.
        unsafe {
            asm!(
                "lea {label}, [rip + 2f]",
                "mov [{after}], {label}",
                "syscall",
                "2:",
                "mov qword ptr [{after}], 0",
                label = out(reg) _,
                after = in(reg) after,
                inout("rax") done,
                in("rdi") at,
                in("rsi") PAGE,
                in("rdx") i64::from(libc::MADV_HWPOISON),
                out("rcx") _,
                out("r11") _,
            );
        }
        i32::try_from(-done).map_or(Ok(()), |code| match code {
            1.. => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(()),
        })
    }

    fn address(self, word: u64) -> usize {
        assert!(word < self.words, "inside the mapping");
        self.base + (word * WORD) as usize
    }

    /// Whether an access to this page was refused.
    #[must_use]
    pub fn was_refused(self, page: u64) -> bool {
        REFUSED.load(Ordering::SeqCst) >> (page % MOST) & 1 != 0
    }
}

/// The program's own handler: notes the page, and goes on behind the access.
#[allow(unsafe_code, reason = "a signal handler")]
extern "C" fn refuse(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: what the kernel hands to a handler of this kind.
    let (at, registers) =
        unsafe { ((*info).si_addr() as usize, &mut (*context).uc_mcontext.gregs) };
    let page = at.wrapping_sub(BASE.load(Ordering::SeqCst)) as u64 / PAGE;
    let after = AFTER.get();
    if after == 0 || page >= MOST {
        // SAFETY: async-signal-safe; the access is repeated, and ends the program.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    REFUSED.fetch_or(1 << page, Ordering::SeqCst);
    registers[libc::REG_RIP as usize] = after as i64;
}
