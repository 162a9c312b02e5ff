//! `events`: the journal of a pool, once or as it grows.

use std::time::Duration;

use holdfast::{Event, Observer};
use serde_json::{Value, json};

use crate::args::EventsArgs;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, count};
use crate::size::{show_nanos, show_time};

/// How often a followed journal is read.
const EACH: Duration = Duration::from_millis(100);

/// Prints events.
pub(crate) fn events(out: Out, args: &EventsArgs) -> Outcome {
    let observer = Observer::open(&args.pool)?;
    let mut next = args.from;
    let mut printed = 0_u64;
    loop {
        for event in observer.events_from(next)? {
            if next > 0 && event.sequence > next && printed > 0 {
                let missed = count(event.sequence - next, "event");
                out.note(format!("missed {missed}, overwritten before they were read"));
            }
            next = event.sequence + 1;
            printed += 1;
            out.item("events", event_json(&event), || line(&event));
        }
        if !args.follow || crate::interrupt::asked() {
            break;
        }
        std::thread::sleep(EACH);
    }
    if printed == 0 && !args.follow {
        // An empty journal starts at any number.
        out.words(match observer.events_from(0)?.last() {
            Some(last) => {
                format!("no events from number {} on: the last is {}", args.from, last.sequence)
            }
            None => "no events: nothing was ever found damaged".to_owned(),
        });
    }
    Ok(Exit::CLEAN)
}

/// An event as an object.
pub(crate) fn event_json(event: &Event) -> Value {
    json!({
        "sequence": event.sequence,
        "time_ns": event.time_ns,
        "cause": event.cause.to_string(),
        "finder": event.finder.to_string(),
        "at": event.at,
        "len": event.len,
        "wrong": event.wrong.map(|wrong| wrong.to_string()),
        "before_sum": event.before_sum,
        "after_sum": event.after_sum,
        "outcome": event.outcome.to_string(),
        "duration_ns": event.duration_ns,
        "object": event.object,
    })
}

pub(crate) fn line(event: &Event) -> String {
    let wrong = event.wrong.map_or_else(|| "unknown".to_owned(), |wrong| wrong.to_string());
    format!(
        "{}  #{}  {} at {:#x}+{}: {wrong}, found by {}, {} in {}",
        show_time(event.time_ns),
        event.sequence,
        event.cause,
        event.at,
        event.len,
        event.finder,
        event.outcome,
        show_nanos(event.duration_ns),
    )
}
