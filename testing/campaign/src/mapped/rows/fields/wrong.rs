//! What must be convicted: lies of what the engine says of pages, and of what it does to them.

use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, site};
use crate::runner::Case;
use crate::tally::{Fault, Tally};

/// What must be convicted.
pub(super) const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "a sound page is called corrupt", Fault::FalseReport),
    lie(Lie::Neighbour, "a page is in doubt for no reason", Fault::Wrong),
    lie(Lie::StaysBad, "a page that was damaged does not come back", Fault::Exposed),
    lie(Lie::Reverts, "a page is changed", Fault::Reverted),
    lie(Lie::Silent, "no event tells of a copy of the header", Fault::Unnoticed),
    lie(Lie::Panics, "a look panics", Fault::Panicked),
    // Accepting ends it: it has to be seen before.
    lie(Lie::Forgets, "a scrub or repair leaves a page in doubt", Fault::Exposed),
    Variant { bed: "parity", ..site("mapped.scrub.verify-parity", "parity is never looked at") },
];
const _: () = are_enough(WRONG);
/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    let wrong = |variant: &Variant, case: &Case| {
        let each = if variant.bed.is_empty() { FEW } else { 1 };
        super::story(case, each, variant.bed)
    };
    or_right(WRONG, case, wrong, |case| super::story(case, 1, ""))
}

/// A story with something wrong damages one in so many places, unless it names them.
const FEW: usize = 9;
