//! The processor's counters of cache misses and instructions, where the machine lets one read them:
//! many virtual ones do not.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// What is counted: a name and the kernel's number for it among those of the hardware.
const EVENTS: [(&str, u64); 2] = [("cache misses", 3), ("instructions", 1)];
/// Events of the hardware, as the kernel numbers kinds.
const HARDWARE: u32 = 0;
/// Neither the kernel's nor the hypervisor's doing.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// The file is closed in programs that this one starts.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// The first version of the kernel's `perf_event_attr`, which all later ones take.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    event: u64,
    period: u64,
    sample: u64,
    format: u64,
    flags: u64,
    wake_up: u32,
    breakpoint: u32,
    address: u64,
}

/// Counters of this thread.
pub(crate) struct Counters([File; EVENTS.len()]);

impl Counters {
    /// Begins to count.
    ///
    /// # Errors
    /// The machine has no such counters, or the kernel does not let this user read them.
    pub(crate) fn open() -> io::Result<Self> {
        let [misses, instructions] = EVENTS.map(|(_, event)| one(HARDWARE, event));
        Ok(Self([misses?, instructions?]))
    }

    /// What happened in `work`, by name.
    ///
    /// # Errors
    /// Those of `work`, or a counter cannot be read.
    pub(crate) fn count(
        &mut self,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<[(&'static str, u64); EVENTS.len()]> {
        let before = self.read()?;
        work()?;
        let after = self.read()?;
        let mut counted = EVENTS.map(|(name, _)| (name, 0));
        for ((counted, after), before) in counted.iter_mut().zip(after).zip(before) {
            counted.1 = after - before;
        }
        Ok(counted)
    }

    fn read(&mut self) -> io::Result<[u64; EVENTS.len()]> {
        let mut values = [0; EVENTS.len()];
        for (file, value) in self.0.iter_mut().zip(&mut values) {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes)?;
            // The steps are measured on x86-64 only.
            *value = u64::from_le_bytes(bytes);
        }
        Ok(values)
    }
}

fn one(kind: u32, event: u64) -> io::Result<File> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        event,
        period: 0,
        sample: 0,
        format: 0,
        flags: USER_ONLY,
        wake_up: 0,
        breakpoint: 0,
        address: 0,
    };
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the kernel reads as many bytes of the structure as its size says, and changes no
    // memory of this process.
    let file = unsafe {
        let at = &raw const attributes;
        libc::syscall(libc::SYS_perf_event_open, at, this_thread, any_cpu, no_group, CLOSE_ON_EXEC)
    };
    match i32::try_from(file) {
        // SAFETY: the kernel opened it just now, and nobody else knows of it.
        Ok(file @ 0..) => Ok(unsafe { File::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_belongs_to_the_work() {
        // The kernel's own clock of the thread is there without counters in the processor, too,
        // unless nobody may read any.
        const SOFTWARE: u32 = 1;
        const CLOCK: u64 = 1;
        let (Ok(a), Ok(b)) = (one(SOFTWARE, CLOCK), one(SOFTWARE, CLOCK)) else {
            return println!("skipped: this user may read no counters");
        };
        let mut counters = Counters([a, b]);
        let mut spin = |times: u64| {
            let work = || {
                (0..times).for_each(|i| _ = std::hint::black_box(i));
                Ok(())
            };
            counters.count(work).unwrap()[0].1
        };
        let (short, long) = (spin(1), spin(10_000_000));
        assert!(long > 10 * short.max(1), "{short} and {long} ns");
    }
}
