//! Linearizability of recorded histories, with and without crashes.
//!
//! Threads note when each of their calls began and what it answered (`history.rs`). The history is
//! *linearizable* if every call can be given one instant between its beginning and its end such
//! that a naive sequential program (`Spec`), doing the calls in that order, gives the same answers.
//! It is *durably* linearizable if that holds across crashes: what was answered before a crash is
//! in it; a call that was under way took effect before the crash or never; what came after the
//! crash comes after it.
//!
//! # How it is decided
//!
//! 1. `history.rs` turns calls and crashes into *spans*: from when to when a call may take effect,
//!    and whether it has to.
//! 2. Calls that share no part of the state, directly or through others, are judged apart.
//! 3. `search.rs` tries orders depth first, and remembers which calls were done in which state: the
//!    same again cannot end otherwise.
//! 4. `explain.rs` cuts what cannot be explained down to the shortest stretch and shows it.
//!
//! Transactions that touch several objects are one call on several keys, so what is judged is
//! strict serializability where that is what calls are.

mod explain;
mod history;
mod search;
pub mod specs;
#[cfg(test)]
mod tests;

use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeMap;

pub use explain::{Explained, Shown};
pub use history::{Call, Crash, History, Ticker};

use history::Span;
use search::{Found, Search};

/// A sequential program: what calls do and answer, one after the other.
pub trait Spec {
    /// A call.
    type Op: Clone + Debug;
    /// What a call answers.
    type Answer: Clone + PartialEq + Debug;
    /// What calls change.
    type State: Clone + Eq + Hash + Debug;

    /// Does one call, and answers.
    fn apply(state: &mut Self::State, op: &Self::Op) -> Self::Answer;

    /// The parts of the state that a call looks at or changes; `None` for all of it. Calls that
    /// share no key must not influence each other.
    fn keys(op: &Self::Op) -> Option<Vec<u64>>;
}

/// What a history was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable {
        /// States looked at.
        looked: u64,
    },
    /// There is none.
    Violated(Explained),
    /// Not decided within the bound.
    Undecided {
        /// States looked at.
        looked: u64,
    },
}

/// Judges a history that begins in `start`, looking at `most` states for each part at most.
#[must_use]
pub fn judge<S: Spec>(start: &S::State, history: &History<S::Op, S::Answer>, most: u64) -> Verdict {
    let spans = history.spans();
    let mut looked = 0;
    for part in parts::<S>(&spans) {
        let mut search = Search::<S>::new(&part, most);
        let found = search.order(core::slice::from_ref(start));
        looked += search.looked();
        match found {
            Found::Order => {}
            Found::None => return Verdict::Violated(explain::explain::<S>(start, &part, most)),
            Found::TooMany => return Verdict::Undecided { looked },
        }
    }
    Verdict::Linearizable { looked }
}

/// Divides spans so that those of different parts share no key.
fn parts<S: Spec>(spans: &[Span<S::Op, S::Answer>]) -> Vec<Vec<Span<S::Op, S::Answer>>> {
    let mut above: Vec<usize> = (0..spans.len()).collect();
    let mut by_key: BTreeMap<u64, usize> = BTreeMap::new();
    let mut all = None;
    for (index, span) in spans.iter().enumerate() {
        match S::keys(&span.op) {
            Some(keys) => {
                for key in keys {
                    let other = *by_key.entry(key).or_insert(index);
                    join(&mut above, index, other);
                }
            }
            None => all = Some(index),
        }
    }
    if all.is_some() {
        return vec![spans.to_vec()];
    }
    let mut parts: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (index, span) in spans.iter().enumerate() {
        parts.entry(top(&above, index)).or_default().push(span.clone());
    }
    parts.into_values().collect()
}

fn top(above: &[usize], mut index: usize) -> usize {
    while above[index] != index {
        index = above[index];
    }
    index
}

fn join(above: &mut [usize], one: usize, other: usize) {
    let (one, other) = (top(above, one), top(above, other));
    above[one.max(other)] = one.min(other);
}
