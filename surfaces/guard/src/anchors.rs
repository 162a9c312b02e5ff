//! The processes that keep the page tables of programs (`surfaces/preload/src/anchor.rs`), as long
//! as they live: the number of one that is gone may be anybody's.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::handing::is_over;
use crate::proc;

/// The anchor of a program.
#[derive(Debug)]
pub(crate) struct Anchor {
    number: u32,
    /// Readable when it is gone.
    end: OwnedFd,
}

impl Anchor {
    /// The process that a program says is its anchor. `None` if it is gone, or has other memory
    /// than the program: then it is somebody else.
    pub(crate) fn of(number: u32, program: u32) -> Option<Self> {
        let process = i32::try_from(number).ok().and_then(Pid::from_raw)?;
        let end = pidfd_open(process, PidfdFlags::empty()).ok()?;
        // Asked once it is held by more than its number.
        let other = proc::has_other_memory(number, program);
        (!other && !is_over(&end)).then_some(Self { number, end })
    }

    /// Its process; `None` once that is gone.
    pub(crate) fn process(&self) -> Option<u32> {
        (!is_over(&self.end)).then_some(self.number)
    }

    /// The number that it has, or had.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use core::ffi::{c_int, c_void};

    extern "C" fn waits(_: *mut c_void) -> c_int {
        loop {
            // SAFETY: waits for a signal; it is ended by one.
            unsafe { libc::syscall(libc::SYS_pause) };
        }
    }

    /// A child that has the memory of this process, as an anchor has that of its program.
    pub(crate) fn child() -> u32 {
        let stack = Box::leak(Box::new([0_u8; 16 << 10]));
        let top = stack.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        // SAFETY: the child runs on a stack that nobody else uses, and does nothing but wait.
        let child = unsafe { libc::clone(waits, top, flags, core::ptr::null_mut()) };
        u32::try_from(child).unwrap()
    }

    pub(crate) fn end(child: u32) {
        // SAFETY: a signal to a child of this process, and a wait for its end.
        unsafe {
            libc::kill(child as i32, libc::SIGKILL);
            libc::waitpid(child as i32, core::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn an_anchor_that_is_gone_is_nobody() {
        let _alone = crate::alone();
        let (me, process) = (std::process::id(), child());
        let anchor = Anchor::of(process, me).unwrap();
        assert_eq!((anchor.process(), anchor.number()), (Some(process), process));
        end(process);
        assert_eq!((anchor.process(), anchor.number()), (None, process));
        assert!(Anchor::of(process, me).is_none());
    }

    #[test]
    fn whoever_has_other_memory_is_no_anchor() {
        let _alone = crate::alone();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = Anchor::of(other.id(), std::process::id());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(found.is_none());
    }
}
