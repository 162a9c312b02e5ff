//! The small worlds campaigns are played in: a medium, a geometry, and the sites switched off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Config, FaultMedium, Image, Mode};
use holdfast_object::{CreateOptions, Error, OpenOptions, Opened, Parity, Pool, VerifyReads};
use holdfast_pmem::{Clock, MediumKind};
use holdfast_workloads::Rng;

use super::driver::Driver;
use super::handle::{Handle, Visited};
use super::sick::How;
use super::wrong;
use crate::tally::Judged;

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

/// What looks at a recovered pool besides its objects.
type Looks = dyn Fn(&Driver, &mut Rng) -> Judged<()> + Send + Sync;

/// What a pool must also be like once it is recovered, beyond holding the right objects.
#[derive(Clone)]
pub struct Also(Arc<Looks>);

impl Also {
    /// Has `look` look at each recovered pool. It may work on it as well.
    pub fn new(look: impl Fn(&Driver, &mut Rng) -> Judged<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// Looks at a pool.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn look(&self, driver: &Driver, rng: &mut Rng) -> Judged<()> {
        (self.0)(driver, rng)
    }
}

impl fmt::Debug for Also {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Also")
    }
}

/// What pools of one campaign case are like.
#[derive(Debug, Clone)]
pub struct World {
    /// Name in reports.
    pub name: &'static str,
    /// Kind of the medium.
    pub kind: MediumKind,
    /// How finely a crash tears; `None` takes what the kind of the medium does.
    pub mode: Option<Mode>,
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
    /// What recovered pools must also be like.
    pub also: Option<Also>,
    /// Learns which sites were passed, if somebody wants to know.
    pub visited: Option<Visited>,
    /// Whose errors the pools meet, if it is the machine's own.
    pub sick: Option<How>,
}

/// Bytes of a small pool: seventeen chunks of 8 KiB in seven rows.
pub const SMALL: u64 = 81 * 4096;

impl World {
    fn new(name: &'static str, kind: MediumKind, parity: Parity) -> Self {
        let log = if kind == MediumKind::File { 5 * 12_288 } else { 5 * 8_192 };
        let uuid = *b"holdfastcampaign";
        let options = CreateOptions { parity, log, uuid, ..CreateOptions::tiny(SMALL) };
        let open =
            OpenOptions { verify: VerifyReads::Always, version_bits: 13, ..OpenOptions::default() };
        Self {
            name,
            kind,
            mode: None,
            options,
            open,
            off: Vec::new(),
            reserve: 4 * SMALL,
            linked: false,
            also: None,
            visited: None,
            sick: None,
        }
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

    /// The same world where crashes tear as x86 processors do, each line a prefix of its stores.
    /// Files are not kept in lines: they stay as they are.
    #[must_use]
    pub fn by_lines(self) -> Self {
        let name = match self.name {
            "shm-p" => "shm-p by lines",
            "shm-pq" => "shm-pq by lines",
            name => name,
        };
        let mode = (self.kind != MediumKind::File).then_some(Mode::Lines);
        Self { name, mode: mode.or(self.mode), ..self }
    }

    /// The same world, where recovered pools must also be like this.
    #[must_use]
    pub fn also(self, also: Also) -> Self {
        Self { also: Some(also), ..self }
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
        Config { mode: self.mode, reserve: self.reserve, ..Config::default() }
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
