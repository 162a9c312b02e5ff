//! Places of the object engine that are left out, and who has to see it.

use std::collections::BTreeSet;

use holdfast_campaign::object::killers::Killer;
use holdfast_campaign::object::killers::table::trials;
use holdfast_campaign::object::rows::mutants::{controls, sources, tried};
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
