//! Branch coverage of what reads, recovers and repairs: how many of the ways out of each condition
//! in those files were taken by tests, storms of the fuzzer and campaigns. Arms of a `match` and
//! the ways of `?` are no branches for this compiler: regions, which count them, are told beside.
//!
//! The compiler is the one that builds everything else; `RUSTC_BOOTSTRAP` switches on that it
//! counts branches. Counts of all programs are put together: a way that one of them took is taken,
//! in whatever instance of generic code. Tests inside a file do not count as a part of it.

mod branches;
mod files;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_evidence::{Begun, Row, SHARE};
use serde_json::Value;

use crate::Misuse;
use crate::workspace::{cargo, keep_json};
use branches::File;
use files::MODULES;

/// For which machine: said, so that build scripts are not counted.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// What is built and counted, below the workspace's target folder.
const PLACE: &str = "target/coverage";
/// Part of the branches that must be taken, and of the regions that must be entered, in percent.
const WANTED: Share = Share { branches: 90.0, regions: 90.0 };
/// It cannot be run here.
const CANNOT: u8 = 8;

/// How a whole run is done, as its rows say. What it came to is in figures: a row is made up for by
/// a later one that was run the same way, and no two runs come to the same.
const HOW: &str = "tests, storms, campaigns";

/// Crates whose tests are run, and programs beside them.
const PACKAGES: [&str; 14] = [
    "holdfast-pmem",
    "holdfast-layout",
    "holdfast-redundancy",
    "holdfast-logs",
    "holdfast-heap",
    "holdfast-object",
    "holdfast-mapped",
    "holdfast-guard-wire",
    "holdfast-guard",
    "holdfast-collections",
    "holdfast",
    "holdfast-cli",
    "holdfast-campaign",
    "holdfast-fuzz",
];

/// Test programs that are not run, and why: crate, name, reason.
const LEFT_OUT: [(&str, &str, &str); 1] = [(
    "holdfast-guard",
    "programs",
    "it stops, kills and forks programs, and did not end within half an hour when it was counted",
)];

/// What to run, and how to tell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail if too few of the branches of a module were taken, or of its regions entered.
    #[arg(long)]
    check: bool,
    /// Tell what is on record from earlier runs, and run nothing.
    #[arg(long, conflicts_with = "only")]
    again: bool,
    /// Run only these parts, and add to what is on record.
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Tests of these crates only, added to what is on record.
    #[arg(long = "package", short, value_name = "CRATE")]
    packages: Vec<String>,
    /// Seconds for each target of the fuzzer.
    #[arg(long, default_value_t = 20, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// List the branches of this file that were not taken, and the regions never entered.
    #[arg(long, value_name = "FILE")]
    missing: Vec<String>,
    /// Add the share of each module to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["again", "only", "packages"])]
    ledger: Option<PathBuf>,
    /// Write what each module comes to to this file as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
    let (source, begun) = (Begun::at(root), Instant::now());
    if let Some(path) = &args.ledger {
        holdfast_evidence::append(path, &[])?;
    }
    if let Some(wrong) = args.packages.iter().find(|name| !PACKAGES.contains(&name.as_str())) {
        let known = PACKAGES.join(", ");
        bail!(Misuse(format!("nothing of {wrong} is counted; of these is: {known}")));
    }
    let known =
        |name: &String| root.join(name).is_file() || files().any(|file| is_named(file, name));
    if let Some(name) = args.missing.iter().find(|name| !known(name)) {
        bail!(Misuse(format!("no file that is counted is called {name}: see the list of a run")));
    }
    keep_json(args.json.as_deref(), "")?;
    let tools = match tools() {
        Ok(tools) => tools,
        Err(why) => {
            println!("coverage: cannot be run here: {why:#}");
            return Ok(ExitCode::from(CANNOT));
        }
    };
    let programs = programs(root)?;
    let mut fine = true;
    if !args.again {
        if args.only.is_empty() && args.packages.is_empty() {
            forget(root)?;
        }
        let parts = match &args.only[..] {
            [] if args.packages.is_empty() => &PARTS[..],
            [] => &[Part::Tests],
            some => some,
        };
        for part in parts {
            let done = part.run(root, args, &programs)?;
            println!("coverage: {part:?} {}", if done { "passed" } else { "FAILED" });
            fine &= done;
        }
    }
    let report = report(root, &tools, &programs)?;
    let counts = branches::counts(root, &report)?;
    for name in &args.missing {
        for (file, count) in counts.iter().filter(|(file, _)| is_named(file, name)) {
            let branches = count.branches.missing();
            branches.for_each(|(line, way)| println!("{file}:{line}: never {way}"));
            count.never().for_each(|(line, column)| println!("{file}:{line}:{column}: never"));
        }
    }
    let (modules, blind) = told(&counts);
    println!();
    for file in &blind {
        println!("coverage: nothing was counted in {file}: no program that was run has it");
    }
    let short: Vec<&Sum> = modules.iter().filter(|sum| !sum.is_enough(WANTED)).collect();
    short.iter().for_each(|sum| println!("coverage: too little of {}", sum.module));
    if let Some(path) = &args.ledger {
        let of = (source.commit_now(), begun.elapsed().as_secs());
        let mut rows = rows(&modules, &blind, WANTED, (&of.0, of.1));
        // Once is enough: the rows are of one run.
        rows.first_mut().into_iter().for_each(|row| row.violations += u64::from(!fine));
        holdfast_evidence::append(path, &rows)?;
    }
    let enough = blind.is_empty() && (short.is_empty() || !args.check);
    keep_json(args.json.as_deref(), &object(&modules, &blind, fine && enough).to_string())?;
    Ok(if fine && enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All files that are counted.
fn files() -> impl Iterator<Item = &'static str> {
    MODULES.iter().flat_map(|(_, files)| files.iter().copied())
}

/// Whether a file is meant by a name: its last part, or more of it.
fn is_named(file: &str, name: &str) -> bool {
    file.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// What `--json` writes.
fn object(modules: &[Sum], blind: &[&str], passed: bool) -> Value {
    let part = |both: (u64, u64)| {
        let (reached, all) = both;
        serde_json::json!({ "reached": reached, "all": all, "percent": percent(both) })
    };
    let one = |sum: &Sum| {
        serde_json::json!({
            "module": sum.module,
            "branches": part(sum.branches),
            "regions": part(sum.regions),
            "enough": sum.is_enough(WANTED),
        })
    };
    serde_json::json!({
        "passed": passed,
        "modules": modules.iter().map(one).collect::<Vec<_>>(),
        "not_counted": blind,
    })
}

/// Shares of branches and regions, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    branches: f64,
    regions: f64,
}

/// What a module comes to: each what was reached, and all there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sum {
    module: String,
    branches: (u64, u64),
    regions: (u64, u64),
}

impl Sum {
    fn share(&self) -> Share {
        Share { branches: percent(self.branches), regions: percent(self.regions) }
    }

    fn is_enough(&self, wanted: Share) -> bool {
        let share = self.share();
        share.branches >= wanted.branches && share.regions >= wanted.regions
    }

    fn add(&mut self, other: &Self) {
        let plus = |one: (u64, u64), two: (u64, u64)| (one.0 + two.0, one.1 + two.1);
        self.branches = plus(self.branches, other.branches);
        self.regions = plus(self.regions, other.regions);
    }

    fn line(&self, name: &str, width: usize) -> String {
        let part =
            |(reached, all)| format!("{reached:>6} of {all:>6} {:>6.1} %", percent((reached, all)));
        format!("{name:width$} {}  {}", part(self.branches), part(self.regions))
    }
}

/// A line for each file and module. Answers what modules come to, and files without any count: that
/// a file has no branches is nothing bad, that it has no region means that nobody looked at it.
fn told(counts: &BTreeMap<String, File>) -> (Vec<Sum>, Vec<&'static str>) {
    let (mut modules, mut blind) = (Vec::new(), Vec::new());
    println!("{:48} {:>25}  {:>25}", "", "branches taken", "regions entered");
    for (module, files) in MODULES {
        let mut all = Sum { module: (*module).to_owned(), ..Sum::default() };
        println!();
        for name in *files {
            let file = counts.get(*name).filter(|file| file.regions().1 > 0);
            let Some(file) = file else {
                blind.push(*name);
                continue;
            };
            let (branches, regions) = (file.branches.sum(), file.regions());
            let sum = Sum { branches, regions, ..Sum::default() };
            println!("  {}", sum.line(name, 46));
            all.add(&sum);
        }
        println!("{}", all.line(module, 48));
        modules.push(all);
    }
    let mut sum = Sum::default();
    modules.iter().for_each(|module| sum.add(module));
    println!("\n{}", sum.line("all", 48));
    (modules, blind)
}

fn percent((reached, all): (u64, u64)) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * reached as f64 / all as f64 }
}

/// How many of a thousand, rounded down: what is too little is never told as enough.
fn in_1000((reached, all): (u64, u64)) -> u64 {
    reached.saturating_mul(1000).checked_div(all).unwrap_or(0)
}

/// A row of the list for each module.
fn rows(
    modules: &[Sum],
    blind: &[&str],
    wanted: Share,
    (commit, seconds): (&str, u64),
) -> Vec<Row> {
    let seen = |(at, sum): (usize, &Sum)| {
        let files = MODULES.iter().find(|(module, _)| *module == sum.module);
        let blind = blind.iter().filter(|file| files.is_some_and(|it| it.1.contains(file)));
        let blind = blind.count() as u64;
        Row {
            commit: commit.to_owned(),
            method: format!("coverage {}", sum.module),
            how: HOW.to_owned(),
            count: sum.branches.1,
            violations: blind + u64::from(!sum.is_enough(wanted)),
            // Of one run, told once.
            seconds: if at == 0 { seconds } else { 0 },
            figures: BTreeMap::from([
                ("branches taken".to_owned(), sum.branches.0),
                (format!("branches taken{SHARE}"), in_1000(sum.branches)),
                ("regions".to_owned(), sum.regions.1),
                ("regions entered".to_owned(), sum.regions.0),
                (format!("regions entered{SHARE}"), in_1000(sum.regions)),
            ]),
            ..Row::default()
        }
    };
    modules.iter().enumerate().map(seen).collect()
}

/// Counts of earlier runs are gone: a test that is no more would count for ever.
fn forget(root: &Path) -> Result<()> {
    let folder = root.join(PLACE).join("counts");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
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

/// Where programs leave counts: some files for each, into which later runs add theirs.
fn counts_of(root: &Path) -> PathBuf {
    root.join(PLACE).join("counts/%4m.profraw")
}

/// A program that was built to count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// Where it is.
    path: PathBuf,
    /// The folder of its crate.
    folder: PathBuf,
    /// The name of its crate, if it is one of the crate's test programs.
    tests: Option<String>,
}

/// Builds all programs. Always all at once: of a part of them, cargo would build others, for other
/// features of what they share, and counts of those would be nobody's.
fn programs(root: &Path) -> Result<Vec<Program>> {
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["test", "--lib", "--bins", "--tests", "--target", MACHINE, "--target-dir", PLACE])
        .args(["--no-run", "--message-format", "json"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Cinstrument-coverage -Zcoverage-options=branch")
        .env("CARGO_INCREMENTAL", "0")
        // Counters are atomic, and building is most of the time.
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
    for package in PACKAGES {
        command.args(["-p", package]);
    }
    let built = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the programs could not be built");
    }
    let lines = built.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    Ok(messages.filter_map(|message| program(&message)).collect())
}

/// The program that a message of cargo is about, if it is about one.
fn program(message: &Value) -> Option<Program> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    // `path+file:///folder#name@version`, or without a name that is the folder's.
    let id = message["package_id"].as_str()?;
    let end = id.rsplit(['#', '/']).next()?;
    let named = end.split_once('@').map_or("", |(name, _)| name);
    let own = folder.file_name()?.to_str()?;
    let name = if named.is_empty() { own } else { named };
    let tests = (message["profile"]["test"] == true).then(|| name.to_owned());
    Some(Program { path, folder, tests })
}

impl Part {
    /// Runs it; whether it passed.
    fn run(self, root: &Path, args: &Args, programs: &[Program]) -> Result<bool> {
        let named = |name: &str| {
            let mine = |it: &&Program| it.path.file_name().is_some_and(|file| file == name);
            let found = programs.iter().find(mine).with_context(|| format!("{name} was not built"));
            found.map(|program| program.path.as_path())
        };
        match self {
            Self::Tests => tests(root, args, programs),
            Self::Fuzz => {
                let mut command = counting(root, named("holdfast-fuzz")?);
                command.args(["storm", "--seconds", &args.seconds.to_string()]);
                Ok(command.status().with_context(|| format!("cannot start {command:?}"))?.success())
            }
            Self::Object => campaign(root, named("holdfast-campaign")?, "object"),
            Self::Mapped => campaign(root, named("holdfast-campaign")?, "mapped"),
        }
    }
}

/// A program that is to count.
fn counting(root: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).env("LLVM_PROFILE_FILE", counts_of(root));
    command
}

/// Runs a campaign row by row, two at a time, each in one thread: threads of one program wait for
/// each other at every counter.
fn campaign(root: &Path, program: &Path, name: &str) -> Result<bool> {
    // It counts, too: left alone, it would put its counts beside the sources.
    let listed = counting(root, program).args([name, "--list"]).output().context("cannot list")?;
    ensure!(
        listed.status.success() && !listed.stdout.is_empty(),
        "the rows of {name} are not told"
    );
    let listed = String::from_utf8(listed.stdout).context("a list that is no text")?;
    let rows = listed.lines().filter_map(|line| line.split_whitespace().next());
    let rows = Mutex::new(rows);
    let next = || rows.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<bool> {
        let mut fine = true;
        while let Some(row) = next() {
            let mut command = counting(root, program);
            command.args([name, "--tier", "ci", "--threads", "1", "--only", row]);
            let done = command.output().with_context(|| format!("cannot start {command:?}"))?;
            println!("coverage: {name} {row}: {}", done.status);
            if !done.status.success() {
                fine = false;
                println!("{}", String::from_utf8_lossy(&done.stdout));
                println!("{}", String::from_utf8_lossy(&done.stderr));
            }
        }
        Ok(fine)
    };
    thread::scope(|scope| {
        let other = scope.spawn(work);
        let own = work()?;
        Ok(other.join().map_err(|_| anyhow!("a row was not run to its end"))?? && own)
    })
}

/// Runs test programs as cargo does: each in the folder of its crate. What one says is told if it
/// fails.
fn tests(root: &Path, args: &Args, programs: &[Program]) -> Result<bool> {
    let mut fine = true;
    for program in programs {
        let Some(package) = &program.tests else { continue };
        if !args.packages.is_empty() && !args.packages.contains(package) {
            continue;
        }
        if let Some(why) = left_out(program) {
            println!("coverage: {package} {}: left out: {why}", program.path.display());
            continue;
        }
        let done = counting(root, &program.path)
            .current_dir(&program.folder)
            .env("CARGO", cargo())
            .env("CARGO_PKG_NAME", package)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .output()
            .with_context(|| format!("cannot start {}", program.path.display()))?;
        let file = program.path.file_name().unwrap_or_default().to_string_lossy();
        println!("coverage: {package} {file}: {}", done.status);
        if !done.status.success() {
            fine = false;
            println!("{}", String::from_utf8_lossy(&done.stdout));
            println!("{}", String::from_utf8_lossy(&done.stderr));
        }
    }
    Ok(fine)
}

/// Why a test program is not run, if it is not. Cargo puts a hash behind the name.
fn left_out(program: &Program) -> Option<&'static str> {
    let file = program.path.file_name()?.to_str()?;
    let (name, _) = file.rsplit_once('-')?;
    let package = program.tests.as_deref()?;
    let listed = LEFT_OUT.iter().find(|(of, it, _)| *of == package && *it == name);
    listed.map(|(.., why)| *why)
}

/// What the tools say of the files that count.
fn report(root: &Path, tools: &Tools, programs: &[Program]) -> Result<Value> {
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
    command.args(["export", "--skip-functions"]);
    command.arg(format!("--instr-profile={}", merged.display())).arg(&first.path);
    for other in others {
        command.arg("--object").arg(&other.path);
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

    /// A file with one condition, of which one way was taken, and two regions.
    fn file(second: u64) -> File {
        let mut file = File::default();
        file.branches.add((1, 1, 1, 9), [4, 0]);
        file.enter((1, 1), 4);
        file.enter((2, 1), second);
        file
    }

    fn all(one: &File) -> BTreeMap<String, File> {
        let names = MODULES.iter().flat_map(|(_, files)| *files);
        names.map(|name| ((*name).to_owned(), one.clone())).collect()
    }

    #[test]
    fn what_is_left_out_is_a_test_of_its_crate_and_no_other() {
        let of = |package: &str, file: &str| Program {
            path: PathBuf::from("deps").join(file),
            folder: PathBuf::new(),
            tests: Some(package.to_owned()),
        };
        assert!(left_out(&of("holdfast-guard", "programs-0a1b")).is_some());
        for (package, file) in [("holdfast", "programs-0a1b"), ("holdfast-guard", "told-0a1b")] {
            assert_eq!(left_out(&of(package, file)), None);
        }
        let there =
            crate::workspace::root(None).expect("a root").join("surfaces/guard/tests/programs");
        assert!(there.is_dir() || there.with_extension("rs").is_file(), "a test that there is");
    }

    #[test]
    fn each_module_is_in_the_list_of_what_is_run() {
        let names = MODULES.iter().map(|(module, _)| *module);
        assert_eq!(holdfast_evidence::unlisted("coverage", names), Vec::<String>::new());
    }

    #[test]
    fn a_file_is_named_by_whole_parts_of_its_path() {
        assert!(is_named("core/logs/src/ring.rs", "ring.rs"));
        assert!(is_named("core/logs/src/ring.rs", "src/ring.rs"));
        assert!(is_named("ring.rs", "ring.rs"));
        assert!(!is_named("core/logs/src/string.rs", "ring.rs"));
    }

    #[test]
    fn what_modules_come_to_is_told_in_json() {
        let (modules, blind) = told(&all(&file(0)));
        let told = object(&modules, &blind, true);
        let first = &told["modules"][0];
        assert_eq!(first["module"], modules[0].module.as_str());
        assert_eq!(first["branches"]["reached"], modules[0].branches.0);
        assert_eq!(first["enough"], modules[0].is_enough(WANTED));
        assert_eq!(told["not_counted"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn too_few_branches_or_regions_are_not_enough() {
        let (modules, blind) = told(&all(&file(0)));
        assert_eq!(blind, Vec::<&str>::new());
        let enough = |branches, regions| {
            modules.iter().all(|sum| sum.is_enough(Share { branches, regions }))
        };
        assert!(enough(50.0, 50.0));
        assert!(!enough(51.0, 50.0));
        assert!(!enough(50.0, 51.0));
        assert!(
            !Sum::default().is_enough(Share { branches: 1.0, regions: 1.0 }),
            "nothing is none"
        );
    }

    #[test]
    fn a_file_that_nobody_counted_in_is_told() {
        let mut counts = all(&file(1));
        let (gone, empty) = (MODULES[0].1[0], MODULES[1].1[0]);
        counts.remove(gone);
        counts.insert(empty.to_owned(), File::default());
        let (modules, blind) = told(&counts);
        assert_eq!(blind, [gone, empty]);
        let half = Share { branches: 50.0, regions: 50.0 };
        let rows = rows(&modules, &blind, half, ("abc", 3));
        let violations: Vec<u64> = rows.iter().map(|row| row.violations).collect();
        assert_eq!(violations, [1, 1, 0, 0]);
    }

    #[test]
    fn a_file_without_branches_is_counted_by_its_regions() {
        let mut counts = all(&file(1));
        let mut plain = File::default();
        plain.enter((1, 1), 3);
        counts.insert(MODULES[0].1[0].to_owned(), plain);
        assert_eq!(told(&counts).1, Vec::<&str>::new());
    }

    #[test]
    fn programs_are_told_by_cargo() {
        let message = |id: &str, test: bool| {
            serde_json::json!({
                "package_id": id,
                "manifest_path": "/w/core/heap/Cargo.toml",
                "executable": "/w/target/all-1",
                "profile": { "test": test },
            })
        };
        let tests = |id| program(&message(id, true)).and_then(|program| program.tests);
        let named = tests("path+file:///w/core/heap#holdfast-heap@0.1.0");
        assert_eq!(named.as_deref(), Some("holdfast-heap"));
        assert_eq!(tests("path+file:///w/core/heap#0.1.0").as_deref(), Some("heap"));
        let plain = program(&message("path+file:///w/core/heap#holdfast-heap@0.1.0", false));
        let plain = plain.expect("a program");
        assert_eq!((plain.folder, plain.tests), (PathBuf::from("/w/core/heap"), None));
        assert_eq!(program(&serde_json::json!({ "executable": null })), None);
    }

    #[test]
    fn a_row_says_the_share_of_its_module() {
        let (modules, blind) = told(&all(&file(1)));
        let rows = rows(&modules, &blind, WANTED, ("abc", 7));
        assert!(rows.iter().all(|row| row.commit == "abc"), "what the run began with");
        assert_eq!(rows[0].method, "coverage recovery");
        let share = |name: &str| rows[0].figures[&format!("{name}{SHARE}")];
        assert_eq!((share("branches taken"), share("regions entered")), (500, 1000));
        assert_eq!((rows[0].violations, rows[0].seconds, rows[1].seconds), (1, 7, 0));
        assert_eq!(rows[0].figures["branches taken"] * 2, rows[0].count);
    }

    #[test]
    fn a_share_that_is_too_small_is_not_told_as_enough() {
        assert_eq!([(8999, 10_000), (9000, 10_000), (0, 0)].map(in_1000), [899, 900, 0]);
    }

    #[test]
    fn a_run_that_came_to_too_little_is_made_up_for_by_a_later_one_that_came_to_enough() {
        let of = |commit: &str, second| {
            let (modules, blind) = told(&all(&file(second)));
            let wanted = Share { branches: 50.0, regions: 75.0 };
            rows(&modules, &blind, wanted, (commit, 7))
        };
        let mut list = of("abc", 0);
        assert_eq!(holdfast_evidence::open(&list).len(), MODULES.len());
        list.extend(of("def", 1));
        assert_eq!(holdfast_evidence::open(&list), Vec::<&Row>::new());
    }
}
