//! How a file is protected. Every policy is a value.

use core::fmt;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_mapped::{
    Durability, Folios, Keep, OpenOptions, ProtectOptions as EngineOptions, Rearm, Writers,
};

use crate::error::Result;
use crate::options::random_uuid;
use crate::protect::side::side_path;
use crate::protect::source::Tracking;

/// Pages that are covered at once where there is a pace.
const STEP: u32 = 256;
/// Names the machine's present run.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// How a file is protected and opened. What is not set is as in the manual.
#[derive(Clone)]
pub struct ProtectOptions {
    pub(crate) data: u32,
    pub(crate) parity: u32,
    pub(crate) folios: Folios,
    pub(crate) durability: Durability,
    pub(crate) side: Option<PathBuf>,
    pub(crate) pool: Option<PathBuf>,
    pub(crate) period: Duration,
    pub(crate) scrub_regions: u32,
    pub(crate) tracking: Tracking,
    pub(crate) writers: Option<Arc<dyn Writers + Send + Sync>>,
    pub(crate) processor: Option<usize>,
    pub(crate) pace: Option<u64>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) heal_loads: bool,
    pub(crate) rearm: Rearm,
}

impl ProtectOptions {
    /// One parity page for four pages, a pass each second.
    #[must_use]
    pub fn new() -> Self {
        Self {
            data: 4,
            parity: 1,
            folios: Folios::Small,
            durability: Durability::Process,
            side: None,
            pool: None,
            period: Duration::from_secs(1),
            scrub_regions: 4,
            tracking: Tracking::Auto,
            writers: None,
            processor: None,
            pace: None,
            trace: None,
            heal_loads: true,
            rearm: Rearm::default(),
        }
    }

    /// Pages of a stripe, 1 to 64, and parity pages, 0 to 2: so many of a stripe are given back.
    /// For a file that is not protected yet.
    #[must_use]
    pub fn stripe(self, data: u32, parity: u32) -> Self {
        Self { data, parity, ..self }
    }

    /// How the page cache is asked to keep the file while it is mapped.
    #[must_use]
    pub fn folios(self, folios: Folios) -> Self {
        Self { folios, ..self }
    }

    /// Which stops the redundancy survives while the file is mapped. At rest it survives all.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// The side file, if it is not the one beside the file.
    #[must_use]
    pub fn side(self, path: impl Into<PathBuf>) -> Self {
        Self { side: Some(path.into()), ..self }
    }

    /// The pool that is to have the redundancy of a file that is not protected yet, in a region of
    /// its own, so that it is protected itself; or that has it, if it is not where it was. What has
    /// the name of the side file points to it then. While such a file is mapped, its passes are
    /// durable against power cuts, or it is refused.
    #[must_use]
    pub fn pool(self, path: impl Into<PathBuf>) -> Self {
        Self { pool: Some(path.into()), ..self }
    }

    /// Time between two passes.
    #[must_use]
    pub fn period(self, period: Duration) -> Self {
        Self { period, ..self }
    }

    /// Regions, of up to 256 pages, that are scrubbed after each pass; 0 is none.
    #[must_use]
    pub fn scrub_regions(self, regions: u32) -> Self {
        Self { scrub_regions: regions, ..self }
    }

    /// How stores are noticed.
    #[must_use]
    pub fn tracking(self, tracking: Tracking) -> Self {
        Self { tracking, ..self }
    }

    /// How the threads of this process that store to the mapping by its address are stopped while
    /// a page is replaced. Without it, nothing is repaired once the address was asked for.
    #[must_use]
    pub fn writers(self, writers: Arc<dyn Writers + Send + Sync>) -> Self {
        Self { writers: Some(writers), ..self }
    }

    /// The processor that the thread which covers what was stored keeps to, by the system's number:
    /// that of the program's own thread, so that no other one is disturbed, or one of its own. One
    /// that this process may not use is not kept to. Otherwise the system chooses.
    #[must_use]
    pub fn processor(self, number: usize) -> Self {
        Self { processor: Some(number), ..self }
    }

    /// At most so many bytes are covered in a second by that thread, so that a pass over much is
    /// spread over time. A pass that lasts longer than the period is followed by the next at once.
    /// So is what a file that is just being protected is read and covered with.
    #[must_use]
    pub fn pace(self, bytes_per_second: u64) -> Self {
        Self { pace: Some(bytes_per_second), ..self }
    }

    /// A file to which each pass adds which pages it found stored to: what another period would
    /// have meant can be reckoned from it. Made anew at each opening; refused where somebody is
    /// writing one, or where something is that is none.
    #[must_use]
    pub fn trace(self, path: impl Into<PathBuf>) -> Self {
        Self { trace: Some(path.into()), ..self }
    }

    /// Whether a load of this program that meets a media error waits until the page is given back,
    /// and is repeated then; so it is unless set otherwise. What was stored to since the last pass,
    /// or is beyond parity, ends the program by `SIGBUS` as without us, and so does everything
    /// without this. With [`Tracking::AsyncProtect`] a page whose memory itself failed counts as
    /// stored to: what was known of it is lost with it.
    #[must_use]
    pub fn heal_loads(self, heal_loads: bool) -> Self {
        Self { heal_loads, ..self }
    }

    /// Whether passes leave regions open that are stored to in full all the time, so that the
    /// program's first stores there cost nothing, as they do unless set otherwise. The last store
    /// to a page of such a region is covered for good by the second pass after it.
    #[must_use]
    pub fn rearm(self, rearm: Rearm) -> Self {
        Self { rearm, ..self }
    }

    /// How whoever keeps the file opens its side file.
    pub(crate) fn to_keep(&self) -> OpenOptions {
        let (trace, rearm) = (self.trace.is_some(), self.rearm);
        OpenOptions { trace, rearm, ..to_open(self.durability) }
    }

    pub(crate) fn side_of(&self, data: &Path) -> PathBuf {
        self.side.clone().unwrap_or_else(|| side_path(data))
    }

    pub(crate) fn to_protect(&self) -> Result<EngineOptions> {
        // Small steps, where they are to be spread over time.
        let most = OpenOptions::default().batch_pages;
        let batch_pages = if self.pace.is_some() { most.min(STEP) } else { most };
        Ok(EngineOptions {
            uuid: random_uuid()?,
            data: self.data,
            keep: Keep { parity: self.parity, ..Keep::default() },
            folios: self.folios,
            open: OpenOptions { batch_pages, ..to_open(Durability::Power) },
            ..EngineOptions::default()
        })
    }
}

/// How the engine is opened.
pub(crate) fn to_open(durability: Durability) -> OpenOptions {
    OpenOptions { durability, boot: boot(), ..OpenOptions::default() }
}

/// The number of the machine's run; zeros, which name no run, if the system has none.
fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string(BOOT).unwrap_or_default();
    let digits: Vec<u8> =
        text.bytes().filter_map(|c| char::from(c).to_digit(16)).map(|d| d as u8).collect();
    let mut boot = [0; 16];
    for (byte, pair) in boot.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    boot
}

impl Default for ProtectOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ProtectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectOptions")
            .field("data", &self.data)
            .field("parity", &self.parity)
            .field("durability", &self.durability)
            .field("side", &self.side)
            .field("pool", &self.pool)
            .field("period", &self.period)
            .field("tracking", &self.tracking)
            .finish_non_exhaustive()
    }
}
