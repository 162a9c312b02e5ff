//! Row `fields`: every field of every structure of the side file, damaged in eight ways.
//!
//! With the sum left as it is, one copy is hit: the file opens, nothing is called corrupt, nothing
//! changes in the data file, and after a scrub all is as good as new. With the sum computed again,
//! in all copies, it is hostile: no panic, no hang, an open that refuses says why, and whatever the
//! side file says, no byte of the data file changes, for none is damaged.

mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use holdfast_mapped::{AtRest, OpenOptions, Writing};
use holdfast_redundancy::PageVerdict;
use holdfast_workloads::Rng;

use crate::mapped::judge::{gives_back, name, refused};
use crate::mapped::ledger::Ledger;
use crate::mapped::machine::{Engine, Machine, Setting};
use crate::mapped::specimen::{PAGES, Specimen, Spot};
use crate::object::fields::verbs::Verb;
use crate::object::wrong::Lie;
use crate::runner::{Case, Row, Tier, panic_text};
use crate::tally::{Fault, Judged, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "fields",
    story: "every field of the side file damaged in eight ways, its sum left or computed again",
    cases: |tier| wrong::WRONG.len() as u64 + if matches!(tier, Tier::Ci) { 8 } else { 320 },
    run: wrong::run,
    finish,
    patience: Duration::from_secs(300),
    threads: 2,
};

/// Longest time one run may take: the same without damage takes milliseconds.
const SLOW: Duration = Duration::from_secs(10);
/// Figures that only count which fields were damaged.
const DAMAGED: &str = "damaged ";

/// How the damage is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Look,
    Scrub,
    Use,
    Close,
}

const MEETINGS: [Meeting; 4] = [Meeting::Look, Meeting::Scrub, Meeting::Use, Meeting::Close];

/// One of so many places damaged.
fn story(case: &Case, each: usize) -> Tally {
    let mut tally = Tally::default();
    let mut rng = case.rng(1);
    let setting = Setting::numbered(case.number % 8);
    let cut_off = (case.number + case.number / 8) % 2 == 1;
    let mut ledger = Ledger::default();
    let specimen = Specimen::of(setting, cut_off, &mut rng);
    if let Some(specimen) = tally.judge(specimen.map_err(|v| v.during("the specimen"))) {
        each_field((&specimen, each), &mut rng, &mut ledger, &mut tally);
    }
    for violation in &mut tally.violations {
        violation.story = format!("{setting:?}, cut off {cut_off}: {}", violation.story);
    }
    tally.count = ledger.faults;
    ledger.note(&mut tally);
    tally
}

fn each_field(
    (specimen, each): (&Specimen, usize),
    rng: &mut Rng,
    ledger: &mut Ledger,
    tally: &mut Tally,
) {
    let spots = specimen.spots();
    for (number, spot) in spots.iter().enumerate().step_by(each) {
        let neighbour = &spots[(number + 1) % spots.len()];
        for verb in Verb::ALL {
            for sealed in [false, true] {
                let meeting = MEETINGS[rng.below(4) as usize];
                let hit = Hit { specimen, spot, neighbour, verb, sealed, meeting };
                let done = hit.play(rng, ledger);
                let what = if sealed { "sealed" } else { "unsealed" };
                let place = format!("{}, {verb:?}, {what}, met by {meeting:?}", spot.name);
                tally.judge(done.map_err(|v| v.during(place)));
            }
        }
        tally.add(format!("{DAMAGED}{}", spot.name), 1);
    }
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
        let begun = Instant::now();
        let before = machine.all();
        let done = catch_unwind(AssertUnwindSafe(|| self.meet(&machine, ledger)));
        let done =
            done.unwrap_or_else(|panic| Err(Violation::new(Fault::Panicked, panic_text(&*panic))));
        if begun.elapsed() > SLOW {
            return Err(Violation::new(Fault::Hung, format!("it took {:?}", begun.elapsed())));
        }
        done?;
        wrong::change_as_told(Lie::Reverts, &machine);
        let changed = (0..).zip(before.iter().zip(machine.all())).find(|(_, (a, b))| **a != *b);
        if let Some((page, _)) = changed {
            ledger.reverted += 1;
            return Err(Violation::new(Fault::Reverted, format!("{} was changed", name(page))));
        }
        Ok(())
    }

    fn meet(&self, machine: &Machine, ledger: &mut Ledger) -> Judged<()> {
        let options = self.specimen.setting.open(1);
        let looking = OpenOptions { read_only: self.meeting == Meeting::Look, ..options };
        let engine = match machine.open(looking) {
            Ok((engine, _)) => engine,
            Err(_) if self.sealed => return Ok(()),
            Err(error) => return Err(refused("open", &error)),
        };
        self.look(&engine, ledger)?;
        let failed =
            |what: &'static str| move |error: holdfast_mapped::Error| refused(what, &error);
        let used = match self.meeting {
            Meeting::Look => return Ok(()),
            Meeting::Scrub => engine.scrub(Some(&AtRest)).map(|_| ()).map_err(failed("scrub")),
            Meeting::Use => engine
                .admit(0, u64::MAX, Writing::NotYet)
                .and_then(|()| engine.update_now())
                .map(|_| ())
                .map_err(failed("use")),
            Meeting::Close => Ok(()),
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
        let done = engine.accept(0, u64::MAX).and_then(|_| engine.scrub(Some(&AtRest)));
        done.map_err(|error| refused("accept and scrub", &error))?;
        let report = engine.verify_all().map_err(|error| refused("verify", &error))?;
        if !report.is_clean() {
            return Err(Violation::new(Fault::Exposed, format!("after a scrub: {report:?}")));
        }
        let before = machine.all();
        gives_back(machine, &engine, 3)?;
        engine.close().map_err(|error| refused("close", &error))?;
        wrong::change_as_told(Lie::StaysBad, machine);
        let same = before == machine.all();
        let story = "what was damaged on purpose did not come back";
        if same { Ok(()) } else { Err(Violation::new(Fault::Exposed, story)) }
    }

    fn look(&self, engine: &Engine, ledger: &mut Ledger) -> Judged<()> {
        for page in 0..PAGES {
            let said = match engine.verify(page) {
                Ok(said) => said.verdict,
                Err(_) if self.sealed => continue,
                Err(error) => return Err(refused("verify", &error)),
            };
            let said = wrong::said_as_told(page, said);
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
    let mut damaged = BTreeSet::new();
    let figures = std::mem::take(&mut tally.figures);
    for (figure, by) in figures {
        match figure.strip_prefix(DAMAGED) {
            Some(field) => drop(damaged.insert(field.to_owned())),
            None => tally.add(figure, by),
        }
    }
    let mut wanted: BTreeMap<&str, &[holdfast_layout::Field]> = BTreeMap::new();
    wanted.insert("mapped HEADER", holdfast_mapped::format::FIELDS_HEADER);
    wanted.insert("mapped REGION", holdfast_mapped::format::FIELDS_REGION);
    wanted.insert("mapped ENTRY", holdfast_mapped::format::FIELDS_ENTRY);
    for (structure, fields) in wanted {
        for field in fields {
            let field = format!("{structure} {}", field.name);
            if !damaged.contains(&field) {
                let story = format!("{field} was never damaged");
                tally.convict(Violation::new(Fault::Unnoticed, story));
            }
        }
    }
    Ledger::finish(tally);
    tally.lines.push(format!("fields damaged: {}", damaged.len()));
}
