//! Maps, stores, flushes, fences and protects byte-addressable files.

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!("holdfast-pmem knows 64-bit little-endian x86 Linux only: offsets are 64 bits wide, \
                and flushes, fences and the fault handler are written for that machine");

mod asm;
mod badblocks;
mod clock;
pub mod cpu;
mod error;
mod faults;
mod file;
mod fork;
mod frames;
mod handler;
pub mod inject;
mod keys;
mod mapped;
pub mod medium;
mod options;
mod registry;
pub mod site;
mod space;
mod status;

pub use badblocks::PersistenceDomain;
pub use clock::{Clock, SystemClock};
pub use cpu::Cpu;
pub use error::OpenError;
pub use faults::FaultMailbox;
pub use mapped::Mapped;
pub use medium::{LINE, MediaCause, MediaError, Medium, MediumKind, PAGE, SyncError};
pub use options::{Access, Durability, Options, Protect, Protection};
pub use registry::{Fault, Verdict};
pub use site::Site;
pub use status::Status;
