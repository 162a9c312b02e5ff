//! What must hold of files that streams are open for, which write when the C library likes.

use std::time::Duration;

use holdfast_guard::{Guard, Options};

use crate::checks::{
    background, comes_back, is_good, launch, options, place, rot, run, story, tells_who, wait_until,
};
use crate::stories::{PAGE, beside, mark, wait_for};
use crate::taken::of;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("streams that write all the time are covered", || story("streams all the time")),
    ("a stream's write that stands still is no damage", || story("a write that stands still")),
    ("who closes one of two standard streams still has the other", || story("closes one of two")),
    ("functions that write and are not called so are covered", traces),
    ("who only reads by a stream launders no damage", reads),
    ("what rotted before a shell appends is found", appends),
    ("what rotted before a stream that comes amid a pass is found", amid),
    ("what rotted before a stream that comes amid a scrub is found", halfway),
    ("what rots behind a stream that wrote is repaired", || rests("writes once by a stream")),
    ("what rots behind a line that was printed is repaired", || rests("prints once")),
];

/// A trace has addresses, so it is another one each time.
fn traces() {
    let place = place();
    let before = std::fs::read(&place.file).unwrap();
    let (summary, report) = run("traces itself", &place.file, options());
    let (now, noted) = (
        std::fs::read(&place.file).unwrap(),
        std::fs::read(beside(&place.file, "oracle")).unwrap(),
    );
    assert!(now == noted, "taken back\n{summary}");
    for page in [150, 250] {
        assert_ne!(now[page * PAGE..][..PAGE], before[page * PAGE..][..PAGE], "{summary}");
    }
    assert!(summary.status.success() && is_good(&summary, &report), "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (0, 0), "{summary}");
}

/// What rotted before a shell appends is found before it does.
fn appends() {
    let place = place();
    run("touch", &place.file, options());
    let mut expected = std::fs::read(&place.file).unwrap();
    ROTTEN.iter().for_each(|page| rot(&place.file, *page));
    let what = format!("printf appended >> {}; sleep 0.3", place.file.display());
    let words = ["-c".into(), what.into()];
    // Its own `printf` is that of the C library.
    let Ok(guard) = Guard::launch("bash".as_ref(), &words, options()) else {
        println!("  skipped: no bash here");
        return;
    };
    let summary = guard.run().unwrap();
    let report = summary.files.first().unwrap();
    expected.extend(b"appended");
    assert!(std::fs::read(&place.file).unwrap() == expected, "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (4, 4), "{summary}");
}

/// What the programs leave that write in passing.
fn write_in_passing(content: &mut [u8]) {
    content[20 * PAGE + 17..][..11].copy_from_slice(b"by a stream");
}

/// The scrub, which looks at a part of the file after each pass, is somewhere in it. What rotted
/// lies before that.
fn halfway() {
    if !tells_who() {
        return;
    }
    let place = place();
    run("touch", &place.file, options());
    let mut expected = std::fs::read(&place.file).unwrap();
    let slow = Options { period: Duration::from_secs(1), scrub_regions: 1, ..options() };
    let guard = launch("streams when told", &place.file, slow);
    let guard = std::thread::spawn(move || guard.run().unwrap());
    wait_for(&place.file, "ready");
    // The first pass, and the first step of the scrub.
    std::thread::sleep(Duration::from_millis(1500));
    rot(&place.file, ROTTEN[0]);
    mark(&place.file, "go");
    let summary = guard.join().unwrap();
    let report = summary.files.first().unwrap();
    write_in_passing(&mut expected);
    assert!(std::fs::read(&place.file).unwrap() == expected, "{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (1, 1), "{summary}");
    assert!(is_good(&summary, report), "{summary}");
}

/// The first stream to a file comes while another one is covered, which takes long.
fn amid() {
    let place = place();
    let second = place.file.with_file_name("second.bin");
    std::fs::copy(&place.file, &second).unwrap();
    run("touch", &second, options());
    let mut expected = std::fs::read(&second).unwrap();
    ROTTEN.iter().for_each(|page| rot(&second, *page));
    let slow = Options { pace: Some(1 << 20), ..options() };
    let summary = launch("streams beside a pass", &place.file, slow).run().unwrap();
    let found = of(&summary, "second.bin");
    write_in_passing(&mut expected);
    assert!(std::fs::read(&second).unwrap() == expected, "{summary}");
    let [report] = found[..] else { panic!("{summary}") };
    assert_eq!((report.counts.corrupt, report.counts.repaired), (4, 4), "{summary}");
    assert!(is_good(&summary, report), "{summary}");
}

const ROTTEN: [usize; 4] = [1, 102, 301, 500];

/// What rotted before is found while the stream is open, and nothing counts as written.
fn reads() {
    let place = place();
    run("touch", &place.file, options());
    let expected = std::fs::read(&place.file).unwrap();
    ROTTEN.iter().for_each(|page| rot(&place.file, *page));
    let guard = background("reads by a stream", &place.file);
    wait_for(&place.file, "ready");
    let again = wait_until(|| std::fs::read(&place.file).unwrap() == expected);
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(again, "it was not repaired while the program ran\n{summary}");
    assert_eq!((report.counts.corrupt, report.counts.repaired), (4, 4), "{summary}");
    assert_eq!(report.seen.written, 0, "{summary}");
    assert!(is_good(&summary, &report), "{summary}");
}

/// What rots once a stream has written, and that is covered, is damage.
fn rests(story: &str) {
    comes_back(story, &ROTTEN);
}
