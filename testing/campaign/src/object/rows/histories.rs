//! Row `histories`: threads call registers, maps and queues through crashes and damage, and what
//! they were answered must be durably linearizable.
//!
//! The first cases play what is wrong on purpose (`histories/wrong.rs`): each has to be convicted
//! by the checker of histories, within so many histories. Schedules are left to chance: a replay
//! makes the same calls and crashes by the same number of barriers, not at the same instants.

use std::time::Duration;

use holdfast_collections::Kind;
use holdfast_faultmem::Image;
use holdfast_object::{Error, Pool};
use holdfast_workloads::Rng;

use crate::object::handle::Handle;
use crate::object::histories::cells::Registers;
use crate::object::histories::harm::Beside;
use crate::object::histories::maps::Shared;
use crate::object::histories::play::{Plan, Wronged, history};
use crate::object::histories::queue::Line;
use crate::object::histories::subject::Subject;
use crate::object::histories::wrong::{Bed, On, WRONG, Wrong};
use crate::object::scenes::refused;
use crate::object::world::World;
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "histories",
    story: "calls of threads on registers, maps, queues, through crashes and damage: an order \
            explains all answers",
    cases: |tier| WRONG.len() as u64 + if matches!(tier, Tier::Ci) { 336 } else { 6_672 },
    run,
    finish: |_| (),
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Histories of a case.
pub const EACH: u64 = 16;
/// Histories in which something wrong has to be convicted.
const PATIENCE: u64 = 400;
/// Pages of a pool: room for all entries of a map, each in an object of its own.
const PAGES: u64 = 121;
/// Maps, in the order they take turns.
const KINDS: [Kind; 6] =
    [Kind::Hash, Kind::BTree, Kind::RbTree, Kind::CTree, Kind::SkipList, Kind::RTree];
/// Entries of a map that nobody touches: none; a bucket with or without room for what comes; two.
const COLD: [u64; 4] = [0, 58, 60, 121];

fn run(case: &Case) -> Tally {
    let mut tally = Tally::default();
    let wrong = WRONG.len() as u64;
    match WRONG.get(case.number as usize) {
        Some(bed) => convict(case, bed, &mut tally),
        None => {
            let played = right(case, case.number - wrong, &mut tally);
            tally.judge(played);
        }
    }
    tally
}

fn world(name: &str) -> World {
    let mut world = World::named(name).sized(PAGES);
    world.reserve = world.options.size;
    world
}

/// The histories of one case. Its number decides on what they are played, the seed on the rest.
fn right(case: &Case, number: u64, tally: &mut Tally) -> Judged<()> {
    let names = ["shm-p", "file-p", "shm-pq", "file-pq"];
    let world = world(names[(number % 4) as usize]);
    let rng = &mut case.rng(1);
    let apart = (number / 4).is_multiple_of(2);
    match number / 8 % 8 {
        0 | 1 => {
            let make = |pool: &_| Registers::make(pool, apart);
            play(&world, make, rng, tally)
        }
        2 => play(&world, Line::make, rng, tally),
        kind => {
            let cold = COLD[rng.below(COLD.len() as u64) as usize];
            // Eight turns, six kinds.
            let kind = KINDS[(kind + number / 64) as usize % KINDS.len()];
            play(&world, |pool| Shared::make(pool, kind, cold, apart), rng, tally)
        }
    }
}

/// Makes a subject in a pool of its own, and closes the pool.
fn template<S>(
    world: &World,
    make: impl Fn(&Pool<Handle>) -> Result<S, Error>,
) -> Judged<(S, Image)> {
    let medium = world.blank();
    let pool = world.create(&medium).map_err(|error| refused("create", &error))?;
    let subject = make(&pool).map_err(|error| refused("making the subject", &error))?;
    drop(pool);
    Ok((subject, medium.crash_point().persisted()))
}

fn play<S: Subject>(
    world: &World,
    make: impl Fn(&Pool<Handle>) -> Result<S, Error>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    let (subject, image) = template(world, make)?;
    for number in 0..EACH {
        let crashes = (number % 3) as u32;
        let beside = match number % 4 {
            3 => Beside::Harm,
            1 => Beside::Scrub,
            _ => Beside::Nothing,
        };
        let plan = Plan { world, image: &image, subject: &subject, crashes, beside, wrong: None };
        let rng = Rng::new(rng.next_u64());
        let what = format_args!("history {number} of {}, {crashes} crashes", world.name);
        history(&plan, rng, tally).map_err(|wronged| Violation::from(wronged).during(what))?;
        tally.count += 1;
    }
    Ok(())
}

/// Plays something wrong until the checker convicts it: on registers, a map or the queue.
fn convict(case: &Case, bed: &Bed, tally: &mut Tally) {
    match bed.on {
        On::Registers => convict_on(case, bed, |pool| Registers::make(pool, false), tally),
        On::Map(kind) => {
            convict_on(case, bed, |pool| Shared::make(pool, kind, COLD[1], false), tally);
        }
        On::Queue => convict_on(case, bed, Line::make, tally),
    }
}

fn convict_on<S: Subject>(
    case: &Case,
    bed: &Bed,
    make: impl Fn(&Pool<Handle>) -> Result<S, Error>,
    tally: &mut Tally,
) {
    let world = world(bed.world);
    let world = match bed.wrong {
        Wrong::Site(site) => world.without(site),
        _ => world,
    };
    let mut rng = case.rng(1);
    tally.add("wrong ones", 1);
    let Some((subject, image)) = tally.judge(template(&world, make)) else { return };
    let mut other = None;
    for number in 1..=PATIENCE {
        let plan = Plan {
            world: &world,
            image: &image,
            subject: &subject,
            crashes: bed.crashes,
            beside: bed.beside,
            wrong: Some(bed.wrong),
        };
        let rng = Rng::new(rng.next_u64());
        match history(&plan, rng, &mut Tally::default()) {
            Err(Wronged::Unordered(why)) => {
                let calls = why.calls.len();
                let what = format!("history {number:>3}, {calls:>2} calls that nothing explains");
                tally.lines.push(format!("{:<34} {what}", bed.name));
                tally.add("wrong ones convicted", 1);
                return;
            }
            Err(Wronged::Else(violation)) => other = other.or(Some(violation)),
            Ok(()) => {}
        }
    }
    let other = other.map_or_else(String::new, |other| format!("; but {}", other.story));
    let story = format!("{}: {PATIENCE} histories and no conviction{other}", bed.name);
    tally.convict(Violation::new(Fault::Unnoticed, story));
}
