//! Runs inputs without libFuzzer: on stable Rust, in tests, and to repeat a finding.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_workloads::Rng;

use crate::{Target, memory};

/// Longest time one run may take: without damage it takes milliseconds.
pub const SLOW: Duration = Duration::from_secs(10);
/// A run that is under way for so long is taken for one that does not end.
pub const HANG: Duration = Duration::from_secs(60);

/// How an input broke the law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It panicked, or an oracle convicted it: both say why.
    Panicked(String),
    /// It took so long.
    Slow(Duration),
    /// It was under way for so long, and did not end.
    Hung(Duration),
    /// It had so many bytes allocated at once.
    Greedy(usize),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(why) => write!(f, "panicked: {why}"),
            Self::Slow(time) => write!(f, "took {time:?}, which is too long"),
            Self::Hung(time) => write!(f, "did not end in {time:?}"),
            Self::Greedy(bytes) => write!(f, "had {bytes} bytes allocated at once"),
        }
    }
}

/// An input that broke the law.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The target.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
    /// How.
    pub broken: Broken,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, input, broken } = self;
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        write!(f, "{target} {broken}\n  replay: cargo xtask fuzz --target {target} --input {hex}")
    }
}

/// How often an input that takes too long is tried: on a busy machine any may, and the shortest
/// time is the one that is its own.
const TRIES: u32 = 3;

/// Runs one input, and judges it: how long it took, and the most bytes it had allocated.
///
/// # Errors
/// How it broke the law.
pub fn play(target: &'static Target, input: &[u8]) -> Result<(Duration, usize), Finding> {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIES {
        match once(target, input) {
            Err(Finding { broken: Broken::Slow(time), .. }) => shortest = shortest.min(time),
            played => return played,
        }
    }
    Err(Finding { target: target.name, input: input.to_vec(), broken: Broken::Slow(shortest) })
}

fn once(target: &'static Target, input: &[u8]) -> Result<(Duration, usize), Finding> {
    let begun = Instant::now();
    memory::begin();
    let done = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let (time, most) = (begun.elapsed(), memory::peak());
    let broken = match done {
        Err(panic) => Broken::Panicked(text_of(&*panic)),
        Ok(()) if time > target.slow => Broken::Slow(time),
        Ok(()) if most > target.bound => Broken::Greedy(most),
        Ok(()) => return Ok((time, most)),
    };
    Err(Finding { target: target.name, input: input.to_vec(), broken })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "no text".to_owned())
}

/// The input of this number: first those of the corpus as they are, then changed ones. Each is the
/// same whenever it is asked for, whatever was run before it.
#[must_use]
pub fn input(target: &Target, corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let own = usize::try_from(number).ok().and_then(|number| corpus.get(number));
    if let Some(own) = own {
        return own.clone();
    }
    let mut rng = Rng::part(seed, number);
    let mut input = rng.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=rng.below(4) {
        input = (target.mutate)(&input, target.longest, &mut rng);
    }
    input
}

/// The inputs in a folder, by name; none if there is no such folder.
///
/// # Errors
/// One that cannot be read.
pub fn corpus(folder: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    files.into_iter().map(std::fs::read).collect()
}
