//! Campaigns and benches: built in release and run with the arguments as they came.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::workspace::cargo;

/// The name of what to run, and what it is to be told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which one; `all` where the program knows it.
    name: String,
    /// Passed on untouched.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs `cargo run --release -p KRATE -- NAME REST...` in `root`; answers what it exits with.
///
/// # Errors
/// It cannot be started, or a signal ended it.
pub(crate) fn run(root: &Path, krate: &str, args: &Args) -> Result<ExitCode> {
    let status = Command::new(cargo())
        .current_dir(root)
        .args(["run", "--release", "-p", krate, "--", &args.name])
        .args(&args.rest)
        .status()
        .with_context(|| format!("cannot start cargo to run {krate}"))?;
    let code = status.code().with_context(|| format!("{krate} was ended: {status}"))?;
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}
