//! What must hold of handles that go to others, who are gone before anybody looks.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_guard::Options;

use crate::bare;
use crate::checks::{is_good, options, place, run, stories, story};
use crate::started::is_kept;
use crate::stories::{PAGE, beside, wait_for};
use crate::taken::skipped;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("who inherits a handle and never says who it is is a stranger", inherits),
    ("who inherits a handle and has no room to say so is a stranger", cramped),
    ("who inherits a handle is guarded whatever the environment says", || story("hands on")),
    ("commands that leave an inherited handle alone harm nothing", || story("runs others")),
    ("a handle that is sent to a stranger makes it one", sent),
    ("a handle that is sent to a guarded process harms nothing", || story("sends to its own")),
    ("a position that another program moves back hides no write", moved_back),
    ("signals that come at the same time are all passed on", signals),
];

fn inherits() {
    for way in ["fork", "vfork", "spawn", "system", "lost system", "popen"] {
        let place = place();
        bare::write(&beside(&place.file, "bare"));
        let (summary, report) = run(&format!("bare child {way}"), &place.file, options());
        assert!(summary.status.success(), "{way}: {summary}");
        println!("  {way}: {:?}", report.contested);
        is_kept(&place.file, &summary, &report);
        // The next run tells that it still is so.
        let (summary, report) = run("touch", &place.file, options());
        assert!(!report.contested.is_empty() && !report.is_guarded(), "{way}: {summary}");
        is_kept(&place.file, &summary, &report);
    }
}

/// The shell cannot tell, or what it becomes cannot be set up.
fn cramped() {
    for (room, stored) in [("no", bare::STORED), ("little", b"inherited")] {
        let place = place();
        bare::write(&beside(&place.file, "bare"));
        let (summary, report) = run(&format!("{room} room"), &place.file, options());
        assert!(summary.status.success(), "{room}: {summary}");
        let now = std::fs::read(&place.file).unwrap();
        assert!(now[bare::PAGE_OF * PAGE..].starts_with(stored), "taken back\n{summary}");
        assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
        let careful = !report.contested.is_empty() || summary.untold > 0;
        assert!(careful, "{room}: {summary}");
    }
}

/// One of two programs that were started with one descriptor moves the position back while the
/// other one writes, and beyond where that was before. Only what was said of writes that are over
/// counts: there is no pass before the end.
fn moved_back() {
    for way in ["shares a position", "lends a position", "sends a position"] {
        let place = place();
        let slow = Options { period: Duration::from_secs(60), ..options() };
        let (summary, report) = run(way, &place.file, slow);
        if skipped(&summary, "this system lets nobody filter his own calls") {
            return;
        }
        let now = std::fs::read(&place.file).unwrap();
        let starts = now[..PAGE].iter().all(|byte| *byte == b'A')
            && now[PAGE..5 * PAGE].iter().all(|byte| *byte == b'B');
        assert!(starts, "{way}: taken back\n{summary}");
        assert!(summary.status.success() && is_good(&summary, &report), "{way}: {summary}");
        assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{way}: {summary}");
    }
}

fn signals() {
    let place = place();
    let came = [libc::SIGUSR1, libc::SIGUSR2].map(|signal| (signal, Arc::<AtomicBool>::default()));
    let options = Options { signals: came.to_vec(), ..options() };
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("hears", &file, options));
    wait_for(&place.file, "ready");
    came.iter().for_each(|(_, came)| came.store(true, Ordering::SeqCst));
    let (summary, _) = guard.join().unwrap();
    assert!(summary.status.success(), "{summary}");
}

fn sent() {
    for way in ["sends", "sends many", "sends by number"] {
        let place = place();
        let words = ["--story".as_ref(), "takes at once".as_ref(), place.file.as_os_str()];
        let mut stranger = Command::new(stories()).args(words).spawn().unwrap();
        wait_for(&place.file, "listens");
        let (summary, report) = run(way, &place.file, options());
        stranger.wait().unwrap();
        assert!(summary.status.success(), "{way}: {summary}");
        println!("  {way}: {:?}", report.contested);
        is_kept(&place.file, &summary, &report);
    }
}
