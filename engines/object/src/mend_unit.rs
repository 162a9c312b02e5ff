//! Repair of a unit that disagrees with its sum: which of the bytes involved are wrong is found
//! by trying, and only what then verifies is installed.

use holdfast_heap::format::{GRANULE, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::{Sums, granule_range};
use holdfast_heap::verify::{Direct, Found, Overlay, Source, read_slot};
use holdfast_heap::{ChunkKind, Spot, Unit};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{MediaCause, MediaError, Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Event, Finder};
use holdfast_redundancy::parity::{Parity, Scratch, rebuild};
use holdfast_redundancy::zone::{self, Piece};
use holdfast_redundancy::{Exempt, Wrong};
use std::collections::BTreeMap;

use crate::beside::beside_each;
use crate::candidates::joined;
use crate::changes::Changes;
use crate::error::Error;
use crate::halves::{MayBe, find_half};
use crate::hold::Holding;
use crate::repair::{Asked, BAD_PAGES_MAX, Mended};
use crate::scrub::{HELD_TRIES, HELD_YIELDS, give_way};
use crate::shared::{Repairer, Shared};
use crate::whole_page::{find_page, look_beside};

const STEP_HELD: Site = Site::new("object.mend_unit.step-held");
/// How often a repair waits for who holds what has no cure: each time it is looked for once more.
const MADE_TRIES: u32 = 200;
/// Times a unit is looked at again that turned bad anew, or did not keep what was stored.
const AGAIN_MAX: u32 = 4;
/// Verifying a unit, to see whether anything is to be repaired.
const VERIFY: Site = Site::new("object.mend_unit.verify");
/// Judging a candidate before it is installed.
const JUDGE: Site = Site::new("object.mend_unit.judge");

/// Trials with whole parts as P and Q say: all of them, short of damage in every part over both of
/// two page columns.
const TRIALS_MAX: usize = 512;
/// Trials with parts as P and Q say beside another wrong row.
const TRIALS_BESIDE_MAX: usize = 128;
/// Rows that may be that other one.
const OTHERS_MAX: usize = 4;
/// Which of the parts of a granule is the slot.
pub(crate) const SLOT: usize = 1;

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
    /// Version words to be held, of what verifies as it is and becomes another: see
    /// `whole_page.rs`.
    pub(crate) holds: Vec<u32>,
}

impl Cure {
    /// The cure without what no sum vouches for. Bytes of a granule behind the end of its object
    /// come from columns in which something else may be wrong; stored there they would make these
    /// columns add up, and nobody would ever know. So the columns are looked at by themselves.
    fn vouched<M: Medium>(self, shared: &Shared<M>, unit: &Unit, changes: &Changes) -> Self {
        let Unit::Granule { spot, granule } = unit else { return self };
        let direct = Direct(&shared.m);
        let slot = self.parts.iter().find(|(part, _)| part.wrong == Wrong::Slot);
        let bytes = slot.map_or(&[][..], |(_, bytes)| bytes);
        let slot = read_slot(&changes.over(&over(&direct, (spot.slot, bytes))), spot);
        let Some(slot) = slot.ok().filter(|slot| slot.is_live() && shared.heap.sums().active())
        else {
            return self;
        };
        let (_, covered) = granule_range(*granule, slot.len.into());
        let within = |(part, mut bytes): (Part, Vec<u8>)| {
            let len = if part.wrong == Wrong::Data { part.len.min(covered) } else { part.len };
            let behind = bytes.split_off(len as usize);
            let rest = Part { at: part.at + len, len: part.len - len, ..part };
            if current(shared, &rest).is_some_and(|now| now != behind) {
                shared.suspect(rest.at, rest.len, Cause::Parity, Finder::Repair);
            }
            (Part { len, ..part }, bytes)
        };
        let parts = self.parts.into_iter().map(within).filter(|(part, _)| part.len > 0);
        Self { parts: parts.collect(), ..self }
    }
}

/// Repairs the units over `[at, at + len)` that do not verify, in the order in which they lie
/// there. Answers the place of one that is lost, if any is.
pub(crate) fn mend_units<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    (at, len): (u64, u64),
    asked: Asked,
) -> Result<Option<u64>, Error> {
    let mut lost = None;
    let mut units = units_over(shared, at, at + len);
    while let Some((place, unit)) = units.pop_first() {
        match mend_reached(shared, repairer, &unit, asked)? {
            Mended::Lost(_) => lost = Some(place),
            Mended::Repaired(Wrong::Directory) => {
                // Its chunk is something else than its entry said: so are the units in it.
                if let Unit::Granule { spot, .. } = unit
                    && let Some(table) = shared.heap.zone(spot.zone)
                {
                    let from = at.max(table.chunk_at(spot.chunk));
                    units = units_over(shared, from, at + len);
                }
            }
            _ => {}
        }
    }
    Ok(lost)
}

/// The units over a range by their places, which also names each only once.
fn units_over<M: Medium>(shared: &Shared<M>, at: u64, end: u64) -> BTreeMap<u64, Unit> {
    let mut units = BTreeMap::new();
    shared.units_over(at, end - at, &mut |unit| {
        units.insert(unit.range().0, unit);
    });
    units
}

/// Repairs a unit and the pages it lies on. A page that could be read before may turn bad in
/// between: that can be mended, too.
pub(crate) fn mend_reached<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    asked: Asked,
) -> Result<Mended, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let readable = shared.mend_pages_of(repairer, unit, asked)?;
        let mended = mend_stored(shared, repairer, unit, asked)?;
        let again = || readable && reach(shared, unit).is_err();
        if !matches!(mended, Mended::Lost(_)) || tries == BAD_PAGES_MAX || !again() {
            return Ok(mended);
        }
    }
}

/// Reads all that is needed to judge a unit, and to cure it: by its slot alone it may be seen to be
/// bad, and its bytes lie elsewhere.
pub(crate) fn reach<M: Medium>(shared: &Shared<M>, unit: &Unit) -> Result<(), MediaError> {
    unit.reach(&Direct(&shared.m), shared.heap.sums())?;
    let mut parts = parts_of(unit).into_iter();
    parts.try_for_each(|part| shared.m.read(part.at, &mut vec![0; part.len as usize]))
}

/// As [`mend_unit`], where what cures a unit may have to be stored to a page that cannot be: by its
/// slot alone a unit is seen to be bad, whether its bytes can be read or not. Such a page is
/// mended first; if it stays bad, the unit is lost, as was told of the page. So is one that its
/// directory entries are judged by; if that stays bad, they are judged without it.
fn mend_stored<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    asked: Asked,
) -> Result<Mended, Error> {
    let own = |page: &u64| {
        parts_of(unit).iter().any(|p| (p.at / PAGE * PAGE..p.at + p.len).contains(page))
    };
    for _ in 0..BAD_PAGES_MAX {
        match mend_unit(shared, repairer, unit, asked) {
            Err(Error::Media(MediaError { at, cause: MediaCause::Poison, .. })) => {
                let page = at / PAGE * PAGE;
                let asked = Asked { cause: Cause::MediaError, ..asked };
                let stays_bad = repairer.given_up.contains(&page)
                    || matches!(shared.mend_page(repairer, page, asked)?, Mended::Lost(_));
                if stays_bad && own(&page) {
                    return Ok(Mended::Lost(parts_of(unit)[0].wrong));
                }
            }
            done => return done,
        }
    }
    mend_unit(shared, repairer, unit, asked)
}

/// Repairs `unit` if it does not verify. Before it is given up, the directory entries that it is
/// known by are looked at; their columns are held by themselves, and only then: many commits are
/// over them.
pub(crate) fn mend_unit<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    asked: Asked,
) -> Result<Mended, Error> {
    let entries = shared.entries_of(unit);
    if let Some(mended) = mend_holding(shared, repairer, unit, asked, entries.is_none())? {
        return Ok(mended);
    }
    let columns = shared.columns_of(&Vec::from_iter(entries.map(|(_, range)| range)));
    shared.columns.lock_all(&shared.m, &columns);
    let restored = shared.may_judge().and_then(|()| shared.restore_entries(repairer, unit, asked));
    shared.columns.unlock_all(&columns);
    if restored? {
        return Ok(Mended::Repaired(Wrong::Directory));
    }
    Ok(mend_holding(shared, repairer, unit, asked, true)?.unwrap_or(Mended::Nothing))
}

/// How a unit is to be repaired.
#[derive(Clone, Copy)]
struct How {
    event: Event,
    /// Whether it is to be given up if there is no cure.
    last: bool,
    /// Whether to wait for somebody who holds what the cure would change.
    wait: bool,
    /// Whether to wait for somebody who holds what has no cure.
    wait_made: bool,
}

/// What became of a unit.
enum Done {
    With(Mended),
    NoCure,
    /// Somebody holds what the cure would change.
    Held,
    /// Somebody holds what has no cure.
    Made,
}

/// Repairs `unit` with the columns of all its parts held. `None` if there is no cure and that is
/// not the `last` word.
fn mend_holding<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    asked: Asked,
    last: bool,
) -> Result<Option<Mended>, Error> {
    let parts = parts_of(unit);
    let ranges: Vec<(u64, u64)> = parts.iter().map(|p| (p.at, p.len)).collect();
    let event = shared.event(asked.cause, asked.finder, ranges[0].0, ranges[0].1);
    let columns = shared.columns_of(&ranges);
    let (mut tries, mut made) = (0, 0);
    loop {
        // Who has a view may be who waits: at last the unit is cured by itself. So may be who holds
        // what has no cure: at last it is given up.
        let (wait, wait_made) = (tries < HELD_TRIES, made < MADE_TRIES);
        let how = How { event, last, wait, wait_made };
        shared.columns.lock_all(&shared.m, &columns);
        shared.m.step(STEP_HELD);
        let judge = shared.may_judge();
        let done = judge.and_then(|()| mend_held(shared, repairer, unit, &parts, how));
        shared.columns.unlock_all(&columns);
        // What is lost is mended in vain each time it is read. Where threads share a processor, who
        // reads it in a loop would hold these columns nearly whenever those who wait get to run.
        holdfast_sync::thread::yield_now();
        match done? {
            Done::With(mended) => return Ok(Some(mended)),
            Done::NoCure => return Ok(None),
            Done::Held => {
                tries += 1;
                give_way(tries, HELD_YIELDS);
            }
            Done::Made => {
                made += 1;
                give_way(made, HELD_YIELDS);
            }
        }
    }
}

fn mend_held<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    parts: &[Part],
    how: How,
) -> Result<Done, Error> {
    let certify = Certify::when(shared.m.enabled(VERIFY));
    let (mut mended, mut unread) = (Mended::Nothing, Vec::new());
    for _ in 0..AGAIN_MAX {
        let check = || unit.check(&Direct(&shared.m), shared.heap.sums(), certify);
        match check().or_else(|_| check()) {
            Ok(Found::Good | Found::Nothing) => {
                for (event, done) in unread {
                    mended = shared.report_mended(event, done);
                }
                return Ok(Done::With(mended));
            }
            Ok(Found::Bad { .. }) if !is_there(shared, unit) => return Ok(Done::With(mended)),
            Ok(Found::Bad { .. }) => {}
            // The page is mended first, unless it can be read again or was given up, as was told.
            Err(error) => return Err(Error::Media(error)),
        }
        let event = Event { object: object_of(shared, unit), ..how.event };
        let mut holding = Holding::default();
        let cure = match search(shared, repairer, unit, parts, (how, certify), &mut holding) {
            Ok(cure) => cure,
            Err(Done::NoCure) if how.last => {
                let lost = Mended::Lost(parts[0].wrong);
                shared.report_mended(event, lost);
                return Ok(Done::With(lost));
            }
            Err(done) => return Ok(done),
        };
        let done = install(shared, repairer, &cure, event, &mut unread);
        shared.release(holding);
        mended = done?.unwrap_or(mended);
        look_beside(shared, &cure);
        // Other parts may have turned bad meanwhile: damage of its own, with a cure of its own.
    }
    let lost = Mended::Lost(parts[0].wrong);
    shared.report_mended(Event { object: object_of(shared, unit), ..how.event }, lost);
    Ok(Done::With(lost))
}

/// A cure of a unit that does not verify, or why there is none now.
fn search<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    parts: &[Part],
    (how, certify): (How, Certify),
    holding: &mut Holding,
) -> Result<Cure, Done> {
    let evidence = shared.evidence(repairer, unit, parts);
    let made = || how.last && how.wait_made && is_being_made(shared, unit);
    if repairer.hopeless.is(unit, evidence) {
        return Err(if made() { Done::Made } else { Done::NoCure });
    }
    let none = Changes::default();
    let mut may_be = |at, len| shared.range_candidates(repairer, at, len, &shared.exempt());
    match find_page(shared, unit, parts, &none, &mut may_be) {
        Some(cure) if shared.hold_words(&cure.holds, holding) => return Ok(cure),
        Some(_) if how.wait => return Err(Done::Held),
        _ => {}
    }
    if let Some(cure) = find_cure(shared, unit, parts, &none, &mut may_be) {
        return Ok(cure);
    }
    // Before the trials that take long.
    if made() {
        return Err(Done::Made);
    }
    let exempt = shared.exempt();
    let cure = find_cure_of_two(shared, repairer, unit, parts, &none, &exempt, certify);
    if cure.is_none() && how.last {
        repairer.hopeless.note(unit, evidence);
    }
    cure.ok_or(Done::NoCure)
}

/// Whether somebody holds the object of a unit: who has just made it known may be about to store it
/// again (`in_place.rs`).
fn is_being_made<M: Medium>(shared: &Shared<M>, unit: &Unit) -> bool {
    let Unit::Granule { spot, .. } = unit else { return false };
    shared.versions.now(shared.versions.index(spot.object)).is_none()
}

/// Stores a cure. Answers what it came to, if anything of it stayed. What could not be read behind
/// that is `unread`, and told once the unit verifies.
fn install<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    cure: &Cure,
    event: Event,
    unread: &mut Vec<(Event, Mended)>,
) -> Result<Option<Mended>, Error> {
    let mut mended = None;
    // All of it or nothing: what cannot be read takes no part of a page either.
    for (part, bytes) in &cure.parts {
        shared.m.read(part.at, &mut vec![0; bytes.len()])?;
    }
    for (part, bytes) in &cure.parts {
        let before_sum = shared.sum_there(part.at, part.len);
        shared.install_range(repairer, part.at, bytes)?;
        let done = Mended::Repaired(part.wrong);
        let event = Event { at: part.at, len: part.len, before_sum, ..event };
        match current(shared, part) {
            Some(now) if now == *bytes => {
                shared.report_mended(event, done);
                mended = Some(done);
            }
            // What was stored did not stay: lost again on its way.
            Some(_) => {}
            None => unread.push((event, done)),
        }
    }
    Ok(mended)
}

/// Whether a unit that was listed before its columns were held is one still: its object, and the
/// chunk, may have been freed in between.
pub(crate) fn is_there<M: Medium>(shared: &Shared<M>, unit: &Unit) -> bool {
    let Unit::Granule { spot, .. } = unit else { return true };
    let Some(table) = shared.heap.zone(spot.zone) else { return false };
    // A very long object is known by its first chunk, and begins in another.
    let there = match spot.class {
        Spot::LARGE => { table.entry(spot.chunk) }
            .filter(|entry| entry.kind == ChunkKind::Large)
            .map(|entry| table.large_spot(spot.chunk, &entry)),
        _ => table.locate(spot.object),
    };
    there == Some(*spot)
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

/// What makes a unit good: what parity says of each part, alone, in pairs, all together, judged as
/// it will be after `changes`; else a half of it. `may_be` answers what a range may have been.
pub(crate) fn find_cure<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    may_be: &mut MayBe<'_>,
) -> Option<Cure> {
    let plain: Vec<Vec<Vec<u8>>> = parts.iter().map(|p| may_be(p.at, p.len)).collect();
    let first = First::of(shared, unit, may_be);
    let whole = try_parts(shared, unit, parts, plain.clone(), changes, &first, TRIALS_MAX);
    let cure = whole.or_else(|| find_half(shared, unit, parts, &plain, changes));
    cure.map(|cure| cure.vouched(shared, unit, changes))
}

/// Tries each part alone, then pairs, then all: the first that verifies is the cure. Each trial
/// may be right by chance, once in 2^32, so there are `trials` of them at most.
pub(crate) fn try_parts<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    parts: &[Part],
    mut rebuilt: Vec<Vec<Vec<u8>>>,
    changes: &Changes,
    first: &First,
    mut trials: usize,
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
                && cures(shared, unit, &chosen, parts, &bytes, changes, first)
            {
                let pair = |(i, b): (&usize, &Vec<u8>)| (parts[*i], b.clone());
                let parts = chosen.iter().zip(bytes).map(pair).collect();
                return Some(Cure { parts, holds: Vec::new() });
            }
            trials = trials.saturating_sub(1);
            if trials == 0 {
                return None;
            }
            if !advance(&mut picks, &chosen, &rebuilt) {
                break;
            }
        }
    }
    None
}

/// With Q: the same under the assumption that another row over the columns is wrong as well, which
/// P and Q together can make good. Which one, the sums of its units say.
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
    let beyond = rebuilt.iter().any(Option::is_none);
    let rebuilt = rebuilt.into_iter().map(Option::unwrap_or_default).collect();
    let first = First::default();
    let cure = try_parts(shared, unit, parts, rebuilt, changes, &first, TRIALS_BESIDE_MAX);
    let mut each = || beside_each(shared, repairer, unit, parts, changes, exempt, certify);
    let cure = cure.or_else(|| if beyond { None } else { each() });
    cure.map(|cure| cure.vouched(shared, unit, changes))
}

/// What a part may be if another row with a bad unit over the same columns is wrong too: one
/// candidate for each such row. More of them than [`OTHERS_MAX`] are more damage than P and Q
/// cover: `None`. (A slot that is wrong makes units of its object bad that are not: so more than
/// one.)
fn beside_another<M: Medium>(
    shared: &Shared<M>,
    scratch: &mut Scratch,
    part: &Part,
    changes: &Changes,
    exempt: &impl Exempt,
    certify: Certify,
) -> Option<Vec<Vec<u8>>> {
    let zone = shared.zone_of(part.at).filter(|zone| zone.has_q())?;
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for piece in zone.split(part.at, part.len) {
        let is_bad = |row: &u32| {
            let at = zone.at(*row, piece.col);
            *row != piece.row && shared.has_bad_units(at, piece.len, changes, certify)
        };
        let others: Vec<u32> = (0..zone.data_rows()).filter(is_bad).take(OTHERS_MAX + 1).collect();
        if others.len() > OTHERS_MAX {
            return None;
        }
        let mut options = Vec::new();
        for row in others {
            let mut of = |piece: Piece| {
                let missing = [zone::Unit::Row(piece.row), zone::Unit::Row(row)];
                let (col, len, both) = (piece.col, piece.len, Parity::Both);
                let found = rebuild(&shared.m, zone, &missing, col, len, exempt, both, scratch);
                found.ok().map(|mut units| units.swap_remove(0))
            };
            options.extend(of(piece).or_else(|| shared.by_pages(piece, of)));
        }
        all = joined(&all, &options);
    }
    Some(all)
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

/// Whether sums decide about what is tried.
pub(crate) fn judging<M: Medium>(shared: &Shared<M>) -> Certify {
    Certify::when(shared.m.enabled(JUDGE))
}

/// Whether the unit verifies with these parts replaced.
pub(crate) fn cures<M: Medium>(
    shared: &Shared<M>,
    unit: &Unit,
    chosen: &[usize],
    parts: &[Part],
    bytes: &[&Vec<u8>],
    changes: &Changes,
    first: &First,
) -> bool {
    let certify = judging(shared);
    let direct = Direct(&shared.m);
    let pick = |n: usize| (parts[chosen[n]].at, bytes[n].as_slice());
    let judge =
        Judge { unit, sums: shared.heap.sums(), certify, slot: chosen.contains(&SLOT), first };
    let one = over(&direct, pick(0));
    match chosen.len() {
        1 => judge.is_good(&changes.over(&one)),
        2 => judge.is_good(&changes.over(&over(&one, pick(1)))),
        _ => judge.is_good(&changes.over(&over(&over(&one, pick(1)), pick(2)))),
    }
}

/// What the first granule of an object may be, for units of another: its sum covers the slot.
#[derive(Debug, Default)]
pub(crate) struct First {
    at: u64,
    bytes: Vec<Vec<u8>>,
}

/// The first granule of the object of another unit.
pub(crate) fn first_of(unit: &Unit) -> Option<Part> {
    let Unit::Granule { spot, granule: 1.. } = unit else { return None };
    Some(Part { at: spot.object, len: spot.capacity.min(GRANULE), wrong: Wrong::Data })
}

impl First {
    fn of<M: Medium>(shared: &Shared<M>, unit: &Unit, may_be: &mut MayBe<'_>) -> Self {
        let Some(part) = first_of(unit) else { return Self::default() };
        let mut bytes = may_be(part.at, part.len);
        if let Some(now) = current(shared, &part) {
            mix_columns(part.at, &now, &mut bytes);
        }
        Self { at: part.at, bytes }
    }
}

/// What a trial is judged by.
struct Judge<'a> {
    unit: &'a Unit,
    sums: &'a Sums,
    certify: Certify,
    /// Whether the slot is among what is replaced.
    slot: bool,
    first: &'a First,
}

impl Judge<'_> {
    /// Whether a sum says that the unit is good. "There is no such granule" is the slot's word
    /// alone: it counts if the slot was replaced and is certified itself, by the first granule, as
    /// it is or as it may be. Without sums, a slot that no longer contradicts itself is all there
    /// can be.
    fn is_good(&self, from: &impl Source) -> bool {
        match self.unit.check(from, self.sums, self.certify) {
            Ok(Found::Good) => true,
            Ok(Found::Nothing) if self.slot => match self.unit {
                Unit::Granule { spot, .. } if self.sums.active() => self.is_slot_good(from, spot),
                _ => true,
            },
            _ => false,
        }
    }

    fn is_slot_good(&self, from: &impl Source, spot: &Spot) -> bool {
        let unit = Unit::Granule { spot: *spot, granule: 0 };
        let good = |found| found == Ok(Found::Good);
        let at = self.first.at;
        good(unit.check(from, self.sums, self.certify))
            || self.first.bytes.iter().any(|bytes| {
                let overlay = Overlay { under: from, at, bytes };
                good(unit.check(&overlay, self.sums, self.certify))
            })
    }
}

fn over<'a, S: Source>(under: &'a S, (at, bytes): (u64, &'a [u8])) -> Overlay<'a, S> {
    Overlay { under, at, bytes }
}

pub(crate) fn current<M: Medium>(shared: &Shared<M>, part: &Part) -> Option<Vec<u8>> {
    shared.read_now(part.at, part.len)
}

/// Pointer word of the object concerned, for the event; 0 if its slot cannot tell.
fn object_of<M: Medium>(shared: &Shared<M>, unit: &Unit) -> u64 {
    let Unit::Granule { spot, .. } = unit else { return 0 };
    let generation = |spot: &Spot| {
        holdfast_heap::verify::read_slot(&Direct(&shared.m), spot).map(|s| s.generation)
    };
    RawPtr::new(spot.object, generation(spot).unwrap_or(0)).word()
}
