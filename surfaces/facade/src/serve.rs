//! The other end of `owner.rs`: what the process that has a pool open does at a command.

use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use holdfast_object::ScrubOptions;
use holdfast_pmem::inject::{Poison, poison};

use crate::error::{Error, ErrorKind, Result};
use crate::owner::{LINE_MAX, Summary, VERSION, words_of};
use crate::pool::{Figures, Pool};

/// A client that says nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(10);
/// Least time between two lines about progress.
const PROGRESS_EACH: Duration = Duration::from_millis(50);

/// Serves one connection to its end.
pub(crate) fn serve(stream: &UnixStream, pool: impl Fn() -> Option<Pool>) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match reader.by_ref().take(LINE_MAX).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Some(pool) = pool() else { return };
        let mut out = stream;
        let answer = match line.trim_end().strip_prefix(VERSION) {
            Some(request) => execute(&pool, request.trim_start(), out),
            None => Err(Error::new(ErrorKind::Invalid, "another build is needed to ask this one")),
        };
        // The pool may be closed from here on while the client reads.
        drop(pool);
        let sent = match answer {
            Ok(words) => writeln!(out, "done {words}"),
            Err(error) => {
                let text = format!("{}; {}", error.cause(), error.remedy()).replace('\n', " ");
                writeln!(out, "failed {} {text}", error.kind().name())
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn execute(pool: &Pool, request: &str, mut out: &UnixStream) -> Result<String> {
    let mut words = request.split(' ');
    let command = words.next().unwrap_or_default();
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let started = Instant::now();
    let mut told: Option<Instant> = None;
    let mut tell = |done: u64, all: u64| {
        if told.is_none_or(|at| at.elapsed() >= PROGRESS_EACH) {
            told = Some(Instant::now());
            // A client that went away misses nothing; what it asked for is done all the same.
            let _ = writeln!(out, "progress {done} {all}");
        }
    };
    match (command, numbers.as_slice()) {
        ("check", []) => {
            let report = pool.check(tell)?;
            Ok(Summary::of_check(&report, started.elapsed()).words())
        }
        ("scrub", &[rate, resume]) => {
            let options = ScrubOptions { rate: (rate > 0).then_some(rate), resume: resume != 0 };
            let done = pool.scrub(options, |progress, all| tell(progress.next, all))?;
            Ok(Summary::of_scrub(&done, started.elapsed()).words())
        }
        ("pause", []) => Ok(pool.pause_scrub()?.words()),
        ("cancel", []) => Ok(pool.cancel_scrub()?.words()),
        ("status", []) => Ok(pool.scrub_status().words()),
        ("grow", &[bytes]) => {
            let before = pool.superblock().size;
            pool.grow(bytes)?;
            Ok(format!("{before} {}", pool.superblock().size))
        }
        ("stats", []) => Ok(words_of(&pool.stats())),
        ("figures", []) => {
            let Figures { stats, syncs, reserved, read_only, nanos } = pool.figures();
            let (stats, read_only) = (words_of(&stats), u8::from(read_only));
            Ok(format!("{stats} {syncs} {reserved} {read_only} {nanos}"))
        }
        ("latency", []) => Ok(pool.latency().words()),
        ("poison", &[at, clearable]) => {
            if !pool.superblock().allow_inject {
                let text = "the pool does not allow faults to be injected";
                return Err(Error::new(ErrorKind::Refused, text)
                    .with_remedy("create one with allow_inject"));
            }
            let kind = if clearable == 1 { Poison::Clearable } else { Poison::Unclearable };
            poison(pool.medium(), at, holdfast_pmem::PAGE, kind)?;
            Ok(String::new())
        }
        _ => Err(Error::new(ErrorKind::Invalid, "this build does not know the command")),
    }
}
