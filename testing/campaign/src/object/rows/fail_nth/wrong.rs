//! What must be convicted where calls fail: steps without which what a failed call left cannot be
//! made good, and answers that are no true ones.

use super::{every_call, name_of, subjects};
use crate::object::wrong::{Lie, Variant, are_enough, lie, or_right, site};
use crate::runner::Case;
use crate::tally::{Fault, Tally};

/// A variant, and the operation and the world in which it shows.
const fn within(variant: Variant, bed: &'static str) -> Variant {
    Variant { bed, ..variant }
}

/// What must be convicted.
pub const WRONG: &[Variant] = &[
    within(site("logs.ring.F1", "a record counts before it is durable"), "write-whole in shm-p"),
    within(site("object.recover.replay", "an open replays nothing"), "write-whole in shm-p"),
    within(site("object.commit.patch", "parity is left as it was"), "write-whole in shm-p"),
    within(
        lie(Lie::Claims, "what was refused is acknowledged", Fault::Wrong),
        "write-whole in shm-p",
    ),
    within(
        lie(Lie::WritesOn, "a file is written after a failed sync", Fault::Wrong),
        "write-whole in file-p",
    ),
    within(
        lie(Lie::Accuses, "a check calls sound bytes corrupt", Fault::FalseReport),
        "check in shm-p",
    ),
    within(lie(Lie::WrongByte, "a wrong byte is lent", Fault::Wrong), "view in file-p"),
    within(lie(Lie::Panics, "a failed call panics", Fault::Panicked), "write-8 in file-pq"),
];
const _: () = are_enough(WRONG);

/// Runs a case: one of the wrong variants, or one of the others.
pub(super) fn run(case: &Case) -> Tally {
    or_right(WRONG, case, brief, super::run)
}

/// One operation in one world, with each call of the share of this story failing.
fn brief(variant: &Variant, case: &Case) -> Tally {
    let mut tally = Tally::default();
    let named = |subject: &super::Subject| name_of(subject) == variant.bed;
    let Some((scene, world)) = subjects().into_iter().find(named) else { return tally };
    let done = every_call((scene, world), case, &mut tally);
    tally.judge(done);
    tally
}
