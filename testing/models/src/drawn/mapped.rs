//! A mapped file: two threads store to it, one covers, one scrubs, one damages pages and has them
//! repaired, with the storing threads stopped and let go on. What holds: *nothing undamaged is
//! called corrupt, and nothing that was stored is taken back*; and what was covered and is damaged
//! is not called good.
//!
//! At an instant that is drawn, all processes are killed, or the power is cut off: what is opened
//! afterwards obeys the same law.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use holdfast_faultmem::{Config, CrashPoint, FaultMedium, Marks, Watched, Window};
use holdfast_mapped::{
    AtRest, Durability, Facts, Force, Identity, Mapped, Mended, OpenOptions, ProtectOptions, Rearm,
    Scrubbed, Writers, Writing,
};
use holdfast_pmem::track::SourceKind;
use holdfast_pmem::{Medium as _, MediumKind, PAGE, Site};
use holdfast_redundancy::PageVerdict;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::engine::clock;
use super::parts::join;
use super::paused::{Instant, Paused};
use super::{LAW, Reached, Wrong};

/// Pages that were put right.
pub(super) static REPAIRS: Reached = Reached::new("pages repaired");
/// Repairs that gave way to a store.
pub(super) static GAVE_WAY: Reached = Reached::new("repairs that gave way to a store");
/// Kills and power cuts.
pub(super) static STOPS: Reached = Reached::new("kills and power cuts");

/// Pages of the data file: a region and a half.
const PAGES: u64 = 12;
const SIZE: u64 = PAGES * PAGE;
/// Data pages of a stripe.
const STRIPE: u64 = 4;
/// Bytes for the side file.
const SIDE: u64 = 2 * (64 << 10) + 32 * PAGE;
/// Stores of each thread, and passes.
const STORES: usize = 4;
const PASSES: usize = 3;
/// Pages that are damaged.
const HITS: usize = 2;
/// Accesses of the engine within which everything may stop.
const INSTANTS: i64 = 600;
/// What the program stores. Never flushed: it knows nothing of the engine.
const STORE: Site = Site::new("models.mapped.store");

type Engine = Mapped<Paused<Watched>, Paused<Window>, Paused<Watched>>;

/// What is known of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    damaged: bool,
    /// It may have been damaged between a store and its covering, and the damage be part of it.
    vague: bool,
}

/// What is known of the file.
#[derive(Debug, Clone)]
struct Known {
    /// Its bytes as the program made them.
    truth: Vec<u8>,
    /// The same, with damage that nobody undid.
    left: Vec<u8>,
    pages: [Page; PAGES as usize],
    /// Passes under way.
    passes: u32,
    /// The page that was damaged last.
    hit: u64,
}

/// What a kill leaves, or a power cut.
struct Stop {
    point: CrashPoint,
    marks: Marks,
    known: Known,
}

/// What the system says of the data file.
#[derive(Debug)]
struct System;

impl Facts for System {
    fn identity(&self) -> std::io::Result<Identity> {
        Ok(Identity { inode: 3, size: SIZE, mtime_ns: 7 })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> std::io::Result<()> {
        Ok(())
    }
}

/// Stores are made while this is false, one at a time.
struct Gate(shuttle::sync::Mutex<bool>);

impl Writers for Gate {
    fn freeze(&self) -> bool {
        self.set(true);
        true
    }

    fn thaw(&self) {
        self.set(false);
    }
}

impl Gate {
    fn set(&self, shut: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shut;
    }
}

/// What lies behind both files, and how they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    kind: MediumKind,
    durability: Durability,
}

/// Kept through kills, and through power cuts.
const SETTINGS: [Setting; 2] = [
    Setting { kind: MediumKind::Shm, durability: Durability::Process },
    Setting { kind: MediumKind::File, durability: Durability::Power },
];

impl Setting {
    fn open(self, boot: u8) -> OpenOptions {
        let Self { durability, .. } = self;
        OpenOptions { boot: [boot; 16], durability, ..OpenOptions::default() }
    }
}

/// Both files.
struct Machine {
    m: Arc<FaultMedium>,
    data: Watched,
    side: Window,
    instant: Arc<Instant>,
}

impl Machine {
    fn new(m: FaultMedium, marks: Marks, off: &str) -> Self {
        m.elide_name(STORE.name());
        m.elide_name(off);
        let m = Arc::new(m);
        let window = Window::new(Arc::clone(&m), 0, SIZE, SIZE);
        let side = Window::new(Arc::clone(&m), SIZE, SIDE, SIDE);
        let data = Watched::surviving(window, SourceKind::Controller, marks);
        Self { m, data, side, instant: Arc::default() }
    }

    fn parts(&self) -> (Paused<Watched>, Paused<Window>) {
        let data = Paused::new(self.data.clone(), &self.instant);
        (data, Paused::new(self.side.clone(), &self.instant))
    }

    fn open(&self, options: OpenOptions) -> Engine {
        let ((data, side), source) = (self.parts(), self.parts().0);
        match Mapped::open(data, side, source, Arc::new(System), clock(), options) {
            Ok((engine, _)) => engine,
            Err(error) => panic!("{LAW}: a side file can be opened: {error}"),
        }
    }

    fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        self.data.read(page * PAGE, &mut bytes).expect("a page can be read");
        bytes
    }
}

/// The files that each schedule starts from, closed; for each number of parity pages and setting.
pub(super) fn base(parity: u32, setting: usize) -> &'static [u8] {
    static BASES: [[OnceLock<Vec<u8>>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];
    let cell = &BASES[parity as usize - 1][setting];
    if let Some(base) = cell.get() {
        return base;
    }
    let Setting { kind, .. } = SETTINGS[setting];
    let mut bytes = vec![0; (SIZE + SIDE) as usize];
    for (i, byte) in (0_u32..).zip(&mut bytes[..SIZE as usize]) {
        *byte = (i.wrapping_mul(0x9e37_79b9) >> 24) as u8;
    }
    let m = FaultMedium::from_image(bytes, kind, &Config::default());
    let machine = Machine::new(m, Marks::default(), "");
    let ((data, side), source) = (machine.parts(), machine.parts().0);
    let options =
        ProtectOptions { open: SETTINGS[setting].open(1), ..ProtectOptions::tiny(parity) };
    let engine = Mapped::protect(data, side, source, Arc::new(System), clock(), &options);
    let closed = engine.and_then(Mapped::close);
    closed.expect("a file can be protected");
    cell.get_or_init(|| machine.m.crash_point().newest().into_bytes())
}

/// What the threads share.
struct World {
    machine: Machine,
    engine: Engine,
    known: Arc<Mutex<Known>>,
    gate: Gate,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The harness.
pub(super) fn file(wrong: Wrong) {
    let (parity, number) = (thread_rng().gen_range(1..=2), thread_rng().gen_range(0..2));
    let setting = SETTINGS[number];
    let bytes = base(parity, number).to_vec();
    let truth = bytes[..SIZE as usize].to_vec();
    let m = FaultMedium::from_image(bytes, setting.kind, &Config::default());
    let machine = Machine::new(m, Marks::default(), wrong.off());
    let engine = machine.open(setting.open(1));
    let admitted = engine.admit(0, u64::MAX, Writing::NotYet);
    admitted.expect("writers are let in");
    let known = Known { left: truth.clone(), truth, pages: Default::default(), passes: 0, hit: 0 };
    let (known, gate) = (Arc::new(Mutex::new(known)), Gate(shuttle::sync::Mutex::new(false)));
    let stopped = stop_some_time(&machine, &known);
    let world = Arc::new(World { machine, engine, known, gate });
    let spawn = |body: fn(&World)| {
        let world = Arc::clone(&world);
        thread::spawn(move || body(&world))
    };
    let bodies = [World::store, World::store, World::cover, World::scrub, World::damage];
    join(bodies.map(spawn).into());
    world.machine.instant.forget();
    world.settle();
    if let Some(stop) = lock(&stopped).take() {
        STOPS.add(1);
        after(stop, setting, wrong.off());
    }
}

/// Notes what is left if everything stops at an instant that is drawn.
fn stop_some_time(machine: &Machine, known: &Arc<Mutex<Known>>) -> Arc<Mutex<Option<Stop>>> {
    let stopped = Arc::new(Mutex::new(None));
    let (kept, known) = (Arc::clone(&stopped), Arc::clone(known));
    let (m, data) = (Arc::clone(&machine.m), machine.data.clone());
    let note = move || {
        let known = lock(&known).clone();
        *lock(&kept) = Some(Stop { point: m.crash_point(), marks: data.marks(), known });
    };
    machine.instant.after(thread_rng().gen_range(0..INSTANTS), Box::new(note));
    stopped
}

impl World {
    /// Stores to pages that are drawn, each in two pieces.
    fn store(&self) {
        for _ in 0..STORES {
            let any = thread_rng().gen_range(0..PAGES);
            let page = if thread_rng().gen_ratio(1, 3) { lock(&self.known).hit } else { any };
            for _ in 0..2 {
                let at = page * PAGE + thread_rng().gen_range(0..PAGE - 64);
                let bytes = [thread_rng().r#gen::<u8>(); 48];
                self.store_piece(at, &bytes);
            }
        }
    }

    /// One store, which is made in one step, or waits for whoever stopped its thread.
    fn store_piece(&self, at: u64, bytes: &[u8]) {
        loop {
            let shut = self.gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !*shut {
                let mut known = lock(&self.known);
                self.machine.data.put(STORE, at, bytes).expect("the file takes stores");
                let range = at as usize..at as usize + bytes.len();
                known.truth[range.clone()].copy_from_slice(bytes);
                known.left[range].copy_from_slice(bytes);
                known.pages[(at / PAGE) as usize].vague |=
                    known.pages[(at / PAGE) as usize].damaged;
                return;
            }
            drop(shut);
            thread::yield_now();
        }
    }

    fn cover(&self) {
        for _ in 0..PASSES {
            lock(&self.known).passes += 1;
            let done = match thread_rng().gen_range(0..4) {
                0 => self.engine.pass(),
                1 => self.engine.update_now(),
                2 => self.engine.cover(thread_rng().gen_range(0..PAGES) * PAGE, PAGE),
                _ => self.engine.pass_in_steps(Rearm::All, &mut |_| thread::yield_now()),
            };
            lock(&self.known).passes -= 1;
            assert!(done.is_ok(), "{LAW}: a pass comes to its end: {done:?}");
        }
    }

    fn scrub(&self) {
        match self.engine.scrub(Some(&self.gate)) {
            Ok(done) => self.said(&done),
            Err(error) => panic!("{LAW}: a scrub comes to its end: {error}"),
        }
    }

    fn said(&self, done: &Scrubbed) {
        let pages = lock(&self.known).pages;
        let wrong = done.report.corrupt.iter().find(|page| !pages[**page as usize].damaged);
        assert_eq!(wrong, None, "{LAW}: a page is called corrupt that is not damaged");
        let doubts = &done.report.undecided;
        assert!(doubts.is_empty(), "{LAW}: in doubt for no reason: {doubts:?}");
        REPAIRS.add(done.repaired);
    }

    /// Damages pages, each once, and has some of them repaired.
    fn damage(&self) {
        let first = thread_rng().gen_range(0..PAGES);
        for hit in 0..HITS as u64 {
            let page = (first + hit * thread_rng().gen_range(1..5)) % PAGES;
            self.hit(page);
            if thread_rng().r#gen() {
                match self.engine.repair(page, &self.gate, Force::No) {
                    Ok(Mended::Repaired) => REPAIRS.add(1),
                    Ok(Mended::Undecided(why)) if why.is_doubt() => GAVE_WAY.add(1),
                    Ok(_) => {}
                    Err(error) => panic!("{LAW}: a repair comes to its end: {error}"),
                }
            }
        }
    }

    fn hit(&self, page: u64) {
        let (at, bit) =
            (page * PAGE + thread_rng().gen_range(0..PAGE), thread_rng().gen_range(0..8));
        let mut known = lock(&self.known);
        let stripe = (page / STRIPE * STRIPE) as usize..(page / STRIPE * STRIPE + STRIPE) as usize;
        // Beside damage, a page may have been taken and put off: stored to, and not covered.
        let beside = known.pages[stripe].iter().any(|page| page.damaged);
        let vague = beside || known.passes > 0 || self.machine.data.marks().dirty.contains(&page);
        let of = &mut known.pages[page as usize];
        if of.damaged {
            return;
        }
        *of = Page { damaged: true, vague };
        known.hit = page;
        self.machine.m.flip_bit(at, bit).expect("a bit can be flipped");
        known.left[at as usize] ^= 1 << bit;
    }

    /// Everybody is through: what is left is covered, looked at and judged.
    fn settle(&self) {
        for _ in 0..2 {
            let done = self.engine.update_now();
            assert!(done.is_ok(), "{LAW}: a pass comes to its end: {done:?}");
            self.scrub();
        }
        let done = self.engine.update_now();
        assert!(done.is_ok(), "{LAW}: a pass comes to its end: {done:?}");
        let known = lock(&self.known).clone();
        let mut good = [false; PAGES as usize];
        for page in 0..PAGES {
            let said = judged(&self.engine, &self.machine, &known, page);
            good[page as usize] = said == PageVerdict::Good;
            let sound = known.pages[page as usize].damaged || good[page as usize];
            assert!(sound, "{LAW}: all is covered that is not damaged: {said:?} of page {page}");
        }
        let stripe = thread_rng().gen_range(0..PAGES / STRIPE);
        if good[(stripe * STRIPE) as usize..][..STRIPE as usize].iter().all(|good| *good) {
            self.gives_back(stripe * STRIPE + thread_rng().gen_range(0..STRIPE));
        }
    }

    /// Damage to a page of a stripe that is covered is found, and undone.
    fn gives_back(&self, page: u64) {
        let whole = self.machine.page(page);
        self.machine.m.flip_bit(page * PAGE + 77, 3).expect("a bit can be flipped");
        let mended = self.engine.repair(page, &AtRest, Force::No);
        let back = self.machine.page(page) == whole;
        assert!(back, "{LAW}: what is covered and damaged comes back: {mended:?}");
    }
}

/// What is said of a page, if that may be said; its bytes may be no others than are known.
fn judged(engine: &Engine, machine: &Machine, known: &Known, page: u64) -> PageVerdict {
    let Page { damaged, vague } = known.pages[page as usize];
    let said = match engine.verify(page) {
        Ok(said) => said.verdict,
        Err(error) => panic!("{LAW}: a page can be looked at: {error}"),
    };
    assert!(damaged || said != PageVerdict::Corrupt, "{LAW}: page {page} is not damaged: {said:?}");
    let range = (page * PAGE) as usize..((page + 1) * PAGE) as usize;
    let bytes = machine.page(page);
    let (whole, hurt) = (bytes == known.truth[range.clone()], bytes == known.left[range]);
    assert!(whole || hurt, "{LAW}: what was stored to page {page} was taken back");
    let missed = said == PageVerdict::Good && !whole && !vague;
    assert!(!missed, "{LAW}: damage to page {page}, which was covered, is called good");
    said
}

/// Opens what is left after everything stopped: killed, or without power.
fn after(stop: Stop, setting: Setting, off: &str) {
    let Stop { point, marks, known } = stop;
    let cut = setting.durability == Durability::Power && thread_rng().r#gen();
    let image = if cut { point.sample(thread_rng().r#gen(), 0) } else { point.newest() };
    let marks = if cut || thread_rng().r#gen() { Marks::default() } else { marks };
    let m = FaultMedium::from_crash(image, setting.kind, &Config::default());
    let machine = Machine::new(m, marks, off);
    let engine = machine.open(setting.open(if cut { 2 } else { 1 }));
    let before: Vec<_> = (0..PAGES).map(|page| machine.page(page)).collect();
    let done = engine.scrub(Some(&AtRest));
    assert!(done.is_ok(), "{LAW}: a scrub comes to its end: {done:?}");
    for (page, before) in (0..PAGES).zip(before) {
        let corrupt = done.as_ref().is_ok_and(|done| done.report.corrupt.contains(&page));
        let damaged = known.pages[page as usize].damaged;
        assert!(
            damaged || !corrupt,
            "{LAW}: page {page} is not damaged, and called so after a stop"
        );
        assert!(damaged || machine.page(page) == before, "{LAW}: a sound page {page} was replaced");
        if !cut {
            judged(&engine, &machine, &known, page);
        }
    }
}
