//! The small worlds campaigns are played in: a medium, a geometry, and the sites switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Config, FaultMedium, Image};
use holdfast_object::{CreateOptions, Error, OpenOptions, Opened, Parity, Pool, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};

use super::handle::{Handle, Visited};
use super::sick::How;
use super::wrong;

/// A clock that advances a microsecond whenever it is asked: runs repeat.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Clock for Counter {
    fn now(&self) -> u64 {
        self.0.fetch_add(1_000, Ordering::Relaxed)
    }
}

/// A clock for one pool.
#[must_use]
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(Counter::default())
}

/// What pools of one campaign case are like.
#[derive(Debug, Clone)]
pub struct World {
    /// Name in reports.
    pub name: &'static str,
    /// Kind of the medium.
    pub kind: MediumKind,
    /// How pools are made.
    pub options: CreateOptions,
    /// How they are opened.
    pub open: OpenOptions,
    /// Places in the code that are switched off.
    pub off: Vec<String>,
    /// Address range kept for growth.
    pub reserve: u64,
    /// Whether programs hang everything on the root: see `linked.rs`.
    pub linked: bool,
    /// Learns which sites were passed, if somebody wants to know.
    pub visited: Option<Visited>,
    /// Whose errors the pools meet, if it is the machine's own.
    pub sick: Option<How>,
}

/// Bytes of a small pool: seventeen chunks of 8 KiB in seven rows.
const SMALL: u64 = 81 * 4096;

impl World {
    fn new(name: &'static str, kind: MediumKind, parity: Parity) -> Self {
        let log = if kind == MediumKind::File { 5 * 12_288 } else { 5 * 8_192 };
        let uuid = *b"holdfastcampaign";
        let options = CreateOptions { parity, log, uuid, ..CreateOptions::tiny(SMALL) };
        let open =
            OpenOptions { verify: VerifyReads::Always, version_bits: 13, ..OpenOptions::default() };
        let (off, reserve) = (Vec::new(), 4 * SMALL);
        Self { name, kind, options, open, off, reserve, linked: false, visited: None, sick: None }
    }

    /// The four usual worlds.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        vec![
            Self::new("shm-p", MediumKind::Shm, Parity::P),
            Self::new("file-p", MediumKind::File, Parity::P),
            Self::new("shm-pq", MediumKind::Shm, Parity::PQ),
            Self::new("file-pq", MediumKind::File, Parity::PQ),
        ]
    }

    /// The usual world of this name.
    ///
    /// # Panics
    /// If there is none: a mistake of this program.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let found = Self::usual().into_iter().find(|world| world.name == name);
        found.expect("a usual world")
    }

    /// The same world, with everything in its pools hanging on the root, or not.
    #[must_use]
    pub fn linked(self, linked: bool) -> Self {
        Self { linked, ..self }
    }

    /// The same world with one place switched off.
    #[must_use]
    pub fn without(mut self, site: &str) -> Self {
        self.off.push(site.to_owned());
        self
    }

    /// The same world with pools of another length.
    #[must_use]
    pub fn sized(mut self, pages: u64) -> Self {
        self.options.size = pages * 4096;
        self.reserve = 4 * self.options.size;
        self
    }

    fn config(&self) -> Config {
        Config { reserve: self.reserve, ..Config::default() }
    }

    fn ready(&self, medium: FaultMedium) -> Handle {
        let off = self.off.iter().map(String::as_str);
        off.chain(wrong::off()).for_each(|site| medium.elide_name(site));
        Handle::new(medium, self.visited.clone())
    }

    /// An empty medium.
    #[must_use]
    pub fn blank(&self) -> Handle {
        self.ready(FaultMedium::new(self.options.size, self.kind, &self.config()))
    }

    /// A medium as a crash left it.
    #[must_use]
    pub fn after(&self, image: Image) -> Handle {
        self.ready(FaultMedium::from_crash(image, self.kind, &self.config()))
    }

    /// A medium that holds these bytes.
    #[must_use]
    pub fn holding(&self, bytes: Vec<u8>) -> Handle {
        self.ready(FaultMedium::from_image(bytes, self.kind, &self.config()))
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// What the engine answers.
    pub fn create(&self, medium: &Handle) -> Result<Pool<Handle>, Error> {
        Pool::create(medium.clone(), &self.options, self.open, clock())
    }

    /// Opens a pool.
    ///
    /// # Errors
    /// What the engine answers.
    pub fn open(&self, medium: &Handle) -> Result<(Pool<Handle>, Opened), Error> {
        Pool::open(medium.clone(), self.open, clock())
    }
}
