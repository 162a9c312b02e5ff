//! What a replica does about damage and loss, and what it does not: libpmemobj with a second copy
//! of its pool, beside ours with parity P and sums.
//!
//! A replica is a copy that every change is stored to as well. Nothing compares the two while the
//! pool is in use, so a bit that flips in the primary is what the program gets. What it is for is
//! the loss of a file: the other one is copied back, by another library, while the pool is closed.
//! Ours has no second file: of damage within its file nothing is served, but without the file there
//! is nothing to repair it from.
//!
//! Bits are flipped behind the stores' backs, by whoever has the file; each is looked at before, so
//! that what is flipped is an object's. No time matters here but that of copying back. There are no
//! goals: what comes out is what it is.

use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{OpenOptions, Pool, VerifyReads};
use holdfast_pmem::{Mapped, Medium, Site};
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::foreign::pmemobj::{Peer, Resting, Shim};
use crate::foreign::pmempool::Keeper;
use crate::object::{MODES, options};
use crate::report::{Report, Spread};
use crate::rig::Rig;
use crate::say::say;

/// Damage done behind the engine's back.
const STRAY: Site = Site::new("bench.replica.stray");
/// Times the primary file is lost and copied back.
const LOSSES: usize = 3;
/// Whose figures they are: the names of the race.
const OURS: &str = "full";
const THEIRS: &str = "libpmemobj-replica";

/// What both sides are filled with.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Bytes of a pool, and of its replica.
    size: u64,
    /// Objects.
    count: u64,
    /// Bytes of each.
    len: u64,
}

impl Plan {
    fn of(o: &Options) -> Self {
        let size = if o.quick { 64 << 20 } else { 1 << 30 };
        let len = o.len.unwrap_or(4096);
        // With headers and tables it fits for the shortest objects, too.
        Self { size, count: size / 10 / len, len }
    }

    /// The bytes of an object: no two have the same.
    fn bytes(&self, object: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        Rng::new(object + 1).fill(&mut bytes);
        bytes
    }

    /// Objects of which a bit flips: in use, and at rest.
    fn victims(&self) -> [u64; 2] {
        [self.count / 3, self.count / 2]
    }

    /// The byte of an object in which a bit flips.
    fn place(&self) -> u64 {
        self.len / 2
    }

    /// What is there before a bit flips, and after.
    fn flipped(&self, object: u64) -> (u8, u8) {
        let byte = self.bytes(object)[self.place() as usize];
        (byte, byte ^ 1)
    }

    /// Bytes of all objects that are not as they were stored.
    fn wrong(
        &self,
        mut read: impl FnMut(u64, &mut [u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let mut wrong = 0;
        let mut bytes = vec![0; self.len as usize];
        for object in 0..self.count {
            read(object, &mut bytes)?;
            wrong += self.bytes(object).iter().zip(&bytes).filter(|(a, b)| a != b).count();
        }
        Ok(wrong as u64)
    }

    /// Changes the byte at `at` of a file, which has to be the first of the two.
    fn swap(&self, path: &Path, at: u64, (from, to): (u8, u8)) -> anyhow::Result<()> {
        let file = FileOptions::new().read(true).write(true).open(path)?;
        let there = byte_of(&file, at)?;
        ensure!(there == from, "{}: byte {at} is {there}, not {from}", path.display());
        Ok(file.write_all_at(&[to], at)?)
    }
}

fn byte_of(file: &File, at: u64) -> anyhow::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    Ok(byte[0])
}

/// Keeps a count of bytes, or of something else.
fn count(report: &mut Report, what: &str, whose: &str, unit: &str, value: u64) {
    report.count(&format!("replica: {what}, {whose}"), unit, value);
}

/// Shows it; see the top of the file.
pub(crate) fn replica(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let plan = Plan::of(o);
    say!("-- a flipped bit and a lost file, {} objects of {} bytes", plan.count, plan.len);
    ours(o, plan, report)?;
    let Some(shim) = o.shim else {
        say!("replica: without libpmemobj only our side was run");
        return Ok(());
    };
    theirs(o, shim, plan, report)
}

fn ours(o: &Options, plan: Plan, report: &mut Report) -> anyhow::Result<()> {
    let open = OpenOptions { verify: VerifyReads::Always, ..OpenOptions::default() };
    let mut rig = Rig::new(&o.dir, &options(plan.size, MODES[3]), open)?;
    let mut objects = Vec::with_capacity(plan.count as usize);
    for object in 0..plan.count {
        let bytes = plan.bytes(object);
        objects.push(rig.pool().run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes))?);
    }
    let [in_use, at_rest] = plan.victims();
    let at = |object: u64| objects[object as usize].offset() + plan.place();

    let (from, to) = plan.flipped(in_use);
    let m = rig.pool().medium();
    let mut there = [0];
    m.read(at(in_use), &mut there)?;
    ensure!(there == [from], "byte {} is {}, not {from}", at(in_use), there[0]);
    m.begin_write();
    m.put(STRAY, at(in_use), &[to])?;
    m.end_write();
    served(rig.pool(), plan, &objects, "in use", report)?;

    rig.at_rest(|path| plan.swap(path, at(at_rest), plan.flipped(at_rest)))?;
    served(rig.pool(), plan, &objects, "at rest", report)
}

/// Reads every object of ours; what was wrong, and what was repaired.
fn served(
    pool: &Pool<Mapped>,
    plan: Plan,
    objects: &[RawPtr],
    when: &str,
    report: &mut Report,
) -> anyhow::Result<()> {
    let before = pool.stats().repaired;
    let wrong = plan.wrong(|object, into| {
        Ok(pool.run(|tx| tx.read_bytes(objects[object as usize], 0, into))?)
    })?;
    let repaired = pool.stats().repaired - before;
    count(report, &format!("wrong bytes read, flipped {when}"), OURS, "bytes", wrong);
    count(report, &format!("repairs, flipped {when}"), OURS, "", repaired);
    Ok(())
}

fn theirs(o: &Options, shim: Shim, plan: Plan, report: &mut Report) -> anyhow::Result<()> {
    let mut peer = Peer::create(shim, &o.dir, plan.size, true)?;
    peer.table(0, plan.count, plan.len)?;
    let [primary, twin, set] = peer.files() else {
        anyhow::bail!("a pool with a replica has three files");
    };
    let (primary, twin, set) = (primary.clone(), twin.clone(), set.clone());
    let [in_use, at_rest] = plan.victims();
    let mut tables = peer.tables();
    for object in 0..plan.count {
        tables[0].alloc(object, &plan.bytes(object))?;
    }
    let at = |object: u64| anyhow::Ok(tables[0].offset(object)? + plan.place());
    let (in_use_at, at_rest_at) = (at(in_use)?, at(at_rest)?);
    drop(tables);

    let (from, to) = plan.flipped(in_use);
    plan.swap(&primary, in_use_at, (from, to))?;
    let wrong = wrong_of(&mut peer, plan)?;
    count(report, "wrong bytes read, flipped in use", THEIRS, "bytes", wrong);
    let other = u64::from(byte_of(&File::open(&twin)?, in_use_at)? != from);
    count(report, "wrong bytes in the replica meanwhile", THEIRS, "bytes", other);
    // The next figure is of one bit, too.
    plan.swap(&primary, in_use_at, (to, from))?;

    let mut resting = peer.close();
    plan.swap(&primary, at_rest_at, plan.flipped(at_rest))?;
    let wrong = resting.opened(|peer| wrong_of(peer, plan))?;
    count(report, "wrong bytes read, flipped at rest", THEIRS, "bytes", wrong);

    let keeper = Keeper::load(shim);
    if let Ok(keeper) = &keeper {
        keeper.sync(&set)?;
        let wrong = resting.opened(|peer| wrong_of(peer, plan))?;
        count(report, "wrong bytes read, then synced", THEIRS, "bytes", wrong);
    }
    std::fs::remove_file(&primary)?;
    let opened = resting.opened(|_| Ok(()));
    count(report, "opened without its file", THEIRS, "", u64::from(opened.is_ok()));
    if let Err(error) = opened {
        say!("replica: {error:#}");
    }
    match keeper {
        Ok(keeper) => bring_back(&keeper, &mut resting, plan, [&primary, &set], report),
        Err(error) => {
            say!("libpmempool takes no part: {error:#}");
            Ok(())
        }
    }
}

/// Wrong bytes of all objects of theirs.
fn wrong_of(peer: &mut Peer, plan: Plan) -> anyhow::Result<u64> {
    let tables = peer.tables();
    let table = tables.first().context("the pool has no table")?;
    plan.wrong(|object, into| table.read(object, into))
}

/// Loses the primary file several times, and times its return. It is lost already at first.
fn bring_back(
    keeper: &Keeper,
    resting: &mut Resting,
    plan: Plan,
    [primary, set]: [&Path; 2],
    report: &mut Report,
) -> anyhow::Result<()> {
    let gib = plan.size as f64 / f64::from(1 << 30);
    let (mut times, mut wrong) = (Vec::new(), 0);
    for loss in 0..LOSSES {
        if loss > 0 {
            std::fs::remove_file(primary)?;
        }
        let start = Instant::now();
        keeper.sync(set)?;
        times.push(start.elapsed().as_secs_f64() / gib);
        wrong += resting.opened(|peer| wrong_of(peer, plan))?;
    }
    report.figure(&format!("replica: sync while closed, {THEIRS}"), "s/GiB", Spread::of(times));
    count(report, "wrong bytes read, file lost and synced", THEIRS, "bytes", wrong);
    Ok(())
}
