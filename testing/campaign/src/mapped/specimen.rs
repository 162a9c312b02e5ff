//! A side file to be damaged field by field: what it has, where, and what certifies it.

use holdfast_layout::Field;
use holdfast_layout::format::{FIELDS_MIRRORED, INTENT_PAGE, MIRRORED_LEN};
use holdfast_mapped::format::{FIELDS_ENTRY, FIELDS_HEADER, FIELDS_REGION};
use holdfast_mapped::{AtRest, Force, Writing};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::format::{EVENT_LEN, FIELDS_EVENT, FIELDS_INTENT};
use holdfast_workloads::Rng;

use std::sync::{Arc, Mutex, PoisonError};

use super::judge::refused;
use super::machine::{Machine, ROOM, SIDE, Setting};
use super::side::{Area, Layout, REGION};
use super::tap::Doing;
use crate::object::raw::sums::crc;
use crate::object::wrong::off;
use crate::tally::{Fault, Judged, Violation};

/// Pages of the data file.
pub const PAGES: u64 = 24;

/// What certifies a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// Nothing.
    None,
    /// The sum of the mirrored page at this place of its side, with or without the file's seed.
    Page(u64, bool),
    /// The sum of this region's record.
    Record(u64),
    /// The sum of this region's entries, in its record.
    Meta(u64),
    /// The sum of the event at this place of the journal.
    Event(u64),
}

/// One field of a structure.
#[derive(Debug, Clone)]
pub struct Spot {
    /// Structure and field.
    pub name: String,
    /// First byte in the side file of each copy there is.
    pub copies: Vec<u64>,
    /// Bytes.
    pub len: u64,
    /// What certifies it.
    pub seal: Seal,
    /// Whether damage of one copy may put pages in doubt.
    pub doubt: bool,
}

/// A machine that was left.
#[derive(Debug)]
pub struct Specimen {
    /// How the file is kept.
    pub setting: Setting,
    /// Data file and side file.
    pub bytes: Vec<u8>,
    /// Whether a repair was cut off in it.
    pub cut_off: bool,
}

impl Specimen {
    /// Leads a short life: stores, passes, a repair; closed, or cut off in the repair.
    ///
    /// # Errors
    /// The engine's.
    pub fn of(setting: Setting, cut_off: bool, rng: &mut Rng) -> Judged<Self> {
        let machine = Machine::new(&setting, PAGES * PAGE, rng, None);
        let engine = machine.protect(&setting).map_err(|e| refused("protect", &e))?;
        engine.admit(0, u64::MAX, Writing::NotYet).map_err(|e| refused("admit", &e))?;
        for page in [1, 9, 10, 17] {
            let mut bytes = [0; 100];
            rng.fill(&mut bytes);
            let stored = machine.data.put(super::machine::STORE, page * PAGE + 50, &bytes);
            stored.map_err(|e| refused("a store", &e))?;
        }
        engine.pass().map_err(|e| refused("pass", &e))?;
        let rotten = 5 * PAGE + 70;
        machine.medium.flip_bit(rotten, 3).map_err(|e| refused("damage", &e))?;
        let left: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
        let (kept, twin) = (Arc::clone(&left), machine.clone());
        machine.ear.listen(Box::new(move |doing| {
            if let Doing::Store(site, ..) = doing
                && site.name() == "mapped.repair.store"
            {
                let bytes = twin.medium.crash_point().newest().into_bytes();
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
            }
        }));
        engine.repair(5, &AtRest, Force::No).map_err(|e| refused("repair", &e))?;
        machine.ear.forget();
        engine.close().map_err(|e| refused("close", &e))?;
        let closed = machine.medium.crash_point().newest().into_bytes();
        let cut = left.lock().unwrap_or_else(PoisonError::into_inner).take();
        let missing = || Violation::new(Fault::Refused, "the repair stored nothing");
        let bytes = if cut_off { cut.ok_or_else(missing)? } else { closed };
        Ok(Self { setting, bytes, cut_off })
    }

    /// Where a byte of the side file is in the bytes of the machine.
    #[must_use]
    pub const fn place(at: u64) -> usize {
        (ROOM * PAGE + at) as usize
    }

    /// The page of a region whose entry is among the spots.
    #[must_use]
    pub const fn page_of_entry(region: u64) -> u64 {
        region * REGION + region + 1
    }

    /// Every field of every structure.
    #[must_use]
    pub fn spots(&self) -> Vec<Spot> {
        let layout = Layout { parity: self.setting.parity.into(), pages: PAGES };
        let mut spots = Vec::new();
        let mut add = |what: &str, fields: &[Field], at: &[u64], seal, doubt| {
            for field in fields {
                let copies = at.iter().map(|at| at + field.at).collect();
                let name = format!("{what} {}", field.name);
                spots.push(Spot { name, copies, len: field.len, seal, doubt });
            }
        };
        let body = MIRRORED_LEN as u64;
        for (what, fields, place, seeded) in [
            ("mapped HEADER", FIELDS_HEADER, 0, false),
            ("redundancy INTENT", FIELDS_INTENT, INTENT_PAGE, true),
        ] {
            let seal = Seal::Page(place, seeded);
            let sides = [place, SIDE + place];
            add(&format!("layout MIRRORED of {what}"), FIELDS_MIRRORED, &sides, seal, false);
            add(what, fields, &sides.map(|at| at + body), seal, false);
        }
        for region in 0..PAGES / REGION {
            let at = [0, 1].map(|copy| {
                let (at, _) = layout.place(Area::States(region / 2, copy));
                at + region % 2 * 128
            });
            add("mapped REGION", FIELDS_REGION, &at, Seal::Record(region), true);
            let (entries, _) = layout.place(Area::Entries(region / 2));
            let entry = entries + region % 2 * 64 + Self::page_of_entry(region) % REGION * 8;
            add("mapped ENTRY", FIELDS_ENTRY, &[entry], Seal::Meta(region), true);
        }
        // The repair's event has the first number, and numbers start at one.
        let place = holdfast_mapped::format::EVENTS_FROM + EVENT_LEN as u64;
        let seal = Seal::Event(place);
        add("redundancy EVENT", FIELDS_EVENT, &[place, SIDE + place], seal, false);
        for (name, area) in [("parity", Area::Parity(2)), ("records", Area::Records(0))] {
            let (at, len) = layout.place(area);
            let len = len.min(64);
            let seal = Seal::None;
            spots.push(Spot { name: name.to_owned(), copies: vec![at], len, seal, doubt: false });
        }
        spots
    }

    /// The machine with a field of it overwritten in the copies of `which`, and its sum computed
    /// again if it is to verify.
    #[must_use]
    pub fn with(&self, spot: &Spot, new: &[u8], which: &[u64], sealed: bool) -> Machine {
        let mut bytes = self.bytes.clone();
        self.damage(&mut bytes, spot, new, which, sealed);
        self.holding(bytes)
    }

    /// Overwrites a field in the copies of `which`, and computes its sum again if it is to verify.
    pub fn damage(&self, bytes: &mut [u8], spot: &Spot, new: &[u8], which: &[u64], sealed: bool) {
        let seed = crc(0, b"side of the test");
        for at in which {
            let place = Self::place(*at);
            bytes[place..place + new.len()].copy_from_slice(new);
            if sealed {
                reseal(bytes, spot, *at, seed, self.setting.parity);
            }
        }
    }

    /// A machine like this one that holds other bytes.
    #[must_use]
    pub fn holding(&self, bytes: Vec<u8>) -> Machine {
        Machine::holding(bytes, &self.setting, PAGES * PAGE, None, off())
    }
}

/// Computes what certifies a field again.
fn reseal(bytes: &mut [u8], spot: &Spot, at: u64, seed: u32, parity: u32) {
    let second = if at >= SIDE { SIDE } else { 0 };
    let put = |bytes: &mut [u8], at: usize, sum: u32| {
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    };
    match spot.seal {
        Seal::None => {}
        Seal::Page(place, seeded) => {
            let start = Specimen::place(second + place);
            let sum = crc(if seeded { seed } else { 0 }, &place.to_le_bytes());
            let sum = crc(sum, &bytes[start + 4..start + PAGE as usize]);
            put(bytes, start, sum);
        }
        Seal::Event(place) => {
            let start = Specimen::place(second + place);
            let inside = place - holdfast_mapped::format::EVENTS_FROM;
            let sum = crc(crc(seed, &inside.to_le_bytes()), &bytes[start + 4..start + EVENT_LEN]);
            put(bytes, start, sum);
        }
        Seal::Record(region) | Seal::Meta(region) => {
            let layout = Layout { parity: parity.into(), pages: PAGES };
            for copy in [0, 1] {
                let (states, _) = layout.place(Area::States(region / 2, copy));
                let start = Specimen::place(states + region % 2 * 128);
                let seeded = crc(seed, &region.to_le_bytes());
                if matches!(spot.seal, Seal::Meta(_)) {
                    let (entries, _) = layout.place(Area::Entries(region / 2));
                    let from = Specimen::place(entries + region % 2 * 64);
                    let meta = crc(seeded, &bytes[from..from + 64]);
                    put(bytes, start + 16, meta);
                }
                let sum = crc(seeded, &bytes[start + 4..start + 64]);
                put(bytes, start, sum);
            }
        }
    }
}
