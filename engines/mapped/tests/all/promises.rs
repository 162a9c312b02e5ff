//! What is promised of the redundancy changes, or is found broken: openings for another
//! durability, states that were wiped out, sources that die in the middle of an answer. Each of
//! these once had a power cut or a pass take back, or take over, what it should not have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::bent::{Asked, Bend, Bent};
use crate::common::{Counter, Machine, ROOM, boot, content, killed, tiny, verdict};
use crate::stories::parity_page;
use holdfast_faultmem::{Budget, CrashPoint, FaultKind, Watched, When, Window};
use holdfast_mapped::{
    AtRest, Durability, Force, Mapped, Mended, OpenOptions, Opened, ProtectOptions, Writing,
};
use holdfast_pmem::{MediaError, Medium, MediumKind, PAGE, Site, SyncError};
use holdfast_redundancy::{PageVerdict, Unsure};

const PAGES: u64 = 19;
/// The program syncs.
const SYNC: Site = Site::new("test.sync");
/// A side file as it is opened for redundancy that survives processes only: a plain mapping, of
/// which nothing reaches the disk until somebody asks for it.
#[derive(Debug, Clone)]
struct Cached(Window);

impl Medium for Cached {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn kind(&self) -> MediumKind {
        MediumKind::Shm
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read(at, into)
    }

    #[track_caller]
    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.put(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.0.put_is_cached(len)
    }

    #[track_caller]
    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        self.0.xor(site, at, delta)
    }

    #[track_caller]
    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.0.zero(site, at, len)
    }

    fn drain(&self, _site: Site) {}

    #[track_caller]
    fn enabled(&self, site: Site) -> bool {
        self.0.enabled(site)
    }

    #[track_caller]
    fn step(&self, site: Site) {
        self.0.step(site);
    }

    #[track_caller]
    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.0.put(site, at, bytes).map_err(|error| SyncError {
            call: "store",
            source: std::io::Error::other(error.to_string()),
        })
    }

    fn sync(&self, _site: Site) -> Result<(), SyncError> {
        Ok(())
    }

    #[track_caller]
    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        self.0.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.grow(len)
    }

    #[track_caller]
    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.0.remap(at, physical, len)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.0.bad_ranges()
    }
}

/// Opens for the death of processes, with the side file in the page cache.
fn open_cached(machine: &Machine) -> (Mapped<Watched, Cached, Watched>, Opened) {
    Mapped::open(
        machine.data.clone(),
        Cached(machine.side.clone()),
        machine.data.clone(),
        machine.world.clone(),
        Arc::new(Counter::default()),
        boot(1, Durability::Process),
    )
    .unwrap()
}

/// A file at rest, protected against power cuts.
fn at_rest(off: &str) -> Machine {
    let machine = Machine::new(MediumKind::File, PAGES * PAGE);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) };
    machine.protect(&options).close().unwrap();
    machine
}

/// The machine after the power was cut: of both files there is what was synced.
fn cut(machine: &Machine, off: &str) -> Machine {
    let image = machine.medium.crash_point().persisted();
    let next = Machine::after(image, MediumKind::File, PAGES * PAGE, None);
    next.medium.elide_name(off);
    next
}

/// What the program synced is page 5 as it stored it, whatever is said of it.
fn is_taken_back(machine: &Machine) -> bool {
    let before = machine.page(5);
    let (engine, _) = machine.open(boot(2, Durability::Power));
    let said = verdict(&engine, 5);
    let mended = engine.repair(5, &AtRest, Force::No).unwrap();
    assert!(engine.scrub(Some(&AtRest)).is_ok());
    said == PageVerdict::Corrupt || mended == Mended::Repaired || machine.page(5) != before
}

/// Protected against power cuts, opened for less, stored to and synced by its program: the power
/// is cut before anything of the side file got to the disk by itself.
pub(crate) fn less_is_promised_first(off: &str) -> bool {
    let machine = at_rest(off);
    let (engine, _) = open_cached(&machine);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    machine.data.sync(SYNC).unwrap();
    let next = cut(&machine, off);
    assert_eq!(next.page(5), content(5, 1));
    is_taken_back(&next)
}

/// The same, closed; then opened for power cuts, and one comes.
pub(crate) fn more_is_there_before_it_is_promised(off: &str) -> bool {
    let machine = at_rest(off);
    let (engine, _) = open_cached(&machine);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    if off != "mapped.recover.raise-data" {
        machine.data.sync(SYNC).unwrap();
    }
    engine.pass().unwrap();
    engine.close().unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Power));
    let next = cut(&machine, off);
    drop(engine);
    if off != "nothing" && next.page(5) != content(5, 1) {
        // It was covered, and is not there.
        return true;
    }
    is_taken_back(&next)
}

/// Protected against power cuts, opened for less, stored to and covered, and closed: at rest, or
/// only so. The power is cut at every step. Nothing is taken for damage; from when the header says
/// more there always is one, and once it is closed at rest, what rots is given back.
fn is_closed_badly(off: &str, rests: bool) -> bool {
    let machine = at_rest(off);
    let (engine, _) = open_cached(&machine);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    engine.pass().unwrap();
    let (wrong, images) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (seen, count, name) = (Arc::clone(&wrong), Arc::clone(&images), off.to_owned());
    let budget = Budget { exhaustive: 64, singles: 48, pairs: 8, samples: 24, seed: 9 };
    let judge = move |point: &CrashPoint, header: bool| {
        for image in point.images(&budget) {
            let next = Machine::after(image, MediumKind::File, PAGES * PAGE, None);
            next.medium.elide_name(&name);
            count.fetch_add(1, Ordering::Relaxed);
            let opened = next.try_open(boot(2, Durability::Power));
            let Ok((engine, _)) = opened else {
                // Until then both copies may be on their way to the disk.
                seen.fetch_or(header, Ordering::SeqCst);
                continue;
            };
            let before = next.page(5);
            let found = engine.verify_all().unwrap().corrupt.len();
            engine.scrub(Some(&AtRest)).unwrap();
            seen.fetch_or(found > 0 || next.page(5) != before, Ordering::SeqCst);
        }
    };
    let each = judge.clone();
    machine.medium.on_barrier(Box::new(move |_, site, point| {
        each(point, site.name().starts_with("mapped.header"));
    }));
    machine.store(9, 1);
    if rests { engine.close_at_rest() } else { engine.close() }.unwrap();
    machine.medium.clear_on_barrier();
    judge(&machine.medium.crash_point(), rests);
    assert!(images.load(Ordering::Relaxed) > if rests { 60 } else { 10 });
    if wrong.load(Ordering::SeqCst) || !rests {
        return wrong.load(Ordering::SeqCst);
    }
    let next = cut(&machine, off);
    next.rot(5, 100);
    let (engine, _) = next.open(boot(2, Durability::Power));
    let mended = engine.repair(5, &AtRest, Force::No).unwrap();
    mended != Mended::Repaired || next.page(5) != content(5, 1)
}

/// See [`is_closed_badly`].
pub(crate) fn rest_is_there_before_it_is_promised(off: &str) -> bool {
    is_closed_badly(off, true)
}

/// Either copy of the header is enough to know that the file was brought to rest.
pub(crate) fn one_copy_knows_of_the_rest(off: &str) -> bool {
    [0, 64 << 10].into_iter().any(|copy| {
        let machine = at_rest(off);
        let (engine, _) = open_cached(&machine);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 1);
        engine.close_at_rest().unwrap();
        let next = cut(&machine, off);
        next.medium.stray(next.side.place(copy + 9), &[0xee]).unwrap();
        next.rot(5, 100);
        let (engine, _) = next.open(boot(2, Durability::Power));
        engine.repair(5, &AtRest, Force::No).unwrap() != Mended::Repaired
    })
}

/// Who is closed for less has promised nothing.
#[test]
fn a_close_for_less_leaves_nothing_that_is_taken_for_damage() {
    assert!(!is_closed_badly("nothing", false));
}

/// Both states of a region are wiped out while the file is at rest: it was covered all the same.
pub(crate) fn a_wiped_region_is_not_a_new_one(off: &str) -> bool {
    let machine = at_rest(off);
    for at in [parity_page(0) - 3 * PAGE, parity_page(4)] {
        assert!(!wipe(&machine, at), "the states of the first regions are not at {at}");
    }
    machine.rot(5, 100);
    let looking = OpenOptions { read_only: true, ..boot(1, Durability::Power) };
    let (engine, _) = machine.open(looking);
    !matches!(verdict(&engine, 5), PageVerdict::Undecided(why) if why.is_doubt())
}

/// Makes a page of the side file zeros; whether it was that before.
fn wipe(machine: &Machine, at: u64) -> bool {
    let mut before = vec![0; PAGE as usize];
    machine.side.read(at, &mut before).unwrap();
    machine.medium.stray(ROOM + at, &vec![0; PAGE as usize]).unwrap();
    before.iter().all(|byte| *byte == 0)
}

/// A source that dies while it answers: of page 6 it does not tell any more.
#[derive(Clone)]
struct Dying {
    inner: Watched,
    dies: Arc<AtomicBool>,
    dead: Arc<AtomicBool>,
}

impl Bend for Dying {
    fn inner(&self) -> &Watched {
        &self.inner
    }

    fn tells(&self, page: u64) -> bool {
        page != 6 || !self.dies.load(Ordering::SeqCst)
    }

    fn after(&self, asked: Asked, _len: u64) {
        if asked == Asked::Take {
            self.dead.fetch_or(self.dies.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

/// Pages 5 and 6 of one stripe were stored to, and the source dies before it tells of the other.
pub(crate) fn a_source_dies_in_its_answer(off: &str) -> bool {
    let machine = Machine::new(MediumKind::Shm, PAGES * PAGE);
    machine.medium.elide_name(off);
    let (dies, dead) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let source = Dying { inner: machine.data.clone(), dies: Arc::clone(&dies), dead };
    let engine = Mapped::protect(
        machine.data.clone(),
        machine.side.clone(),
        Bent(source),
        machine.world.clone(),
        Arc::new(Counter::default()),
        &tiny(1),
    );
    let engine = engine.unwrap();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    machine.store(5, 1);
    machine.store(6, 1);
    dies.store(true, Ordering::SeqCst);
    let covered = engine.pass().unwrap();
    covered.corrupt > 0
}

#[test]
fn promises_are_kept_with_nothing_switched_off() {
    assert!(!less_is_promised_first("nothing"));
    assert!(!more_is_there_before_it_is_promised("nothing"));
    assert!(!rest_is_there_before_it_is_promised("nothing"));
    assert!(rest_is_there_before_it_is_promised("mapped.header.drain-b"));
    assert!(!a_wiped_region_is_not_a_new_one("nothing"));
    assert!(!a_source_dies_in_its_answer("nothing"));
}

/// The device dropped a write; what is left undecided is so after every start of the machine.
#[test]
fn a_lost_write_stays_one_when_the_machine_was_started_anew() {
    for closes in [true, false] {
        let machine = Machine::new(MediumKind::File, PAGES * PAGE);
        let options = ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) };
        let engine = machine.protect(&options);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
        machine.store(5, 1);
        engine.pass().unwrap();
        assert_eq!(machine.page(5), content(5, 0), "the device dropped it");
        drop(engine);
        let mut machine = killed(&machine, false);
        for run in [1, 2, 3] {
            let (engine, _) = machine.open(boot(run, Durability::Power));
            let said = verdict(&engine, 5);
            let doubted = matches!(said, PageVerdict::Undecided(why) if why.is_doubt());
            assert!(doubted, "run {run}, closed {closes}: {said:?}");
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            engine.pass().unwrap();
            assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 1), "run {run}");
            if closes {
                engine.close().unwrap();
            } else {
                drop(engine);
                machine = killed(&machine, false);
            }
        }
    }
}

/// The file loses its end, and where it ends now there is a hole: the last page of the region
/// before that was not cut.
#[test]
fn a_region_before_the_hole_a_file_ends_in_is_not_cut() {
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    *machine.world.holes.lock().unwrap() = vec![(8 * PAGE, 16 * PAGE)];
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    machine.rot(7, 100);
    machine.world.set_size(20 * PAGE);
    let covered = engine.pass().unwrap();
    assert_eq!(covered.pages, 0, "nothing was stored to");
    assert_eq!(verdict(&engine, 7), PageVerdict::Corrupt);
    assert_eq!(engine.repair(7, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(7), content(7, 0));
}

/// After a stop of the machine with nothing synced a stripe may be older than its sums, and its
/// parity with it: that they agree says nothing.
#[test]
fn parity_vouches_for_nothing_that_a_stop_has_cast_doubt_on() {
    let machine = Machine::new(MediumKind::File, PAGES * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    let place = machine.side.place(parity_page(1));
    let mut parity = vec![0; PAGE as usize];
    machine.side.read(parity_page(1), &mut parity).unwrap();
    // Twice: what it was just before would be known.
    for version in [1, 2] {
        machine.store(5, version);
        engine.pass().unwrap();
    }
    drop(engine);
    let machine = killed(&machine, false);
    // What was there before both, and an entry of the region that is wrong.
    machine.medium.stray(5 * PAGE, &content(5, 0)).unwrap();
    machine.medium.stray(place, &parity).unwrap();
    machine.medium.flip_bit(machine.side.place((128 << 10) + PAGE + 2 * 8), 3).unwrap();
    let (engine, _) = machine.open(boot(2, Durability::Process));
    let said = verdict(&engine, 5);
    assert!(matches!(said, PageVerdict::Undecided(Unsure::TrackingLost)), "{said:?}");
}

/// Protected against power cuts and closed, then opened for less after a start of the machine: who
/// is killed before that comes to its end has forgotten nothing.
#[test]
fn an_opening_for_less_that_is_cut_off_forgets_nothing() {
    let machine = at_rest("nothing");
    let stopped = Mapped::open_in_steps(
        machine.data.clone(),
        machine.side.clone(),
        machine.data.clone(),
        machine.world.clone(),
        Arc::new(Counter::default()),
        boot(2, Durability::Process),
        &mut |_, _| false,
    );
    assert!(stopped.unwrap().is_none());
    let machine = killed(&machine, false);
    machine.rot(5, 100);
    let (engine, opened) = machine.open(boot(2, Durability::Process));
    assert_eq!((opened.doubtful, verdict(&engine, 5)), (0, PageVerdict::Corrupt));
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(5), content(5, 0));
}
