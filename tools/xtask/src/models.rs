//! The model checkers: the program is built for each with its flag, below a target folder of its
//! own, so that the flag does not throw away what everything else has built.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use holdfast_evidence::Begun;

use crate::Misuse;
use crate::workspace::cargo;

/// What is built, and where, below the workspace's target folder.
const PROGRAM: &str = "holdfast-models";
const PLACE: &str = "target/models";
/// The profile it is built with.
const PROFILE: &str = "models";
/// For which machine. Said, the flag is not given to what runs while it is built, which is half of
/// what there is to build and is then the same for both checkers.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

/// Which checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Checker {
    /// All interleavings of small cores.
    Loom,
    /// Interleavings drawn from a seed, of the engine and its parts.
    Shuttle,
}

impl Checker {
    fn name(self) -> &'static str {
        match self {
            Self::Loom => "loom",
            Self::Shuttle => "shuttle",
        }
    }
}

/// Which checker, and what the program is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which checker [default: both].
    checker: Option<Checker>,
    /// Schedules to draw for each harness, in batches of 50; without it, as many as CI has time
    /// for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    schedules: Option<u64>,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only the models or harnesses of these names.
    #[arg(long, value_name = "NAME", requires = "checker")]
    only: Vec<String>,
    /// Run a batch of drawn schedules again, as a finding says.
    #[arg(long, value_name = "SCHEDULE", requires = "checker")]
    #[arg(conflicts_with_all = ["ledger", "schedules", "only"])]
    replay: Option<String>,
    /// Say what each wrong variant was convicted of.
    #[arg(long)]
    verdicts: bool,
    /// Print a JSON object for each, with what was found, and nothing else.
    #[arg(long)]
    json: bool,
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<String>,
}

/// Runs one checker or both; answers what the first that was not content exits with.
///
/// # Errors
/// The program cannot be built or started.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let checkers = match args.checker {
        Some(checker) => vec![checker],
        None => vec![Checker::Loom, Checker::Shuttle],
    };
    let drawn = args.seed.is_some() || args.schedules.is_some();
    if matches!(args.checker, Some(Checker::Loom)) && drawn {
        let why = "loom plays all there is each time: no --seed and no --schedules";
        bail!(Misuse(why.to_owned()));
    }
    // One runs while the next is built: neither has work for all processors all of the time.
    let mut under_way: Option<(Checker, Child)> = None;
    for checker in checkers {
        let begun = Begun::at(root);
        let built = build(root, checker);
        if let Some((checker, child)) = under_way.take() {
            let code = end(checker, child)?;
            if code != 0 {
                return Ok(ExitCode::from(code));
            }
        }
        let commit = begun.commit_now();
        under_way = Some((checker, start(root, (checker, &built?), &commit, args)?));
    }
    let code = under_way.map_or(Ok(0), |(checker, child)| end(checker, child))?;
    Ok(ExitCode::from(code))
}

/// Builds the program for a checker; where it is.
fn build(root: &Path, checker: Checker) -> Result<PathBuf> {
    let place = root.join(PLACE);
    let built = Command::new(cargo())
        .current_dir(root)
        .args(["build", "--quiet", "--profile", PROFILE, "-p", PROGRAM, "--target", MACHINE])
        .arg("--target-dir")
        .arg(&place)
        .env("RUSTFLAGS", format!("--cfg {}", checker.name()))
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the program could not be built for {}", checker.name());
    // The other checker's build takes the same name.
    let own = place.join(checker.name()).with_extension("bin");
    let newest = place.join(MACHINE).join(PROFILE).join(PROGRAM);
    std::fs::copy(&newest, &own).with_context(|| format!("cannot copy {}", newest.display()))?;
    Ok(own)
}

/// Starts a program, and says of which source it is: it may have waited for another.
fn start(
    root: &Path,
    (checker, built): (Checker, &Path),
    commit: &str,
    args: &Args,
) -> Result<Child> {
    let mut program = Command::new(built);
    program.current_dir(root).args(words(checker, args)).args(["--built-of", commit]);
    if args.replay.is_none() {
        // What is convicted panics; the checker tells of each, and cannot be told not to.
        program.stderr(Stdio::null());
    }
    program.spawn().with_context(|| format!("cannot start {PROGRAM}"))
}

/// Waits for a checker; what it exits with.
fn end(checker: Checker, mut child: Child) -> Result<u8> {
    let status = child.wait().with_context(|| format!("cannot wait for {}", checker.name()))?;
    let code = status.code().with_context(|| format!("{PROGRAM} was ended: {status}"))?;
    Ok(u8::try_from(code).unwrap_or(1))
}

/// What the program is told. Of what is drawn, only who draws.
fn words(checker: Checker, args: &Args) -> Vec<String> {
    let mut words = Vec::new();
    let mut tell = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    for (name, number) in [("--seed", args.seed), ("--schedules", args.schedules)] {
        if let Some(number) = number.filter(|_| matches!(checker, Checker::Shuttle)) {
            tell(name, &number.to_string());
        }
    }
    args.only.iter().for_each(|name| tell("--only", name));
    if let Some(schedule) = &args.replay {
        tell("--replay", schedule);
    }
    if let Some(ledger) = &args.ledger {
        tell("--ledger", ledger);
    }
    for (name, wished) in [("--verdicts", args.verdicts), ("--json", args.json)] {
        words.extend(wished.then(|| name.to_owned()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_passed_on() {
        let args = Args {
            checker: Some(Checker::Shuttle),
            schedules: Some(7),
            seed: Some(3),
            only: vec!["engine".to_owned()],
            replay: None,
            verdicts: true,
            json: true,
            ledger: None,
        };
        let told = |checker| words(checker, &args).join(" ");
        let all = "--seed 3 --schedules 7 --only engine --verdicts --json";
        assert_eq!(told(Checker::Shuttle), all);
        assert_eq!(told(Checker::Loom), "--only engine --verdicts --json");
    }
}
