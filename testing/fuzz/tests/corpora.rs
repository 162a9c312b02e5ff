//! Every input of the corpora is run, and mutated ones for some seconds: what broke the law once
//! does not break it again, and what was never tried is tried a little in each run of the tests.
//! `HOLDFAST_FUZZ_SECONDS` says for how long, `HOLDFAST_FUZZ_SEED` where chance begins.

use std::path::Path;
use std::time::Duration;

use holdfast_fuzz::storm::{self, Plan, Until};
use holdfast_fuzz::{drive, find, memory, targets};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// What a variable says, if it is a number.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn holds(name: &str) {
    let target = find(name).expect("a target");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut inputs = drive::corpus(&folder).expect("it can be read");
    assert!(!inputs.is_empty(), "{} has no inputs", folder.display());
    inputs.extend((target.seeds)());
    let seconds = Duration::from_secs(number("HOLDFAST_FUZZ_SECONDS").unwrap_or(2));
    let seed = number("HOLDFAST_FUZZ_SEED").unwrap_or(20_261_123);
    let own = inputs.len() as u64;
    let targets = vec![(target, inputs)];
    let (until, from, jobs, hang) = (Until::Time(seconds), 0, 1, drive::HANG);
    let done = storm::run(Plan { targets, until, seed, from, jobs, hang }).expect("a thread");
    let done = done.into_iter().next().expect("one target");
    println!("{name}: {} runs, seed {seed}, longest {:?}", done.runs, done.longest);
    if let Some(finding) = done.finding {
        panic!("{finding}");
    }
    assert!(done.runs > own || seconds.is_zero(), "only {} runs", done.runs);
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })+

        #[test]
        fn every_target_is_tried() {
            let tried = [$(stringify!($name)),+];
            assert!(targets::ALL.iter().all(|target| tried.contains(&target.name)));
        }
    };
}

targets!(open check repair logs side pointer events maps args answers messages);
