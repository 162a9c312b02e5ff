//! What must hold of ways of writing that are easily overlooked.

use std::process::Command;
use std::time::Duration;

use holdfast_guard::{Guard, Hears, Options};

use crate::bare;
use crate::checks::{background, comes_back, is_good, launch, options, place, run, stories, story};
use crate::stories::{PAGE, beside, mark, wait_for};
use crate::taken::skipped;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("flags of one write are heeded", || story("flags")),
    ("writes at a position that is shared are covered", || unharmed("together")),
    ("positions that others move hide no write", || unharmed("seeks")),
    ("changes by control requests are covered", || story("controls")),
    ("a guarded file is no donor of blocks", gives),
    ("what is stored while a doubt is settled is covered", restless),
    ("streams that a child inherits are covered", heirs),
    ("functions asked for by a handle are covered", || story("handles")),
    ("libraries that look into themselves cast doubt", deep),
    ("names below no folder are opened and cut off as ever", || story("nowhere")),
    ("rights of mappings stay what they were", || story("rights")),
    ("a stranger that was handed a descriptor is never repaired away", handed),
    ("libraries that a wrapper preloads are kept", || story("wraps")),
    ("a file that the guard cannot open is told", not_opened),
    ("process numbers of their own cast doubt", numbers_apart),
    ("who is left behind before it has come is waited for", left),
    ("mappings that nobody may track are never repaired away", filtered),
    ("a write that nobody announced is noticed", || unannounced("goes unseen")),
    ("a write that was cut off by a kill hides no other", || {
        unannounced("goes unseen after a kill")
    }),
    ("a write that was cut off by an exec hides no other", || {
        unannounced("goes unseen after an exec")
    }),
    ("one that was cut off by an exec of a program without libraries hides no other", || {
        unannounced("goes unseen beside one that is bare")
    }),
    ("what rots where an exec cut off a write is found", cut_off),
    ("a write that was left by a jump hides no other", || unannounced("goes unseen after a jump")),
    ("a handler that comes back to a write leaves it announced", || story("comes back to a write")),
    ("programs that give up their calls are let live", give_up),
    ("a program whose child gives up its calls goes on to announce", child_gives_up),
    ("what a stream cuts off without a name is covered", || story("cuts off what it reads")),
];

/// Below a program that makes a world of process numbers.
fn numbers_apart() {
    let unshare = |flags: &str| {
        Command::new("unshare").args([flags, "true"]).status().is_ok_and(|done| done.success())
    };
    let Some(flags) = ["-pf", "-rpf"].into_iter().find(|flags| unshare(flags)) else {
        println!("  skipped: nobody may make such a world here");
        return;
    };
    let place = place();
    let (program, file) = (stories(), place.file.clone());
    let words = [flags.into(), program.into(), "--story".into(), "pwrite".into(), file.into()];
    let summary = Guard::launch("unshare".as_ref(), &words, options()).unwrap().run().unwrap();
    assert!(summary.status.success(), "{summary}");
    assert!(summary.not_observed.iter().any(|what| what.contains("PID namespace")), "{summary}");
    let report = summary.files.first().unwrap();
    assert!(summary.untold > 0, "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

/// As a user who may not do everything.
fn not_opened() {
    use std::os::unix::process::CommandExt;
    let place = place();
    let me = std::env::current_exe().unwrap();
    let mut guard = Command::new(me);
    guard.args(["--guard", "own only"]).arg(&place.file);
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
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
    let (told, wrong) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if wrong.contains("userfaultfd") {
        println!("  skipped: {wrong}");
        return;
    }
    assert!(done.status.success(), "{told}{wrong}");
    assert!(told.contains("own.bin: not guarded: what is written to it is not observed"), "{told}");
}

/// It never opened the file, so nothing is heard of it.
fn handed() {
    let place = place();
    let words = ["--story".as_ref(), "takes".as_ref(), place.file.as_os_str()];
    let mut stranger = Command::new(stories()).args(words).spawn().unwrap();
    wait_for(&place.file, "listens");
    let guard = background("passes", &place.file);
    wait_for(&place.file, "mapped");
    // So that a pass has seen what there was.
    std::thread::sleep(Duration::from_millis(200));
    mark(&place.file, "store");
    wait_for(&place.file, "stored");
    std::thread::sleep(Duration::from_millis(300));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    stranger.wait().unwrap();
    let now = std::fs::read(&place.file).unwrap();
    assert!(now[250 * PAGE..].starts_with(b"a stranger's"), "taken back\n{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    assert!(!report.contested.is_empty() && report.doubtful.len() == 1, "{summary}");
}

/// Nobody saw the child, so what is written is doubted; but it is covered.
fn left() {
    let place = place();
    let before = std::fs::read(&place.file).unwrap();
    let (summary, report) = run("leaves", &place.file, options());
    assert_eq!(summary.spaces, 2, "{summary}");
    assert_ne!(std::fs::read(&place.file).unwrap(), before, "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

/// The program gives up the right to have its mappings tracked, and maps the file once more.
fn filtered() {
    let place = place();
    let (summary, report) = run("maps behind a filter", &place.file, options());
    if skipped(&summary, "this system lets nobody filter his own calls") {
        return;
    }
    let now = std::fs::read(&place.file).unwrap();
    for page in [250, 251] {
        assert!(now[page * PAGE..].starts_with(b"unseen"), "{page}: taken back\n{summary}");
    }
    assert!(now[PAGE..].starts_with(b"before"), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    assert!(summary.status.success() && summary.untold > 0, "{summary}");
    let doubtful: Vec<u64> = report.doubtful.iter().map(|(page, _)| *page).collect();
    assert!([250, 251].iter().all(|page| doubtful.contains(page)), "{summary}");
}

/// Whatever they write then, nobody announces it.
fn give_up() {
    for name in ["gives up its calls", "gives up its calls by number"] {
        let place = place();
        let (summary, report) = run(name, &place.file, options());
        if skipped(&summary, "this system lets nobody give up his calls") {
            return;
        }
        let now = std::fs::read(&place.file).unwrap();
        assert!(now[250 * PAGE..].starts_with(b"strict"), "taken back\n{summary}");
        assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
        let careful = !report.contested.is_empty() || !report.doubted.is_empty();
        assert!(summary.status.success() && careful, "{summary}");
    }
    // Nobody sees it, but nothing is guarded either.
    let place = place();
    let none = Options { globs: Vec::new(), ..options() };
    let summary = launch("gives up its calls unseen", &place.file, none).run().unwrap();
    assert!(summary.status.success() && summary.files.is_empty(), "{summary}");
}

/// In the memory of the program, which would be silent with it.
fn child_gives_up() {
    let place = place();
    let (summary, report) = run("has a child that gives up its calls", &place.file, options());
    if skipped(&summary, "this system lets nobody give up his calls") {
        return;
    }
    let now = std::fs::read(&place.file).unwrap();
    assert!(now[250 * PAGE..].starts_with(b"announced"), "{summary}");
    assert!(now[251 * PAGE..].starts_with(b"told"), "{summary}");
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
}

/// By a way around the library that the program has loaded. The guard has to look between it and
/// what was announced before, which a busy machine may keep it from.
fn unannounced(name: &str) {
    assert!((0..4).any(|_| is_noticed(name)), "nobody ever notices that it was not announced");
}

/// Whether it was; true where there is no such way.
fn is_noticed(name: &str) -> bool {
    let place = place();
    bare::write(&beside(&place.file, "bare"));
    std::fs::copy(&place.file, beside(&place.file, "other")).unwrap();
    let (summary, report) = run(name, &place.file, options());
    if skipped(&summary, "no such way here") {
        return true;
    }
    let now = std::fs::read(&place.file).unwrap();
    assert!(now[250 * PAGE..].starts_with(b"unseen"), "taken back\n{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    report.contested.iter().any(|why| why.contains("not announced"))
}

/// It lies in what was to be written when the program became another: that is over.
fn cut_off() {
    if let Some((summary, _)) = comes_back("is replaced amid a write", &[10, 500]) {
        assert_eq!(summary.spaces, 2, "{summary}");
    }
}

fn gives() {
    let place = place();
    let (summary, report) = run("gives", &place.file, options());
    assert!(beside(&place.file, "refused").exists(), "{summary}");
    assert!(is_good(&summary, &report) && report.counts.corrupt == 0, "{summary}");
}

/// Without names, the program's own write casts doubt, until nothing was heard for a while.
fn restless() {
    let place = place();
    std::fs::write(&place.file, vec![1; 16 << 20]).unwrap();
    let hears = Hears::Ourselves;
    let (summary, report) = run("restless", &place.file, Options { hears, ..options() });
    assert!(!report.doubted.is_empty(), "{summary}");
    assert!(report.doubtful.is_empty() && report.counts.corrupt == 0, "{summary}");
    assert!(report.closed && report.good == report.pages, "{summary}");
}

fn deep() {
    let place = place();
    let (summary, report) = run("deep", &place.file, options());
    assert!(report.doubted.iter().any(|why| why.contains("of its own")), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

fn heirs() {
    for story in ["heir of a stream", "heir of output"] {
        let place = place();
        let (summary, report) = run(story, &place.file, options());
        let now = std::fs::read(&place.file).unwrap();
        assert!(beside(&place.file, "written").exists(), "{story} {summary}");
        assert_eq!(now[300 * PAGE + 17..][..3], [44; 3], "{story} {summary}");
        assert!(is_good(&summary, &report) && summary.spaces == 2, "{story} {summary}");
        assert_eq!((report.counts.corrupt, summary.untold), (0, 0), "{story} {summary}");
    }
}

/// Runs a story of which nobody knows what it leaves: nothing may look damaged. Only what was said
/// of writes that are over counts: there is no pass while they last.
fn unharmed(name: &str) {
    for _ in 0..3 {
        let place = place();
        std::fs::write(&place.file, vec![1; 16 << 20]).unwrap();
        let mut slow = options();
        slow.period = Duration::from_secs(60);
        let (summary, report) = run(name, &place.file, slow);
        assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
        assert_eq!((report.counts.corrupt, summary.untold), (0, 0), "{summary}");
    }
}
