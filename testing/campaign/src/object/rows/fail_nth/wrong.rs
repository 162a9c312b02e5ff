//! What must be convicted when calls fail: places left out that make durable what is acknowledged,
//! or whole what is left; errors that are swallowed or turn into panics, syncs tried again.

use crate::object::wrong::{Lie, Variant, lie, or_right, site};
use crate::runner::{Case, Tier};
use crate::tally::{Fault, Tally};

/// What must be convicted.
pub(super) const WRONG: &[Variant] = &[
    site("logs.ring.F1", "acknowledged before it is durable"),
    site("logs.group.F1", "acknowledged before it is durable, on a file"),
    site("object.recover.replay", "recovery replays nothing"),
    site("object.commit.patch", "parity is not kept up"),
    lie(Lie::Swallows, "what failed is acknowledged", Fault::Wrong),
    lie(Lie::Retries, "after a failed sync all goes on", Fault::Wrong),
    lie(Lie::Panics, "a call that fails ends the program", Fault::Panicked),
];
/// From one case that is played to the next: they are of different operations, in both worlds.
const STEP: u64 = 5;

/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    or_right(WRONG, case, brief, super::run)
}

/// One of the other cases.
fn brief(_: &Variant, case: &Case) -> Tally {
    let others = (super::ROW.cases)(Tier::Ci) - WRONG.len() as u64;
    super::run(&Case { number: case.number * STEP % others, ..*case })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_wrong_variants() {
        crate::object::wrong::are_enough(WRONG);
    }
}
