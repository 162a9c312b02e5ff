//! What must be convicted: each leaves something out on which the order of calls hangs.

use super::harm::Beside;

/// Something wrong with the engine, with what comes back after a crash, or with callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A place of the engine is switched off.
    Site(&'static str),
    /// A call is answered before it is done.
    EarlyAnswer,
    /// After a crash a change from shortly before is gone.
    LastGone,
    /// After a crash what was done last is done again.
    Twice,
    /// Compare and set, and additions, read in one transaction and write in another.
    Unlocked,
    /// A transfer is two transactions.
    Halves,
    /// Two registers are read in two transactions.
    TornLook,
    /// A thread answers from what it read before.
    Remembers,
}

/// What a wrong one is played on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bed {
    /// What is wrong.
    pub wrong: Wrong,
    /// Its name in reports.
    pub name: &'static str,
    /// The usual world.
    pub world: &'static str,
    /// Crashes of each history.
    pub crashes: u32,
    /// What is done beside the threads.
    pub beside: Beside,
}

const fn bed(wrong: Wrong, name: &'static str, world: &'static str, crashes: u32) -> Bed {
    Bed { wrong, name, world, crashes, beside: Beside::Nothing }
}

/// All of them.
pub const WRONG: &[Bed] = &[
    bed(Wrong::Site("logs.ring.F1"), "acknowledged before durable", "shm-p", 2),
    bed(Wrong::Site("logs.group.F1"), "acknowledged before durable, file", "file-p", 2),
    bed(Wrong::Site("object.commit.validate"), "reads are not validated", "shm-p", 0),
    bed(Wrong::Site("object.recover.replay"), "recovery replays nothing", "shm-pq", 2),
    bed(Wrong::EarlyAnswer, "answered before done", "shm-p", 0),
    bed(Wrong::LastGone, "recovery drops the last", "file-p", 2),
    bed(Wrong::Twice, "done twice after recovery", "shm-p", 2),
    bed(Wrong::Unlocked, "lost update", "shm-p", 0),
    bed(Wrong::Halves, "half a transfer", "file-pq", 0),
    bed(Wrong::TornLook, "a reader between two halves", "shm-p", 0),
    bed(Wrong::Remembers, "stale reads", "shm-p", 0),
    Bed {
        beside: Beside::Harm,
        ..bed(Wrong::Site("object.tx.verify-read"), "damage read", "shm-p", 0)
    },
];
