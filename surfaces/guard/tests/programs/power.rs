//! What `power` promises that `process` does not: after a pass, and when a sync returns, nothing of
//! the data file or of the side file is only in the page cache. At rest both promise it. The kernel
//! is asked, per file, how many pages of it wait to be written.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use holdfast_guard::{Options, side_of};
use holdfast_mapped::Durability;

use crate::checks::{is_good, options, place, run, wait_at_most, wait_until};
use crate::stories::{mark, wait_for};

/// Number of `cachestat` (Linux 6.5).
const CACHESTAT: libc::c_long = 451;

/// Pages of a file that are changed in the cache and not on their way; `None` if nobody tells.
fn waiting(path: &Path) -> Option<u64> {
    let file = File::open(path).unwrap();
    let whole = [0_u64; 2];
    let mut told = [0_u64; 5];
    // SAFETY: reads a range of two words, where zero is the whole file, and writes five.
    let done =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), whole.as_ptr(), told.as_mut_ptr(), 0) };
    // Cached, dirty, under writeback, evicted, evicted of late.
    (done == 0).then_some(told[1] + told[2])
}

/// Whether this file system and kernel tell what was just written from what is durable.
fn tells(path: &Path) -> bool {
    let probe = path.with_extension("probe");
    let can = (0..20).any(|_| {
        std::fs::write(&probe, vec![1; 1 << 20]).unwrap();
        let before = waiting(&probe);
        File::open(&probe).unwrap().sync_all().unwrap();
        before.is_some_and(|pages| pages > 0) && waiting(&probe) == Some(0)
    });
    if !can {
        println!("  skipped: nobody tells which pages of the cache wait to be written");
    }
    can
}

/// Files on their way to the disk for other reasons look the same, so time is given: less than the
/// system lets changed pages wait before it writes them by itself.
fn durable(file: &Path) -> bool {
    wait_at_most(Duration::from_secs(20), || {
        waiting(file) == Some(0) && waiting(&side_of(file)) == Some(0)
    })
}

/// Passes alone: the program never syncs.
pub(crate) fn passes() {
    if !tells(&place().file) {
        return;
    }
    wait_after_a_pass(Durability::Power);
    // The check can fail; but for a system that wrote all of it by itself in that moment.
    let waits = (0..5).any(|_| {
        let (data, side) = wait_after_a_pass(Durability::Process);
        data > 0 && side > 0
    });
    assert!(waits, "the check cannot fail here");
}

/// Pages of data and of the side file that wait after a pass; none if it is durable.
fn wait_after_a_pass(durability: Durability) -> (u64, u64) {
    let place = place();
    let mut options = options();
    options.period = Duration::from_millis(20);
    options.protect.open.durability = durability;
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("wait", &file, options));
    wait_for(&place.file, "ready");
    let waiting = || [waiting(&place.file).unwrap(), waiting(&side_of(&place.file)).unwrap()];
    let mut most = waiting();
    let durable = if durability == Durability::Power {
        // The passes for the program's stores.
        std::thread::sleep(Duration::from_millis(300));
        most = waiting();
        durable(&place.file)
    } else {
        wait_at_most(Duration::from_millis(300), || {
            let now = waiting();
            most = [most[0].max(now[0]), most[1].max(now[1])];
            most.iter().all(|pages| *pages > 0)
        });
        true
    };
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(is_good(&summary, &report), "{summary}");
    let [data, side] = most;
    assert!(durable, "{data} pages of data, {side} of the side file wait\n{summary}");
    (data, side)
}

/// Syncs alone: there is no pass before the end.
pub(crate) fn syncs() {
    let place = place();
    if !tells(&place.file) {
        return;
    }
    let mut options = options();
    options.period = Duration::from_secs(60);
    options.protect.open.durability = Durability::Power;
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("sync", &file, options));
    wait_until(|| std::fs::read(&place.file).unwrap()[9 * 4096] == 6);
    let durable = durable(&place.file);
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(durable, "{summary}");
    assert!(is_good(&summary, &report) && report.covered_on_sync == 2, "{summary}");
}

/// Kept for the death of processes, and at rest for power cuts: at the end, or let go of before.
pub(crate) fn rests() {
    for (story, release) in [("store", 10_000), ("keeps it in a socket", 50), ("closes", 50)] {
        let place = place();
        if !tells(&place.file) {
            return;
        }
        let options = Options { release: Duration::from_millis(release), ..options() };
        let (summary, report) = run(story, &place.file, options);
        let (data, side) = (waiting(&place.file).unwrap(), waiting(&side_of(&place.file)).unwrap());
        assert!(report.closed && summary.status.success(), "{story}: {summary}");
        assert_eq!((data, side), (0, 0), "{story}: pages wait\n{summary}");
        assert!(kept_for_power(&side_of(&place.file)), "{story}: {summary}");
    }
}

/// What the first copy of the header of a side file says that it survives.
fn kept_for_power(side: &Path) -> bool {
    let bytes = std::fs::read(side).unwrap();
    // Behind what every record that is kept twice begins with.
    let durability = bytes[32 + 128..].first_chunk().unwrap();
    u32::from_le_bytes(*durability) == 2
}
