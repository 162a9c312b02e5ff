//! Branch coverage of what reads, recovers and repairs: how many of the ways out of each condition
//! in those files were taken by tests, storms of the fuzzer and campaigns.
//!
//! The compiler is the one that builds everything else; `RUSTC_BOOTSTRAP` switches on that it
//! counts branches. Counts of all programs are put together: a way that one of them took is taken,
//! in whatever instance of generic code. Tests inside a file do not count as a part of it.

mod branches;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::cargo;
use branches::{Count, MODULES};

/// For which machine: said, so that build scripts are not counted.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// What is built and counted, below the workspace's target folder.
const PLACE: &str = "target/coverage";
/// Part of the branches that must be taken, in percent.
const WANTED: f64 = 90.0;
/// It cannot be run here.
const CANNOT: u8 = 8;

/// Crates whose tests are run, and programs beside them.
const PACKAGES: [&str; 12] = [
    "holdfast-layout",
    "holdfast-redundancy",
    "holdfast-logs",
    "holdfast-heap",
    "holdfast-object",
    "holdfast-mapped",
    "holdfast-guard-wire",
    "holdfast-collections",
    "holdfast",
    "holdfast-cli",
    "holdfast-campaign",
    "holdfast-fuzz",
];

/// What to run, and how to tell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail if fewer than 90 % of the branches of a module were taken.
    #[arg(long)]
    check: bool,
    /// Tell what is on record from earlier runs, and run nothing.
    #[arg(long, conflicts_with = "only")]
    again: bool,
    /// Run only these parts.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Tests of these crates only.
    #[arg(long = "package", short, value_name = "CRATE")]
    packages: Vec<String>,
    /// Seconds for each target of the fuzzer.
    #[arg(long, default_value_t = 20, value_name = "N")]
    seconds: u64,
    /// List the branches of this file that were not taken.
    #[arg(long, value_name = "FILE")]
    missing: Vec<String>,
}

/// A part of what is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The tests of the crates.
    Tests,
    /// Storms of all targets, from the corpora.
    Fuzz,
    /// The campaign `object`, as CI runs it.
    Object,
    /// The campaign `mapped`, as CI runs it.
    Mapped,
}

const PARTS: [Part; 4] = [Part::Tests, Part::Fuzz, Part::Object, Part::Mapped];

/// The tools that read counts.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

/// Counts. Exits with 1 if a run failed or too few were taken, with 8 if it cannot be done here.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(why) => {
            println!("coverage: cannot be run here: {why:#}");
            return Ok(ExitCode::from(CANNOT));
        }
    };
    let programs = programs(root, args)?;
    let mut fine = true;
    if !args.again {
        let parts = if args.only.is_empty() { &PARTS[..] } else { &args.only };
        for part in parts {
            let done = part.run(root, args, &programs)?;
            println!("coverage: {part:?} {}", if done { "passed" } else { "FAILED" });
            fine &= done;
        }
    }
    let report = report(root, &tools, &programs)?;
    let counts = branches::counts(root, &report)?;
    for name in &args.missing {
        for (file, count) in counts.iter().filter(|(file, _)| file.ends_with(name)) {
            count.missing().for_each(|(line, way)| println!("{file}:{line}: never {way}"));
        }
    }
    let enough = told(&counts, WANTED);
    Ok(if fine && (enough || !args.check) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each file and module; `true` if each module has as much as is wanted.
fn told(counts: &BTreeMap<String, Count>, wanted: f64) -> bool {
    let mut enough = true;
    let mut sum = (0, 0);
    for (module, files) in MODULES {
        let mut all = (0, 0);
        println!();
        for file in *files {
            let (taken, ways) = counts.get(*file).map_or((0, 0), Count::sum);
            all = (all.0 + taken, all.1 + ways);
            println!("  {file:46} {taken:>5} of {ways:>5}  {:>5.1} %", percent(taken, ways));
        }
        let part = percent(all.0, all.1);
        println!("{module:48} {:>5} of {:>5}  {part:>5.1} %", all.0, all.1);
        enough &= part >= wanted;
        sum = (sum.0 + all.0, sum.1 + all.1);
    }
    let part = percent(sum.0, sum.1);
    println!("\ncoverage: {} of {} branches taken, {part:.1} %", sum.0, sum.1);
    enough
}

fn percent(taken: u64, ways: u64) -> f64 {
    if ways == 0 { 100.0 } else { 100.0 * taken as f64 / ways as f64 }
}

/// The tools beside the compiler; asks rustup for them if they are not there.
fn tools() -> Result<Tools> {
    let asked = Command::new("rustc").args(["--print", "sysroot"]).output();
    let asked = asked.context("cannot start rustc")?;
    let sysroot = PathBuf::from(String::from_utf8(asked.stdout)?.trim());
    let folder = sysroot.join("lib/rustlib").join(MACHINE).join("bin");
    let (profdata, cov) = (folder.join("llvm-profdata"), folder.join("llvm-cov"));
    if !profdata.is_file() || !cov.is_file() {
        println!("coverage: rustup component add llvm-tools");
        let added = Command::new("rustup").args(["component", "add", "llvm-tools"]).status();
        if !added.is_ok_and(|status| status.success()) || !cov.is_file() {
            bail!("there is no {}: add rustup's component llvm-tools", cov.display());
        }
    }
    Ok(Tools { profdata, cov })
}

/// A command of cargo that counts.
fn counting(root: &Path, args: &Args) -> Command {
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["test", "--lib", "--bins", "--tests", "--target", MACHINE, "--target-dir", PLACE])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Cinstrument-coverage -Zcoverage-options=branch")
        .env("CARGO_INCREMENTAL", "0")
        // Counters are atomic, and building is most of the time.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
        .env("LLVM_PROFILE_FILE", counts_of(root));
    for package in PACKAGES {
        if args.packages.is_empty() || args.packages.iter().any(|chosen| chosen == package) {
            command.args(["-p", package]);
        }
    }
    command
}

/// Where programs leave counts: some files for each, into which later runs add theirs.
fn counts_of(root: &Path) -> PathBuf {
    root.join(PLACE).join("counts/%4m.profraw")
}

/// Builds all programs; where they are.
fn programs(root: &Path, args: &Args) -> Result<Vec<PathBuf>> {
    let all = Args { packages: Vec::new(), only: Vec::new(), missing: Vec::new(), ..*args };
    let built = counting(root, &all)
        .args(["--no-run", "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the programs could not be built");
    }
    let lines = built.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let paths = messages.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    Ok(paths.collect())
}

impl Part {
    /// Runs it; whether it passed.
    fn run(self, root: &Path, args: &Args, programs: &[PathBuf]) -> Result<bool> {
        let named = |name: &str| {
            let mine = |path: &&PathBuf| path.file_name().is_some_and(|file| file == name);
            programs.iter().find(mine).with_context(|| format!("{name} was not built"))
        };
        let mut command = match self {
            Self::Tests => {
                let mut command = counting(root, args);
                command.args(["--no-fail-fast", "--quiet"]);
                command
            }
            Self::Fuzz => {
                let mut command = Command::new(named("holdfast-fuzz")?);
                command.args(["storm", "--seconds", &args.seconds.to_string()]);
                command
            }
            Self::Object | Self::Mapped => {
                let mut command = Command::new(named("holdfast-campaign")?);
                let name = if self == Self::Object { "object" } else { "mapped" };
                command.args([name, "--tier", "ci"]);
                command
            }
        };
        command.current_dir(root).env("LLVM_PROFILE_FILE", counts_of(root));
        Ok(command.status().with_context(|| format!("cannot start {command:?}"))?.success())
    }
}

/// What the tools say of the files that count.
fn report(root: &Path, tools: &Tools, programs: &[PathBuf]) -> Result<Value> {
    let folder = root.join(PLACE).join("counts");
    let read = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
    let counts = read.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let merged = root.join(PLACE).join("all.profdata");
    let done = Command::new(&tools.profdata)
        .args(["merge", "--sparse", "--failure-mode=all"])
        .args(&counts)
        .arg("-o")
        .arg(&merged)
        .status()
        .context("cannot start llvm-profdata")?;
    if !done.success() {
        bail!("counts could not be put together");
    }
    let Some((first, others)) = programs.split_first() else { bail!("there are no programs") };
    let mut command = Command::new(&tools.cov);
    command.arg("export").arg(format!("--instr-profile={}", merged.display())).arg(first);
    for other in others {
        command.arg("--object").arg(other);
    }
    let files = MODULES.iter().flat_map(|(_, files)| *files).map(|file| root.join(file));
    let told = command.arg("--sources").args(files).stderr(Stdio::inherit()).output();
    let told = told.context("cannot start llvm-cov")?;
    if !told.status.success() {
        bail!("counts could not be read");
    }
    serde_json::from_slice(&told.stdout).context("llvm-cov said what is no JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_branches_fail_the_check() {
        let file = MODULES[0].1[0].to_owned();
        let mut count = Count::default();
        count.add((1, 1, 1, 9), [4, 0]);
        let counts = BTreeMap::from([(file, count)]);
        assert!(!told(&counts, 60.0));
        assert!(told(&counts, 50.0));
    }

    #[test]
    fn every_file_is_there_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut all: Vec<&str> = MODULES.iter().flat_map(|(_, files)| *files).copied().collect();
        for file in &all {
            assert!(root.join(file).is_file(), "no {file}");
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
