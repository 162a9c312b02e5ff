//! What must hold of mappings that are made otherwise than by mapping a file.

use std::time::Duration;

use crate::checks::{background, is_good, options, place, rot, run, story, wait_at_most};
use crate::stories::{PAGE, beside, mark, wait_for};
use crate::taken::{of, skipped};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("second mappings of the same pages are covered", || story("copies")),
    ("pages that move and leave their place mapped are covered", || story("stays behind")),
    ("children that are given parts of a mapping are covered", || story("not for children")),
    ("what a handler stores before a child is known is covered", || story("stores in a handler")),
    ("a mapping that cannot grow may be stored to meanwhile", || story("cannot grow")),
    ("one that is shown elsewhere too may be stored to meanwhile", || story("stays for others")),
    ("one that is replaced may be stored to meanwhile", || story("replaced for others")),
    ("one that is moved onto may be stored to meanwhile", || story("moved onto others")),
    ("what is stored while one mapping replaces another is seen", exchanged),
    ("what advice takes out of the page table is covered", || story("takes advice")),
    ("what rests in a region that is left open is repaired", rests),
    ("who forks beside an allocator that has a lock does not stand still", forks),
    ("who goes before others does not keep them from going on", goes_before),
    ("one sync covers all files that are mapped there", syncs_two),
];

/// Regions that are stored to all the time are left open. What is stored to no more is found again.
/// When it was covered cannot be asked while the others are open, so a busy machine may need more
/// time.
fn rests() {
    let again = [1, 4, 16].into_iter().any(rests_after);
    assert!(again, "it was not repaired while the program ran");
}

/// Whether what rots so many seconds after the last store to it is given back. That is two passes,
/// on a busy machine, too.
fn rests_after(seconds: u64) -> bool {
    const RESTS: [usize; 2] = [102, 301];
    let place = place();
    let guard = background("keeps busy", &place.file);
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_secs(seconds));
    let held = || {
        let is = std::fs::read(&place.file).unwrap();
        RESTS.map(|page| is[page * PAGE..][..PAGE].to_vec())
    };
    let expected = held();
    RESTS.iter().for_each(|page| rot(&place.file, *page));
    let again = wait_at_most(Duration::from_secs(20), || held() == expected);
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    if !again {
        println!("  not repaired after {seconds} s\n{summary}");
        assert_eq!(report.counts.corrupt, report.counts.repaired, "{summary}");
        return false;
    }
    assert_eq!((report.counts.corrupt, report.counts.repaired), (2, 2), "{summary}");
    assert!(is_good(&summary, &report), "{summary}");
    // A pass counts what it finds stored to, also where it leaves that open. The first one covers
    // all of the file.
    let covered = (report.counts.covered - report.pages) * PAGE as u64;
    assert!(report.seen.stored >= covered, "{summary}");
    true
}

fn syncs_two() {
    let place = place();
    let mut slow = options();
    slow.period = Duration::from_secs(60);
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("syncs two", &file, slow));
    wait_for(&place.file, "synced");
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    let [second] = of(&summary, "second.bin")[..] else { panic!("{summary}") };
    assert_eq!((report.covered_on_sync, second.covered_on_sync), (1, 1), "{summary}");
}

/// Where much is done at a time, a child may come later than it is waited for.
fn forks() {
    let place = place();
    let (summary, report) = run("forks beside an allocator", &place.file, options());
    assert!(summary.status.success(), "{summary}");
    assert!(std::fs::read(&place.file).unwrap()[30 * PAGE..].starts_with(&[1; 100]), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

fn goes_before() {
    let place = place();
    let (summary, report) = run("goes before others", &place.file, options());
    if skipped(&summary, "nobody may go before others here") {
        return;
    }
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

/// The last store to each page falls in between, more often than not.
fn exchanged() {
    let place = place();
    let (summary, report) = run("exchanged", &place.file, options());
    assert!(summary.status.success(), "{summary}");
    let expected = std::fs::read(beside(&place.file, "oracle")).unwrap();
    assert!(std::fs::read(&place.file).unwrap() == expected, "taken back\n{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
    assert!(is_good(&summary, &report), "{summary} {report:?}");
}
