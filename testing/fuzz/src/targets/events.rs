//! The journal of events: entries of which nothing is known, in two copies. What it must show is
//! reckoned from its bytes by other code.

use holdfast_campaign::object::raw::sums::crc;
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::format::{EVENTS_START, SEQUENCE_MAX};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Cause, Event, Finder, Journal, Outcome};
use holdfast_redundancy::format::{EVENT_LEN, FIELDS_EVENT};
use holdfast_redundancy::mirror::Mirror;

use crate::bed::{SEALED, STEPS};
use crate::lie::lie;
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
    if lie("believes all", false, |_| true) {
        m.elide_name("redundancy.events.verify");
    }
    let all = lie("read", journal.read_all(m), fewer);
    let numbers: Vec<(u64, u64)> = all.iter().map(|it| (it.sequence, it.time_ns)).collect();
    assert_eq!(numbers, certified(m, mirror.copies), "events that verify");
    if let Some(middle) = all.get(all.len() / 2) {
        let later = lie("later", journal.read_from(m, middle.sequence), fewer);
        assert_eq!(later, all[all.len() / 2..], "from its middle on");
    }
    let _ = journal.heal(m);
    if lie("heal", false, |_| true) {
        m.stray(EVENTS_START, &[0xa5; 4]).expect("inside");
    }
    assert_eq!(lie("healed", journal.read_all(m), fewer), all, "healed");
    assert!(journal.heal(m).is_empty(), "healed again");
    let done = journal.append(m, &event(9)).expect("no page is bad");
    if lie("append", false, |_| true) {
        let place = EVENTS_START + done.sequence % ENTRIES * EVENT_LEN as u64;
        for side in [0, SIDE_LEN] {
            m.stray(side + place, &[0xa5; 4]).expect("inside");
        }
    }
    let last = all.last().map_or(0, |event| event.sequence);
    let sequence = lie("number", done.sequence, |number| number + 1);
    assert_eq!(sequence, last + 1, "the next number");
    let found = journal.read_all(m).last().map(|event| event.sequence);
    // Behind the last number there is, a journal takes no more.
    let wanted = if last < SEQUENCE_MAX { Some(last + 1) } else { Some(last) };
    assert!(found == wanted || last >= SEQUENCE_MAX, "the new event: {found:?}, not {wanted:?}");
    let again = Journal::open_at(m, mirror, LEN);
    assert_eq!(lie("again", again.read_all(m), fewer), journal.read_all(m), "opened again");
}

/// Without the last.
fn fewer(mut events: Vec<Event>) -> Vec<Event> {
    events.pop();
    events
}

/// Numbers and times of the events that a journal must show, ascending, from its bytes alone: those
/// whose sum is right and which are in their place, the newer one of two copies.
fn certified(m: &FaultMedium, copies: u32) -> Vec<(u64, u64)> {
    let one = |place: u64, copy: u32| {
        let entry = read(m, u64::from(copy) * SIDE_LEN + EVENTS_START + place);
        let word = |at: usize| entry[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (sequence, time) = (word(8), word(16));
        let mine = sequence % ENTRIES == place / EVENT_LEN as u64;
        let known = (1..=SEQUENCE_MAX).contains(&sequence);
        let sum = certificate(place, &entry).to_le_bytes();
        (entry[..4] == sum && mine && known).then_some((sequence, time))
    };
    let newest = |entry: u64| {
        let place = entry * EVENT_LEN as u64;
        let first = one(place, 0);
        let second = one(place, 1).filter(|_| copies > 1);
        match (first, second) {
            (Some(a), Some(b)) if b.0 > a.0 => Some(b),
            (a, b) => a.or(b),
        }
    };
    let mut all: Vec<_> = (0..ENTRIES).filter_map(newest).collect();
    all.sort_unstable();
    all
}

fn read(m: &FaultMedium, at: u64) -> [u8; EVENT_LEN] {
    let mut entry = [0; EVENT_LEN];
    m.read(at, &mut entry).expect("no page is bad");
    entry
}

/// The sum that an entry at this place of the journal has to have.
fn certificate(place: u64, entry: &[u8; EVENT_LEN]) -> u32 {
    crc(crc(SEED, &place.to_le_bytes()), &entry[4..])
}

fn damage(m: &FaultMedium, step: &Step) {
    let second = if step.has(SECOND) { SIDE_LEN } else { 0 };
    let place = u64::from(step.place) % ENTRIES * EVENT_LEN as u64;
    let at = second + EVENTS_START + place;
    let mut entry = read(m, at);
    let field = &FIELDS_EVENT[usize::from(step.flags >> 4) % FIELDS_EVENT.len()];
    let (from, len) = (field.at as usize, (field.len as usize).min(8));
    let value = step.value.to_le_bytes();
    match step.verb % VERBS {
        0 => entry[from..from + len].copy_from_slice(&value[..len]),
        1 => entry[from] ^= value[0] | 1,
        // The same place of the other copy, or that of another entry.
        2 => entry = read(m, EVENTS_START + step.value % ENTRIES * EVENT_LEN as u64),
        _ => entry.fill(value[0]),
    }
    if step.has(FITTING) {
        let number = step.value - step.value % ENTRIES + place / EVENT_LEN as u64;
        entry[8..16].copy_from_slice(&number.to_le_bytes());
    }
    if step.has(SEALED) {
        let sum = lie("seal", certificate(place, &entry), |sum| !sum);
        entry[..4].copy_from_slice(&sum.to_le_bytes());
    }
    m.stray(at, &entry).expect("inside");
    let sealed = entry[..4] == certificate(place, &entry).to_le_bytes();
    assert!(sealed || !step.has(SEALED), "sealed, and does not verify");
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
