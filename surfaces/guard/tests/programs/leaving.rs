//! What must hold of files that are let go of, of side files whose names change, and of a
//! supervisor that many wait for.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_guard::{Options, Summary, side_of};
use holdfast_mapped::Durability;

use crate::checks::{Place, is_good, is_root, launch, options, place, rot, run, wait_until};
use crate::stories::{PAGE, PAGES, beside, mark, wait_for};
use crate::taken::{count, has_open, is_covered, is_unharmed, large, of, skipped};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("what is written while a file is let go of is covered", || between("comes and goes")),
    ("cutting off by name while a file is let go of is covered", || between("cuts off by name")),
    ("who wants a file again does not wait for the last look", back),
    ("who dies while it tells leaves doubt", killed),
    ("who stands still while it tells keeps nobody else", stopped),
    ("files of a program without its first thread stay", headless),
    ("files of a program that hides stay", hides),
    ("a sync that is answered late is no loss", late_sync),
    ("nobody waits until another's data is on the disk", slow_sync),
    ("telling of one file passes over no other", beside_large),
    ("a file that has another name is found by that", || links("links", options())),
    ("a name that is given during the first look is kept", first_look),
    ("a name that is given during the last look is kept", last_look),
    ("a file whose other names are not known is told of", lost),
    ("a fresh side file is not replaced by an old one", moved),
    ("what is no side file is not replaced by one", pointer),
    ("the side file of a file that lost its name is replaced", other),
    ("who was killed before its file was looked at is no writer", interrupted),
    ("what was refused is tried again", again),
    ("nobody waits for the last look at another file", numbers),
    ("a lease keeps nobody", leases),
    ("a handle that waits in a socket keeps its file", in_a_socket),
];

fn second(place: &Place) -> PathBuf {
    place.file.with_file_name("second.bin")
}

/// A file that takes a moment to be looked at.
fn larger(file: &Path) {
    std::fs::write(file, vec![1; 48 << 20]).unwrap();
}

/// In the moments between the looks who has a file, and before it is out of the list.
fn between(story: &str) {
    let place = place();
    let mut slow = options();
    slow.release = Duration::from_millis(1);
    slow.slow = Duration::from_millis(60);
    // So that what is heard is not looked at before announced writes are over.
    slow.period = Duration::from_millis(400);
    let summary = launch(story, &place.file, slow).run().unwrap();
    is_unharmed(&summary);
    is_covered(&place.file);
}

fn back() {
    let place = place();
    larger(&place.file);
    let mut soon = options();
    soon.release = Duration::from_millis(1);
    soon.slow = Duration::from_millis(60);
    let summary = launch("comes back", &place.file, soon).run().unwrap();
    is_unharmed(&summary);
    println!("  waited {} ms at the most", count(&place.file));
    is_covered(&place.file);
}

/// Goes on with the story until it is telling.
fn telling(story: &'static str, delay: u64) -> (Place, std::thread::JoinHandle<Summary>, i32) {
    let place = place();
    std::fs::write(beside(&place.file, "delay"), delay.to_string()).unwrap();
    let guard = launch(story, &place.file, options());
    let process = guard.process().unwrap() as i32;
    let guard = std::thread::spawn(move || guard.run().unwrap());
    wait_for(&place.file, "ready");
    mark(&place.file, "go");
    (place, guard, process)
}

fn killed() {
    let mut doubted = 0;
    for delay in [1, 5, 12, 30] {
        let (place, guard, _) = telling("is killed while it tells", delay);
        let summary = guard.join().unwrap();
        let found = of(&summary, "second.bin");
        let [report] = found[..] else { panic!("{summary}") };
        assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
        doubted += usize::from(report.contested.iter().any(|why| why.contains("before it had")));
        let kept = of(&summary, "data.bin");
        assert!(kept[0].contested.is_empty(), "{summary}");
        drop(place);
    }
    assert!(doubted > 0, "it was never killed in time");
}

/// A busy machine may stop it only when it has told, so there are some tries.
fn stopped() {
    if !is_root() {
        println!("  skipped: needs the right to ask the kernel who wrote");
    }
    let caught = [5, 1, 0, 0, 0].into_iter().any(is_stopped);
    assert!(caught, "it was never stopped in time");
}

/// Whether it stood while it told.
fn is_stopped(delay: u64) -> bool {
    let (place, guard, process) = telling("is stopped while it tells", delay);
    let stands = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.contains(") T ")
    };
    assert!(wait_until(stands));
    let while_it_told = !beside(&place.file, "renamed").exists();
    let expected = std::fs::read(&place.file).unwrap();
    let mut again = true;
    if is_root() {
        rot(&place.file, 301);
        again = wait_until(|| std::fs::read(&place.file).unwrap() == expected);
    }
    // SAFETY: a signal to a child of this process.
    unsafe { libc::kill(process, libc::SIGCONT) };
    let summary = guard.join().unwrap();
    println!(
        "  stopped after {delay} ms, {} it told",
        if while_it_told { "while" } else { "when" }
    );
    assert!(again, "{while_it_told}\n{summary}");
    for report in &summary.files {
        assert!(is_good(&summary, report), "{summary}");
    }
    assert_eq!(of(&summary, "second.bin")[0].counts.corrupt, 0, "{summary}");
    while_it_told
}

fn stays(summary: &Summary, file: &Path) {
    is_unharmed(summary);
    let report = &summary.files[0];
    assert!(report.seen.written >= 2 * PAGE as u64, "it was let go of\n{summary}");
    is_covered(file);
}

fn headless() {
    let place = place();
    let soon = Options { release: Duration::from_millis(100), ..options() };
    let summary = launch("goes on without its first thread", &place.file, soon).run().unwrap();
    stays(&summary, &place.file);
}

/// As a user who may not look into everybody.
fn hides() {
    use std::os::unix::process::CommandExt;
    let place = place();
    let mut guard = Command::new(std::env::current_exe().unwrap());
    guard.args(["--guard", "hides"]).arg(&place.file);
    if is_root() {
        for path in [place.file.as_path(), place.file.parent().unwrap()] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
        guard.uid(65534).gid(65534);
    }
    let done = match guard.output() {
        Ok(done) => done,
        Err(error) => {
            println!("  skipped: another user cannot start this test: {error}");
            return;
        }
    };
    let told = String::from_utf8_lossy(&done.stdout);
    let wrong = String::from_utf8_lossy(&done.stderr);
    if wrong.contains("userfaultfd") {
        println!("  skipped: {wrong}");
        return;
    }
    assert!(done.status.success() && told.contains("by write 8192"), "{told}{wrong}");
}

fn late_sync() {
    let place = place();
    let mut guard = Command::new(std::env::current_exe().unwrap());
    guard.args(["--guard", "syncs late"]).arg(&place.file).env("HOLDFAST_GUARD_IMPATIENT", "300");
    let guard = guard.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_for(&place.file, "ready");
    let number = guard.id() as i32;
    // SAFETY: signals to a child of this process.
    unsafe { libc::kill(number, libc::SIGSTOP) };
    mark(&place.file, "open");
    wait_for(&place.file, "opened");
    // SAFETY: as above.
    unsafe { libc::kill(number, libc::SIGCONT) };
    mark(&place.file, "go");
    let told = String::from_utf8(guard.wait_with_output().unwrap().stdout).unwrap();
    assert!(!told.contains("could not be told") && !told.contains("checked only"), "{told}");
    is_covered(&place.file);
}

fn slow_sync() {
    let place = place();
    let mut slow = options();
    slow.period = Duration::from_secs(60);
    slow.slow = Duration::from_millis(400);
    slow.protect.open.durability = Durability::Power;
    let (summary, report) = run("syncs", &place.file, slow);
    is_unharmed(&summary);
    assert_eq!(report.covered_on_sync, 2, "{summary}");
    // Were they to wait for that, too, it would be one or two.
    assert!(count(&place.file) >= 5, "{} {summary}", count(&place.file));
}

fn beside_large() {
    let place = place();
    large(&place.file);
    let slow = Options { period: Duration::from_secs(60), ..options() };
    let summary = launch("tells beside a large file", &place.file, slow).run().unwrap();
    is_unharmed(&summary);
    assert_eq!(of(&summary, "data.bin")[0].passes, 1, "one at the end\n{summary}");
    assert_eq!(of(&summary, "second.bin")[0].passes, 2, "{summary}");
}

fn first_look() {
    links("links at the first look", options());
}

fn last_look() {
    let slow = Duration::from_millis(500);
    let soon = Options { release: Duration::from_millis(1), slow, ..options() };
    links("links at the last look", soon);
}

fn links(story: &str, options: Options) {
    let place = place();
    if story.contains("first") {
        larger(&place.file);
    }
    let summary = launch(story, &place.file, options).run().unwrap();
    is_unharmed(&summary);
    let other = second(&place);
    assert!(side_of(&other).exists() && !side_of(&place.file).exists(), "{summary}");
    assert!(summary.files[0].path == other && summary.files[0].is_guarded(), "{summary}");
    is_covered(&other);
}

fn lost() {
    let place = place();
    std::fs::hard_link(&place.file, second(&place)).unwrap();
    let summary = launch("links", &place.file, options()).run().unwrap();
    assert!(!side_of(&second(&place)).exists() && !side_of(&place.file).exists(), "{summary}");
    let report = &summary.files[0];
    assert!(report.errors.iter().any(|why| why.contains("has others")), "{summary}");
    assert!(!report.is_guarded() && report.counts.corrupt == 0, "{summary}");
}

fn moved() {
    let place = place();
    let soon = Options { release: Duration::from_millis(100), ..options() };
    let file = place.file.clone();
    let guard = std::thread::spawn(move || launch("has moved", &file, soon).run().unwrap());
    wait_for(&place.file, "closed");
    let free = wait_until(|| !has_open(&place.file) && !has_open(&side_of(&place.file)));
    let other = second(&place);
    std::fs::rename(&place.file, &other).unwrap();
    let fresh = Command::new(std::env::current_exe().unwrap())
        .args(["--guard", "touch"])
        .arg(&other)
        .output()
        .unwrap();
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    let (old, new) = (inode(&side_of(&place.file)), inode(&side_of(&other)));
    mark(&place.file, "go");
    let summary = guard.join().unwrap();
    assert!(free && fresh.status.success(), "{summary}");
    assert_eq!((inode(&side_of(&place.file)), inode(&side_of(&other))), (old, new), "{summary}");
    is_unharmed(&summary);
    is_covered(&other);
}

fn pointer() {
    let place = place();
    let other = second(&place);
    std::fs::write(&other, b"what had the name").unwrap();
    std::fs::write(side_of(&other), vec![9; 8192]).unwrap();
    let summary = launch("takes another's name", &place.file, options()).run().unwrap();
    assert!(std::fs::read(side_of(&other)).unwrap() == vec![9; 8192], "{summary}");
    assert!(side_of(&place.file).exists(), "{summary}");
    let report = &summary.files[0];
    assert!(report.errors.iter().any(|why| why.contains("stays at")), "{summary}");
    assert!(!report.is_guarded() && report.closed, "{summary}");
    let folder = std::fs::read_dir(place.file.parent().unwrap()).unwrap();
    let aside = folder.flatten().filter(|it| it.path().to_str().unwrap().contains(".moving-"));
    assert_eq!(aside.count(), 0);
}

fn other() {
    let place = place();
    let other = second(&place);
    std::fs::write(&other, vec![3; PAGES * PAGE]).unwrap();
    run("touch", &other, options());
    let expected = std::fs::read(&place.file).unwrap();
    let summary = launch("takes another's name", &place.file, options()).run().unwrap();
    is_unharmed(&summary);
    let told = |note: &String| note.contains("had this name before was removed");
    assert!(summary.files[0].notes.iter().any(told), "{summary}");
    assert!(!side_of(&place.file).exists() && std::fs::read(&other).unwrap() == expected);
    is_covered(&other);
}

fn interrupted() {
    let place = place();
    larger(&place.file);
    let guard = launch("waits for its file", &place.file, options());
    let process = guard.process().unwrap() as i32;
    let guard = std::thread::spawn(move || guard.run().unwrap());
    let mut making = side_of(&place.file).into_os_string();
    making.push(".making");
    let making = PathBuf::from(making);
    while !making.exists() && !side_of(&place.file).exists() {
        std::thread::yield_now();
    }
    // SAFETY: a signal to a child of this process.
    unsafe { libc::kill(process, libc::SIGKILL) };
    let summary = guard.join().unwrap();
    let report = &summary.files[0];
    assert!(is_good(&summary, report), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    is_covered(&place.file);
}

/// How long it takes until there is room cannot be asked by the program.
fn again() {
    let tried = [1300, 3000, 10_000, 30_000].into_iter().any(again_after);
    assert!(tried, "it is always refused");
}

/// After so many milliseconds; whether nothing was refused.
fn again_after(millis: u64) -> bool {
    let place = place();
    std::fs::write(beside(&place.file, "delay"), millis.to_string()).unwrap();
    let mut few = options();
    few.release = Duration::from_millis(100);
    few.most_files = 1;
    let summary = launch("one after the other", &place.file, few).run().unwrap();
    is_unharmed(&summary);
    if !summary.refused.is_empty() {
        println!("  still refused after {millis} ms");
        return false;
    }
    assert_eq!(summary.files.len(), 2, "{summary}");
    is_covered(&second(&place));
    true
}

fn numbers() {
    let place = place();
    let few = Options { most_files: 1, slow: Duration::from_millis(300), ..options() };
    let summary = launch("waits for a number", &place.file, few).run().unwrap();
    assert!(summary.refused.is_empty() && summary.files.len() == 2, "{summary}");
    is_unharmed(&summary);
    // As above.
    assert!(count(&place.file) >= 5, "{} {summary}", count(&place.file));
}

fn in_a_socket() {
    let place = place();
    let soon = Options { release: Duration::from_millis(50), ..options() };
    let summary = launch("keeps it in a socket", &place.file, soon).run().unwrap();
    is_unharmed(&summary);
    let report = &summary.files[0];
    assert_eq!(report.seen.written, PAGE as u64, "it was let go of\n{summary}");
    is_covered(&place.file);
}

fn leases() {
    let place = place();
    let summary = launch("leases", &place.file, options()).run().unwrap();
    if skipped(&summary, "no leases here") {
        return;
    }
    assert!(summary.status.success() && count(&place.file) < 5000, "{summary}");
    let told = summary.refused.iter().any(|(path, _)| *path == second(&place));
    assert!(told, "{summary}");
    assert!(File::open(second(&place)).is_ok());
}
