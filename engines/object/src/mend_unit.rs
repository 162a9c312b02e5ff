//! Repair of a unit that disagrees with its sum: which of the bytes involved are wrong is found
//! by trying, and only what then verifies is installed.

use holdfast_heap::format::{SLOT_LEN, SUM_LEN};
use holdfast_heap::verify::{Direct, Found, Overlay, Source};
use holdfast_heap::{Spot, Unit};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::Event;
use holdfast_redundancy::parity::{Parity, Scratch, rebuild};
use holdfast_redundancy::{Exempt, Wrong, zone};

use crate::changes::Changes;
use crate::error::Error;
use crate::repair::{Asked, Mended};
use crate::shared::{Repairer, Shared};

const STEP_HELD: Site = Site::new("object.mend_unit.step-held");
/// Times a unit is looked at again that turned bad anew, or did not keep what was stored.
const AGAIN_MAX: u32 = 4;
/// Verifying a unit, to see whether anything is to be repaired.
const VERIFY: Site = Site::new("object.mend_unit.verify");
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
    let certify = Certify::when(shared.m.enabled(VERIFY));
    let mut mended = Mended::Nothing;
    for _ in 0..AGAIN_MAX {
        match unit.check(&Direct(&shared.m), shared.heap.sums(), certify) {
            Ok(Found::Good | Found::Nothing) => return Ok(mended),
            Ok(Found::Bad { .. }) => {}
            // A page that could not be read and could not be mended either: that was reported.
            Err(_) => return Ok(Mended::Lost(Wrong::Data)),
        }
        let object = object_of(shared, unit);
        let rebuilt: Vec<_> = { parts.iter() }
            .map(|p| shared.range_candidates(repairer, p.at, p.len, &shared.exempt()))
            .collect();
        let cure = find_cure(shared, unit, parts, rebuilt, &Changes::default()).or_else(|| {
            let exempt = shared.exempt();
            find_cure_of_two(shared, repairer, unit, parts, &Changes::default(), &exempt, certify)
        });
        let Some(cure) = cure else {
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
    let whole = |_: u32| true;
    if let Some(cure) = try_masks(shared, unit, parts, &rebuilt, changes, whole) {
        return Some(cure);
    }
    // Another damage over the same columns, at other bytes, is in every candidate: it is left out
    // by trying each with only its head or only its tail.
    for i in 0..parts.len() {
        let Some(now) = current(shared, &parts[i]) else { continue };
        let whole = core::mem::take(&mut rebuilt[i]);
        rebuilt[i] = whole.iter().flat_map(|bytes| heads_and_tails(&now, bytes)).collect();
        let with_it = |mask: u32| mask >> i & 1 == 1;
        let cure = try_masks(shared, unit, parts, &rebuilt, changes, with_it);
        if cure.is_some() {
            return cure;
        }
        rebuilt[i] = whole;
    }
    None
}

/// With Q: the same under the assumption that another row over the columns is wrong as well, which
/// P and Q together can make good. Which rows may be that one, the sums of their units say.
pub(crate) fn find_cure_of_two<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    exempt: &impl Exempt,
    certify: Certify,
) -> Option<Cure> {
    let rebuilt: Vec<_> = { parts.iter() }
        .map(|part| beside_another(shared, &mut repairer.scratch, part, changes, exempt, certify))
        .collect();
    find_cure(shared, unit, parts, rebuilt, changes)
}

/// What a part may be, one candidate for each other row with a bad unit over the same columns.
fn beside_another<M: Medium>(
    shared: &Shared<M>,
    scratch: &mut Scratch,
    part: &Part,
    changes: &Changes,
    exempt: &impl Exempt,
    certify: Certify,
) -> Vec<Vec<u8>> {
    let Some(zone) = shared.zone_of(part.at).filter(|zone| zone.has_q()) else { return Vec::new() };
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for piece in zone.split(part.at, part.len) {
        let others = (0..zone.data_rows()).filter(|row| {
            let at = zone.at(*row, piece.col);
            *row != piece.row && shared.has_bad_units(at, piece.len, changes, certify)
        });
        let options: Vec<Vec<u8>> = others
            .filter_map(|row| {
                let missing = [zone::Unit::Row(piece.row), zone::Unit::Row(row)];
                let (col, len) = (piece.col, piece.len);
                let both = Parity::Both;
                let found = rebuild(&shared.m, zone, &missing, col, len, exempt, both, scratch);
                found.ok().map(|mut units| units.swap_remove(0))
            })
            .collect();
        let joined = |head: &Vec<u8>| {
            let head = head.clone();
            options.iter().map(move |tail| [head.as_slice(), tail].concat())
        };
        all = all.iter().flat_map(joined).collect();
    }
    all
}

/// Tries what each part may be, alone and together, for the sets of parts that `wanted` names.
fn try_masks<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    rebuilt: &[Vec<Vec<u8>>],
    changes: &Changes,
    wanted: impl Fn(u32) -> bool,
) -> Option<Cure> {
    for mask in [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111_u32] {
        let chosen: Vec<usize> = (0..parts.len()).filter(|i| mask >> i & 1 == 1).collect();
        if mask >> parts.len() != 0 || chosen.is_empty() || !wanted(mask) {
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
            if !advance(&mut picks, &chosen, rebuilt) {
                break;
            }
        }
    }
    None
}

/// `bytes` up to some byte and what is there `now` from it on, and the other way round: for every
/// byte at which that makes a difference.
fn heads_and_tails(now: &[u8], bytes: &[u8]) -> Vec<Vec<u8>> {
    let differs = |at: &usize| now[*at] != bytes[*at];
    let edges = (0..now.len()).filter(differs).skip(1);
    edges
        .flat_map(|at| [[&bytes[..at], &now[at..]].concat(), [&now[..at], &bytes[at..]].concat()])
        .collect()
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
    let certify = Certify::when(shared.m.enabled(JUDGE));
    let direct = Direct(&shared.m);
    let pick = |n: usize| (parts[chosen[n]].at, bytes[n].as_slice());
    let sums = shared.heap.sums();
    let one = over(&direct, pick(0));
    let verdict = match chosen.len() {
        1 => unit.check(&changes.over(&one), sums, certify),
        2 => unit.check(&changes.over(&over(&one, pick(1))), sums, certify),
        _ => unit.check(&changes.over(&over(&over(&one, pick(1)), pick(2))), sums, certify),
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
