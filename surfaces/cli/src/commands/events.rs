//! `events`: the journal of a pool, or of a protected file, once or as it grows.

use std::time::Duration;

use holdfast::protect::{ProtectOptions, ProtectedFile, Unsure, side_path};
use holdfast::{Event, Observer, Outcome as Came};
use serde_json::{Value, json};

use crate::args::EventsArgs;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, count};
use crate::size::{show_nanos, show_time};

/// How often a followed journal is read.
const EACH: Duration = Duration::from_millis(100);
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Where the events come from.
enum Journal {
    Pool(Box<Observer>),
    /// Of a file: its side file, or a region of a pool.
    File(Box<ProtectedFile>),
}

impl Journal {
    /// A name that has a side file and is no pool is that of a protected file.
    fn of(args: &EventsArgs) -> Outcome<Self> {
        let side = args.side.clone().unwrap_or_else(|| side_path(&args.pool));
        let asked = args.side.is_some() || args.pool_of.is_some();
        let pool = Observer::open(&args.pool);
        if !asked && (pool.is_ok() || !side.exists()) {
            return Ok(Self::Pool(Box::new(pool?)));
        }
        let mut options = ProtectOptions::new();
        options = args.side.iter().fold(options, |options, side| options.side(side));
        options = args.pool_of.iter().fold(options, |options, pool| options.pool(pool));
        Ok(Self::File(Box::new(ProtectedFile::look_beside(&args.pool, &options)?)))
    }

    fn from(&self, next: u64) -> Outcome<Vec<Event>> {
        match self {
            Self::Pool(observer) => Ok(observer.events_from(next)?),
            Self::File(file) => {
                let mut events = file.events();
                events.retain(|event| event.sequence >= next);
                Ok(events)
            }
        }
    }

    /// Why a page of a file became undecided.
    fn why(&self, event: &Event) -> Option<Unsure> {
        let file = matches!(self, Self::File(_)) && event.outcome == Came::Undecided;
        let code = u8::try_from(event.object).ok().filter(|_| file)?;
        Unsure::of_code(code, event.at)
    }

    fn json(&self, event: &Event) -> Value {
        let mut all = event_json(event);
        if let (Self::File(_), Some(fields)) = (self, all.as_object_mut()) {
            let why = self.why(event);
            fields.remove("object");
            fields.insert("page".to_owned(), (event.at / PAGE).into());
            fields.insert("reason".to_owned(), why.map(Unsure::code).into());
            fields.insert("why".to_owned(), why.map(|why| why.to_string()).into());
        }
        all
    }

    fn line(&self, event: &Event) -> String {
        match self.why(event) {
            Some(why) => format!("{}: {why}", line(event)),
            None => line(event),
        }
    }
}

/// Prints events.
pub(crate) fn events(out: Out, args: &EventsArgs) -> Outcome {
    let journal = Journal::of(args)?;
    let mut next = args.from;
    let mut printed = 0_u64;
    loop {
        for event in journal.from(next)? {
            if next > 0 && event.sequence > next && printed > 0 {
                let missed = count(event.sequence - next, "event");
                out.note(format!("missed {missed}, overwritten before they were read"));
            }
            next = event.sequence + 1;
            printed += 1;
            out.item("events", journal.json(&event), || journal.line(&event));
        }
        if !args.follow || crate::interrupt::asked() {
            break;
        }
        std::thread::sleep(EACH);
    }
    if printed == 0 && !args.follow {
        // An empty journal starts at any number.
        out.words(match journal.from(0)?.last() {
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
        "verified_ns": event.verified_ns,
        "object": event.object,
    })
}

pub(crate) fn line(event: &Event) -> String {
    let wrong = event.wrong.map_or_else(|| "unknown".to_owned(), |wrong| wrong.to_string());
    let verified = match event.verified_ns {
        0 => String::new(),
        ns => format!("; last verified {}", show_time(ns)),
    };
    format!(
        "{}  #{}  {} at {:#x}+{}: {wrong}, found by {}, {} in {}{verified}",
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
