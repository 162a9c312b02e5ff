//! Choosing where a fault hits and what it leaves, from a seed and what is alive.
//!
//! No two faults are chosen for one stripe until it is given back: damage that could add up would
//! test luck, not repair.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use holdfast::anatomy::{Anatomy, Part, Place, Stripe};
use holdfast_pmem::PAGE;

use super::{Fault, Hit, Kind};
use crate::rng::Rng;

/// Bytes a disk writes whole: what a lost, torn or misdirected write comes in.
const SECTOR: u64 = 512;
/// Places tried before it is said that there is none.
const TRIES: u32 = 200;
/// Longest stray write.
const STRAY_MAX: u64 = 1024;
/// What a poisoned page holds in a file nobody has open.
const DESTROYED: u8 = 0xdb;

/// Chooses faults for one pool.
#[derive(Debug)]
pub(crate) struct Injector {
    file: File,
    anatomy: Anatomy,
    rng: Rng,
    /// The file as it was at an earlier moment, for writes that never arrive.
    earlier: Vec<u8>,
    used: BTreeSet<Stripe>,
    /// Live places by part.
    places: BTreeMap<Part, Vec<Place>>,
}

impl Injector {
    /// For the pool in `file`, taken apart in `anatomy`.
    pub(crate) fn new(file: File, anatomy: Anatomy, seed: u64) -> Self {
        let (rng, places) = (Rng::new(seed, 0xfa), by_part(&anatomy));
        Self { file, anatomy, rng, earlier: Vec::new(), used: BTreeSet::new(), places }
    }

    /// Remembers the file as it is now: later, a lost write shows this again. Without, it shows
    /// zeros, as before the first write.
    pub(crate) fn remember(&mut self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        self.earlier = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut self.earlier, 0)
    }

    /// Takes note of what is alive now.
    pub(crate) fn refresh(&mut self, anatomy: Anatomy) {
        self.places = by_part(&anatomy);
        self.anatomy = anatomy;
    }

    /// Gives back the stripes of faults that were dealt with.
    pub(crate) fn give_back(&mut self) {
        self.used.clear();
    }

    /// Chooses a fault of a kind in one of the parts; nothing is changed by that. `None` if there
    /// is no place left where it would not add up with another.
    pub(crate) fn choose(&mut self, kind: Kind, parts: &[Part]) -> io::Result<Option<Fault>> {
        let present: Vec<Part> =
            parts.iter().copied().filter(|part| self.places.contains_key(part)).collect();
        for _ in 0..TRIES {
            let Some(&part) = self.rng.pick(&present) else { break };
            let Some(place) = self.place(part) else { continue };
            let hits = match kind {
                Kind::Bitflip => self.bitflip(place)?,
                Kind::Stray => self.stray(place)?,
                Kind::Poison => self.poison(place)?,
                Kind::Lost => self.lost(place, 1)?,
                Kind::Torn => self.lost(place, 2)?,
                Kind::Misdirect => self.misdirect(place)?,
            };
            let stripes: BTreeSet<Stripe> =
                hits.iter().map(|hit| self.anatomy.stripe(hit.at)).collect();
            let free = stripes.iter().all(|s| *s != Stripe::None && !self.used.contains(s));
            if hits.is_empty() || !free || stripes.len() < hits.len() {
                continue;
            }
            self.used.extend(stripes);
            return Ok(Some(Fault { kind, part, hits }));
        }
        Ok(None)
    }

    /// Writes a fault into the file.
    pub(crate) fn apply(&self, fault: &Fault) -> io::Result<()> {
        fault.hits.iter().try_for_each(|hit| self.file.write_all_at(&hit.after, hit.in_file))
    }

    fn place(&mut self, part: Part) -> Option<Place> {
        self.rng.pick(self.places.get(&part)?).copied()
    }

    /// A byte of the place.
    fn byte(&mut self, place: Place) -> u64 {
        place.at + self.rng.below(place.len)
    }

    fn hit(&self, at: u64, len: u64) -> io::Result<Hit> {
        let in_file = self.anatomy.in_file(at);
        let mut before = vec![0; len as usize];
        self.file.read_exact_at(&mut before, in_file)?;
        Ok(Hit { at, in_file, after: before.clone(), before })
    }

    fn bitflip(&mut self, place: Place) -> io::Result<Vec<Hit>> {
        let at = self.byte(place);
        let mut hit = self.hit(at, 1)?;
        hit.after[0] ^= 1 << self.rng.below(8);
        Ok(vec![hit])
    }

    /// From a live byte on, as far as it goes within the page.
    fn stray(&mut self, place: Place) -> io::Result<Vec<Hit>> {
        let at = self.byte(place);
        let longest = STRAY_MAX >> self.rng.below(10);
        let len = (1 + self.rng.below(longest)).min(PAGE - at % PAGE);
        let mut hit = self.hit(at, len)?;
        self.rng.fill(&mut hit.after);
        hit.after[0] = !hit.before[0];
        Ok(vec![hit])
    }

    fn poison(&mut self, place: Place) -> io::Result<Vec<Hit>> {
        let page = self.byte(place) / PAGE * PAGE;
        let mut hit = self.hit(page, PAGE)?;
        hit.after.fill(DESTROYED);
        Ok(vec![hit])
    }

    /// Sectors of the page of a live byte that changed since the earlier moment.
    fn changed_sectors(&self, page: &Hit) -> Vec<u64> {
        let sectors = (0..PAGE / SECTOR).filter(|sector| {
            let range = range_of(*sector);
            page.before[range.clone()] != self.earlier_bytes(page.in_file)[range]
        });
        sectors.collect()
    }

    /// The page as it was at the earlier moment.
    fn earlier_bytes(&self, in_file: u64) -> Vec<u8> {
        let from = in_file as usize;
        let found = self.earlier.get(from..from + PAGE as usize);
        found.map_or_else(|| vec![0; PAGE as usize], <[u8]>::to_vec)
    }

    /// Puts back what was in one of the changed sectors of the page, of which there are at least
    /// `least`: of a torn write, the first ones arrived and the last did not.
    fn lost(&mut self, place: Place, least: usize) -> io::Result<Vec<Hit>> {
        let page = self.byte(place) / PAGE * PAGE;
        let whole = self.hit(page, PAGE)?;
        let changed = self.changed_sectors(&whole);
        if changed.len() < least {
            return Ok(Vec::new());
        }
        let sector = match changed.last() {
            Some(last) if least > 1 => *last,
            _ => self.rng.pick(&changed).copied().unwrap_or(0),
        };
        let mut hit = self.hit(page + sector * SECTOR, SECTOR)?;
        let earlier = self.earlier_bytes(whole.in_file);
        hit.after.copy_from_slice(&earlier[range_of(sector)]);
        Ok(if self.covers(&hit, place) { vec![hit] } else { Vec::new() })
    }

    /// Whether a byte of the place, or of anything alive around it, is really changed.
    fn covers(&self, hit: &Hit, place: Place) -> bool {
        let at = |(offset, (before, after)): (usize, (&u8, &u8))| {
            (before != after).then_some(hit.at + offset as u64)
        };
        let mut changed = hit.before.iter().zip(&hit.after).enumerate().filter_map(at);
        changed.any(|at| (place.at..place.at + place.len).contains(&at))
    }

    /// Puts a live sector where another belongs; its own place keeps what was there earlier.
    fn misdirect(&mut self, place: Place) -> io::Result<Vec<Hit>> {
        let target = self.byte(place) / SECTOR * SECTOR;
        let Some(source) = self.place(Part::Object) else { return Ok(Vec::new()) };
        let source_at = self.byte(source) / SECTOR * SECTOR;
        let written = self.hit(source_at, SECTOR)?;
        let mut there = self.hit(target, SECTOR)?;
        there.after.copy_from_slice(&written.before);
        if source_at == target || !self.covers(&there, place) {
            return Ok(Vec::new());
        }
        let mut hits = vec![there];
        let page = source_at / PAGE * PAGE;
        let earlier = self.earlier_bytes(self.anatomy.in_file(page));
        let mut missing = written;
        missing.after.copy_from_slice(&earlier[range_of((source_at - page) / SECTOR)]);
        if missing.after != missing.before && self.covers(&missing, source) {
            hits.push(missing);
        }
        Ok(hits)
    }
}

fn by_part(anatomy: &Anatomy) -> BTreeMap<Part, Vec<Place>> {
    let mut places: BTreeMap<Part, Vec<Place>> = BTreeMap::new();
    for place in anatomy.places() {
        places.entry(place.part).or_default().push(*place);
    }
    places
}

fn range_of(sector: u64) -> core::ops::Range<usize> {
    (sector * SECTOR) as usize..((sector + 1) * SECTOR) as usize
}
