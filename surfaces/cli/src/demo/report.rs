//! The end of the demo: one table of faults, one of facts, a verdict, and the command that repeats
//! it all.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::corpus::Corpus;
use super::damage::Answers;
use super::kills::Kills;
use super::tally::{Counts, Tally};
use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{Out, facts, numbers, table};
use crate::size::{show, show_nanos};

/// Everything the demo found out.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    command: String,
    files: u64,
    words: u64,
    distinct: u64,
    bytes: u64,
    cut: bool,
    pub(crate) medium: String,
    pub(crate) size: u64,
    /// Faults and answers while every read verified.
    pub(crate) damage: (Tally, Answers),
    /// The same while reads verified at first touch.
    pub(crate) second: (Tally, Answers),
    /// Differences between pool and truth after all damage was repaired.
    pub(crate) differences: u64,
    pub(crate) kills: Kills,
    /// Damages, and wrong answers, left at the very end.
    pub(crate) left: u64,
    times: Vec<(&'static str, Duration)>,
    pub(crate) total: Duration,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(corpus: &Corpus, args: &DemoArgs) -> Self {
        Self {
            seed: args.seed,
            command: command(args),
            files: corpus.names.len() as u64,
            words: corpus.words,
            distinct: corpus.index.len() as u64,
            bytes: corpus.bytes,
            cut: corpus.cut,
            medium: String::new(),
            size: 0,
            damage: Default::default(),
            second: Default::default(),
            differences: 0,
            kills: Kills::default(),
            left: 0,
            times: Vec::new(),
            total: Duration::ZERO,
        }
    }

    /// Does a phase and notes how long it took.
    pub(crate) fn time<T>(
        &mut self,
        out: Out,
        name: &'static str,
        phase: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        let started = Instant::now();
        let done = phase();
        self.times.push((name, started.elapsed()));
        if out.verbose > 0 {
            let how = if done.is_ok() { "done" } else { "failed" };
            out.note(format!("{name}: {how} after {:.1} s", started.elapsed().as_secs_f64()));
        }
        done
    }

    /// What must be zero and is not, in words.
    fn faults(&self) -> Vec<String> {
        let (tally, answers) = &self.damage;
        let (second, _) = &self.second;
        let zero = [
            ("wrong answers while every read verified", Answers::get(&answers.wrong)),
            ("queries refused while every read verified", Answers::get(&answers.refused)),
            ("faults missed", tally.all.missed + second.all.missed),
            ("faults beyond repair", tally.all.lost + second.all.lost),
            ("differences after repair", self.differences),
            ("acknowledged transactions lost", self.kills.lost),
            ("openings with a wrong account book", self.kills.wrong),
            ("steps at which no commit died", self.kills.survived.len() as u64),
            ("damages left at the end", self.left),
        ];
        zero.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect()
    }

    /// Whether nothing was wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.faults().is_empty()
    }

    /// Prints it.
    pub(crate) fn print(&self, out: Out) {
        out.object("demo", self.json());
        if out.json {
            return;
        }
        out.words(format!(
            "{} files, {} words ({} different), {} of text{}; pool of {} on {}, P and Q parity\n",
            self.files,
            self.words,
            self.distinct,
            show(self.bytes),
            if self.cut { " (there was more)" } else { "" },
            show(self.size),
            self.medium,
        ));
        out.answer(self.fault_table());
        out.answer(facts(&self.facts()).to_string());
        for miss in self.damage.0.misses.iter().chain(&self.second.0.misses) {
            out.answer(format!("missed: {miss}"));
        }
        let refusal = self.damage.1.refusal.lock();
        if let Some(text) = refusal.ok().and_then(|refusal| refusal.clone()) {
            out.answer(format!("refused: {text}"));
        }
        for step in &self.kills.survived {
            out.answer(format!("nobody died at {step}"));
        }
        let faults = self.faults();
        if faults.is_empty() {
            out.answer("nothing was lost, nothing was wrong");
        } else {
            out.answer(format!("WRONG: {}", faults.join(", ")));
        }
        out.answer(format!("again: {}", self.command));
    }

    fn fault_table(&self) -> String {
        let (tally, _) = &self.damage;
        let header =
            ["faults", "injected", "detected", "repaired", "lost", "overwritten", "missed"];
        let mut all = table(&header);
        let mut add = |name: &str, c: &Counts| {
            let counts = [c.injected, c.detected, c.repaired, c.lost, c.overwritten, c.missed];
            let mut cells = vec![name.to_owned()];
            cells.extend(counts.map(|count| count.to_string()));
            all.add_row(cells);
        };
        for (kind, counts) in &tally.by_kind {
            add(kind.name(), counts);
        }
        for (part, counts) in &tally.by_part {
            add(&format!("in {}", part.name()), counts);
        }
        add("all", &tally.all);
        numbers(&mut all);
        all.to_string()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let (tally, answers) = &self.damage;
        let (second, unsure) = &self.second;
        let kills = &self.kills;
        let mut nanos = tally.repair_nanos.clone();
        nanos.sort_unstable();
        let at = |part: usize| nanos.get(nanos.len().saturating_sub(1) * part / 100).copied();
        let times: Vec<String> = self
            .times
            .iter()
            .map(|(name, took)| format!("{name} {:.1} s", took.as_secs_f64()))
            .collect();
        vec![
            ("queries, every read verified", Answers::get(&answers.queries).to_string()),
            ("  wrong answers", Answers::get(&answers.wrong).to_string()),
            ("  queries refused", Answers::get(&answers.refused).to_string()),
            ("changes committed meanwhile", Answers::get(&answers.changes).to_string()),
            (
                "repairs",
                format!(
                    "{}, median {}, longest {}; {} frames moved",
                    nanos.len(),
                    show_nanos(at(50).unwrap_or(0)),
                    show_nanos(at(100).unwrap_or(0)),
                    tally.relocated
                ),
            ),
            (
                "queries, verified at first touch",
                format!("{} under {} faults", Answers::get(&unsure.queries), second.all.injected),
            ),
            (
                "  wrong or refused before a scrub",
                format!(
                    "{} or {}: damage after the first touch is served until it is found",
                    Answers::get(&unsure.wrong),
                    Answers::get(&unsure.refused)
                ),
            ),
            ("differences after repair", self.differences.to_string()),
            (
                "children killed",
                format!("{} at {} steps of commit and recovery", kills.all(), kills.by_step.len()),
            ),
            (
                "pool reopened",
                format!(
                    "{} times, {} replayed records, {} with a damaged log copy, at most {:.0} ms",
                    kills.reopened,
                    kills.replayed,
                    kills.log_faults,
                    kills.slowest.as_secs_f64() * 1e3
                ),
            ),
            ("transactions acknowledged", kills.acknowledged.to_string()),
            ("transactions lost", kills.lost.to_string()),
            ("poison", "real SIGBUS in the serving process, at the injector's request".to_owned()),
            ("time", format!("{:.1} s: {}", self.total.as_secs_f64(), times.join(", "))),
        ]
    }

    fn json(&self) -> Value {
        let counts = |c: &Counts| {
            json!({
                "injected": c.injected,
                "detected": c.detected,
                "repaired": c.repaired,
                "lost": c.lost,
                "overwritten": c.overwritten,
                "missed": c.missed,
            })
        };
        let pass = |(tally, answers): &(Tally, Answers)| {
            let kinds = tally.by_kind.iter().map(|(kind, c)| (kind.name().to_owned(), counts(c)));
            let parts = tally.by_part.iter().map(|(part, c)| (part.name().to_owned(), counts(c)));
            json!({
                "faults": counts(&tally.all),
                "by_kind": kinds.collect::<serde_json::Map<_, _>>(),
                "by_part": parts.collect::<serde_json::Map<_, _>>(),
                "frames_moved": tally.relocated,
                "queries": Answers::get(&answers.queries),
                "wrong": Answers::get(&answers.wrong),
                "refused": Answers::get(&answers.refused),
                "changes": Answers::get(&answers.changes),
            })
        };
        let millis = |took: &Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let times = self.times.iter().map(|(name, took)| ((*name).to_owned(), millis(took).into()));
        json!({
            "good": self.is_good(),
            "wrong": self.faults(),
            "seed": self.seed,
            "files": self.files,
            "words": self.words,
            "bytes": self.bytes,
            "medium": self.medium,
            "pool": self.size,
            "always": pass(&self.damage),
            "first_touch": pass(&self.second),
            "differences": self.differences,
            "kills": {
                "by_step": self.kills.by_step,
                "survived": self.kills.survived,
                "reopened": self.kills.reopened,
                "replayed": self.kills.replayed,
                "acknowledged": self.kills.acknowledged,
                "lost": self.kills.lost,
                "wrong": self.kills.wrong,
                "log_faults": self.kills.log_faults,
            },
            "left": self.left,
            "millis": times.collect::<serde_json::Map<_, Value>>(),
            "total_millis": millis(&self.total),
            "again": self.command,
            "exit": if self.is_good() { Exit::CLEAN.code() } else { Exit::LEFT.code() },
        })
    }
}

/// The command that repeats the run.
fn command(args: &DemoArgs) -> String {
    let quote = |path: &Path| {
        let text = path.display().to_string();
        if text.contains(char::is_whitespace) { format!("'{text}'") } else { text }
    };
    format!(
        "cargo run --release -- demo {} --seed {} --faults {} --kills {} --text {}",
        quote(&args.path),
        args.seed,
        args.faults,
        args.kills,
        args.text
    )
}
