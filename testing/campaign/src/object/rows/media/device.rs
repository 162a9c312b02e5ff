//! The lives of this row on a machine that fails by itself (`cargo xtask lab`): sectors of its
//! persistent memory, or its memory as the kernel gives it up. What fails stays failed, so each
//! life has a file of its own, which is kept, and in it one page that has to be relocated.

mod struck;

use std::path::PathBuf;

use holdfast_pmem::inject::handler_count;
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_workloads::Rng;
use serde::Deserialize;

use super::{BEYOND_EACH, BUSY_EACH, Manner, REOPEN_EACH, STUCK_EACH};
use crate::object::life::{Life, Origin, origin};
use crate::object::scenes::refused;
use crate::object::sick::How;
use crate::object::stray;
use crate::object::world::World;
use crate::tally::{Fault, Judged, Tally, Violation};

/// What is to be done.
#[derive(Debug, Clone, Deserialize)]
pub struct Orders {
    /// Where the pools are to be.
    pub folder: PathBuf,
    /// What fails.
    pub how: How,
    /// Lives of pools.
    pub lives: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Steps of the engine that are left out.
    #[serde(default)]
    pub off: Vec<String>,
}

/// Lives of pools with P, and of pools with P and Q.
#[must_use]
pub fn run(orders: &Orders) -> Tally {
    if orders.how == How::Strays {
        return stray::play(orders);
    }
    let mut tally = Tally::default();
    for (half, parity) in (0..).zip(["p", "pq"]) {
        let mut world = World::named(&format!("shm-{parity}")).sized(super::PAGES);
        world.options.events = 8 * PAGE;
        world.sick = Some(orders.how);
        world.off.clone_from(&orders.off);
        if matches!(orders.how, How::Sectors | How::Struck) {
            world.kind = MediumKind::Dax;
        }
        let mut rng = Rng::part(orders.seed, half);
        let first = orders.folder.join(format!("pool-{parity}"));
        let told = |v: Violation| v.during(format!("with {parity}"));
        match origin(&world, &first, &mut rng) {
            Ok(origin) => {
                for number in 0..orders.lives.div_ceil(2) {
                    let path = orders.folder.join(format!("pool-{parity}-{number}"));
                    let done = if orders.how == How::Struck {
                        struck::one(&world, &path, &origin, (&mut rng, &mut tally))
                    } else {
                        one(&world, (&path, number), &origin, &mut rng, &mut tally)
                    };
                    tally.judge(done.map_err(|v| told(v).during(format!("life {number}"))));
                    // Of what is left out, it is known then that it is noticed.
                    if !orders.off.is_empty() && tally.violated() > 0 {
                        return tally;
                    }
                }
            }
            Err(violation) => tally.convict(told(violation)),
        }
    }
    tally
}

/// One life, and what the file is found to be when it is opened again.
fn one(
    world: &World,
    (path, number): (&std::path::Path, u64),
    origin: &Origin,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    let before = handler_count();
    let mut life = Life::begin(world, path, origin)?;
    if life.live.kind() != world.kind {
        let story = format!("the pool is on {}, not on {}", life.live.kind(), world.kind);
        return Err(Violation::new(Fault::Refused, story));
    }
    let beyond = number % BEYOND_EACH == BEYOND_EACH - 1;
    let manner = Manner {
        stuck: number % STUCK_EACH == STUCK_EACH / 2,
        bare: false,
        reopen: false,
        busy: number % BUSY_EACH == 1,
    };
    if beyond {
        life.beyond(rng, tally)?;
    } else {
        life.within(manner, rng, tally)?;
    }
    let signals = handler_count() - before;
    tally.add("signals", signals);
    let answered: u64 = life.live.met().values().sum::<u64>() + life.waited;
    if signals != answered {
        let story = format!("{signals} signals, but {answered} errors and loads that waited");
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    if number % REOPEN_EACH != 0 || beyond || manner.stuck {
        return Ok(());
    }
    let Life { objects, pool, live, anchor, .. } = life;
    drop((pool, live));
    let again = Life::open(world, path, objects, anchor)?;
    again.read_all().map_err(|v| v.during("opened again"))?;
    let report = again.pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        let story = format!("opened again, a check finds {:?}", report.findings.first());
        return Err(Violation::new(Fault::Unnoticed, story));
    }
    tally.add("closed and opened again", 1);
    Ok(())
}
