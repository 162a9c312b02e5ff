//! The targets, in one table.

mod args;
mod events;
mod logs;
mod maps;
mod pointer;
mod pool;
mod side;
mod told;

use crate::drive::SLOW;
use crate::{Target, script};

/// Longest script: a head and the steps that are done.
const SCRIPT: usize = script::HEAD + crate::bed::STEPS * script::STEP;
/// A pool of half a MiB, its bed, copies of both, and tables of what is in it.
const POOL: usize = 96 << 20;
/// What needs no pool.
const SMALL: usize = 16 << 20;

/// All of them.
pub const ALL: &[Target] = &[
    Target {
        name: "open",
        story: "a damaged pool is opened, read, changed, closed and opened again",
        run: pool::open,
        mutate: script::mutate,
        seeds: || script::seeds(crate::bed::COUNT, crate::bed::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "check",
        story: "a check of a damaged pool changes nothing, and finds the same again",
        run: pool::check,
        mutate: script::mutate,
        seeds: || script::seeds(crate::bed::COUNT, crate::bed::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "repair",
        story: "a damaged pool is scrubbed; one that says clean is found clean by a check",
        run: pool::repair,
        mutate: script::mutate,
        seeds: || script::seeds(crate::bed::COUNT, crate::bed::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "logs",
        story: "records that wait for recovery are damaged or forged; what recovers does so again",
        run: logs::run,
        mutate: script::mutate,
        seeds: || script::seeds(crate::bed::RECORDS.len() as u8, crate::bed::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "side",
        story: "whatever a side file says, no byte of its data file changes",
        run: side::run,
        mutate: script::mutate,
        seeds: || script::seeds(side::BEDS, side::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "pointer",
        story: "whatever a pointer to a pool says, no byte of its data file changes",
        run: pointer::run,
        mutate: script::mutate,
        seeds: || script::seeds(pointer::WAYS, pointer::VERBS),
        longest: SCRIPT,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "events",
        story: "a damaged journal is read in order, healed to the same events, and goes on",
        run: events::run,
        mutate: script::mutate,
        seeds: || script::seeds(8, events::VERBS),
        longest: SCRIPT,
        bound: SMALL,
        slow: SLOW,
    },
    Target {
        name: "maps",
        story: "operations on each of the six maps answer what a model answers",
        run: maps::run,
        mutate: script::mutate,
        seeds: || script::seeds(maps::KINDS, maps::VERBS),
        longest: script::HEAD + 4 * crate::bed::STEPS * script::STEP,
        bound: POOL,
        slow: SLOW,
    },
    Target {
        name: "args",
        story: "a command line and a configuration are understood, or told what is wrong",
        run: args::run,
        mutate: args::mutate,
        seeds: args::seeds,
        longest: 600,
        bound: SMALL,
        slow: SLOW,
    },
    Target {
        name: "answers",
        story: "what a desk says of a file is believed if it is a row, and said the same again",
        run: told::answers,
        mutate: told::mutate_answer,
        seeds: told::answer_seeds,
        longest: 2048,
        bound: SMALL,
        slow: SLOW,
    },
    Target {
        name: "messages",
        story: "what guard and program say to each other is refused, or said the same again",
        run: told::messages,
        mutate: told::mutate_message,
        seeds: told::message_seeds,
        longest: 72,
        bound: SMALL,
        slow: SLOW,
    },
];
