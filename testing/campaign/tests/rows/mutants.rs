//! Places of the object engine that are left out, and who has to see it.

use std::collections::BTreeSet;

use holdfast_campaign::object::killers::table::trials;
use holdfast_campaign::object::killers::{Killer, Made, healed, jury};
use holdfast_campaign::object::rows::mutants::{
    PASSED, control, controls, convict_names, sources, tried,
};
use holdfast_campaign::tally::Tally;

#[test]
fn the_sources_and_the_table_name_the_same_places() {
    let mut tally = Tally::default();
    sources(&mut tally);
    assert!(tally.violations.is_empty(), "{:?}", tally.violations);
    assert!(tally.lines.is_empty(), "the sources are there");
}

#[test]
fn killers_have_different_names() {
    let names: BTreeSet<String> = controls().iter().map(Killer::name).collect();
    assert_eq!(names.len(), controls().len());
    for (_, killers) in trials() {
        assert!(!killers.is_empty());
    }
}

#[test]
fn a_place_that_does_nothing_survives() {
    let (_, killers) = trials().next().expect("there are trials");
    let tally = tried(&("object.no.such-place", killers), 1);
    assert_eq!(tally.violated(), 1);
}

/// A story that ends wrong whatever is switched off.
const ALWAYS: Killer = Killer::Made(Made {
    name: "always",
    world: "shm-p",
    story: |_, _| Err(jury::wrong("this is wrong by itself")),
});

#[test]
fn what_is_wrong_without_the_place_kills_nobody() {
    let tally = tried(&("object.no.such-place", &[ALWAYS]), 1);
    assert!(!tally.figures.contains_key("mutants killed"), "{:?}", tally.lines);
    assert_eq!(tally.violated(), 1);
    assert!(tally.violations[0].story.contains("did not pass it"), "{:?}", tally.violations);
}

#[test]
fn a_control_comes_by_the_places_it_is_for() {
    let ring = Killer::Made(Made { name: "ring", world: "shm-p", story: healed::ring });
    assert_eq!(control(&ring, &BTreeSet::from(["logs.ring.heal"]), 1).violated(), 0);
    let elsewhere = BTreeSet::from(["logs.ring.heal", "logs.group.heal"]);
    let tally = control(&ring, &elsewhere, 1);
    assert_eq!(tally.violated(), 1, "{:?}", tally.violations);
    assert!(tally.violations[0].story.contains("logs.group.heal was not passed"));
}

#[test]
fn a_name_stands_for_one_line_and_each_deed_of_it_is_tried() {
    let wrong = |passed: &[&str]| {
        let mut tally = Tally::default();
        passed.iter().for_each(|passed| tally.add(format!("{PASSED}{passed}"), 1));
        convict_names(&mut tally);
        assert!(tally.figures.is_empty(), "taken out again");
        tally.violations.into_iter().map(|violation| violation.story).collect::<Vec<_>>()
    };
    let a = "redundancy.events.a:put a.rs:1:1";
    assert_eq!(wrong(&[a, "redundancy.events.a:append a.rs:2:1"]), [""; 0]);
    let twice = wrong(&[a, "redundancy.events.a:put b.rs:9:1"]);
    assert!(twice.len() == 1 && twice[0].contains("one name for a.rs:1:1 and b.rs:9:1"));
    let more = wrong(&["object.commit.data:put c.rs:1:1", "object.commit.data:drain c.rs:2:1"]);
    assert!(more.len() == 2 && more[0].contains("not tried apart"), "{more:?}");
}
