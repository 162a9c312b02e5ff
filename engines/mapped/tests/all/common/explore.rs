//! A life of a protected file, cut off at every barrier: each image a crash may leave is opened in
//! every way that its marks and the page cache may have come through, and judged.
//!
//! What is counted must be zero on the engine as it is; with a place in the code switched off, at
//! least one count is not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Budget, CrashPoint, Marks};
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, ProtectOptions, Writing};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::PageVerdict;

use crate::common::{Engine, Machine, boot, content, is_direct, on_direct_access, tiny};

/// Pages of the data file: three regions, the last of which is not whole.
pub(crate) const PAGES: u64 = 19;
/// The page that rots in scenes with damage. Stored to and covered first.
pub(crate) const ROTTEN: u64 = 2;

/// What went wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) images: u64,
    /// Corrupt was said of a page that nobody damaged.
    pub(crate) false_alarms: u64,
    /// Bytes of the data file changed though nobody asked for it.
    pub(crate) reverted: u64,
    /// Good was said of bytes that no program stored.
    pub(crate) believed: u64,
    /// A page was in doubt though everything about it was known.
    pub(crate) doubted: u64,
    /// A page that was covered did not come back after it was damaged.
    pub(crate) not_given_back: u64,
    /// An interrupted repair was forgotten, or the side file could not be opened.
    pub(crate) refused: u64,
}

impl Wrong {
    pub(crate) fn is_none(&self) -> bool {
        Self { images: 0, ..*self } == Self::default()
    }
}

/// One way to live and to die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene {
    pub(crate) kind: MediumKind,
    pub(crate) durability: Durability,
    /// Whether the bits of the source outlive the crash.
    pub(crate) bits: bool,
    /// Whether the machine stops, and with it the page cache, or the process only.
    pub(crate) power: bool,
    /// Whether a page rots on the way.
    pub(crate) rot: bool,
    pub(crate) parity: u32,
    /// Whether first stores are recorded in the side file before they are made.
    pub(crate) recorded: bool,
}

/// What the hook knows when it is called.
#[derive(Debug, Default)]
struct Known {
    /// Whole contents each page has had.
    versions: BTreeMap<u64, Vec<Vec<u8>>>,
    rotten: bool,
    /// Pages known to have been stored to when the power was cut, by bits that outlived it or by
    /// what the batch noted: what they hold is the program's, torn or not.
    torn: Vec<u64>,
    /// Pages stored to since the last pass was over.
    fresh: Vec<u64>,
    /// A batch has come so far that it may have noted what it took.
    noted: bool,
    wrong: Wrong,
    /// Whether everything that could be stale has been told in detail, so that no page of a
    /// machine whose bits live may be in doubt.
    barriers: u64,
}

/// Plays the life of `scene` with `off` switched off, and judges every image.
pub(crate) fn play(scene: Scene, off: Option<&str>, images: usize) -> Wrong {
    let size = (PAGES - 1) * PAGE + 1000;
    let machine = Machine::new(scene.kind, size);
    let options = ProtectOptions { open: boot(1, scene.durability), ..tiny(scene.parity) };
    let known = Arc::new(Mutex::new(Known::default()));
    for page in 0..PAGES {
        known.lock().unwrap().versions.insert(page, vec![machine.page(page)]);
    }
    if let Some(off) = off {
        machine.medium.elide_name(off);
    }
    let engine = machine.protect(&options);
    if scene.recorded {
        machine.record();
    }
    let hook = Arc::clone(&known);
    let twin = machine.clone();
    let named = off.map(str::to_owned);
    machine.medium.on_barrier(Box::new(move |_, site, point| {
        let known = &mut *hook.lock().unwrap();
        known.barriers += 1;
        let marks = twin.data.marks();
        let off = named.as_deref();
        judge_point(scene, off, known, &marks, site.name(), point, images, size);
    }));
    live(&machine, engine, &known, scene);
    machine.medium.clear_on_barrier();
    let point = machine.medium.crash_point();
    let known = &mut *known.lock().unwrap();
    judge_point(scene, off, known, &Marks::default(), "closed", &point, images, size);
    known.wrong
}

/// The program stores, passes come, a page rots, writers leave.
fn live(machine: &Machine, engine: Engine, known: &Mutex<Known>, scene: Scene) {
    let done = |_| {
        let known = &mut *known.lock().unwrap();
        (known.fresh, known.noted) = (Vec::new(), false);
    };
    let store = |page: u64, version: u64| {
        known.lock().unwrap().fresh.push(page);
        known.lock().unwrap().versions.get_mut(&page).unwrap().push({
            let mut bytes = content(page, version);
            if page == PAGES - 1 {
                bytes[1000..].fill(0);
            }
            bytes
        });
        // By a thread of its own: what it flushed is not drained by the engine's drains.
        let direct = is_direct();
        let store = || on_direct_access(direct, || machine.store(page, version));
        std::thread::scope(|threads| threads.spawn(store).join()).unwrap();
    };
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    for page in [1, ROTTEN, 5, 9, PAGES - 1] {
        store(page, 1);
    }
    done(engine.pass().unwrap());
    if scene.rot {
        machine.rot(ROTTEN, 77);
        known.lock().unwrap().rotten = true;
    }
    for page in [0, 5, 12] {
        store(page, 2);
    }
    done(engine.pass().unwrap());
    store(5, 3);
    store(13, 3);
    done(engine.update_now().unwrap());
    store(7, 4);
    engine.close().unwrap();
}

#[expect(clippy::too_many_arguments, reason = "what a hook knows, once")]
fn judge_point(
    scene: Scene,
    off: Option<&str>,
    known: &mut Known,
    marks: &Marks,
    barrier: &str,
    point: &CrashPoint,
    images: usize,
    size: u64,
) {
    let marks = scene.bits.then(|| marks.clone());
    let dirty = marks.iter().flat_map(|marks| marks.dirty.iter().copied());
    known.noted |= barrier == "mapped.commit.N";
    let noted = known.fresh.iter().copied().filter(|_| known.noted);
    known.torn = if scene.power { dirty.chain(noted).collect() } else { Vec::new() };
    if scene.power && scene.recorded {
        known.torn.extend(known.fresh.iter().copied());
    }
    let run = if scene.power { 2 } else { 1 };
    let some = scene.power.then(|| {
        let n = images;
        let seed = known.barriers;
        let budget = Budget { exhaustive: n as u64, singles: n, pairs: n / 2, samples: n, seed };
        let step = (point.images(&budget).count() / images.max(1)).max(1);
        // One at a time: memory for all of them would cost more than to make them.
        let ends = core::iter::once_with(|| point.persisted());
        point.images(&budget).step_by(step).chain(ends)
    });
    for image in some.into_iter().flatten().chain(core::iter::once_with(|| point.newest())) {
        known.wrong.images += 1;
        let machine = Machine::after(image, scene.kind, size, marks.clone());
        if let Some(off) = off {
            machine.medium.elide_name(off);
        }
        // Between B and N what was taken is known to nobody else, unless it is on record.
        let told = scene.bits && !scene.power && barrier != "mapped.commit.N";
        let synced = scene.kind == MediumKind::File && scene.durability == Durability::Power;
        let told = told || scene.recorded && (!scene.power || synced);
        judge(&machine, boot(run, scene.durability), known, told);
    }
}

fn judge(machine: &Machine, options: OpenOptions, known: &mut Known, told: bool) {
    let before: Vec<Vec<u8>> = (0..PAGES).map(|page| machine.page(page)).collect();
    let looking = OpenOptions { read_only: true, ..options };
    for options in [looking, options] {
        let Ok((engine, _)) = machine.try_open(options) else {
            known.wrong.refused += 1;
            return;
        };
        judge_pages(machine, &engine, known, told);
        if options.read_only {
            continue;
        }
        if engine.scrub(Some(&AtRest)).is_err() {
            known.wrong.refused += 1;
            return;
        }
        compare(machine, &before, known);
        // Writers that were there all along: bits that outlived are known, others are doubted.
        if engine.admit(0, u64::MAX, Writing::NotYet).is_err() || engine.pass().is_err() {
            known.wrong.refused += 1;
            return;
        }
        judge_pages(machine, &engine, known, told);
        compare(machine, &before, known);
        give_back(machine, &engine, known);
        if engine.close().is_err() {
            known.wrong.refused += 1;
            return;
        }
        let (engine, _) = machine.open(options);
        judge_pages(machine, &engine, known, told);
    }
}

/// Holds each verdict against what the program stored.
fn judge_pages(machine: &Machine, engine: &Engine, known: &mut Known, told: bool) {
    for page in 0..PAGES {
        let bytes = machine.page(page);
        let torn = known.torn.contains(&page);
        let stored = torn || known.versions[&page].contains(&bytes);
        let rotten = known.rotten && page == ROTTEN;
        match engine.verify(page).unwrap().verdict {
            PageVerdict::Good => known.wrong.believed += u64::from(!stored),
            PageVerdict::Corrupt => known.wrong.false_alarms += u64::from(!rotten || stored),
            PageVerdict::Undecided(why) => {
                known.wrong.doubted += u64::from(told && !rotten && why.is_doubt());
            }
        }
    }
}

/// Nothing but the rotten page may have changed.
fn compare(machine: &Machine, before: &[Vec<u8>], known: &mut Known) {
    for (page, before) in (0..PAGES).zip(before) {
        let now = machine.page(page);
        let mended = known.rotten && page == ROTTEN && known.versions[&page].contains(&now);
        known.wrong.reverted += u64::from(now != *before && !mended);
    }
}

/// Damages one covered page of each stripe that is covered whole: it comes back.
fn give_back(machine: &Machine, engine: &Engine, known: &mut Known) {
    for stripe in 0..PAGES / 4 {
        let good = |page| engine.verify(page).unwrap().verdict == PageVerdict::Good;
        if !(stripe * 4..stripe * 4 + 4).all(good) {
            continue;
        }
        let page = stripe * 4 + known.wrong.images % 4;
        let whole = machine.page(page);
        machine.rot(page, known.wrong.images % 4096);
        let mended = engine.repair(page, &AtRest, Force::No);
        let back = matches!(mended, Ok(Mended::Repaired)) && machine.page(page) == whole;
        known.wrong.not_given_back += u64::from(!back);
        if !back {
            machine.data.window().shared().stray(page * PAGE, &whole).unwrap();
        }
    }
}
