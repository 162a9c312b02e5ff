//! Judges what a disk may hold after a power cut, image by image.
//!
//! Whoever makes the images (`cargo xtask lab`) has them mounted one after the other, and says of
//! each, in a line of JSON, where its pool is and how many transactions of each thread had ended by
//! then, as the marks on that disk told (`marks.rs`). Later images have no fewer. The answer is a
//! line, too.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::model::Objects;
use super::promise::{Promise, examine};
use super::victim::{Said, WORKERS, hear};
use crate::tally::{Fault, Judged, Tally, Violation};

/// An image that is to be judged.
#[derive(Debug, Clone, Deserialize)]
pub struct Image {
    /// Its pool, or whatever file is judged.
    pub pool: PathBuf,
    /// Transactions of each thread that had ended.
    pub ended: Vec<u64>,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize)]
struct Verdict {
    /// What is wrong, if anything.
    violation: Option<String>,
    /// What was counted.
    figures: BTreeMap<String, u64>,
}

/// Judges images as long as there are any. `said` is what the threads said.
#[must_use]
pub fn run(said: &Path) -> ExitCode {
    let mut told = match Told::read(said) {
        Ok(told) => told,
        Err(error) => {
            eprintln!("images: {error}");
            return ExitCode::FAILURE;
        }
    };
    serve(|image, tally| judge(&mut told, image, tally))
}

/// Has images judged as long as there are any.
#[must_use]
pub fn serve(mut judge: impl FnMut(&Image, &mut Tally) -> Judged<()>) -> ExitCode {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return ExitCode::FAILURE };
        let verdict = match serde_json::from_str::<Image>(&line) {
            Ok(image) => {
                let mut tally = Tally::default();
                let judged = judge(&image, &mut tally).err();
                let violation = judged.map(|it| format!("{:?}: {}", it.fault, it.story));
                Verdict { violation, figures: tally.figures }
            }
            Err(error) => {
                eprintln!("images: what is to be judged is not understood: {error}");
                return ExitCode::FAILURE;
            }
        };
        let Ok(answer) = serde_json::to_string(&verdict) else { return ExitCode::FAILURE };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn judge(told: &mut Told, image: &Image, tally: &mut Tally) -> Judged<()> {
    // Marks that do not go with what was said are not the engine's fault, but nothing is proven.
    told.advance(&image.ended).map_err(|error| Violation::new(Fault::Unnoticed, error))?;
    examine(&image.pool, Some(&told.promise), tally).map(drop)
}

/// What the threads said, and how much of it had been said when the image was taken.
#[derive(Debug)]
struct Told {
    threads: Vec<VecDeque<Said>>,
    ended: Vec<u64>,
    promise: Promise,
}

impl Told {
    fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut file = BufReader::new(file);
        let mut all = Vec::new();
        while let Some(said) = hear(&mut file) {
            all.push(said);
        }
        Self::of(all)
    }

    fn of(all: Vec<Said>) -> Result<Self, String> {
        let mut threads = vec![VecDeque::new(); WORKERS];
        for said in all {
            match &said {
                Said::Failed(text) => return Err(format!("the engine answered: {text}")),
                Said::Accused(text) => return Err(format!("nothing is damaged, and {text}")),
                Said::Panicked(text) => return Err(format!("a thread panicked: {text}")),
                Said::Begin(thread, _) | Said::Ack(thread) | Said::Refused(thread) => {
                    let thread = threads.get_mut(usize::from(*thread));
                    thread.ok_or("a thread that there is not said something")?.push_back(said);
                }
                _ => {}
            }
        }
        let promise = Promise::of(&Objects::default(), 0);
        Ok(Self { threads, ended: vec![0; WORKERS], promise })
    }

    /// Goes on to when so many transactions of each thread had ended. What a thread did next may
    /// be under way.
    fn advance(&mut self, to: &[u64]) -> Result<(), String> {
        if to.len() != self.threads.len() {
            return Err(format!("{} threads are marked", to.len()));
        }
        for (thread, (said, to)) in self.threads.iter_mut().zip(to).enumerate() {
            let ended = &mut self.ended[thread];
            if *to < *ended {
                return Err(format!("thread {thread}: an image from before the last one"));
            }
            while *ended < *to || matches!(said.front(), Some(Said::Begin(..))) {
                let next = said.pop_front();
                let next =
                    next.ok_or_else(|| format!("thread {thread} marked more than it said"))?;
                *ended += u64::from(!matches!(next, Said::Begin(..)));
                if !self.promise.note(next) {
                    return Err(format!("what thread {thread} said makes no sense"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::model::{Change, Object};
    use super::*;

    fn change(word: u64, byte: u8) -> Change {
        vec![(word, Some(Object { kind: 1, bytes: Arc::from(vec![byte; 8]) }))]
    }

    #[test]
    fn what_ended_binds_and_what_comes_next_may_be_there() {
        let all = vec![
            Said::Begin(0, change(64, 1)),
            Said::Begin(1, change(128, 1)),
            Said::Ack(0),
            Said::Begin(0, change(64, 2)),
            Said::Begin(0, change(64, 3)),
            Said::Ack(0),
        ];
        let mut told = Told::of(all).unwrap();
        told.advance(&[0, 0, 0]).unwrap();
        assert_eq!(told.threads.iter().map(VecDeque::len).sum::<usize>(), 4);
        // Both beginnings of the second one are known: the last of them counts.
        told.advance(&[1, 0, 0]).unwrap();
        assert_eq!(told.threads[0].len(), 1);
        assert!(told.advance(&[0, 0, 0]).is_err(), "it cannot go back");
        told.advance(&[2, 0, 0]).unwrap();
        assert!(told.advance(&[3, 0, 0]).is_err(), "more than was said");
    }

    #[test]
    fn what_the_engine_refused_is_told_at_once() {
        assert!(Told::of(vec![Said::Failed("no".to_owned())]).is_err());
        assert!(Told::of(vec![Said::Accused("no".to_owned())]).is_err());
        assert!(Told::of(vec![Said::Ack(9)]).is_err());
    }
}
