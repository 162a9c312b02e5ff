//! Maps, stores, flushes, fences and protects byte-addressable files, and turns their media errors
//! into results: everything that knows the machine.
//!
//! # Guarantee
//!
//! After [`Medium::drain`] (direct access, shared memory) or [`Medium::append`] and
//! [`Medium::sync`] (ordinary files) have returned, what this thread stored before survives what
//! [`Status::survives`] says. A write or sync of the file that failed is never tried again. No
//! access of the library ends the process: a bad page, a file that was cut off and a range outside
//! the pool are error values. No access of a read-only or private mapping changes the file, and
//! one process writes to it at a time.
//!
//! Not covered: the program's own system calls on pool memory (`read` into it, `write` from it)
//! fail with `EFAULT` instead of being healed; a store by the program that guesses the address of
//! the hidden alias; programs that ignore the advisory lock; a program that installs its own
//! `SIGBUS` handler later and does not pass on what is not its.
//!
//! # Picture
//!
//! ```text
//!       program                 layers above, through trait Medium
//!          | loads                | read put xor zero   | append sync    | heal remap grow
//!          v                      v                     |                |
//!   view (read-only) ..... alias (writable, hidden)     |                |
//!          \_________ mmap _______/                     v                v
//!                       |  <------- pwritev2(DSYNC), fdatasync, pwrite + mmap, fallocate
//!                    one file
//!
//!   bad page -> SIGBUS -> handler: a routine of ours goes to its error exit -> Err(MediaError)
//!                                  a load of the program waits for the repair thread, then repeats
//!                                  anything else goes to the handler that was there before
//! ```
//!
//! # Vocabulary
//!
//! *flush*: send a line towards the medium, without order. *drain*: wait until all this thread
//! flushed is there. *view*: where the program may look. *alias*: where the library stores.
//! *poison*: a page the platform refuses. *heal*: rewrite a page in place and have it back.
//! *frame*: pages that move together; *remap*: serve a frame from another place of the file.
//! *mailbox*: where a repair thread hears of loads that wait. *site*: the name of one call that
//! persistence or integrity hangs on.
//!
//! # Life of a store
//!
//! 1. [`Medium::begin_write`] opens the write protection for this thread, if it has a gate.
//! 2. [`Medium::put`] checks the range, then one routine stores whole words and lines and flushes
//!    each line once: `clwb`, else `clflushopt`, else `clflush`; long runs go around the cache;
//!    nothing is flushed on an ordinary file or where caches survive a power cut.
//! 3. [`Medium::drain`] is the one fence (`sfence`). Durable from here on, and in order with what
//!    comes after; on an ordinary file the fence is the sync inside [`Medium::append`] or
//!    [`Medium::sync`].
//! 4. [`Medium::end_write`] closes the gate.
//!
//! # After a crash
//!
//! This crate keeps nothing on the medium: the layers above find what the drains and syncs left.
//! The lock ends when the medium is closed; if the process dies instead, with the last child it
//! forked.
//!
//! # Tour
//!
//! - [`medium`]: the contract. [`Mapped`]: its real form, with `mapped/serve.rs` for loads and
//!   stores and `mapped/repair.rs` for bad pages.
//! - `space.rs`: views, gates and bounds. `asm.rs`: the routines that touch the mapping.
//! - `handler.rs`, `registry.rs`: what a signal meets. [`FaultMailbox`]: its other end.
//! - `file.rs`: creating, locking, syncing. `frames.rs`: relocated frames. `badblocks.rs`: what
//!   sysfs tells. `fork.rs`: what a child may do. `keys.rs`: protection keys.
//! - [`ForeignFile`]: a medium over a file of somebody else's, by system calls. [`Making`]: a file
//!   that has another name until it is whole. [`PutAside`]: one that has it again before it goes.
//! - [`cpu`]: which instructions. [`inject`]: real media errors on purpose. [`Clock`]: time as a
//!   parameter. [`Table`]: DRAM on large pages.
//! - [`desk`]: a local socket by which whoever keeps a file tells others about it.
//! - [`track`]: who stored to which pages of a mapped file, by five means, and how sure that is.

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!(
    "holdfast-pmem knows 64-bit little-endian x86 Linux only: offsets are 64 bits wide, \
                and flushes, fences and the fault handler are written for that machine"
);

mod asm;
mod badblocks;
pub mod call;
mod clock;
pub mod cpu;
mod dated;
pub mod desk;
mod error;
mod faults;
mod file;
mod foreign;
mod fork;
mod frames;
mod handler;
pub mod inject;
mod keys;
mod making;
mod mapped;
pub mod medium;
#[cfg(loom)]
pub mod modelled;
mod options;
mod registry;
pub mod site;
mod space;
mod status;
#[cfg_attr(any(loom, shuttle), path = "table_in_model.rs")]
mod table;
pub mod track;

pub use badblocks::PersistenceDomain;
pub use clock::{Clock, SystemClock};
pub use cpu::{Cpu, claim};
pub use error::OpenError;
pub use faults::FaultMailbox;
pub use foreign::{Alone, ForeignFile, Lease, Ours};
pub use making::{Making, PutAside, Room};
pub use mapped::Mapped;
pub use medium::{
    LINE, MediaCause, MediaError, Medium, MediumKind, PAGE, PUT_CACHED_MAX, SyncError,
};
pub use options::{Access, Durability, Options, Protect, Protection};
pub use registry::{Fault, MAPPINGS, Verdict};
pub use site::Site;
pub use status::Status;
pub use table::Table;
