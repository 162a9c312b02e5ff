//! The demo: an index of text files in a pool, damaged while it is queried, its commits killed,
//! every answer held against an index in plain memory.
//!
//! Choices follow from the seed; how threads and processes take turns does not, so two runs with
//! one seed inject the same kinds of faults but may hit other bytes.

mod book;
mod child;
mod corpus;
mod damage;
mod index;
pub(crate) mod injector;
mod kills;
mod mortal;
mod report;
mod tally;
pub(crate) mod victim;

use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast::{Parity, Pool, VerifyReads};

use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::Out;
use crate::progress::Progress;
use child::InjectorProcess;
use corpus::Corpus;
use damage::Service;
use index::Index;
use report::Report;
use tally::Tally;

/// Faults of the pass in which reads verify at first touch only, at the most.
const SECOND_PASS: u64 = 200;
/// Bytes of the pool for each byte of text, and at the least.
const POOL_FACTOR: u64 = 40;
const POOL_LEAST: u64 = 96 << 20;
/// Bytes of the journal: all events of a round are read back.
const JOURNAL: u64 = 1 << 20;

/// Runs the demo.
pub(crate) fn run(out: Out, args: &DemoArgs) -> Outcome {
    let started = Instant::now();
    let corpus = Corpus::read(&args.path, args.text)?;
    let home = Home::new(args)?;
    let path = home.path.clone();
    let mut report = Report::new(&corpus, args);
    let result = play(out, args, &corpus, &path, &mut report);
    report.total = started.elapsed();
    if args.keep {
        out.note(format!("the pool is left at {}", path.display()));
    } else {
        home.remove();
    }
    result?;
    report.print(out);
    Ok(if report.is_good() { Exit::CLEAN } else { Exit::LEFT })
}

fn play(
    out: Out,
    args: &DemoArgs,
    corpus: &Corpus,
    path: &Path,
    report: &mut Report,
) -> Outcome<()> {
    let pool = Pool::options()
        .size((corpus.bytes * POOL_FACTOR).max(POOL_LEAST))
        .parity(Parity::PQ)
        .verify_reads(VerifyReads::Always)
        .events(JOURNAL)
        .label("demo")
        .allow_inject(true)
        .create(path)?;
    report.medium = pool.status().kind.to_string();
    report.size = pool.superblock().size;
    let index = Index::of(&pool)?;
    let mut injector = report.time(out, "build", || build(out, args, corpus, path, &index))?;
    {
        let service = Service::new(&pool, &index, corpus, path, args.seed)?;
        report.damage = report.time(out, "damage", || {
            let how = (VerifyReads::Always, "live");
            let mut tally = Tally::default();
            let answers = service.endure(out, &mut injector, how, args.faults, &mut tally)?;
            Ok((tally, answers))
        })?;
        report.second = report.time(out, "first touch", || {
            // Everything is touched once while nothing is damaged.
            expect_none(service.compare_all()?)?;
            let how = (VerifyReads::FirstTouch, "objects");
            let mut tally = Tally::default();
            let count = args.faults.min(SECOND_PASS);
            let answers = service.endure(out, &mut injector, how, count, &mut tally)?;
            Ok((tally, answers))
        })?;
        pool.set_verify_reads(VerifyReads::Always);
        report.differences = report.time(out, "compare", || service.compare_all())?;
    }
    drop(index);
    drop(pool);
    report.kills = report
        .time(out, "kills", || kills::run(out, path, args.seed, args.kills, &mut injector))?;
    drop(injector);
    report.left = report.time(out, "check", || {
        let pool = Pool::options().verify_reads(VerifyReads::Always).open(path)?;
        let left = pool.check(|_, _| {})?.found;
        let index = Index::of(&pool)?;
        let mut wrong = 0;
        for (word, truth) in &corpus.index {
            wrong += u64::from(index.query(word)? != *truth);
        }
        Ok(left + wrong)
    })?;
    Ok(())
}

/// Builds the index; half-way, the injector takes note of the file: later, a lost write shows it
/// as it is now.
fn build(
    out: Out,
    args: &DemoArgs,
    corpus: &Corpus,
    path: &Path,
    index: &Index,
) -> Outcome<InjectorProcess> {
    let progress = Progress::things(out, "indexing", corpus.entries());
    let mut entries = 0;
    let mut done = |more| {
        entries += more;
        progress.at(entries);
    };
    let (half, all) = (corpus.files.len() / 2, corpus.files.len());
    index.build(corpus, (0, half), &mut done)?;
    let mut injector = InjectorProcess::start(path, args.seed)?;
    injector.order("remember")?;
    index.build(corpus, (half, all), &mut done)?;
    Ok(injector)
}

fn expect_none(wrong: u64) -> Outcome<()> {
    if wrong == 0 {
        return Ok(());
    }
    let cause = format!("{wrong} answers are wrong although nothing is damaged any more");
    Err(Failure::new("damaged", cause, "report it with the seed"))
}

/// The end of a demo that somebody interrupted.
fn interrupted() -> Failure {
    Failure::interrupted("run it again")
}

/// Where the pool is.
struct Home {
    path: PathBuf,
}

impl Home {
    fn new(args: &DemoArgs) -> Outcome<Self> {
        let folder = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let path = folder.join(format!("holdfast-demo-{}.pool", std::process::id()));
        Ok(Self { path })
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
