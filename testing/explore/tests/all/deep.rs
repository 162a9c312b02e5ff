//! Crashes within recoveries of recoveries.

use holdfast_explore::Budget;

use crate::transfer::{Wrong, explorer};

#[test]
fn a_fault_of_the_second_recovery_needs_depth_two() {
    let wrong = explorer(Wrong::SecondRecovery);
    wrong.clone().nested(1, Budget::default()).run().assert_clean();
    let report = wrong.nested(2, Budget::default()).run();
    let failure = report.failure.expect("the second recovery is hasty");
    assert_eq!(failure.crashes.len(), 3, "{failure}");
    assert_eq!(failure.replay.crashes.len(), 3, "{failure}");
}
