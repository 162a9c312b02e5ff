//! Every dirty source meets every way to write; what happens must be what the source claims.
//!
//! Each pair runs in a forked child, on a disk's file system and in shared memory: arm, take, write
//! to one page, then ask. *Seen* must have been told, *refused* must have left the bytes alone, and
//! where the bytes changed untold, the claim must have been *undecided*. Each claim must be the one
//! that a table has for it, so that no source comes to claim less unnoticed. The matrix is printed,
//! with no blank cell; a source that this kernel lacks is skipped, which is printed with the
//! reason, and its claims are not held against the table.
//!
//! `cells.rs` the sources and the ways, `stories.rs` what else can happen to a mapping, `costs.rs`
//! what it costs.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "track_conformance/cells.rs"]
mod cells;
#[path = "common/mod.rs"]
mod common;
#[path = "track_conformance/costs.rs"]
mod costs;
#[path = "track_conformance/stories.rs"]
mod stories;

use std::fmt::Display;
use std::path::Path;

use holdfast_pmem::track::{Observed, TrackError, WriteWay};

use cells::{Outcome, Subject, expected};
use common::folders;

/// A test: its name and what it does.
type Story = (&'static str, fn());

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file] = args.as_slice()
        && flag == "--foreign"
    {
        cells::foreign(Path::new(file));
        return;
    }
    let filter = args.iter().find(|arg| !arg.starts_with('-'));
    let own: &[Story] = &[("only_what_is_lacking_is_skipped", lacking), ("matrix", matrix)];
    for (name, run) in [own, stories::STORIES, costs::STORIES].concat() {
        if filter.is_none_or(|filter| name.contains(filter.as_str())) {
            println!("story {name} ...");
            run();
            // Whoever reads what was skipped learns here which story did.
            println!("test track_conformance::{name} ... ok");
        }
    }
    println!("track_conformance: ok");
}

/// The line that says of a source that it is left out here.
fn skip(source: &str, why: &dyn Display) -> String {
    format!("skipped: {source} is absent: {why}")
}

/// Why this machine has no such source; nothing if something else is wrong, which is no excuse.
fn absence(error: &TrackError) -> Option<&dyn Display> {
    let lacks = matches!(error, TrackError::KernelLacks { .. } | TrackError::NoPermission { .. });
    lacks.then_some(error as &dyn Display)
}

/// A source as it was made, or nothing, said aloud, where there is none.
fn made<S>(source: &str, made: Result<S, TrackError>) -> Option<S> {
    let why = made.as_ref().err().and_then(absence);
    if let Some(why) = why {
        println!("{}", skip(source, why));
        return None;
    }
    Some(made.unwrap())
}

/// A source that cannot be made for another reason fails the story that asks for it. Nothing is
/// printed here: it would be taken for a skip.
fn lacking() {
    let lacks = TrackError::KernelLacks { what: "soft-dirty bits", since: "Linux 3.11" };
    let why = absence(&lacks).expect("it is lacking");
    assert_eq!(skip("soft dirty", why), format!("skipped: soft dirty is absent: {lacks}"));
    assert!(absence(&TrackError::NoPermission { what: "it", remedy: "none" }).is_some());
    let wrong = [
        TrackError::NotTrackable { address: 0, len: 1, why: "not mapped" },
        TrackError::Busy { what: "it" },
        TrackError::Io { call: "ioctl", source: std::io::Error::from_raw_os_error(libc::EINVAL) },
    ];
    for error in wrong {
        assert!(absence(&error).is_none(), "{error} is no excuse");
    }
}

fn matrix() {
    let mut all = Vec::new();
    for (name, folder) in ["disk", "shared memory"].iter().zip(folders()) {
        println!("\n{name}: cells are `claim, what happened`");
        print!("{:28}", "");
        for subject in Subject::ALL {
            print!("{:24}", subject.name());
        }
        println!();
        let absent = Subject::ALL.map(|subject| cells::absent(subject, folder.path()));
        for way in WriteWay::ALL {
            print!("{:28}", way.to_string());
            for (subject, absent) in Subject::ALL.into_iter().zip(&absent) {
                let cell = match absent {
                    Some(_) => "absent".to_owned(),
                    None => {
                        let cell = Cell::of(subject, way, folder.path());
                        all.push(cell);
                        cell.words()
                    }
                };
                assert!(!cell.is_empty());
                print!("{cell:24}");
            }
            println!();
        }
        for (subject, absent) in Subject::ALL.iter().zip(&absent) {
            if let Some(why) = absent {
                println!("{}", skip(subject.name(), why));
            }
        }
    }
    println!();
    tell_lies(&all);
}

/// What came of one pair.
#[derive(Debug, Clone, Copy)]
struct Cell {
    subject: Subject,
    way: WriteWay,
    claim: Observed,
    outcome: Outcome,
}

impl Cell {
    /// Runs one pair, and judges it.
    fn of(subject: Subject, way: WriteWay, folder: &Path) -> Self {
        let (claim, outcome) = cells::run(subject, way, folder);
        let cell = Self { subject, way, claim, outcome };
        assert_eq!(cell.wrong(), None, "{} under {way}: {cell:?}", subject.name());
        cell
    }

    /// What is wrong with it.
    fn wrong(&self) -> Option<&'static str> {
        let Outcome { offered, changed, told, intact, refused } = self.outcome;
        // What happens may be more than what is claimed, so only this tells that a claim was given
        // up.
        if self.claim != expected(self.subject, self.way) {
            return Some("the table has another claim");
        }
        if changed && refused {
            return Some("refused, and yet the bytes have changed");
        }
        // Whatever is claimed: the way was tried, and came to something.
        if offered && !changed && !refused {
            return Some("it came to nothing");
        }
        let seen = !offered || (changed && told && intact);
        match self.claim {
            Observed::Seen => (!seen).then_some("not seen as it was"),
            Observed::Refused => (!refused || changed).then_some("not refused"),
            // The claim may be wider than what happens on this kernel, never narrower.
            Observed::Undecided => None,
        }
    }

    /// The same in words.
    fn words(&self) -> String {
        let Outcome { offered, told, intact, refused, .. } = self.outcome;
        let happened = match (offered, refused, told, intact) {
            (false, ..) => "not offered",
            (_, true, ..) => "refused",
            (.., false) => "not intact",
            (.., true, true) => "told",
            (.., false, true) => "untold",
        };
        format!("{}, {happened}", self.claim)
    }
}

/// Of which cells a lie can be told, by their claim; how it is called; and what it makes of one.
type Lie = (Observed, &'static str, fn(&mut Cell));

/// What the judge of cells must convict, told of what has happened here.
const LIES: [Lie; 6] = [
    (Observed::Seen, "a write that nobody tells", |cell| cell.outcome.told = false),
    (Observed::Seen, "a write that loses other bytes", |cell| cell.outcome.intact = false),
    (Observed::Seen, "a write that changes nothing", |cell| cell.outcome.changed = false),
    (Observed::Seen, "a claim that was given up", |cell| cell.claim = Observed::Undecided),
    (Observed::Undecided, "a claim that is too wide", |cell| cell.claim = Observed::Seen),
    (Observed::Refused, "a refused write that went through", |cell| {
        (cell.outcome.refused, cell.outcome.changed) = (false, true);
    }),
];

/// Tells each lie of each cell that it can be told of.
fn tell_lies(all: &[Cell]) {
    for (of, name, lie) in LIES {
        let cells = all.iter().filter(|cell| cell.claim == of && cell.outcome.offered);
        let mut told = 0;
        for cell in cells {
            let mut wrong = *cell;
            lie(&mut wrong);
            assert!(wrong.wrong().is_some(), "nothing is wrong with {name}: {wrong:?}");
            told += 1;
        }
        assert!(told > 0, "there is no cell to tell of {name}");
        println!("convicted {name}, of {told} cells");
    }
    println!("{} lies convicted", LIES.len());
}
