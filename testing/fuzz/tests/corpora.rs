//! Every input of the corpora is run, and mutated ones for some seconds: what broke the law once
//! does not break it again; and some inputs that chance draws from a seed are tried as well.
//! `HOLDFAST_FUZZ_SECONDS` says for how long, `HOLDFAST_FUZZ_SEED` where chance begins.

use std::path::Path;
use std::time::Duration;

use holdfast_fuzz::storm::{self, Plan, Until};
use holdfast_fuzz::{drive, find, memory, targets};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

/// What a variable says, if it is set. Another word than a number is no number to go on without.
fn number(name: &str) -> Option<u64> {
    let said = std::env::var_os(name)?.into_string().unwrap_or_default();
    Some(said.parse().unwrap_or_else(|_| panic!("{name} is no number: {said:?}")))
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
    let done = storm::run(Plan { targets, until, seed, from, jobs, hang, stop: || false })
        .expect("a thread");
    let done = done.into_iter().next().expect("one target");
    println!("{name}: {} runs, seed {seed}, longest {:?}", done.runs, done.longest);
    if let Some(finding) = done.finding {
        panic!("{finding}");
    }
    assert!(done.runs > own || seconds.is_zero(), "only {} runs", done.runs);
}

/// What is committed stays small: inputs chosen for what they reach are few and short, and the
/// others broke the law once and say by their names how.
#[test]
fn corpora_are_small() {
    for target in targets::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let mut chosen = 0;
        for entry in std::fs::read_dir(&folder).expect("a corpus") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let len = entry.metadata().expect("a file").len();
            if name.starts_with("new-") {
                chosen += 1;
                assert!(len <= 512, "{}/{name} has {len} bytes", target.name);
            } else {
                assert!(name.contains('-') && len <= 2048, "{}/{name}", target.name);
            }
        }
        assert!(chosen <= 100, "{} has {chosen} inputs", target.name);
    }
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
