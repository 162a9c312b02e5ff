//! What is guarded and how. Every policy is a value.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_mapped::{Folios, ProtectOptions};
pub use holdfast_pmem::track::ear::Hears;

/// How a program is guarded.
#[derive(Debug, Clone)]
pub struct Options {
    /// The library that is loaded into programs.
    pub preload: PathBuf,
    /// Time between two passes.
    pub period: Duration,
    /// Files to protect that have no side file yet: patterns with `*` and `?`, held against the
    /// name, or against the whole path if they have a slash.
    pub globs: Vec<String>,
    /// How side files are made, and which stops redundancy is to survive.
    pub protect: ProtectOptions,
    /// Regions looked at after each pass; what is damaged is repaired. 0 is none.
    pub scrub_regions: u32,
    /// Whether everything is looked at once more when the program is gone.
    pub final_scrub: bool,
    /// Whether what a program syncs is covered before the sync returns.
    pub cover_on_sync: bool,
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
            globs: Vec::new(),
            protect,
            scrub_regions: 16,
            final_scrub: true,
            cover_on_sync: true,
            strict: false,
            // They have tables among their code.
            trusted: ["libcrypto.so*", "libgcrypt.so*"].map(str::to_owned).to_vec(),
            hears: Hears::Everybody,
            environment: Vec::new(),
        }
    }
}
