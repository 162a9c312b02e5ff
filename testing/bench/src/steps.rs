//! Where the time of a commit goes: step by step, with what each stores, flushes and waits for,
//! beside the floor, which is the same stores and drains without an engine around them.
//!
//! The engine runs on a medium that passes everything on and keeps a ledger: the steps it is told
//! of cut the commit into sections, and each section is charged what happens in it. Drains only
//! order stores, so a section that follows one may be charged for its wait.

use core::arch::x86_64::_rdtsc;
use core::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use holdfast_layout::RawPtr;
use holdfast_object::{OpenOptions, Pool};
use holdfast_pmem::{
    Durability, Mapped, MediaError, Medium, MediumKind, Site, SyncError, SystemClock,
};
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;
use serde_json::json;

use crate::Options;
use crate::counters::Counters;
use crate::object::{LENGTHS, MODES, options, time};
use crate::report::{Report, Spread};
use crate::rig::fill;
use crate::say::say;

/// A section of a transaction, and the step that ends it. Those without are ended by the run.
const SECTIONS: [(&str, Option<&str>); 11] = [
    ("take a lane", None),
    ("copy, verify, store to the copy", None),
    ("compare, sum, build the record", Some("object.settle.F2")),
    ("lock and validate versions", Some("object.commit.step-locked")),
    ("try parity, room in the log, number", Some("object.commit.step-numbered")),
    ("lock columns", Some("object.commit.step-columns")),
    (RECORD, Some("logs.ring.recorded")),
    ("F1", Some("object.commit.step-durable")),
    ("apply: bytes, slot, parity", Some("object.commit.step-applied")),
    ("release", Some(PUT_OFF)),
    ("give the lane back", None),
];
/// The section that writes the record, twice.
const RECORD: &str = "record to both copies";
/// The end of a commit whose last drain is put off, and of one that waited for it while it applied.
const PUT_OFF: &str = "object.commit.step-put-off";
const DONE: &str = "object.commit.step-done";
/// Places of the floor's own.
const FLOOR: Site = Site::new("bench.steps.floor");
/// Objects of the hot set: all of them stay in the caches.
const HOT: u64 = 1000;
/// Bytes of the objects of the cold set.
const COLD: u64 = 400 << 20;
const LINE: u64 = 64;

/// What one section is charged.
#[derive(Debug, Default)]
struct Charge {
    ticks: Cell<u64>,
    bytes: Cell<u64>,
    lines: Cell<u64>,
    drains: Cell<u64>,
    locked: Cell<u64>,
}

/// What the sections of this thread's transactions are charged.
#[derive(Debug, Default)]
struct Ledger {
    now: Cell<usize>,
    since: Cell<u64>,
    charges: [Charge; SECTIONS.len()],
}

thread_local! {
    static LEDGER: Ledger = Ledger::default();
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction; it changes nothing.
    unsafe { _rdtsc() }
}

impl Ledger {
    /// The section under way ends, and `next` begins.
    fn turn(&self, next: usize) {
        let now = ticks();
        if let Some(charge) = self.charges.get(self.now.get()) {
            add(&charge.ticks, now - self.since.get());
        }
        self.now.set(next);
        self.since.set(now);
    }

    /// A step was passed. Not every commit has all of them.
    fn passed(&self, site: Site) {
        let name = if site.name() == DONE { PUT_OFF } else { site.name() };
        let mut left = SECTIONS.iter().enumerate().skip(self.now.get());
        if let Some((section, _)) = left.find(|(_, (_, end))| *end == Some(name)) {
            self.turn(section + 1);
        }
    }

    fn charge(&self, with: impl FnOnce(&Charge)) {
        if let Some(charge) = self.charges.get(self.now.get()) {
            with(charge);
        }
    }

    fn stored(&self, at: u64, len: u64) {
        self.charge(|charge| {
            add(&charge.bytes, len);
            add(&charge.lines, (at + len).div_ceil(LINE) - at / LINE);
        });
    }

    fn clear(&self) {
        self.now.set(SECTIONS.len());
        for Charge { ticks, bytes, lines, drains, locked } in &self.charges {
            [ticks, bytes, lines, drains, locked].into_iter().for_each(|cell| cell.set(0));
        }
    }
}

/// The real medium, with a ledger.
#[derive(Debug)]
struct Watched(Mapped);

impl Medium for Watched {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn kind(&self) -> MediumKind {
        self.0.kind()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.0.read(at, into)
    }

    fn put(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        LEDGER.with(|ledger| ledger.stored(at, bytes.len() as u64));
        self.0.put(site, at, bytes)
    }

    fn put_aside(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        LEDGER.with(|ledger| ledger.stored(at, bytes.len() as u64));
        self.0.put_aside(site, at, bytes)
    }

    fn put_is_cached(&self, len: u64) -> bool {
        self.0.put_is_cached(len)
    }

    fn xor(&self, site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        LEDGER.with(|ledger| ledger.stored(at, delta.len() as u64));
        self.0.xor(site, at, delta)
    }

    fn zero(&self, site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        LEDGER.with(|ledger| ledger.stored(at, len));
        self.0.zero(site, at, len)
    }

    fn drain(&self, site: Site) {
        self.0.drain(site);
        LEDGER.with(|ledger| {
            ledger.charge(|charge| add(&charge.drains, 1));
            ledger.passed(site);
        });
    }

    fn locked(&self) {
        LEDGER.with(|ledger| ledger.charge(|charge| add(&charge.locked, 1)));
    }

    fn step(&self, site: Site) {
        LEDGER.with(|ledger| ledger.passed(site));
    }

    fn begin_write(&self) {
        self.0.begin_write();
    }

    fn end_write(&self) {
        self.0.end_write();
    }

    fn prefetch(&self, at: u64, len: u64) {
        self.0.prefetch(at, len);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.0.append(site, at, bytes)
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        self.0.sync(site)
    }

    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.0.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.0.grow(len)
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.heal(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.0.remap(at, physical, len)
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.0.stand_in(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.0.bad_ranges()
    }
}

/// Measures; see the top of the file.
pub(crate) fn steps(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (rounds, count) = if o.quick { (3, 5_000) } else { (9, 50_000) };
    for len in LENGTHS {
        if o.len.is_some_and(|only| only != len) {
            continue;
        }
        say!("-- an overwrite of {len} bytes, step by step (full protection, hot)");
        let path = o.dir.join(format!("holdfast-steps-{}.pool", std::process::id()));
        let removed = Removed(path.clone());
        let create = options(256 << 20, MODES[3]);
        let m = Watched(Mapped::create(&path, create.size, &holdfast_pmem::Options::default())?);
        let clock = Arc::new(SystemClock::new());
        let pool = Pool::create(m, &create, OpenOptions::default(), clock)?;
        let objects = fill(&pool, HOT as usize, len)?;
        let record = commit(&pool, &objects, len, rounds, count, report)?;
        drop(pool);
        drop(removed);
        unflushed(o, len, rounds, count, report)?;
        let hot = Set { name: "floor", objects: HOT };
        floor(o, len, record, hot, rounds, count, report)?;
        let (all, under) = (format!("step {len}: all"), format!("step {len}: floor"));
        if let Some(ratio) = report.ratio(&all, &under) {
            report.figure(&format!("step {len}: all over floor"), "x", ratio);
        }
        let cold = Set { name: "floor, cold", objects: COLD / if o.quick { 10 } else { 1 } / len };
        floor(o, len, record, cold, rounds, count, report)?;
    }
    Ok(())
}

/// The file is removed when this is dropped.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Overwrites, and tells what each section is charged. Answers the bytes of a record.
fn commit(
    pool: &Pool<Watched>,
    objects: &[RawPtr],
    len: u64,
    rounds: usize,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<u64> {
    let mut rng = Rng::new(7);
    let mut bytes = vec![0; len as usize];
    let mut times = vec![Vec::new(); SECTIONS.len()];
    let mut all = Vec::new();
    let mut counts = Vec::new();
    for round in 0..=rounds {
        let own = cost_of_a_turn();
        LEDGER.with(Ledger::clear);
        let (start, from) = (Instant::now(), ticks());
        for i in 0..count {
            let object = objects[rng.below(objects.len() as u64) as usize];
            bytes.fill(i as u8 ^ round as u8);
            LEDGER.with(|ledger| ledger.turn(0));
            pool.run(|tx| {
                LEDGER.with(|ledger| ledger.turn(1));
                tx.write_bytes(object, 0, &bytes)?;
                LEDGER.with(|ledger| ledger.turn(2));
                Ok(())
            })?;
            LEDGER.with(|ledger| ledger.turn(SECTIONS.len()));
        }
        let ns_of_a_tick = start.elapsed().as_nanos() as f64 / (ticks() - from) as f64;
        // The first round warms up.
        if round == 0 {
            continue;
        }
        LEDGER.with(|ledger| {
            let each = |charge: &Charge| {
                let ticks = charge.ticks.get() as f64 / count as f64 - own;
                ticks.max(0.0) * ns_of_a_tick
            };
            let now: Vec<f64> = ledger.charges.iter().map(each).collect();
            all.push(now.iter().sum());
            times.iter_mut().zip(now).for_each(|(times, now)| times.push(now));
            let per = |cell: &Cell<u64>| cell.get() as f64 / count as f64;
            let of = |c: &Charge| [&c.bytes, &c.lines, &c.drains, &c.locked].map(per);
            counts = ledger.charges.iter().map(of).collect();
        });
    }
    for (((name, _), times), [bytes, lines, drains, locked]) in
        SECTIONS.iter().zip(times).zip(&counts)
    {
        report.figure(&format!("step {len}: {name}"), "ns", Spread::of(times));
        if bytes + drains + locked > 0.0 {
            say!(
                "{:<46}{bytes:.0} B stored, {lines:.1} lines flushed, {drains:.2} drains, \
                 {locked:.2} locked instructions",
                ""
            );
        }
    }
    report.rounds(&format!("step {len}: all"), "ns", all);
    report.remark(&format!("steps.{len}"), json!({ "bytes, lines, drains, locked": counts }));
    counted(pool, objects, len, count, report)?;
    let record = SECTIONS.iter().zip(&counts).find(|((name, _), _)| *name == RECORD);
    Ok(record.map_or(0, |(_, [bytes, ..])| *bytes as u64 / 2))
}

/// What the processor counts of an overwrite, where it tells.
fn counted(
    pool: &Pool<Watched>,
    objects: &[RawPtr],
    len: u64,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut counters = match Counters::open() {
        Ok(counters) => counters,
        Err(error) => {
            say!("cache misses and instructions are not counted here: {error}");
            return Ok(());
        }
    };
    let mut rng = Rng::new(8);
    let mut bytes = vec![0; len as usize];
    let all = counters.count(|| {
        for i in 0..count {
            bytes.fill(i as u8);
            let object = objects[rng.below(objects.len() as u64) as usize];
            pool.run(|tx| tx.write_bytes(object, 0, &bytes))?;
        }
        Ok(())
    })?;
    for (name, number) in all {
        let each = Spread::of(vec![number as f64 / count as f64]);
        report.figure(&format!("step {len}: {name}"), "", each);
    }
    Ok(())
}

/// Ticks that beginning and ending a section adds to it.
fn cost_of_a_turn() -> f64 {
    const TIMES: usize = 10_000;
    LEDGER.with(|ledger| {
        ledger.clear();
        (0..TIMES).for_each(|_| ledger.turn(0));
        let all = ledger.charges[0].ticks.get();
        ledger.clear();
        all as f64 / TIMES as f64
    })
}

/// The same commits on a medium of which only the death of the process is to be survived, so that
/// nothing is flushed or drained: what is left is instructions and misses of the cache.
fn unflushed(
    o: &Options,
    len: u64,
    rounds: usize,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let path = o.dir.join(format!("holdfast-unflushed-{}.pool", std::process::id()));
    let _removed = Removed(path.clone());
    let create = options(256 << 20, MODES[3]);
    let process = holdfast_pmem::Options { durability: Durability::Process, ..Default::default() };
    let m = Mapped::create(&path, create.size, &process)?;
    let clock = Arc::new(SystemClock::new());
    let pool = Pool::create(m, &create, OpenOptions::default(), clock)?;
    let objects = fill(&pool, HOT as usize, len)?;
    let mut rng = Rng::new(7);
    let mut bytes = vec![0; len as usize];
    let values = time(rounds, count, |i| {
        let object = objects[rng.below(HOT) as usize];
        bytes.fill(i as u8);
        Ok(pool.run(|tx| tx.write_bytes(object, 0, &bytes))?)
    })?;
    report.rounds(&format!("step {len}: all, nothing flushed or drained"), "ns", values);
    Ok(())
}

/// Objects that a floor is measured on, and what it is called.
#[derive(Debug, Clone, Copy)]
struct Set {
    name: &'static str,
    objects: u64,
}

/// The stores and drains of such a commit, whose record has `record` bytes, and the load of the
/// object, without the rest.
fn floor(
    o: &Options,
    len: u64,
    record: u64,
    set: Set,
    rounds: usize,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    const LOG: u64 = 4 << 20;
    const SLOT: u64 = 16;
    let path = o.dir.join(format!("holdfast-floor-{}.pool", std::process::id()));
    let _removed = Removed(path.clone());
    // Both logs, slots and objects, then the parity of those two: each in a part of its own.
    let objects = 2 * LOG + (set.objects * SLOT).next_multiple_of(LOG);
    let end = (objects + set.objects * len).next_multiple_of(LOG);
    let parity = end - 2 * LOG;
    let m = Mapped::create(&path, end + parity, &holdfast_pmem::Options::default())?;
    let (mut copy, sealed, line) = (vec![0; len as usize], vec![7; record as usize], [1; 16]);
    let store = |at: u64, bytes: &[u8]| -> Result<(), MediaError> {
        let (object, slot) = (objects + at * len, 2 * LOG + at * SLOT);
        m.put(FLOOR, object, bytes)?;
        m.xor(FLOOR, parity + object, bytes)?;
        m.put(FLOOR, slot, &line)?;
        m.xor(FLOOR, parity + slot, &line)
    };
    // First accesses to pages are not measured.
    (0..set.objects).try_for_each(|at| store(at, &copy))?;
    let mut rng = Rng::new(7);
    let values = time(rounds, count, |i| {
        let at = rng.below(set.objects);
        let next = i as u64 % 8 * record.next_multiple_of(LINE);
        m.read(objects + at * len, &mut copy)?;
        m.put_aside(FLOOR, next, &sealed)?;
        m.put_aside(FLOOR, LOG + next, &sealed)?;
        m.drain(FLOOR);
        copy.fill(i as u8);
        store(at, &copy)?;
        m.drain(FLOOR);
        Ok(())
    })?;
    report.rounds(&format!("step {len}: {}", set.name), "ns", values);
    Ok(())
}
