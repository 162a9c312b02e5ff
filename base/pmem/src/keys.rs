//! Protection keys: a page tagged with a key can be written only by a thread that has opened it.
//!
//! The process takes one key and keeps it: the kernel does not reset the rights that other threads
//! hold for a key that is given back, so a second owner could find it open.
//!
//! A thread's rights live in a register. Threads begin with those of their parent, or with no
//! access at all; a signal handler begins with no access, and returning from it restores what was
//! there, so handlers of this crate need not touch it.

use core::arch::asm;
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::call;
use crate::cpu::Cpu;

/// The key of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    number: u32,
}

/// Rights of one thread, as the register holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights(u32);

/// Both bits of a key: access disabled, write disabled.
const CLOSED: u32 = 0b11;

impl Key {
    /// The process' key, or `None` where CPU, kernel or a full table deny one.
    pub(crate) fn get() -> Option<Self> {
        static KEY: OnceLock<Option<Key>> = OnceLock::new();
        *KEY.get_or_init(|| {
            if !Cpu::detect().protection_keys {
                return None;
            }
            // SAFETY: allocates a number; no memory is involved.
            let number = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0_usize, CLOSED as usize) };
            u32::try_from(number).ok().map(|number| Self { number })
        })
    }

    /// Tags `[address, address + len)` and makes it readable and writable for whoever opens it.
    ///
    /// # Safety
    /// The range is a mapping of the caller's, and no reference to it exists.
    pub(crate) unsafe fn tag(self, address: usize, len: usize) -> std::io::Result<()> {
        call::ask("pkey_mprotect", Errno::NOMEM)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller owns the range.
        let done = unsafe {
            libc::syscall(
                libc::SYS_pkey_mprotect,
                address,
                len,
                rights as usize,
                self.number as usize,
            )
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Opens the key for this thread; returns the rights before. Two register moves where it was
    /// open already.
    #[inline]
    pub(crate) fn open(self) -> Rights {
        let before = read();
        let open = before & !(CLOSED << (2 * self.number));
        if open != before {
            write(open);
        }
        Rights(before)
    }

    /// Closes the key for this thread.
    #[inline]
    pub(crate) fn close(self) {
        write(read() | (CLOSED << (2 * self.number)));
    }
}

impl Rights {
    /// Gives this thread these rights again.
    #[inline]
    pub(crate) fn restore(self) {
        if read() != self.0 {
            write(self.0);
        }
    }
}

/// Reads the rights register. Called only with a [`Key`] at hand, so the system has it.
#[inline]
fn read() -> u32 {
    let rights: u32;
    // SAFETY: rdpkru wants ecx = 0 and writes eax and edx; a key exists, so it is not refused.
    unsafe {
        asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _,
             options(nomem, nostack, preserves_flags));
    }
    rights
}

/// Writes the rights register; accesses before it keep the old rights, accesses after it have the
/// new ones.
#[inline]
fn write(rights: u32) {
    // SAFETY: wrpkru wants ecx = edx = 0; a key exists, so it is not refused. The rights of other
    // keys are those read before. Without `nomem` it is also a barrier to the compiler.
    unsafe {
        asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0,
             options(nostack, preserves_flags));
    }
}
