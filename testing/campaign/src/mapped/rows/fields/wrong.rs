//! What must be convicted: lies of what the engine says of pages, and of what it does to them.

use holdfast_pmem::PAGE;
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::mapped::machine::Machine;
use crate::object::wrong::{Lie, Variant, lie, or_right, told};
use crate::runner::Case;
use crate::tally::{Fault, Tally};

/// What must be convicted.
pub(super) const WRONG: &[Variant] = &[
    lie(Lie::Accuses, "a sound page is called corrupt", Fault::FalseReport),
    lie(Lie::Neighbour, "a page is in doubt for no reason", Fault::Wrong),
    lie(Lie::StaysBad, "a page that was damaged does not come back", Fault::Exposed),
    lie(Lie::Reverts, "a page is changed", Fault::Reverted),
    lie(Lie::Panics, "a look panics", Fault::Panicked),
];
/// A page of which lies are told.
const OF: u64 = 2;

/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    or_right(WRONG, case, |_, case| super::story(case, FEW), |case| super::story(case, 1))
}

/// A story with something wrong damages one in so many places.
const FEW: usize = 9;

/// What was said of a page, or a lie about it.
pub(super) fn said_as_told(page: u64, said: PageVerdict) -> PageVerdict {
    assert!(!told(Lie::Panics), "a look that panics, as somebody wanted");
    match said {
        _ if told(Lie::Accuses) && page == OF => PageVerdict::Corrupt,
        PageVerdict::Good if told(Lie::Neighbour) && page == OF => {
            PageVerdict::Undecided(Unsure::Uncovered)
        }
        said => said,
    }
}

/// Changes a page, if this lie is told.
pub(super) fn change_as_told(lie: Lie, machine: &Machine) {
    if told(lie) {
        // Whether it could be done is seen by who looks for it.
        let _ = machine.medium.flip_bit(OF * PAGE, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_wrong_variants() {
        crate::object::wrong::are_enough(WRONG);
    }
}
