//! Judges of a storm beyond tolerance: nothing wrong is served, nothing is lost beside the damage,
//! what is lost is named, and the rest is in use.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_layout::RawPtr;
use holdfast_object::{Error, ScrubControl, ScrubOptions};
use holdfast_oracle::acked::{Acked, Model};
use holdfast_redundancy::events::{Event, Journal, Outcome};
use holdfast_txn::TxError;
use holdfast_workloads::Rng;

use super::chaos::Chaos;
use super::exposed::{Exposed, Places};
use crate::object::driver::Driver;
use crate::object::model::{Object, Objects, name};
use crate::object::ops::{Job, Op};
use crate::object::rows::damage::{domains, zone_of};
use crate::object::rows::spared::Range;
use crate::object::scenes::refused;
use crate::object::toil;
use crate::object::wrong::{Lie, serve_as_told, told};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Bytes of an object, as the engine serves them, or a lie about it.
fn served(driver: &Driver, word: u64, exposed: &Exposed) -> Result<Object, Error> {
    let found = toil::served(&driver.pool, word)?;
    if told(Lie::Neighbour) && !exposed.has(word, found.bytes.len() as u64) {
        return Err(Error::Tx(TxError::Lost { object: RawPtr::from_word(word) }));
    }
    let mut bytes = found.bytes.to_vec();
    serve_as_told(&mut bytes);
    Ok(Object { bytes: bytes.into(), ..found })
}

/// Nothing may be lost that has no part in what was hurt.
fn beside(word: u64, len: u64, exposed: &Exposed) -> Judged<()> {
    if exposed.has(word, len) {
        return Ok(());
    }
    let story = format!("{} is called lost or in doubt, and nothing of it was hurt", name(word));
    Err(Violation::new(Fault::FalseReport, story))
}

/// Objects that are not served.
#[derive(Debug, Default)]
struct Refused {
    lost: BTreeSet<u64>,
    doubtful: BTreeSet<u64>,
    /// The last change of so many is in the log alone.
    unstored: u64,
}

/// Reads every object: right, or refused for a reason that may be.
fn all_served(
    driver: &Driver,
    promise: &Acked<Objects>,
    exposed: &Exposed,
    (stopped, ended): (bool, bool),
) -> Judged<Refused> {
    // What was under way when it stopped may have been done, or not.
    let (objects, mut done) = (promise.model(), promise.model().clone());
    promise.under_way().for_each(|change| done.apply(change));
    let mut refusals = Refused::default();
    for (word, object) in objects.iter() {
        match served(driver, word, exposed) {
            Ok(found) if found == *object => {}
            Ok(found) if done.get(word) == Some(&found) => {}
            Err(_) if stopped && done.get(word).is_none() => {}
            // Its last change is in the log alone.
            Err(Error::Tx(TxError::ReadOnly)) if ended => refusals.unstored += 1,
            Ok(_) => {
                let story = format!("a wrong byte of {} was served", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
            Err(Error::Tx(TxError::Lost { .. })) => {
                refusals.lost.insert(word);
            }
            Err(Error::Tx(TxError::InDoubt { .. })) => {
                refusals.doubtful.insert(word);
            }
            Err(error) => return Err(refused(&format!("reading {}", name(word)), &error)),
        }
    }
    Ok(refusals)
}

/// Each change that was under way was made, or was not, in all that is served.
fn together(driver: &Driver, promise: &Acked<Objects>) -> Judged<()> {
    let mut done = promise.model().clone();
    promise.under_way().for_each(|change| done.apply(change));
    let words: BTreeSet<u64> =
        promise.model().iter().chain(done.iter()).map(|(word, _)| word).collect();
    let mut found = BTreeMap::new();
    for word in words {
        match toil::served(&driver.pool, word) {
            Ok(object) => found.insert(word, Some(object)),
            Err(Error::Tx(TxError::Dangling { .. })) => found.insert(word, None),
            // For others to judge.
            Err(_) => None,
        };
    }
    let is_so = |state: &Objects| found.iter().all(|(word, it)| state.get(*word) == it.as_ref());
    if promise.explains(is_so) {
        return Ok(());
    }
    let story = "what is served is that of no changes made whole".to_owned();
    Err(Violation::new(Fault::Wrong, story))
}

/// What a crash left is served as it was promised. Answers how many objects are lost or in doubt;
/// each of them has a part where something was hurt, and the journal names it.
pub(super) fn served_as_promised(
    driver: &Driver,
    promise: &Acked<Objects>,
    exposed: &Exposed,
) -> Judged<u64> {
    let ended = driver.pool.is_read_only();
    let Refused { lost, doubtful, .. } = all_served(driver, promise, exposed, (true, ended))?;
    together(driver, promise)?;
    let objects = promise.model();
    for word in lost.iter().chain(&doubtful) {
        let len = objects.get(*word).map_or(1, |object| object.bytes.len() as u64);
        beside(*word, len, exposed)?;
    }
    let unserved = (lost.len() + doubtful.len()) as u64;
    if ended {
        // It tells nothing any more.
        return Ok(unserved);
    }
    // Who has just read it has told it anew, as a rule by the page of what it needs. Where that is,
    // the pool itself knows best.
    let known = exposed.also(Places::of(driver));
    let journal = Journal::open(&driver.medium, &driver.pool.superblock());
    let events = journal.read_all(&driver.medium);
    named((objects, &known), &lost, &events, Outcome::Lost)?;
    named((objects, &known), &doubtful, &events, Outcome::Undecided)?;
    Ok(unserved)
}

/// All that is served is right; what is lost says so, and an event names it; the rest is in use.
///
/// `refusals` are the objects that the threads were refused. Answers of how many the last change is
/// in the log alone, where writing has ended.
pub(super) fn contained(
    driver: &Driver,
    chaos: &Chaos<'_>,
    refusals: &BTreeSet<u64>,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<u64> {
    // A file that could not be written is not written any more: what is served is right all the
    // same, and who opens it again has the rest.
    let ended = driver.pool.is_read_only();
    if ended {
        tally.add("beyond tolerance: pools not written any more", 1);
    } else {
        let control = ScrubControl::default();
        let scrubbed = driver.pool.scrub(ScrubOptions::default(), &control, |_, _| {});
        scrubbed.map_err(|error| refused("scrub", &error))?;
    }
    let (exposed, dead) = (chaos.exposed(), chaos.dead());
    let objects = driver.ledger.objects();
    let len = |word| objects.get(word).map_or(1, |object| object.bytes.len() as u64);
    for named in refusals {
        let (word, len) = meant(&objects, &exposed, *named);
        let hurt = |v: Violation| v.during(chaos.hurt_over(word, len));
        beside(word, len, &exposed).map_err(hurt).map_err(|v| v.during("while threads worked"))?;
    }
    let Refused { lost, doubtful, unstored } =
        all_served(driver, &driver.ledger.promise(), &exposed, (ended, ended))?;
    for word in lost.iter().chain(&doubtful) {
        let hurt = |v: Violation| v.during(chaos.hurt_over(*word, len(*word)));
        beside(*word, len(*word), &exposed).map_err(hurt)?;
    }
    let unknown = lost.iter().chain(&doubtful).filter(|word| exposed.is_unknown(**word)).count();
    tally.add("beyond tolerance: objects lost of whose parts nothing is known", unknown as u64);
    tally.add("beyond tolerance: objects lost and named", lost.len() as u64);
    tally.add("beyond tolerance: objects in doubt and named", doubtful.len() as u64);
    let unserved = lost.len() + doubtful.len() + unstored as usize;
    tally.add("beyond tolerance: objects served", (objects.len() - unserved) as u64);
    if ended {
        return Ok(unstored);
    }
    match chaos.events() {
        Some(events) => {
            let objects = (&objects, &exposed);
            named(objects, &lost, &events, Outcome::Lost)?;
            named(objects, &doubtful, &events, Outcome::Undecided)?;
        }
        None => tally.add("beyond tolerance: storms with more events than the journal holds", 1),
    }
    let safe: Vec<(u64, u64)> = objects
        .iter()
        .filter(|(word, _)| !lost.contains(word) && !doubtful.contains(word))
        .filter(|(word, _)| *word != driver.anchor)
        .map(|(word, object)| (word, object.bytes.len() as u64))
        .collect();
    in_use(driver, &safe, (&exposed, &dead), rng, tally)?;
    Ok(0)
}

/// Which object a refusal is about, and how long it is. It may name the first of the bytes that are
/// lost, of an object that is freed by now: then it is as long as its place.
fn meant(objects: &Objects, exposed: &Exposed, named: u64) -> (u64, u64) {
    if let Some(object) = objects.get(named) {
        return (named, object.bytes.len() as u64);
    }
    let at = RawPtr::from_word(named).offset();
    let mut all = objects.iter().map(|(word, object)| (word, object.bytes.len() as u64));
    let of = |(word, len): &(u64, u64)| at.wrapping_sub(RawPtr::from_word(*word).offset()) < *len;
    all.find(of).unwrap_or_else(|| (named, exposed.room(at).unwrap_or(1)))
}

/// Some of the objects that are `safe` are written, and read as they were written.
fn in_use(
    driver: &Driver,
    safe: &[(u64, u64)],
    (exposed, dead): (&Exposed, &BTreeSet<u64>),
    rng: &mut Rng,
    tally: &mut Tally,
) -> Judged<()> {
    let zone = zone_of(driver)?;
    for _ in 0..3 {
        let Some((of, len)) = rng.pick(safe).copied() else { break };
        let job = Job::new(rng, [Op::Write { of, from: 0, len }]);
        match driver.run(&job) {
            Err(Error::Tx(TxError::Lost { object }))
                if !dead.is_disjoint(&domains(driver, &zone, object.offset(), 1)) =>
            {
                // Nothing could make up what is stored there: parity over it cannot be had, since a
                // page of the column is bad for good.
                tally.add("beyond tolerance: writes refused for want of parity", 1);
                continue;
            }
            Err(error) => return Err(refused(&format!("{:?}", job.ops), &error)),
            Ok(_) => {}
        }
        let found = served(driver, of, exposed).map_err(|error| refused("reading", &error))?;
        if Some(&found) != driver.ledger.objects().get(of) {
            let story = format!("{} was written and reads otherwise", name(of));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}

/// Each lost object has an event that names it, or something that it needs.
fn named(
    (objects, exposed): (&Objects, &Exposed),
    lost: &BTreeSet<u64>,
    events: &[Event],
    outcome: Outcome,
) -> Judged<()> {
    let gone: Vec<&Event> = events.iter().filter(|event| event.outcome == outcome).collect();
    for word in lost {
        let at = RawPtr::from_word(*word).offset();
        let len = objects.get(*word).map_or(0, |object| object.bytes.len() as u64);
        let parts = exposed.parts(*word, len);
        let touches = |e: &&&Event, (at, len): &Range| *at < e.at + e.len && e.at < at + len;
        let names = |event: &&&Event| {
            RawPtr::from_word(event.object).offset() == at
                || parts.iter().any(|part| touches(event, part))
        };
        if !gone.iter().any(|event| names(&event)) {
            let told: Vec<String> = gone.iter().map(|event| event.to_string()).collect();
            let story = format!(
                "{} is {outcome:?} and no event names it, with its parts at {parts:x?}: {told:?}",
                name(*word)
            );
            return Err(Violation::new(Fault::Unnoticed, story));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::wrong::made_up;
    use holdfast_pmem::PAGE;

    fn lost(at: u64) -> Event {
        Event { outcome: Outcome::Lost, ..made_up((at, PAGE)) }
    }

    #[test]
    fn a_refusal_is_about_the_whole_object_in_which_something_is_lost() {
        let (word, other) = (RawPtr::new(9 * PAGE - 64, 7).word(), RawPtr::new(9 * PAGE, 0).word());
        let mut objects = Objects::default();
        let places = [9 * PAGE - 64, 9 * PAGE + 64, 10 * PAGE].map(|at| (at, (PAGE, PAGE)));
        let places = Places { parts: places.into_iter().collect(), ..Places::default() };
        let exposed = Exposed::by(Vec::new(), [places, Places::default()]);
        let nameless = RawPtr::new(9 * PAGE - 64, 0).word();
        assert_eq!(meant(&objects, &exposed, nameless), (nameless, 128), "freed since");
        assert_eq!(meant(&objects, &exposed, other), (other, 1), "no place begins there");
        objects.insert(word, Object { kind: 1, bytes: vec![7; 100].into() });
        for named in [word, nameless, other] {
            assert_eq!(meant(&objects, &exposed, named), (word, 100));
        }
    }

    #[test]
    fn the_page_of_a_slot_names_the_object_though_the_slot_is_gone() {
        let word = RawPtr::new(9 * PAGE, 1).word();
        let mut objects = Objects::default();
        objects.insert(word, Object { kind: 1, bytes: vec![7; 64].into() });
        let parts = [(9 * PAGE, (5 * PAGE + 64, 6 * PAGE))].into_iter().collect();
        let places = Places { parts, ..Places::default() };
        let nothing = || [Places::default(), Places::default()];
        let exposed = Exposed::by(vec![(5 * PAGE, PAGE)], nothing());
        let gone = BTreeSet::from([word]);
        let is_named = |exposed: &Exposed, at| {
            named((&objects, exposed), &gone, &[lost(at)], Outcome::Lost).is_ok()
        };
        assert!(!is_named(&exposed, 5 * PAGE), "nobody has seen where its slot is");
        // Seen before the first fault, after the last one, or once it was opened again.
        let before = Exposed::by(Vec::new(), [places.clone(), Places::default()]);
        let after = Exposed::by(Vec::new(), [Places::default(), places.clone()]);
        for known in [before, after, exposed.also(places)] {
            assert!(is_named(&known, 5 * PAGE) && is_named(&known, 9 * PAGE));
            assert!(!is_named(&known, 7 * PAGE));
        }
    }
}
