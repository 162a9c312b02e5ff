//! Side files whose fields were damaged, with a data file that was not.

use std::sync::OnceLock;

use holdfast_campaign::mapped::machine::{Machine, Setting};
use holdfast_campaign::mapped::specimen::{PAGES, Specimen, Spot};
use holdfast_campaign::object::fields::verbs::Verb;
use holdfast_faultmem::Clear;
use holdfast_mapped::{AtRest, Force, Mended, OpenOptions, Report, Writing};
use holdfast_pmem::PAGE;
use holdfast_redundancy::PageVerdict;
use holdfast_workloads::Rng;

use crate::bed::{SEALED, STEPS};
use crate::lie::lie;
use crate::script::{Script, Step};

/// Settings, each closed and cut off in a repair.
pub(super) const BEDS: u8 = 16;
/// Ways in which a step damages.
pub(super) const VERBS: u8 = 10;
/// All copies are hit.
const EACH: u8 = 2;
/// Bytes of one area overwritten at most.
const RUN: u64 = 200;

struct Bed {
    specimen: Specimen,
    spots: Vec<Spot>,
}

fn bed(number: u8) -> &'static Bed {
    static ALL: [OnceLock<Bed>; BEDS as usize] = [const { OnceLock::new() }; BEDS as usize];
    let number = number % BEDS;
    ALL[usize::from(number)].get_or_init(|| {
        let setting = Setting::numbered(number.into());
        let specimen = Specimen::of(setting, number >= BEDS / 2, &mut Rng::new(number.into()));
        let specimen = specimen.unwrap_or_else(|v| panic!("side {number}: {}", v.story));
        let spots = specimen.spots();
        Bed { specimen, spots }
    })
}

/// Target `side`.
pub(super) fn run(input: &[u8]) {
    let script = Script::read(input);
    let bed = bed(script.head[0]);
    let mut bytes = bed.specimen.bytes.clone();
    let mut believed = false;
    for step in script.steps.iter().take(STEPS) {
        believed |= damage(bed, &mut bytes, step);
    }
    let machine = bed.specimen.holding(bytes);
    let before = machine.all();
    meet(bed, &machine, script.head[1], believed);
    // A repair that was cut off may be gone on with: its page is damaged.
    let rotten = |page: &usize| bed.specimen.cut_off && *page == 5;
    // A bit, a page, a page that cannot be read any more, the last one.
    if lie("bit", false, |_| true) {
        let _ = machine.medium.flip_bit(9 * PAGE + 7, 1);
    }
    if lie("page", false, |_| true) {
        let _ = machine.medium.stray(2 * PAGE, &[0; PAGE as usize]);
    }
    if lie("bad", false, |_| true) {
        let _ = machine.medium.poison(3 * PAGE, 1, Clear::Able);
    }
    if lie("last", false, |_| true) {
        let _ = machine.medium.flip_bit(PAGES * PAGE - 1, 7);
    }
    let after = lie("shorter", machine.all(), |mut all| {
        all.pop();
        all
    });
    assert_eq!(before.len(), after.len(), "the file has another length");
    let changed = (0..before.len()).find(|page| !rotten(page) && before[*page] != after[*page]);
    assert_eq!(changed, None, "a page that was not damaged was changed");
}

/// Does a step. Whether it may be believed.
fn damage(bed: &Bed, bytes: &mut [u8], step: &Step) -> bool {
    let spot = &bed.spots[usize::from(step.place) % bed.spots.len()];
    let mut rng = Rng::new(step.value);
    let verb = step.verb % VERBS;
    if verb == 9 {
        // Any bytes of the side file, but not its room: there is none behind it.
        let from = Specimen::place(0);
        let at = from + (step.value % (bytes.len() - from) as u64) as usize;
        let len = (rng.below(RUN) as usize + 1).min(bytes.len() - at);
        rng.fill(&mut bytes[at..at + len]);
        return false;
    }
    let place = Specimen::place(spot.copies[0]);
    let old = bytes[place..place + spot.len as usize].to_vec();
    let next = &bed.spots[(usize::from(step.place) + 1) % bed.spots.len()];
    let neighbour = Specimen::place(next.copies[0]);
    let neighbour = bytes[neighbour..neighbour + next.len as usize].to_vec();
    let new = if verb == 8 {
        let mut new = old.clone();
        let value = step.value.to_le_bytes();
        let len = new.len().min(8);
        new[..len].copy_from_slice(&value[..len]);
        new
    } else {
        Verb::ALL[usize::from(verb)].apply(&old, &neighbour, &mut rng)
    };
    let sealed = step.has(SEALED);
    let one = [spot.copies[rng.below(spot.copies.len() as u64) as usize]];
    let which = if sealed || step.has(EACH) { &spot.copies[..] } else { &one[..] };
    bed.specimen.damage(bytes, spot, &new, which, sealed);
    sealed
}

/// Opens it and uses it. An error is an answer; that it can be told is all there is to ask.
fn meet(bed: &Bed, machine: &Machine, how: u8, believed: bool) {
    let options = bed.specimen.setting.open(1);
    let options = OpenOptions { read_only: how.is_multiple_of(5), ..options };
    let engine = match machine.open(options) {
        Ok((engine, _)) => engine,
        Err(error) => return drop(error.to_string()),
    };
    let rotten = |page: u64| bed.specimen.cut_off && page == 5;
    let sound = |page: u64| !(believed || rotten(page));
    for page in 0..PAGES {
        let Ok(said) = engine.verify(page) else { continue };
        let verdict = lie("verdict", said.verdict, |_| PageVerdict::Corrupt);
        let wrong = verdict == PageVerdict::Corrupt && sound(page);
        assert!(!wrong, "page {page} is sound, and called corrupt");
    }
    let blameless = |report: Report, who: &str| {
        let wrong = report.corrupt.iter().find(|page| sound(**page));
        assert_eq!(wrong, None, "a {who} calls a sound page corrupt");
    };
    let mend = |page| {
        let done = engine.repair(page, &AtRest, Force::No)?;
        let done = lie("mended", done, |_| Mended::Repaired);
        let done = lie("lost", done, |_| Mended::Lost);
        let wrong = matches!(done, Mended::Repaired | Mended::Lost) && sound(page);
        assert!(!wrong, "page {page} is sound, and a repair says {done:?}");
        Ok(())
    };
    let done = match how % 5 {
        0 => engine.verify_all().map(|report| {
            blameless(lie("looked", report, |report| blamed(report, 1)), "look at all pages");
        }),
        1 => engine.scrub(Some(&AtRest)).map(|done| {
            blameless(lie("scrubbed", done.report, |report| blamed(report, 7)), "scrub");
        }),
        2 => {
            engine.admit(0, u64::MAX, Writing::NotYet).and_then(|()| engine.update_now()).map(drop)
        }
        3 => (0..PAGES).try_for_each(mend),
        _ => engine.accept(0, u64::MAX).map(drop),
    };
    let _ = done.map_err(|error| error.to_string());
    let _ = engine.events();
    let _ = engine.coverage().map_err(|error| error.to_string());
    let _ = engine.close().map_err(|error| error.to_string());
}

/// A report that calls this page corrupt, too.
fn blamed(mut report: Report, page: u64) -> Report {
    report.corrupt.push(page);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_campaign::mapped::specimen::Seal;

    /// All that can be seen of a side file.
    fn seen(bed: &Bed, bytes: Vec<u8>) -> String {
        let machine = bed.specimen.holding(bytes);
        let engine = match machine.open(bed.specimen.setting.open(1)) {
            Ok((engine, opened)) => {
                let pages: Vec<_> = (0..PAGES).map(|page| engine.verify(page)).collect();
                let events = engine.events();
                return format!("{opened:?} {pages:?} {:?} {events:?}", engine.coverage());
            }
            Err(error) => error,
        };
        format!("{engine:?}")
    }

    /// What is sealed is met otherwise than the same damage with a wrong sum: a seal that leaves
    /// the sum wrong would make the two the same.
    #[test]
    fn sealed_damage_is_believed() {
        type Kind = fn(&Seal) -> bool;
        let kinds: [(&str, Kind); 4] = [
            ("page", |seal| matches!(seal, Seal::Page(..))),
            ("record", |seal| matches!(seal, Seal::Record(_))),
            ("entries", |seal| matches!(seal, Seal::Meta(_))),
            ("event", |seal| matches!(seal, Seal::Event(_))),
        ];
        // Beds without the repair under way: the event it ends with is there.
        for bed in [0, 5].map(bed) {
            for (name, kind) in kinds {
                let believed = |spot: &&Spot| {
                    let place = Specimen::place(spot.copies[0]);
                    let old = &bed.specimen.bytes[place..place + spot.len as usize];
                    let new = Verb::Flip.apply(old, &[], &mut Rng::new(spot.copies[0]));
                    let [sealed, plain] = [true, false].map(|sealed| {
                        let mut bytes = bed.specimen.bytes.clone();
                        bed.specimen.damage(&mut bytes, spot, &new, &spot.copies, sealed);
                        seen(bed, bytes)
                    });
                    sealed != plain
                };
                let spots = bed.spots.iter().filter(|spot| kind(&spot.seal));
                assert!(spots.clone().any(|spot| believed(&spot)), "no {name} is believed");
            }
        }
    }
}
