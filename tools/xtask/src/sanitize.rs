//! Tests of the crates that hold unsafe code or share memory between threads, under a sanitizer.
//!
//! The compiler is the one that builds everything else; `RUSTC_BOOTSTRAP` switches on what its
//! sanitizers need. For `address` the standard library stays as it was delivered: its own loads and
//! stores are not looked at, those of everything that is generic over our types are. For `thread`
//! it is built as well: what orders threads is in there, and unseen it would be no order.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::workspace::cargo;

/// For which machine: a sanitizer needs it said, so that build scripts stay without.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

/// It cannot be run here.
const CANNOT: u8 = 8;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sanitizer {
    /// Bytes used that are not the program's, or not any more.
    Address,
    /// Threads that use the same bytes and are not ordered.
    Thread,
}

/// What to run under which sanitizer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which one.
    sanitizer: Sanitizer,
    /// These crates instead of the usual ones.
    #[arg(long = "package", short, value_name = "CRATE")]
    packages: Vec<String>,
    /// Passed on to the tests.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Crates whose tests are run.
const PACKAGES: [&str; 9] = [
    "holdfast-codes",
    "holdfast-layout",
    "holdfast-redundancy",
    "holdfast-logs",
    "holdfast-heap",
    "holdfast-txn",
    "holdfast-object",
    "holdfast-mapped",
    "holdfast-collections",
];

/// Runs the tests. Exits with 1 if one failed, with 8 if it cannot be done here.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    if args.sanitizer == Sanitizer::Thread
        && let Err(why) = library()
    {
        println!("sanitize: cannot be run here: {why:#}");
        return Ok(ExitCode::from(CANNOT));
    }
    let name = args
        .sanitizer
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["test", "--lib", "--tests", "--no-fail-fast", "--target", MACHINE])
        .arg(format!("--target-dir=target/sanitize-{name}"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags(args.sanitizer))
        .env("CARGO_INCREMENTAL", "0");
    if args.sanitizer == Sanitizer::Thread {
        command.arg("-Zbuild-std").env("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1");
    }
    let usual = PACKAGES.map(str::to_owned);
    let packages = if args.packages.is_empty() { &usual[..] } else { &args.packages };
    for package in packages {
        command.args(["-p", package]);
    }
    command.arg("--").args(&args.rest);
    println!("sanitize: RUSTC_BOOTSTRAP=1 RUSTFLAGS={:?} {command:?}", flags(args.sanitizer));
    let status = command.status().context("cannot start cargo")?;
    println!("sanitize {name}: {}", if status.success() { "nothing found" } else { "FAILED" });
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the compiler is told.
fn flags(sanitizer: Sanitizer) -> &'static str {
    match sanitizer {
        Sanitizer::Address => "-Zsanitizer=address -Cdebuginfo=line-tables-only",
        Sanitizer::Thread => "-Zsanitizer=thread -Cdebuginfo=line-tables-only",
    }
}

/// The sources of the standard library are there; rustup is asked for them if not.
fn library() -> Result<()> {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(asked.context("cannot start rustc")?.stdout)?;
    let source = PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust/library/Cargo.lock");
    if source.is_file() {
        return Ok(());
    }
    println!("sanitize: rustup component add rust-src");
    let added = Command::new("rustup").args(["component", "add", "rust-src"]).status();
    if !added.is_ok_and(|status| status.success()) || !source.is_file() {
        bail!("there is no {}: add rustup's component rust-src", source.display());
    }
    Ok(())
}
