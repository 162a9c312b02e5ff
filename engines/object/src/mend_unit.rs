//! Repair of a unit that disagrees with its sum: which of the bytes involved are wrong is found
//! by trying, and only what then verifies is installed.

use holdfast_heap::format::{SLOT_LEN, SUM_LEN};
use holdfast_heap::verify::{Direct, Found, Overlay, Source};
use holdfast_heap::{Spot, Unit};
use holdfast_layout::RawPtr;
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::Event;

use crate::changes::Changes;
use crate::error::Error;
use crate::repair::{Asked, Mended};
use crate::shared::{Repairer, Shared};

const STEP_HELD: Site = Site::new("object.mend_unit.step-held");
/// Times a unit is looked at again that turned bad anew, or did not keep what was stored.
const AGAIN_MAX: u32 = 4;
/// Judging a candidate before it is installed.
const JUDGE: Site = Site::new("object.mend_unit.judge");

/// A part of a unit that may be the wrong one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) wrong: Wrong,
}

/// What a successful trial would install.
pub(crate) struct Cure {
    pub(crate) parts: Vec<(Part, Vec<u8>)>,
}

/// Repairs `unit` if it does not verify. Holds the columns of all its parts meanwhile.
pub(crate) fn mend_unit<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    asked: Asked,
) -> Result<Mended, Error> {
    let parts = parts_of(unit);
    let ranges: Vec<(u64, u64)> = parts.iter().map(|p| (p.at, p.len)).collect();
    let event = shared.event(asked.cause, asked.finder, ranges[0].0, ranges[0].1);
    let columns = shared.columns_of(&ranges);
    shared.columns.lock_all(&shared.m, &columns);
    shared.m.step(STEP_HELD);
    let mended = shared.may_judge().and_then(|()| mend_held(shared, repairer, unit, &parts, event));
    shared.columns.unlock_all(&columns);
    mended
}

fn mend_held<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    parts: &[Part],
    event: Event,
) -> Result<Mended, Error> {
    let mut mended = Mended::Nothing;
    for _ in 0..AGAIN_MAX {
        match unit.check(&Direct(&shared.m), shared.heap.sums()) {
            Ok(Found::Good | Found::Nothing) => return Ok(mended),
            Ok(Found::Bad { .. }) => {}
            // A page that could not be read and could not be mended either: that was reported.
            Err(_) => return Ok(Mended::Lost(Wrong::Data)),
        }
        let object = object_of(shared, unit);
        let rebuilt: Vec<_> = { parts.iter() }
            .map(|p| shared.range_candidates(repairer, p.at, p.len, &shared.exempt()))
            .collect();
        let Some(cure) = find_cure(shared, unit, parts, rebuilt, &Changes::default()) else {
            let lost = Mended::Lost(parts[0].wrong);
            shared.report_mended(Event { object, ..event }, lost);
            return Ok(lost);
        };
        for (part, bytes) in &cure.parts {
            let before_sum = shared.sum_there(part.at, part.len);
            shared.install_range(repairer, part.at, bytes)?;
            let event = Event { object, at: part.at, len: part.len, before_sum, ..event };
            // What was stored may not have stayed: lost again on its way.
            if current(shared, part).as_ref() == Some(bytes) {
                mended = Mended::Repaired(part.wrong);
                shared.report_mended(event, mended);
            }
        }
        // Other parts may have turned bad meanwhile: damage of its own, with a cure of its own.
    }
    let lost = Mended::Lost(parts[0].wrong);
    let object = object_of(shared, unit);
    shared.report_mended(Event { object, ..event }, lost);
    Ok(lost)
}

/// The parts of a unit, the likeliest culprit first.
pub(crate) fn parts_of(unit: &Unit) -> Vec<Part> {
    let (at, len) = unit.range();
    match unit {
        Unit::Entry { .. } => vec![Part { at, len, wrong: Wrong::Directory }],
        Unit::Granule { spot, granule } => {
            let mut parts = vec![Part { at, len, wrong: Wrong::Data }];
            parts.push(Part { at: spot.slot, len: SLOT_LEN as u64, wrong: Wrong::Slot });
            if *granule > 0 {
                let at = spot.sum_at(*granule);
                parts.push(Part { at, len: SUM_LEN, wrong: Wrong::Sum });
            }
            parts
        }
    }
}

/// Tries each part alone, then pairs, then all: the first that verifies is the cure. `rebuilt` is
/// what each part may be; it is judged as it will be after `changes`.
pub(crate) fn find_cure<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    mut rebuilt: Vec<Vec<Vec<u8>>>,
    changes: &Changes,
) -> Option<Cure> {
    for (part, candidates) in parts.iter().zip(&mut rebuilt) {
        let Some(now) = current(shared, part) else { continue };
        mix_columns(part.at, &now, candidates);
        candidates.retain(|c| *c != now);
    }
    for mask in [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111_u32] {
        let chosen: Vec<usize> = (0..parts.len()).filter(|i| mask >> i & 1 == 1).collect();
        if mask >> parts.len() != 0 || chosen.is_empty() {
            continue;
        }
        let mut picks = vec![0; chosen.len()];
        loop {
            let options = || chosen.iter().zip(&picks).map(|(i, pick)| rebuilt[*i].get(*pick));
            if let Some(bytes) = options().collect::<Option<Vec<_>>>()
                && cures(shared, unit, &chosen, parts, &bytes, changes)
            {
                let pair = |(i, b): (&usize, &Vec<u8>)| (parts[*i], b.clone());
                let parts = chosen.iter().zip(bytes).map(pair).collect();
                return Some(Cure { parts });
            }
            if !advance(&mut picks, &chosen, &rebuilt) {
                break;
            }
        }
    }
    None
}

/// Where a part lies in two page columns, adds to its candidates those that leave it as it is in
/// one of them: each column survives a damage of its own, and parity of the other may be wrong.
fn mix_columns(at: u64, now: &[u8], candidates: &mut Vec<Vec<u8>>) {
    let first = (PAGE - at % PAGE) as usize;
    if first >= now.len() {
        return;
    }
    for i in 0..candidates.len() {
        let whole = &candidates[i];
        let mixed = [[&whole[..first], &now[first..]], [&now[..first], &whole[first..]]];
        candidates.extend(mixed.map(|halves| halves.concat()));
    }
}

/// The next combination of candidates; false after the last.
fn advance(picks: &mut [usize], chosen: &[usize], rebuilt: &[Vec<Vec<u8>>]) -> bool {
    for (pick, i) in picks.iter_mut().zip(chosen) {
        *pick += 1;
        if *pick < rebuilt[*i].len() {
            return true;
        }
        *pick = 0;
    }
    false
}

/// Whether the unit verifies with these parts replaced. Needs a sum that says so: "nothing to
/// check there" is a confirmation only if the slot that says so is among them, since slots are
/// certified by sums of their own.
fn cures<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    chosen: &[usize],
    parts: &[Part],
    bytes: &[&Vec<u8>],
    changes: &Changes,
) -> bool {
    if !shared.m.enabled(JUDGE) {
        return true;
    }
    let direct = Direct(&shared.m);
    let pick = |n: usize| (parts[chosen[n]].at, bytes[n].as_slice());
    let sums = shared.heap.sums();
    let one = over(&direct, pick(0));
    let verdict = match chosen.len() {
        1 => unit.check(&changes.over(&one), sums),
        2 => unit.check(&changes.over(&over(&one, pick(1))), sums),
        _ => unit.check(&changes.over(&over(&over(&one, pick(1)), pick(2))), sums),
    };
    matches!(verdict, Ok(Found::Good)) || (verdict == Ok(Found::Nothing) && chosen != [0])
}

fn over<'a, S: Source>(under: &'a S, (at, bytes): (u64, &'a [u8])) -> Overlay<'a, S> {
    Overlay { under, at, bytes }
}

fn current<M: Medium>(shared: &Shared<M>, part: &Part) -> Option<Vec<u8>> {
    let mut bytes = vec![0; part.len as usize];
    shared.m.read(part.at, &mut bytes).ok().map(|()| bytes)
}

/// Pointer word of the object concerned, for the event; 0 if its slot cannot tell.
fn object_of<M: Medium>(shared: &Shared<M>, unit: &Unit) -> u64 {
    let Unit::Granule { spot, .. } = unit else { return 0 };
    let generation = |spot: &Spot| {
        holdfast_heap::verify::read_slot(&Direct(&shared.m), spot).map(|s| s.generation)
    };
    RawPtr::new(spot.object, generation(spot).unwrap_or(0)).word()
}
