//! The fuzz targets under libFuzzer with AddressSanitizer: the tool is installed if it is missing,
//! the program built, each target run for some seconds from the corpora and what it begins with,
//! and the findings told with one line each that repeats them. `--merge` chooses, of all inputs
//! that are kept, those that reach most, and puts them into the committed corpora: see `merge.rs`.
//!
//! The compiler is the one that builds everything else: what libFuzzer needs of it is switched on
//! by `RUSTC_BOOTSTRAP`, so no other toolchain has to be there.

mod merge;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use holdfast_evidence::{Begun, Row};

use crate::workspace::cargo;
use crate::{Misuse, passthrough};

/// The tool that builds for libFuzzer, and the version that is installed where there is none.
const TOOL: &str = "cargo-fuzz";
const TOOL_VERSION: &str = "0.13.2";
/// Where the program's own workspace is, and the committed inputs.
const PROGRAM: &str = "testing/fuzz/fuzz";
const CORPUS: &str = "testing/fuzz/corpus";
/// What is built and found, below the workspace's target folder.
const PLACE: &str = "target/fuzz";
/// For which machine: a sanitizer needs it said.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// It cannot be run here.
const CANNOT: u8 = 8;

/// What to fuzz, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these targets.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 30, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Run one input of one target and nothing else: a file, or hexadecimal digits.
    #[arg(long, value_name = "FILE|HEX", requires = "target")]
    #[arg(conflicts_with_all = ["stable", "seconds", "ledger", "keep"])]
    input: Option<String>,
    /// Where the inputs that reach something new are kept [default: below target/fuzz].
    #[arg(long, value_name = "DIR", conflicts_with = "stable")]
    keep: Option<PathBuf>,
    /// Without libFuzzer: mutated inputs on several threads, as fast as can be.
    #[arg(long)]
    pub(crate) stable: bool,
    /// Run nothing, but choose anew which inputs are committed: few and short ones, which reach
    /// what all that are kept reach.
    #[arg(long, conflicts_with_all = ["stable", "input", "seconds", "ledger"])]
    merge: bool,
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    storm: Storm,
}

/// What a run without libFuzzer is told besides.
#[derive(Debug, clap::Args)]
struct Storm {
    /// So many runs of each target, however long they take.
    #[arg(
        long,
        value_name = "N",
        requires = "stable",
        conflicts_with = "seconds",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    runs: Option<u64>,
    /// Where chance begins.
    #[arg(long, value_name = "N", requires = "stable")]
    seed: Option<u64>,
    /// Number of the first input: a run tells the next one.
    #[arg(long, value_name = "N", requires = "stable")]
    from: Option<u64>,
    /// Threads.
    #[arg(long, value_name = "N", requires = "stable")]
    jobs: Option<u64>,
    /// Print a JSON object for each target, with what it found, and nothing else.
    #[arg(long, conflicts_with_all = ["input", "merge"])]
    json: bool,
}

impl Storm {
    /// The words for the program that runs it.
    fn words(&self, args: &Args) -> Vec<String> {
        let mut words = vec!["storm".to_owned()];
        words.extend(args.target.iter().cloned());
        let seconds = self.runs.is_none().then_some(args.seconds);
        for (name, number) in [
            ("--seconds", seconds),
            ("--runs", self.runs),
            ("--seed", self.seed),
            ("--from", self.from),
            ("--jobs", self.jobs),
        ] {
            words.extend(number.iter().flat_map(|number| [name.to_owned(), number.to_string()]));
        }
        if self.json {
            words.push("--json".to_owned());
        }
        if let Some(ledger) = &args.ledger {
            words.extend(["--ledger".to_owned(), ledger.display().to_string()]);
        }
        words
    }
}

/// What one target came to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ran {
    target: String,
    /// Runs, and runs in a second.
    runs: u64,
    speed: u64,
    /// Most memory of the process, in MiB.
    peak: u64,
    /// How long it took, in seconds.
    seconds: u64,
    /// The input that broke the law.
    finding: Option<PathBuf>,
}

/// Fuzzes. Exits with 1 on a finding, with 8 if it cannot be done here, with 16 if there is no such
/// target.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let known = targets(root)?;
    if let Some(wrong) = args.target.iter().find(|name| !known.contains(name)) {
        bail!(Misuse(format!("no target {wrong}; there are {}", known.join(", "))));
    }
    if let Some(input) = &args.input {
        let [target] = &args.target[..] else {
            bail!(Misuse("an input is of one target: name that one alone".to_owned()));
        };
        // A file, or digits.
        let input = if Path::new(input).exists() { &here(input) } else { input };
        let words = ["replay", target, input].map(str::to_owned);
        return passthrough::start_checked(root, "holdfast-fuzz", &words);
    }
    if args.stable {
        return passthrough::start_checked(root, "holdfast-fuzz", &args.storm.words(args));
    }
    let begun = Begun::at(root);
    if let Some(path) = &args.ledger {
        holdfast_evidence::append(path, &[])?;
    }
    let tool = match tool(root) {
        Ok(tool) => tool,
        Err(why) => {
            eprintln!("fuzz: cannot be run here: {why:#}");
            return Ok(ExitCode::from(CANNOT));
        }
    };
    let Some(program) = built(root, &tool)? else { return Ok(ExitCode::FAILURE) };
    let chosen = if args.target.is_empty() { &known } else { &args.target };
    if args.merge {
        for target in chosen {
            merge::merge(root, &program, target, &kept(root, target, args))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (mut all, mut failed) = (Vec::new(), None);
    let commit = begun.commit_now();
    for target in chosen {
        eprintln!("\n==> {target}, {} s", args.seconds);
        match one(root, &program, target, args) {
            Ok(ran) => all.push(ran),
            // What the others found, or will, is told and noted all the same.
            Err(error) => {
                eprintln!("fuzz: {target}: {error:#}");
                failed = Some(error);
                continue;
            }
        }
        if let Some(path) = &args.ledger {
            holdfast_evidence::append(path, &rows(&all[all.len() - 1..], &commit))?;
        }
    }
    let rows = rows(&all, &commit);
    let fine = if args.storm.json { objects(&all, &rows) } else { told(&all) };
    match failed {
        Some(error) if fine => Err(error),
        _ if fine => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

/// A row of the list for each target.
fn rows(all: &[Ran], commit: &str) -> Vec<Row> {
    let row = |ran: &Ran| Row {
        commit: commit.to_owned(),
        method: format!("fuzz {}", ran.target),
        how: "libFuzzer, AddressSanitizer".to_owned(),
        count: ran.runs,
        violations: ran.finding.is_some().into(),
        seconds: ran.seconds,
        ..Row::default()
    };
    all.iter().map(row).collect()
}

/// Where inputs of a target are kept that reach something new.
fn kept(root: &Path, target: &str, args: &Args) -> PathBuf {
    let keep = args.keep.as_ref().map(|keep| PathBuf::from(here(keep)));
    keep.unwrap_or_else(|| root.join(PLACE).join("corpus")).join(target)
}

/// A path as those see it who run in the root, whoever asks from elsewhere.
fn here(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The targets: each has a folder of inputs.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(CORPUS);
    let read = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
    let names = read.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Writes the inputs that a target begins with into their folder, and into an empty one: those of
/// another version are none of them.
fn seeded(root: &Path, target: &str) -> Result<()> {
    let folder = seeds(root, target);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let words = ["seeds", target, &folder.display().to_string()].map(str::to_owned);
    let written = passthrough::start_checked(root, "holdfast-fuzz", &words)?;
    if written != ExitCode::SUCCESS {
        bail!("{target}: what it begins with cannot be written into {}", folder.display());
    }
    Ok(())
}

/// Where they are.
fn seeds(root: &Path, target: &str) -> PathBuf {
    root.join(PLACE).join("seeds").join(target)
}

/// Where inputs of a target are, that of those kept first: there libFuzzer puts new ones.
fn inputs(root: &Path, target: &str, kept: &Path) -> [PathBuf; 3] {
    [kept.to_owned(), root.join(CORPUS).join(target), seeds(root, target)]
}

/// The program, told that it is this target, and what no run of any may do.
fn told_target(root: &Path, program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(root)
        .env("HOLDFAST_FUZZ_TARGET", target)
        .args(["-timeout=20", "-rss_limit_mb=4096", "-malloc_limit_mb=1024"])
        // What lives as long as the program is no leak that a run makes.
        .arg("-detect_leaks=0");
    command
}

/// Builds the program; answers where it is. None if it does not compile, which is a finding.
fn built(root: &Path, tool: &Path) -> Result<Option<PathBuf>> {
    let done = Command::new(tool)
        .current_dir(root)
        .args(["build", "--fuzz-dir", PROGRAM, "--target-dir", PLACE, "target"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO", cargo())
        .status()
        .with_context(|| format!("cannot start {}", tool.display()))?;
    let program = root.join(PLACE).join(MACHINE).join("release/target");
    if !done.success() || !program.is_file() {
        eprintln!("fuzz: {} could not be built", program.display());
        return Ok(None);
    }
    Ok(Some(program))
}

/// The tool, installed below the target folder if it is nowhere.
fn tool(root: &Path) -> Result<PathBuf> {
    let own = root.join(PLACE).join("tools");
    let places = [PathBuf::from(TOOL), own.join("bin").join(TOOL)];
    let runs = |tool: &&PathBuf| {
        let asked = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    if let Some(tool) = places.iter().find(runs) {
        return Ok(tool.clone());
    }
    eprintln!("fuzz: there is no {TOOL}; installing {TOOL_VERSION} into {}", own.display());
    let done = Command::new(cargo())
        .current_dir(root)
        .args(["install", "--locked", "--version", TOOL_VERSION, TOOL, "--root"])
        .arg(&own)
        .status()
        .context("cannot start cargo")?;
    if !done.success() {
        bail!("there is no {TOOL}, and it could not be installed");
    }
    Ok(places[1].clone())
}

/// What runs one target for so long.
fn fuzzing(root: &Path, program: &Path, target: &str, args: &Args) -> Command {
    let findings = findings(root, target);
    let mut command = told_target(root, program, target);
    command
        .args(inputs(root, target, &kept(root, target, args)))
        .arg(format!("-max_total_time={}", args.seconds))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-max_len=2048", "-print_final_stats=1"]);
    command
}

/// Where inputs of a target are put that broke the law.
fn findings(root: &Path, target: &str) -> PathBuf {
    root.join(PLACE).join("findings").join(target)
}

/// Runs one target.
fn one(root: &Path, program: &Path, target: &str, args: &Args) -> Result<Ran> {
    let findings = findings(root, target);
    for folder in [&kept(root, target, args), &findings] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    seeded(root, target)?;
    let log = root.join(PLACE).join(format!("{target}.log"));
    let into = fs::File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    let begun = std::time::SystemTime::now();
    let status = fuzzing(root, program, target, args)
        .stdout(Stdio::null())
        .stderr(into)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let (runs, speed, peak) = figures(&text);
    let found = newest(&findings, begun)?;
    if !status.success() {
        tail(&text);
        ensure!(runs > 0 || found.is_some(), "{target} did not begin: {}", log.display());
    }
    let finding = if status.success() { None } else { found.or(Some(log)) };
    let seconds = begun.elapsed().map_or(args.seconds, |time| time.as_secs());
    Ok(Ran { target: target.to_owned(), runs, speed, peak, seconds, finding })
}

/// The newest file of a folder that was written since.
fn newest(folder: &Path, since: std::time::SystemTime) -> Result<Option<PathBuf>> {
    let mut best = None;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let written = entry.metadata()?.modified()?;
        if written >= since && best.as_ref().is_none_or(|(other, _)| written > *other) {
            best = Some((written, entry.path()));
        }
    }
    Ok(best.map(|(_, path)| path))
}

/// Runs, runs in a second and MiB, as libFuzzer tells them; of a run that was cut short, what its
/// last line says.
fn figures(text: &str) -> (u64, u64, u64) {
    let last = |line: &str| line.rsplit(' ').next().and_then(|word| word.parse().ok());
    let stat = |name: &str| {
        let named = |line: &&str| line.starts_with(name);
        text.lines().rfind(named).and_then(last)
    };
    let pulse = text.lines().rfind(|line| line.starts_with('#'));
    let number = pulse.and_then(|line| line[1..].split_whitespace().next()?.parse().ok());
    (
        stat("stat::number_of_executed_units:").or(number).unwrap_or(0),
        stat("stat::average_exec_per_sec:").unwrap_or(0),
        stat("stat::peak_rss_mb:").unwrap_or(0),
    )
}

/// The lines that say what went wrong.
fn tail(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let told =
        |line: &&&str| ["panicked", "ERROR", "SUMMARY"].iter().any(|word| line.contains(word));
    lines.iter().filter(told).take(8).for_each(|line| eprintln!("  {line}"));
}

/// One object for each target; `true` if there is no finding.
fn objects(all: &[Ran], rows: &[Row]) -> bool {
    for (ran, row) in all.iter().zip(rows) {
        let found: Vec<_> = ran.finding.iter().map(|input| input.display().to_string()).collect();
        println!("{}", row.json(&found));
    }
    all.iter().all(|ran| ran.finding.is_none())
}

/// One line for each target, and one that repeats each finding; `true` if there is none.
fn told(all: &[Ran]) -> bool {
    println!("\n{:10} {:>12} {:>10} {:>9}", "target", "runs", "runs/s", "peak MiB");
    for ran in all {
        println!("{:10} {:>12} {:>10} {:>9}", ran.target, ran.runs, ran.speed, ran.peak);
    }
    let found: Vec<_> =
        all.iter().filter_map(|ran| Some((&ran.target, ran.finding.as_ref()?))).collect();
    let runs: u64 = all.iter().map(|ran| ran.runs).sum();
    println!("fuzz: {runs} runs, {} findings", found.len());
    for (target, input) in &found {
        println!("  replay: cargo xtask fuzz --target {target} --input {}", input.display());
    }
    found.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let whole = "#9\tDONE cov: 1\nstat::number_of_executed_units: 120\n\
                     stat::average_exec_per_sec:     60\nstat::peak_rss_mb:              77\n";
        assert_eq!(figures(whole), (120, 60, 77));
        assert_eq!(
            figures("#2\tINITED cov: 3\n#4096\tpulse cov: 9\nthread panicked\n"),
            (4096, 0, 0)
        );
        assert_eq!(figures(""), (0, 0, 0));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_target_has_what_is_kept_what_is_committed_and_what_it_begins_with() {
        let line = ["fuzz", "--seconds", "9", "--keep", "/kept"];
        let line = <Line as clap::Parser>::try_parse_from(line).unwrap();
        let command = fuzzing(Path::new("/root"), Path::new("/program"), "open", &line.args);
        let words = words(&command);
        let folders: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
        let three =
            ["/kept/open", "/root/testing/fuzz/corpus/open", "/root/target/fuzz/seeds/open"];
        assert_eq!(folders, three, "libFuzzer writes into the first");
        for word in ["-max_total_time=9", "-timeout=20", "-max_len=2048", "-detect_leaks=0"] {
            assert!(words.iter().any(|other| other == word), "{word}: {words:?}");
        }
        let named = command
            .get_envs()
            .any(|it| it == ("HOLDFAST_FUZZ_TARGET".as_ref(), Some("open".as_ref())));
        assert!(named);
    }

    #[test]
    fn a_storm_is_told_what_was_asked_for() {
        let words = |line: &str| {
            let line = <Line as clap::Parser>::try_parse_from(line.split(' '))?;
            Ok::<_, clap::Error>(line.args.storm.words(&line.args).join(" "))
        };
        let said = words("fuzz --stable --target open --target side --seconds 9 --ledger l.md");
        assert_eq!(said.unwrap(), "storm open side --seconds 9 --ledger l.md");
        let said = words("fuzz --stable --runs 7 --seed 3 --from 5 --jobs 1");
        assert_eq!(said.unwrap(), "storm --runs 7 --seed 3 --from 5 --jobs 1");
        assert!(words("fuzz --seed 3").is_err(), "libFuzzer has its own");
        assert!(words("fuzz --json").is_ok(), "both tell what they found");
        assert!(words("fuzz --json --merge").is_err(), "that finds nothing");
        assert!(words("fuzz --stable --runs 0").is_err(), "nothing would find nothing");
    }

    #[test]
    fn a_finding_fails_the_run() {
        let target = "open".to_owned();
        let clean = Ran { target, runs: 1, speed: 1, peak: 1, seconds: 2, finding: None };
        assert!(told(std::slice::from_ref(&clean)));
        let both = [clean.clone(), Ran { finding: Some(PathBuf::from("input")), ..clean }];
        assert!(!told(&both));
        let rows = rows(&both, "abc");
        assert!(objects(&both[..1], &rows[..1]) && !objects(&both, &rows));
        let violations: Vec<u64> = rows.iter().map(|row| row.violations).collect();
        assert_eq!(violations, [0, 1]);
        assert!(rows.iter().all(|row| row.commit == "abc"), "what the run began with");
    }
}
