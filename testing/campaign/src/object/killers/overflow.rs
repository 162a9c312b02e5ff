//! Records too long for the log: their entries lie in two copies in chunks of the heap, until a
//! durable watermark covers the commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::{Budget, Clear, Image};
use holdfast_workloads::Rng;

use super::Mutant;
use super::jury::{FEW, Jury, MANY, abandon, opened, unable};
use crate::object::driver::{Driver, Ledger, agree, whole};
use crate::object::lanes::{Park, install, midway};
use crate::object::model::Objects;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::{Bytes, ChunkKind, Survey, ZoneMap};
use crate::object::scenes::stage;
use crate::object::world::World;
use crate::tally::{Judged, Tally};
use holdfast_oracle::acked::Acked;

/// The first bytes of all log chunks, ascending.
fn log_chunks(pool: &Bytes) -> Vec<u64> {
    let Some((superblock, seed)) = pool.superblock() else { return Vec::new() };
    let mut found = Vec::new();
    for region in pool.zones(superblock, seed) {
        let map = ZoneMap::read(pool, region, seed, superblock, &mut Survey::default());
        let logs = map.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Log);
        found.extend(logs.map(|chunk| chunk.at));
    }
    found
}

/// The image with the beginning of one of the copies unreadable, if it has two, of two chunks
/// each: what the transactions here take.
pub(super) fn without(world: &World, image: Image, copy: usize) -> Image {
    let medium = world.after(image);
    let chunks = log_chunks(&Bytes::of(&medium));
    if chunks.len() == 4 {
        // Found on this very medium: in range.
        let _ = medium.poison(chunks[2 * copy], 1, Clear::Able);
    }
    medium.crash_point().persisted()
}

/// Barriers between the commit point and the return of the chunks.
const JUDGED: [&str; 3] = ["object.settle.F2-now", "logs.ring.marked", "logs.group.synced"];
/// Those at which a copy has been zeroed.
const ZEROED: [&str; 2] = ["object.overflow.zeroed", "object.overflow.zeroed-sync"];

fn copy_lost(mutant: &Mutant, world: &'static str, copy: usize) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let choice = Choice::of(&driver.ledger.objects());
    let of = choice.large.iter().max_by_key(|object| object.1).map_or(0, |object| object.0);
    let (shared, ledger) = (Arc::clone(&world), driver.ledger.clone());
    let cleared = AtomicBool::new(false);
    let jury = Jury::new(FEW, &mut rng, move |image, site| {
        // Copy A is zeroed first. From then on it is about to be free, and its bytes matter again;
        // copy B must not be needed any more: the watermark is durable.
        if ZEROED.contains(&site) {
            cleared.store(true, Ordering::Relaxed);
        }
        let given_back = copy == 0 && cleared.load(Ordering::Relaxed);
        if given_back || !(JUDGED.contains(&site) || ZEROED.contains(&site)) {
            return Ok(());
        }
        let image = without(&shared, image, copy);
        let driver = opened(&shared, shared.after(image), &ledger.promise())?;
        abandon(driver);
        Ok(())
    });
    jury.sit(&driver.medium);
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]))?;
    driver.medium.clear_on_barrier();
    abandon(driver);
    Ok(jury.end())
}

/// Copy A is damaged with the crash.
pub fn first_lost(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    copy_lost(mutant, world, 0)
}

/// Copy B is.
pub fn second_lost(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    copy_lost(mutant, world, 1)
}

/// A pool that crashed in the middle of a long transaction.
struct Crashed {
    world: Arc<World>,
    image: Image,
    promise: Acked<Objects>,
    /// Where copy A of the entries starts.
    page: u64,
}

fn crashed(mutant: &Mutant, world: &'static str) -> Judged<Crashed> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let crash: Arc<Mutex<Option<(Image, u64)>>> = Arc::default();
    let (keep, shared) = (Arc::clone(&crash), Arc::clone(&world));
    driver.medium.on_barrier(Box::new(move |_, site, point| {
        let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() && site.name() == "object.settle.F2-now" {
            // The first such instant at which both copies are there: nothing is stored yet.
            let image = point.persisted();
            let chunks = log_chunks(&Bytes::of(&shared.after(image.clone())));
            *kept = (chunks.len() == 4).then(|| (image, chunks[0]));
        }
    }));
    let of = longest(&driver);
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]))?;
    driver.medium.clear_on_barrier();
    let promise = driver.ledger.promise();
    abandon(driver);
    let Some((image, page)) = crash.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return Err(unable("the long transaction took no chunks"));
    };
    Ok(Crashed { world, image, promise, page })
}

/// It is opened, and a byte of copy A of the entries is wrong: replayed from the other copy.
pub fn wrong_at_open(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let Crashed { world, image, promise, page } = crashed(mutant, world)?;
    let medium = world.after(image);
    // In what the first entry writes; found on this very medium.
    let _ = medium.flip_bit(page + 100, 5);
    let driver = opened(&world, medium, &promise)?;
    driver.read_all()?;
    abandon(driver);
    Ok(Tally { count: 1, ..Tally::default() })
}

/// A page of the entries turns bad once they are stored: it is good for anything afterwards. See
/// `healed.rs` for what a rewrite that is switched off leaves.
pub fn bad_in_use(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let (chosen, medium) = (Mutex::new(None), driver.medium.clone());
    driver.medium.on_step(Box::new(move |site| {
        let mut chosen = chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if chosen.is_none() && site.name() == "object.overflow.step-stored" {
            *chosen = log_chunks(&Bytes::of(&medium)).first().copied();
            // Found on this very medium: in range.
            let _ = chosen.map(|page| medium.poison(page, 1, Clear::Able));
        }
    }));
    let of = longest(&driver);
    let done = driver.must(&Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]));
    driver.medium.clear_on_step();
    done?;
    let Driver { medium, pool, ledger, .. } = driver;
    drop(pool);
    // Not opened again: that rewrites what is bad.
    let promise = ledger.promise();
    let jury = Jury::new(FEW, &mut rng, move |image, _| {
        agree(&promise, &whole(&world.after(image))?.objects)
    });
    jury.look(&medium.crash_point());
    Ok(jury.end())
}

/// The object of the usual cast that is long enough.
fn longest(driver: &Driver) -> u64 {
    let choice = Choice::of(&driver.ledger.objects());
    choice.large.iter().max_by_key(|object| object.1).map_or(0, |object| object.0)
}

fn jury_of(world: &Arc<World>, driver: &Driver, budget: Budget, rng: &mut Rng) -> Jury {
    let (shared, ledger) = (Arc::clone(world), driver.ledger.clone());
    Jury::new(budget, rng, move |image, _| {
        let driver = opened(&shared, shared.after(image), &ledger.promise())?;
        abandon(driver);
        Ok(())
    })
}

/// One long transaction, from its first barrier until its chunks are given back.
pub fn once(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let jury = jury_of(&world, &driver, MANY, &mut rng);
    jury.sit(&driver.medium);
    let of = longest(&driver);
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]))?;
    driver.medium.clear_on_barrier();
    jury.look(&driver.medium.crash_point());
    driver.check()?;
    abandon(driver);
    Ok(jury.end())
}

/// The same while another commit holds the watermark back: the entries must outlive that.
pub fn held_back(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let jury = jury_of(&world, &driver, MANY, &mut rng);
    let choice = Choice::of(&driver.ledger.objects());
    let (held, of) = (choice.small[0].0, longest(&driver));
    install(&driver.medium);
    let park = Park::at(midway(world.kind));
    let job = Job::new(&mut rng, [Op::Write { of: held, from: 0, len: 8 }]);
    let long = Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]);
    let done = std::thread::scope(|scope| {
        let holder = scope.spawn(|| park.keep(|| driver.must(&job)));
        let _ = park.wait();
        jury.sit(&driver.medium);
        let done = driver.must(&long);
        driver.medium.clear_on_barrier();
        jury.look(&driver.medium.crash_point());
        park.release();
        let held = holder.join().unwrap_or_else(|_| Err(unable("the holder panicked")));
        done.and(held)
    });
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// The chunks for the entries were freed a moment ago, and older records would still be replayed
/// over them: the watermark was held back until now. Records carry a newer one now and then, so
/// this is tried at several distances from the last one that does.
pub fn over_freed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let mut all = Tally::default();
    for phase in 0..4 {
        all.merge(over_freed_at(mutant, world, phase)?);
    }
    Ok(all)
}

fn over_freed_at(mutant: &Mutant, world: &'static str, phase: u32) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let before = driver.ledger.objects();
    let (held, of) = (Choice::of(&before).small[0].0, longest(&driver));
    for _ in 0..3 {
        driver.must(&Job::new(&mut rng, [Op::Alloc { len: 14_000 }]))?;
    }
    for _ in 0..2 * phase {
        driver.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len: 8 }]))?;
    }
    let now = driver.ledger.objects();
    let fresh: Vec<u64> =
        now.iter().map(|(word, _)| word).filter(|word| before.get(*word).is_none()).collect();
    let (shared, ledger) = (Arc::clone(&world), driver.ledger.clone());
    let jury = Jury::new(FEW, &mut rng, move |image, site| {
        // Recovery reads the entries before it stores anything: they are needed once more if it
        // is crashed after that.
        if matches!(site, "object.settle.F2-now" | "logs.group.F1") {
            crashed_in_recovery(&shared, image, &ledger)?;
        }
        Ok(())
    });
    install(&driver.medium);
    let (park, taken) = (Park::at(midway(world.kind)), Park::at("object.overflow.step-taken"));
    let job = Job::new(&mut rng, [Op::Write { of: held, from: 0, len: 8 }]);
    // The first and the second chunk of each: some lie under copy A, some under copy B.
    let both = |of| [600, 9_000].map(|from| Op::Write { of, from, len: 100 });
    let write = Job::new(&mut rng, fresh.iter().flat_map(|of| both(*of)));
    let free = Job::new(&mut rng, fresh.iter().map(|of| Op::Free { of: *of }));
    let long = Job::new(&mut rng, [Op::Write { of, from: 100, len: 8_500 }]);
    let panicked = || unable("a thread of the story panicked");
    let done = std::thread::scope(|scope| {
        let holder = scope.spawn(|| park.keep(|| driver.must(&job)));
        let _ = park.wait();
        let prepared = driver.must(&write).and_then(|_| driver.must(&free));
        let writer = scope.spawn(|| taken.keep(|| driver.must(&long)));
        let _ = taken.wait();
        park.release();
        let held = holder.join().unwrap_or_else(|_| Err(panicked()));
        jury.sit(&driver.medium);
        taken.release();
        let written = writer.join().unwrap_or_else(|_| Err(panicked()));
        prepared.and(held).and(written)
    });
    driver.medium.clear_on_barrier();
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// Opens the image, and what crashes of that recovery leave.
fn crashed_in_recovery(world: &Arc<World>, image: Image, ledger: &Ledger) -> Judged<()> {
    let left: Arc<Mutex<Vec<Image>>> = Arc::default();
    let (keep, medium) = (Arc::clone(&left), world.after(image));
    medium.on_barrier(Box::new(move |_, _, point| {
        let mut left = keep.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < 8 {
            left.extend([point.newest(), point.persisted()]);
        }
    }));
    let opened_once = opened(world, medium.clone(), &ledger.promise()).map(abandon);
    medium.clear_on_barrier();
    opened_once?;
    let left = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
    left.into_iter()
        .try_for_each(|image| opened(world, world.after(image), &ledger.promise()).map(abandon))
}

/// A large object is written in place over one that was freed a moment ago, and older records
/// would still be replayed over it.
pub fn in_place(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let mut all = Tally::default();
    for phase in 0..4 {
        all.merge(in_place_at(mutant, world, phase)?);
    }
    Ok(all)
}

fn in_place_at(mutant: &Mutant, world: &'static str, phase: u32) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let before = driver.ledger.objects();
    let (held, other) = (Choice::of(&before).small[0].0, longest(&driver));
    let fresh = Job::new(&mut rng, [Op::Alloc { len: 14_000 }]);
    driver.must(&fresh)?;
    for _ in 0..2 * phase {
        driver.must(&Job::new(&mut rng, [Op::Write { of: other, from: 0, len: 8 }]))?;
    }
    let now = driver.ledger.objects();
    let added = now.iter().map(|(word, _)| word).find(|word| before.get(*word).is_none());
    let Some(of) = added else { return Err(unable("an object was made")) };
    let jury = jury_of(&world, &driver, FEW, &mut rng);
    install(&driver.medium);
    let (park, locked) = (Park::at(midway(world.kind)), Park::at(LOCKED));
    let job = Job::new(&mut rng, [Op::Write { of: held, from: 0, len: 8 }]);
    let both = [600, 9_000].map(|from| Op::Write { of, from, len: 100 });
    let (write, free) = (Job::new(&mut rng, both), Job::new(&mut rng, [Op::Free { of }]));
    let anew = Job::new(&mut rng, [Op::Alloc { len: 14_000 }]);
    let panicked = || unable("a thread of the story panicked");
    let done = std::thread::scope(|scope| {
        let holder = scope.spawn(|| park.keep(|| driver.must(&job)));
        let _ = park.wait();
        let prepared = driver.must(&write).and_then(|_| driver.must(&free));
        let writer = scope.spawn(|| locked.keep(|| driver.must(&anew)));
        let _ = locked.wait();
        park.release();
        let held = holder.join().unwrap_or_else(|_| Err(panicked()));
        jury.sit(&driver.medium);
        locked.release();
        let written = writer.join().unwrap_or_else(|_| Err(panicked()));
        prepared.and(held).and(written)
    });
    driver.medium.clear_on_barrier();
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    done?;
    Ok(jury.end())
}

/// Nothing is written yet, and nothing was waited for.
const LOCKED: &str = "object.commit.step-locked";
