//! What must hold of programs that start others, and of calls whose arguments make no sense.

use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_guard::{FileReport, Summary, side_of};

use crate::bare;
use crate::checks::{
    background, is_good, launch, options, place, rot, run, stories, story, tells_who, wait_until,
};
use crate::stories::{PAGE, beside, mark, wait_for};
use crate::taken::{is_covered, is_unharmed, of};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("a program without libraries, by calls inside the library, is a stranger", becomes_bare),
    ("programs that are listed words are guarded", || story("listed")),
    ("who could not be set up is a stranger", cramped),
    ("who could not be set up keeps only what it has from being repaired", apart),
    ("who was not waited for is a stranger", late),
    ("a stranger without its first thread is seen", headless),
    ("a program without its first thread is covered", || story("goes headless")),
    ("a child that opens streams before it is told of does not stand still", || story("reopens")),
    ("files that are opened on the way into a program are guarded", spawns),
    ("a file that is renamed is not covered for that", renamed),
    ("duplicates that become standard streams are covered", || story("duplicates")),
    ("what cannot be read is refused as without us", || story("odd places")),
    ("every way to sync covers", syncs),
    ("nobody stays in the folder where a program began", || story("goes elsewhere")),
    ("a file that is cut off gets the number that it would get", || story("lowest")),
    ("threads that are cancelled in a call end, and nobody else", || story("cancels")),
    ("children on small stacks of their parent leave its environment alone", borrowed_stacks),
];

/// The page that nobody saw stored to is as it was left, and nobody called it damaged.
pub(crate) fn is_kept(place: &std::path::Path, summary: &Summary, report: &FileReport) {
    let now = std::fs::read(place).unwrap();
    assert!(now[bare::PAGE_OF * PAGE..].starts_with(bare::STORED), "taken back\n{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    assert!(!report.contested.is_empty(), "{summary}");
}

fn becomes_bare() {
    for story in ["bare execl", "bare execlp", "bare execle", "bare number"] {
        let place = place();
        bare::write(&beside(&place.file, "bare"));
        let (summary, report) = run(story, &place.file, options());
        assert!(summary.status.success(), "{story}: {summary}");
        is_kept(&place.file, &summary, &report);
    }
}

/// One descriptor is free: the socket has it, so that of the ledger is cut off.
fn cramped() {
    let place = place();
    let (summary, report) = run("cramped", &place.file, options());
    assert!(summary.status.success(), "{summary}");
    is_kept(&place.file, &summary, &report);
}

/// It lives on, and has another file at the most. The same of one that loads nothing.
fn apart() {
    if !tells_who() {
        return;
    }
    for (story, told) in [
        ("beside one that is cramped", "could not be set up"),
        ("beside one that is cramped and stores", "could not be set up"),
        ("beside one that is bare", "is not guarded"),
    ] {
        let place = place();
        bare::write(&beside(&place.file, "bare"));
        let guard = background(story, &place.file);
        wait_for(&place.file, "ready");
        let expected = std::fs::read(&place.file).unwrap();
        for page in [1, 102, 301] {
            rot(&place.file, page);
        }
        let again = wait_until(|| std::fs::read(&place.file).unwrap() == expected);
        mark(&place.file, "go");
        let (summary, report) = guard.join().unwrap();
        assert!(again, "{story}: it was not repaired\n{summary}");
        assert!(report.counts.repaired == 3 && report.contested.is_empty(), "{story}: {summary}");
        let told = summary.not_observed.iter().any(|what| what.contains(told));
        assert!(told, "{story}: {summary}");
        let stores = !story.ends_with("cramped");
        let [second] = of(&summary, "second.bin")[..] else { panic!("{summary}") };
        let now = std::fs::read(place.file.with_file_name("second.bin")).unwrap();
        assert_eq!(now[bare::PAGE_OF * PAGE..].starts_with(bare::STORED), stores, "{summary}");
        assert_eq!(second.contested.is_empty(), !stores, "{story}: {summary}");
        assert_eq!((second.counts.corrupt, second.counts.repaired), (0, 0), "{summary}");
    }
}

/// The supervisor stands still until the new program goes on by itself.
fn late() {
    let place = place();
    let me = std::env::current_exe().unwrap();
    let mut guard = Command::new(me);
    guard.args(["--guard", "starts late"]).arg(&place.file).env("HOLDFAST_GUARD_IMPATIENT", "300");
    let guard = guard.stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&place.file, "ready");
    let signal = |signal: i32| {
        // SAFETY: a signal to a child of this process.
        unsafe { libc::kill(guard.id() as i32, signal) };
    };
    signal(libc::SIGSTOP);
    mark(&place.file, "start");
    wait_for(&place.file, "begun");
    signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(100));
    mark(&place.file, "resume");
    wait_for(&place.file, "stored");
    std::thread::sleep(Duration::from_millis(200));
    mark(&place.file, "go");
    let told = String::from_utf8(guard.wait_with_output().unwrap().stdout).unwrap();
    let now = std::fs::read(&place.file).unwrap();
    assert!(now[bare::PAGE_OF * PAGE..].starts_with(bare::STORED), "taken back\n{told}");
    assert!(told.contains("corrupt 0, repaired 0"), "{told}");
}

/// It has the file from before there is a guard.
fn headless() {
    let place = place();
    let words = ["--story".as_ref(), "headless".as_ref(), place.file.as_os_str()];
    let mut stranger = Command::new(stories()).args(words).spawn().unwrap();
    wait_for(&place.file, "mapped");
    let guard = background("wait", &place.file);
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_millis(200));
    mark(&place.file, "store");
    wait_for(&place.file, "stored");
    std::thread::sleep(Duration::from_millis(200));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    mark(&place.file, "over");
    stranger.wait().unwrap();
    is_kept(&place.file, &summary, &report);
}

fn borrowed_stacks() {
    story("borrowed stacks");
    let (summary, report) = {
        let place = place();
        run("python", &place.file, options())
    };
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
}

fn spawns() {
    let place = place();
    let summary = launch("spawns", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    let spawned = place.file.with_file_name("spawned.bin");
    assert!(summary.files.iter().any(|report| report.path == spawned), "{summary}");
    is_covered(&spawned);
}

/// Its old name is one that is to be guarded, its new one is none, and nobody has it open.
fn renamed() {
    let place = place();
    let summary = launch("moves at rest", &place.file, options()).run().unwrap();
    assert!(summary.status.success() && summary.files.is_empty(), "{summary}");
    let old = beside(&place.file, "old");
    assert!(old.exists() && !side_of(&old).exists(), "{summary}");
}

fn syncs() {
    let place = place();
    let mut slow = options();
    slow.period = Duration::from_secs(60);
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("syncs in all ways", &file, slow));
    wait_for(&place.file, "synced");
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    assert_eq!(report.covered_on_sync, 10, "{summary}");
}
