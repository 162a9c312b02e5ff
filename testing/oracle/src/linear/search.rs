//! Looks for an order of calls that explains their answers.
//!
//! A call may come next if no other call that is still to come ended before it began. Calls
//! without an answer may come next or never: those that a crash ended are given up together, once
//! everything else of their era has its place.

use std::collections::HashSet;

use super::Spec;
use super::history::Span;

/// Whether an order was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Order,
    None,
    TooMany,
}

/// Calls that have their place, one bit each.
type Done = Box<[u64]>;

/// A point on the way: what is done, in which state, and how the way led there.
struct Node<T> {
    done: Done,
    state: T,
    /// The order so far.
    order: Vec<usize>,
}

/// One search over the calls of a part.
pub(super) struct Search<'a, S: Spec> {
    spans: &'a [Span<S::Op, S::Answer>],
    seen: HashSet<(Done, S::State)>,
    /// The order that explained most answers.
    best: Vec<usize>,
    /// States at the end of orders that explain everything, if they are asked for.
    ends: Option<HashSet<S::State>>,
    most: u64,
}

impl<'a, S: Spec> Search<'a, S> {
    pub(super) fn new(spans: &'a [Span<S::Op, S::Answer>], most: u64) -> Self {
        Self { spans, seen: HashSet::new(), best: Vec::new(), ends: None, most }
    }

    /// States looked at.
    pub(super) fn looked(&self) -> u64 {
        self.seen.len() as u64
    }

    /// The longest order found that explains its answers.
    pub(super) fn best(&self) -> &[usize] {
        &self.best
    }

    /// Looks for an order from one of these states.
    pub(super) fn order(&mut self, starts: &[S::State]) -> Found {
        let words = self.spans.len().div_ceil(64);
        let mut ways: Vec<Node<S::State>> = starts
            .iter()
            .rev()
            .map(|state| Node {
                done: vec![0; words].into(),
                state: state.clone(),
                order: Vec::new(),
            })
            .collect();
        while let Some(node) = ways.pop() {
            if self.looked() >= self.most {
                return Found::TooMany;
            }
            if !self.seen.insert((node.done.clone(), node.state.clone())) {
                continue;
            }
            if node.order.len() > self.best.len() {
                self.best.clone_from(&node.order);
            }
            let Some(frontier) = self.frontier(&node.done) else {
                match &mut self.ends {
                    None => return Found::Order,
                    Some(ends) => ends.insert(node.state),
                };
                continue;
            };
            self.next(&node, frontier, &mut ways);
        }
        Found::None
    }

    /// All states in which these calls may end; `None` if there were too many to tell.
    pub(super) fn ends(&mut self, starts: &[S::State]) -> Option<Vec<S::State>> {
        self.ends = Some(HashSet::new());
        match self.order(starts) {
            Found::TooMany => None,
            _ => self.ends.take().map(|ends| ends.into_iter().collect()),
        }
    }

    /// The first end of a call still to come, and whether that call has an answer. `None` if all
    /// that have one are done and nobody asks what else may have happened.
    fn frontier(&self, done: &Done) -> Option<(u64, bool)> {
        let left = || (0..self.spans.len()).filter(|&index| !is_done(done, index));
        let to_come = left().any(|index| self.spans[index].answer.is_some());
        if !to_come && (self.ends.is_none() || left().next().is_none()) {
            return None;
        }
        let first = left().min_by_key(|&index| {
            let span = &self.spans[index];
            (span.to, span.answer.is_none())
        })?;
        Some((self.spans[first].to, self.spans[first].answer.is_some()))
    }

    /// Adds the ways that lead on from a node; the likeliest is taken first.
    fn next(
        &self,
        node: &Node<S::State>,
        (end, answered): (u64, bool),
        ways: &mut Vec<Node<S::State>>,
    ) {
        if !answered {
            // Everything else of this era is done: what is left of it never took effect.
            let mut done = node.done.clone();
            for (index, span) in self.spans.iter().enumerate() {
                if span.to == end && span.answer.is_none() {
                    set(&mut done, index);
                }
            }
            ways.push(Node { done, state: node.state.clone(), order: node.order.clone() });
        }
        for (index, span) in self.spans.iter().enumerate().rev() {
            if is_done(&node.done, index) || span.from > end {
                continue;
            }
            let mut state = node.state.clone();
            let answer = S::apply(&mut state, &span.op);
            if span.answer.as_ref().is_some_and(|heard| *heard != answer) {
                continue;
            }
            let mut done = node.done.clone();
            set(&mut done, index);
            let mut order = node.order.clone();
            order.push(index);
            ways.push(Node { done, state, order });
        }
    }
}

fn is_done(done: &[u64], index: usize) -> bool {
    done[index / 64] >> (index % 64) & 1 == 1
}

fn set(done: &mut [u64], index: usize) {
    done[index / 64] |= 1 << (index % 64);
}
