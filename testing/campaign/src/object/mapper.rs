//! A thread at work on a map while the medium goes bad: it puts, takes and looks up entries, and
//! holds every answer against a naive map.
//!
//! The objects of the map are in the ledger as all others are: what a crash leaves is compared byte
//! by byte. No other thread changes them, and no job does, since they are of other kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_collections::{Kind, Map, MapHeader};
use holdfast_layout::{Persist, RawPtr, TypeNumber};
use holdfast_object::Pool;
use holdfast_pmem::Medium;
use holdfast_workloads::Rng;

use super::maps::{LENGTHS, changed, read_all, sound};
use super::model::{Change, Objects};
use super::ops::{Job, Node, Op, anchor_type};
use super::scenes::refused;
use super::toil::{Done, Ran, Toil};
use super::wrong::{Lie, told};
use crate::tally::{Fault, Judged, Violation};

/// Keys there are: half of them so long that an item has no room for them.
const KEYS: u64 = 48;
/// Entries that a map begins with.
const FIRST: u64 = 12;
/// One step in so many is a look.
const LOOK_EACH: u64 = 3;
/// One look in so many is at all entries.
const ALL_EACH: u64 = 4;
/// How long it waits where it had better leave its map alone.
const ASIDE: Duration = Duration::from_micros(100);

type Bytes = Map<[u8], [u8]>;

/// Whether an object of this kind is a part of a map: of none of those that jobs are on.
#[must_use]
pub fn is_of_map(kind: u32) -> bool {
    ![TypeNumber::BYTES.0, Node::TYPE.0, anchor_type()].contains(&kind)
}

/// A map, and what it should hold.
#[derive(Debug, Clone)]
pub struct Mapper {
    map: Bytes,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What is wrong with it, if it has to be convicted: it serves a wrong byte.
    lies: bool,
}

/// What is asked of a map.
#[derive(Debug)]
enum Ask {
    Put(Vec<u8>, Vec<u8>),
    Take(Vec<u8>),
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let number = rng.below(KEYS);
    let long = if number.is_multiple_of(2) { "" } else { ", longer than an item" };
    format!("{number:02}{long}").into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let mut value = vec![0; LENGTHS[rng.below(LENGTHS.len() as u64) as usize]];
    rng.fill(&mut value);
    value
}

/// Puts a map with some entries into a pool that has none, where it is found by the kinds of its
/// objects. Answers these.
///
/// # Errors
/// The engine's.
pub fn make<M: Medium>(pool: &Pool<M>, rng: &mut Rng) -> Judged<Change> {
    let kind = Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize];
    let entries: Vec<_> = (0..FIRST).map(|_| (key(rng), value(rng))).collect();
    let made = pool.run(|tx| {
        let map = Bytes::create_seeded(tx, kind, [5, 7])?;
        for (key, value) in &entries {
            map.put(tx, key, value)?;
        }
        let mut change = Change::new();
        read_all(tx, &sound(&map, tx)?, &mut change)?;
        Ok(change)
    });
    made.map_err(|error| refused("making a map", &error))
}

impl Mapper {
    /// Of the map in a pool that holds these objects, if there is one: it is sound, and leads to
    /// all objects that are of maps.
    ///
    /// # Errors
    /// It is not, or the engine refuses it.
    pub fn of<M: Medium>(pool: &Pool<M>, objects: &Objects) -> Judged<Option<Self>> {
        let mut headers = objects.iter().filter(|(_, object)| object.kind == MapHeader::TYPE.0);
        let Some((header, _)) = headers.next() else { return Ok(None) };
        let looked = pool.run(|tx| {
            let map = Bytes::open(tx, RawPtr::from_word(header).typed::<MapHeader>())?;
            let report = sound(&map, tx)?;
            Ok((map, report.objects, all(&map, tx)?))
        });
        let (map, parts, entries) =
            looked.map_err(|error| refused("looking at the map", &error))?;
        let parts: BTreeSet<u64> = parts.iter().map(|of| of.word()).collect();
        let known = objects.iter().filter(|(_, object)| is_of_map(object.kind));
        if parts != known.map(|(word, _)| word).collect() {
            let story = "the map leads to other objects than there are";
            return Err(Violation::new(Fault::Wrong, story));
        }
        Ok(Some(Self { map, entries, lies: told(Lie::WrongEntry) }))
    }

    /// One transaction or one look. `false` if nothing can be written any more.
    ///
    /// # Errors
    /// An answer that is not that of the naive map, or an error that nothing excuses.
    pub(super) fn one<M: Medium>(
        &mut self,
        toil: &Toil<'_, M>,
        part: &mut Objects,
        rng: &mut Rng,
        done: &mut Done,
    ) -> Judged<bool> {
        if let Some(of) = toil.weather.anew(part) {
            let job = Job::new(rng, [Op::Again { of }]);
            return toil.commit(&job, part, done);
        }
        if part.iter().any(|(word, _)| toil.weather.shunned(word)) {
            std::thread::sleep(ASIDE);
            return Ok(true);
        }
        if rng.below(LOOK_EACH) == 0 {
            self.look(toil, rng, done)?;
            return Ok(true);
        }
        let ask = match rng.below(2) {
            0 => Ask::Put(key(rng), value(rng)),
            _ => Ask::Take(key(rng)),
        };
        let mut was = None;
        let ran = toil.transact(&ask, true, part, done, |tx, part| {
            was = match &ask {
                Ask::Put(key, value) => self.map.replace(tx, key, value)?,
                Ask::Take(key) => self.map.take(tx, key)?,
            };
            let before: Vec<RawPtr> =
                part.iter().map(|(word, _)| RawPtr::from_word(word)).collect();
            changed(tx, &self.map, &before, part)
        })?;
        if ran == Ran::Done {
            done.steps += 1;
            let before = match ask {
                Ask::Put(key, value) => self.entries.insert(key, value),
                Ask::Take(key) => self.entries.remove(&key),
            };
            self.right(was == before, "a change answered what was not there before")?;
        }
        Ok(ran != Ran::Ended)
    }

    fn look<M: Medium>(&self, toil: &Toil<'_, M>, rng: &mut Rng, done: &mut Done) -> Judged<()> {
        let key = key(rng);
        let looked = if rng.below(ALL_EACH) == 0 {
            toil.pool.run(|tx| Ok(all(&self.map, tx)? == self.entries))
        } else {
            let found = toil.pool.run(|tx| self.map.get(tx, &key));
            found.map(|found| self.served(found).as_ref() == self.entries.get(&key))
        };
        match looked {
            Ok(right) => {
                done.steps += 1;
                self.right(right, "it says what was never put, or not what was")
            }
            Err(error) if toil.weather.excuses(&error) => {
                done.excused += 1;
                Ok(())
            }
            Err(error) => Err(refused("looking at the map", &error)),
        }
    }

    /// A value as it was found, or a lie about it.
    fn served(&self, mut found: Option<Vec<u8>>) -> Option<Vec<u8>> {
        if let (true, Some(first)) = (self.lies, found.as_mut().and_then(|value| value.first_mut()))
        {
            *first ^= 1;
        }
        found
    }

    fn right(&self, right: bool, story: &str) -> Judged<()> {
        if right {
            return Ok(());
        }
        let story = format!("a map of kind {:?}: {story}", self.map.kind());
        Err(Violation::new(Fault::Wrong, story))
    }
}

/// All entries of a map.
fn all<M: Medium>(
    map: &Bytes,
    tx: &holdfast_object::Tx<'_, M>,
) -> holdfast_txn::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut entries = BTreeMap::new();
    map.for_each(tx, |key, value| {
        entries.insert(key.to_vec(), value.to_vec());
        Ok(())
    })?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::rows::damage::world_of;
    use crate::object::scenes::stage;

    #[test]
    fn a_map_is_found_by_the_kinds_of_its_objects() {
        let mut rng = Rng::new(3);
        let driver = stage(&world_of(0, 241), &mut rng).expect("a pool");
        assert!(Mapper::of(&driver.pool, &driver.ledger.objects()).expect("looked").is_none());
        driver.give_map(&mut rng).expect("a map");
        driver.go_on(&mut rng, 30).expect("jobs");
        let objects = driver.ledger.objects();
        let found = Mapper::of(&driver.pool, &objects).expect("looked").expect("a map");
        assert!(!found.entries.is_empty() && !found.lies);
        let mut short = Objects::default();
        let parts = objects.iter().filter(|(_, object)| is_of_map(object.kind));
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|(_, object)| object.kind != MapHeader::TYPE.0);
        parts.pop();
        parts.into_iter().for_each(|(word, object)| short.insert(word, object.clone()));
        let refused = Mapper::of(&driver.pool, &short).expect_err("an object nobody knows of");
        assert_eq!(refused.fault, Fault::Wrong);
    }
}
