//! What must be convicted: lies of what is found in the file, and of what is done to it.

use holdfast::Event;
use holdfast::protect::{Unsure, Verified};

use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, told};
use crate::runner::Case;
use crate::tally::{Fault, Tally};

/// What must be convicted.
pub(super) const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "a sound page is called corrupt", Fault::FalseReport),
    lie(Lie::Neighbour, "a page is in doubt for no reason", Fault::Wrong),
    lie(Lie::Reverts, "a page is changed", Fault::Reverted),
    lie(Lie::StaysBad, "the damaged copy stays as it is", Fault::Exposed),
    lie(Lie::Silent, "no event tells of the copy", Fault::Unnoticed),
    lie(Lie::Scribbles, "a look changes the pointer", Fault::Wrong),
    lie(Lie::Panics, "an opening panics", Fault::Panicked),
];
const _: () = are_enough(WRONG);

/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| super::story(case, true), |case| super::story(case, false))
}

/// What a look found, or a lie about it.
pub(super) fn seen_as_told(mut seen: Verified) -> Verified {
    if told(Lie::Accuses) {
        seen.corrupt.push(2);
    }
    if told(Lie::Neighbour) {
        seen.undecided.push((2, Unsure::Uncovered));
    }
    seen
}

/// The events, or none.
pub(super) fn events_as_told(events: Vec<Event>) -> Vec<Event> {
    if told(Lie::Silent) { Vec::new() } else { events }
}
