//! Keeps redundancy of the files of an unmodified program: a supervisor.
//!
//! # Guarantee
//!
//! What a guarded program wrote or stored, and a pass covered, is found if it is damaged and given
//! back, also when the program was killed or replaced itself. A write that was not observed is
//! never repaired away: wherever one can have escaped, what differs is undecided, and a file that
//! somebody else writes to is checked only.
//!
//! Not covered: what the program loads before a scrub came by; what it writes through `io_uring`
//! or kernel `aio` (noticed: the file is checked only; [`Options::strict`] refuses them); the death
//! of the supervisor (later: undecided).
//! Repairs are put off, and what differs becomes undecided, where a write may have gone unnoticed:
//! a program that makes system calls without the C library, or a system that does not tell who
//! used a file. What nobody can notice is listed in `docs/design/unobserved.md`.
//!
//! # Picture
//!
//! ```text
//!   supervisor: Guard::launch --LD_PRELOAD--> program --fork--> child --exec--> program
//!      | serve.rs <---- requests ---------------|---------------|---------------|
//!      |                                      anchor          anchor          anchor
//!      | source.rs <-- page tables, through /proc, also of the dead ------------'
//!      |           <-- boards (slots, marks)
//!      v
//!   engine (holdfast-mapped): pass, scrub, repair ---> FILE.holdfast
//! ```
//!
//! # Vocabulary
//!
//! As in [`holdfast_guard_wire`]. *known*: a process whose writes are announced. *contested*:
//! somebody else writes to the file. *doubted*: somebody may have, and it is not known. *view*: a
//! mapping of a file in a space.
//!
//! # Life of a store
//!
//! 1. the program maps the file; the supervisor arms the pages before `mmap` returns
//! 2. it stores; the page's protection is lifted by the kernel
//! 3. a pass takes it from the page table, the program running or dead, and covers the page
//!
//! # Life of a repair
//!
//! 1. a scrub finds a page that differs and that nobody stored to
//! 2. all guarded processes are stopped, and it is checked that they stand; mappings, boards and
//!    strangers are looked at once more: any doubt, and they go on
//! 3. the page is replaced, and they go on
//!
//! # Life of a load that fails
//!
//! 1. the handler of the preloaded library asks; the page is judged, and repaired as above if it is
//!    damaged; content that nobody doubts is not touched
//! 2. the load is done again; if it still fails, the library maps the page anew
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `program.rs`, `inherit.rs` | what can be guarded; what a program is given |
//! | `serve.rs`, `spaces.rs` | the loop; requests, address spaces and their ends |
//! | `choose.rs`, `file.rs`, `sides.rs` | which files; one of them; its side file |
//! | `asks.rs`, `release.rs` | files on their way in and out |
//! | `lease.rs` | who has a file and cannot be seen |
//! | `file/heal.rs` | loads that met a media error |
//! | `anchors.rs` | who keeps the page tables of programs |
//! | `settling.rs` | programs that tell what they have of a file |
//! | `covers.rs` | passes, and what programs sync |
//! | `names.rs` | side files follow their data files |
//! | `source.rs`, `runs.rs` | who stored where |
//! | `foreign.rs`, `eyes.rs`, `proc.rs` | strangers, and what is heard of them |
//! | `freeze.rs` | standing still |
//! | `drill.rs` | damage done on purpose, which has to be undone |
//! | `schedule.rs`, `processors.rs` | when, and where |
//! | `code.rs`, `strict.rs` | programs that do without the C library; refusing rings |
//! | `tell.rs`, `traces.rs` | what others are told while it runs; what passes found |
//! | `options.rs`, `error.rs`, `summary.rs` | the rest |

mod anchors;
mod asks;
mod choose;
mod clock;
mod code;
mod covers;
mod drill;
mod error;
mod eyes;
mod file;
mod foreign;
mod freeze;
mod handing;
mod inherit;
mod lease;
mod names;
mod options;
mod proc;
mod processors;
mod program;
mod release;
mod runs;
mod schedule;
mod serve;
mod settling;
mod sides;
mod source;
mod spaces;
mod strict;
mod summary;
mod tell;
mod traces;

pub use choose::side_of;
pub use drill::{Drill, Drilled};
pub use error::Error;
pub use options::{Hears, Options, Placement};
pub use serve::Guard;
pub use source::Seen;
pub use summary::{FileReport, Summary};

/// Does something in a process of its own, as the test of this full name there.
#[cfg(test)]
fn in_a_process_of_its_own(test: &str, work: impl FnOnce()) {
    const STORY: &str = "GUARD_STORY";
    if std::env::var_os(STORY).is_some() {
        return work();
    }
    let _alone = alone();
    let me = std::fs::read_link("/proc/self/exe").unwrap();
    let mut again = std::process::Command::new(me);
    assert!(again.args(["--exact", test]).env(STORY, "").status().unwrap().success(), "{test}");
}

/// Leaves this process no handle to open anything with, as long as the answer lives.
#[cfg(test)]
fn without_handles() -> Vec<std::fs::File> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: a setting of this process, which is that of one test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// Held by tests that make processes, and by those that look who has a file: a new process has
/// for a moment all that this one has open.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
