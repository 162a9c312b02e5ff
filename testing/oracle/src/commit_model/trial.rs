//! One trial: lanes interleave, images are taken and recovered at random steps, and at the end of
//! each run the pool crashes, recovers for good, and is used again.

use super::check::{Crash, Wrong, judge};
use super::geometry::{COLUMNS, Copy, Geometry, MAX_ZONES, RECORD_WORDS, UNITS};
use super::jobs;
use super::lane::{Lane, Progress};
use super::media::Medium;
use super::recovery::{self, Op, Unreadable};
use super::repair::scrub;
use super::state::{Rot, World};
use super::step::Site;
use super::{Config, Tally, ViolationKind};
use crate::rng::Rng;

/// Steps a closing pool may take before it counts as stuck.
const CLOSING_STEPS: usize = 20_000;
/// Steps of the first run, however little came of them.
const FIRST_RUN_STEPS: usize = 60_000;
/// Steps of every later run.
const LATER_RUN_STEPS: usize = 600;

/// How lanes take turns in a trial.
struct Schedule {
    /// Lanes that are busy; the others, at least one, are idle or parked most of the time.
    busy: usize,
    /// One in this many changes of lane goes to an idle one.
    idle: usize,
    /// Mean turns before another lane is chosen.
    burst: usize,
    lane: usize,
}

impl Schedule {
    fn new(lanes: usize, rng: &mut Rng) -> Self {
        let busy = rng.pick(&[1, lanes - 1, lanes - 1]);
        Self { busy, idle: rng.pick(&[4, 12, 40]), burst: rng.pick(&[1, 4, 16]), lane: 0 }
    }

    fn next(&mut self, lanes: usize, rng: &mut Rng) -> usize {
        if rng.one_in(self.burst) {
            let idle = rng.one_in(self.idle);
            let (from, to) = if idle { (self.busy, lanes) } else { (0, self.busy) };
            self.lane = from + rng.below(to - from);
        }
        self.lane
    }
}

/// Runs the trial of one seed. The tally counts what happened, up to the violation if there is one.
pub(super) fn run(config: &Config, seed: u64, tally: &mut Tally) -> Result<(), Wrong> {
    let mut rng = Rng::new(seed);
    let ring = if rng.one_in(4) { 1 } else { config.ring };
    let geometry = Geometry { lanes: config.lanes, ring };
    let mut image = World::create(geometry, &mut rng);
    for generation in 0..config.runs {
        let mut world = World::open(geometry, config.medium, config.mutant, image);
        world.failing_sync = if rng.one_in(8) { rng.below(12) as u64 } else { u64::MAX };
        world.focus = rng.pick(&[1, 3, UNITS * MAX_ZONES]);
        let outcome = run_until_crash(config, &mut world, generation == 0, &mut rng);
        world.tally.failed_syncs += u64::from(world.read_only);
        tally.add(&world.tally);
        image = match outcome? {
            Some(image) => image,
            None => break,
        };
    }
    Ok(())
}

/// One run between two openings. Returns the image of the next opening; `None` if damage that met
/// a commit under way was named lost, which ends the trial.
fn run_until_crash(
    config: &Config,
    world: &mut World,
    first: bool,
    rng: &mut Rng,
) -> Result<Option<Vec<u64>>, Wrong> {
    let mut lanes: Vec<_> = (0..config.lanes).map(Lane::new).collect();
    let most_steps = if first { FIRST_RUN_STEPS } else { LATER_RUN_STEPS };
    let mut wraps = 0;
    let mut schedule = Schedule::new(config.lanes, rng);
    let rot_at =
        if rng.percent(config.rot_percent) { rng.below(1 + most_steps / 40) } else { usize::MAX };
    for step in 0..most_steps {
        let lane = schedule.next(config.lanes, rng);
        take_turn(world, &mut lanes[lane], rng);
        if step >= rot_at && world.rot.is_none() {
            rot_at_rest(world, rng);
        }
        for _ in 0..images_now(config, &lanes[lane], rng) {
            probe(config, world, rng)?;
        }
        wraps = lanes.iter().map(|lane| lane.wraps(world)).max().unwrap_or(0);
        if (wraps >= config.wraps || world.read_only) && rng.one_in(64) {
            break;
        }
    }
    if first && !world.read_only {
        world.tally.least_wraps = wraps as u64;
    }
    if !world.read_only && rng.percent(30) {
        close(world, &mut lanes, rng)?;
    }
    let (image, lost) = probe(config, world, rng)?;
    Ok(lost.is_empty().then_some(image))
}

/// How many crash images to take after a step: drains are where an epoch is at its richest, and
/// marks and tables are written so rarely that none of their drains is passed over.
fn images_now(config: &Config, lane: &Lane, rng: &mut Rng) -> usize {
    match lane.next_drain() {
        Some(Site::Other) => 4,
        Some(Site::F1 | Site::F2) => usize::from(rng.one_in(config.image_every.div_ceil(8))),
        None => usize::from(rng.one_in(config.image_every)),
    }
}

/// A lane takes its next step, or opens its next job.
fn take_turn(world: &mut World, lane: &mut Lane, rng: &mut Rng) {
    if world.read_only {
        return;
    }
    world.tally.steps += 1;
    if lane.idle() {
        if let Some(steps) = jobs::pick(world, lane.id(), rng) {
            lane.start(steps);
        }
        return;
    }
    if let Some(chunks) = lane.awaits_objects() {
        let steps = jobs::open_objects(world, lane.id(), chunks, rng);
        lane.resume(steps);
    } else if lane.advance(world) == Progress::Waits {
        world.tally.waits += 1;
    }
}

/// Lets every lane finish, and judges the pool as loads see it.
fn close(world: &mut World, lanes: &mut [Lane], rng: &mut Rng) -> Result<(), Wrong> {
    world.failing_sync = u64::MAX;
    for _ in 0..CLOSING_STEPS {
        let Some(_) = lanes.iter().find(|lane| !lane.idle()) else { break };
        for lane in lanes.iter_mut().filter(|lane| !lane.idle()) {
            take_turn(world, lane, rng);
        }
    }
    if let Some(lane) = lanes.iter().find(|lane| !lane.idle()) {
        let detail = format!("lane {} cannot finish its commit", lane.id());
        return Err((ViolationKind::Stuck, detail));
    }
    if world.tally.unrepaired_online > 0 {
        let detail = "single damage was not repaired online".to_owned();
        return Err((ViolationKind::NeedlessLoss, detail));
    }
    let found = world.medium.visible();
    let mut image = found.to_vec();
    let lost = if world.rot.is_some() { scrub(world.geometry, &mut image) } else { Vec::new() };
    let rotten = world.rot.map(|rot| rot.word);
    judge(world, &Crash { found, replayed: found, rotten }, &image, &lost)?;
    world.tally.closes += 1;
    Ok(())
}

/// Takes a crash image, recovers it with up to `config.depth` further crashes inside recovery,
/// and judges the result. Returns the recovered image and the units named lost.
fn probe(
    config: &Config,
    world: &mut World,
    rng: &mut Rng,
) -> Result<(Vec<u64>, Vec<usize>), Wrong> {
    let geometry = world.geometry;
    let mut found = world.medium.crash_image(rng);
    world.tally.images += 1;
    let mut rotten = world.rot.map(|rot| rot.word);
    if rotten.is_none()
        && rng.percent(config.rot_percent)
        && let Some(word) = some_word(world, rng)
    {
        found[word] ^= 1 << rng.below(64);
        rotten = Some(word);
    }
    let unreadable = |Unreadable(what)| (ViolationKind::Unreadable, format!("no valid {what}"));
    let mut image = found.clone();
    let mut lost = Vec::new();
    let mut replayed = None;
    let mut crashes = if rng.percent(40) { rng.below(config.depth + 1) } else { 0 };
    loop {
        let plan = recovery::plan(geometry, config.mutant, &image).map_err(unreadable)?;
        world.tally.replayed += plan.records as u64;
        world.tally.repairs += plan.repairs as u64;
        lost.extend(&plan.lost);
        let cut = if crashes > 0 { rng.below(plan.ops.len() + 1) } else { plan.ops.len() };
        image = execute(&image, &plan.ops[..cut]).crash_image(rng);
        replayed.get_or_insert(plan.replayed);
        if crashes == 0 {
            break;
        }
        crashes -= 1;
        world.tally.nested += 1;
    }
    let again = recovery::plan(geometry, config.mutant, &image).map_err(unreadable)?;
    if again.records > 0 {
        let detail = format!("{} records valid after recovery", again.records);
        return Err((ViolationKind::NotFinal, detail));
    }
    if rotten.is_some() {
        lost.extend(scrub(geometry, &mut image));
    }
    lost.sort_unstable();
    lost.dedup();
    world.tally.named_lost += lost.len() as u64;
    let replayed = replayed.expect("the loop ran at least once");
    let crash = Crash { found: &found, replayed: &replayed, rotten };
    judge(world, &crash, &image, &lost)?;
    Ok((image, lost))
}

/// Runs part of a recovery on a medium.
fn execute(image: &[u64], ops: &[Op]) -> Medium {
    let mut medium = Medium::new(image.to_vec());
    let mut flushed = Vec::new();
    for op in ops {
        match *op {
            Op::Store(word, value) => {
                medium.store(word, value);
                flushed.push(medium.flush(word));
            }
            Op::Drain => medium.persist(&std::mem::take(&mut flushed)),
        }
    }
    medium
}

/// A word that damage may hit: mostly heap, sometimes log, sometimes what is mirrored. A mirrored
/// record has no redundancy in the instant in which its other copy is being overwritten; damage in
/// that instant is beyond what two copies can promise and is left out.
fn some_word(world: &World, rng: &mut Rng) -> Option<usize> {
    let geometry = world.geometry;
    let word = match rng.below(10) {
        0..6 => {
            let words: Vec<_> = geometry.unit_words(rng.below(world.zones * UNITS)).collect();
            rng.pick(&words)
        }
        6 => geometry.parity(rng.below(world.zones * COLUMNS)),
        7..9 => {
            let (lane, place) = (rng.below(geometry.lanes), rng.below(geometry.places()));
            geometry.record(lane, place, rng.pick(&Copy::BOTH)) + rng.below(RECORD_WORDS)
        }
        _ => {
            let zone = rng.below(world.zones);
            let mirrored = [
                Copy::BOTH.map(|copy| geometry.superblock(copy)),
                Copy::BOTH.map(|copy| geometry.table(copy)),
                Copy::BOTH.map(|copy| geometry.zone_header(zone, copy)),
            ];
            let [hit, other] = rng.pick(&mirrored);
            let (hit, other) = if rng.one_in(2) { (hit, other) } else { (other, hit) };
            let at_rest = (other..other + 2).all(|word| world.medium.at_rest(word));
            if !at_rest || world.growing {
                return None;
            }
            hit + rng.below(2)
        }
    };
    Some(word)
}

/// Damages a word at rest while the lanes run; the engine gets no notice.
fn rot_at_rest(world: &mut World, rng: &mut Rng) {
    let word = some_word(world, rng).filter(|&word| world.medium.at_rest(word));
    if let Some(word) = word {
        world.medium.rot(word, 1 << rng.below(64));
        world.rot = Some(Rot { word });
        world.tally.rots += 1;
    }
}
