//! Row `pointers`: every field of what leads to a redundancy in a pool, damaged in eight ways, met
//! in five: of the pointer beside the file, and of what the pool keeps of its region.
//!
//! With the sums left as they are, one copy of the pointer is hit, or one place of the pool: the
//! file is as good as ever, and whoever opens it to repair or use it leaves both copies whole, and
//! tells it. Computed again, it is hostile: no panic, no hang, and no byte of the data changes but
//! what was stored. Whatever is said of one file, another one in that pool is as sound as before.

pub mod kept;
mod wrong;

use std::time::Duration;

use holdfast::protect::{
    Durability, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, Verified,
};
use holdfast::{Cause, Event, Outcome, Pool, Wrong};
use holdfast_layout::Field;
use holdfast_layout::format::FIELDS_MIRRORED;
use holdfast_workloads::Rng;

use self::kept::{Kept, STORED, STORED_AT};
use crate::mapped::judge::refused;
use crate::mapped::ledger::Ledger;
use crate::object::fields::each::{Meeting, all_noted, note, within};
use crate::object::fields::verbs::Verb;
use crate::object::wrong::{Lie, told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "pointers",
    story: "every field of pointers into pools and of regions damaged in eight ways, met in five",
    cases: |tier| {
        let rounds = if matches!(tier, Tier::Ci) { 1 } else { 8 };
        wrong::WRONG.len() as u64 + spots().len() as u64 * rounds
    },
    run: wrong::run,
    finish,
    patience: Duration::from_secs(1_800),
    threads: 2,
};

/// Longest time one run may take: it finds what never ends. Without damage it takes milliseconds,
/// but a disk may keep one for long.
const SLOW: Duration = Duration::from_secs(300);
/// Bytes of a path that count as its field.
const OF_PATH: u64 = 16;

/// The body of a pointer, as `docs/formats/pointer.md` has it; the path follows.
const POINTER: [Field; 6] = [
    Field::new("magic", 0, 8),
    Field::new("version", 8, 4),
    Field::new("path_len", 12, 4),
    Field::new("pool", 16, 16),
    Field::new("region", 32, 16),
    Field::new("path", 48, OF_PATH),
];
/// What a pool keeps of a region, as the same page has it; the path follows.
const EXTENT: [Field; 7] = [
    Field::new("len", 0, 8),
    Field::new("stage", 8, 4),
    Field::new("path_len", 12, 4),
    Field::new("device", 16, 8),
    Field::new("inode", 24, 8),
    Field::new("replaces", 32, 16),
    Field::new("path", 48, OF_PATH),
];

/// What a field belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The page that the pointer is the body of.
    Page,
    Pointer,
    Extent,
}

/// A field, and what it belongs to.
type Spot = (Part, Field);

/// All of them.
fn spots() -> Vec<Spot> {
    let of = |part: Part, fields: &[Field]| -> Vec<Spot> {
        fields.iter().map(|field| (part, *field)).collect()
    };
    [of(Part::Page, FIELDS_MIRRORED), of(Part::Pointer, &POINTER), of(Part::Extent, &EXTENT)]
        .concat()
}

fn name((part, field): &Spot) -> String {
    let structure = match part {
        Part::Page => "layout MIRRORED of facade POINTER",
        Part::Pointer => "facade POINTER",
        Part::Extent => "facade EXTENT",
    };
    format!("{structure} {}", field.name)
}

/// One field damaged in all ways, or with `brief` in one of them.
fn story(case: &Case, brief: bool) -> Tally {
    let mut tally = Tally::default();
    let mut rng = case.rng(1);
    let mut ledger = Ledger::default();
    let spots = spots();
    let spot = spots[(case.number % spots.len() as u64) as usize];
    let made = Kept::new(&mut rng).map_err(|violation| violation.during("two files in a pool"));
    if let Some(kept) = tally.judge(made) {
        // The CI tier takes two ways of eight, by the seed.
        let turn = case.seed.wrapping_add(case.number) % 4;
        for (way, verb) in (0..).zip(Verb::ALL) {
            let due = if brief { way == 4 } else { case.tier == Tier::Long || way % 4 == turn };
            let seals: &[bool] = if brief { &[false] } else { &[false, true] };
            for (sealed, meeting) in seals.iter().flat_map(|s| Meeting::ALL.map(|m| (*s, m))) {
                if due {
                    let hit = Hit { kept: &kept, spot, verb, sealed, meeting };
                    tally.judge(hit.play(&mut rng, &mut ledger).map_err(|v| v.during(hit.told())));
                }
            }
        }
        if ledger.faults > 0 {
            note(&mut tally, name(&spot));
        }
    }
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally
}

/// One run.
struct Hit<'a> {
    kept: &'a Kept,
    spot: Spot,
    verb: Verb,
    /// Whether the damage is made to verify, in both copies.
    sealed: bool,
    meeting: Meeting,
}

impl Hit<'_> {
    fn told(&self) -> String {
        let what = if self.sealed { "sealed" } else { "unsealed" };
        format!("{}, {:?}, {what}, met by {:?}", name(&self.spot), self.verb, self.meeting)
    }

    fn play(&self, rng: &mut Rng, ledger: &mut Ledger) -> Judged<()> {
        self.kept.restore()?;
        // What verifies all the same hits nothing.
        if !self.damage(rng)? {
            return Ok(());
        }
        ledger.faults += 1;
        if self.meeting == Meeting::Repair {
            self.kept.rot()?;
            ledger.covered += 1;
        }
        let before = self.kept.bytes()?;
        let answer = within(SLOW, || self.meet())?;
        self.kept.change_as_told()?;
        self.judge_data(&answer, ledger)?;
        if !self.sealed {
            self.judge_unharmed(&answer, ledger)?;
        }
        if self.meeting == Meeting::Check && self.kept.bytes()? != before {
            return Err(Violation::new(Fault::Wrong, "a look changed the pointer or the pool"));
        }
        self.judge_beside()
    }

    /// Whether anything is another now.
    fn damage(&self, rng: &mut Rng) -> Judged<bool> {
        let (part, field) = &self.spot;
        let verb = |own: &[u8], next: &[u8], rng: &mut Rng| self.verb.apply(own, next, rng);
        match (part, self.sealed) {
            (Part::Page, _) => {
                self.kept.damage_pointer(field.at, field.len, self.sealed, rng, verb)
            }
            (Part::Pointer, _) => {
                let at = kept::HEAD as u64 + field.at;
                self.kept.damage_pointer(at, field.len, self.sealed, rng, verb)
            }
            (Part::Extent, true) => self.kept.put_extent(field, rng, verb),
            (Part::Extent, false) => self.kept.rot_extent(field, rng, verb),
        }
    }

    /// Meets it. What comes of it, if that is no error.
    fn meet(&self) -> holdfast::Result<()> {
        assert!(!told(Lie::Panics), "an opening that panics, as somebody wanted");
        let (data, options) = (&self.kept.data, ProtectOptions::new());
        match self.meeting {
            Meeting::Open => ProtectedFile::open(data, &options)?.close(),
            Meeting::Check => ProtectedFile::look(data, &options)?.verify(|_, _| true).map(drop),
            Meeting::Scrub | Meeting::Repair => {
                let file = ProtectedFile::open(data, &options)?;
                file.repair(false, |_, _| true)?;
                file.close()
            }
            Meeting::Use => {
                let options = options.durability(Durability::Power).scrub_regions(0);
                let options = options.tracking(Tracking::Notified);
                let options = options.period(Duration::from_secs(3_600));
                let file = ProtectedMap::open(data, &options)?;
                file.write(STORED_AT, STORED)?;
                file.update_now()?;
                file.close()
            }
        }
    }

    /// Nothing but what was stored, or given back, has changed in the data.
    fn judge_data(&self, answer: &holdfast::Result<()>, ledger: &mut Ledger) -> Judged<()> {
        let (now, whole) = (self.kept.data()?, self.kept.content());
        let fine = match self.meeting {
            Meeting::Use => now == self.kept.stored() || now == whole && answer.is_err(),
            Meeting::Repair if now == whole => {
                ledger.repaired += 1;
                true
            }
            Meeting::Repair => (self.sealed || !self.kept.dated) && now == self.kept.rotten(),
            _ => now == whole,
        };
        if fine {
            return Ok(());
        }
        ledger.reverted += 1;
        Err(Violation::new(Fault::Reverted, format!("the data file changed; answered {answer:?}")))
    }

    /// One copy was hit, or one place of the pool: all is as good as ever.
    fn judge_unharmed(&self, answer: &holdfast::Result<()>, ledger: &mut Ledger) -> Judged<()> {
        if let Err(error) = answer {
            return Err(refused("what needs one good copy", error));
        }
        let (seen, events) = looked_at(&self.kept.data)?;
        if !seen.corrupt.is_empty() {
            ledger.false_reports += 1;
            return Err(Violation::new(
                Fault::FalseReport,
                format!("nothing is corrupt: {seen:?}"),
            ));
        }
        let in_doubt = self.meeting == Meeting::Repair && !self.kept.dated;
        if !seen.is_clean() && !in_doubt {
            return Err(Violation::new(Fault::Wrong, format!("all is good: {seen:?}")));
        }
        if self.meeting == Meeting::Check || self.spot.0 == Part::Extent {
            return Ok(());
        }
        self.kept.pointer_is_whole()?;
        let of_copy = |event: &&Event| {
            let of_mirror = matches!(event.wrong, Some(Wrong::Mirror { .. }));
            of_mirror && event.cause == Cause::Copies && event.outcome == Outcome::Repaired
        };
        match events.iter().filter(of_copy).count() {
            1 => Ok(()),
            told => Err(Violation::new(Fault::Unnoticed, format!("told {told} times: {events:?}"))),
        }
    }

    /// The other file is kept as before, and the pool is sound.
    fn judge_beside(&self) -> Judged<()> {
        let (seen, _) = looked_at(&self.kept.other)?;
        let same = self.kept.other_is_same()?;
        if !seen.is_clean() || !same {
            let story = format!("the file beside it, the same {same}: {seen:?}");
            return Err(Violation::new(Fault::Wrong, story));
        }
        let pool = Pool::open(&self.kept.pool).map_err(|error| refused("the pool", &error))?;
        let report = pool.check(|_, _| {}).map_err(|error| refused("a check", &error))?;
        // Who looks leaves what is rotten in the pool as it is.
        let rotten = self.spot.0 == Part::Extent && !self.sealed && self.meeting == Meeting::Check;
        if !report.is_clean() && !rotten {
            return Err(Violation::new(Fault::Wrong, format!("the pool: {report:?}")));
        }
        Ok(())
    }
}

/// What a look finds, and the events of the file.
fn looked_at(data: &std::path::Path) -> Judged<(Verified, Vec<Event>)> {
    let file = ProtectedFile::look(data, &ProtectOptions::new());
    let file = file.map_err(|error| refused("a look", &error))?;
    let seen = file.verify(|_, _| true).map_err(|error| refused("a look at all", &error))?;
    Ok((wrong::seen_as_told(seen), wrong::events_as_told(file.events())))
}

/// Every field of the page was damaged.
fn finish(tally: &mut Tally) {
    all_noted(tally, spots().iter().map(name));
    Ledger::finish(tally);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a structure, as the page about it has them.
    fn of_the_page(structure: &str) -> Vec<(String, u64, u64)> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/pointer.md");
        let page = std::fs::read_to_string(page).expect("the page of the pointer");
        let mark = format!("<!-- format: facade {structure} -->");
        let (_, table) = page.split_once(&mark).expect("the structure");
        let rows = table.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let number = |cell: &str| cell.parse().expect("a number");
            (cells[3].trim_matches('`').to_owned(), number(cells[1]), number(cells[2]))
        })
        .collect()
    }

    #[test]
    fn the_fields_are_those_of_the_page() {
        for (structure, fields) in [("POINTER", &POINTER[..]), ("EXTENT", &EXTENT[..])] {
            let own = fields.iter().filter(|field| field.name != "path");
            let own: Vec<_> = own.map(|f| (f.name.to_owned(), f.at, f.len)).collect();
            assert_eq!(own, of_the_page(structure));
        }
    }

    #[test]
    fn a_field_that_no_case_damaged_is_a_violation() {
        let mut tally = Tally::default();
        let names: Vec<String> = spots().iter().map(name).collect();
        names[1..].iter().for_each(|name| note(&mut tally, name));
        finish(&mut tally);
        assert_eq!(tally.violated(), 1);
        assert!(tally.violations[0].story.contains(&names[0]));
    }
}
