//! What rows that damage every field have in common: how damage is met, how long that may take, and
//! which fields were damaged.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::runner::panic_text;
use crate::tally::{Fault, Judged, Tally, Violation};

/// How damage is met, in a pool or in a protected file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// What was closed is opened.
    Open,
    /// It is looked at, by who changes nothing.
    Check,
    /// It is scrubbed.
    Scrub,
    /// It is repaired as the command line does it, or page by page.
    Repair,
    /// It is read and changed.
    Use,
}

impl Meeting {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Open, Self::Check, Self::Scrub, Self::Repair, Self::Use];
}

/// Figures that only count which fields were damaged.
const DAMAGED: &str = "damaged ";

/// Notes that a field was damaged.
pub fn note(tally: &mut Tally, field: impl Display) {
    tally.add(format!("{DAMAGED}{field}"), 1);
}

/// Takes the notes out of the figures; each field that was `asked` for must be among them.
pub fn all_noted(tally: &mut Tally, asked: impl IntoIterator<Item = String>) {
    let mut damaged = BTreeSet::new();
    for (figure, by) in std::mem::take(&mut tally.figures) {
        match figure.strip_prefix(DAMAGED) {
            Some(field) => drop(damaged.insert(field.to_owned())),
            None => tally.add(figure, by),
        }
    }
    for field in asked.into_iter().filter(|field| !damaged.contains(field)) {
        tally.convict(Violation::new(Fault::Unnoticed, format!("{field} was never damaged")));
    }
    tally.lines.push(format!("fields damaged: {}", damaged.len()));
}

/// Does what must neither panic nor take longer than `slow`.
///
/// # Errors
/// It does.
pub fn within<T>(slow: Duration, work: impl FnOnce() -> T) -> Judged<T> {
    let begun = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.map_err(|panic| Violation::new(Fault::Panicked, panic_text(&*panic)))?;
    match begun.elapsed() {
        took if took > slow => Err(Violation::new(Fault::Hung, format!("it took {took:?}"))),
        _ => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_and_what_takes_long_are_violations() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(within(hour, || 7), Ok(7));
        let fault = |judged: Judged<()>| judged.map_err(|violation| violation.fault);
        assert_eq!(fault(within(hour, || panic!("it died"))), Err(Fault::Panicked));
        let rest = || std::thread::sleep(Duration::from_millis(2));
        assert_eq!(fault(within(Duration::ZERO, rest)), Err(Fault::Hung));
    }
}
