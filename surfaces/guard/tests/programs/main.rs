//! Programs under guard, each a process of its own: this one, started again.
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

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, story, file] = arguments.as_slice()
        && role == "--story"
    {
        match story.as_str() {
            "mixed" => checks::mixed(file.as_ref()),
            _ => media::tell(story, file.as_ref()),
        }
        return ExitCode::SUCCESS;
    }
    if let [_, role, story, file] = arguments.as_slice()
        && role == "--guard"
    {
        checks::guard(story, file.as_ref());
        return ExitCode::SUCCESS;
    }
    let only = arguments.get(1).filter(|word| !word.starts_with('-'));
    let mut failed = 0;
    let all = checks::ALL.iter().chain(unseen::ALL).chain(taken::ALL).chain(leaving::ALL);
    let more = started::ALL.iter().chain(mapped::ALL).chain(streams::ALL).chain(handed::ALL);
    let more = more.chain(untouched::ALL).chain(standing::ALL);
    for (name, check) in all.chain(more) {
        if only.is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let started = std::time::Instant::now();
        let done = std::panic::catch_unwind(check);
        let word = if done.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({} ms)", started.elapsed().as_millis());
        failed += u32::from(done.is_err());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
