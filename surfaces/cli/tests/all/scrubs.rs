//! Scrubs that run in an owner: followed while they run, paused, gone on with by another process,
//! given up; and what cannot be stopped because it does not run.

use std::process::{Child, ChildStdin};

use crate::common::{Here, ended, owner_listens, until};
use serde_json::Value;

/// A process that has the pool open until its input ends.
fn owner(here: &Here) -> (Child, ChildStdin) {
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-"]);
    let lines = owner.stdin.take().unwrap();
    owner_listens(here, "a.pool");
    assert!(here.good(&["pool", "info", "a.pool"]).out.contains("in use by"));
    (owner, lines)
}

fn status(here: &Here) -> Value {
    here.json(0, &["scrub", "status", "a.pool"])
}

/// Waits until the owner says this of its scrub. If it is too late with its answer, the record
/// tells how far the scrub was when that was written.
fn until_told(here: &Here, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut told = Value::Null;
    until(what, || {
        told = status(here);
        told["by"] == "owner" && is(&told)
    });
    told
}

/// Starts a scrub in the owner that takes long, and waits until it is some way in.
fn start_slowly(here: &Here) -> Value {
    here.good(&["scrub", "start", "a.pool", "--rate", "1M"]);
    until_told(here, "a scrub that runs", |now| now["next"].as_u64().unwrap() > 0)
}

#[test]
fn a_scrub_in_an_owner_is_followed_paused_and_gone_on_with() {
    let here = Here::new();
    here.pool("a.pool");
    let (child, lines) = owner(&here);
    let first = start_slowly(&here);
    assert_eq!((&first["state"], &first["by"]), (&"running".into(), &"owner".into()), "{first}");
    assert_eq!(first["pass"], 1);
    // The owner tells more than the record, which is written every so many steps.
    until_told(&here, "a step of the scrub", |now| now["next"] != first["next"]);
    let told = here.json(8, &["scrub", "start", "-w", "a.pool"]);
    assert!(told["error"]["cause"].as_str().unwrap().contains("running already"), "{told}");
    let paused = here.json(0, &["scrub", "pause", "a.pool"]);
    assert_eq!((&paused["state"], &paused["by"]), (&"paused".into(), &"owner".into()), "{paused}");
    assert_eq!(status(&here)["next"], paused["next"]);
    // Nothing runs any more.
    let told = here.json(8, &["scrub", "pause", "a.pool"]);
    assert_eq!(told["error"]["kind"], "not-found", "{told}");
    drop(lines);
    assert_eq!(ended(child).code, 0);
    // The position is the pool's, not the process'.
    let after = status(&here);
    assert_eq!((&after["state"], &after["by"]), (&"paused".into(), &"record".into()), "{after}");
    assert_eq!(after["next"], paused["next"]);
    here.good(&["scrub", "resume", "-w", "a.pool"]);
    let end = status(&here);
    assert_eq!((&end["pass"], &end["state"]), (&1.into(), &"idle".into()), "{end}");
}

#[test]
fn a_pass_that_went_on_elsewhere_is_told_as_a_whole() {
    let here = Here::new();
    here.pool("a.pool");
    here.good(&["inject", "bitflip", "a.pool", "--part", "object", "--count", "4"]);
    let (child, lines) = owner(&here);
    // What the first part finds, objects being looked at first, was found before the second.
    here.good(&["scrub", "start", "a.pool", "--rate", "1M"]);
    until_told(&here, "a repair of them all", |now| now["repaired"] == 4);
    let paused = here.json(0, &["scrub", "pause", "a.pool"]);
    assert_eq!(paused["state"], "paused", "{paused}");
    let objects = paused["objects"].as_u64().unwrap();
    assert!(objects > 0 && paused["object_bytes"].as_u64().unwrap() > objects, "{paused}");
    drop(lines);
    assert_eq!(ended(child).code, 1, "its pool was damaged, and is no more");
    // Code 1: damage was found and repaired, in this pass if not by this command.
    let told = here.json(1, &["scrub", "resume", "a.pool"]);
    assert_eq!(
        (&told["found"], &told["repaired"], &told["lost"]),
        (&4.into(), &4.into(), &0.into())
    );
    let end = status(&here);
    for name in ["found", "repaired", "lost", "undecided", "objects", "object_bytes"] {
        assert_eq!(end[name], told[name], "{name}: {end} {told}");
    }
    let column_bytes = told["column_bytes"].as_u64().unwrap();
    assert!(column_bytes > paused["scanned"].as_u64().unwrap(), "{told}");
    // A pass of its own finds the objects again, and nothing else.
    let next = here.json(0, &["scrub", "start", "a.pool"]);
    for name in ["objects", "object_bytes", "column_bytes"] {
        assert_eq!(next[name], told[name], "{name}: {next} {told}");
    }
    assert_eq!(next["found"], 0);
}

#[test]
fn a_scrub_that_is_given_up_starts_from_the_front() {
    let here = Here::new();
    here.pool("a.pool");
    let (child, lines) = owner(&here);
    // One that runs.
    start_slowly(&here);
    let told = here.good(&["scrub", "cancel", "a.pool"]).out;
    assert!(told.contains("starts from the front"), "{told}");
    assert_eq!(status(&here)["state"], "cancelled");
    assert_eq!(here.json(8, &["scrub", "cancel", "a.pool"])["error"]["kind"], "not-found");
    // One that is paused in its owner.
    start_slowly(&here);
    here.good(&["scrub", "pause", "a.pool"]);
    let told = here.json(0, &["scrub", "cancel", "a.pool"]);
    assert_eq!((&told["state"], &told["by"]), (&"cancelled".into(), &"owner".into()), "{told}");
    // One that is paused in a pool that nobody has open.
    start_slowly(&here);
    here.good(&["scrub", "pause", "a.pool"]);
    drop(lines);
    assert_eq!(ended(child).code, 0);
    let told = here.json(8, &["scrub", "pause", "a.pool"]);
    assert!(
        told["error"]["cause"].as_str().unwrap().contains("nobody has the pool open"),
        "{told}"
    );
    let told = here.json(0, &["scrub", "cancel", "a.pool"]);
    assert_eq!((&told["state"], &told["by"]), (&"cancelled".into(), &"command".into()), "{told}");
    assert_eq!(told["pass"], 3);
    here.json(8, &["scrub", "cancel", "a.pool"]);
    here.good(&["scrub", "resume", "-w", "a.pool"]);
    assert_eq!(status(&here)["pass"], 4, "a new pass");
}

#[test]
fn a_scrub_whose_process_died_is_called_interrupted_and_goes_on() {
    let here = Here::new();
    here.pool("a.pool");
    let (mut child, _lines) = owner(&here);
    start_slowly(&here);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(status(&here)["state"], "interrupted");
    here.good(&["scrub", "resume", "-w", "a.pool"]);
    let end = status(&here);
    assert_eq!((&end["pass"], &end["state"]), (&1.into(), &"idle".into()), "{end}");
}
