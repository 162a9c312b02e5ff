//! Campaigns, benches and the lab: built in release and run with the arguments as they came.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::workspace::cargo;

/// The name of what to run, and what it is to be told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which one, `all` where the program knows it, and what it is to be told: passed on untouched.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "NAME"
    )]
    words: Vec<String>,
}

/// Runs the part of this name, built for release, in `root`; answers what it exits with.
///
/// # Errors
/// It cannot be started, or a signal ended it.
pub(crate) fn run(root: &Path, krate: &str, args: &Args) -> Result<ExitCode> {
    if needs_guard(krate, args) {
        let built = Command::new(cargo())
            .current_dir(root)
            .args(["build", "--release", "-p", "holdfast-cli", "-p", "holdfast-preload"])
            .status()
            .context("cannot start cargo to build the command")?;
        anyhow::ensure!(built.success(), "the command and its library could not be built");
    }
    start(root, krate, &args.words)
}

/// Runs `cargo run --release -p KRATE -- WORDS...` in `root`; answers what it exits with.
///
/// # Errors
/// As [`run`].
pub(crate) fn start(root: &Path, krate: &str, words: &[String]) -> Result<ExitCode> {
    started(root, "release", krate, words)
}

/// The same as the tests are built: with sums that are looked at for overflow, and assertions.
///
/// # Errors
/// As [`run`].
pub(crate) fn start_checked(root: &Path, krate: &str, words: &[String]) -> Result<ExitCode> {
    started(root, "test", krate, words)
}

fn started(root: &Path, profile: &str, krate: &str, words: &[String]) -> Result<ExitCode> {
    let status = Command::new(cargo())
        .current_dir(root)
        .args(["run", "--profile", profile, "-p", krate, "--"])
        .args(words)
        .status()
        .with_context(|| format!("cannot start cargo to run {krate}"))?;
    let code = status.code().with_context(|| format!("{krate} was ended: {status}"))?;
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Whether somebody else's program is to be measured under guard, which needs the command beside
/// the benchmark. Without that program nothing of it is run.
fn needs_guard(krate: &str, args: &Args) -> bool {
    let only = args.words.iter().position(|word| word == "--only").map(|at| at + 1);
    let part = only.and_then(|at| args.words.get(at)).map(String::as_str);
    let is_asked = part.is_none_or(|part| part == "fio");
    let here = || Command::new("fio").arg("--version").output().is_ok();
    let is_mapped = args.words.first().is_some_and(|name| name == "mapped");
    krate == "holdfast-bench" && is_mapped && is_asked && here()
}
