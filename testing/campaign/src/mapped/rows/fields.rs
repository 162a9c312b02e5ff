//! Row `fields`: every field of every structure of the side file, damaged in eight ways, met in
//! five.
//!
//! With the sum left as it is, one copy is hit: the file opens, nothing is called corrupt, nothing
//! changes in the data file, after a scrub or repairs all is sound and covered but for what only
//! accepting ends, and then all is as good as new. With the sum computed again,
//! in all copies, it is hostile: no panic, no hang, an open that refuses says why, and whatever the
//! side file says, no byte of the data file changes, for none is damaged. Of what a file has more
//! than one of, the CI tier damages one in each setting, another with every seed.

mod wrong;

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_layout::Field;
use holdfast_layout::format::FIELDS_MIRRORED;
use holdfast_mapped::format::{FIELDS_ENTRY, FIELDS_HEADER, FIELDS_REGION};
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, Writing};
use holdfast_redundancy::events::Event;
use holdfast_redundancy::format::{FIELDS_EVENT, FIELDS_INTENT};
use holdfast_redundancy::{PageVerdict, Wrong};
use holdfast_workloads::Rng;

use crate::mapped::judge::{gives_back, name, refused};
use crate::mapped::ledger::Ledger;
use crate::mapped::machine::{Engine, Machine, Setting};
use crate::mapped::specimen::{PAGES, Seal, Specimen, Spot};
use crate::mapped::told::{change_as_told, leave_as_told, said_as_told};
use crate::object::fields::each::{Meeting, all_noted, note, within};
use crate::object::fields::verbs::Verb;
use crate::object::wrong::{Lie, told as is_told};
use crate::runner::{Case, Row, Tier};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fields",
    story: "every field of the side file damaged in eight ways, sum left or computed, met in five",
    cases: |tier| wrong::WRONG.len() as u64 + if matches!(tier, Tier::Ci) { 4 } else { 320 },
    run: wrong::run,
    finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Longest time one run may take: the same without damage takes milliseconds.
const SLOW: Duration = Duration::from_secs(10);
/// One of so many places damaged, of those with this in their names.
fn story(case: &Case, each: usize, bed: &str) -> Tally {
    let mut tally = Tally::default();
    let mut rng = case.rng(1);
    // The CI tier has one or two parity pages of each kind, by the seed.
    let parity = case.number.wrapping_add(case.seed) % 2 * 4;
    let setting = match case.tier {
        Tier::Ci => Setting::numbered(case.number % 4 + parity),
        Tier::Long => Setting::numbered(case.number % 8),
    };
    let cut_off = (case.number + case.number / 8) % 2 == 1;
    let mut ledger = Ledger::default();
    let specimen = Specimen::of(setting, cut_off, &mut rng);
    if let Some(specimen) = tally.judge(specimen.map_err(|v| v.during("the specimen"))) {
        each_field((&specimen, each, bed), case, &mut rng, &mut ledger, &mut tally);
    }
    for violation in &mut tally.violations {
        violation.story = format!("{setting:?}, cut off {cut_off}: {}", violation.story);
    }
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally
}

fn each_field(
    (specimen, each, bed): (&Specimen, usize, &str),
    case: &Case,
    rng: &mut Rng,
    ledger: &mut Ledger,
    tally: &mut Tally,
) {
    let spots = specimen.spots();
    let turn = case.seed.wrapping_add(case.number);
    let all = chosen(&spots, case.tier, turn).into_iter();
    for number in all.filter(|number| spots[*number].name.contains(bed)).step_by(each) {
        let (spot, neighbour) = (&spots[number], &spots[(number + 1) % spots.len()]);
        for verb in Verb::ALL {
            for sealed in [false, true] {
                for meeting in Meeting::ALL {
                    let hit = Hit { specimen, spot, neighbour, verb, sealed, meeting };
                    let done = hit.play(rng, ledger);
                    let what = if sealed { "sealed" } else { "unsealed" };
                    let place = format!("{}, {verb:?}, {what}, met by {meeting:?}", spot.name);
                    tally.judge(done.map_err(|v| v.during(place)));
                }
            }
        }
        note(tally, &spot.name);
    }
}

/// Which spots are damaged: all, or of each field the one whose turn it is.
pub fn chosen(spots: &[Spot], tier: Tier, turn: u64) -> Vec<usize> {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, spot) in spots.iter().enumerate() {
        by_name.entry(&spot.name).or_default().push(number);
    }
    let of_one = |all: Vec<usize>| match tier {
        Tier::Ci => vec![all[(turn % all.len() as u64) as usize]],
        Tier::Long => all,
    };
    by_name.into_values().flat_map(of_one).collect()
}

/// One run.
struct Hit<'a> {
    specimen: &'a Specimen,
    spot: &'a Spot,
    neighbour: &'a Spot,
    verb: Verb,
    sealed: bool,
    meeting: Meeting,
}

impl Hit<'_> {
    fn field(&self, spot: &Spot) -> &[u8] {
        let place = Specimen::place(spot.copies[0]);
        &self.specimen.bytes[place..place + spot.len as usize]
    }

    fn play(&self, rng: &mut Rng, ledger: &mut Ledger) -> Judged<()> {
        let own = self.field(self.spot);
        let new = self.verb.apply(own, self.field(self.neighbour), rng);
        if new == own {
            return Ok(());
        }
        ledger.faults += 1;
        let one = [self.spot.copies[rng.below(self.spot.copies.len() as u64) as usize]];
        let which = if self.sealed { &self.spot.copies[..] } else { &one[..] };
        let machine = self.specimen.with(self.spot, &new, which, self.sealed);
        let before = machine.all();
        within(SLOW, || self.meet(&machine, ledger))??;
        change_as_told(Lie::Reverts, &machine);
        let changed = (0..).zip(before.iter().zip(machine.all())).find(|(_, (a, b))| **a != *b);
        if let Some((page, _)) = changed {
            ledger.reverted += 1;
            return Err(Violation::new(Fault::Reverted, format!("{} was changed", name(page))));
        }
        Ok(())
    }

    fn meet(&self, machine: &Machine, ledger: &mut Ledger) -> Judged<()> {
        let mut options = self.specimen.setting.open(1);
        if self.meeting == Meeting::Use {
            // As programs do: the header says so before anybody looks whether it is whole.
            options.durability = Durability::Process;
        }
        let looking = OpenOptions { read_only: self.meeting == Meeting::Check, ..options };
        let engine = match machine.open(looking) {
            Ok((engine, _)) => engine,
            Err(_) if self.sealed => return Ok(()),
            Err(error) => return Err(refused("open", &error)),
        };
        self.told_of_its_copy(&engine)?;
        self.look(&engine, ledger)?;
        let failed =
            |what: &'static str| move |error: holdfast_mapped::Error| refused(what, &error);
        let used = match self.meeting {
            Meeting::Check => return Ok(()),
            Meeting::Scrub => engine.scrub(Some(&AtRest)).map(|_| ()).map_err(failed("scrub")),
            Meeting::Repair => self.repair(&engine),
            Meeting::Use => engine
                .admit(0, u64::MAX, Writing::NotYet)
                .and_then(|()| engine.update_now())
                .map(|_| ())
                .map_err(failed("use")),
            Meeting::Open => Ok(()),
        };
        if let Err(error) = used {
            return if self.sealed { Ok(()) } else { Err(error) };
        }
        self.look(&engine, ledger)?;
        if self.sealed {
            let _ = engine.scrub(Some(&AtRest));
            let _ = engine.close();
            return Ok(());
        }
        if matches!(self.meeting, Meeting::Scrub | Meeting::Repair) {
            self.is_sound(machine, &engine)?;
        }
        let done = engine.accept(0, u64::MAX).and_then(|_| engine.scrub(Some(&AtRest)));
        done.map_err(|error| refused("accept and scrub", &error))?;
        let report = engine.verify_all().map_err(|error| refused("verify", &error))?;
        if !report.is_clean() {
            return Err(Violation::new(Fault::Exposed, format!("after a scrub: {report:?}")));
        }
        let before = machine.all();
        gives_back(machine, &engine, 3)?;
        engine.close().map_err(|error| refused("close", &error))?;
        change_as_told(Lie::StaysBad, machine);
        let same = before == machine.all();
        let story = "what was damaged on purpose did not come back";
        if same { Ok(()) } else { Err(Violation::new(Fault::Exposed, story)) }
    }

    /// What a scrub or repairs leave is sound and covered before anything is accepted: accepting
    /// ends every doubt, and makes sums anew, also where they should have. Left in doubt may be
    /// what nothing else ends: see [`may_stay`](Self::may_stay).
    fn is_sound(&self, machine: &Machine, engine: &Engine) -> Judged<()> {
        let mut report = engine.verify_all().map_err(|error| refused("verify", &error))?;
        leave_as_told(&mut report);
        let covered = engine.coverage().map_err(|error| refused("coverage", &error))?;
        let stripes =
            (0..PAGES / 4).filter(|stripe| (0..4).all(|at| !self.may_stay(stripe * 4 + at)));
        let sound = stripes.count() as u64;
        let rest = PAGES - sound * 4;
        let bad = report.corrupt.iter().chain(report.undecided.iter().map(|(page, _)| page));
        let bad: Vec<u64> = bad.copied().filter(|page| !self.may_stay(*page)).collect();
        let short =
            [report.uncovered, covered.without_sum, covered.without_parity, covered.undecided];
        if !bad.is_empty() || short.iter().any(|pages| *pages > rest) {
            let story = format!("before anything is accepted: {report:?}, {covered:?}");
            return Err(Violation::new(Fault::Exposed, story));
        }
        // A repair of a page that is good does not look at its parity.
        if self.meeting == Meeting::Scrub {
            let back = gives_back(machine, engine, 2)?;
            if back < sound {
                let story = format!("of {sound} sound stripes {back} give a page back");
                return Err(Violation::new(Fault::Exposed, story));
            }
        }
        Ok(())
    }

    /// Whether a page may stay in doubt until it is accepted: that whose repair was cut off with
    /// the machine, since a program may have stored there unseen; and that whose own sum is what
    /// was damaged, since there is one of it.
    fn may_stay(&self, page: u64) -> bool {
        let own = match self.spot.seal {
            Seal::Meta(region) => Some(Specimen::page_of_entry(region)),
            Seal::None | Seal::Page(..) | Seal::Record(_) | Seal::Event(_) => None,
        };
        own == Some(page) || (self.specimen.cut_off && page == 5)
    }

    /// A copy of the header that was damaged was made anew, and an event tells it, once.
    fn told_of_its_copy(&self, engine: &Engine) -> Judged<()> {
        let due = self.spot.name.contains("mapped HEADER");
        if !due || self.sealed || self.meeting == Meeting::Check {
            return Ok(());
        }
        let of_copy = |event: &Event| matches!(event.wrong, Some(Wrong::Mirror { .. }));
        let told = engine.events().into_iter().filter(of_copy).count();
        match if is_told(Lie::Silent) { 0 } else { told } {
            1 => Ok(()),
            told => Err(Violation::new(Fault::Unnoticed, format!("a copy is told {told} times"))),
        }
    }

    /// Nothing but the page whose repair was cut off has anything to be repaired.
    fn repair(&self, engine: &Engine) -> Judged<()> {
        for page in 0..PAGES {
            let mended = engine.repair(page, &AtRest, Force::No);
            let mended = mended.map_err(|error| refused("repair", &error))?;
            let rotten = self.specimen.cut_off && page == 5;
            let sound = matches!(mended, Mended::Good | Mended::Undecided(_));
            if !sound && !rotten && !self.sealed {
                let story = format!("{} is sound, and its repair came to {mended:?}", name(page));
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        Ok(())
    }

    fn look(&self, engine: &Engine, ledger: &mut Ledger) -> Judged<()> {
        for page in 0..PAGES {
            let said = match engine.verify(page) {
                Ok(said) => said.verdict,
                Err(_) if self.sealed => continue,
                Err(error) => return Err(refused("verify", &error)),
            };
            let said = said_as_told(page, said);
            // The page whose repair was cut off is damaged still.
            let rotten = self.specimen.cut_off && page == 5;
            match said {
                PageVerdict::Corrupt if !rotten && !self.sealed => {
                    ledger.false_reports += 1;
                    let story = format!("{} is sound, and called corrupt", name(page));
                    return Err(Violation::new(Fault::FalseReport, story));
                }
                PageVerdict::Good if rotten && !self.sealed => {
                    ledger.missed += 1;
                    let story = format!("{} is damaged, and called good", name(page));
                    return Err(Violation::new(Fault::Wrong, story));
                }
                PageVerdict::Undecided(why) => {
                    ledger.undecided += 1;
                    let doubt = self.spot.doubt || self.sealed || rotten;
                    if !doubt {
                        let story = format!("{} is in doubt for no reason: {why}", name(page));
                        return Err(Violation::new(Fault::Wrong, story));
                    }
                }
                PageVerdict::Good | PageVerdict::Corrupt => {}
            }
        }
        Ok(())
    }
}

/// Every field that the formats define was damaged.
fn finish(tally: &mut Tally) {
    all_noted(tally, asked_for());
    Ledger::finish(tally);
}

/// Everything that must be damaged: each field of each structure, and what has none.
fn asked_for() -> impl Iterator<Item = String> {
    let of = |(structure, fields): (String, &'static [Field])| {
        fields.iter().map(move |field| format!("{structure} {}", field.name))
    };
    structures().into_iter().flat_map(of).chain(["parity", "records"].map(str::to_owned))
}

/// Every structure of a side file, those it has in common with pools with it.
fn structures() -> Vec<(String, &'static [Field])> {
    let own = [
        ("mapped HEADER", FIELDS_HEADER),
        ("mapped REGION", FIELDS_REGION),
        ("mapped ENTRY", FIELDS_ENTRY),
        ("redundancy INTENT", FIELDS_INTENT),
        ("redundancy EVENT", FIELDS_EVENT),
    ];
    let mut all = own.map(|(name, fields)| (name.to_owned(), fields)).to_vec();
    for body in ["mapped HEADER", "redundancy INTENT"] {
        all.push((format!("layout MIRRORED of {body}"), FIELDS_MIRRORED));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_no_case_damaged_is_a_violation() {
        let mut tally = Tally::default();
        let names: Vec<String> = asked_for().collect();
        for name in &names[1..] {
            note(&mut tally, name);
        }
        finish(&mut tally);
        assert_eq!(tally.violated(), 1);
        assert!(tally.violations[0].story.contains(&names[0]));
    }

    #[test]
    fn every_structure_of_the_page_of_the_side_file_is_asked_for() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/side.md");
        let page = std::fs::read_to_string(page).expect("the page of the side file");
        let named = page.lines().filter_map(|line| line.strip_prefix("<!-- format: "));
        let named: Vec<&str> = named.filter_map(|line| line.strip_suffix(" -->")).collect();
        assert!(named.len() >= 3, "{named:?}");
        let asked = structures();
        for structure in named {
            assert!(asked.iter().any(|(name, _)| name == structure), "{structure}");
        }
    }
}
