//! Damage to a pool between two kills: bit flips and stray writes in its file, at most one in each
//! place that counts as one, and what must have become of them.
//!
//! A pool that was closed is damaged anywhere. One that was killed while transactions were under
//! way is damaged where one copy of two is enough for its recovery: the tables, and the log where
//! the copies of a record lie apart. Damage to the columns of a commit in flight, together with
//! the kill, is a window of the guarantee.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_layout::format::FIELDS_SUPERBLOCK;
use holdfast_layout::{Region, RegionKind};
use holdfast_object::{ScrubControl, ScrubOptions};
use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::events::{Event, Outcome};
use holdfast_redundancy::{Journal, Wrong};
use holdfast_workloads::Rng;

use super::super::damage::names;
use super::super::spared::{Range, accused, as_told};
use crate::object::raw::{Bytes, number};
use crate::object::scenes::refused;
use crate::object::targets::{Area, Side, Target, Targets};
use crate::object::victim::open;
use crate::tally::{Fault, Judged, Tally, Violation};

/// Attempts to find a free place for one more.
const ATTEMPTS: u64 = 12;

/// A range that was damaged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Injury {
    area: Area,
    at: u64,
    len: u64,
}

/// What a pool is like when it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Closed.
    Closed,
    /// Killed; both copies of a log record may lie in one place.
    Killed { apart: bool },
}

/// Where damage counts as one.
struct Atlas {
    /// Of each zone: first byte, bytes of its rows, bytes of a row.
    zones: Vec<(u64, u64, u64)>,
    side_len: u64,
}

impl Atlas {
    fn of(bytes: &Bytes) -> Option<Self> {
        let (superblock, _) = bytes.superblock()?;
        let side_len = number(FIELDS_SUPERBLOCK, "side_len", superblock);
        let zones = Targets::zones(bytes).into_iter();
        let zones = zones.map(|z| (z.start, (z.data_rows + z.parity_rows) * z.row_len, z.row_len));
        Some(Self { zones: zones.collect(), side_len })
    }

    fn zone(&self, at: u64) -> Option<(u64, u64, u64)> {
        self.zones.iter().copied().find(|(start, len, _)| (*start..start + len).contains(&at))
    }

    /// The place of a byte: a page column of a zone, a page of both sides.
    fn domain(&self, at: u64) -> u64 {
        match self.zone(at) {
            Some((start, _, row_len)) => 1 << 62 | start << 20 | ((at - start) % row_len / PAGE),
            None => at % self.side_len / PAGE,
        }
    }

    /// End of what a stray write at `at` may cover: of its page, or of its row.
    fn end(&self, at: u64, target: &Target) -> u64 {
        match self.zone(at) {
            Some((start, _, row_len)) => start + ((at - start) / row_len + 1) * row_len,
            None => (at / PAGE * PAGE + PAGE).min(target.at + target.len),
        }
    }
}

/// Damages the file of a pool that nobody has open.
pub(super) fn hurt(path: &Path, state: State, rng: &mut Rng) -> Judged<Vec<Injury>> {
    let failed = |error: std::io::Error| Violation::new(Fault::Refused, format!("damage: {error}"));
    let bytes = Bytes::from_vec(std::fs::read(path).map_err(failed)?);
    let file = std::fs::File::options().write(true).open(path).map_err(failed)?;
    let none = || Violation::new(Fault::Wrong, "no superblock verifies");
    let atlas = Atlas::of(&bytes).ok_or_else(none)?;
    let targets = Targets::of(&bytes);
    let mut areas = targets.areas();
    // One side, so that no record loses both copies, wherever it begins and ends.
    let side = if rng.below(2) == 0 { Side::A } else { Side::B };
    let other = [Side::A, Side::B][usize::from(side == Side::A)];
    areas.retain(|area| match state {
        State::Closed => true,
        State::Killed { apart } => {
            area.is_mirrored() && !area.is_of(other) || apart && *area == Area::Log(side)
        }
    });
    let mut taken = BTreeSet::new();
    let mut injuries = Vec::new();
    for _ in 0..=rng.below(ATTEMPTS) {
        let Some(target) = rng.pick(&areas).and_then(|area| targets.pick(*area, rng)) else {
            continue;
        };
        let at = target.at + rng.below(target.len);
        let most = [1, 1, 64, 1024, PAGE, 8 * PAGE][rng.below(6) as usize];
        let len = (1 + rng.below(most)).min(atlas.end(at, &target) - at);
        let pages = at / PAGE..=(at + len - 1) / PAGE;
        let domains: BTreeSet<u64> =
            { pages }.map(|page| atlas.domain(at.max(page * PAGE))).collect();
        let Some(before) = bytes.get(at, len) else { continue };
        if !taken.is_disjoint(&domains) {
            continue;
        }
        let mut after = before.to_vec();
        match rng.below(3) {
            0 => after[0] ^= 1 << rng.below(8),
            1 => after.fill([0, 0xff][rng.below(2) as usize]),
            _ => rng.fill(&mut after),
        }
        let differs = |i: &usize| after[*i] != before[*i];
        let Some(first) = (0..after.len()).find(differs) else { continue };
        let last = (0..after.len()).rfind(differs).unwrap_or(first);
        file.write_all_at(&after, at).map_err(failed)?;
        taken.extend(domains);
        let (at, len) = (at + first as u64, (last - first + 1) as u64);
        injuries.push(Injury { area: target.area, at, len });
    }
    Ok(injuries)
}

/// Opens the pool and scrubs: nothing may be lost, nothing undecided, and of a pool that was
/// closed each injury but one is told after event number `seen`. The caller looks at what it
/// holds then.
pub(super) fn mended(
    path: &Path,
    (injuries, seen): (&[Injury], u64),
    state: State,
    tally: &mut Tally,
) -> Judged<()> {
    let opened = open(path);
    let (pool, _) = opened.map_err(|error| Violation::new(Fault::Refused, error))?;
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    if done.lost + done.undecided > 0 {
        let (lost, undecided) = (done.lost, done.undecided);
        let first = done.report.findings.first();
        let story = format!("within tolerance {lost} lost, {undecided} undecided: {first:?}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    let medium = pool.medium();
    let events = Journal::open(medium, &pool.superblock()).read_from(medium, seen + 1);
    let events = as_told(events, medium.len());
    if let Some(lost) = events.iter().find(|event| event.outcome == Outcome::Lost) {
        let story = format!("within tolerance, but the journal says: {lost}");
        return Err(Violation::new(Fault::Wrong, story));
    }
    // A long stray write over slots is told slot by slot: the journal may not reach back to `seen`.
    let whole = events.first().is_none_or(|first| first.sequence == seen + 1);
    let zones: Vec<Region> = pool.regions();
    let mut untold = None;
    for Injury { area, at, len } in injuries.iter().copied() {
        tally.add("damaged between kills", 1);
        let zone = zones.iter().find(|region| region.start <= at && at < region.start + region.len);
        let told = |event: &Event| match zone {
            Some(zone) if zone.kind == RegionKind::Zone => names(zone, event, at, len),
            _ => event.at < at + len && at < event.at + event.len,
        };
        if events.iter().any(told) {
            tally.add("damaged between kills, and told", 1);
            continue;
        }
        // Records are done with, and who opens a pool writes its tables and notes anew.
        let rewritten = area.is_mirrored() || matches!(area, Area::Log(_));
        if rewritten || state != State::Closed {
            continue;
        }
        if !whole {
            tally.add("damaged between kills, perhaps told before the journal begins", 1);
            continue;
        }
        // One repair may have been through when the process was killed, and its event not.
        tally.add("damaged between kills, killed before it was told", 1);
        if untold.replace(at).is_some() {
            let story = format!("no event names the damage of {area} at {at:#x}+{len:#x}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
    }
    // Of a pool that was killed, the journal tells all it ever met.
    let hurt: Vec<Range> = injuries.iter().map(|injury| (injury.at, injury.len)).collect();
    let result = match state {
        State::Closed => nobody_accused(&zones, &events, &hurt, medium),
        State::Killed { .. } => Ok(()),
    };
    drop(pool);
    result
}

/// Each event is about something that was `hurt`. A kill may also tear a copy of a table, or of the
/// journal, and that is told.
fn nobody_accused(
    regions: &[Region],
    events: &[Event],
    hurt: &[Range],
    medium: &impl Medium,
) -> Judged<()> {
    let zones = || regions.iter().filter(|region| region.kind == RegionKind::Zone);
    let within = |zone: &Region, at| (zone.start..zone.start + zone.len).contains(&at);
    let elsewhere = |event: &Event| !zones().any(|zone| within(zone, event.at));
    let may_be_torn = |event: &Event| {
        elsewhere(event) && matches!(event.wrong, Some(Wrong::Mirror { .. } | Wrong::Log))
    };
    zones().try_for_each(|zone| {
        let is_its = |event: &&Event| within(zone, event.at) || elsewhere(event);
        let its = events.iter().filter(|event| !may_be_torn(event)).filter(is_its);
        accused(zone, &its.copied().collect::<Vec<_>>(), hurt, medium)
    })
}

/// Number of the last event of a pool that is closed.
pub(super) fn last_event(path: &Path) -> Judged<u64> {
    let opened = open(path);
    let (pool, _) = opened.map_err(|error| Violation::new(Fault::Refused, error))?;
    let medium = pool.medium();
    let events = Journal::open(medium, &pool.superblock()).read_all(medium);
    Ok(events.last().map_or(0, |event| event.sequence))
}
