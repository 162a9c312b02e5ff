//! What must hold of reads into mappings, and of files that come and go by their names.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_guard::{FileReport, Options, Summary, side_of};

use crate::checks::{is_good, launch, options, place, rot, run, stories, wait_until};
use crate::stories::{LEFT, PAGE, beside, mark, wait_for};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("direct reads into a mapping are covered", fills),
    ("a file that takes the name of a guarded one is guarded", || replaces("replaces")),
    ("what is stored while a program tells of its mappings is no damage", busily),
    ("a stream to a file that takes a name is heard", || replaces("replaces by a stream")),
    ("files that are saved by renaming are guarded", saves),
    ("files that are saved again and again are guarded", hastily),
    ("a file that is only renamed keeps its side file", at_rest),
    ("a name that is given up and used again", anew),
    ("a side file goes with its file", rotates),
    ("files that change names keep their side files", swaps),
    ("a file that somebody else replaced is told of", replaced),
    ("descriptors from outside are guarded", inherits),
    ("a file that the guard itself writes to is checked only", own_output),
    ("files made under temporary names are guarded", names),
    ("files that nobody has are let go of, and taken up again", released),
    ("more files than there are numbers, one after the other", many),
    ("more files than can be mapped, one after the other", very_many),
    ("nobody waits for the first look at another file", first_look),
    ("nobody waits for a long pass", long_pass),
    ("who does not wait for its supervisor is doubted", late),
    ("a file whose name at the desk was taken is told about later", told_later),
];

pub(crate) fn skipped(summary: &Summary, why: &str) -> bool {
    let skips = summary.status.code() == Some(77);
    if skips {
        println!("  skipped: {why}");
    }
    skips
}

pub(crate) fn of<'a>(summary: &'a Summary, name: &str) -> Vec<&'a FileReport> {
    let named = |report: &&FileReport| report.path.file_name().is_some_and(|it| it == name);
    summary.files.iter().filter(named).collect()
}

/// Every page of a file is covered: damage is done to some, and is undone.
pub(crate) fn is_covered(file: &Path) {
    let expected = std::fs::read(file).unwrap();
    let mut damaged = 0;
    let stripes = expected.len() / PAGE / 4;
    // Each repair stops the program.
    for stripe in (0..stripes).step_by((stripes / 60).max(9)) {
        rot(file, stripe * 4 + stripe % 4);
        damaged += 1;
    }
    // Found by its side file alone.
    let mut by_side = options();
    by_side.globs.clear();
    let (summary, report) = run("touch", file, by_side);
    assert_eq!(report.counts.repaired, damaged, "{} {summary}", file.display());
    assert!(std::fs::read(file).unwrap() == expected, "not byte-identical\n{summary}");
}

/// Nothing was damaged, so nothing may look like it.
pub(crate) fn is_unharmed(summary: &Summary) {
    assert!(summary.status.success(), "{summary}");
    for report in &summary.files {
        assert!(is_good(summary, report), "{summary} {report:?}");
        assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    }
    assert_eq!(summary.untold, 0, "{summary}");
}

fn fills() {
    let place = place();
    let mut often = options();
    often.period = Duration::from_millis(2);
    let (summary, report) = run("fills", &place.file, often);
    if skipped(&summary, "no direct reads into memory here") {
        return;
    }
    is_unharmed(&summary);
    println!("  {} passes", report.passes);
}

fn replaces(story: &str) {
    let place = place();
    let free = crate::checks::place();
    let words = ["--story", story];
    assert!(Command::new(stories()).args(words).arg(&free.file).status().unwrap().success());
    let before = std::fs::metadata(&place.file).unwrap().ino();
    let summary = launch(story, &place.file, options()).run().unwrap();
    let expected = std::fs::read(&free.file).unwrap();
    assert!(std::fs::read(&place.file).unwrap() == expected, "changed\n{summary}");
    assert_ne!(std::fs::metadata(&place.file).unwrap().ino(), before);
    is_unharmed(&summary);
    let both = of(&summary, "data.bin");
    assert_eq!(both.len(), 2, "{summary}");
    assert!(both[0].notes.iter().any(|note| note.contains("removed, or replaced")), "{summary}");
    is_covered(&place.file);
}

fn busily() {
    let place = place();
    let mut often = options();
    often.period = Duration::from_millis(1);
    let summary = launch("replaces busily", &place.file, often).run().unwrap();
    assert_eq!(of(&summary, "data.bin").len(), 2, "{summary}");
    is_unharmed(&summary);
    is_covered(&place.file);
}

fn anew() {
    let place = place();
    let summary = launch("anew", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    assert_eq!(of(&summary, "data.bin").len(), 2, "{summary}");
    is_covered(&place.file);
    // The same of a file that is guarded only because it has a side file.
    let mut by_side = options();
    by_side.globs.clear();
    let summary = launch("anew", &place.file, by_side).run().unwrap();
    is_unharmed(&summary);
    assert_eq!(of(&summary, "data.bin").len(), 2, "{summary}");
    is_covered(&place.file);
}

fn saves() {
    let place = place();
    // It has a side file, of a run before.
    run("touch", &place.file, options());
    let mut by_side = options();
    by_side.globs.clear();
    by_side.release = Duration::from_millis(100);
    let summary = launch("saves", &place.file, by_side).run().unwrap();
    is_unharmed(&summary);
    let old = beside(&place.file, "old");
    assert!(!side_of(&place.file).exists() && side_of(&old).exists(), "{summary}");
    let note = "another file had its name before";
    let told = summary.files.iter().filter(|file| file.notes.iter().any(|it| it.contains(note)));
    assert_eq!(told.count(), 2, "{summary}");
    is_covered(&old);
}

fn hastily() {
    let place = place();
    let mut soon = options();
    soon.release = Duration::from_millis(1);
    let summary = launch("saves hastily", &place.file, soon).run().unwrap();
    assert!(summary.refused.is_empty(), "{summary}");
    is_unharmed(&summary);
    is_covered(&place.file);
}

fn at_rest() {
    let place = place();
    run("touch", &place.file, options());
    let mut by_side = options();
    by_side.globs.clear();
    let summary = launch("moves at rest", &place.file, by_side).run().unwrap();
    is_unharmed(&summary);
    assert!(!side_of(&place.file).exists(), "{summary}");
    is_covered(&beside(&place.file, "old"));
}

fn rotates() {
    let place = place();
    let summary = launch("rotates", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    let (old, new) = (of(&summary, "data.old"), of(&summary, "data.bin"));
    assert_eq!((old.len(), new.len()), (1, 1), "{summary}");
    assert!(old[0].notes.iter().any(|note| note.contains("data.bin before")), "{summary}");
    is_covered(&beside(&place.file, "old"));
    is_covered(&place.file);
}

fn swaps() {
    let place = place();
    let summary = launch("swaps", &place.file, options()).run().unwrap();
    if skipped(&summary, "names cannot be exchanged here") {
        return;
    }
    is_unharmed(&summary);
    assert_eq!(summary.files.len(), 2, "{summary}");
    is_covered(&place.file);
    is_covered(&place.file.with_file_name("second.bin"));
    let folder = std::fs::read_dir(place.file.parent().unwrap()).unwrap();
    let left = folder.flatten().filter(|it| it.path().to_str().unwrap().contains(".moving-"));
    assert_eq!(left.count(), 0);
}

/// By a program that is not guarded, and nobody opens the new one.
fn replaced() {
    let place = place();
    let guard = crate::checks::background("wait", &place.file);
    wait_for(&place.file, "ready");
    let aside = beside(&place.file, "tmp");
    std::fs::write(&aside, vec![9; 9000]).unwrap();
    assert!(Command::new("mv").arg(&aside).arg(&place.file).status().unwrap().success());
    let gone = wait_until(|| !side_of(&place.file).exists());
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(gone, "the old side file lies beside the new file\n{summary}");
    assert!(report.notes.iter().any(|note| note.contains("removed, or replaced")), "{summary}");
    assert!(std::fs::read(&place.file).unwrap() == vec![9; 9000], "{summary}");
    let told = |(path, why): &(std::path::PathBuf, String)| {
        *path == place.file && why.contains("took the name")
    };
    assert!(summary.refused.iter().any(told), "{summary}");
}

/// Has a file open under a number that programs inherit.
fn left_open<T>(file: &File, number: i32, act: impl FnOnce() -> T) -> T {
    // SAFETY: descriptors of this process; the one that was there is put back.
    unsafe {
        let before = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 100);
        assert_eq!(libc::dup2(file.as_raw_fd(), number), number);
        let done = act();
        if before >= 0 {
            libc::dup2(before, number);
            libc::close(before);
        } else {
            libc::close(number);
        }
        done
    }
}

fn inherits() {
    for number in [LEFT, 0] {
        let place = place();
        let file = File::options().read(true).write(true).open(&place.file).unwrap();
        let guard = left_open(&file, number, || launch("inherits", &place.file, options()));
        drop(file);
        let summary = guard.run().unwrap();
        assert_eq!(summary.files.len(), 1, "{number} {summary}");
        is_unharmed(&summary);
        is_covered(&place.file);
    }
}

fn own_output() {
    let place = place();
    let me = std::env::current_exe().unwrap();
    let output = File::options().write(true).open(&place.file).unwrap();
    let words = ["--guard", "touch"];
    let done = Command::new(me).args(words).arg(&place.file).stdout(output).status().unwrap();
    let told = String::from_utf8_lossy(&std::fs::read(&place.file).unwrap()).into_owned();
    assert!(done.success() && told.contains("standard output or error of the guard"));
}

fn names() {
    let place = place();
    let summary = launch("names", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    let folder = place.file.parent().unwrap();
    let linked = folder.join("linked.bin");
    if !linked.exists() {
        println!("  skipped: no files without names here");
    }
    assert_eq!(summary.files.len(), 1 + usize::from(linked.exists()), "{summary}");
    for report in &summary.files {
        is_covered(&report.path);
    }
}

/// Whether this process has a file open.
pub(crate) fn has_open(file: &Path) -> bool {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path == file)
}

fn released() {
    let place = place();
    std::fs::remove_file(&place.file).unwrap();
    let mut soon = options();
    soon.release = Duration::from_millis(100);
    let file = place.file.clone();
    let guard = std::thread::spawn(move || launch("many", &file, soon).run().unwrap());
    wait_for(&place.file, "closed");
    let first = place.file.with_file_name("0.bin");
    // The guard is this very process.
    let free = wait_until(|| !has_open(&first) && !has_open(&side_of(&first)));
    // Another one can have it then.
    let me = std::env::current_exe().unwrap();
    let other = Command::new(me).args(["--guard", "touch"]).arg(&first).output().unwrap();
    let other = String::from_utf8(other.stdout).unwrap();
    mark(&place.file, "go");
    let summary = guard.join().unwrap();
    assert!(free, "{summary}");
    assert!(other.contains("2 pages, 2 good") && !other.contains("not guarded"), "{other}");
    is_unharmed(&summary);
    assert_eq!(summary.files.len(), 6, "{summary}");
    let report = of(&summary, "0.bin")[0];
    assert!(report.seen.written > 2 * PAGE as u64, "both times count\n{summary}");
    is_covered(&first);
}

fn many() {
    let place = place();
    let mut few = options();
    few.most_files = 8;
    mark(&place.file, "go");
    let summary = launch("many", &place.file, few).run().unwrap();
    assert!(summary.refused.is_empty(), "{summary}");
    is_unharmed(&summary);
    assert_eq!(summary.files.len(), 30, "{summary}");
    is_covered(&place.file.with_file_name("0.bin"));
}

/// Nobody has them for long, but for less than it takes to be let go of without need.
fn very_many() {
    let place = place();
    mark(&place.file, "go");
    let long = Duration::from_secs(600);
    let patient = Options { release: long, period: long, ..options() };
    let summary = launch("very many", &place.file, patient).run().unwrap();
    assert!(summary.refused.is_empty(), "{:?}", summary.refused);
    assert_eq!(summary.files.len(), 260, "{summary}");
    for report in &summary.files {
        // There may be fewer ears that are told names than files; that casts doubt, no more.
        let good = report.closed && report.good == report.pages && report.contested.is_empty();
        assert!(good && report.counts.corrupt == 0 && report.errors.is_empty(), "{report}");
    }
    is_covered(&place.file.with_file_name("0.bin"));
}

/// A file that takes a while to be looked at.
pub(crate) fn large(file: &Path) {
    std::fs::write(file, vec![1; 192 << 20]).unwrap();
}

pub(crate) fn count(file: &Path) -> usize {
    std::fs::read_to_string(beside(file, "count")).unwrap().parse().unwrap()
}

fn first_look() {
    let place = place();
    large(&place.file);
    let summary = launch("opens", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    println!("  opened {} meanwhile", count(&place.file));
    assert!(count(&place.file) >= 3, "{} {summary}", count(&place.file));
}

fn long_pass() {
    let place = place();
    large(&place.file);
    let mut slow = options();
    slow.period = Duration::from_secs(60);
    let summary = launch("covers", &place.file, slow).run().unwrap();
    is_unharmed(&summary);
    println!("  opened {} meanwhile", count(&place.file));
    assert!(count(&place.file) >= 2, "{} {summary}", count(&place.file));
}

fn told_later() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let place = place();
    let key = holdfast_pmem::desk::key_of(&place.file).unwrap();
    let name = format!("holdfast-kept-{:x}-{:x}", key.0, key.1);
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let taken = UnixListener::bind_addr(&name).unwrap();
    let guard = crate::checks::background("wait", &place.file);
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_millis(300));
    drop(taken);
    let patience = Duration::from_secs(1);
    let told = wait_until(|| holdfast_pmem::desk::ask(key, 1 << 20, patience).is_some());
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(told, "{summary}");
    is_unharmed(&summary);
    let notes = report.notes.iter().filter(|note| note.contains("at first"));
    assert_eq!(notes.count(), 1, "{summary}");
}

fn late() {
    let place = place();
    let me = std::env::current_exe().unwrap();
    let mut guard = Command::new(me);
    guard.args(["--guard", "late"]).arg(&place.file).env("HOLDFAST_GUARD_IMPATIENT", "300");
    let guard = guard.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_for(&place.file, "ready");
    let number = guard.id() as i32;
    // SAFETY: signals to a child of this process.
    unsafe { libc::kill(number, libc::SIGSTOP) };
    mark(&place.file, "open");
    wait_for(&place.file, "opened");
    // SAFETY: as above.
    unsafe { libc::kill(number, libc::SIGCONT) };
    let taken = wait_until(|| side_of(&place.file).exists());
    mark(&place.file, "go");
    let told = String::from_utf8(guard.wait_with_output().unwrap().stdout).unwrap();
    assert!(taken && told.contains("did not wait"), "{told}");
    let now = std::fs::read(&place.file).unwrap();
    assert!(now[70 * PAGE..].starts_with(b"unseen") && now[90 * PAGE..].starts_with(b"seen"));
    assert!(told.contains("repaired 0"), "{told}");
}
