//! What is guarded and how. Every policy is a value.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use holdfast_guard_wire::MOST_FILES;
use holdfast_mapped::{Folios, ProtectOptions};
pub use holdfast_pmem::track::ear::Hears;

use crate::drill::Drill;

/// Where the supervisor computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Wherever the system likes.
    #[default]
    Anywhere,
    /// On the processor of this number, which the program does not use.
    Own(u32),
    /// On the processor where the program ran last, so that no other one is disturbed.
    Same,
}

/// How a program is guarded.
#[derive(Debug, Clone)]
pub struct Options {
    /// The library that is loaded into programs.
    pub preload: PathBuf,
    /// Time between two passes.
    pub period: Duration,
    /// Periods of files of their own: those of the first pattern that fits.
    pub periods: Vec<(String, Duration)>,
    /// Files to protect that have no side file yet: patterns with `*` and `?`, held against the
    /// name, or against the whole path if they have a slash.
    pub globs: Vec<String>,
    /// How side files are made, and which stops redundancy is to survive.
    pub protect: ProtectOptions,
    /// Regions looked at after each pass; what is damaged is repaired. 0 is none.
    pub scrub_regions: u32,
    /// Pages damaged on purpose once a period, which have to come back; `None` is none.
    pub drill: Option<Drill>,
    /// Whether everything is looked at once more when the program is gone.
    pub final_scrub: bool,
    /// Whether what a program syncs is covered before the sync returns.
    pub cover_on_sync: bool,
    /// Where the supervisor computes.
    pub placement: Placement,
    /// Number of a signal to be passed on, 0 if there is none: to the program, or if that is gone,
    /// to all that it left behind. Taken back to 0 when it was.
    pub signal: Arc<AtomicUsize>,
    /// Told at once of each file that is not guarded although it should be, with the reason.
    pub told: fn(&std::path::Path, &str),
    /// Whether rings of the kernel's (`io_uring`, `aio`), by which a program writes unseen, are
    /// refused to it: they answer `ENOSYS`. No program it starts can gain rights then. Otherwise
    /// a program that asks for one has its files checked only.
    pub strict: bool,
    /// Programs and libraries, as patterns of their names, of which it is known that they make no
    /// system calls of their own that change a guarded file, though they look as if they could.
    /// Who names one that does is not protected from the guard any more.
    pub trusted: Vec<String>,
    /// How well to listen for strangers at the most, for tests of systems that permit less.
    pub hears: Hears,
    /// How long nobody has a file before it is let go of: closed, and its number free for another.
    pub release: Duration,
    /// Most files that are guarded at a time; 512 at most.
    pub most_files: u32,
    /// More environment for the program.
    pub environment: Vec<(String, String)>,
}

impl Options {
    /// With the library at `preload`, a pass each second, and files that have side files.
    #[must_use]
    pub fn new(preload: PathBuf) -> Self {
        // Single pages of the cache: a first store to a part of a large piece costs ten times more.
        let protect = ProtectOptions { folios: Folios::Small, ..ProtectOptions::default() };
        Self {
            preload,
            period: Duration::from_secs(1),
            periods: Vec::new(),
            globs: Vec::new(),
            protect,
            scrub_regions: 16,
            drill: None,
            final_scrub: true,
            cover_on_sync: true,
            placement: Placement::default(),
            signal: Arc::default(),
            told: |_, _| {},
            strict: false,
            // They have tables among their code.
            trusted: ["libcrypto.so*", "libgcrypt.so*"].map(str::to_owned).to_vec(),
            hears: Hears::Everybody,
            release: Duration::from_secs(10),
            most_files: MOST_FILES,
            environment: Vec::new(),
        }
    }
}
