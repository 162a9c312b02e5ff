//! A map that threads share: copies of its handle, each call a transaction.
//!
//! Calls concern a few keys, *hot* ones, which lie among others that nobody touches: so many that
//! the bucket they are in is split when some come, and joined when some go.

use std::collections::BTreeMap;

use holdfast_collections::{Kind, Map};
use holdfast_object::{Error, Pool, Tx};
use holdfast_oracle::linear::Spec;
use holdfast_oracle::linear::specs::{Entries, MapAnswer, MapOp};
use holdfast_workloads::Rng;

use super::shake;
use super::subject::{Caller, Subject};
use super::wrong::Wrong;
use crate::object::handle::Handle;
use crate::object::scenes::refused;
use crate::tally::{Fault, Judged, Violation};

/// Hot keys: the first, and how many.
const HOT: u64 = 1_000;
const KEYS: u64 = 5;
/// How many of them are there at first.
const THERE: u64 = 2;

/// A map of a pool.
#[derive(Debug, Clone)]
pub struct Shared {
    map: Map<u64, [u8]>,
    kind: Kind,
    /// Keys that nobody touches.
    cold: u64,
    /// Whether calls concern one key or two each, or also all.
    apart: bool,
}

/// A value as it is stored: short enough for the bucket, or in an object of its own.
fn encode(value: u64) -> Vec<u8> {
    if value.is_multiple_of(2) {
        (value as u32).to_le_bytes().to_vec()
    } else {
        value.to_le_bytes().repeat(6)
    }
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let value = match *bytes {
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        _ => u64::from_le_bytes(*bytes.first_chunk()?),
    };
    (encode(value) == bytes).then_some(value)
}

/// A value found, as an answer.
fn answer(found: Option<Vec<u8>>) -> MapAnswer {
    match found {
        None => MapAnswer::Value(None),
        Some(bytes) => {
            decode(&bytes).map_or(MapAnswer::Torn, |value| MapAnswer::Value(Some(value)))
        }
    }
}

impl Shared {
    /// Makes one with `cold` keys besides the hot ones.
    ///
    /// # Errors
    /// Of the engine.
    pub fn make(pool: &Pool<Handle>, kind: Kind, cold: u64, apart: bool) -> Result<Self, Error> {
        let map = pool.run(|tx| Map::<u64, [u8]>::create(tx, kind))?;
        for n in 0..cold {
            // Half of them before the hot ones, half behind.
            let key = if n % 2 == 0 { n } else { 2 * HOT + n };
            pool.run(|tx| map.put(tx, &key, &encode(key)[..]))?;
        }
        for key in HOT..HOT + THERE {
            pool.run(|tx| map.put(tx, &key, &encode(key)[..]))?;
        }
        Ok(Self { map, kind, cold, apart })
    }

    fn all(&self, tx: &Tx<'_, Handle>) -> holdfast_txn::Result<MapAnswer> {
        let mut found = BTreeMap::new();
        let mut torn = false;
        let mut take = |key: &u64, value: &[u8]| {
            if (HOT..HOT + KEYS).contains(key) {
                shake::here();
                let value = decode(value);
                torn |= value.is_none() || found.insert(*key, value.unwrap_or(0)).is_some();
            }
            Ok(())
        };
        if self.kind == Kind::Hash {
            self.map.for_each(tx, |key, value| take(key, value))?;
        } else {
            self.map.scan(tx, HOT..HOT + KEYS, usize::MAX, |key, value| take(key, value))?;
        }
        Ok(if torn { MapAnswer::Torn } else { MapAnswer::Entries(found.into_iter().collect()) })
    }
}

impl Subject for Shared {
    type Spec = Entries;
    const CALLS: u64 = 11;

    fn start(&self) -> <Entries as Spec>::State {
        (HOT..HOT + THERE).map(|key| (key, key)).collect()
    }

    fn next(&self, caller: &mut Caller, unique: u64) -> MapOp {
        let rng = &mut caller.rng;
        let key = |rng: &mut Rng| HOT + rng.below(KEYS);
        let of = key(rng);
        let whole = if self.apart { 0 } else { 2 };
        match rng.below(10 + whole) {
            0..3 => MapOp::Get(of),
            3..6 => MapOp::Put(of, unique),
            6..8 => MapOp::Take(of),
            8 | 9 if self.apart => MapOp::Get(of),
            8 | 9 => MapOp::Rename(of, key(rng)),
            10 => MapOp::Len,
            _ => MapOp::All,
        }
    }

    fn call(
        &self,
        pool: &Pool<Handle>,
        op: &MapOp,
        caller: &mut Caller,
    ) -> Result<MapAnswer, Error> {
        let map = self.map;
        if let (true, MapOp::Rename(from, to)) = (caller.is(Wrong::Halves), *op) {
            let taken = pool.run(|tx| map.take(tx, &from))?;
            shake::here();
            if let Some(bytes) = &taken {
                pool.run(|tx| map.put(tx, &to, &bytes[..]))?;
            }
            return Ok(answer(taken));
        }
        pool.run(|tx| {
            let done = match *op {
                MapOp::Get(key) => answer(map.get(tx, &key)?),
                MapOp::Put(key, value) => answer(map.replace(tx, &key, &encode(value)[..])?),
                MapOp::Take(key) => answer(map.take(tx, &key)?),
                MapOp::Rename(from, to) => {
                    let taken = map.take(tx, &from)?;
                    shake::here();
                    if let Some(bytes) = &taken {
                        map.put(tx, &to, &bytes[..])?;
                    }
                    answer(taken)
                }
                // Cold keys are always there: fewer is as wrong as a hot one too many.
                MapOp::Len => MapAnswer::Count(map.len(tx)?.wrapping_sub(self.cold)),
                MapOp::All => self.all(tx)?,
            };
            shake::here();
            Ok(done)
        })
    }

    fn foreseen(_: &MapOp) -> Option<MapAnswer> {
        None
    }

    fn audit(&self, _: bool, ask: &mut dyn FnMut(MapOp) -> Judged<MapAnswer>) -> Judged<()> {
        if self.apart {
            return (HOT..HOT + KEYS).try_for_each(|key| ask(MapOp::Get(key)).map(drop));
        }
        ask(MapOp::All)?;
        ask(MapOp::Len).map(drop)
    }

    fn sound(&self, pool: &Pool<Handle>) -> Judged<()> {
        let report = pool.run(|tx| self.map.check(tx));
        let report = report.map_err(|error| refused("checking the map", &error))?;
        if report.is_sound() {
            return Ok(());
        }
        let story = format!("the map is not sound: {:?}", report.findings);
        Err(Violation::new(Fault::Wrong, story))
    }
}
