//! A machine: one faulty medium with a data file and a side file on it, so that a crash hits both
//! at one instant; a clock that counts, and what the system says of the data file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_faultmem::{Config, FaultMedium, Image, Marks, Mode, Watched, Window};
use holdfast_mapped::{
    Durability, Error, Facts, Identity, Mapped, OpenOptions, Opened, ProtectOptions, Writers,
    record_places,
};
use holdfast_pmem::track::{MediumRecord, NOTED, Record, RecordPlaces, SourceKind};
use holdfast_pmem::{Clock, Medium, MediumKind, PAGE, Site};
use holdfast_workloads::Rng;

use super::tap::{Ear, Tap};

/// Pages the data file has room for.
pub const ROOM: u64 = 40;
/// Bytes of a side of the side file.
pub const SIDE: u64 = 64 << 10;
/// Bytes the side file has room for.
pub const SIDE_ROOM: u64 = 2 * SIDE + 72 * PAGE;
/// What the program stores. Never flushed: it knows nothing of us.
pub const STORE: Site = Site::new("campaign.store");

/// The engine as it runs here.
pub type Engine = Mapped<Tap<Watched>, Tap<Window>, Watched>;

/// A clock that advances a microsecond whenever it is asked.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn now(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

/// What the system says of the data file. It may fail to, in turn with the medium.
#[derive(Debug)]
pub struct World {
    size: AtomicU64,
    medium: Arc<FaultMedium>,
}

impl World {
    fn asked(&self) -> std::io::Result<()> {
        if self.medium.refuses() { Err(std::io::ErrorKind::Other.into()) } else { Ok(()) }
    }
}

impl Facts for World {
    fn identity(&self) -> std::io::Result<Identity> {
        self.asked()?;
        Ok(Identity { inode: 3, size: self.size.load(Ordering::SeqCst), mtime_ns: 7 })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> std::io::Result<()> {
        self.asked()
    }
}

/// Writers that can be stopped, unless that is refused in turn with the medium.
#[derive(Debug)]
pub struct Still(Arc<FaultMedium>);

impl Writers for Still {
    fn freeze(&self) -> bool {
        !self.0.refuses()
    }

    fn thaw(&self) {}
}

/// A way to keep a file, and what its redundancy is to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// What lies behind both files.
    pub kind: MediumKind,
    /// Which stops redundancy is to survive.
    pub durability: Durability,
    /// Parity pages of a stripe.
    pub parity: u32,
    /// Whether first stores are recorded in the side file before they are made.
    pub recorded: bool,
    /// Whether a power cut tears by lines, as x86 does, where there are any: files have none.
    pub lines: bool,
}

impl Setting {
    /// All that mean something, by number.
    #[must_use]
    pub const fn numbered(number: u64) -> Self {
        let (kind, durability) = match number % 4 {
            0 => (MediumKind::Shm, Durability::Process),
            1 => (MediumKind::File, Durability::Power),
            2 => (MediumKind::Dax, Durability::Power),
            _ => (MediumKind::File, Durability::Process),
        };
        let parity = 1 + (number / 4 % 2) as u32;
        Self { kind, durability, parity, recorded: false, lines: false }
    }

    /// How finely a power cut tears, where that is not as usual for what lies behind.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        (self.lines && self.kind == MediumKind::Dax).then_some(Mode::Lines)
    }

    fn config(&self) -> Config {
        Config { mode: self.mode(), ..Config::default() }
    }

    /// Whether what the side file says is believed after the machine itself has stopped.
    #[must_use]
    pub fn believed_after_power(&self) -> bool {
        self.kind == MediumKind::File && self.durability == Durability::Power
    }

    /// Options in the given run of the machine.
    #[must_use]
    pub fn open(&self, run: u8) -> OpenOptions {
        OpenOptions { boot: [run; 16], durability: self.durability, ..OpenOptions::default() }
    }

    fn protect(&self) -> ProtectOptions {
        ProtectOptions { open: self.open(1), ..ProtectOptions::tiny(self.parity) }
    }
}

/// Records of first stores, durable at once: the program is in the middle of a store when it makes
/// one, and nobody is to look at it there.
struct Noted {
    medium: Arc<FaultMedium>,
    places: RecordPlaces,
    record: MediumRecord<Window>,
}

impl Record for Noted {
    fn set(&self, at: u64) -> bool {
        let place = self.places.of(at / PAGE).map(|place| ROOM * PAGE + place);
        place.is_some_and(|place| self.medium.stray(place, &[NOTED]).is_ok())
    }

    fn clear(&self, at: u64, len: u64) {
        self.record.clear(at, len);
    }

    fn is_set(&self, at: u64) -> bool {
        self.record.is_set(at)
    }
}

/// One machine. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What lies behind both files.
    pub medium: Arc<FaultMedium>,
    /// The data file, as the program has it.
    pub data: Watched,
    /// The side file.
    pub side: Window,
    /// What the engine is doing.
    pub ear: Ear,
    world: Arc<World>,
}

impl Machine {
    fn on(medium: FaultMedium, size: u64, marks: Marks, off: Option<&str>) -> Self {
        medium.elide_name(STORE.name());
        if let Some(off) = off {
            medium.elide_name(off);
        }
        let medium = Arc::new(medium);
        let window = Window::new(Arc::clone(&medium), 0, size, ROOM * PAGE);
        let side = Window::new(Arc::clone(&medium), ROOM * PAGE, SIDE_ROOM, SIDE_ROOM);
        let data = Watched::surviving(window, SourceKind::Controller, marks).refusable();
        let world = World { size: AtomicU64::new(size), medium: Arc::clone(&medium) };
        let world = Arc::new(world);
        Self { medium, data, side, ear: Ear::default(), world }
    }

    /// A data file of `size` random bytes, nothing protected yet; a place of the engine may be
    /// switched off.
    #[must_use]
    pub fn new(setting: &Setting, size: u64, rng: &mut Rng, off: Option<&str>) -> Self {
        let mut bytes = vec![0; (ROOM * PAGE + SIDE_ROOM) as usize];
        rng.fill(&mut bytes[..size as usize]);
        let medium = FaultMedium::from_image(bytes, setting.kind, &setting.config());
        Self::on(medium, size, Marks::default(), off)
    }

    /// The machine after a crash that left `image` and, if they outlived it, the source's bits.
    #[must_use]
    pub fn after(
        image: Image,
        setting: &Setting,
        size: u64,
        marks: Option<Marks>,
        off: Option<&str>,
    ) -> Self {
        let medium = FaultMedium::from_crash(image, setting.kind, &setting.config());
        Self::on(medium, size, marks.unwrap_or_default(), off)
    }

    /// The same from bytes.
    #[must_use]
    pub fn holding(
        bytes: Vec<u8>,
        setting: &Setting,
        size: u64,
        marks: Option<Marks>,
        off: Option<&str>,
    ) -> Self {
        let medium = FaultMedium::from_image(bytes, setting.kind, &setting.config());
        Self::on(medium, size, marks.unwrap_or_default(), off)
    }

    fn parts(&self) -> (Tap<Watched>, Tap<Window>) {
        let data = Tap::new(self.data.clone(), 0, self.ear.clone());
        (data, Tap::new(self.side.clone(), ROOM * PAGE, self.ear.clone()))
    }

    /// Protects the data file.
    ///
    /// # Errors
    /// The engine's.
    pub fn protect(&self, setting: &Setting) -> Result<Engine, Error> {
        let (data, side) = self.parts();
        let clock = Arc::new(Ticks::default());
        let (source, world) = (self.data.clone(), self.world.clone());
        Mapped::protect(data, side, source, world, clock, &setting.protect())
    }

    /// From now on first stores are recorded in the side file.
    ///
    /// # Errors
    /// The engine's: there is no side file.
    pub fn record(&self) -> Result<(), Error> {
        let (medium, side) = (Arc::clone(&self.medium), Arc::new(self.side.clone()));
        let places = record_places(&*side)?;
        let record = MediumRecord::new(side, places, 0, ROOM * PAGE)?;
        self.data.record(Arc::new(Noted { medium, places, record }));
        Ok(())
    }

    /// Opens the side file.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(&self, options: OpenOptions) -> Result<(Engine, Opened), Error> {
        let (data, side) = self.parts();
        let clock = Arc::new(Ticks::default());
        Mapped::open(data, side, self.data.clone(), self.world.clone(), clock, options)
    }

    /// What stops the writers for a repair.
    #[must_use]
    pub fn still(&self) -> Still {
        Still(Arc::clone(&self.medium))
    }

    /// Bytes of the data file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.data.window().len()
    }

    /// Pages of the data file.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.size().div_ceil(PAGE)
    }

    /// Makes the file longer or shorter, as its program does. What is cut off is gone for good, and
    /// what is added is zeros.
    ///
    /// # Errors
    /// The range is not on the medium.
    pub fn set_size(&self, size: u64) -> Result<(), holdfast_pmem::MediaError> {
        let old = self.size();
        // Announced before and after the call.
        let (from, to) = (size.min(old), size.max(old));
        self.data.announce(from, to - from);
        self.data.window().set_len(size);
        self.world.size.store(size, Ordering::SeqCst);
        // What a file system gives reads as zeros, whatever a write that went astray left there
        // while it was nobody's.
        self.medium.stray(from, &vec![0; (to - from) as usize])?;
        self.data.announce(from, to - from);
        Ok(())
    }

    /// What a page holds, padded with zeros; `None` if it cannot be read.
    #[must_use]
    pub fn page(&self, page: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; PAGE as usize];
        let len = self.size().saturating_sub(page * PAGE).min(PAGE) as usize;
        self.data.read(page * PAGE, &mut bytes[..len]).ok().map(|()| bytes)
    }

    /// What the whole data file holds.
    #[must_use]
    pub fn all(&self) -> Vec<Option<Vec<u8>>> {
        (0..self.pages()).map(|page| self.page(page)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tears_by_lines_does_so_after_a_crash_as_well() {
        for (number, lines, mode) in [
            (2, true, Mode::Lines),
            (2, false, Mode::Words),
            // Files have no lines.
            (1, true, Mode::Sectors),
        ] {
            let setting = Setting { lines, ..Setting::numbered(number) };
            let machine = Machine::new(&setting, 3 * PAGE, &mut Rng::new(1), None);
            let point = machine.medium.crash_point();
            assert_eq!(point.mode(), mode, "{setting:?}");
            let after = Machine::after(point.newest(), &setting, 3 * PAGE, None, None);
            assert_eq!(after.medium.crash_point().mode(), mode, "{setting:?}");
        }
    }
}
