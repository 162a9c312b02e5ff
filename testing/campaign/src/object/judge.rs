//! Judges a crash image: open it, compare, work on it, compare again, crash it again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::{Budget, Clear, CrashPoint, Image};
use holdfast_object::{Error, Pool, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_oracle::acked::Acked;
use holdfast_workloads::Rng;

use super::driver::{Driver, agree, whole};
use super::handle::Handle;
use super::model::{Objects, fingerprint};
use super::ops::anchor_type;
use super::owned::{counted, tree};
use super::raw::Bytes;
use super::targets::{Area, Targets};
use super::watch::images;
use super::world::World;
use super::wrong::{self, Lie};
use crate::runner::panic_text;
use crate::tally::{Fault, Judged, Tally, Violation};

/// What an image must hold.
#[derive(Debug, Clone)]
pub enum Promise {
    /// A pool is being made: there is none yet, or an empty one.
    Making,
    /// What was acknowledged, with or without each change in flight.
    Kept(Acked<Objects>),
}

/// Figure: images of recoveries that differ, or are held against different promises.
pub const DISTINCT_NESTED: &str = "distinct images of recoveries";

/// Figure: images of recoveries of what a crash of a recovery left.
pub const DEEPER: &str = "images of recoveries of recoveries";

/// Stream of random numbers for what else is looked at.
const ALSO: u64 = 1 << 32;

/// Images looked at for each barrier of a recovery, about.
const NESTED: usize = 3;

/// One in so many images, which have recovered, is checked by the engine itself.
const CHECK_EACH: u64 = 8;
impl Promise {
    /// Equal for promises of the same.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Making => 0,
            Self::Kept(promise) => fingerprint(promise),
        }
    }
}

/// What makes an image one of its own: its bytes, the kind of the world, what is promised.
#[must_use]
pub fn distinct(world: &World, promise: u64, image: &Image) -> u64 {
    let mut hasher = DefaultHasher::new();
    // A fingerprint does not see zeroes: a medium that has grown differs by its length alone.
    (world.name, world.linked, promise, image.fingerprint(), image.bytes().len()).hash(&mut hasher);
    hasher.finish()
}

/// How recoveries are crashed.
#[derive(Debug, Clone, Copy)]
pub struct Nested {
    /// Images of each barrier that is looked at.
    pub budget: Budget,
    /// One in so many barriers is looked at.
    pub each: u64,
    /// Levels: the recovery from a crash in a recovery is level 2.
    pub depth: u32,
    /// One in so many images goes a level deeper.
    pub deeper_each: u64,
    /// Crashes of recoveries there have been on the way here.
    pub above: u32,
}

/// How thoroughly images are judged.
#[derive(Debug, Clone, Copy)]
pub struct Care {
    /// Jobs run on the recovered pool.
    pub more: u32,
    /// Whether the recovered pool is scrubbed first: damage that nobody met stays until then.
    pub scrub: bool,
    /// Whether the recovered pool is crashed once more after those jobs, and opened again.
    pub again: bool,
    /// How the recovery itself is crashed.
    pub nested: Option<Nested>,
    /// An area all pages of which are lost together with the crash: one copy of something.
    pub ruin: Option<Area>,
}

impl Care {
    /// Open, compare, three jobs, compare.
    pub const USUAL: Self = Self { more: 3, scrub: false, again: false, nested: None, ruin: None };
}

/// Judges one image. Counts nested images in `tally`.
///
/// # Errors
/// The violation.
pub fn judge(
    world: &Arc<World>,
    image: Image,
    promise: &Promise,
    care: &Care,
    seed: u64,
    tally: &mut Tally,
) -> Judged<()> {
    let judged = catch_unwind(AssertUnwindSafe(|| open(world, image, promise, care, seed, tally)));
    judged.unwrap_or_else(|panic| Err(Violation::new(Fault::Panicked, panic_text(&*panic))))
}

fn open(
    world: &Arc<World>,
    image: Image,
    promise: &Promise,
    care: &Care,
    seed: u64,
    tally: &mut Tally,
) -> Judged<()> {
    let medium = world.after(image);
    if let Some(area) = care.ruin {
        ruin(&medium, area);
    }
    let inner = Arc::new(Mutex::new(Tally::default()));
    if let Some(nested) = care.nested {
        let (world, promise, inner) = (Arc::clone(world), promise.clone(), Arc::clone(&inner));
        let care = *care;
        let mut rng = Rng::part(seed, nested.depth.into());
        medium.on_barrier(Box::new(move |_, _, point| {
            if rng.below(nested.each) > 0 {
                return;
            }
            let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            crash_within(&world, point, &promise, &care, nested, &mut rng, &mut inner);
        }));
    }
    let opened = world.open(&medium);
    // The scrub belongs to the recovery: it is cut off as well.
    let scrubbed = match &opened {
        Ok((pool, _)) if care.scrub => scrub(pool).map(drop),
        _ => Ok(()),
    };
    medium.clear_on_barrier();
    let inner = std::mem::take(&mut *inner.lock().unwrap_or_else(PoisonError::into_inner));
    tally.merge(inner);
    let pool = match opened {
        Ok((pool, _)) => pool,
        Err(error) => return refused(promise, &error),
    };
    scrubbed?;
    if wrong::told(Lie::Reverts) {
        change_a_byte(&medium);
    }
    let driver = match promise {
        Promise::Making => {
            let driver = Driver::found(medium, pool)?;
            empty(&driver)?;
            driver
        }
        Promise::Kept(promise) => {
            let found = whole(&medium)?;
            // First what needs no promise: nothing is allocated that nothing leads to.
            if world.linked {
                tree(&found)?;
            }
            agree(promise, &found.objects)?;
            if found.log_chunks > 0 {
                let story = format!("{} log chunks are left after the open", found.log_chunks);
                return Err(Violation::new(Fault::Wrong, story));
            }
            counted(&found, &pool.space())?;
            let driver = Driver::new(medium, pool, found.objects);
            let driver = Driver { ledger: driver.ledger.linked(world.linked), ..driver };
            if let Some(also) = &world.also {
                also.look(&driver, &mut Rng::part(seed, ALSO))?;
            }
            driver
        }
    };
    work(world, driver, care, seed, tally)
}

/// Makes all pages of an area unreadable, clearable by a rewrite.
fn ruin(medium: &Handle, area: Area) {
    for target in Targets::of(&Bytes::of(medium)).of_area(area) {
        // The place was found on this very medium: it is in range.
        let _ = medium.poison(target.at, target.len, Clear::Able);
    }
}

/// Changes a byte of an object, if there is one.
fn change_a_byte(medium: &Handle) {
    if let Some(target) = Targets::of(&Bytes::of(medium)).of_area(Area::Object).next() {
        // The place was found on this very medium: it is in range.
        let _ = medium.flip_bit(target.at, 0);
    }
}

/// Judges images of an instant within a recovery.
fn crash_within(
    world: &Arc<World>,
    point: &CrashPoint,
    promise: &Promise,
    care: &Care,
    nested: Nested,
    rng: &mut Rng,
    tally: &mut Tally,
) {
    let budget = Budget { seed: rng.next_u64(), ..nested.budget };
    let site = point.barrier().map_or("the end", |(site, _)| site.name());
    let promised = promise.fingerprint();
    for image in images(point, &budget, NESTED, rng) {
        tally.saw(DISTINCT_NESTED, distinct(world, promised, &image));
        let deeper = nested.depth > 1 && rng.below(nested.deeper_each) == 0;
        let level = Nested { depth: nested.depth - 1, above: nested.above + 1, ..nested };
        let care = Care { more: 0, again: false, nested: deeper.then_some(level), ..*care };
        tally.count += 1;
        if nested.above > 0 {
            tally.add(DEEPER, 1);
        }
        let place = format!("crash in recovery before {site}, image {}", image.index());
        let seed = rng.next_u64();
        let judged = wrong::deeper(|| judge(world, image, promise, &care, seed, tally));
        tally.judge(judged.map_err(|violation| violation.during(place)));
    }
}

/// Scrubs a pool in which nothing may be beyond repair.
///
/// # Errors
/// What was lost, or why the scrub failed.
pub fn scrub(pool: &Pool<Handle>) -> Judged<Scrubbed> {
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| Violation::new(Fault::Refused, format!("scrub: {error}")))?;
    if done.lost > 0 {
        let story = format!("the scrub gave up {}: {:?}", done.lost, done.report.findings);
        return Err(Violation::new(Fault::Wrong, story));
    }
    Ok(done)
}

/// An image may be no pool yet, while one is being made; nothing else may be refused.
fn refused(promise: &Promise, error: &Error) -> Judged<()> {
    let no_pool = matches!(error, Error::Redundancy(holdfast_redundancy::Error::Superblock { .. }));
    if matches!(promise, Promise::Making) && no_pool {
        return Ok(());
    }
    Err(Violation::new(Fault::Refused, format!("open: {error}")))
}

/// A pool just made holds its anchor, and that is empty.
fn empty(driver: &Driver) -> Judged<()> {
    let objects = driver.ledger.objects();
    let anchor = objects.get(driver.anchor);
    let blank = |anchor: &super::model::Object| {
        anchor.kind == anchor_type() && anchor.bytes.iter().all(|byte| *byte == 0)
    };
    if objects.len() == 1 && anchor.is_some_and(blank) {
        return Ok(());
    }
    Err(Violation::new(Fault::Wrong, format!("a new pool holds {} objects", objects.len())))
}

/// The engine calls nothing damaged in a pool that the second reader has found whole.
fn sound(driver: &Driver) -> Judged<()> {
    let report = driver.pool.check(|_, _| {});
    let report = report.map_err(|e| Violation::new(Fault::Refused, format!("check: {e}")))?;
    if report.is_clean() {
        return Ok(());
    }
    let story = format!("nothing is damaged, and a check finds {:?}", report.findings.first());
    Err(Violation::new(Fault::FalseReport, story))
}

/// Runs the jobs, compares, and crashes the pool once more if asked.
fn work(
    world: &Arc<World>,
    driver: Driver,
    care: &Care,
    seed: u64,
    tally: &mut Tally,
) -> Judged<()> {
    let mut rng = Rng::new(seed);
    if care.more > 0 {
        driver.read_all()?;
        driver.go_on(&mut rng, care.more).map_err(|v| v.during("after recovery"))?;
        driver.check().map_err(|v| v.during("after recovery and more work"))?;
    }
    if seed.is_multiple_of(CHECK_EACH) && care.ruin.is_none() {
        sound(&driver)?;
    }
    let again = care.again.then(|| driver.medium.crash_point().persisted());
    let promise = Promise::Kept(driver.ledger.promise());
    let Driver { medium, pool, .. } = driver;
    medium.abandon(pool);
    let Some(image) = again else { return Ok(()) };
    // What else was looked at was so before this work.
    let world = &Arc::new(World { also: None, ..(**world).clone() });
    let care = Care { more: 0, again: false, nested: None, ruin: None, ..*care };
    judge(world, image, &promise, &care, seed, tally).map_err(|v| v.during("crashed again"))
}
