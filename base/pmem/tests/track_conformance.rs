//! Every dirty source meets every way to write; what happens must be what the source claims.
//!
//! Each pair runs in a forked child, on a disk's file system and in shared memory: arm, take, write
//! to one page, then ask. *Seen* must have been told, *refused* must have left the bytes alone, and
//! where the bytes changed untold, the claim must have been *undecided*. Each claim must be the one
//! that a table has for it, so that no source comes to claim less unnoticed. The matrix is printed,
//! with no blank cell; a source that this kernel lacks prints why, and its claims are not held
//! against the table.
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

use std::path::Path;

use holdfast_pmem::track::{Observed, WriteWay};

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
    let matrix: &[Story] = &[("matrix", matrix)];
    for (name, run) in [matrix, stories::STORIES, costs::STORIES].concat() {
        if filter.is_none_or(|filter| name.contains(filter.as_str())) {
            println!("story {name} ...");
            run();
        }
    }
    println!("track_conformance: ok");
}

fn matrix() {
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
                    None => cell(subject, way, folder.path()),
                };
                assert!(!cell.is_empty());
                print!("{cell:24}");
            }
            println!();
        }
        for (subject, absent) in Subject::ALL.iter().zip(&absent) {
            if let Some(why) = absent {
                println!("{} is absent: {why}", subject.name());
            }
        }
    }
    println!();
}

/// Runs one pair, judges it, and says it in words.
fn cell(subject: Subject, way: WriteWay, folder: &Path) -> String {
    let (claim, outcome) = cells::run(subject, way, folder);
    let Outcome { offered, changed, told, intact, refused } = outcome;
    let place = format!("{} under {way}: {outcome:?}, claimed {claim}", subject.name());
    // What happens may be more than what is claimed, so only this tells that a claim was given up.
    assert_eq!(claim, expected(subject, way), "{place}");
    assert!(!(changed && refused), "{place}");
    // Whatever is claimed: the way was tried, and came to something.
    assert!(!offered || changed || refused, "{place}");
    match claim {
        Observed::Seen => assert!(!offered || (changed && told && intact), "{place}"),
        Observed::Refused => assert!(refused && !changed, "{place}"),
        // The claim may be wider than what happens on this kernel, never narrower.
        Observed::Undecided => {}
    }
    let happened = match (offered, refused, told, intact) {
        (false, ..) => "not offered",
        (_, true, ..) => "refused",
        (.., false) => "not intact",
        (.., true, true) => "told",
        (.., false, true) => "untold",
    };
    format!("{claim}, {happened}")
}
