//! What parity says of a row that it is not, while a commit over the same columns is completed:
//! parity is made anew there from what lies in the rows, and has to go on saying it.

use std::sync::Arc;

use holdfast_faultmem::Clear;
use holdfast_layout::RegionKind;
use holdfast_object::Scrubbed;
use holdfast_pmem::PAGE;

use super::Mutant;
use super::jury::{FEW, Jury, abandon, unable};
use crate::object::driver::{Driver, agree, whole};
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::lanes::{Park, install};
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::{refused, settled, stage};
use crate::tally::{Fault, Judged, Tally, Violation};
use holdfast_oracle::acked::Acked;

/// The place of an object.
const PLACE: u64 = (1 << 48) - 1;
/// What is changed of the object that is set back.
const CHANGED: (u64, u64) = (1_100, 300);

/// Nothing tells which state of a page came last, that in its row or that in P. So it is in doubt,
/// and stays so after the crash.
pub fn in_doubt(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    beside_a_commit(mutant, world, |_, done, _| match done.undecided {
        0 => Err(Violation::new(Fault::Wrong, "an older state is taken for right")),
        _ => Ok(()),
    })
}

/// P and Q know the newer state, and somebody holds the object: it comes back after the crash.
pub fn held(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    beside_a_commit(mutant, world, |medium, _, promise| agree(promise, &whole(medium)?.objects))
}

/// The objects of the story.
struct Cast {
    /// One of which a page is set back.
    older: u64,
    /// One in another row over what was changed of it, and where in it.
    over: (u64, u64),
    /// One elsewhere.
    apart: u64,
}

/// Objects are made until there are three like that.
fn cast(driver: &Driver, rng: &mut holdfast_workloads::Rng) -> Judged<Cast> {
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone);
    let zone = zone.ok_or_else(|| unable("the pool has no zone"))?;
    let place = |at: u64| {
        let at = at.saturating_sub(zone.start);
        (at / zone.row_len, at % zone.row_len)
    };
    for _ in 0..12 {
        let large = Choice::of(&driver.ledger.objects()).large;
        for (older, _) in large.iter().filter(|(_, len)| *len == 12_000) {
            let (row, col) = place((older & PLACE) + CHANGED.0);
            let over = large.iter().find_map(|(of, len)| {
                let ((at_row, at_col), end) = (place(of & PLACE), col + CHANGED.1);
                let within = at_row != row && at_col + 1_100 <= col && end <= at_col + len;
                (of != older && within).then(|| (*of, col - at_col))
            });
            let pages = [col / PAGE, (col + CHANGED.1) / PAGE];
            let far = |of: u64| !pages.contains(&(place(of & PLACE).1 / PAGE));
            let small = Choice::of(&driver.ledger.objects()).small;
            let apart = small.into_iter().find(|(of, _)| far(*of));
            if let (Some(over), Some((apart, _))) = (over, apart) {
                return Ok(Cast { older: *older, over, apart });
            }
        }
        driver.must(&Job::new(rng, [Op::Alloc { len: 12_000 }]))?;
    }
    Err(unable("no three objects lie as they have to"))
}

/// A page of an object is set back; somebody holds the object; a commit over its columns meets a
/// page elsewhere that cannot be read, and is completed. `check` is asked of what a crash leaves,
/// opened and scrubbed.
fn beside_a_commit(
    mutant: &Mutant,
    world: &'static str,
    check: fn(&Handle, &Scrubbed, &Acked<Objects>) -> Judged<()>,
) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let Cast { older, over, apart } = cast(&driver, &mut rng)?;
    let page = ((older & PLACE) + CHANGED.0) / PAGE * PAGE;
    let before = Bytes::of(&driver.medium).get(page, PAGE).unwrap_or_default().to_vec();
    let (from, len) = CHANGED;
    driver.must(&Job::new(&mut rng, [Op::Write { of: older, from, len }]))?;
    let driver = settled(&world, driver)?;
    driver.medium.stray(page, &before).map_err(|_| unable("the medium refused"))?;
    let hold = Job::new(&mut rng, [Op::Write { of: older, from: 9_000, len: 8 }]);
    let write =
        [Op::Write { of: over.0, from: over.1, len }, Op::Write { of: apart, from: 0, len: 8 }];
    let write = Job::new(&mut rng, write);
    install(&driver.medium);
    let (holds, stored) =
        (Park::at("object.commit.step-locked"), Park::at("object.commit.step-durable"));
    let panicked = || unable("a thread of the story panicked");
    let tally = std::thread::scope(|scope| {
        let holder = scope.spawn(|| holds.keep(|| driver.must(&hold)));
        let _ = holds.wait();
        let writer = scope.spawn(|| stored.keep(|| driver.must(&write)));
        if stored.wait() {
            // Objects lie where their pointers say.
            let _ = driver.medium.poison(apart & PLACE, 1, Clear::Able);
        }
        stored.release();
        let written = writer.join().unwrap_or_else(|_| Err(panicked()));
        let (shared, promise) = (Arc::clone(&world), driver.ledger.promise());
        let jury = Jury::new(FEW, &mut rng, move |image, _| {
            let medium = shared.after(image);
            let (pool, _) = shared.open(&medium).map_err(|error| refused("open", &error))?;
            let done = scrub(&pool).and_then(|done| check(&medium, &done, &promise));
            medium.abandon(pool);
            done
        });
        jury.look(&driver.medium.crash_point());
        holds.release();
        holder.join().unwrap_or_else(|_| Err(panicked()))?;
        written?;
        Ok(jury.end())
    });
    driver.medium.clear_on_step();
    abandon(driver);
    tally
}
