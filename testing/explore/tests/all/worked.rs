//! The worked example: the planted fault is found, named and explained; the mended queue passes.

use holdfast_explore::{Hinge, Mode, Replay};

use crate::queue::explorer;

/// Line of the example that has this text, from 1 on.
fn line(text: &str) -> u32 {
    let source = include_str!("../../examples/queue.rs");
    let found = source.lines().position(|line| line.contains(text));
    found.expect("the example has this line") as u32 + 1
}

#[test]
fn the_report_names_the_missing_fence_and_the_stores_around_it() {
    let report = explorer(false).run();
    let failure = report.failure.as_ref().expect("a fence is missing");
    assert_eq!(failure.sequence, ["push 7"], "one push is enough");
    let Hinge::NoFence { first, then, fence } = failure.hinge else { panic!("{report}") };
    // The fence belongs between the item, its complement here, and the count.
    assert!([line("store_u64(at, item)"), line("at + 8, !item")].contains(&first.place.line()));
    assert_eq!(then.place.line(), line("store_u64(PUSHED, pushed + 1)"));
    let late = fence.expect("the one after the count");
    assert!(late.place.line() > then.place.line() && late.place.line() < then.place.line() + 4);
    assert!(then.place.file().ends_with("queue.rs"));
    assert_eq!(failure.mended, Some(true), "a fence there is all that is missing");
    // Reduced: the count alone had arrived, one word of the item was missing.
    assert_eq!((failure.arrived.len(), failure.missing.len()), (1, 1), "{report}");
    assert_eq!(failure.mode, Mode::Words);
    assert_eq!(failure.on_x86, Some(true), "the words lie in different lines");
    let text = report.to_string();
    for part in
        ["no fence between the store at", "queue.rs:", "HOLDFAST_REPLAY='hasty-queue;mode=words"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_line_of_the_wrong_queue_does_not_accuse_the_right_one() {
    let line = explorer(false).run().failure.expect("a fence is missing").replay;
    let again = explorer(false).replay(&line).failure.expect("the same crash");
    assert!(matches!(again.hinge, Hinge::NoFence { .. }), "{again}");
    let right = explorer(true).replay(&line);
    assert!(right.failure.is_none() && !right.is_clean(), "{right}");
    // Nor if somebody gives both the same name: before the fence the count is not stored yet.
    let right = explorer(true).replay(&Replay { name: "queue".to_owned(), ..line });
    assert!(right.failure.is_none() && !right.is_clean(), "{right}");
    assert!(right.to_string().contains("the replay line names a unit"), "{right}");
}

#[test]
fn the_mended_queue_passes_and_needs_all_of_its_flushes_and_fences() {
    let elisions = explorer(true).elisions();
    elisions.assert_all_needed();
    let report = elisions.whole;
    // 3 of one, 9 of two, 20 of three.
    assert_eq!(report.sequences, 32);
    assert!(report.images > 50 && report.redundant.is_empty(), "{report}");
    assert_eq!(elisions.tried.len(), 6, "three flushes and three fences");
}
