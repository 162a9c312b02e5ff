//! Sequential programs to judge by: registers and counters, an ordered map, a queue.

use std::collections::{BTreeMap, VecDeque};

use super::Spec;

/// Registers that hold numbers, by their own number; what was never written is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cells;

/// Calls on registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellOp {
    /// Reads one.
    Read(u64),
    /// Writes a number into one.
    Write(u64, u64),
    /// If the first number is there, writes the second.
    Cas(u64, u64, u64),
    /// Adds to one; answers what it came to.
    Add(u64, u64),
    /// Reads two at once.
    Both(u64, u64),
    /// Writes what the first holds into the second; answers it.
    Copy(u64, u64),
    /// Moves an amount from one to another if there is as much.
    Move {
        /// From where.
        from: u64,
        /// Where to.
        to: u64,
        /// How much.
        amount: u64,
    },
}

/// Answers of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellAnswer {
    /// It was done.
    Done,
    /// Whether it was done.
    If(bool),
    /// One number.
    Is(u64),
    /// Two numbers.
    Are(u64, u64),
    /// What no register can hold: parts of two writes.
    Torn,
}

impl Spec for Cells {
    type Op = CellOp;
    type Answer = CellAnswer;
    type State = BTreeMap<u64, u64>;

    fn apply(state: &mut Self::State, op: &CellOp) -> CellAnswer {
        let held = |state: &Self::State, of: u64| state.get(&of).copied().unwrap_or(0);
        match *op {
            CellOp::Read(of) => CellAnswer::Is(held(state, of)),
            CellOp::Write(of, value) => {
                state.insert(of, value);
                CellAnswer::Done
            }
            CellOp::Cas(of, from, to) => {
                let same = held(state, of) == from;
                if same {
                    state.insert(of, to);
                }
                CellAnswer::If(same)
            }
            CellOp::Add(of, by) => {
                let sum = held(state, of).wrapping_add(by);
                state.insert(of, sum);
                CellAnswer::Is(sum)
            }
            CellOp::Both(one, other) => CellAnswer::Are(held(state, one), held(state, other)),
            CellOp::Copy(from, to) => {
                let value = held(state, from);
                state.insert(to, value);
                CellAnswer::Is(value)
            }
            CellOp::Move { from, to, amount } => {
                let Some(left) = held(state, from).checked_sub(amount) else {
                    return CellAnswer::If(false);
                };
                state.insert(from, left);
                let sum = held(state, to).wrapping_add(amount);
                state.insert(to, sum);
                CellAnswer::If(true)
            }
        }
    }

    fn keys(op: &CellOp) -> Option<Vec<u64>> {
        Some(match *op {
            CellOp::Read(of) | CellOp::Write(of, _) | CellOp::Cas(of, ..) | CellOp::Add(of, _) => {
                vec![of]
            }
            CellOp::Both(one, other) | CellOp::Copy(one, other) => vec![one, other],
            CellOp::Move { from, to, .. } => vec![from, to],
        })
    }
}

/// An ordered map from numbers to numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries;

/// Calls on a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapOp {
    /// The value of a key.
    Get(u64),
    /// Gives a key a value; answers the one before.
    Put(u64, u64),
    /// Removes a key; answers its value.
    Take(u64),
    /// Takes the value of the first key, if there is one, and gives it to the second; answers it.
    Rename(u64, u64),
    /// Number of entries.
    Len,
    /// All entries in order.
    All,
}

/// Answers of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapAnswer {
    /// A value, or that there is none.
    Value(Option<u64>),
    /// A number of entries.
    Count(u64),
    /// Entries.
    Entries(Vec<(u64, u64)>),
    /// What no map can hold: a value that nobody put.
    Torn,
}

impl Spec for Entries {
    type Op = MapOp;
    type Answer = MapAnswer;
    type State = BTreeMap<u64, u64>;

    fn apply(state: &mut Self::State, op: &MapOp) -> MapAnswer {
        match *op {
            MapOp::Get(key) => MapAnswer::Value(state.get(&key).copied()),
            MapOp::Put(key, value) => MapAnswer::Value(state.insert(key, value)),
            MapOp::Take(key) => MapAnswer::Value(state.remove(&key)),
            MapOp::Rename(from, to) => {
                let value = state.remove(&from);
                if let Some(value) = value {
                    state.insert(to, value);
                }
                MapAnswer::Value(value)
            }
            MapOp::Len => MapAnswer::Count(state.len() as u64),
            MapOp::All => MapAnswer::Entries(state.iter().map(|(&k, &v)| (k, v)).collect()),
        }
    }

    fn keys(op: &MapOp) -> Option<Vec<u64>> {
        match *op {
            MapOp::Get(key) | MapOp::Put(key, _) | MapOp::Take(key) => Some(vec![key]),
            MapOp::Rename(from, to) => Some(vec![from, to]),
            MapOp::Len | MapOp::All => None,
        }
    }
}

/// A queue of numbers, first in, first out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue;

/// Calls on a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOp {
    /// Puts a number at its end; answers how many there are.
    Push(u64),
    /// Takes the number at its front.
    Pop,
    /// Looks at the number at its front.
    Front,
}

/// Answers of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueAnswer {
    /// How many there are.
    Count(u64),
    /// A number, or that there is none.
    Item(Option<u64>),
    /// What no queue can hold.
    Torn,
}

impl Spec for Queue {
    type Op = QueueOp;
    type Answer = QueueAnswer;
    type State = VecDeque<u64>;

    fn apply(state: &mut Self::State, op: &QueueOp) -> QueueAnswer {
        match *op {
            QueueOp::Push(item) => {
                state.push_back(item);
                QueueAnswer::Count(state.len() as u64)
            }
            QueueOp::Pop => QueueAnswer::Item(state.pop_front()),
            QueueOp::Front => QueueAnswer::Item(state.front().copied()),
        }
    }

    fn keys(_: &QueueOp) -> Option<Vec<u64>> {
        None
    }
}
