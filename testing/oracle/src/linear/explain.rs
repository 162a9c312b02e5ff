//! Why a history cannot be explained: the shortest stretch of it that cannot, as a table in time.
//!
//! If a history is not linearizable, neither is what had happened when a certain call answered,
//! and before that moment it was. And where no call was under way, everything before comes down to
//! the states it may have ended in. What is between the two is shown.

use core::fmt;

use super::Spec;
use super::history::Span;
use super::search::{Found, Search};

/// States that are still told one by one.
const STATES: usize = 8;
/// Characters for time.
const WIDTH: usize = 40;

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Who called.
    pub thread: u32,
    /// When it began.
    pub from: u64,
    /// When it answered, or what ended it; `None` if nothing did within the stretch.
    pub to: Option<u64>,
    /// What was called.
    pub op: String,
    /// What was answered; `None` if nothing was, or nothing that counts.
    pub answer: Option<String>,
    /// Its place in the longest order that explains its answers, from 1.
    pub place: Option<usize>,
}

/// The shortest stretch of a history that no order explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// States in which it may have begun.
    pub starts: Vec<String>,
    /// Its calls, by when they began. That of them which answered last cannot be explained.
    pub calls: Vec<Shown>,
}

/// Explains why `spans`, begun in `start`, have no order.
pub(super) fn explain<S: Spec>(
    start: &S::State,
    spans: &[Span<S::Op, S::Answer>],
    most: u64,
) -> Explained {
    let starts = core::slice::from_ref(start);
    let fails = |spans: &[_]| Search::<S>::new(spans, most).order(starts) == Found::None;
    let mut ends: Vec<u64> =
        spans.iter().filter(|span| span.answer.is_some()).map(|span| span.to).collect();
    ends.sort_unstable();
    let first = ends.partition_point(|&end| !fails(&until(spans, end)));
    let stretch = ends.get(first).map_or_else(|| spans.to_vec(), |&end| until(spans, end));
    let cut = (1..stretch.len())
        .rev()
        .find(|&cut| stretch[..cut].iter().all(|span| span.to < stretch[cut].from));
    let (before, rest) = stretch.split_at(cut.unwrap_or(0));
    let begun = Search::<S>::new(before, most).ends(starts);
    match begun.filter(|states| states.len() <= STATES) {
        Some(states) => show::<S>(&states, rest, most),
        None => show::<S>(starts, &stretch, most),
    }
}

/// What had happened by `end`.
fn until<O: Clone, A: Clone>(spans: &[Span<O, A>], end: u64) -> Vec<Span<O, A>> {
    let begun = spans.iter().filter(|span| span.from <= end);
    begun
        .map(|span| match span.to <= end {
            true => span.clone(),
            false => Span { to: u64::MAX, answer: None, ..span.clone() },
        })
        .collect()
}

fn show<S: Spec>(starts: &[S::State], spans: &[Span<S::Op, S::Answer>], most: u64) -> Explained {
    let mut search = Search::<S>::new(spans, most);
    search.order(starts);
    let place = |index| search.best().iter().position(|&done| done == index).map(|at| at + 1);
    let calls = spans.iter().enumerate().map(|(index, span)| Shown {
        thread: span.thread,
        from: span.from,
        to: (span.to < u64::MAX).then_some(span.to),
        op: format!("{:?}", span.op),
        answer: span.answer.as_ref().map(|answer| format!("{answer:?}")),
        place: place(index),
    });
    let mut starts: Vec<String> = starts.iter().map(|state| format!("{state:?}")).collect();
    starts.sort();
    Explained { starts, calls: calls.collect() }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let these = if self.calls.len() == 1 { "this call" } else { "these calls" };
        writeln!(f, "no order explains {these}, begun in {}", self.starts.join(" or "))?;
        let times = self.calls.iter().flat_map(|call| [Some(call.from), call.to]).flatten();
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times.dedup();
        // Times are told by their order: what lies between two of them says nothing.
        let column = |time: u64| {
            let rank = times.partition_point(|&other| other < time);
            rank * (WIDTH - 1) / times.len().saturating_sub(1).max(1)
        };
        for call in &self.calls {
            let (from, to) = (column(call.from), call.to.map_or(WIDTH - 1, column));
            let mut bar: Vec<char> = vec![' '; WIDTH];
            bar[from..=to].fill('-');
            bar[from] = '[';
            bar[to] = match (&call.answer, call.to) {
                (Some(_), _) => ']',
                (None, Some(_)) => 'X',
                (None, None) => '>',
            };
            let place = call.place.map_or_else(|| "-".to_owned(), |place| place.to_string());
            let bar: String = bar.into_iter().collect();
            let answer = call.answer.as_deref().unwrap_or("no answer that counts");
            writeln!(f, "  {place:>3}. thread {} {bar} {} = {answer}", call.thread, call.op)?;
        }
        write!(f, "  numbers: the longest order that explains its answers; X: a crash")
    }
}
