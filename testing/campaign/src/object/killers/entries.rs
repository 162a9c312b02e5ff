//! Directory entries whose write the device loses: the old ones verify, and say of their chunks
//! what was once true. Only parity knows better, and whoever opens the pool next does not. And a
//! page that comes back with the sums of what lies on others.

use holdfast_faultmem::{FaultKind, When};
use holdfast_heap::ZoneTable;
use holdfast_heap::format::CHUNK_LEN;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_pmem::{Medium, PAGE};
use holdfast_txn::Transaction;

use super::Mutant;
use super::jury::{unable, wrong};
use super::mended::{begin, durable};
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::ops::{Job, Op};
use crate::object::scenes::settled;
use crate::tally::{Judged, Tally};

/// Length of an object with chunks of its own.
pub(super) const LONG: u64 = 14_000;

/// Loses the next write of directory entries.
pub(super) fn lose_entries(driver: &Driver) -> Judged<()> {
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone);
    let table = ZoneTable::new(0, zone.ok_or_else(|| unable("the pool has no zone"))?);
    let len = u64::from(table.chunks()) * CHUNK_LEN as u64;
    driver.medium.arm(FaultKind::Lost, When::touching(table.entry_at(0), len));
    Ok(())
}

/// Whether the write was lost; nothing more will be.
pub(super) fn lost(driver: &Driver) -> Judged<()> {
    let met = driver.medium.armed() == 0;
    driver.medium.disarm();
    if met { Ok(()) } else { Err(unable("no entry was written")) }
}

/// Makes an object with chunks of its own.
pub(super) fn long(driver: &Driver, rng: &mut holdfast_workloads::Rng) -> Judged<u64> {
    alloc(driver, rng, LONG)
}

/// Makes an object. Answers its pointer.
pub(super) fn alloc(driver: &Driver, rng: &mut holdfast_workloads::Rng, len: u64) -> Judged<u64> {
    let before = driver.ledger.objects();
    driver.must(&Job::new(rng, [Op::Alloc { len }]))?;
    let now = driver.ledger.objects();
    let added = now.iter().map(|(word, _)| word).find(|word| before.get(*word).is_none());
    added.ok_or_else(|| unable("the object was not made"))
}

/// An object was freed: by the old entries its chunks still hold it, and its slot says that it is
/// free, which nothing can cure. Nothing of that is lost.
pub fn freed(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let of = long(&driver, &mut rng)?;
    lose_entries(&driver)?;
    driver.must(&Job::new(&mut rng, [Op::Free { of }]))?;
    lost(&driver)?;
    let driver = settled(&world, driver)?;
    // A scrub begins with all entries.
    if !driver.pool.heal_load(RawPtr::from_word(of).offset(), 8) {
        return Err(wrong("what was freed is given up for lost".to_owned()));
    }
    scrub(&driver.pool)?;
    durable(&world, driver, &mut rng, true)
}

/// An object was made: by the old entries its chunks are free, and its pointer names nothing. A
/// program that follows it must not be told so.
pub fn made(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    lose_entries(&driver)?;
    let of = long(&driver, &mut rng)?;
    lost(&driver)?;
    let driver = settled(&world, driver)?;
    if let Err(error) = driver.pool.run(|tx| tx.len_of(RawPtr::from_word(of))) {
        return Err(wrong(format!("a live object cannot be had: {error}")));
    }
    driver.read_all()?;
    durable(&world, driver, &mut rng, true)
}

/// The same, and its bytes over the first columns of the directory are hit: these are no free ones.
pub fn hit(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let regions = driver.pool.regions();
    let zone = regions.iter().find(|region| region.kind == RegionKind::Zone);
    let zone = zone.ok_or_else(|| unable("the pool has no zone"))?;
    let over = |of: u64| {
        let from = RawPtr::from_word(of).offset();
        let rows = (1..u64::from(zone.data_rows)).map(|row| zone.start + row * zone.row_len);
        { rows.map(|row| row + 100) }.find(|at| (from + 2_000..from + LONG).contains(at))
    };
    let mut found = None;
    for _ in 0..24 {
        let of = long(&driver, &mut rng)?;
        found = over(of).map(|at| (of, at));
        if found.is_some() {
            break;
        }
    }
    let (of, at) = found.ok_or_else(|| unable("no object lies over the directory"))?;
    driver.must(&Job::new(&mut rng, [Op::Free { of }]))?;
    (0..2).try_for_each(|_| lose_entries(&driver))?;
    let again = long(&driver, &mut rng)?;
    lost(&driver)?;
    if over(again) != Some(at) {
        return Err(unable("other chunks were taken"));
    }
    let driver = settled(&world, driver)?;
    driver.medium.flip_bit(at, 3).map_err(|_| unable("the medium refused"))?;
    scrub(&driver.pool)?;
    if driver.read_all().is_err() {
        return Err(wrong("a live object was taken for free bytes".to_owned()));
    }
    durable(&world, driver, &mut rng, false)
}

/// The first page of a long object comes back as it was before the last write, with the sums of all
/// its granules: the first of them verify. Who reads all of it must not get some of both.
pub fn page_back(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, driver, mut rng) = begin(mutant, world)?;
    let of = long(&driver, &mut rng)?;
    let page = RawPtr::from_word(of).offset() / PAGE * PAGE;
    let mut before = vec![0; PAGE as usize];
    let unread = |_| unable("the page cannot be read");
    driver.medium.read(page, &mut before).map_err(unread)?;
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 1_500, len: 5_000 }]))?;
    let driver = settled(&world, driver)?;
    driver.medium.stray(page, &before).map_err(|_| unable("the medium refused"))?;
    driver.read_all()?;
    durable(&world, driver, &mut rng, true)
}
