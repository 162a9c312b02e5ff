//! The command: lists targets, writes what to begin with, runs storms and repeats findings, all on
//! stable Rust. `cargo xtask fuzz` is where people begin.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use holdfast_codes::crc32c;
use holdfast_evidence::{Begun, Row, stop};
use holdfast_fuzz::storm::{self, Plan, Storm, Until};
use holdfast_fuzz::{Target, drive, find, memory, targets};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// Runs fuzz targets without libFuzzer.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Names of all targets, with the longest input of each.
    List,
    /// Writes the inputs that a target begins with into a folder.
    Seeds {
        /// The target.
        #[arg(value_parser = names())]
        target: String,
        /// Where to.
        folder: PathBuf,
    },
    /// Runs one input: the bytes of a file, or hexadecimal digits.
    Replay {
        /// The target.
        #[arg(value_parser = names())]
        target: String,
        /// A file, or digits.
        input: String,
    },
    /// Runs mutated inputs, without looking at what they cover.
    Storm(Storming),
}

#[derive(Debug, clap::Args)]
struct Storming {
    /// Only these targets.
    #[arg(value_name = "TARGET", value_parser = names())]
    targets: Vec<String>,
    /// Seconds of each target on one thread.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = some())]
    seconds: u64,
    /// So many runs of each target instead, however long they take.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = some())]
    runs: Option<u64>,
    /// Where chance begins.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Go on with the input of this number: the last line of each target tells the next.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = far())]
    from: u64,
    /// Threads.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = several())]
    jobs: u64,
    /// Where the committed inputs are.
    #[arg(long, default_value = "testing/fuzz/corpus", value_name = "DIR")]
    corpus: PathBuf,
    /// Print a JSON object for each target, with what it found, and nothing else.
    #[arg(long)]
    json: bool,
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
}

/// A number that is not zero: a storm of nothing would find nothing, and pass.
fn some() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

/// A number that others come after.
fn far() -> clap::builder::RangedU64ValueParser {
    // Rows of the list of runs end at twice that, and are refused only when all is done.
    clap::value_parser!(u64).range(..1 << 47)
}

/// As many threads as may be of use anywhere.
fn several() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1024)
}

/// Names of targets.
fn names() -> clap::builder::PossibleValuesParser {
    targets::ALL.iter().map(|target| target.name).collect::<Vec<_>>().into()
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody reads it: there is nobody to tell that.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(16) } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.command, &mut Out(io::stdout())) {
        Ok(true) if stop::asked() => ExitCode::from(stop::CANCELLED),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            complain(&why);
            ExitCode::from(8)
        }
    }
}

/// Where the lines go that are asked for.
struct Out<W>(W);

impl<W: Write> Out<W> {
    /// One more line. That nobody reads on is no error: whoever closed a pipe has read enough, and
    /// what is run counts all the same.
    fn say(&mut self, line: impl Display) -> Result<(), String> {
        match writeln!(self.0, "{line}").and_then(|()| self.0.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("the standard output cannot be written to: {error}"))
            }
            _ => Ok(()),
        }
    }
}

/// Says what went wrong, if anybody listens.
fn complain(why: &str) {
    let _ = writeln!(io::stderr(), "holdfast-fuzz: {why}");
}

/// Does it; `false` if the law was broken.
fn run(command: Command, out: &mut Out<impl Write>) -> Result<bool, String> {
    let told = |error: io::Error| error.to_string();
    match command {
        Command::List => {
            for Target { name, longest, story, .. } in targets::ALL {
                out.say(format_args!("{name} {longest} {story}"))?;
            }
            Ok(true)
        }
        Command::Seeds { target, folder } => {
            std::fs::create_dir_all(&folder).map_err(told)?;
            for (number, input) in (named(&target)?.seeds)().iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{number:03}")), input).map_err(told)?;
            }
            Ok(true)
        }
        Command::Replay { target, input } => {
            let bytes = match std::fs::read(Path::new(&input)) {
                Ok(bytes) => bytes,
                Err(error) => digits(&input).ok_or_else(|| format!("{input}: {error}"))?,
            };
            let played = drive::play(named(&target)?, &bytes);
            let said = match &played {
                Ok((time, most)) => {
                    out.say(format_args!("{target}: fine, {time:?}, {most} bytes at once"))
                }
                Err(finding) => out.say(finding),
            };
            verdict(played.is_ok(), said)
        }
        Command::Storm(storming) => storming.run(out),
    }
}

/// What a run comes to: what was found counts for more than that it could not be told or noted.
fn verdict(clean: bool, told: Result<(), String>) -> Result<bool, String> {
    match (clean, told) {
        (false, Err(why)) => {
            complain(&why);
            Ok(false)
        }
        (clean, told) => told.map(|()| clean),
    }
}

impl Storming {
    /// Runs targets, tells, and notes; `false` if the law was broken.
    fn run(&self, out: &mut Out<impl Write>) -> Result<bool, String> {
        let append = |rows: &[Row]| match &self.ledger {
            Some(path) => holdfast_evidence::append(path, rows).map_err(|e| format!("{e:#}")),
            None => Ok(()),
        };
        append(&[])?;
        let source = match self.ledger {
            Some(_) => Begun::with_this_program().map_err(|error| format!("{error:#}"))?,
            None => Begun::now(),
        };
        let begun = Instant::now();
        let plan = self.plan()?;
        let corpora =
            plan.targets.iter().map(|(target, inputs)| (target.name, fingerprint(inputs)));
        let corpora: BTreeMap<&str, u32> = corpora.collect();
        stop::listen();
        let all = storm::run(plan).map_err(|error| error.to_string())?;
        let rows = self.rows(&all, &corpora, &source);
        let said = if self.json {
            rows.iter().zip(&all).try_for_each(|(row, done)| {
                let found: Vec<_> = done.finding.iter().map(ToString::to_string).collect();
                out.say(row.json(&found))
            })
        } else {
            self.tell(&all, begun.elapsed(), out)
        };
        // Noted, whether or not it could be told.
        let noted = append(&rows);
        verdict(all.iter().all(|done| done.finding.is_none()), said.and(noted))
    }

    fn tell(&self, all: &[Storm], time: Duration, out: &mut Out<impl Write>) -> Result<(), String> {
        let (runs, speed, slowest) = ("runs", "runs/s", "slowest");
        out.say(format_args!("{:10} {runs:>12} {speed:>9} {slowest:>9}  next", "target"))?;
        for done in all {
            out.say(format_args!(
                "{:10} {:>12} {:>9.0} {:>6} ms  --seed {} --from {}",
                done.target.name,
                done.runs,
                done.runs as f64 / done.time.as_secs_f64().max(1e-9),
                done.longest.as_millis(),
                self.seed,
                done.next,
            ))?;
        }
        let runs: u64 = all.iter().map(|done| done.runs).sum();
        let found: Vec<_> = all.iter().filter_map(|done| done.finding.as_ref()).collect();
        let (count, seconds) = (found.len(), time.as_secs());
        let seed = self.seed;
        out.say(format_args!("storm: {runs} runs in {seconds} s, seed {seed}, {count} findings"))?;
        found.iter().try_for_each(|finding| out.say(finding))
    }

    fn plan(&self) -> Result<Plan, String> {
        let chosen: Vec<&'static Target> = match &self.targets[..] {
            [] => targets::ALL.iter().collect(),
            some => some.iter().map(|name| named(name)).collect::<Result<_, _>>()?,
        };
        let with = |target: &'static Target| {
            let folder = self.corpus.join(target.name);
            let mut inputs = drive::corpus(&folder).map_err(|error| error.to_string())?;
            if inputs.is_empty() {
                return Err(format!("no inputs in {}: name their folder", folder.display()));
            }
            inputs.extend((target.seeds)());
            Ok((target, inputs))
        };
        Ok(Plan {
            targets: chosen.into_iter().map(with).collect::<Result<_, _>>()?,
            until: self.runs.map_or(Until::Time(Duration::from_secs(self.seconds)), Until::Runs),
            seed: self.seed,
            from: self.from,
            jobs: self.jobs as usize,
            hang: drive::HANG,
            stop: stop::asked,
        })
    }

    fn rows(&self, all: &[Storm], corpora: &BTreeMap<&str, u32>, source: &Begun) -> Vec<Row> {
        let row = |done: &Storm| Row {
            commit: source.commit(),
            method: format!("fuzz {}", done.target.name),
            how: format!(
                "seed {}, corpus {:08x}, inputs {} to {}",
                self.seed, corpora[done.target.name], self.from, done.next
            ),
            count: done.runs,
            violations: done.finding.is_some().into(),
            seconds: done.time.as_secs(),
            ..Row::default()
        };
        all.iter().map(row).collect()
    }
}

/// Of which files inputs are made: those of the same numbers are the same as long as these are.
fn fingerprint(inputs: &[Vec<u8>]) -> u32 {
    inputs.iter().fold(0, |sum, input| {
        let len = (input.len() as u64).to_le_bytes();
        crc32c(crc32c(sum, &len), input)
    })
}

fn named(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| {
        let all: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
        format!("no target {name}; there are {}", all.join(", "))
    })
}

/// Bytes of hexadecimal digits.
fn digits(text: &str) -> Option<Vec<u8>> {
    let pair = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_nothing_is_refused() {
        let storm = |words: &str| Cli::try_parse_from(format!("fuzz storm {words}").split(' '));
        let far = format!("open --runs 1 --from {}", u64::MAX);
        for words in ["open --runs 0", "--seconds 0", "--runs 3 --seconds 3", "nope", &far] {
            assert!(storm(words).is_err(), "{words}");
        }
        assert!(storm("open --runs 1").is_ok() && storm("open --jobs 0").is_err());
    }
}
