//! What must hold of programs that stand still while something is repaired.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_guard::Drill;

use crate::checks::{
    DRILLS, Place, all_covered, background, is_good, options, place, rot, run, tells_who,
    wait_until,
};
use crate::stories::{PAGE, PAGES, beside, mark, wait_for};
use crate::taken::skipped;
use crate::untouched::state_of;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("no parent finds that its child stands", parents),
    ("a supervisor that is killed in a repair leaves nobody standing", killed_in_a_repair),
    (
        "one that is killed in a drill leaves those standing who would find damage",
        killed_in_a_drill,
    ),
    ("a network of its own leaves guarded files guarded", apart),
    ("nobody waits for long again and again for who stands still", late),
];

fn count(path: &Path) -> u32 {
    std::fs::read_to_string(beside(path, "count")).unwrap().parse().unwrap()
}

/// Children that do not stand in time are left alone for a while, which a busy machine may cause.
fn parents() {
    let drilled = [4, 8, 16, 32].into_iter().any(parents_for);
    assert!(drilled, "nothing is ever drilled");
}

/// The parent asks all the time, for so many seconds; whether there was a drill.
fn parents_for(seconds: u64) -> bool {
    let place = place();
    let mut options = options();
    options.drill = Some(Drill { pages: 2, seed: 5 });
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("looks after its children", &file, options));
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_secs(seconds));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert_eq!(count(&place.file), 0, "children that stood were seen\n{summary}");
    assert!(is_good(&summary, &report), "{summary}");
    println!("  {} rounds", report.drilled.rounds);
    report.drilled.rounds > 0
}

fn signal(process: u32, signal: i32) {
    // SAFETY: a signal to a process of this test's.
    unsafe { libc::kill(process as i32, signal) };
}

fn stands(process: u32) -> bool {
    state_of(&process.to_string()).is_some_and(|(state, _)| state == "T")
}

/// A supervisor that is stopped while its program stands, and the program. `None` if that did not
/// stand whenever this test came to look.
fn caught(file: &Path, mut guard: Command) -> Option<(Child, u32)> {
    let mut guard = guard.args(["--guard", "tells who it is"]).arg(file).spawn().unwrap();
    wait_for(file, "begun");
    let program = count(file);
    mark(file, "open");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if !stands(program) {
            continue;
        }
        signal(guard.id(), libc::SIGSTOP);
        assert!(wait_until(|| stands(guard.id())));
        if stands(program) {
            return Some((guard, program));
        }
        // It was let go on its way here.
        signal(guard.id(), libc::SIGCONT);
    }
    guard.kill().unwrap();
    guard.wait().unwrap();
    signal(program, libc::SIGKILL);
    None
}

/// Tries a few times, each in a new place that was made ready for it.
fn caught_once(ready: fn() -> Place, supervisor: fn() -> Command) -> (Place, Child, u32) {
    let found = (0..5).find_map(|_| {
        let place = ready();
        let (guard, program) = caught(&place.file, supervisor())?;
        Some((place, guard, program))
    });
    found.unwrap_or_else(|| panic!("it is never stopped"))
}

/// This test, as a supervisor.
fn supervisor() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Much was damaged before, so it stands most of the time.
fn killed_in_a_repair() {
    if !tells_who() {
        return;
    }
    let damaged = || {
        let place = place();
        run("touch", &place.file, options());
        (0..PAGES / 4).for_each(|stripe| rot(&place.file, stripe * 4 + 1));
        place
    };
    let (place, mut guard, program) = caught_once(damaged, supervisor);
    guard.kill().unwrap();
    guard.wait().unwrap();
    let killed = Instant::now();
    let goes_on = wait_until(|| !stands(program));
    let after = killed.elapsed();
    mark(&place.file, "go");
    signal(program, libc::SIGCONT);
    let ends = wait_until(|| state_of(&program.to_string()).is_none_or(|(state, _)| state == "Z"));
    // Anchors give up after three.
    assert!(goes_on && ends && after < Duration::from_secs(3), "{after:?}");
}

/// The anchors of a supervisor.
fn anchors_of(guard: u32) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().into_string().ok());
    let is = |process: &String| {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.trim() == "hf-anchor" && state_of(process).is_some_and(|(_, parent)| parent == guard)
    };
    all.filter(is).collect()
}

fn killed_in_a_drill() {
    let drills = || {
        let mut drills = supervisor();
        drills.env(DRILLS, "1");
        drills
    };
    let (_place, mut guard, program) = caught_once(place, drills);
    let anchors = anchors_of(guard.id());
    guard.kill().unwrap();
    guard.wait().unwrap();
    // Who could let it go on is gone.
    let dead = |process: &String| state_of(process).is_none_or(|(state, _)| state == "Z");
    let gone = wait_until(|| anchors.iter().all(dead));
    let stood = stands(program);
    signal(program, libc::SIGKILL);
    assert!(gone && !anchors.is_empty() && stood);
}

/// It cannot ask about what it opens then, which is not guarded. What it had stays so.
fn apart() {
    let place = place();
    let guard = background("has a network of its own", &place.file);
    let came = wait_until(|| beside(&place.file, "ready").exists() || guard.is_finished());
    if tells_who() && !guard.is_finished() {
        all_covered(&place.file);
        let expected = std::fs::read(&place.file).unwrap();
        rot(&place.file, 500);
        assert!(wait_until(|| std::fs::read(&place.file).unwrap() == expected), "not repaired");
    }
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    if skipped(&summary, "nobody may have a network of his own here") {
        return;
    }
    assert!(came && summary.status.success() && summary.untold == 0, "{summary}");
    assert!(report.closed && report.good == report.pages, "{summary}");
    assert!(report.contested.is_empty() && report.doubtful.is_empty(), "{summary}");
    let told = |why: &String| why.contains("could not ask");
    assert!(summary.not_observed.iter().any(told), "{summary}");
    assert_eq!(summary.files.len(), 1, "{summary}");
    assert_eq!(std::fs::read(&place.file).unwrap()[4 * PAGE..][..8], *b"the last", "{summary}");
}

/// The first answer is waited for; others are not, until one comes in time: on a busy machine not
/// the very first one that could.
fn late() {
    let place = place();
    let mut guard = supervisor();
    guard.args(["--guard", "opens again and again"]).arg(&place.file);
    guard.env("HOLDFAST_GUARD_IMPATIENT", "4000");
    let guard = guard.stdout(Stdio::piped()).spawn().unwrap();
    // Not when it is there: whoever makes it asks, and would find its supervisor late by that.
    let ready = beside(&place.file, "ready");
    assert!(wait_until(|| std::fs::read(&ready).is_ok_and(|is| !is.is_empty())));
    signal(guard.id(), libc::SIGSTOP);
    assert!(wait_until(|| stands(guard.id())));
    mark(&place.file, "open");
    wait_for(&place.file, "opened");
    signal(guard.id(), libc::SIGCONT);
    // Those who gave up are still in its queue; hasty ones would come too late behind them.
    std::thread::sleep(Duration::from_millis(500));
    mark(&place.file, "go");
    let told = String::from_utf8(guard.wait_with_output().unwrap().stdout).unwrap();
    let took = std::fs::read_to_string(beside(&place.file, "took")).unwrap();
    let took: Vec<u64> = took.split_whitespace().map(|millis| millis.parse().unwrap()).collect();
    let [first, others @ ..] = &took[..] else { panic!("{took:?}") };
    assert!(*first >= 4000 && others.iter().all(|millis| *millis < 2000), "{took:?}");
    let mut files = files_of(&told).into_iter();
    let first = files.next().unwrap();
    assert!(first.contains("data.bin: ") && !first.contains("did not wait"), "{told}");
    let waited =
        |file: &String| file.contains(".bin: 3 pages, 3 good") && !file.contains("did not wait");
    assert!(files.any(|file| waited(&file)), "{told}");
}

/// What a summary tells of each guarded file, one text each.
fn files_of(told: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for line in told.lines() {
        match files.last_mut() {
            _ if line.contains(".bin: ") && !line.starts_with(' ') => files.push(line.to_owned()),
            Some(file) if line.starts_with(' ') => *file += line,
            _ => {}
        }
    }
    files
}
