//! Watermark records and the rule of reuse, driven into the corners where each step is needed.
//!
//! Every lane is a thread of its own, and each thread keeps the lane it had first.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::Scope;

use holdfast_faultmem::{Budget, Clear, Config, FaultMedium, Mode};
use holdfast_logs::format::{LINE_LEN, RING_MARKS};
use holdfast_pmem::MediumKind;
use holdfast_workloads::Rng;

use super::Mutant;
use super::jury::{Jury, abandon, opened, unable};
use super::overflow::without;
use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::judge::{Care, scrub};
use crate::object::lanes::{Park, install, midway};
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, settled, stage};
use crate::object::targets::{Area, Side, Targets};
use crate::object::watch::{Plan, Watch};
use crate::object::world::World;
use crate::object::wrap;
use crate::tally::{Judged, Tally};

/// Images of an instant in which two records may be torn.
const TORN: Budget = Budget { exhaustive: 256, singles: 16, pairs: 16, samples: 80, seed: 0 };
/// Asked by who is about to overwrite a record in a ring.
const RING_REUSE: &str = "logs.ring.reuse";
/// The same in the log of a file.
const LOG_REUSE: &str = "logs.group.reuse";
/// Passes of that without anything else, after which a commit is taken to wait for room.
const WAITING: u64 = 8;

/// A commit that is held up here has its number, and nothing else yet.
const NUMBERED: &str = "object.commit.step-numbered";

type Order = (Job, Option<Arc<Park>>);

/// One thread for each lane, waiting for jobs.
struct Lanes {
    orders: Vec<Sender<Order>>,
    done: Vec<Receiver<Judged<bool>>>,
    parks: Vec<Arc<Park>>,
}

impl Lanes {
    /// Starts so many threads, each with a lane that it comes back to.
    fn start<'s>(scope: &'s Scope<'s, '_>, driver: &'s Driver, count: usize) -> Self {
        let together = Arc::new(Barrier::new(count));
        let mut lanes = Self { orders: Vec::new(), done: Vec::new(), parks: Vec::new() };
        for _ in 0..count {
            let (order, orders) = channel::<Order>();
            let (tell, done) = channel();
            let together = Arc::clone(&together);
            let (enter, entered) = channel();
            scope.spawn(move || {
                // All of them in a transaction at once, so that each has a lane of its own; one
                // after the other, so that it is the same in every run.
                let taken = driver.pool.run(|_| {
                    let _ = enter.send(());
                    together.wait();
                    Ok(())
                });
                let _ = tell.send(taken.map(|()| true).map_err(|e| refused("lane", &e)));
                for (job, park) in orders {
                    let done = match park {
                        Some(park) => park.keep(|| driver.must(&job)),
                        None => driver.must(&job),
                    };
                    // Nobody listens any more only if the story ended early.
                    let _ = tell.send(done);
                }
            });
            lanes.orders.push(order);
            lanes.done.push(done);
            // If it died instead, its lane says so later.
            let _ = entered.recv();
        }
        lanes
    }

    /// Waits until all threads have their lanes.
    fn ready(&self) -> Judged<()> {
        (0..self.orders.len()).try_for_each(|lane| self.join(lane))
    }

    /// Waits for the end of a lane's job.
    fn join(&self, lane: usize) -> Judged<()> {
        self.done[lane].recv().unwrap_or_else(|_| Err(unable("a lane died"))).map(|_| ())
    }

    /// Runs a job to its end.
    fn run(&self, lane: usize, job: Job) -> Judged<()> {
        let _ = self.orders[lane].send((job, None));
        self.join(lane)
    }

    /// Runs a job up to a step.
    fn park(&mut self, lane: usize, job: Job, park: Arc<Park>) -> Judged<Arc<Park>> {
        self.parks.push(Arc::clone(&park));
        let _ = self.orders[lane].send((job, Some(Arc::clone(&park))));
        if park.wait() { Ok(park) } else { Err(unable("a lane was not held up")) }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.parks.iter().for_each(|park| park.release());
    }
}

/// Lengths of the cast: each has a run of its own, so no two share a column.
const LENGTHS: [u64; 6] = [64, 128, 192, 256, 320, 384];

/// A pool with small rings, all empty, and six objects.
fn cast(mutant: &Mutant, world: &'static str) -> Judged<(Arc<World>, Driver, Vec<u64>, Rng)> {
    let (world, mut rng) = (Arc::new(mutant.within(wrap::world(world))), mutant.rng(1));
    let (driver, six) = cast_in(&world, &mut rng)?;
    Ok((world, driver, six, rng))
}

/// The same in a world with small rings.
fn cast_in(world: &Arc<World>, rng: &mut Rng) -> Judged<(Driver, Vec<u64>)> {
    let driver = stage(world, rng)?;
    for len in LENGTHS {
        driver.must(&Job::new(rng, [Op::Alloc { len }]))?;
    }
    let driver = settled(world, driver)?;
    let choice = Choice::of(&driver.ledger.objects());
    let of_len = |len| choice.small.iter().find(|o| o.1 == len).map(|o| o.0);
    let six: Vec<u64> = LENGTHS.into_iter().filter_map(of_len).collect();
    if six.len() < LENGTHS.len() {
        return Err(unable("six objects were made"));
    }
    install(&driver.medium);
    Ok((driver, six))
}

/// A pool with small rings in which the next commit, `last`, writes a mark for the room it needs,
/// or on a file one of the next few. Nothing else is under way by then.
///
/// # Errors
/// The story does not come to that.
pub fn about_to_mark(
    world: &Arc<World>,
    rng: &mut Rng,
    last: impl FnOnce(&Driver, &mut dyn FnMut() -> Judged<()>) -> Judged<()>,
) -> Judged<Driver> {
    let (driver, objects) = cast_in(world, rng)?;
    if world.kind == MediumKind::File {
        let mut number = 0;
        last(&driver, &mut || {
            number += 1;
            driver.must(&write(rng, objects[number % objects.len()])).map(drop)
        })?;
        return Ok(driver);
    }
    std::thread::scope(|scope| {
        let mut lanes = Lanes::start(scope, &driver, 3);
        lanes.ready()?;
        let park = lanes.park(2, write(rng, objects[0]), Park::at(NUMBERED))?;
        for i in 0..lap(&driver) {
            lanes.run(0, write(rng, objects[3 + i % 3]))?;
        }
        park.release();
        lanes.join(2)?;
        last(&driver, &mut || lanes.run(0, write(rng, objects[4])))
    })?;
    Ok(driver)
}

fn write(rng: &mut Rng, of: u64) -> Job {
    Job::new(rng, [Op::Write { of, from: 0, len: 8 }])
}

/// Records that fill a ring: two lines each, as those of [`write`] are, behind the lines for marks.
fn lap(driver: &Driver) -> usize {
    let lines = driver.pool.superblock().ring_len / LINE_LEN as u64;
    (lines - u64::from(RING_MARKS)) as usize / 2
}

/// What the watch of a story saw that is about overwriting a record. If nobody had to ask before,
/// that means nothing: the story does not fit the rings any more.
fn judged(driver: Driver, watch: &Watch, asked: bool) -> Tally {
    abandon(driver);
    let mut tally = watch.end();
    if !asked {
        tally.convict(unable("the log never was so full that a record would be overwritten"));
    }
    tally
}

fn plan(ruins: &'static [Area]) -> Plan {
    Plan {
        thin: TORN,
        thick: TORN,
        thick_each: 1,
        care: Care { more: 0, ..Care::USUAL },
        ruins,
        again_each: u64::MAX,
        limit: 4_000,
        enough: 6,
    }
}

/// Lane 0 overwrites the newest record of object 1, of which lane 1 holds an older one, right
/// after the only commit that held the watermark back has come to its end.
fn overwritten(
    mutant: &Mutant,
    world: &'static str,
    step: &'static str,
    ruins: &'static [Area],
) -> Judged<Tally> {
    let (world, driver, objects, mut rng) = cast(mutant, world)?;
    let watch = Watch::new(&world, &driver.ledger, plan(ruins), mutant.rng(2));
    let told = std::thread::scope(|scope| {
        let mut lanes = Lanes::start(scope, &driver, 3);
        lanes.ready()?;
        let held = write(&mut rng, objects[0]);
        let park = lanes.park(2, held, Park::at(step))?;
        lanes.run(1, write(&mut rng, objects[1]))?;
        lanes.run(0, write(&mut rng, objects[1]))?;
        for i in 1..lap(&driver) {
            lanes.run(0, write(&mut rng, objects[3 + i % 3]))?;
        }
        watch.begin(&driver.medium);
        park.release();
        lanes.join(2)?;
        lanes.run(0, write(&mut rng, objects[4]))
    });
    driver.medium.clear_on_barrier();
    let asked = passed(&driver, RING_REUSE) > 0;
    let tally = judged(driver, &watch, asked);
    told.map(|()| tally)
}

/// Nothing is lost with the crash.
pub fn reused(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    overwritten(mutant, world, NUMBERED, &[])
}

/// The commit that holds the watermark back has drawn its number, and nobody knows which.
pub fn drawn(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    overwritten(mutant, world, "logs.numbers.drawn", &[])
}

/// Copy A of the log is.
pub fn reused_without_a(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    overwritten(mutant, world, NUMBERED, &[Area::Log(Side::A)])
}

/// Copy B of the log is.
pub fn reused_without_b(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    overwritten(mutant, world, NUMBERED, &[Area::Log(Side::B)])
}

/// Commits of one lane, each of which drains what the one before put off.
pub fn one_after_another(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, objects, mut rng) = cast(mutant, world)?;
    let watch = Watch::new(&world, &driver.ledger, plan(&[]), mutant.rng(2));
    watch.begin(&driver.medium);
    for i in 0..40 {
        driver.must(&write(&mut rng, objects[i % 3]))?;
    }
    driver.medium.clear_on_barrier();
    Ok(judged(driver, &watch, true))
}

/// Lane 1 commits and is idle from then on; lane 0, whose ring is full, completes that commit in
/// its stead and overwrites what the watermark covers then.
pub fn idle(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, objects, mut rng) = cast(mutant, world)?;
    let watch = Watch::new(&world, &driver.ledger, plan(&[]), mutant.rng(2));
    let told = std::thread::scope(|scope| {
        let lanes = Lanes::start(scope, &driver, 2);
        lanes.ready()?;
        lanes.run(1, write(&mut rng, objects[1]))?;
        let laps = lap(&driver);
        for i in 0..laps + 12 {
            if i + 4 == laps {
                watch.begin(&driver.medium);
            }
            lanes.run(0, write(&mut rng, objects[3 + i % 3]))?;
        }
        Ok(())
    });
    driver.medium.clear_on_barrier();
    let asked = passed(&driver, RING_REUSE) > 0;
    let tally = judged(driver, &watch, asked);
    told.map(|()| tally)
}

/// How often a place was passed so far.
fn passed(driver: &Driver, name: &str) -> u64 {
    let seen = driver.medium.sites_seen();
    seen.iter().filter(|(site, ..)| site.name() == name).map(|(.., count)| count).sum()
}

/// On a file, one commit holds the watermark back until the log is full, or would be: who asks for
/// room then asks again and again, and stores nothing meanwhile.
pub fn full_log(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, objects, mut rng) = cast(mutant, world)?;
    let watch = Watch::new(&world, &driver.ledger, plan(&[]), mutant.rng(2));
    let mut waited = false;
    let told = std::thread::scope(|scope| {
        let mut lanes = Lanes::start(scope, &driver, 2);
        lanes.ready()?;
        let held = write(&mut rng, objects[0]);
        let park = lanes.park(1, held, Park::at(midway(world.kind)))?;
        // One object is written once, and long ago by the time the log is full.
        for i in 0..16 {
            let of = if i == 0 { objects[5] } else { objects[1 + i % 4] };
            let _ = lanes.orders[0].send((write(&mut rng, of), None));
        }
        let mut left = 16;
        let (mut still, mut asked) = (0, 0);
        while left > 0 {
            let ended = lanes.done[0].recv_timeout(std::time::Duration::from_millis(2));
            if let Ok(ended) = ended {
                ended?;
                left -= 1;
                continue;
            }
            // However slow this machine is: who asks so often and does nothing else waits.
            let (calls, now) = (driver.medium.calls(), passed(&driver, LOG_REUSE));
            if driver.medium.calls() != calls {
                continue;
            }
            if calls != still {
                (still, asked) = (calls, now);
            } else if now > asked + WAITING {
                waited = true;
                park.release();
            }
        }
        watch.look(&driver.medium.crash_point());
        park.release();
        lanes.join(1)
    });
    // Who does not ask never waits.
    let tally = judged(driver, &watch, waited || mutant.lacks(LOG_REUSE));
    told.map(|()| tally)
}

/// Lane 0 overwrites the newest record of object 1 because of a mark in the system's ring; at the
/// same time another mark is written there. Marks without a record behind them are what a long
/// transaction causes, as long as its chunks cannot be given back.
pub fn two_marks(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, objects, mut rng) = cast(mutant, world)?;
    let choice = Choice::of(&driver.ledger.objects());
    let long = choice.large.iter().max_by_key(|object| object.1).map_or(0, |object| object.0);
    let watch = Watch::new(&world, &driver.ledger, plan(&[]), mutant.rng(2));
    let told = std::thread::scope(|scope| {
        let mut lanes = Lanes::start(scope, &driver, 4);
        lanes.ready()?;
        let job = write(&mut rng, objects[0]);
        let first = lanes.park(2, job, Park::at(midway(world.kind)))?;
        lanes.run(1, write(&mut rng, objects[1]))?;
        lanes.run(0, write(&mut rng, objects[1]))?;
        let job = write(&mut rng, objects[2]);
        let second = lanes.park(3, job, Park::at(midway(world.kind)))?;
        for i in 1..lap(&driver) {
            lanes.run(0, write(&mut rng, objects[3 + i % 3]))?;
        }
        lanes.run(1, Job::new(&mut rng, [Op::Write { of: long, from: 0, len: 5_000 }]))?;
        // Its thread writes the first mark before it comes back.
        first.release();
        lanes.join(2)?;
        let job = write(&mut rng, objects[4]);
        let torn = lanes.park(0, job, Park::at("logs.ring.recorded"))?;
        // Its thread writes the second.
        watch.begin(&driver.medium);
        second.release();
        lanes.join(3)?;
        torn.release();
        lanes.join(0)
    });
    driver.medium.clear_on_barrier();
    let asked = passed(&driver, RING_REUSE) > 0;
    let tally = judged(driver, &watch, asked);
    told.map(|()| tally)
}

/// A mark says that a long transaction is complete, and its entries are zero by now; before
/// anything else says so too, another mark is written, as after the rewrite of a bad log page. A
/// mark lies in one sector: what writes sectors whole could overwrite it in place, what writes
/// words could not.
pub fn two_marks_in_words(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let image = {
        let Driver { medium, pool, ledger, .. } = stage(&world, &mut rng)?;
        drop(pool);
        (medium.crash_point().persisted(), ledger)
    };
    let config = Config { mode: Some(Mode::Words), reserve: world.reserve, ..Config::default() };
    let medium = FaultMedium::from_crash(image.0, world.kind, &config);
    world.off.iter().for_each(|site| medium.elide_name(site));
    let medium = Handle::new(medium, world.visited.clone());
    let (pool, _) = world.open(&medium).map_err(|error| refused("open", &error))?;
    let anchor = pool.superblock().anchor;
    let driver = Driver { medium, pool, ledger: image.1, anchor };
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let page = targets.of_area(Area::Log(Side::B)).next().map(|log| log.at + log.len - 1);
    let Some(page) = page else { return Err(unable("the pool has no log")) };
    let (shared, ledger) = (Arc::clone(&world), driver.ledger.clone());
    let jury = Jury::new(TORN, &mut rng, move |image, site| {
        if site != "logs.group.marked" {
            return Ok(());
        }
        // One of the two copies of the entries may be damaged at any time; the other is zero.
        let image = without(&shared, image, 1);
        opened(&shared, shared.after(image), &ledger.promise()).map(abandon)
    });
    install(&driver.medium);
    let choice = Choice::of(&driver.ledger.objects());
    let of = choice.large.iter().max_by_key(|object| object.1).map_or(0, |object| object.0);
    let small = choice.small[0].0;
    let told = std::thread::scope(|scope| {
        let mut lanes = Lanes::start(scope, &driver, 2);
        lanes.ready()?;
        let job = Job::new(&mut rng, [Op::Write { of, from: 100, len: 9_500 }]);
        // The second number it draws is its own; the first was for taking the chunks.
        let park = lanes.park(0, job, Park::at_nth("logs.numbers.drawn", 2))?;
        let job = write(&mut rng, small);
        let next = lanes.park(1, job, Park::at(midway(world.kind)))?;
        // The third is for giving the first chunks back: the mark is written, and they are zero.
        park.go_round();
        if !park.wait() {
            return Err(unable("the long transaction gave nothing back"));
        }
        next.release();
        lanes.join(1)?;
        // In range.
        let _ = driver.medium.poison(page, 1, Clear::Able);
        jury.sit(&driver.medium);
        scrub(&driver.pool)?;
        driver.medium.clear_on_barrier();
        park.release();
        lanes.join(0)
    });
    driver.medium.clear_on_barrier();
    abandon(driver);
    told?;
    Ok(jury.end())
}
