//! Runs and checks the project: what CI does, in one program that anyone can run the same way.
//!
//! # Guarantee
//!
//! A rule of `STYLE.md` that names a check here is broken nowhere in the tree, or this program
//! names the file and the line and exits with 1. `cargo xtask ci` is what `.ci/run` runs: if it
//! passes on a clean checkout, it passes there.
//!
//! Not covered: what only a reader can judge (whether a comment is true, whether a test would
//! notice a fault), and code that is not tracked and ignored by git.
//!
//! # Picture
//!
//! ```text
//!   git ls-files ----> source.rs (tokens, comments, which lines are tests) ---> tidy, formats
//!   cargo metadata --> workspace.rs (crates, rooms, dependencies) ------------> layers, tidy
//!   docs/*.md -------> markdown.rs (tables, links) ---------------------------> formats, papers
//!                                        findings: path:line: rule: what to do
//! ```
//!
//! # Vocabulary
//!
//! *finding*: one broken rule at one place. *room*: the folder of a crate, such as `core/heap`.
//! *group*: the folder of a room, such as `core`. *site*: the name of one flush, drain, sum or
//! verification in the code. *step*: one line of the CI table.
//!
//! # Tour
//!
//! `layers.rs` who may depend on whom, as one table; `tidy/` style, one file per kind of rule,
//! budgets at the top of `tidy/mod.rs`; `formats/` offset tables in code against those in docs;
//! `papers.rs` mechanisms against modules and tests; `capi.rs` the header of the C interface
//! against its source, and programs in C against the header, `install.rs` putting it where
//! compilers look; `ci.rs` the steps, `ci/skips.rs` which tests could not do all of their work;
//! `passthrough.rs` campaigns, benches and the lab; `fuzz.rs` the fuzz targets under libFuzzer,
//! `sanitize.rs` tests under a sanitizer; `source.rs`, `workspace.rs`, `markdown.rs`,
//! `finding.rs` what the checks share.

mod capi;
mod ci;
mod coverage;
mod finding;
mod formats;
mod fuzz;
mod install;
mod layers;
mod markdown;
mod models;
mod papers;
mod passthrough;
mod refused;
mod sanitize;
mod source;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use holdfast_evidence::stop;

use crate::workspace::Workspace;

/// Runs and checks the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    /// Root of the workspace [default: the nearest folder above with a workspace manifest].
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

/// What to run.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run every step of CI, with times and a summary.
    Ci {
        /// Go on after a failed step; the exit code still tells.
        #[arg(long)]
        keep_going: bool,
        /// Run only the steps of these names.
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Write what each step came to, and how long it took, to this file as well.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Check the dependencies between crates against the table of allowed ones.
    Layers {
        /// Print one JSON object and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// Check style: sizes, words, names of sites, safety arguments, docs, links.
    Tidy {
        /// Print every site (name, place, what it does) and check nothing else.
        #[arg(long)]
        sites: bool,
        /// Print one JSON object and nothing else.
        #[arg(long, conflicts_with = "sites")]
        json: bool,
    },
    /// Compare the offset tables in `format.rs` files with those in `docs/formats`.
    Formats {
        /// Print the tables as the pages should have them.
        #[arg(long)]
        print: bool,
        /// Print one JSON object and nothing else.
        #[arg(long, conflicts_with = "print")]
        json: bool,
    },
    /// Check that each mechanism in `docs/papers.md` has its module and its test.
    Papers {
        /// Print one JSON object and nothing else.
        #[arg(long)]
        json: bool,
    },
    /// Check that the header of the C interface is what its source makes, and build and run its
    /// tests and examples with cc and c++ (or what CC and CXX name).
    Capi {
        /// Make the header anew, and run nothing.
        #[arg(long)]
        write: bool,
        /// Only check the header: `cargo test --workspace` runs the programs as well.
        #[arg(long, conflicts_with = "write")]
        header: bool,
        /// Print one JSON object and nothing else; only with `--header`, since programs that are
        /// built and run say what they like.
        #[arg(long, requires = "header")]
        json: bool,
        /// Build the library and put it, the headers and the file for pkg-config there.
        #[arg(long, value_name = "PREFIX", conflicts_with_all = ["write", "header"])]
        install: Option<PathBuf>,
    },
    /// Run a fault campaign: `cargo xtask campaign NAME [--tier ci|long] [--seed N]`.
    #[command(disable_help_flag = true)]
    Campaign(passthrough::Args),
    /// Run a benchmark: `cargo xtask bench NAME [...]`.
    #[command(disable_help_flag = true)]
    Bench(passthrough::Args),
    /// Run the fuzz targets under libFuzzer, each for some seconds.
    Fuzz(fuzz::Args),
    /// Run the code that ships in model checkers: `cargo xtask models [loom|shuttle]`.
    Models(models::Args),
    /// Count the branches of recovery, repair, opening and parsing that tests, fuzzer and campaigns
    /// take.
    Coverage(coverage::Args),
    /// Refuse every call of the system in its turn, while pools and protected files are used.
    Refused(refused::Args),
    /// Run the tests of crates that hold unsafe code or share memory under a sanitizer.
    Sanitize(sanitize::Args),
    /// Run scenes in a virtual machine with persistent memory: `cargo xtask lab [--only SCENE]`.
    #[command(disable_help_flag = true)]
    Lab {
        /// Passed on untouched.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
}

impl Command {
    /// Whether a check is to say what it found as JSON.
    const fn is_json(&self) -> bool {
        match self {
            Self::Layers { json }
            | Self::Tidy { json, .. }
            | Self::Formats { json, .. }
            | Self::Papers { json }
            | Self::Capi { json, .. } => *json,
            _ => false,
        }
    }
}

/// The exit code for what cannot be done here.
const OPERATIONAL: u8 = 8;
/// The exit code for what is not understood.
const USAGE: u8 = 16;

/// Something was asked for that there is not, as against something that cannot be done here.
#[derive(Debug)]
struct Misuse(String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody reads it: there is nobody to tell that.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    // Whatever it has started hears of it as well. Some have a word to say, and CI a summary.
    match &cli.command {
        Command::Ci { .. } | Command::Campaign(_) => stop::listen(),
        Command::Fuzz(args) if args.stable => stop::listen(),
        _ => stop::end_at_once(),
    }
    match run(&cli) {
        Ok(code) => code,
        Err(_) if stop::asked() => ExitCode::from(stop::CANCELLED),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<Misuse>() { USAGE } else { OPERATIONAL })
        }
    }
}

/// Runs the command; failure means that it ran and found something wrong. Campaigns and benches
/// have exit codes of their own.
fn run(cli: &Cli) -> Result<ExitCode> {
    let root = workspace::root(cli.root.as_deref())?;
    finding::as_json(cli.command.is_json());
    let fine = match &cli.command {
        Command::Ci { keep_going, only, json } => {
            ci::run(&Workspace::read(&root)?, *keep_going, only, json.as_deref())
        }
        Command::Layers { .. } => layers::run(&Workspace::read(&root)?),
        Command::Tidy { sites: true, .. } => tidy::print_sites(&root),
        Command::Tidy { .. } => tidy::run(&Workspace::read(&root)?),
        Command::Formats { print: true, .. } => formats::print(&root),
        Command::Formats { .. } => formats::run(&root),
        Command::Papers { .. } => papers::run(&root),
        Command::Capi { install: Some(prefix), .. } => install::run(&root, prefix),
        Command::Capi { header: true, .. } => capi::header(&root, false),
        Command::Capi { write, .. } => capi::run(&root, *write),
        Command::Campaign(args) => return passthrough::run(&root, "holdfast-campaign", args),
        Command::Bench(args) => return passthrough::run(&root, "holdfast-bench", args),
        Command::Fuzz(args) => return fuzz::run(&root, args),
        Command::Models(args) => return models::run(&root, args),
        Command::Coverage(args) => return coverage::run(&root, args),
        Command::Refused(args) => return refused::run(&root, args),
        Command::Sanitize(args) => return sanitize::run(&root, args),
        Command::Lab { rest } => return passthrough::start(&root, "lab", rest),
    }?;
    // Steps of CI that failed may have ended because somebody stopped them.
    let stopped = stop::asked().then_some(ExitCode::from(stop::CANCELLED));
    Ok(stopped.unwrap_or(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}
