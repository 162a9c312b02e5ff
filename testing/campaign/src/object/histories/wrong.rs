//! What must be convicted: each leaves something out on which the order of calls hangs.

use holdfast_collections::Kind;

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
    /// Compare and set, additions, and what takes from a queue read in one transaction and write in
    /// another.
    Unlocked,
    /// A transfer is two transactions; a rename of a key is.
    Halves,
    /// Two registers are read in two transactions.
    TornLook,
    /// A thread answers from what it read before.
    Remembers,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Registers.
    Registers,
    /// A map of this kind.
    Map(Kind),
    /// A queue.
    Queue,
}

/// What a wrong one is played on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bed {
    /// What is wrong.
    pub wrong: Wrong,
    /// Its name in reports.
    pub name: &'static str,
    /// What is called.
    pub on: On,
    /// The usual world.
    pub world: &'static str,
    /// Crashes of each history.
    pub crashes: u32,
    /// What is done beside the threads.
    pub beside: Beside,
}

const fn bed(wrong: Wrong, name: &'static str, world: &'static str, crashes: u32) -> Bed {
    Bed { wrong, name, on: On::Registers, world, crashes, beside: Beside::Nothing }
}

/// The same, of a map or a queue: their calls are explained by rules of their own.
const fn on(on: On, bed: Bed) -> Bed {
    Bed { on, ..bed }
}

const TREE: On = On::Map(Kind::BTree);
const HASH: On = On::Map(Kind::Hash);
const QUEUE: On = On::Queue;

/// All of them. That reads are validated shows with registers only: calls on maps and queues open
/// for change what they conclude anything from.
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
    on(TREE, bed(Wrong::Site("logs.ring.F1"), "map: acknowledged before durable", "shm-p", 2)),
    on(HASH, bed(Wrong::Site("object.recover.replay"), "map: nothing replayed", "shm-pq", 2)),
    on(TREE, bed(Wrong::LastGone, "map: recovery drops the last", "file-p", 2)),
    on(TREE, bed(Wrong::Twice, "map: done twice after recovery", "shm-p", 2)),
    on(HASH, bed(Wrong::Halves, "map: half a rename", "shm-p", 0)),
    on(QUEUE, bed(Wrong::Site("logs.ring.F1"), "queue: acknowledged too early", "shm-p", 2)),
    on(QUEUE, bed(Wrong::Site("object.recover.replay"), "queue: nothing replayed", "shm-pq", 2)),
    on(QUEUE, bed(Wrong::LastGone, "queue: recovery drops the last", "file-p", 2)),
    on(QUEUE, bed(Wrong::Twice, "queue: done twice", "shm-p", 2)),
    on(QUEUE, bed(Wrong::Unlocked, "queue: one item for two", "shm-p", 0)),
];
