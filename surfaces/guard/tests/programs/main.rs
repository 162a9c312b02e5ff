//! Programs under guard, each a process of its own: this one, started again.
//!
//! Some checks at a time, more than there are processors, since most of them wait for others half
//! of their time. Each is a process, this one again: what one opens would be open in whatever
//! another starts at that moment. Those that look at clocks closely, or have very many files, have
//! the machine to themselves.
//!
//! What a story leaves in its file is compared with what the same story leaves in another file
//! without a guard. Then every page must be covered, so damage is done to some and must be undone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod bare;
mod checks;
mod handed;
mod leaving;
mod mapped;
mod media;
mod power;
mod standing;
mod started;
mod stories;
mod streams;
mod taken;
mod unseen;
mod untouched;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

type Check = (&'static str, fn());

const ALL: &[&[Check]] = &[
    checks::ALL,
    unseen::ALL,
    taken::ALL,
    leaving::ALL,
    started::ALL,
    mapped::ALL,
    streams::ALL,
    handed::ALL,
    untouched::ALL,
    standing::ALL,
];

/// Those that say who waits, and for how long, and those with very many files. So are all in
/// `standing.rs`.
const ALONE: [&str; 7] = [
    "nobody waits for the first look at another file",
    "nobody waits for a long pass",
    "who wants a file again does not wait for the last look",
    "nobody waits until another's data is on the disk",
    "nobody waits for the last look at another file",
    "more files than there are numbers, one after the other",
    "more files than can be mapped, one after the other",
];

fn named(name: &str) -> Option<&'static Check> {
    ALL.iter().copied().flatten().find(|check| check.0 == name)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match words[..] {
        ["--story", "mixed", file] => checks::mixed(file.as_ref()),
        ["--story", story, file] => media::tell(story, file.as_ref()),
        ["--guard", story, file] => checks::guard(story, file.as_ref()),
        ["--check", name] => {
            let (_, check) = named(name).unwrap();
            check();
        }
        _ => return all(words.first().copied().filter(|word| !word.starts_with('-'))),
    }
    ExitCode::SUCCESS
}

/// Those with `only` in their names, if that is given.
fn all(only: Option<&str>) -> ExitCode {
    assert!(ALONE.iter().all(|name| named(name).is_some()));
    let all: Vec<&str> = ALL.iter().copied().flatten().map(|(name, _)| *name).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "one name, two of them");
    let chosen = all.into_iter().filter(|name| only.is_none_or(|only| name.contains(only)));
    let is_alone =
        |name: &&str| ALONE.contains(name) || standing::ALL.iter().any(|it| it.0 == *name);
    let (alone, beside): (Vec<&str>, Vec<&str>) = chosen.partition(is_alone);
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let turn = || {
        while let Some(name) = beside.get(next.fetch_add(1, Ordering::Relaxed)) {
            failed.fetch_add(usize::from(!passes(name)), Ordering::Relaxed);
        }
    };
    let processors = thread::available_parallelism().map_or(2, usize::from).min(4);
    thread::scope(|scope| {
        (0..processors).for_each(|_| drop(scope.spawn(turn)));
        turn();
    });
    let alone = alone.iter().filter(|name| !passes(name)).count();
    if failed.into_inner() + alone == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Has the check run, and prints what it printed. That goes to a file: processes it leaves behind
/// may have its output open for as long as they like.
fn passes(name: &str) -> bool {
    let started = Instant::now();
    let told = tempfile::tempfile().unwrap();
    let mut check = Command::new(std::env::current_exe().unwrap());
    check.args(["--check", name]).stdout(told.try_clone().unwrap());
    let ended = check.stderr(told.try_clone().unwrap()).status().unwrap();
    // From a place of its own: where the file is at is theirs as well, and they may go on.
    let mut text = vec![0; told.metadata().unwrap().len() as usize];
    told.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let word = if ended.success() { "ok".to_owned() } else { format!("FAILED, {ended}") };
    // In one piece, whoever else prints.
    println!("{text}{end}test {name} ... {word} ({} ms)", started.elapsed().as_millis());
    ended.success()
}
