//! A mapped file: two threads store to it, one covers, one scrubs, one damages pages and has them
//! repaired, with the storing threads stopped and let go on; now and then one makes the file longer
//! and shorter. What holds: *nothing undamaged is called corrupt, and nothing that was stored is
//! taken back*; and what was covered and is damaged is not called good.
//!
//! At an instant that is drawn, all processes are killed, or the power is cut off: what is opened
//! afterwards obeys the same law. Of a power cut only what was covered is held against bytes: all
//! else may be of any instant since it was.

#[path = "../../../../surfaces/facade/src/protect/gate.rs"]
mod gate;
mod known;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use holdfast_faultmem::{Config, CrashPoint, FaultMedium, Marks, Watched, Window};
use holdfast_mapped::{
    AtRest, Durability, Facts, Force, Identity, Mapped, Mended, OpenOptions, ProtectOptions, Rearm,
    Scrubbed, Writers, Writing,
};
use holdfast_pmem::track::SourceKind;
use holdfast_pmem::{Medium as _, MediumKind, PAGE, Site};
use holdfast_redundancy::PageVerdict;
use holdfast_redundancy::events::{Event, Outcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::engine::clock;
use super::parts::join;
use super::paused::{Instant, Paused};
use super::{LAW, Reached, Wrong, left_at};
use gate::Gate;
use known::{Known, PAGES, Page, ROOM, SIZE, STRIPE, page_of};

/// Pages that were put right.
pub(super) static REPAIRS: Reached = Reached::new("pages repaired");
/// Repairs that gave way to a store.
pub(super) static GAVE_WAY: Reached = Reached::new("repairs that gave way to a store");
/// Repairs whose writers could not be stopped.
pub(super) static REFUSED: Reached = Reached::new("repairs that could stop no writer");
/// Kills and power cuts.
pub(super) static STOPS: Reached = Reached::new("kills and power cuts");
/// Damaged pages that are held against what they were after a power cut.
pub(super) static CUT: Reached = Reached::new("damaged pages judged after a power cut");
/// Changes of the file's length.
pub(super) static RESIZED: Reached = Reached::new("changes of length");

/// Bytes for the side file.
const SIDE: u64 = 2 * (64 << 10) + 32 * PAGE;
/// Stores of each thread, and passes.
const STORES: usize = 4;
const PASSES: usize = 3;
/// Pages that are damaged.
const HITS: usize = 2;
/// One schedule in so many has the file's length changed, so often.
const RESIZED_EACH: u32 = 3;
const RESIZES: usize = 2;
/// One time in so many the writers cannot be stopped.
const REFUSED_EACH: u32 = 4;
/// Accesses of the engine within which everything may stop.
const INSTANTS: i64 = 300;
/// What the program stores. Never flushed: it knows nothing of the engine.
const STORE: Site = Site::new("models.mapped.store");

type Engine = Mapped<Paused<Watched>, Paused<Window>, Paused<Watched>>;

/// What a kill leaves, or a power cut.
struct Stop {
    point: CrashPoint,
    marks: Marks,
    known: Known,
}

/// What the system says of the data file.
#[derive(Debug)]
struct System(Window);

impl Facts for System {
    fn identity(&self) -> std::io::Result<Identity> {
        Ok(Identity { inode: 3, size: self.0.len(), mtime_ns: 7 })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> std::io::Result<()> {
        Ok(())
    }
}

/// The locks of `gate.rs`.
mod words {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

/// Stops the program's writes as it does its own that ships, or says that it cannot.
struct Gated {
    gate: Gate,
    refuses: bool,
}

impl Writers for Gated {
    fn freeze(&self) -> bool {
        let refused = self.refuses && thread_rng().gen_ratio(1, REFUSED_EACH);
        !refused && self.gate.close()
    }

    fn thaw(&self) {
        self.gate.open();
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
    fn new(m: FaultMedium, size: u64, marks: Marks, off: &str) -> Self {
        m.elide_name(STORE.name());
        m.elide_name(off);
        let m = Arc::new(m);
        let window = Window::new(Arc::clone(&m), 0, size, ROOM * PAGE);
        let side = Window::new(Arc::clone(&m), ROOM * PAGE, SIDE, SIDE);
        let data = Watched::surviving(window, SourceKind::Controller, marks);
        Self { m, data, side, instant: Arc::default() }
    }

    fn parts(&self) -> (Paused<Watched>, Paused<Window>) {
        let data = Paused::new(self.data.clone(), &self.instant);
        (data, Paused::new(self.side.clone(), &self.instant))
    }

    fn system(&self) -> Arc<System> {
        Arc::new(System(self.data.window().clone()))
    }

    fn open(&self, options: OpenOptions) -> Engine {
        let ((data, side), source) = (self.parts(), self.parts().0);
        match Mapped::open(data, side, source, self.system(), clock(), options) {
            Ok((engine, _)) => engine,
            Err(error) => panic!("{LAW}: a side file can be opened: {error}"),
        }
    }

    /// What a page holds; behind the end of the file, zeros.
    fn page(&self, page: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        let here = self.data.len().saturating_sub(page * PAGE).min(PAGE) as usize;
        self.data.read(page * PAGE, &mut bytes[..here]).expect("a page can be read");
        bytes
    }

    /// Makes the file this long. What is cut off is gone for good, and what is added is zeros.
    fn set_len(&self, from: u64, to: u64) {
        self.data.window().set_len(to);
        let zeros = vec![0; from.abs_diff(to) as usize];
        self.m.stray(from.min(to), &zeros).expect("there is room for it");
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
    let mut bytes = vec![0; (ROOM * PAGE + SIDE) as usize];
    for (i, byte) in (0_u32..).zip(&mut bytes[..SIZE as usize]) {
        *byte = (i.wrapping_mul(0x9e37_79b9) >> 24) as u8;
    }
    let m = FaultMedium::from_image(bytes, kind, &Config::default());
    let machine = Machine::new(m, SIZE, Marks::default(), "");
    let ((data, side), source) = (machine.parts(), machine.parts().0);
    let options =
        ProtectOptions { open: SETTINGS[setting].open(1), ..ProtectOptions::tiny(parity) };
    let engine = Mapped::protect(data, side, source, machine.system(), clock(), &options);
    let closed = engine.and_then(Mapped::close);
    closed.expect("a file can be protected");
    cell.get_or_init(|| machine.m.crash_point().newest().into_bytes())
}

/// What the threads share.
struct World {
    machine: Machine,
    engine: Engine,
    known: Arc<Mutex<Known>>,
    writers: Gated,
    /// Who changes the length of the file says so.
    announces: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The harness.
pub(super) fn file(wrong: Wrong) {
    let (parity, number) = (thread_rng().gen_range(1..=2), thread_rng().gen_range(0..2));
    let setting = SETTINGS[number];
    let bytes = base(parity, number).to_vec();
    let known = Known::of(&bytes[..(ROOM * PAGE) as usize]);
    let m = FaultMedium::from_image(bytes, setting.kind, &Config::default());
    let machine = Machine::new(m, SIZE, Marks::default(), wrong.off());
    let engine = machine.open(setting.open(1));
    let admitted = engine.admit(0, u64::MAX, Writing::NotYet);
    admitted.expect("writers are let in");
    let known = Arc::new(Mutex::new(known));
    let writers = Gated { gate: Gate::default(), refuses: thread_rng().r#gen() };
    let announces = wrong != Wrong::Own("resized unannounced");
    let stopped = stop_some_time(&machine, &known);
    let world = Arc::new(World { machine, engine, known, writers, announces });
    let spawn = |body: fn(&World)| {
        let world = Arc::clone(&world);
        thread::spawn(move || body(&world))
    };
    let bodies = [World::store, World::store, World::cover, World::scrub, World::damage];
    let resizes = thread_rng().gen_ratio(1, RESIZED_EACH).then_some(World::resize as fn(&World));
    join(bodies.into_iter().chain(resizes).map(spawn).collect());
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
            let any = thread_rng().gen_range(0..lock(&self.known).count());
            let page = if thread_rng().gen_ratio(1, 3) { lock(&self.known).hit } else { any };
            for _ in 0..2 {
                let at = page * PAGE + thread_rng().gen_range(0..PAGE - 64);
                let bytes = [thread_rng().r#gen::<u8>(); 48];
                self.store_piece(at, &bytes);
            }
        }
    }

    /// One store; behind the end of the file there is nothing to store to.
    fn store_piece(&self, at: u64, bytes: &[u8]) {
        self.unstopped(|known| {
            if at + bytes.len() as u64 <= known.size {
                self.machine.data.put(STORE, at, bytes).expect("the file takes stores");
                known.stored(at, bytes);
            }
        });
    }

    /// What the program does in one step, or when whoever stopped its thread lets it go on.
    fn unstopped(&self, step: impl FnOnce(&mut Known)) {
        self.writers.gate.pass(|| step(&mut lock(&self.known)));
    }

    /// Makes the file shorter or longer, announced before and after, by a thread that may be
    /// stopped in between.
    fn resize(&self) {
        for _ in 0..RESIZES {
            let (old, new) = (lock(&self.known).size, known::size());
            let announce = || {
                if self.announces {
                    self.machine.data.announce(old.min(new), old.abs_diff(new));
                }
            };
            self.unstopped(|known| {
                known.announced(old, new);
                announce();
            });
            thread::yield_now();
            self.unstopped(|known| {
                self.machine.set_len(old, new);
                known.resized(new);
                announce();
            });
            RESIZED.add(1);
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
        self.scrub_beside(&self.writers);
    }

    fn scrub_beside(&self, writers: &dyn Writers) {
        match self.engine.scrub(Some(writers)) {
            Ok(done) => self.said(&done),
            Err(error) => panic!("{LAW}: a scrub comes to its end: {error}"),
        }
    }

    fn said(&self, done: &Scrubbed) {
        let pages = lock(&self.known).pages;
        let wrong = done.report.corrupt.iter().find(|page| !pages[**page as usize].damaged);
        assert_eq!(wrong, None, "{LAW}: a page is called corrupt that is not damaged");
        let sure = |page: u64| !pages[page as usize].may_be_doubted();
        let doubt = done.report.undecided.iter().find(|(page, _)| sure(*page));
        assert_eq!(doubt, None, "{LAW}: in doubt for no reason");
        REPAIRS.add(done.repaired);
    }

    /// Damages pages, each once, and has some of them repaired.
    fn damage(&self) {
        let first = thread_rng().gen_range(0..PAGES);
        for hit in 0..HITS as u64 {
            let apart = hit * thread_rng().gen_range(1..5);
            let page = (first + apart) % lock(&self.known).count();
            self.hit(page);
            if thread_rng().r#gen() {
                match self.engine.repair(page, &self.writers, Force::No) {
                    Ok(Mended::Repaired) => REPAIRS.add(1),
                    Ok(Mended::Busy) => REFUSED.add(1),
                    Ok(Mended::Undecided(why)) if why.is_doubt() => GAVE_WAY.add(1),
                    Ok(_) => {}
                    Err(error) => panic!("{LAW}: a repair comes to its end: {error}"),
                }
            }
        }
    }

    fn hit(&self, page: u64) {
        let mut known = lock(&self.known);
        let Some(len) = known.len_of(page) else { return };
        let (at, bit) =
            (page * PAGE + thread_rng().gen_range(0..len), thread_rng().gen_range(0..8));
        if known.hit(at, bit, &self.machine.data.marks()) {
            self.machine.m.flip_bit(at, bit).expect("a bit can be flipped");
        }
    }

    /// Everybody is through: what is left is covered, looked at and judged.
    fn settle(&self) {
        for _ in 0..2 {
            let done = self.engine.update_now();
            assert!(done.is_ok(), "{LAW}: a pass comes to its end: {done:?}");
            self.scrub_beside(&AtRest);
        }
        let done = self.engine.update_now();
        assert!(done.is_ok(), "{LAW}: a pass comes to its end: {done:?}");
        let known = lock(&self.known).clone();
        told(&self.engine, &known);
        let mut good = [false; ROOM as usize];
        for page in 0..known.count() {
            let said = judged(&self.engine, &self.machine, &known, page);
            good[page as usize] = said == PageVerdict::Good;
            let sound = known.pages[page as usize].damaged || good[page as usize];
            assert!(sound, "{LAW}: all is covered that is not damaged: {said:?} of page {page}");
        }
        let stripe = thread_rng().gen_range(0..known.size / PAGE / STRIPE);
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
    let Page { damaged, vague, .. } = known.pages[page as usize];
    let said = match engine.verify(page) {
        Ok(said) => said.verdict,
        Err(error) => panic!("{LAW}: a page can be looked at: {error}"),
    };
    assert!(damaged || said != PageVerdict::Corrupt, "{LAW}: page {page} is not damaged: {said:?}");
    let bytes = machine.page(page);
    let (whole, hurt) = (bytes == known.truth[page_of(page)], bytes == known.left[page_of(page)]);
    assert!(whole || hurt, "{LAW}: what was stored to page {page} was taken back");
    let missed = said == PageVerdict::Good && !whole && !vague;
    assert!(!missed, "{LAW}: damage to page {page}, which was covered, is called good");
    said
}

/// Nothing that is told calls a page wrong that was not damaged.
fn told(engine: &Engine, known: &Known) {
    let accuses = |event: &Event| {
        let is_data = event.wrong == Some(holdfast_redundancy::Wrong::Data);
        is_data && event.outcome != Outcome::Undecided
    };
    let mut accused = engine.events().into_iter().filter(accuses);
    let wrong = accused.find(|event| !known.pages[(event.at / PAGE) as usize].damaged);
    assert_eq!(wrong, None, "{LAW}: a page is called damaged that is not");
}

/// Opens what is left after everything stopped: killed, or without power.
fn after(stop: Stop, setting: Setting, off: &str) {
    let Stop { point, marks, known } = stop;
    let cut = setting.durability == Durability::Power && thread_rng().gen_ratio(3, 4);
    let image = if cut { left_at(&point) } else { point.newest() };
    let marks = if cut || thread_rng().r#gen() { Marks::default() } else { marks };
    let m = FaultMedium::from_crash(image, setting.kind, &Config::default());
    let machine = Machine::new(m, known.size, marks, off);
    let engine = machine.open(setting.open(if cut { 2 } else { 1 }));
    let before: Vec<_> = (0..known.count()).map(|page| machine.page(page)).collect();
    let done = engine.scrub(Some(&AtRest));
    assert!(done.is_ok(), "{LAW}: a scrub comes to its end: {done:?}");
    told(&engine, &known);
    for (page, before) in (0..).zip(before) {
        let corrupt = done.as_ref().is_ok_and(|done| done.report.corrupt.contains(&page));
        let Page { damaged, vague, .. } = known.pages[page as usize];
        assert!(
            damaged || !corrupt,
            "{LAW}: page {page} is not damaged, and called so after a stop"
        );
        assert!(damaged || machine.page(page) == before, "{LAW}: a sound page {page} was replaced");
        // What was covered when it was damaged, and not stored to since, was durable by then: a
        // power cut leaves it, or the damage. Of the rest it may leave what nobody ever saw whole.
        let covered = damaged && !vague;
        if !cut || covered {
            judged(&engine, &machine, &known, page);
            CUT.add(u64::from(cut));
        }
    }
}
