//! What was recorded: calls with their times, and crashes.

use core::sync::atomic::{AtomicU64, Ordering};

/// Gives times: each greater than all given before, by whichever thread.
#[derive(Debug, Default)]
pub struct Ticker(AtomicU64);

impl Ticker {
    /// The next time.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// One call of one thread. A call that answered that nothing was done is left out: if something
/// was, others cannot be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<O, A> {
    /// Who called.
    pub thread: u32,
    /// Crashes before it: the life of the machine it was made in.
    pub era: u32,
    /// What was asked for.
    pub op: O,
    /// Time taken before the call.
    pub began: u64,
    /// Time taken after it, and its answer; `None` if it never came back.
    pub answered: Option<(u64, A)>,
}

/// A crash, whose instant lies between two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Time taken before: what was answered by then has to survive.
    pub before: u64,
    /// Time taken after: what began later never happened.
    pub after: u64,
}

/// Calls in any order, and the crash at the end of each era but the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History<O, A> {
    /// All calls.
    pub calls: Vec<Call<O, A>>,
    /// The crashes: number `e` ends era `e`. The last era ends with one or without.
    pub crashes: Vec<Crash>,
}

impl<O, A> Default for History<O, A> {
    fn default() -> Self {
        Self { calls: Vec::new(), crashes: Vec::new() }
    }
}

/// A call as the checker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span<O, A> {
    pub(super) thread: u32,
    pub(super) op: O,
    /// It takes effect after this.
    pub(super) from: u64,
    /// It takes effect before this. A call without answer may also never take effect.
    pub(super) to: u64,
    /// What was answered. Of a call that a crash overtook nothing is believed.
    pub(super) answer: Option<A>,
}

impl<O: Clone, A: Clone> History<O, A> {
    /// The spans, by when they begin.
    pub(super) fn spans(&self) -> Vec<Span<O, A>> {
        let mut spans: Vec<_> = self.calls.iter().filter_map(|call| self.span(call)).collect();
        spans.sort_by_key(|span| span.from);
        spans
    }

    fn span(&self, call: &Call<O, A>) -> Option<Span<O, A>> {
        let crash = self.crashes.get(call.era as usize);
        if crash.is_some_and(|crash| call.began > crash.after) {
            return None;
        }
        let end = crash.map_or(u64::MAX, |crash| crash.after);
        let heard = call.answered.as_ref();
        let heard = heard.filter(|(at, _)| crash.is_none_or(|crash| *at < crash.before));
        let (to, answer) = match heard {
            Some((at, answer)) => (*at, Some(answer.clone())),
            None => (end, None),
        };
        Some(Span { thread: call.thread, op: call.op.clone(), from: call.began, to, answer })
    }
}
