//! Tests of the crates that hold unsafe code or share memory between threads, under a sanitizer.
//!
//! The compiler is the one that builds everything else; `RUSTC_BOOTSTRAP` switches on what its
//! sanitizers need. For `address` the standard library stays as it was delivered: its own loads and
//! stores are not looked at, those of everything that is generic over our types are. For `thread`
//! it is built as well: what orders threads is in there, and unseen it would be no order.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use holdfast_evidence::{Begun, Row};

use crate::Misuse;
use crate::ci::skips::{self, Kept};
use crate::workspace::{Workspace, cargo, keep_json};

mod planted;

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
    /// Which one; both, one after the other, if none is named.
    sanitizer: Option<Sanitizer>,
    /// These crates instead of the usual ones.
    #[arg(long = "package", short, value_name = "CRATE")]
    packages: Vec<String>,
    /// Add what was run and found to this list (docs/evidence.md).
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Write what each sanitizer's run came to to this file as well.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Passed on to the tests.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// Crates whose tests are run.
const PACKAGES: [&str; 14] = [
    "holdfast-codes",
    "holdfast-pmem",
    "holdfast-faultmem",
    "holdfast-layout",
    "holdfast-redundancy",
    "holdfast-logs",
    "holdfast-heap",
    "holdfast-txn",
    "holdfast-object",
    "holdfast-mapped",
    "holdfast-collections",
    "holdfast-guard-wire",
    "holdfast",
    "holdfast-capi",
];

/// Crates of the layers whose tests are not run, and why.
const OTHERS: [(&str, &str); 5] = [
    ("holdfast-sync", "names of the standard library's types, and of the model checkers'"),
    ("holdfast-derive", "runs in the compiler"),
    ("holdfast-preload", "loaded into programs that were built without the sanitizer"),
    (
        "holdfast-guard",
        "its tests are such programs under a supervisor, which calls the crates above",
    ),
    ("holdfast-cli", "forbids unsafe code: what its threads share, the standard library guards"),
];

/// The C interface, of whose tests only these programs are run: in the others, programs in C link
/// its library, built by another compiler and without the sanitizer.
const CAPI: &str = "holdfast-capi";
const CAPI_TESTS: [&str; 3] = ["border", "other_maps", "paths"];

/// Tests that are left out, and why.
const SKIPPED: [(&str, &str); 1] = [(
    "what_is_not_plain_data_does_not_compile",
    "nothing of it runs, and the compiler says other words where a sanitizer is asked for",
)];

/// The same under `thread`.
const SKIPPED_BY_THREAD: [(&str, &str); 1] = [(
    "asm::tests::stepped",
    "stops behind each instruction, also of the sanitizer itself, which then waits for itself",
)];

/// Tests that are left out under a sanitizer, and why.
fn skipped(sanitizer: Sanitizer) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let by_thread: &[_] = if sanitizer == Sanitizer::Thread { &SKIPPED_BY_THREAD } else { &[] };
    SKIPPED.iter().chain(by_thread)
}

/// Runs the tests. Exits with 1 if one failed, with 8 if it cannot be done here.
pub(crate) fn run(root: &Path, args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::read(root)?;
    if let Some(wrong) = args.packages.iter().find(|name| !workspace.has(name)) {
        bail!(Misuse(format!("no crate here is called {wrong}")));
    }
    let both = [Sanitizer::Address, Sanitizer::Thread];
    let wished = args.sanitizer.as_ref().map_or(&both[..], std::slice::from_ref);
    if wished.contains(&Sanitizer::Thread)
        && let Err(why) = library()
    {
        println!("sanitize: cannot be run here: {why:#}");
        return Ok(ExitCode::from(CANNOT));
    }
    if let Some(path) = &args.ledger {
        holdfast_evidence::append(path, &[])?;
    }
    keep_json(args.json.as_deref(), "")?;
    let runs: Vec<Ran> = wished.iter().map(|it| under(*it, root, args)).collect::<Result<_>>()?;
    keep_json(args.json.as_deref(), &object(&runs).to_string())?;
    let passed = runs.iter().all(|ran| ran.passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the tests came to under one.
#[derive(Debug, Clone)]
struct Ran {
    sanitizer: Sanitizer,
    count: Count,
    seconds: u64,
    passed: bool,
}

/// What `--json` writes.
fn object(runs: &[Ran]) -> serde_json::Value {
    let one = |ran: &Ran| {
        let Count { passed, failed, ignored, .. } = ran.count;
        serde_json::json!({
            "sanitizer": ran.sanitizer.name(),
            "passed": ran.passed,
            "tests": { "passed": passed, "failed": failed, "ignored": ignored },
            "seconds": ran.seconds,
        })
    };
    serde_json::json!({
        "passed": runs.iter().all(|ran| ran.passed),
        "runs": runs.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Runs them under one.
fn under(sanitizer: Sanitizer, root: &Path, args: &Args) -> Result<Ran> {
    let (source, begun) = (Begun::at(root), Instant::now());
    let name = sanitizer.name();
    if args.packages.is_empty() {
        let left_out = OTHERS.iter().chain(skipped(sanitizer));
        left_out.for_each(|(other, why)| println!("sanitize: without {other}: {why}"));
    }
    let faults = planted::run(sanitizer, root)?;
    let (mut count, mut kept) = (Count::default(), Kept::default());
    let mut passed = faults.all_are_seen();
    for mut command in commands(sanitizer, root, args) {
        println!("sanitize: RUSTC_BOOTSTRAP=1 RUSTFLAGS={:?} {command:?}", flags(sanitizer));
        passed &= skips::run((name, &mut command), &mut count, &mut kept)?.success();
    }
    let Count { passed: tests, failed, ignored, .. } = count;
    let seconds = begun.elapsed().as_secs();
    // Words that no test is called by would find nothing, and prove as much.
    passed &= tests > 0;
    // Once each: some are said again and again.
    kept.skips.sort();
    kept.skips.dedup();
    kept.skips.iter().for_each(|skip| println!("sanitize {name}: skipped: {skip}"));
    println!(
        "sanitize {name}: {tests} tests passed, {failed} failed, {ignored} ignored: {}",
        if passed { "nothing found" } else { "FAILED" }
    );
    // What was not built, or found no test, says nothing of the crates.
    if let Some(path) = args.ledger.as_ref().filter(|_| tests + failed > 0) {
        let row = Row {
            commit: source.commit_now(),
            method: format!("sanitize {name}"),
            how: how(args),
            count: tests,
            // A program that a sanitizer ends tells of no failed test.
            violations: if passed { 0 } else { failed.max(1) },
            seconds,
            figures: [
                ("wrong variants", faults.planted),
                ("wrong variants convicted", faults.seen),
                ("skipped", kept.skips.len() as u64),
            ]
            .map(|(figure, count)| (figure.to_owned(), count))
            .into(),
            ..Row::default()
        };
        holdfast_evidence::append(path, &[row])?;
    }
    Ok(Ran { sanitizer, count, seconds, passed })
}

/// What was run: crates, and what their tests were told.
fn how(args: &Args) -> String {
    // Of some crates is no run of all.
    let part = args.packages.first().map(|_| " -p".to_owned());
    let told = part.into_iter().chain(args.rest.iter().map(|word| format!(" {word}")));
    let told = told.collect::<String>();
    let crates = chosen(args).join(" ");
    if told.is_empty() { crates } else { format!("{crates}, told{told}") }
}

fn chosen(args: &Args) -> Vec<String> {
    match &args.packages[..] {
        [] => PACKAGES.map(str::to_owned).to_vec(),
        some => some.to_vec(),
    }
}

/// One for all, and one for the crate of which not all is run.
fn commands(sanitizer: Sanitizer, root: &Path, args: &Args) -> Vec<Command> {
    let (capi, others): (Vec<_>, Vec<_>) = chosen(args).into_iter().partition(|it| it == CAPI);
    let mut all = Vec::new();
    for packages in [others, capi].into_iter().filter(|packages| !packages.is_empty()) {
        let mut command = command(sanitizer, root, &["test", "--lib", "--no-fail-fast"]);
        let two = |option: &'static str, name: &str| [option.to_owned(), name.to_owned()];
        if packages[0] == CAPI {
            command.args(CAPI_TESTS.iter().flat_map(|test| two("--test", test)));
        } else {
            command.arg("--tests");
        }
        command.args(packages.iter().flat_map(|package| two("-p", package)));
        command.args(["--", "--show-output"]).args(&args.rest);
        command.args(skipped(sanitizer).flat_map(|(test, _)| two("--skip", test)));
        all.push(command);
    }
    all
}

fn command(sanitizer: Sanitizer, root: &Path, what: &[&str]) -> Command {
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(what)
        .args(["--target", MACHINE, "--target-dir", &place(sanitizer)])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags(sanitizer))
        .env("CARGO_INCREMENTAL", "0")
        .envs(options());
    if sanitizer == Sanitizer::Thread {
        command.arg("-Zbuild-std");
    }
    command
}

/// Where all of it is built.
fn place(sanitizer: Sanitizer) -> String {
    format!("target/sanitize-{}", sanitizer.name())
}

/// What a program is told that has a sanitizer in it.
fn options() -> [(&'static str, &'static str); 2] {
    [
        // A page that cannot be loaded is this product's to handle: its handlers stay in force.
        ("ASAN_OPTIONS", "allow_user_segv_handler=1:handle_segv=0:handle_sigbus=0"),
        // A test's own device is a process with threads, forked from one that has some.
        (
            "TSAN_OPTIONS",
            "halt_on_error=0:second_deadlock_stack=1:die_after_fork=0:handle_segv=0:\
             handle_sigbus=0",
        ),
    ]
}

/// What the lines of all test programs come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// What was said of a line that has not ended.
    begun: Vec<u8>,
}

/// Lines are told as they come, and those counted that say how many.
impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.begun);
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                self.add(&line);
            } else {
                self.begun.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

impl Count {
    /// Adds what a program says at its end.
    fn add(&mut self, line: &str) {
        let Some(told) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let part = told.split([';', '.']).find(|part| part.ends_with(word))?;
            part.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.passed += number(" passed").unwrap_or(0);
        self.failed += number(" failed").unwrap_or(0);
        self.ignored += number(" ignored").unwrap_or(0);
    }
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_added_up() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; in 0.00s",
            "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "2 passed",
        ] {
            count.add(line);
        }
        assert_eq!((count.passed, count.failed, count.ignored), (8, 2, 1));
    }

    #[test]
    fn what_a_run_came_to_is_told_in_json() {
        let ran = |sanitizer, failed| Ran {
            sanitizer,
            count: Count { passed: 7, failed, ignored: 1, begun: Vec::new() },
            seconds: 3,
            passed: failed == 0,
        };
        let told = object(&[ran(Sanitizer::Address, 0), ran(Sanitizer::Thread, 2)]);
        assert_eq!(told["passed"], false);
        assert_eq!(told["runs"][0]["passed"], true);
        assert_eq!(told["runs"][1]["sanitizer"], "thread");
        assert_eq!(told["runs"][1]["tests"]["failed"], 2);
    }

    #[test]
    fn each_sanitizer_is_in_the_list_of_what_is_run() {
        let names = Sanitizer::value_variants().iter().map(|sanitizer| sanitizer.name());
        assert_eq!(holdfast_evidence::unlisted("sanitize", names), Vec::<String>::new());
    }

    #[test]
    fn a_run_of_some_tests_does_not_look_like_one_of_all() {
        let rest = vec!["one".to_owned()];
        let args = Args {
            sanitizer: None,
            packages: vec!["a".to_owned()],
            ledger: None,
            json: None,
            rest,
        };
        assert_eq!(how(&args), "a, told -p one");
        assert_eq!(how(&Args { rest: Vec::new(), ..args }), "a, told -p", "a part");
    }

    #[test]
    fn every_test_of_the_c_interface_is_run_or_runs_programs_in_c() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../surfaces/capi/tests");
        for entry in std::fs::read_dir(tests).expect("tests") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let known = name.strip_suffix(".rs").is_none_or(|it| CAPI_TESTS.contains(&it));
            assert!(known || name == "programs.rs", "{name}");
        }
    }

    #[test]
    fn every_crate_of_the_layers_is_run_or_has_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for group in ["base", "core", "engines", "surfaces"] {
            for entry in std::fs::read_dir(root.join(group)).expect("a group") {
                let room = entry.expect("a room").file_name().to_string_lossy().into_owned();
                let name = match &room[..] {
                    "facade" => "holdfast".to_owned(),
                    room => format!("holdfast-{room}"),
                };
                let known = PACKAGES.iter().copied().chain(OTHERS.map(|(other, _)| other));
                assert_eq!(known.filter(|known| *known == name).count(), 1, "{name}");
            }
        }
    }
}
