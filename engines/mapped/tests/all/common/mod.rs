//! What the engine's tests share: a data file and a side file on one faulty medium, a clock that
//! counts, and facts that a test changes at will.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod bent;
pub(crate) mod explore;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Config, CrashPoint, FaultMedium, Image, Marks, Passed, Watched, Window};
use holdfast_mapped::{
    Durability, Facts, Identity, Mapped, OpenOptions, Opened, ProtectOptions, Writers,
};
use holdfast_pmem::track::{MediumRecord, SourceKind};
use holdfast_pmem::{Clock, Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::PageVerdict;

/// Room for the data file.
pub(crate) const ROOM: u64 = 40 * PAGE;
/// Room for the side file.
pub(crate) const SIDE_ROOM: u64 = (128 << 10) + 64 * PAGE;
pub(crate) const STORE: Site = Site::new("test.store");

/// A clock that advances a microsecond whenever it is asked.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Time goes by.
    pub(crate) fn skip(&self, nanos: u64) {
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Clock for Counter {
    fn now(&self) -> u64 {
        self.0.fetch_add(1000, Ordering::Relaxed)
    }
}

/// What the system says of the data file.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) window: Window,
    pub(crate) size: AtomicU64,
    pub(crate) mtime: AtomicI64,
    /// The time of change that a power cut leaves.
    pub(crate) kept: AtomicI64,
    pub(crate) inode: AtomicU64,
    /// Runs that have no storage.
    pub(crate) holes: Mutex<Vec<(u64, u64)>>,
    /// Somebody untracked was heard.
    pub(crate) strange: AtomicBool,
    /// The system does not say.
    pub(crate) silent: AtomicBool,
    /// Stores leave no date.
    pub(crate) undated: AtomicBool,
}

impl World {
    pub(crate) fn new(window: Window, size: u64) -> Arc<Self> {
        window.set_len(size);
        Arc::new(Self {
            window,
            size: AtomicU64::new(size),
            mtime: AtomicI64::new(7),
            kept: AtomicI64::new(7),
            inode: AtomicU64::new(3),
            holes: Mutex::default(),
            strange: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            undated: AtomicBool::new(false),
        })
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::SeqCst);
        self.window.set_len(size);
    }
}

impl Facts for World {
    fn vouches(&self) -> bool {
        !self.strange.load(Ordering::SeqCst)
    }

    fn dates_stores(&self) -> bool {
        !self.undated.load(Ordering::SeqCst)
    }

    fn identity(&self) -> std::io::Result<Identity> {
        if self.silent.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StaleNetworkFileHandle.into());
        }
        Ok(Identity {
            inode: self.inode.load(Ordering::SeqCst),
            size: self.size.load(Ordering::SeqCst),
            mtime_ns: self.mtime.load(Ordering::SeqCst),
        })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> std::io::Result<()> {
        if self.silent.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StaleNetworkFileHandle.into());
        }
        self.kept.store(self.mtime.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        let holes = self.holes.lock().unwrap().clone();
        let mut from = at;
        for (hole, long) in holes {
            if hole > from {
                each(from, hole - from);
            }
            from = from.max(hole + long);
        }
        if from < at + len {
            each(from, at + len - from);
        }
    }
}

pub(crate) type Engine = Mapped<Watched, Window, Watched>;

thread_local! {
    /// What was passed on the machines that this thread let go last.
    pub(crate) static PASSED: RefCell<BTreeSet<Passed>> = const { RefCell::new(BTreeSet::new()) };
}

thread_local! {
    static DIRECT: Cell<bool> = const { Cell::new(false) };
}

/// Whether files have direct access just now.
pub(crate) fn is_direct() -> bool {
    DIRECT.get()
}

/// Plays a story of files with direct access instead, if so: the side file is mapped so that what
/// is flushed and drained is durable; the program's file is asked of the system as ever.
pub(crate) fn on_direct_access<T>(direct: bool, story: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            DIRECT.set(self.0);
        }
    }
    let _back = Back(DIRECT.replace(direct));
    story()
}

/// The kind of medium that is meant by this one just now.
fn on_this(kind: MediumKind) -> MediumKind {
    if DIRECT.get() && kind == MediumKind::File { MediumKind::Dax } else { kind }
}

/// Notes what was passed on a machine once that goes.
#[derive(Debug)]
struct Noted(Arc<FaultMedium>);

impl Drop for Noted {
    fn drop(&mut self) {
        // A thread that ends has nobody to tell.
        let _ = PASSED.try_with(|all| all.borrow_mut().extend(self.0.passed()));
    }
}

/// A machine: one medium, two files.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) medium: Arc<FaultMedium>,
    _noted: Arc<Noted>,
    pub(crate) data: Watched,
    pub(crate) side: Window,
    pub(crate) world: Arc<World>,
}

impl Machine {
    pub(crate) fn on(medium: FaultMedium, size: u64, kind: SourceKind, marks: Marks) -> Self {
        let medium = Arc::new(medium);
        let noted = Arc::new(Noted(Arc::clone(&medium)));
        let window = Window::new(Arc::clone(&medium), 0, size, ROOM);
        let direct = DIRECT.get() && Medium::kind(&*medium) == MediumKind::Dax;
        let window = if direct { window.as_file() } else { window };
        let side = Window::new(Arc::clone(&medium), ROOM, SIDE_ROOM, SIDE_ROOM);
        let world = World::new(window.clone(), size);
        let data = Watched::surviving(window, kind, marks);
        Self { medium, _noted: noted, data, side, world }
    }

    /// Pages of different content, nothing protected yet.
    pub(crate) fn new(kind: MediumKind, size: u64) -> Self {
        let kind = on_this(kind);
        let mut bytes = vec![0; (ROOM + SIDE_ROOM) as usize];
        for page in 0..size.div_ceil(PAGE) {
            let len = (size - page * PAGE).min(PAGE);
            let at = (page * PAGE) as usize;
            bytes[at..at + len as usize].copy_from_slice(&content(page, 0)[..len as usize]);
        }
        let medium = FaultMedium::from_image(bytes, kind, &Config::default());
        Self::on(medium, size, SourceKind::AsyncProtect, Marks::default())
    }

    /// The machine after a crash that left `image`.
    pub(crate) fn after(image: Image, kind: MediumKind, size: u64, marks: Option<Marks>) -> Self {
        let medium = FaultMedium::from_crash(image, on_this(kind), &Config::default());
        Self::on(medium, size, SourceKind::AsyncProtect, marks.unwrap_or_default())
    }

    pub(crate) fn protect(&self, options: &ProtectOptions) -> Engine {
        self.try_protect(options).unwrap()
    }

    pub(crate) fn try_protect(
        &self,
        options: &ProtectOptions,
    ) -> Result<Engine, holdfast_mapped::Error> {
        Mapped::protect(
            self.data.clone(),
            self.side.clone(),
            self.data.clone(),
            self.world.clone(),
            Arc::new(Counter::default()),
            options,
        )
    }

    pub(crate) fn open(&self, options: OpenOptions) -> (Engine, Opened) {
        self.try_open(options).unwrap()
    }

    pub(crate) fn try_open(
        &self,
        options: OpenOptions,
    ) -> Result<(Engine, Opened), holdfast_mapped::Error> {
        Mapped::open(
            self.data.clone(),
            self.side.clone(),
            self.data.clone(),
            self.world.clone(),
            Arc::new(Counter::default()),
            options,
        )
    }

    /// From now on first stores are recorded in the side file before they are made.
    pub(crate) fn record(&self) {
        self.data.record(Arc::new(self.records()));
    }

    /// What first stores are recorded in.
    pub(crate) fn records(&self) -> MediumRecord<Window> {
        let places = holdfast_mapped::record_places(&self.side).unwrap();
        MediumRecord::new(Arc::new(self.side.clone()), places, 0, ROOM).unwrap()
    }

    /// Stores a version of a page as the program does, through the tracked mapping.
    pub(crate) fn store(&self, page: u64, version: u64) {
        let len = (self.data.window().len() - page * PAGE).min(PAGE) as usize;
        self.data.put(STORE, page * PAGE, &content(page, version)[..len]).unwrap();
    }

    /// Damages one bit of a page behind everybody's back.
    pub(crate) fn rot(&self, page: u64, byte: u64) {
        self.medium.flip_bit(page * PAGE + byte, (byte % 8) as u8).unwrap();
    }

    /// What a page holds, padded with zeros.
    pub(crate) fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        let len = (self.data.window().len() - page * PAGE).min(PAGE) as usize;
        self.data.read(page * PAGE, &mut bytes[..len]).unwrap();
        bytes
    }
}

/// The death of a process in memory, and the loss of power of a file.
pub(crate) const DEATHS: [(MediumKind, Durability); 2] =
    [(MediumKind::Shm, Durability::Process), (MediumKind::File, Durability::Power)];

/// Images of a point, made one at a time.
pub(crate) type Chosen = Box<dyn Iterator<Item = Image>>;

/// Whether any image is `wrong` that the end may leave at a barrier of this name, or at any and
/// after the last if it is empty, while `work` is done: all that `images` chooses, each on a
/// machine with the same place switched off and, if wanted, with the bits of the source.
pub(crate) fn any_image(
    machine: &Machine,
    (off, barrier, bits): (&str, &'static str, bool),
    images: impl Fn(&CrashPoint) -> Chosen + Send + Sync + 'static,
    wrong: impl Fn(&Machine) -> bool + Send + Sync + 'static,
    work: impl FnOnce(),
) -> bool {
    let found = Arc::new(AtomicBool::new(false));
    let (seen, twin, off) = (Arc::clone(&found), machine.clone(), off.to_owned());
    let (kind, size) = (machine.medium.kind(), machine.data.window().len());
    let look = Arc::new(move |point: &CrashPoint| {
        for image in images(point) {
            let next = Machine::after(image, kind, size, bits.then(|| twin.data.marks()));
            next.medium.elide_name(&off);
            seen.fetch_or(wrong(&next), Ordering::SeqCst);
        }
    });
    let at_barrier = Arc::clone(&look);
    machine.medium.on_barrier(Box::new(move |_, site, point| {
        if barrier.is_empty() || site.name() == barrier {
            at_barrier(point);
        }
    }));
    work();
    machine.medium.clear_on_barrier();
    if barrier.is_empty() {
        look(&machine.medium.crash_point());
    }
    found.load(Ordering::SeqCst)
}

/// The machine after a kill, with the source's bits or without.
pub(crate) fn killed(machine: &Machine, bits: bool) -> Machine {
    let image = machine.medium.crash_point().newest();
    let marks = bits.then(|| machine.data.marks());
    let size = machine.data.window().len();
    Machine::after(image, Medium::kind(&machine.side), size, marks)
}

/// What a page is said to be.
pub(crate) fn verdict(engine: &Engine, page: u64) -> PageVerdict {
    engine.verify(page).unwrap().verdict
}

/// Version `version` of a page.
pub(crate) fn content(page: u64, version: u64) -> Vec<u8> {
    let mut x = (page * 1000 + version + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..PAGE)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// The options of the tests: other runs of the machine have other names.
pub(crate) fn boot(run: u8, durability: Durability) -> OpenOptions {
    OpenOptions { boot: [run; 16], durability, ..OpenOptions::default() }
}

pub(crate) fn tiny(parity: u32) -> ProtectOptions {
    ProtectOptions { open: boot(1, Durability::Process), ..ProtectOptions::tiny(parity) }
}

/// Writers whose stopping a test watches and uses.
#[derive(Default)]
pub(crate) struct Stopped {
    pub(crate) refuse: AtomicBool,
    pub(crate) frozen: AtomicU64,
    pub(crate) thawed: AtomicU64,
    pub(crate) between: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Writers for Stopped {
    fn freeze(&self) -> bool {
        if self.refuse.load(Ordering::SeqCst) {
            return false;
        }
        self.frozen.fetch_add(1, Ordering::SeqCst);
        if let Some(between) = self.between.lock().unwrap().as_mut() {
            between();
        }
        true
    }

    fn thaw(&self) {
        self.thawed.fetch_add(1, Ordering::SeqCst);
    }
}
