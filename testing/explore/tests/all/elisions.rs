//! Elision and redundancy: what nobody misses survives, and what had nothing to do is listed.

use holdfast_explore::{Redundant, SiteKind};

use crate::transfer::{Wrong, explorer};

#[test]
fn every_place_of_the_right_structure_is_needed() {
    let elisions = explorer(Wrong::Nothing).elisions();
    elisions.assert_all_needed();
    assert_eq!(elisions.tried.len(), 5, "three flushes and two fences");
    assert!(!elisions.whole.redundant.iter().any(Redundant::always), "{elisions}");
}

#[test]
fn what_is_too_much_survives_and_is_listed() {
    let elisions = explorer(Wrong::TooMuch).elisions();
    let redundant: Vec<_> = elisions.whole.redundant.iter().filter(|one| one.always()).collect();
    let kinds: Vec<SiteKind> = redundant.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [SiteKind::Flush, SiteKind::Drain], "{elisions}");
    assert!(redundant.iter().all(|one| one.place.contains("transfer.rs")), "{elisions}");
    // Either of the two does, so each of the four is spared alone.
    assert_eq!(elisions.survivors().len(), 4, "{elisions}");
}
