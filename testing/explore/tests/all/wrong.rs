//! Seeded wrong variants: each must be convicted, with the hinge that names what is wrong.

use holdfast_explore::{Failure, Hinge};

use crate::transfer::{Wrong, explorer};

fn convicted(wrong: Wrong) -> Failure {
    let report = explorer(wrong).run();
    report.failure.unwrap_or_else(|| panic!("{wrong:?} went unseen"))
}

#[test]
fn what_is_right_passes_at_every_depth() {
    let budget = holdfast_explore::Budget::default();
    let report = explorer(Wrong::Nothing).nested(2, budget).samples(8, 3).run();
    report.assert_clean();
    assert!(report.nested.iter().all(|&images| images > 0), "{report}");
}

#[test]
fn a_missing_fence_is_named() {
    let failure = convicted(Wrong::NoFence);
    let Hinge::NoFence { first, then, .. } = failure.hinge else { panic!("{failure}") };
    assert!(first.place.line() < then.place.line(), "{failure}");
    assert_eq!(failure.mended, Some(true), "{failure}");
    assert!(failure.sequence.len() == 1 && failure.crashes.len() == 1, "{failure}");
}

#[test]
fn a_missing_flush_is_named() {
    let failure = convicted(Wrong::NoFlush);
    assert!(matches!(failure.hinge, Hinge::NoFlush { .. }), "{failure}");
    assert_eq!(failure.mended, Some(true), "{failure}");
}

#[test]
fn data_before_its_record_is_the_wrong_order() {
    let failure = convicted(Wrong::DataFirst);
    // Each of the two values may arrive alone, and the record that would tell comes later.
    assert!(matches!(failure.hinge, Hinge::NotAtomic { .. }), "{failure}");
    assert!(failure.to_string().contains("transfer.rs:"), "{failure}");
}

#[test]
fn publishing_before_persisting_is_seen() {
    let failure = convicted(Wrong::PublishBeforePersist);
    let Hinge::NoFence { first, then, .. } = failure.hinge else { panic!("{failure}") };
    assert!(first.place.line() < then.place.line(), "{failure}");
    // All in one line: today's processors keep the order, the contract does not.
    assert_eq!(failure.on_x86, Some(false), "{failure}");
}

#[test]
fn a_check_computed_from_damage_is_seen() {
    let failure = convicted(Wrong::CheckAfterDamage);
    assert_eq!(failure.sequence.len(), 1, "{failure}");
    assert!(failure.arrived.len() + failure.missing.len() <= 2, "{failure}");
}

#[test]
fn a_recovery_that_cannot_be_repeated_needs_a_crash_within_it() {
    let alone = explorer(Wrong::NotIdempotent).nested(0, holdfast_explore::Budget::default());
    alone.run().assert_clean();
    let failure = convicted(Wrong::NotIdempotent);
    assert_eq!(failure.crashes.len(), 2, "{failure}");
    assert!(failure.to_string().contains("crash in the recovery, just before"), "{failure}");
}
