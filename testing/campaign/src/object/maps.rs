//! A map in a pool, its header the root: what steps on it change, and what a crash must leave.
//!
//! Two accounts. Each transaction says which objects of the map it will have changed, so that a
//! recovered pool is compared byte by byte, as with any other objects. And a naive map knows keys
//! and values: what the recovered map says is compared with that, it must be sound, it must lead to
//! every object there is but the anchor, and it must still work.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_collections::{CheckReport, Kind, Map, MapHeader};
use holdfast_layout::RawPtr;
use holdfast_object::Tx;
use holdfast_oracle::acked::{Acked, Ticket};
use holdfast_oracle::map_model::{MapModel, MapOp};
use holdfast_pmem::Medium;
use holdfast_txn::{Result, Transaction, TxError};
use holdfast_workloads::Rng;
use holdfast_workloads::sequences::MapStep;

use super::driver::Driver;
use super::model::{Change, Object};
use super::ops::current;
use super::scenes::refused;
use super::world::Also;
use crate::tally::{Fault, Judged, Violation};

/// Keys that steps are on.
pub const KEYS: usize = 2;
/// Lengths of values: one that a bucket has room for, one with an object of its own, one of several
/// granules.
pub const LENGTHS: [usize; 3] = [7, 200, 3_000];
/// Entries that a bucket has room for: with these, the next key splits it.
const CROWD: u8 = 62;
/// Entries put in one transaction.
const BATCH: usize = 16;

type Bytes = Map<[u8], [u8]>;

/// What a map was asked for and answered: shared by who works and who judges.
#[derive(Debug, Clone)]
pub struct Told(Arc<Mutex<Acked<MapModel>>>);

impl Told {
    /// Of an empty map.
    #[must_use]
    pub fn nothing() -> Self {
        Self::of(MapModel::new())
    }

    fn of(model: MapModel) -> Self {
        Self(Arc::new(Mutex::new(Acked::new(model))))
    }

    /// What was told, and what of it was acknowledged.
    pub fn lock(&self) -> MutexGuard<'_, Acked<MapModel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how the operation of that ticket ended.
    pub fn settle(&self, ticket: Ticket, done: bool) {
        let mut told = self.lock();
        // Begun by this very call, and settled once.
        let _ = if done { told.ack(ticket) } else { told.refuse(ticket) };
    }

    /// What looks at recovered pools: that their map is what was told, and works.
    #[must_use]
    pub fn also(&self) -> Also {
        let told = self.clone();
        Also::new(move |driver, rng| told.look(driver, rng))
    }

    /// Compares a recovered map with what was told, and uses it.
    ///
    /// # Errors
    /// It is something else, or does not work.
    pub fn look(&self, driver: &Driver, rng: &mut Rng) -> Judged<()> {
        let (map, found) = found(driver)?;
        let told = self.lock().clone();
        if let Err(error) = told.verify(&found) {
            let first = told.model().difference(found.iter());
            let first = first.map_or_else(String::new, |first| format!(": {first}"));
            return Err(Violation::new(Fault::Wrong, format!("the map: {error}{first}")));
        }
        let hand = Hand { map, told: Self::of(found) };
        for _ in 0..2 {
            let key = rng.below(KEYS as u64) as usize;
            let len = LENGTHS[rng.below(LENGTHS.len() as u64) as usize];
            let step = [MapStep::Put { key, len }, MapStep::Delete { key }][rng.below(2) as usize];
            hand.step(driver, step, rng).map_err(|v| v.during("in the recovered map"))?;
        }
        let (_, found) = self::found(driver)?;
        if hand.told.lock().model() == &found {
            return Ok(());
        }
        Err(Violation::new(Fault::Wrong, "the recovered map did not do what it was asked"))
    }
}

/// A map to work on.
#[derive(Debug, Clone)]
pub struct Hand {
    map: Bytes,
    told: Told,
}

impl Hand {
    /// Makes a map the root of a pool that holds nothing but its anchor: empty, or with a bucket
    /// that is full, one of the keys in it.
    ///
    /// # Errors
    /// The engine's.
    pub fn make(
        driver: &Driver,
        kind: Kind,
        crowded: bool,
        told: Told,
        rng: &mut Rng,
    ) -> Judged<Self> {
        let mut made = None;
        let done = driver.run_as(false, |tx, now| {
            let map = Bytes::create_seeded(tx, kind, [5, 7])?;
            made = Some(map);
            tx.set_root(map.pointer())?;
            let mut change = Change::new();
            read_all(tx, &sound(&map, tx)?, &mut change)?;
            let mut anchor = current(now, &change, driver.anchor)?;
            let mut bytes = anchor.bytes.to_vec();
            bytes[..8].copy_from_slice(&map.pointer().raw().word().to_le_bytes());
            anchor.bytes = Arc::from(bytes);
            change.push((driver.anchor, Some(anchor)));
            Ok(change)
        });
        done.map_err(|error| refused("making a map", &error))?;
        let map = made.ok_or_else(|| Violation::new(Fault::Refused, "no map was made"))?;
        let hand = Self { map, told };
        if crowded {
            hand.crowd(driver, rng)?;
        }
        Ok(hand)
    }

    /// Fills a bucket.
    fn crowd(&self, driver: &Driver, rng: &mut Rng) -> Judged<()> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> =
            (0..CROWD).map(|n| (vec![b'm', n, n], vec![n; 4])).collect();
        entries.push((key(0), vec![0; 7]));
        rng.shuffle(&mut entries);
        for batch in entries.chunks(BATCH) {
            let done = driver.run_as(false, |tx, now| {
                let before = sound(&self.map, tx)?;
                for (key, value) in batch {
                    self.map.put(tx, key, value)?;
                }
                changed(tx, &self.map, &before.objects, now)
            });
            done.map_err(|error| refused("filling a map", &error))?;
        }
        *self.told.lock() = Acked::new(entries.into_iter().collect());
        Ok(())
    }

    /// Does one step.
    ///
    /// # Errors
    /// The engine's, and answers that are not those of a naive map.
    pub fn step(&self, driver: &Driver, step: MapStep, rng: &mut Rng) -> Judged<()> {
        let op = match step {
            MapStep::Put { key, len } => {
                let mut value = vec![0; len];
                rng.fill(&mut value);
                MapOp::Put { key: self::key(key), value }
            }
            MapStep::Delete { key } => MapOp::Delete { key: self::key(key) },
        };
        let mut ticket = None;
        let mut was = false;
        let done = driver.run_as(true, |tx, now| {
            if let Some(ticket) = ticket.take() {
                self.told.settle(ticket, false);
            }
            let before = sound(&self.map, tx)?;
            was = match &op {
                MapOp::Put { key, value } => self.map.put(tx, key, value)?,
                MapOp::Delete { key } => self.map.remove(tx, key)?,
            };
            let change = changed(tx, &self.map, &before.objects, now)?;
            ticket = Some(self.told.lock().begin(op.clone()));
            Ok(change)
        });
        let (MapOp::Put { key, .. } | MapOp::Delete { key }) = &op;
        let there = self.told.lock().model().get(key).is_some();
        let done = done.map_err(|error| refused(&format!("{step:?}"), &error));
        if let Some(ticket) = ticket {
            self.told.settle(ticket, matches!(done, Ok(true)));
        }
        if done? && was != there {
            let story = format!("{step:?} said that the key was there: {was}");
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(())
    }
}

/// A key by its number: one that an item has room for, and one that needs an entry. In an order of
/// keys, among those of a crowd and behind them.
pub fn key(number: usize) -> Vec<u8> {
    if number == 0 { vec![b'm', 31, b'x'] } else { b"z, longer than an item".to_vec() }
}

/// The map of a pool and what it holds, if it is sound and leads to all there is.
fn found(driver: &Driver) -> Judged<(Bytes, MapModel)> {
    let looked = driver.pool.run(|tx| {
        let map = Bytes::open(tx, tx.root::<MapHeader>()?)?;
        let mut pairs = Vec::new();
        map.for_each(tx, |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok((map, pairs, map.check(tx)?))
    });
    let (map, mut pairs, report) = looked.map_err(|error| refused("reading the map", &error))?;
    let wrong = |story| Err(Violation::new(Fault::Wrong, story));
    if !report.is_sound() || report.entries != pairs.len() as u64 {
        return wrong(format!("the map is not sound: {:?}", report.findings));
    }
    if map.kind() == Kind::Hash {
        pairs.sort();
    }
    let model: MapModel = pairs.iter().cloned().collect();
    if let Some(difference) = model.difference(pairs) {
        return wrong(format!("the map shows something twice or in disorder: {difference}"));
    }
    let led: BTreeSet<u64> = report.objects.iter().map(|of| of.word()).collect();
    let objects = driver.ledger.objects();
    let live = objects.iter().map(|(word, _)| word).filter(|word| *word != driver.anchor);
    let live: BTreeSet<u64> = live.collect();
    if led != live {
        let (all, to) = (live.len(), led.len());
        return wrong(format!("{all} objects are live, the map leads to {to}, not the same"));
    }
    Ok((map, model))
}

/// What a check says of a map, in which nothing may be wrong.
pub(super) fn sound<M: Medium>(map: &Bytes, tx: &Tx<'_, M>) -> Result<CheckReport> {
    let report = map.check(tx)?;
    if report.is_sound() {
        Ok(report)
    } else {
        Err(TxError::Inconsistent("a check of the map finds something"))
    }
}

/// Adds every object of a map, as this transaction sees it.
pub(super) fn read_all<M: Medium>(
    tx: &Tx<'_, M>,
    report: &CheckReport,
    into: &mut Change,
) -> Result<()> {
    for of in &report.objects {
        let mut bytes = vec![0; tx.len_of(*of)? as usize];
        tx.read_bytes(*of, 0, &mut bytes)?;
        let kind = tx.type_of(*of)?.0;
        into.push((of.word(), Some(Object { kind, bytes: Arc::from(bytes) })));
    }
    Ok(())
}

/// What this transaction changes of a map that consisted of `before`.
pub(super) fn changed<M: Medium>(
    tx: &Tx<'_, M>,
    map: &Bytes,
    before: &[RawPtr],
    now: &super::model::Objects,
) -> Result<Change> {
    let report = sound(map, tx)?;
    let mut change = Change::new();
    read_all(tx, &report, &mut change)?;
    change.retain(|(word, object)| now.get(*word) != object.as_ref());
    let gone = before.iter().filter(|of| !report.objects.contains(of));
    change.extend(gone.map(|of| (of.word(), None)));
    Ok(change)
}
