//! The journal of events: entries of which nothing is known, in two copies.

use holdfast_campaign::object::raw::sums::crc;
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::format::{EVENTS_START, SEQUENCE_MAX};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Cause, Event, Finder, Journal, Outcome};
use holdfast_redundancy::format::{EVENT_LEN, FIELDS_EVENT};
use holdfast_redundancy::mirror::Mirror;

use crate::bed::{SEALED, STEPS};
use crate::script::{Script, Step};

/// Ways in which a step damages.
pub(super) const VERBS: u8 = 4;
/// The second copy is hit.
const SECOND: u8 = 2;
/// The event is made to be one of its place.
const FITTING: u8 = 4;

const LEN: u64 = PAGE;
const ENTRIES: u64 = LEN / EVENT_LEN as u64;
const SIDE_LEN: u64 = EVENTS_START + LEN;
const SEED: u32 = 77;

/// Target `events`.
pub(super) fn run(input: &[u8]) {
    let script = Script::read(input);
    let kind = if script.head[1] & 1 == 0 { MediumKind::Shm } else { MediumKind::File };
    let copies = 1 + u32::from(script.head[1] >> 1 & 1);
    let mirror = Mirror { seed: SEED, side_len: SIDE_LEN, copies };
    let m = FaultMedium::new(2 * SIDE_LEN, kind, &Config::default());
    let journal = Journal::open_at(&m, mirror, LEN);
    for number in 0..u64::from(script.head[0]) % (2 * ENTRIES) {
        journal.append(&m, &event(number)).expect("no page is bad");
    }
    drop(journal);
    for step in script.steps.iter().take(STEPS) {
        damage(&m, step);
    }
    judge(&m, mirror);
}

fn judge(m: &FaultMedium, mirror: Mirror) {
    let journal = Journal::open_at(m, mirror, LEN);
    let all = journal.read_all(m);
    assert!(all.len() as u64 <= journal.capacity(), "more than it can hold");
    assert!(all.windows(2).all(|two| two[0].sequence < two[1].sequence), "not in order");
    if let Some(middle) = all.get(all.len() / 2) {
        let later = journal.read_from(m, middle.sequence);
        assert_eq!(later, all[all.len() / 2..], "from its middle on");
    }
    let _ = journal.heal(m);
    assert_eq!(journal.read_all(m), all, "healed");
    assert!(journal.heal(m).is_empty(), "healed again");
    let done = journal.append(m, &event(9)).expect("no page is bad");
    let last = all.last().map_or(0, |event| event.sequence);
    assert_eq!(done.sequence, last + 1, "the next number");
    let found = journal.read_all(m).last().map(|event| event.sequence);
    // Behind the last number there is, a journal takes no more.
    let wanted = if last < SEQUENCE_MAX { Some(last + 1) } else { Some(last) };
    assert!(found == wanted || last >= SEQUENCE_MAX, "the new event: {found:?}, not {wanted:?}");
    let again = Journal::open_at(m, mirror, LEN);
    assert_eq!(again.read_all(m), journal.read_all(m), "opened again");
}

fn damage(m: &FaultMedium, step: &Step) {
    let second = if step.has(SECOND) { SIDE_LEN } else { 0 };
    let place = u64::from(step.place) % ENTRIES * EVENT_LEN as u64;
    let at = second + EVENTS_START + place;
    let mut entry = [0; EVENT_LEN];
    m.read(at, &mut entry).expect("no page is bad");
    let field = &FIELDS_EVENT[usize::from(step.flags >> 4) % FIELDS_EVENT.len()];
    let (from, len) = (field.at as usize, (field.len as usize).min(8));
    let value = step.value.to_le_bytes();
    match step.verb % VERBS {
        0 => entry[from..from + len].copy_from_slice(&value[..len]),
        1 => entry[from] ^= value[0] | 1,
        2 => {
            // The same place of the other copy, or that of another entry.
            let other = step.value % ENTRIES * EVENT_LEN as u64;
            m.read(EVENTS_START + other, &mut entry).expect("no page is bad");
        }
        _ => entry.fill(value[0]),
    }
    if step.has(FITTING) {
        let number = step.value - step.value % ENTRIES + place / EVENT_LEN as u64;
        entry[8..16].copy_from_slice(&number.to_le_bytes());
    }
    if step.has(SEALED) {
        let sum = crc(crc(SEED, &place.to_le_bytes()), &entry[4..]);
        entry[..4].copy_from_slice(&sum.to_le_bytes());
    }
    m.stray(at, &entry).expect("inside");
}

fn event(number: u64) -> Event {
    Event {
        sequence: 0,
        time_ns: number,
        cause: Cause::Sum,
        finder: Finder::Scrub,
        at: number << 12,
        len: 64,
        wrong: None,
        before_sum: 1,
        after_sum: 2,
        outcome: Outcome::Repaired,
        duration_ns: 3,
        object: 0,
        verified_ns: 0,
    }
}
