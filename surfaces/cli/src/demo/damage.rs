//! Damage under live queries: another process injects, two threads query and change the pool, and
//! every answer is held against the index in plain memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use holdfast::anatomy::Anatomy;
use holdfast::{NamedMap, Observer, Pool, ScrubOptions, VerifyReads};

use super::child::InjectorProcess;
use super::corpus::{Corpus, Postings};
use super::index::Index;
use super::tally::Tally;
use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::progress::Progress;
use crate::rng::Rng;

/// Faults injected at a time; no two of them can add up.
const ROUND: u64 = 60;
/// How long queries run over the damage before a scrub looks for the rest.
const MEET: Duration = Duration::from_millis(40);
/// Pause between two changes of the writer.
const WRITE_EACH: Duration = Duration::from_millis(5);
/// One query in so many asks for a word that is nowhere.
const ABSENT_EACH: u64 = 20;

/// What queries and changes under damage came to.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) queries: AtomicU64,
    pub(crate) wrong: AtomicU64,
    /// Queries that ended with an error instead of an answer.
    pub(crate) refused: AtomicU64,
    pub(crate) changes: AtomicU64,
    /// The first refusal, in words.
    pub(crate) refusal: Mutex<Option<String>>,
}

impl Answers {
    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    fn refuse(&self, why: &Failure) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.get_or_insert_with(|| why.to_string());
    }
}

/// The pool being served, and the truth it is held against.
pub(crate) struct Service<'a> {
    pool: &'a Pool,
    index: &'a Index,
    corpus: &'a Corpus,
    seed: u64,
    vocabulary: Vec<&'a str>,
    visits: NamedMap<str, u64>,
    /// How often the writer changed each word.
    truth: Mutex<BTreeMap<&'a str, u64>>,
    /// Where stripes are: for telling what an event is about.
    anatomy: Anatomy,
    file: File,
}

impl<'a> Service<'a> {
    /// Serves `pool`, which lies at `path`.
    pub(crate) fn new(
        pool: &'a Pool,
        index: &'a Index,
        corpus: &'a Corpus,
        path: &'a Path,
        seed: u64,
    ) -> Outcome<Self> {
        let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Self {
            pool,
            index,
            corpus,
            seed,
            vocabulary: corpus.index.keys().map(String::as_str).collect(),
            visits: pool.map("visits")?,
            truth: Mutex::default(),
            anatomy: Observer::open(path)?.anatomy()?,
            file,
        })
    }

    /// Injects at least `count` faults in rounds, under queries whose reads verify by `policy`.
    pub(crate) fn endure(
        &self,
        out: Out,
        injector: &mut InjectorProcess,
        (policy, parts): (VerifyReads, &str),
        count: u64,
        tally: &mut Tally,
    ) -> Outcome<Answers> {
        self.pool.set_verify_reads(policy);
        let answers = Answers::default();
        let stop = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            let asking = scope.spawn(|| self.ask(&answers, &stop));
            // Changes decide by what they read: without verified reads they may decide wrong.
            let always = policy == VerifyReads::Always;
            let changing = always.then(|| scope.spawn(|| self.change(&answers, &stop)));
            let ended = self.rounds(out, injector, (parts, count), tally);
            stop.store(true, Ordering::Release);
            let joined =
                asking.join().is_ok() && changing.is_none_or(|changing| changing.join().is_ok());
            ended.and_then(|()| {
                let cause = "a thread of the demo panicked";
                if joined { Ok(()) } else { Err(Failure::new("system", cause, "report it")) }
            })
        });
        ended.map(|()| answers)
    }

    fn rounds(
        &self,
        out: Out,
        injector: &mut InjectorProcess,
        (parts, count): (&str, u64),
        tally: &mut Tally,
    ) -> Outcome<()> {
        let before = tally.all.injected;
        let progress = Progress::things(out, "damaging", count);
        // A page that stays bad takes the place of a whole frame: once, by itself.
        let mut order = match parts {
            "live" => "inject 1 objects unclearable".to_owned(),
            _ => format!("inject {ROUND} {parts} any"),
        };
        while tally.all.injected - before < count {
            self.round(out, injector, &order, tally)?;
            progress.at(tally.all.injected - before);
            let rest = (count + before).saturating_sub(tally.all.injected).min(ROUND);
            order = format!("inject {rest} {parts} any");
            if crate::interrupt::asked() {
                return Err(super::interrupted());
            }
        }
        Ok(())
    }

    /// Injects, lets queries meet the damage, scrubs, and judges.
    fn round(
        &self,
        out: Out,
        injector: &mut InjectorProcess,
        order: &str,
        tally: &mut Tally,
    ) -> Outcome<()> {
        let known = self.pool.events().last().map_or(0, |event| event.sequence);
        let faults = injector.order(order)?;
        if faults.is_empty() {
            let cause = "there was no live byte to damage";
            return Err(Failure::new("invalid", cause, "give more text"));
        }
        thread::sleep(MEET);
        self.pool.scrub(ScrubOptions::default(), |_, _| {})?;
        let events = self.pool.events_from(known + 1);
        let counts = tally.judge(&faults, &events, &self.anatomy, &self.file);
        if out.verbose > 1 && counts.missed + counts.lost > 0 {
            faults.iter().for_each(|fault| out.note(fault.to_string()));
            events.iter().for_each(|event| out.note(event.to_string()));
        }
        Ok(())
    }

    /// Asks for words until told to stop.
    fn ask(&self, answers: &Answers, stop: &AtomicBool) {
        let mut rng = Rng::new(self.seed, 0xa5c);
        let nowhere = Postings::new();
        while !stop.load(Ordering::Acquire) {
            let Some(&word) = rng.pick(&self.vocabulary) else { return };
            let absent = rng.below(ABSENT_EACH) == 0;
            let (word, truth) = match self.corpus.index.get(word) {
                Some(postings) if !absent => (word.to_owned(), postings),
                _ => (format!("{word} and nothing else"), &nowhere),
            };
            answers.queries.fetch_add(1, Ordering::Relaxed);
            match self.index.query(&word) {
                Ok(found) if found == *truth => {}
                Ok(_) => {
                    answers.wrong.fetch_add(1, Ordering::Relaxed);
                }
                Err(why) => answers.refuse(&why),
            }
        }
    }

    /// Changes the pool until told to stop: commits go on while it is damaged and repaired.
    fn change(&self, answers: &Answers, stop: &AtomicBool) {
        let mut rng = Rng::new(self.seed, 0xc4a);
        while !stop.load(Ordering::Acquire) {
            let Some(&word) = rng.pick(&self.vocabulary) else { return };
            let map = self.visits.map();
            let changed = self.pool.run(|tx| {
                let count = map.get(tx, word)?.unwrap_or(0) + 1;
                map.put(tx, word, &count).map(|_| count)
            });
            let mut truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
            let expected = truth.entry(word).or_default();
            match changed {
                Ok(count) => {
                    *expected += 1;
                    answers.changes.fetch_add(1, Ordering::Relaxed);
                    if count != *expected {
                        answers.wrong.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(why) => answers.refuse(&why.into()),
            }
            drop(truth);
            thread::sleep(WRITE_EACH);
        }
    }

    /// Compares the whole pool with the truth: every word, every count. Number of differences.
    pub(crate) fn compare_all(&self) -> Outcome<u64> {
        let mut wrong = 0;
        for (word, truth) in &self.corpus.index {
            wrong += u64::from(self.index.query(word)? != *truth);
        }
        let truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        for (word, truth) in truth.iter().filter(|(_, count)| **count > 0) {
            wrong += u64::from(self.visits.get(word)? != Some(*truth));
        }
        Ok(wrong)
    }
}
