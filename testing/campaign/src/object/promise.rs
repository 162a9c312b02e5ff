//! What a process promised about a pool before it was ended, and whether that is there.
//!
//! The process says what it is about to do and what was acknowledged (`victim.rs`). Afterwards the
//! pool is opened, read by the second reader as well, compared, checked and scrubbed.

use std::path::Path;

use holdfast_layout::RawPtr;
use holdfast_object::{Pool, ScrubControl, ScrubOptions};
use holdfast_oracle::acked::{Acked, Ticket};
use holdfast_pmem::Mapped;
use holdfast_txn::Transaction;

use super::driver::agree;
use super::model::{Change, Objects, name};
use super::raw::{Bytes, Scope, survey};
use super::scenes::refused;
use super::victim::{Said, WORKERS, divide, open};
use super::wrong::serve_as_told;
use crate::tally::{Fault, Judged, Tally, Violation};

/// The pool as a kill left it, beside the one that was opened since.
pub const LEFT: &str = "pool.left";

/// What the threads of the process said.
#[derive(Debug, Default)]
pub struct Promise {
    logs: Vec<Acked<Objects>>,
    /// What each thread has asked for and not heard of.
    open: Vec<Option<(Ticket, Change)>>,
    /// What went wrong in the process.
    pub failures: Vec<Violation>,
}

impl Promise {
    /// That these objects are there, and nothing else.
    #[must_use]
    pub fn of(objects: &Objects, anchor: u64) -> Self {
        let logs = divide(objects, anchor).into_iter().map(Acked::new).collect();
        Self { logs, open: vec![None; WORKERS], failures: Vec::new() }
    }

    /// Takes down what was said; `false` if it makes no sense.
    pub fn note(&mut self, said: Said) -> bool {
        let ended = match &said {
            Said::Begin(thread, _) | Said::Ack(thread) | Said::Refused(thread) => *thread,
            Said::Failed(text) => {
                self.failures.push(Violation::new(Fault::Refused, text.as_str()));
                return true;
            }
            Said::Panicked(text) => {
                self.failures.push(Violation::new(Fault::Panicked, text.as_str()));
                return true;
            }
            Said::Accused(text) => {
                self.failures.push(Violation::new(Fault::FalseReport, text.as_str()));
                return true;
            }
            _ => return true,
        };
        let thread = usize::from(ended);
        let (Some(log), Some(open)) = (self.logs.get_mut(thread), self.open.get_mut(thread)) else {
            return false;
        };
        let ticket = open.take().map(|(ticket, _)| ticket);
        match said {
            Said::Ack(_) => ticket.is_some_and(|ticket| log.ack(ticket).is_ok()),
            Said::Refused(_) => ticket.is_none_or(|ticket| log.refuse(ticket).is_ok()),
            Said::Begin(_, change) => {
                // A second beginning is the same transaction once more, after a conflict.
                let again = ticket.is_none_or(|ticket| log.refuse(ticket).is_ok());
                *open = Some((log.begin(change.clone()), change));
                again
            }
            _ => true,
        }
    }

    /// Compares what was found. Every object belongs to one of the threads.
    fn verify(&self, found: &Objects) -> Judged<u64> {
        let mut parts = vec![Objects::default(); self.logs.len()];
        for (word, object) in found.iter() {
            let makes = |change: &Change| change.iter().any(|(other, _)| *other == word);
            let knows = |thread: &usize| {
                self.logs[*thread].model().get(word).is_some()
                    || self.open[*thread].as_ref().is_some_and(|(_, change)| makes(change))
            };
            // Where one thread frees, and nobody has heard of it yet, another may have allocated.
            let made = |change: &Change| {
                change.iter().any(|(w, o)| (*w, o.as_ref()) == (word, Some(object)))
            };
            let expects = |thread: &usize| {
                self.logs[*thread].model().get(word) == Some(object)
                    || self.open[*thread].as_ref().is_some_and(|(_, change)| made(change))
            };
            let threads = 0..self.logs.len();
            let Some(thread) =
                threads.clone().find(expects).or_else(|| threads.clone().find(knows))
            else {
                let story = format!("{} was never asked for", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            };
            parts[thread].insert(word, object.clone());
        }
        for (thread, (log, part)) in self.logs.iter().zip(&parts).enumerate() {
            agree(log, part).map_err(|v| v.during(format!("thread {thread}")))?;
        }
        Ok(self.logs.iter().map(Acked::acked).sum())
    }
}

/// Opens what the process left, compares, checks and scrubs it, and closes it. Answers what is
/// promised from here on.
///
/// # Errors
/// What is not as it was promised.
pub fn judge(path: &Path, promise: Option<&Promise>, tally: &mut Tally) -> Judged<Promise> {
    let kept = std::fs::copy(path, path.with_file_name(LEFT));
    kept.map_err(|error| Violation::new(Fault::Refused, format!("{LEFT}: {error}")))?;
    examine(path, promise, tally)
}

/// The same without a copy of what was left.
///
/// # Errors
/// What is not as it was promised.
pub fn examine(path: &Path, promise: Option<&Promise>, tally: &mut Tally) -> Judged<Promise> {
    let opened = open(path);
    let (pool, opened) = opened.map_err(|error| Violation::new(Fault::Refused, error))?;
    tally.add("records replayed", opened.recovered.replayed);
    let found = survey(&Bytes::of(pool.medium()), Scope::ALL)
        .ok_or_else(|| Violation::new(Fault::Wrong, "no superblock verifies"))?;
    if let Some((exposed, what)) = found.complaint() {
        let fault = if exposed { Fault::Exposed } else { Fault::Wrong };
        return Err(Violation::new(fault, what));
    }
    if let Some(promise) = promise {
        tally.add("transactions acknowledged", promise.verify(&found.objects)?);
    }
    if found.log_chunks > 0 {
        let story = format!("{} log chunks are left after the open", found.log_chunks);
        return Err(Violation::new(Fault::Wrong, story));
    }
    let report = pool.check(|_, _| {}).map_err(|error| refused("check", &error))?;
    if !report.is_clean() {
        // The second reader has just found everything whole.
        let story = format!("a check finds {:?}", report.findings.first());
        return Err(Violation::new(Fault::FalseReport, story));
    }
    served(&pool, &found.objects)?;
    let done = pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {});
    let done = done.map_err(|error| refused("scrub", &error))?;
    if done.report.found > 0 || done.lost > 0 || done.repaired > 0 {
        let story = format!("the scrub found {:?}", done.report.findings.first());
        return Err(Violation::new(Fault::FalseReport, story));
    }
    Ok(Promise::of(&found.objects, found.anchor))
}

/// The engine serves what the second reader found.
fn served(pool: &Pool<Mapped>, objects: &Objects) -> Judged<()> {
    for (word, object) in objects.iter() {
        let mut bytes = vec![0; object.bytes.len()];
        let read = pool.run(|tx| tx.read_bytes(RawPtr::from_word(word), 0, &mut bytes));
        read.map_err(|error| refused(&format!("reading {}", name(word)), &error))?;
        serve_as_told(&mut bytes);
        if bytes[..] != object.bytes[..] {
            let story = format!("reading {} gave something else", name(word));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::Object;
    use super::*;

    fn change(word: u64, byte: u8) -> Change {
        vec![(word, Some(Object { kind: 1, bytes: Arc::from(vec![byte; 8]) }))]
    }

    fn holding(changes: &[Change]) -> Objects {
        let mut objects = Objects::default();
        for (word, object) in changes.iter().flatten() {
            objects.insert(*word, object.clone().expect("a change that makes something"));
        }
        objects
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_nothing_half() {
        let mut promise = Promise::of(&Objects::default(), 0);
        for said in [
            Said::Begin(0, change(64, 1)),
            Said::Ack(0),
            Said::Begin(1, change(128, 2)),
            // Once more after a conflict, then killed.
            Said::Begin(1, change(192, 3)),
        ] {
            assert!(promise.note(said));
        }
        let found = |changes: &[Change]| promise.verify(&holding(changes));
        assert_eq!(found(&[change(64, 1)]), Ok(1));
        assert_eq!(found(&[change(64, 1), change(192, 3)]), Ok(1));
        assert!(found(&[]).is_err(), "an acknowledged change is lost");
        assert!(found(&[change(64, 1), change(192, 4)]).is_err(), "a change is torn");
        assert!(found(&[change(64, 1), change(128, 2)]).is_err(), "one taken back is there");
        assert!(found(&[change(64, 1), change(256, 5)]).is_err(), "one is invented");
    }

    #[test]
    fn what_the_process_says_was_called_damaged_is_a_false_report() {
        let mut promise = Promise::of(&Objects::default(), 0);
        assert!(promise.note(Said::Accused("a scrub found something".to_owned())));
        assert!(promise.note(Said::Failed("no".to_owned())));
        let faults: Vec<Fault> = promise.failures.iter().map(|failure| failure.fault).collect();
        assert_eq!(faults, [Fault::FalseReport, Fault::Refused]);
    }

    #[test]
    fn a_place_may_be_another_threads_before_it_is_known_to_be_free() {
        let mut promise = Promise::of(&Objects::default(), 0);
        for said in [
            Said::Begin(0, change(64, 1)),
            Said::Ack(0),
            Said::Begin(0, vec![(64, None)]),
            Said::Begin(1, change(64, 2)),
        ] {
            assert!(promise.note(said));
        }
        let found = |changes: &[Change]| promise.verify(&holding(changes));
        assert!(found(&[change(64, 1)]).is_ok(), "neither has happened");
        assert!(found(&[]).is_ok(), "it was freed");
        assert!(found(&[change(64, 2)]).is_ok(), "both have happened");
        assert!(found(&[change(64, 3)]).is_err(), "nobody wrote that");
        // Once the second is acknowledged, what the first had there is gone.
        assert!(promise.note(Said::Ack(1)));
        let found = |changes: &[Change]| promise.verify(&holding(changes));
        assert!(found(&[change(64, 2)]).is_ok());
        assert!(found(&[change(64, 1)]).is_err(), "an acknowledged change is lost");
    }
}
