//! What is guarded and how. Every policy is a value.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdfast_guard_wire::MOST_FILES;
use holdfast_guard_wire::link::PATIENCE;
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
    /// How side files are made, in stripes of how many pages and how much parity, and which stops
    /// redundancy is to survive.
    pub protect: ProtectOptions,
    /// Bytes of all files that passes cover in a second at the most, so that a pass over much is
    /// spread over time; `None` is no limit. Nobody who syncs waits for that, nor does the end.
    pub pace: Option<u64>,
    /// Regions looked at after each pass; what is damaged is repaired. 0 is none.
    pub scrub_regions: u32,
    /// Pages damaged on purpose once a period, which have to come back; `None` is none.
    pub drill: Option<Drill>,
    /// A folder, which is there, for a trace of each file: which pages each pass found stored to.
    pub trace: Option<PathBuf>,
    /// Whether everything is looked at once more when the program is gone.
    pub final_scrub: bool,
    /// Whether what a program syncs is covered before the sync returns.
    pub cover_on_sync: bool,
    /// Where the supervisor computes.
    pub placement: Placement,
    /// Signals by their numbers, and whether one of them is to be passed on: to the program, or if
    /// that is gone, to all that it left behind. Taken back when it was.
    pub signals: Vec<(i32, Arc<AtomicBool>)>,
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
    /// Most files that are guarded at a time; 250 at most, since their side files are mapped. Those
    /// that nobody has are let go of earlier than `release` says when others want to be guarded.
    pub most_files: u32,
    /// How long programs wait for an answer; less is for tests, in which they wait no longer.
    pub patience: Duration,
    /// How much longer than it does anyway it takes to look who has a file, to look at one for the
    /// last time, and to sync one, for tests.
    pub slow: Duration,
    /// Whether this process has no children but those of the guard. Then it waits for all that it
    /// adopts: what a guarded program leaves behind, and what never says who it is. Otherwise those
    /// that never do are nobody's to wait for until this process ends.
    pub only_guards: bool,
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
            pace: None,
            scrub_regions: 16,
            drill: None,
            trace: None,
            final_scrub: true,
            cover_on_sync: true,
            placement: Placement::default(),
            signals: Vec::new(),
            told: |_, _| {},
            strict: false,
            // They have tables among their code.
            trusted: ["libcrypto.so*", "libgcrypt.so*"].map(str::to_owned).to_vec(),
            hears: Hears::Everybody,
            release: Duration::from_secs(10),
            most_files: MOST_FILES,
            patience: PATIENCE,
            slow: Duration::ZERO,
            only_guards: false,
            environment: Vec::new(),
        }
    }
}
