//! Short stories of a pool, one for each public operation: what is there before, what is done.

use std::sync::Arc;

use holdfast_faultmem::Clear;
use holdfast_object::Error;
use holdfast_workloads::Rng;

use super::driver::Driver;
use super::handle::Handle;
use super::judge::scrub;
use super::linked::{Cell, Link, cells};
use super::ops::{Choice, Job, Op};
use super::raw::Bytes;
use super::targets::{Area, Side, Targets};
use super::watch::Watch;
use super::world::World;
use crate::tally::{Fault, Judged, Violation};

/// A story: everything in it is watched.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// Its name in reports.
    pub name: &'static str,
    /// What is done.
    pub plot: Plot,
}

/// Damage done in a scene.
#[derive(Debug, Clone, Copy)]
pub struct Wound {
    /// What is hit.
    pub area: Area,
    /// Whether its page becomes unreadable, and whether for good; else a bit is flipped.
    pub poison: Option<Clear>,
}

/// What is done in a scene.
#[derive(Debug, Clone, Copy)]
pub enum Plot {
    /// A pool is made.
    Create,
    /// A pool that was closed clean is opened.
    OpenClean,
    /// A pool that was not closed is opened.
    OpenDirty,
    /// A pool is closed.
    Close,
    /// Jobs are run, one after the other.
    Jobs(fn(&mut Rng, &Choice) -> Vec<Job>),
    /// Changes of a tree in which everything hangs on the root, told its cells, first to last.
    Linked(fn(&[Cell]) -> Vec<Link>),
    /// Jobs are run and cancelled.
    Cancelled(fn(&mut Rng, &Choice) -> Vec<Job>),
    /// A pool without damage is scrubbed.
    Scrub,
    /// A zone is added.
    Grow,
    /// A place is damaged, and the damage is repaired by a scrub.
    Repair(Wound),
    /// The same, repaired for a load that met it.
    Load(Wound),
    /// The pool is looked at, and not changed.
    Check,
    /// Each object is borrowed in place.
    View,
    /// The pool is filled, then a place of another size is made out of a run that became empty.
    Full,
}

const fn jobs(name: &'static str, jobs: fn(&mut Rng, &Choice) -> Vec<Job>) -> Scene {
    Scene { name, plot: Plot::Jobs(jobs) }
}

/// Every public operation on a pool.
pub const SCENES: &[Scene] = &[
    Scene { name: "create", plot: Plot::Create },
    Scene { name: "open-clean", plot: Plot::OpenClean },
    Scene { name: "open-dirty", plot: Plot::OpenDirty },
    Scene { name: "close", plot: Plot::Close },
    jobs("alloc-small", |rng, _| one(rng, Op::Alloc { len: 60 })),
    jobs("alloc-node", |rng, _| one(rng, Op::AllocNode)),
    jobs("alloc-new-class", |rng, _| one(rng, Op::Alloc { len: 600 })),
    jobs("alloc-empty", |rng, _| one(rng, Op::Alloc { len: 1 })),
    jobs("alloc-large", |rng, _| one(rng, Op::Alloc { len: 5_000 })),
    jobs("alloc-larger", |rng, _| one(rng, Op::Alloc { len: 14_000 })),
    jobs("write-8", |rng, c| one(rng, Op::Write { of: c.small[0].0, from: 16, len: 8 })),
    jobs("write-3", |rng, c| one(rng, Op::Write { of: c.small[1].0, from: 5, len: 3 })),
    jobs("write-whole", |rng, c| {
        let (of, len) = c.small[2];
        one(rng, Op::Write { of, from: 0, len })
    }),
    jobs("write-span", |rng, c| one(rng, Op::Write { of: c.large[0].0, from: 1000, len: 1100 })),
    jobs("write-middle", |rng, c| one(rng, Op::Write { of: c.large[0].0, from: 2060, len: 16 })),
    jobs("write-overflow", |rng, c| {
        let of = c.large.iter().max_by_key(|o| o.1).map_or(0, |o| o.0);
        one(rng, Op::Write { of, from: 100, len: 8_500 })
    }),
    jobs("update-node", |rng, c| one(rng, Op::Update { of: c.nodes[0] })),
    jobs("free-small", |rng, c| one(rng, Op::Free { of: c.small[0].0 })),
    jobs("free-large", |rng, c| one(rng, Op::Free { of: c.large[0].0 })),
    jobs("set-root", |rng, c| one(rng, Op::Root { to: c.nodes[1] })),
    jobs("many", |rng, c| vec![scattered(rng, c)]),
    jobs("many-large", |rng, c| {
        let ops = [
            Op::Free { of: c.large[0].0 },
            Op::Alloc { len: 2_500 },
            Op::Write { of: c.small[2].0, from: 0, len: 20 },
        ];
        vec![Job::new(rng, ops)]
    }),
    jobs("reuse-place", |rng, c| {
        let mut all = one(rng, Op::Free { of: c.small[0].0 });
        all.extend(one(rng, Op::Alloc { len: c.small[0].1 }));
        all
    }),
    jobs("reuse-chunks", |rng, c| {
        let mut all = one(rng, Op::Free { of: c.large[0].0 });
        all.extend(one(rng, Op::Alloc { len: c.large[0].1 }));
        all
    }),
    Scene {
        name: "cancel",
        plot: Plot::Cancelled(|rng, c| {
            let ops = [
                Op::Alloc { len: 60 },
                Op::Alloc { len: 3_000 },
                Op::Write { of: c.small[0].0, from: 0, len: 8 },
                Op::Free { of: c.small[1].0 },
            ];
            vec![Job::new(rng, ops)]
        }),
    },
    Scene { name: "full", plot: Plot::Full },
    Scene { name: "scrub", plot: Plot::Scrub },
    Scene { name: "grow", plot: Plot::Grow },
];

const fn flip(name: &'static str, area: Area) -> Scene {
    Scene { name, plot: Plot::Repair(Wound { area, poison: None }) }
}

const fn poison(name: &'static str, area: Area, clear: Clear) -> Scene {
    Scene { name, plot: Plot::Repair(Wound { area, poison: Some(clear) }) }
}

const fn load(name: &'static str, area: Area, clear: Clear) -> Scene {
    Scene { name, plot: Plot::Load(Wound { area, poison: Some(clear) }) }
}

/// What changes nothing in a pool, or only what a load met.
pub const LOOKS: &[Scene] = &[
    Scene { name: "check", plot: Plot::Check },
    Scene { name: "view", plot: Plot::View },
    load("load-object", Area::Object, Clear::Able),
    load("load-object-for-good", Area::Object, Clear::Unable),
    load("load-slot", Area::Slot, Clear::Able),
    load("load-p", Area::ParityP, Clear::Able),
];

/// A repair of every kind of place.
pub const REPAIRS: &[Scene] = &[
    flip("flip-object", Area::Object),
    flip("flip-slot", Area::Slot),
    flip("flip-free-slot", Area::FreeSlot),
    flip("flip-sum", Area::Sum),
    flip("flip-directory", Area::Directory),
    flip("flip-p", Area::ParityP),
    flip("flip-q", Area::ParityQ),
    flip("flip-free", Area::Free),
    flip("flip-superblock-a", Area::Superblock(Side::A)),
    flip("flip-superblock-b", Area::Superblock(Side::B)),
    flip("flip-regions-a", Area::Regions(Side::A)),
    flip("flip-remap-b", Area::Remap(Side::B)),
    flip("flip-intent-a", Area::Intent(Side::A)),
    flip("flip-progress-b", Area::Progress(Side::B)),
    poison("poison-object", Area::Object, Clear::Able),
    poison("poison-directory", Area::Directory, Clear::Able),
    poison("poison-p", Area::ParityP, Clear::Able),
    poison("poison-q", Area::ParityQ, Clear::Able),
    poison("poison-superblock-a", Area::Superblock(Side::A), Clear::Able),
    poison("poison-superblock-b", Area::Superblock(Side::B), Clear::Able),
    poison("poison-regions-b", Area::Regions(Side::B), Clear::Able),
    poison("poison-remap-a", Area::Remap(Side::A), Clear::Able),
    poison("poison-intent-b", Area::Intent(Side::B), Clear::Able),
    poison("poison-log-a", Area::Log(Side::A), Clear::Able),
    poison("poison-log-b", Area::Log(Side::B), Clear::Able),
    poison("dead-object", Area::Object, Clear::Unable),
    poison("dead-directory", Area::Directory, Clear::Unable),
    poison("dead-p", Area::ParityP, Clear::Unable),
    poison("dead-q", Area::ParityQ, Clear::Unable),
];

const fn linked(name: &'static str, links: fn(&[Cell]) -> Vec<Link>) -> Scene {
    Scene { name, plot: Plot::Linked(links) }
}

/// What changes a tree in which everything hangs on the root: for linked worlds. The cast has a
/// full cell of small payloads first, then one of large ones, then one with free slots.
pub const LINKED: &[Scene] = &[
    linked("linked-cell", |_| vec![Link::Cell]),
    linked("linked-hang", |c| vec![Link::Hang { cell: c[2].at, slot: 2, len: 60 }]),
    linked("linked-hang-class", |c| vec![Link::Hang { cell: c[2].at, slot: 2, len: 600 }]),
    linked("linked-hang-large", |c| vec![Link::Hang { cell: c[2].at, slot: 3, len: 9_000 }]),
    linked("linked-take", |c| vec![Link::Take { cell: c[0].at, slot: 1 }]),
    linked("linked-take-large", |c| vec![Link::Take { cell: c[1].at, slot: 1 }]),
    linked("linked-replace", |c| vec![Link::Hang { cell: c[0].at, slot: 0, len: 64 }]),
    linked("linked-replace-large", |c| vec![Link::Hang { cell: c[1].at, slot: 0, len: 3_000 }]),
    linked("linked-cut", |_| vec![Link::Cut]),
    linked("linked-cut-large", |_| vec![Link::Cut, Link::Cut]),
];

/// What linked scenes begin with, from the last cell to the first.
const LINKED_CAST: &[&[u64]] = &[&[900, 24], &[3_000, 12_000], &[64, 24, 200, 64]];

/// One transaction of one operation.
fn one(rng: &mut Rng, op: Op) -> Vec<Job> {
    vec![Job::new(rng, [op])]
}

/// What most scenes begin with: a few objects of each kind.
const CAST: &[Op] = &[
    Op::Alloc { len: 64 },
    Op::Alloc { len: 24 },
    Op::Alloc { len: 200 },
    Op::AllocNode,
    Op::AllocNode,
    Op::Alloc { len: 3_000 },
    Op::Alloc { len: 12_000 },
    Op::Alloc { len: 900 },
];

/// A pool with the usual objects in it, just made.
///
/// # Errors
/// What went wrong making it.
pub fn stage(world: &World, rng: &mut Rng) -> Judged<Driver> {
    let medium = world.blank();
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    let driver = Driver::found(medium, pool)?;
    if world.linked {
        return stage_linked(driver, rng);
    }
    for op in CAST {
        driver.must(&Job::new(rng, [op.clone()]))?;
    }
    Ok(driver)
}

fn stage_linked(driver: Driver, rng: &mut Rng) -> Judged<Driver> {
    let driver = Driver { ledger: driver.ledger.linked(true), ..driver };
    for payloads in LINKED_CAST {
        driver.must(&Job::new(rng, [Op::Link(Link::Cell)]))?;
        for (slot, len) in payloads.iter().enumerate() {
            let first = cells(&driver.ledger.objects(), driver.anchor);
            let cell = first.first().map_or(0, |cell| cell.at);
            driver.must(&Job::new(rng, [Op::Link(Link::Hang { cell, slot, len: *len })]))?;
        }
    }
    Ok(driver)
}

/// A few bytes of every object, in one transaction.
fn everywhere(rng: &mut Rng, c: &Choice) -> Job {
    Job::new(rng, c.small.iter().chain(&c.large).map(|o| Op::Write { of: o.0, from: 0, len: 8 }))
}

/// A bit of everything, in one transaction.
fn scattered(rng: &mut Rng, c: &Choice) -> Job {
    let ops = [
        Op::Alloc { len: 30 },
        Op::Write { of: c.small[0].0, from: 0, len: 8 },
        Op::Free { of: c.small[1].0 },
        Op::Update { of: c.nodes[0] },
        Op::Root { to: c.nodes[0] },
    ];
    Job::new(rng, ops)
}

/// A violation for an error of a call that has to succeed.
pub fn refused(call: &str, error: &Error) -> Violation {
    Violation::new(Fault::Refused, format!("{call}: {error}"))
}

/// Plays a scene in `world`, with `watch` making the watch once the promise is known.
///
/// # Errors
/// What went wrong in the story itself, apart from what the watch sees.
pub fn play(
    scene: &Scene,
    world: &Arc<World>,
    rng: &mut Rng,
    watch: impl FnOnce(&super::driver::Ledger) -> Watch,
) -> Judged<Watch> {
    if matches!(scene.plot, Plot::Create) {
        return play_create(world, rng, watch);
    }
    let driver = stage(world, rng)?;
    match scene.plot {
        Plot::OpenClean | Plot::OpenDirty => {
            return play_open(world, driver, rng, matches!(scene.plot, Plot::OpenClean), watch);
        }
        _ => {}
    }
    let driver = match scene.plot {
        // What a file still owes to its medium is exempt from the promise of repair: see the
        // guarantee. So the damage meets a pool that owes nothing.
        Plot::Repair(_) => settled(world, driver)?,
        Plot::Close => {
            // More than can be put off: its drain is its own, and closing relies on it.
            driver.must(&everywhere(rng, &Choice::of(&driver.ledger.objects())))?;
            driver
        }
        _ => driver,
    };
    let watch = watch(&driver.ledger);
    let choice = Choice::of(&driver.ledger.objects());
    watch.begin(&driver.medium);
    match scene.plot {
        Plot::Jobs(jobs) => {
            for job in jobs(rng, &choice) {
                driver.must(&job)?;
            }
        }
        Plot::Linked(links) => {
            for link in links(&cells(&driver.ledger.objects(), driver.anchor)) {
                driver.must(&Job::new(rng, [Op::Link(link)]))?;
            }
        }
        Plot::Cancelled(jobs) => {
            for job in jobs(rng, &choice) {
                driver.cancel(&job)?;
            }
        }
        Plot::Full => fill(&driver, rng).map_err(|error| refused("filling", &error))?,
        Plot::Scrub => {
            scrub(&driver.pool)?;
        }
        Plot::Grow => {
            let size = world.options.size * 2;
            driver.pool.grow(size).map_err(|error| refused("grow", &error))?;
            driver.must(&Job::new(rng, [Op::Alloc { len: 40_000 }]))?;
        }
        Plot::Repair(wound) => {
            hurt(&driver, &wound, rng);
            scrub(&driver.pool)?;
        }
        _ => {}
    }
    finish(driver, &watch, matches!(scene.plot, Plot::Close))?;
    Ok(watch)
}

/// Closes a pool and opens it again.
///
/// # Errors
/// What the engine answered to the open.
pub fn settled(world: &World, driver: Driver) -> Judged<Driver> {
    let Driver { medium, pool, ledger, anchor } = driver;
    drop(pool);
    let medium = world.after(medium.crash_point().persisted());
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    Ok(Driver { medium, pool, ledger, anchor })
}

/// Does the damage of a repair scene, and answers where. Worlds without such a place are left as
/// they are: `None`.
pub fn hurt(driver: &Driver, wound: &Wound, rng: &mut Rng) -> Option<u64> {
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let target = targets.pick(wound.area, rng)?;
    let at = target.at + rng.below(target.len);
    // The place was found on this very medium: it is in range.
    let done = match wound.poison {
        None => driver.medium.flip_bit(at, rng.below(8) as u8),
        Some(clear) => driver.medium.poison(at, 1, clear),
    };
    done.is_ok().then_some(at)
}

/// The instant after the last operation, and the end of the pool.
fn finish(driver: Driver, watch: &Watch, close: bool) -> Judged<()> {
    driver.check().map_err(|v| v.during("the pool in use"))?;
    driver.read_all().map_err(|v| v.during("the pool in use"))?;
    watch.look(&driver.medium.crash_point());
    let Driver { medium, pool, .. } = driver;
    if close {
        drop(pool);
        medium.clear_on_barrier();
        watch.look(&medium.crash_point());
    } else {
        medium.abandon(pool);
    }
    Ok(())
}

fn play_create(
    world: &Arc<World>,
    rng: &mut Rng,
    watch: impl FnOnce(&super::driver::Ledger) -> Watch,
) -> Judged<Watch> {
    let ledger = super::driver::Ledger::new(super::model::Objects::default());
    let watch = watch(&ledger);
    watch.making(true);
    let medium = world.blank();
    watch.begin(&medium);
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    medium.clear_on_barrier();
    let driver = Driver::found(medium, pool)?;
    *ledger.lock() = driver.ledger.promise();
    watch.making(false);
    watch.look(&driver.medium.crash_point());
    let driver = Driver { ledger, ..driver };
    watch.begin(&driver.medium);
    driver.must(&Job::new(rng, [Op::AllocNode]))?;
    finish(driver, &watch, false)?;
    Ok(watch)
}

fn play_open(
    world: &Arc<World>,
    driver: Driver,
    rng: &mut Rng,
    clean: bool,
    watch: impl FnOnce(&super::driver::Ledger) -> Watch,
) -> Judged<Watch> {
    let Driver { medium, pool, ledger, .. } = driver;
    let image = if clean {
        drop(pool);
        medium.crash_point().persisted()
    } else {
        let image = medium.crash_point().persisted();
        medium.abandon(pool);
        image
    };
    let watch = watch(&ledger);
    let medium: Handle = world.after(image);
    watch.begin(&medium);
    let (pool, opened) = world.open(&medium).map_err(|error| refused("open", &error))?;
    if opened.clean != clean {
        let story = format!("a pool closed {clean:?} was found {:?}", opened.clean);
        return Err(Violation::new(Fault::Wrong, story));
    }
    let anchor = pool.superblock().anchor;
    let driver = Driver { medium, pool, ledger, anchor };
    driver.must(&Job::new(rng, [Op::Alloc { len: 33 }]))?;
    finish(driver, &watch, false)?;
    Ok(watch)
}

/// Fills the pool with one size and frees it all.
///
/// # Errors
/// What the engine answered.
pub fn fill(driver: &Driver, rng: &mut Rng) -> Result<(), Error> {
    let before = driver.ledger.objects();
    while driver.run(&Job::new(rng, [Op::Alloc { len: 1_200 }]))? {}
    let added: Vec<u64> = {
        let now = driver.ledger.objects();
        now.iter().map(|(word, _)| word).filter(|word| before.get(*word).is_none()).collect()
    };
    for of in added {
        driver.run(&Job::new(rng, [Op::Free { of }]))?;
    }
    Ok(())
}
