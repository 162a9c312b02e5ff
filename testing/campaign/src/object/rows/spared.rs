//! What nothing has damaged: nobody may call it damaged, and no repair may change it. For the rows
//! that damage things; and what lies can be told of journals and repairs (`wrong.rs`).

use holdfast_layout::{RawPtr, Region};
use holdfast_pmem::Medium;
use holdfast_redundancy::events::{Event, Outcome};

use super::damage::names;
use crate::object::model::{Objects, name};
use crate::object::raw::Bytes;
use crate::object::targets::{Area, Target, Targets, parts_at};
use crate::object::wrong::{Lie, made_up, told};
use crate::tally::{Fault, Judged, Violation};

/// A range of bytes: the first, and how many.
pub(super) type Range = (u64, u64);

/// A pool before it was damaged.
pub(super) struct Spared {
    before: Bytes,
    /// What belongs to something, and is covered by a sum.
    live: Vec<Target>,
}

impl Spared {
    /// A pool that is whole.
    pub(super) fn of(before: Bytes) -> Self {
        let targets = Targets::of(&before);
        let areas = [Area::Object, Area::Slot, Area::Sum, Area::Directory];
        let live = areas.into_iter().flat_map(|area| targets.of_area(area)).collect();
        Self { before, live }
    }

    /// After a repair, and nothing else, all live bytes are as they were but for those `hurt`:
    /// what became of these is for others to judge.
    pub(super) fn untouched(&self, medium: &impl Medium, hurt: &[Range]) -> Judged<()> {
        let after = Bytes::of(medium);
        let hurt = |at: u64| hurt.iter().any(|(from, len)| at.wrapping_sub(*from) < *len);
        for Target { area, at, len } in self.live.iter().copied() {
            let (Some(old), Some(new)) = (self.before.get(at, len), after.get(at, len)) else {
                continue;
            };
            let differs = (at..).zip(old.iter().zip(new)).find(|(at, (a, b))| a != b && !hurt(*at));
            if let Some((byte, (old, new))) = differs {
                let story = format!(
                    "{area} at {at:#x}+{len:#x}: byte {byte:#x} was {old:#x}, nothing damaged it, \
                     and a repair made it {new:#x}"
                );
                return Err(Violation::new(Fault::Reverted, story));
            }
        }
        Ok(())
    }
}

/// All bytes of objects are as they must be, but for those `hurt`: what became of these is for
/// others to judge.
pub(super) fn kept(medium: &impl Medium, objects: &Objects, hurt: &[Range]) -> Judged<()> {
    let pool = Bytes::of(medium);
    let hurt = |at: u64| hurt.iter().any(|(from, len)| at.wrapping_sub(*from) < *len);
    for (word, object) in objects.iter() {
        let at = RawPtr::from_word(word).offset();
        let Some(now) = pool.get(at, object.bytes.len() as u64) else { continue };
        let mut both = (at..).zip(now.iter().zip(&*object.bytes));
        let differs = both.find(|(at, (now, right))| now != right && !hurt(*at));
        if let Some((byte, (now, right))) = differs {
            let story = format!(
                "{}: byte {byte:#x} must be {right:#x}, nothing damaged it, and after a repair it \
                 is {now:#x}",
                name(word)
            );
            return Err(Violation::new(Fault::Reverted, story));
        }
    }
    Ok(())
}

/// Each event is about something that was `hurt`, or about an object some part of which was (its
/// bytes, its slot, its sums); of a column that does not add up, about that column, and so is what
/// is in doubt because of it.
pub(super) fn accused(
    zone: &Region,
    events: &[Event],
    hurt: &[Range],
    medium: &impl Medium,
) -> Judged<()> {
    let is_about = |event: &Event| {
        let doubt = event.outcome == Outcome::Undecided;
        let event = Event { wrong: event.wrong.filter(|_| !doubt), ..*event };
        hurt.iter().any(|(at, len)| names(zone, &event, *at, *len))
    };
    let others: Vec<&Event> = events.iter().filter(|event| !is_about(event)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let touch = |(a, a_len): Range, (b, b_len): Range| a < b + b_len && b < a + a_len;
    let targets = Targets::of(&Bytes::of(medium));
    let objects = targets.of_area(Area::Object).map(|it| targets.of_object(it.at, it.len));
    let is_hurt = |part: &Target| hurt.iter().any(|range| touch((part.at, part.len), *range));
    let of_hurt: Vec<Target> =
        objects.filter(|parts| parts.iter().any(is_hurt)).flatten().collect();
    // What is in doubt may be free by the one state and an object by the other.
    let places = Targets::places(&Bytes::of(medium));
    let is_of_place = |event: &Event| {
        let at = RawPtr::from_word(event.object).offset();
        let place = places.get(&at).filter(|_| event.outcome == Outcome::Undecided);
        // Where its column does not add up, parity may be what was hurt.
        let over = |(at, len): Range, (hurt, n): Range| {
            touch((at, len), (hurt, n))
                || names(zone, &Event { at, len, wrong: None, ..*event }, hurt, n)
        };
        place.is_some_and(|place| {
            let parts = parts_at(at, *place, event.len);
            parts.iter().any(|part| hurt.iter().any(|range| over(*part, *range)))
        })
    };
    let is_of_one = |event: &Event| {
        let touches = |part: &Target| touch((part.at, part.len), (event.at, event.len));
        of_hurt.iter().any(touches) || is_of_place(event)
    };
    match others.into_iter().find(|event| !is_of_one(event)) {
        None => Ok(()),
        Some(event) => {
            let story = format!(
                "the journal says, and nothing damaged that: {event}; hurt {hurt:x?}, zone at \
                 {:#x}, rows of {:#x}",
                zone.start, zone.row_len
            );
            Err(Violation::new(Fault::FalseReport, story))
        }
    }
}

/// Events as they were read, or as a lie has them: of a pool of so many bytes.
pub(super) fn as_told(mut events: Vec<Event>, pool_len: u64) -> Vec<Event> {
    // The last byte of a pool belongs to a spare frame: nobody damages it.
    let last = made_up((pool_len - 1, 1));
    if told(Lie::Silent) {
        events.clear();
    }
    if told(Lie::Accuses) {
        events.push(last);
    }
    if told(Lie::Elsewhere) {
        let moved = |event: &mut Event| *event = Event { outcome: event.outcome, ..last };
        events.iter_mut().for_each(moved);
    }
    if told(Lie::Mended) {
        events.iter_mut().for_each(|event| event.outcome = Outcome::Repaired);
    }
    events
}

/// Has events also speak of what was damaged once, and mended since, if that lie is told.
pub(super) fn again_as_told(events: &mut Vec<Event>, mended: &[Range]) {
    if told(Lie::Again) {
        events.extend(mended.last().copied().map(made_up));
    }
}

/// After a repair: changes a byte of an object that nothing damaged, if that lie is told.
pub(super) fn revert_as_told(
    objects: &Objects,
    hurt: &[Range],
    change: impl FnOnce(u64, u8),
    medium: &impl Medium,
) {
    if !told(Lie::Reverts) {
        return;
    }
    let apart = |at: u64| hurt.iter().all(|(from, len)| at.wrapping_sub(*from) >= *len);
    let bytes = objects.iter().filter(|(_, object)| !object.bytes.is_empty());
    let mut places = bytes.map(|(word, _)| RawPtr::from_word(word).offset());
    let mut byte = [0];
    if let Some(at) = places.find(|at| apart(*at))
        && medium.read(at, &mut byte).is_ok()
    {
        change(at, !byte[0]);
    }
}
