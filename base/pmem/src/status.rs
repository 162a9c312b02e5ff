//! What is in force for a mapping, for people and programs that ask.

use core::fmt;

use crate::badblocks::PersistenceDomain;
use crate::cpu::Cpu;
use crate::medium::MediumKind;
use crate::options::{Access, Protection};

/// The facts of one mapping at one moment. The guarantee that is in force is stated, never
/// assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// What lies behind.
    pub kind: MediumKind,
    /// The file system's name.
    pub file_system: &'static str,
    /// How it was opened.
    pub access: Access,
    /// What survives a power cut without a flush (direct access only).
    pub domain: PersistenceDomain,
    /// What the CPU offers.
    pub cpu: Cpu,
    /// Whether stores are flushed.
    pub flushes: bool,
    /// Protection against stray stores.
    pub protection: Protection,
    /// Bytes of the medium.
    pub len: u64,
    /// Bytes up to which it can grow without being reopened.
    pub reserved: u64,
    /// Relocated ranges.
    pub relocated: usize,
    /// Whether a write or sync has failed, after which none is done any more.
    pub failed: bool,
}

impl Status {
    /// What a commit survives on this medium, in words.
    #[must_use]
    pub fn survives(&self) -> &'static str {
        match (self.access, self.kind) {
            (Access::PrivateCopy, _) => "nothing: changes are private to this process",
            (_, MediumKind::Dax | MediumKind::File) => "power cut",
            (_, MediumKind::Shm) => "process crash only",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, file_system, cpu, protection, len, reserved, .. } = self;
        writeln!(f, "medium      {kind} ({file_system}), {len} bytes, may grow to {reserved}")?;
        writeln!(f, "survives    {}", self.survives())?;
        let flush = match (self.flushes, kind) {
            (true, _) => "lines are flushed",
            (false, MediumKind::Dax) => "not flushed: the platform's caches are persistent",
            (false, _) => "not flushed: made durable by writes and syncs of the file",
        };
        writeln!(f, "stores      {cpu}; {flush}")?;
        write!(f, "protection  {protection}")?;
        if self.relocated > 0 {
            write!(f, "\nrelocated   {} ranges", self.relocated)?;
        }
        if self.failed {
            f.write_str("\nfailed      a write or sync failed; nothing is written any more")?;
        }
        Ok(())
    }
}
