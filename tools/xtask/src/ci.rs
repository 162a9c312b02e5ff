//! What CI runs, as one table of steps, cheapest first.
//!
//! A step whose crate or file does not exist yet is left out and the summary says so. The whole run
//! must stay below [`BUDGET`] on a machine with two cores, and fails beyond [`LIMIT`] on any.

pub(crate) mod skips;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use holdfast_evidence::stop;

use self::skips::Kept;
use crate::Misuse;
use crate::workspace::{Workspace, cargo, keep_json};

/// Longest run on a machine with [`CORES`] that has nothing else to do. One is over it that takes
/// more than the processor time of it, or longer without what others have kept from it; it says so.
const BUDGET: Duration = Duration::from_secs(40 * 60);
/// One that is over this has failed although each step has passed. Nearly the same code took 33
/// minutes on one machine with two cores and 50 on another: up to there, it may be the machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// Cores of that machine.
const CORES: u32 = 2;

/// What a step starts.
#[derive(Debug, Clone, Copy)]
enum Run {
    /// `cargo` with these arguments.
    Cargo(&'static [&'static str]),
    /// The same, for tests: of what those that pass print, only what they skipped is told.
    Tests(&'static [&'static str]),
    /// This program with these arguments.
    Xtask(&'static [&'static str]),
    /// This program with these arguments, as the tests have built it.
    Built(&'static str, &'static [&'static str]),
}

/// What must exist for a step to make sense.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Nothing,
    Crate(&'static str),
    File(&'static str),
}

/// One step: its name, what it starts, with which variables, and what it needs.
#[derive(Debug, Clone, Copy)]
struct Step {
    name: &'static str,
    run: Run,
    variables: &'static [(&'static str, &'static str)],
    needs: Needs,
}

const fn step(name: &'static str, run: Run) -> Step {
    Step { name, run, variables: &[], needs: Needs::Nothing }
}

/// The program of the campaigns.
const CAMPAIGN: &str = "holdfast-campaign";

/// Stands for a number that each commit has another one of: what was shown is shown again by
/// whoever gives it the same.
const SEED: &str = "<of the commit>";

/// Stands for half as many threads again as there are processors: many tests wait for processes
/// and clocks, and while one does, another computes.
const THREADS: &str = "<more than processors>";

/// The steps, in the order they run.
#[rustfmt::skip]
const STEPS: &[Step] = &[
    step("fmt", Run::Cargo(&["fmt", "--all", "--", "--check"])),
    step("layers", Run::Xtask(&["layers"])),
    step("tidy", Run::Xtask(&["tidy"])),
    step("formats", Run::Xtask(&["formats"])),
    Step { needs: Needs::File("docs/papers.md"), ..step("papers", Run::Xtask(&["papers"])) },
    step("clippy", Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    // A workspace of its own, which nothing else here compiles. Nothing is linked, so libFuzzer
    // itself, which is C++, need not be built; what `clippy` has built of others is used again.
    Step { needs: Needs::Crate("holdfast-fuzz"),
           variables: &[("CUSTOM_LIBFUZZER_PATH", "/dev/null")],
           ..step("libfuzzer", Run::Cargo(&["clippy", "--locked", "--target-dir", "target",
                                            "--manifest-path", "testing/fuzz/fuzz/Cargo.toml",
                                            "--", "-D", "warnings"])) },
    // What the sanitizers are tried on, which is no part of the workspace either.
    Step { needs: Needs::File("tools/xtask/planted/Cargo.toml"),
           ..step("planted", Run::Cargo(&["clippy", "--locked", "--target-dir", "target",
                                          "--manifest-path", "tools/xtask/planted/Cargo.toml",
                                          "--", "-D", "warnings"])) },
    Step { variables: &[("RUSTDOCFLAGS", "-D warnings")],
           ..step("doc", Run::Cargo(&["doc", "--workspace", "--no-deps"])) },
    // The programs in C are among the tests; built for them alone, much would be built twice.
    Step { needs: Needs::Crate("holdfast-capi"),
           ..step("capi", Run::Xtask(&["capi", "--header"])) },
    Step { variables: &[("HOLDFAST_SEED", SEED), ("RUST_TEST_THREADS", THREADS)],
           ..step("test", Run::Tests(&["test", "--workspace", "--", "--show-output"])) },
    Step { needs: Needs::Crate("holdfast-models"), ..step("models", Run::Xtask(&["models"])) },
    // To build for release takes minutes, for what is run once: these are optimised as well, and
    // look for overflows, and whether what the source asserts is so; slower, and so of less.
    Step { needs: Needs::Crate("holdfast-cli"),
           ..step("demo", Run::Built("holdfast", &[
               "demo", "--text", "1048576", "--faults", "300", "--kills", "8"])) },
    Step { needs: Needs::Crate("holdfast-campaign"),
           ..step("campaign", Run::Built(CAMPAIGN, &["object", "--tier", "ci"])) },
    Step { needs: Needs::Crate("holdfast-guard"),
           ..step("mapped", Run::Built(CAMPAIGN, &["mapped", "--tier", "ci"])) },
    // Says that it skips, and why, where no machine can be emulated.
    Step { needs: Needs::Crate("lab"), ..step("lab", Run::Built("lab", &["--smoke"])) },
    // The tests run the corpora; this is what chance makes of them, other inputs for each commit.
    // Each target for so long by the clock, all at once: of two cores, each has a sixth of one.
    Step { needs: Needs::Crate("holdfast-fuzz"),
           ..step("fuzz", Run::Built("holdfast-fuzz", &[
               "storm", "--seconds", "30", "--jobs", "11", "--seed", SEED])) },
];

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It left so many things out.
    Passed(usize),
    Failed,
    Skipped(&'static str),
    NotRun,
}

/// Runs the steps (those of `only`, if any); `true` if all that ran passed within the limit. What
/// each came to is written to `json` as well.
pub(crate) fn run(
    workspace: &Workspace,
    keep_going: bool,
    only: &[String],
    json: Option<&Path>,
) -> Result<bool> {
    if let Some(name) = only.iter().find(|name| STEPS.iter().all(|step| step.name != *name)) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!(Misuse(format!("no step {name}; the steps are: {}", names.join(", "))));
    }
    // What an earlier run left there says nothing of this one, and hours are not spent on what
    // cannot be kept.
    keep_json(json, "")?;
    // Asked now: the tests may build this program anew; the system has no name for this one then.
    let own = std::env::current_exe().context("cannot find this program again")?;
    let seed = seed(&workspace.root);
    let chosen = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(chosen).collect();
    let (start, busy) = (Instant::now(), busy_time()?);
    let (mut results, mut kept, mut ends) = (Vec::new(), Kept::default(), Vec::new());
    let mut stopped = false;
    for (number, step) in (1..).zip(&steps) {
        let begin = Instant::now();
        let outcome = match missing(step.needs, workspace) {
            _ if stopped => Outcome::NotRun,
            Some(what) => Outcome::Skipped(what),
            None => {
                let (program, arguments) = command(step.run, workspace, (&own, &seed));
                println!("\n==> [{number}/{}] {}: {}", steps.len(), step.name, shown(step, &seed));
                tell_room(workspace)?;
                run_step((step, &seed), workspace, (program, arguments), &mut kept)?
            }
        };
        if outcome == Outcome::Failed {
            ends.push((step.name, std::mem::take(&mut kept.last)));
        }
        stopped |= outcome == Outcome::Failed && !keep_going || stop::asked();
        results.push((step.name, outcome, begin.elapsed()));
    }
    tell_skips(&kept.skips);
    tell_ends(&ends);
    let of_processors = processor_time()?;
    let others = busy_time()?.saturating_sub(busy).saturating_sub(of_processors);
    let spent = Spent { time: start.elapsed(), of_processors, others };
    let fine = summarise(&results, spent) && !stop::asked();
    if stop::asked() {
        println!("ci: somebody stopped it");
    }
    keep_json(json, &object(&results, spent, fine).to_string())?;
    Ok(fine)
}

/// What `--json` writes: seconds, and how often a step that passed left something out.
fn object(results: &[(&str, Outcome, Duration)], spent: Spent, fine: bool) -> serde_json::Value {
    let step = |(name, outcome, time): &(&str, Outcome, Duration)| {
        let (outcome, skips) = match outcome {
            Outcome::Passed(skips) => ("passed", *skips),
            Outcome::Failed => ("failed", 0),
            Outcome::Skipped(_) => ("left out", 0),
            Outcome::NotRun => ("not run", 0),
        };
        let seconds = time.as_secs_f64();
        serde_json::json!({ "step": name, "outcome": outcome, "skips": skips, "seconds": seconds })
    };
    serde_json::json!({
        "passed": fine,
        "seconds": spent.time.as_secs_f64(),
        "seconds_of_processors": spent.of_processors.as_secs_f64(),
        "steps": results.iter().map(step).collect::<Vec<_>>(),
    })
}

/// Says how much room the disk has left: what fails for want of it says so in many ways.
fn tell_room(workspace: &Workspace) -> Result<()> {
    let found = rustix::fs::statvfs(&workspace.root).context("cannot ask for free space")?;
    println!("    {:.1} GiB of disk left", gib(found.f_bavail.saturating_mul(found.f_frsize)));
    Ok(())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Says which tests and steps could not do all of their work here, each reason once.
fn tell_skips(skips: &[String]) {
    if !skips.is_empty() {
        println!("\nskipped, {} times", skips.len());
    }
    let mut times = BTreeMap::<&str, usize>::new();
    for skip in skips {
        *times.entry(skip).or_default() += 1;
    }
    for (skip, times) in times {
        match times {
            1 => println!("  {skip}"),
            _ => println!("  {skip} ({times} times)"),
        }
    }
}

/// Says once more how the steps that failed have ended: the end of a log is what everybody reads.
fn tell_ends(ends: &[(&str, VecDeque<String>)]) {
    for (step, last) in ends.iter().filter(|(_, last)| !last.is_empty()) {
        println!("\nthe last lines of {step}");
        for line in last.iter().rev() {
            println!("  {line}");
        }
    }
}

/// Runs one step with its output passed through.
fn run_step(
    (step, seed): (&Step, &str),
    workspace: &Workspace,
    (program, arguments): (OsString, Vec<&str>),
    kept: &mut Kept,
) -> Result<Outcome> {
    kept.last.clear();
    let before = kept.skips.len();
    let mut run = |program: &OsString, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .current_dir(&workspace.root)
            .args(arguments)
            // Nothing is built a second time here, and what would make that faster takes gigabytes.
            .env("CARGO_INCREMENTAL", "0")
            .envs(variables(step, seed));
        let status = if may_skip(step) {
            skips::run((step.name, &mut command), &mut std::io::stdout(), kept)
        } else {
            command.status().map_err(anyhow::Error::from)
        };
        status.with_context(|| format!("cannot start {}", program.to_string_lossy()))
    };
    // Built already, unless this step is the only one.
    let tests = ["test", "--workspace", "--no-run", "--quiet"];
    if matches!(step.run, Run::Built(..)) && !run(&cargo(), &tests)?.success() {
        return Ok(Outcome::Failed);
    }
    let status = run(&program, &arguments)?;
    Ok(if status.success() { Outcome::Passed(kept.skips.len() - before) } else { Outcome::Failed })
}

/// Whether what the step starts may leave something out, and says so.
fn may_skip(step: &Step) -> bool {
    matches!(step.run, Run::Tests(_) | Run::Built(..)) || step.name == "models"
}

/// What a step needs and the workspace does not have.
fn missing(needs: Needs, workspace: &Workspace) -> Option<&'static str> {
    match needs {
        Needs::Nothing => None,
        Needs::Crate(name) => (!workspace.has(name)).then_some(name),
        Needs::File(path) => (!workspace.root.join(path).exists()).then_some(path),
    }
}

/// Program and arguments of a step; `own` is this program.
fn command<'a>(
    run: Run,
    workspace: &Workspace,
    (own, seed): (&Path, &'a str),
) -> (OsString, Vec<&'a str>) {
    match run {
        Run::Cargo(arguments) | Run::Tests(arguments) => (cargo(), arguments.to_vec()),
        Run::Xtask(arguments) => (own.into(), arguments.to_vec()),
        Run::Built(program, arguments) => {
            (workspace.target.join("debug").join(program).into(), seeded(arguments, seed))
        }
    }
}

/// The variables that a step is given.
fn variables(step: &Step, seed: &str) -> impl Iterator<Item = (&'static str, String)> {
    let threads = || std::thread::available_parallelism().map_or(2, usize::from) * 3 / 2;
    let value = move |value: &'static str| match value {
        SEED => seed.to_owned(),
        THREADS => threads().to_string(),
        _ => value.to_owned(),
    };
    step.variables.iter().map(move |(name, of)| (*name, value(of)))
}

fn seeded<'a>(arguments: &[&'a str], seed: &'a str) -> Vec<&'a str> {
    arguments.iter().map(|word| if *word == SEED { seed } else { *word }).collect()
}

/// What stands for [`SEED`]: the beginning of the commit's name, or 1 where there is none.
fn seed(root: &Path) -> String {
    let asked = Command::new("git").arg("-C").arg(root).args(["rev-parse", "HEAD"]).output();
    let name = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned());
    let number = name.ok().and_then(|name| u64::from_str_radix(name.get(..8)?, 16).ok());
    number.unwrap_or(1).to_string()
}

/// A step as one would type it.
fn shown(step: &Step, seed: &str) -> String {
    let variables = variables(step, seed).map(|(name, value)| format!("{name}={value:?} "));
    let (program, arguments) = match step.run {
        Run::Cargo(arguments) | Run::Tests(arguments) => ("cargo".to_owned(), arguments),
        Run::Xtask(arguments) => ("cargo xtask".to_owned(), arguments),
        Run::Built(program, arguments) => (format!("target/debug/{program}"), arguments),
    };
    format!("{}{program} {}", variables.collect::<String>(), seeded(arguments, seed).join(" "))
}

/// What a run has taken.
#[derive(Debug, Clone, Copy)]
struct Spent {
    time: Duration,
    of_processors: Duration,
    /// Processor time of everybody else meanwhile.
    others: Duration,
}

impl Spent {
    /// How long it would have taken if nobody else had worked: what others used, this could have.
    fn alone(self) -> Duration {
        self.time.saturating_sub(self.others / CORES)
    }

    fn is_over(self, longest: Duration) -> bool {
        self.of_processors > CORES * longest || self.alone() > longest
    }
}

/// Processor time that was used on this machine since it was started, whoever used it.
fn busy_time() -> Result<Duration> {
    let file = "/proc/stat";
    let stat = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = all.split_whitespace().skip(1).flat_map(str::parse).collect();
    anyhow::ensure!(ticks.len() >= 8, "{file}: {all}");
    // User, nice, system; not idle and waiting, which are the fourth and the fifth; interrupts,
    // and what the machine that this one may run in kept for itself.
    let busy = ticks[..3].iter().chain(&ticks[5..8]).sum();
    Ok(of_ticks(busy))
}

fn of_ticks(ticks: u64) -> Duration {
    let hertz = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1000) / hertz)
}

/// Processor time of all that this program has started and waited for.
fn processor_time() -> Result<Duration> {
    let file = "/proc/self/stat";
    let stat = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    // The name in front may have blanks in it; ticks of the children are words 14 and 15 behind.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = words.skip(13).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>().with_context(|| format!("{file}: {stat}"))?;
    Ok(of_ticks(ticks))
}

/// Prints one line per step and the verdict; `true` if nothing failed within the limit.
fn summarise(results: &[(&str, Outcome, Duration)], spent: Spent) -> bool {
    println!("\nci summary");
    for (name, outcome, time) in results {
        let verdict = match outcome {
            Outcome::Passed(0) => "passed".to_owned(),
            Outcome::Passed(skips) => format!("passed, but skipped something {skips} times"),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(what) => format!("left out: there is no {what} yet"),
            Outcome::NotRun => "not run".to_owned(),
        };
        println!("  {name:10} {:>8.1} s  {verdict}", time.as_secs_f64());
    }
    let failed = results.iter().any(|(_, outcome, _)| *outcome == Outcome::Failed);
    let slow = spent.is_over(LIMIT);
    if slow {
        println!("  over the limit of {} s: make a step cheaper", LIMIT.as_secs());
    } else if spent.is_over(BUDGET) {
        println!("  over the budget of {} s: make a step cheaper soon", BUDGET.as_secs());
    } else if spent.time > BUDGET {
        println!("  over the budget of {} s on a busy machine", BUDGET.as_secs());
    }
    let verdict = if failed || slow { "FAILED" } else { "passed" };
    let (time, of_processors) = (spent.time.as_secs_f64(), spent.of_processors.as_secs_f64());
    println!("ci: {verdict} in {time:.1} s, {of_processors:.1} s of processors");
    !failed && !slow
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::files;

    #[test]
    fn what_each_step_came_to_is_told_to_programs() {
        let second = Duration::from_secs(1);
        let spent = Spent { time: 3 * second, of_processors: 4 * second, others: second };
        let results = [("fmt", Outcome::Passed(2), second), ("test", Outcome::Failed, second)];
        let told = object(&results, spent, false);
        assert_eq!((&told["passed"], &told["seconds"]), (&false.into(), &3.0.into()));
        assert_eq!(
            (&told["steps"][0]["skips"], &told["steps"][1]["outcome"]),
            (&2.into(), &"failed".into())
        );
    }

    /// One that is not there is left out, and the run passes: so none may go by a wrong name.
    #[test]
    fn what_each_step_needs_is_in_this_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let workspace = Workspace::read(&root).unwrap();
        let absent = STEPS.iter().filter_map(|step| missing(step.needs, &workspace));
        assert_eq!(absent.collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn a_failed_step_or_a_run_beyond_the_limit_fails() {
        let second = Duration::from_secs(1);
        let spent = |time, of_processors| Spent { time, of_processors, others: 2 * second };
        let usual = spent(LIMIT, CORES * LIMIT);
        let passed = |spent| summarise(&[("a", Outcome::Passed(0), second)], spent);
        assert!(passed(usual));
        assert!(summarise(&[("a", Outcome::Skipped("b"), second)], usual));
        assert!(!summarise(&[("a", Outcome::Failed, second)], usual));
        assert!(passed(spent(LIMIT + second, CORES * LIMIT)), "others have worked meanwhile");
        assert!(!passed(spent(LIMIT, CORES * LIMIT + second)));
        assert!(!passed(spent(LIMIT + 2 * second, second)), "nobody else was in its way");
        assert!(!spent(BUDGET, CORES * BUDGET).is_over(BUDGET));
        assert!(spent(BUDGET, CORES * BUDGET + second).is_over(BUDGET));
    }

    #[test]
    fn the_time_of_what_was_waited_for_counts() {
        let (before, busy) = (processor_time().unwrap(), busy_time().unwrap());
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", count]).status().unwrap().success());
        assert!(processor_time().unwrap() > before);
        assert!(busy_time().unwrap() > busy, "it is a part of what was used");
    }

    #[test]
    fn what_a_step_says_it_skipped_is_told_of_programs_as_of_tests() {
        for name in ["test", "models", "campaign", "mapped", "lab", "fuzz"] {
            let step = STEPS.iter().find(|step| step.name == name).unwrap();
            assert!(may_skip(step), "{name}");
        }
    }

    #[test]
    fn each_manifest_is_compiled_by_a_step() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let workspace = Workspace::read(&root).unwrap();
        let members: Vec<_> =
            workspace.members.iter().map(|it| format!("{}/Cargo.toml", it.room)).collect();
        let named = |manifest: &str| {
            let names = |run| matches!(run, Run::Cargo(words) if words.contains(&manifest));
            STEPS.iter().any(|step| names(step.run))
        };
        let is_compiled = |manifest: &String| members.contains(manifest) || named(manifest);
        let mut manifests = files(&workspace.root).unwrap();
        manifests.retain(|it| it.ends_with("/Cargo.toml") && !is_compiled(it));
        assert_eq!(manifests, Vec::<String>::new(), "compiled by nothing");
    }

    #[test]
    fn a_step_is_shown_as_one_would_type_it() {
        let doc = STEPS.iter().find(|step| step.name == "doc").unwrap();
        assert_eq!(shown(doc, "7"), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps");
        let fuzz = STEPS.iter().find(|step| step.name == "fuzz").unwrap();
        assert!(shown(fuzz, "7").ends_with(" --seed 7"));
        let test = STEPS.iter().find(|step| step.name == "test").expect("a step");
        assert!(shown(test, "7").starts_with("HOLDFAST_SEED=\"7\" RUST_TEST_THREADS="));
        assert_ne!(seed(Path::new(env!("CARGO_MANIFEST_DIR"))), "0");
    }
}
