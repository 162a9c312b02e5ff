//! What must hold of the stories.

use std::ffi::OsString;
use std::fs::{File, FileTimes, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_guard::{Drill, FileReport, Guard, Hears, Options, Summary, side_of};
use holdfast_mapped::live::{Live, TEXT_MAX};
use holdfast_pmem::desk;

use crate::stories::{PAGE, PAGES, beside, is_hot, mark, wait_for};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("stores are covered", || story("store")),
    ("pwrite is covered", || story("pwrite")),
    ("every way to write is covered", || story("family")),
    ("appending and synced writing is covered", || story("append")),
    ("changes of length are covered", || story("lengths")),
    ("streams are covered", || story("stream")),
    ("mappings that move are covered", || story("moves")),
    ("children are covered", || story("fork")),
    ("what is stored before an exec is covered, and what follows", || story("exec")),
    ("what is stored before a kill is covered", || story("kill")),
    ("threads that map and unmap are covered", || story("threads")),
    ("handlers of signals may do it all", || story("signals")),
    ("a program may close everything it did not open", || story("closes")),
    ("direct writing is covered", || story("direct")),
    ("nonsense is refused and does no harm", || story("junk")),
    ("without write tracking the same check fails", untracked),
    ("a sync covers first", sync),
    ("loads that fail are done again", crate::media::mapped_anew),
    ("handlers of loads that fail are called as they ask to be", crate::media::own_handlers),
    ("loads of poisoned memory are done again", crate::media::poisoned),
    ("what was stored to memory that failed is lost and told", crate::media::stored_and_lost),
    ("passes for power cuts are durable", crate::power::passes),
    ("syncs for power cuts are durable on both sides", crate::power::syncs),
    ("files at rest survive power cuts whatever they survived before", crate::power::rests),
    ("damage while in use is repaired", in_use),
    ("a stranger's write is never repaired away", stranger),
    ("no write is ever reverted in a storm", storm),
    ("drills are given back, and nobody loses a store", drills),
    ("what goes through a ring is never repaired away", || ring("ring")),
    ("a ring that is closed at once is not forgotten", || ring("short ring")),
    ("rings are refused to whoever wants them refused", strict),
    ("printing is covered", || story("prints")),
    ("calls by number are covered", || story("numbers")),
    ("calls that a program makes by itself are never repaired away", own_calls),
    ("a stranger among announced writes is never repaired away, names or not", nameless),
    ("without names, what was quiet for long enough is repaired", quiet_again),
    ("children of nobody are noticed", bare_clone),
    ("a child of nobody that was gone at once is no damage", short_clone),
    ("the death of the supervisor hurts nobody", orphaned),
    ("a second guard leaves the file alone", twice),
    ("what cannot be observed is not started", refused),
];

pub(crate) struct Place {
    _folder: tempfile::TempDir,
    pub(crate) file: PathBuf,
}

fn content() -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / 13 + at / PAGE * 31 + at) as u8).collect()
}

pub(crate) fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data.bin");
    std::fs::write(&file, content()).unwrap();
    Place { _folder: folder, file }
}

fn preload() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let folder = me.parent().unwrap();
    folder.join("libholdfast_preload.so")
}

pub(crate) fn options() -> Options {
    let mut options = Options::new(preload());
    options.period = Duration::from_millis(20);
    options.globs = vec!["*.bin".to_owned()];
    options
}

/// The programs: beside the folder in which this test lies.
pub(crate) fn stories() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let found = me.parent().unwrap().parent().unwrap().join("examples/stories");
    assert!(found.exists(), "it is an example: `cargo test -p holdfast-guard` builds it, too");
    found
}

pub(crate) fn launch(story: &str, file: &Path, options: Options) -> Guard {
    launch_of(&stories(), story, file, options)
}

pub(crate) fn launch_of(program: &Path, story: &str, file: &Path, options: Options) -> Guard {
    let words: [OsString; 3] = ["--story".into(), story.into(), file.into()];
    Guard::launch(program.as_os_str(), &words, options).unwrap()
}

pub(crate) fn run(story: &str, file: &Path, options: Options) -> (Summary, FileReport) {
    run_of(&stories(), story, file, options)
}

pub(crate) fn run_of(
    program: &Path,
    story: &str,
    file: &Path,
    options: Options,
) -> (Summary, FileReport) {
    let summary = launch_of(program, story, file, options).run().unwrap();
    let report = summary.files.first().cloned().unwrap_or_else(|| panic!("{summary}"));
    (summary, report)
}

/// As [`run`], on a thread, while the test does other things.
pub(crate) fn background(story: &str, file: &Path) -> JoinHandle<(Summary, FileReport)> {
    let (story, file) = (story.to_owned(), file.to_owned());
    std::thread::spawn(move || run(&story, &file, options()))
}

/// Bytes of a page that rot changes.
const ROT: core::ops::Range<usize> = 1000..1040;

/// Changes bytes as rot would: nobody's time of change is touched.
pub(crate) fn rot(file: &Path, page: usize) {
    let open = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let time = open.metadata().unwrap().modified().unwrap();
    let at = (page * PAGE + ROT.start) as u64;
    let mut bytes = [0; ROT.end - ROT.start];
    open.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    open.write_all_at(&bytes, at).unwrap();
    open.set_times(FileTimes::new().set_modified(time)).unwrap();
}

pub(crate) fn is_good(summary: &Summary, report: &FileReport) -> bool {
    report.closed
        && report.good == report.pages
        && report.doubtful.is_empty()
        && report.contested.is_empty()
        // Where the system does not tell who it was, the program's own writes cast doubt.
        && (report.doubted.is_empty() || !is_root())
        && report.errors.is_empty()
        && report.counts.undecided == 0
        && summary.not_observed.is_empty()
}

/// Runs a story with and without a guard; then damages one page of each fifth stripe, and has it
/// undone.
pub(crate) fn story(name: &str) {
    let (guarded, free) = (place(), place());
    let alone = Command::new(stories()).args(["--story", name]).arg(&free.file).status().unwrap();
    assert!(alone.success() || name == "kill", "the story itself does not work");
    let (summary, report) = run(name, &guarded.file, options());
    assert_eq!(summary.status, alone, "{summary}");
    let expected = std::fs::read(&free.file).unwrap();
    let found = std::fs::read(&guarded.file).unwrap();
    assert!(found == expected, "the file differs from an unguarded one\n{summary}");
    assert!(is_good(&summary, &report), "{summary} {report:?}");
    assert_eq!(report.counts.corrupt, 0, "nothing was damaged\n{summary}");
    assert!(report.passes > 0 && report.counts.covered > 0, "{summary}");
    if name != "junk" {
        assert_eq!(summary.untold, 0, "{summary}");
    }
    let mut damaged = 0;
    for stripe in (0..found.len() / PAGE / 4 - 1).step_by(5) {
        rot(&guarded.file, stripe * 4 + stripe % 4);
        damaged += 1;
    }
    let (summary, report) = run("touch", &guarded.file, options());
    assert_eq!(report.counts.repaired, damaged, "{summary}");
    assert!(std::fs::read(&guarded.file).unwrap() == expected, "not byte-identical\n{summary}");
    assert!(report.closed && report.doubtful.is_empty(), "{summary}");
}

/// The check of `pwrite`, with writes that go unannounced, must not hold.
fn untracked() {
    let (guarded, free) = (place(), place());
    Command::new(stories()).args(["--story", "pwrite"]).arg(&free.file).status().unwrap();
    let mut options = options();
    options.environment = vec![("HOLDFAST_GUARD_UNTRACKED".to_owned(), "1".to_owned())];
    let (summary, report) = run("pwrite", &guarded.file, options);
    let same = std::fs::read(&guarded.file).unwrap() == std::fs::read(&free.file).unwrap();
    assert!(!same || !is_good(&summary, &report), "nobody noticed\n{summary}");
    assert!(report.counts.corrupt > 0, "writes looked like damage\n{summary}");
}

fn sync() {
    let place = place();
    let mut slow = options();
    slow.period = Duration::from_secs(60);
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("sync", &file, slow));
    // Long before the first pass, both pages are covered: the side file knows their sums.
    wait_until(|| {
        let seen = std::fs::read(&place.file).unwrap();
        seen[5 * PAGE] == 5 && seen[9 * PAGE] == 6
    });
    std::thread::sleep(Duration::from_millis(100));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(is_good(&summary, &report), "{summary}");
    assert_eq!(report.covered_on_sync, 2, "{summary}");
    assert!(report.counts.covered >= 2);
}

/// Gives up what hangs; a busy machine may take long.
pub(crate) fn wait_until(is: impl FnMut() -> bool) -> bool {
    wait_at_most(Duration::from_secs(120), is)
}

pub(crate) fn wait_at_most(most: Duration, mut is: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < most {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Waits for the pass after the last store, however late it comes: what rots before that is taken
/// for content.
pub(crate) fn all_covered(file: &Path) {
    // What others were told a moment ago is told again.
    std::thread::sleep(Duration::from_millis(150));
    let key = desk::key_of(file).unwrap();
    let covered = wait_until(|| {
        let told = desk::ask(key, TEXT_MAX, Duration::from_secs(1));
        let live = told.and_then(|(_, words)| Live::parse(&words));
        live.is_some_and(|live| live.coverage.without_sum == 0 && live.coverage.without_parity == 0)
    });
    assert!(covered, "what was stored is never covered");
}

pub(crate) fn is_root() -> bool {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() == 0 }
}

/// Whether the guard can tell this test, which does the damage, from a stranger. Otherwise it
/// takes the damage for a stranger's write, as it should.
pub(crate) fn tells_who() -> bool {
    let root = is_root();
    if !root {
        println!("  skipped: needs the right to ask the kernel who wrote");
    }
    root
}

fn in_use() {
    comes_back("wait", &[1, 102, 301, 500]);
}

/// What rots behind a program that has stored what it will, and waits, is given back before it goes
/// on. Nothing is told where nobody says who wrote.
pub(crate) fn comes_back(story: &str, rotten: &[usize]) -> Option<(Summary, FileReport)> {
    if !tells_who() {
        return None;
    }
    let place = place();
    let guard = background(story, &place.file);
    wait_for(&place.file, "ready");
    all_covered(&place.file);
    let expected = std::fs::read(&place.file).unwrap();
    rotten.iter().for_each(|page| rot(&place.file, *page));
    let again = wait_until(|| std::fs::read(&place.file).unwrap() == expected);
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(again, "it was not repaired while the program ran\n{summary}");
    let pages = rotten.len() as u64;
    assert_eq!((report.counts.corrupt, report.counts.repaired), (pages, pages), "{summary}");
    assert!(is_good(&summary, &report), "{summary}");
    Some((summary, report))
}

fn stranger() {
    let place = place();
    let guard = background("wait", &place.file);
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_millis(100));
    let path = place.file.display();
    let dd = format!("printf stranger | dd of={path} bs=1 seek=1000000 conv=notrunc 2>/dev/null");
    assert!(Command::new("sh").arg("-c").arg(dd).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(300));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    let seen = std::fs::read(&place.file).unwrap();
    assert_eq!(&seen[1_000_000..1_000_008], b"stranger", "{summary}");
    assert!(!report.contested.is_empty() && report.counts.repaired == 0, "{summary}");
    assert_eq!(report.doubtful.len(), 1, "{summary}");
}

/// The guard has to look while the child is there, which a busy machine may keep it from.
fn bare_clone() {
    let noticed = (0..4).any(|_| {
        let place = place();
        let (summary, report) = run("clone", &place.file, options());
        let seen = std::fs::read(&place.file).unwrap();
        assert!(seen[250 * PAGE..].starts_with(b"a child of nobody"), "taken back\n{summary}");
        assert_eq!(report.counts.repaired, 0, "{summary}");
        !report.contested.is_empty()
    });
    assert!(noticed, "nobody ever notices the child");
}

fn short_clone() {
    for story in ["short clone", "short fork"] {
        let place = place();
        let (summary, report) = run(story, &place.file, options());
        let seen = std::fs::read(&place.file).unwrap();
        assert!(seen[250 * PAGE..].starts_with(b"a child of nobody"), "taken back\n{summary}");
        assert_eq!((report.counts.repaired, report.counts.corrupt), (0, 0), "{summary}");
    }
}

/// Writes that nobody sees: noticed by what makes them possible, or by that it was there.
fn ring(story: &'static str) {
    let place = place();
    let guard = background(story, &place.file);
    wait_for(&place.file, "ready");
    // Damage that could be undone, were there no ring.
    rot(&place.file, 500);
    let rotten = std::fs::read(&place.file).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    if summary.status.code() == Some(77) {
        println!("  skipped: no rings here");
        return;
    }
    assert!(std::fs::read(&place.file).unwrap() == rotten, "{summary}");
    assert!(!report.contested.is_empty() && report.counts.repaired == 0, "{summary}");
    assert!(summary.not_observed.iter().any(|what| what.contains("io_uring")), "{summary}");
}

/// Refused to the program, and to the one it becomes.
fn strict() {
    for name in [stories(), "sh".into()] {
        let place = place();
        let again =
            format!("exec {} --story 'no ring' {}", stories().display(), place.file.display());
        let words: [OsString; 3] = match name == stories() {
            true => ["--story".into(), "no ring".into(), place.file.clone().into()],
            false => ["-c".into(), again.into(), "sh".into()],
        };
        let options = Options { strict: true, ..options() };
        let summary = Guard::launch(name.as_os_str(), &words, options).unwrap().run().unwrap();
        assert!(summary.status.success(), "{summary}");
        let report = summary.files.first().unwrap();
        assert!(is_good(&summary, report) && report.counts.covered > 0, "{summary}");
    }
}

/// A program that writes without the C library, at the same time as with it: this test, which has
/// such calls in it.
pub(crate) fn mixed(file: &Path) {
    let open = OpenOptions::new().read(true).write(true).open(file).unwrap();
    mark(file, "ready");
    let mut round = 0_u64;
    while !beside(file, "go").exists() {
        open.write_all_at(&round.to_le_bytes(), (round % 50) * PAGE as u64).unwrap();
        if round == 500 {
            // The C library is not asked.
            let at = 1_000_000;
            assert_eq!(rustix::io::pwrite(&open, b"by itself", at).unwrap(), 9);
            mark(file, "written");
        }
        round += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn own_calls() {
    let place = place();
    let me = std::env::current_exe().unwrap();
    let guard = launch_of(&me, "mixed", &place.file, options());
    let guard = std::thread::spawn(move || guard.run().unwrap());
    wait_for(&place.file, "written");
    std::thread::sleep(Duration::from_millis(500));
    mark(&place.file, "go");
    let summary = guard.join().unwrap();
    let report = summary.files.first().unwrap();
    let seen = std::fs::read(&place.file).unwrap();
    assert_eq!(&seen[1_000_000..1_000_009], b"by itself", "taken back\n{summary}");
    assert_eq!((report.counts.repaired, report.counts.corrupt), (0, 0), "{summary}");
    assert!(report.doubted.iter().any(|why| why.contains("of its own")), "{summary}");
    assert_eq!(report.doubtful.len(), 1, "{summary}");
}

/// A stranger that comes and goes between two looks, while the program writes all the time.
fn nameless() {
    for hears in [Hears::Everybody, Hears::Ourselves, Hears::Nobody] {
        let place = place();
        let guard = launch("busy", &place.file, Options { hears, ..options() });
        let guard = std::thread::spawn(move || guard.run().unwrap());
        wait_for(&place.file, "ready");
        std::thread::sleep(Duration::from_millis(100));
        let path = place.file.display();
        let dd =
            format!("printf stranger | dd of={path} bs=1 seek=1000000 conv=notrunc 2>/dev/null");
        assert!(Command::new("sh").arg("-c").arg(dd).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(400));
        mark(&place.file, "go");
        let summary = guard.join().unwrap();
        let report = summary.files.first().unwrap();
        let seen = std::fs::read(&place.file).unwrap();
        assert_eq!(&seen[1_000_000..1_000_008], b"stranger", "{hears:?} {summary}");
        assert_eq!((report.counts.repaired, report.counts.corrupt), (0, 0), "{hears:?} {summary}");
        let said = if hears == Hears::Everybody { &report.contested } else { &report.doubted };
        assert!(!said.is_empty() || !report.contested.is_empty(), "{hears:?} {summary}");
        assert_eq!(report.doubtful.len(), 1, "{hears:?} {summary}");
    }
}

/// When nothing was heard for long enough cannot be asked, so a busy machine may need a few runs.
fn quiet_again() {
    assert!((0..3).any(|_| quiet()), "it is never repaired");
}

/// The injector is this process, which the guard takes for itself: so it is rot to it. Whether that
/// was repaired; whatever the program wrote stays in any case.
fn quiet() -> bool {
    const ROTTEN: [usize; 4] = [1, 102, 301, 500];
    let place = place();
    let hears = Hears::Ourselves;
    let guard = launch("wait", &place.file, Options { hears, ..options() });
    let guard = std::thread::spawn(move || guard.run().unwrap());
    wait_for(&place.file, "ready");
    all_covered(&place.file);
    // The looks at which nothing is heard, and the pass that settles it.
    std::thread::sleep(Duration::from_millis(800));
    let mut expected = std::fs::read(&place.file).unwrap();
    ROTTEN.iter().for_each(|page| rot(&place.file, *page));
    let rotten = std::fs::read(&place.file).unwrap();
    let is_back = || std::fs::read(&place.file).unwrap() == expected;
    let again = wait_at_most(Duration::from_secs(20), is_back);
    mark(&place.file, "go");
    let summary = guard.join().unwrap();
    let report = summary.files.first().unwrap();
    expected[400 * PAGE..][..14].copy_from_slice(b"the last words");
    expected[401 * PAGE..][..7].copy_from_slice(b"written");
    let found = std::fs::read(&place.file).unwrap();
    for page in 0..PAGES {
        let [found, expected, rotten] =
            [&found, &expected, &rotten].map(|bytes| &bytes[page * PAGE..][..PAGE]);
        let stays = found == expected || ROTTEN.contains(&page) && found == rotten;
        assert!(stays, "page {page} was written by the program, and taken back\n{summary}");
    }
    assert!(report.closed && report.contested.is_empty(), "{summary}");
    if again {
        assert_eq!(report.counts.repaired, 4, "{summary}");
        assert!(!report.doubted.is_empty() && report.doubtful.is_empty(), "{summary}");
    }
    again
}

/// Has a supervisor of its own process make drills.
pub(crate) const DRILLS: &str = "HOLDFAST_GUARD_DRILLS";

/// The supervisor as a process of its own.
pub(crate) fn guard(story: &str, file: &Path) {
    let mut options = options();
    options.only_guards = true;
    if story == "hides" {
        options.release = Duration::from_millis(100);
    }
    if std::env::var_os(DRILLS).is_some() {
        options.drill = Some(Drill { pages: 6, seed: 5 });
    }
    if let Ok(millis) = std::env::var("HOLDFAST_GUARD_IMPATIENT") {
        options.patience = Duration::from_millis(millis.parse().unwrap());
    }
    let summary = launch(story, file, options).run().unwrap();
    println!("{summary}");
}

/// The program goes on without its supervisor; what it writes then is never taken for damage.
fn orphaned() {
    let place = place();
    let me = std::env::current_exe().unwrap();
    let mut guard = Command::new(me).args(["--guard", "wait"]).arg(&place.file).spawn().unwrap();
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_millis(100));
    guard.kill().unwrap();
    guard.wait().unwrap();
    let before = std::fs::read(&place.file).unwrap();
    mark(&place.file, "go");
    wait_for(&place.file, "gone");
    let after = std::fs::read(&place.file).unwrap();
    assert!(before != after, "it went on writing");
    let (summary, report) = run("touch", &place.file, options());
    assert!(std::fs::read(&place.file).unwrap() == after, "taken back\n{summary}");
    assert_eq!(report.counts.corrupt, 0, "{summary}");
    assert!(!report.doubtful.is_empty() && report.counts.repaired == 0, "{summary}");
}

fn twice() {
    let place = place();
    let guard = background("wait", &place.file);
    wait_for(&place.file, "ready");
    // A process of its own: this one would wait for the child of the other.
    let me = std::env::current_exe().unwrap();
    let other = Command::new(me).args(["--guard", "touch"]).arg(&place.file).output().unwrap();
    let other = String::from_utf8(other.stdout).unwrap();
    assert!(other.contains("data.bin: not guarded") && !other.contains("pages"), "{other}");
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    assert!(report.closed && report.errors.is_empty(), "{summary}");
}

/// The program stores and writes all the time; pages it writes to, pages beside them, and pages far
/// from them are damaged all the time. What it wrote must be there, but for bytes that rotted.
fn storm() {
    if !tells_who() {
        return;
    }
    let place = place();
    std::fs::write(beside(&place.file, "oracle"), content()).unwrap();
    let guard = background("storm", &place.file);
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    let mut far = 0;
    let mut page = 3;
    while started.elapsed() < Duration::from_secs(4) {
        page = (page + 4 * 37) % PAGES;
        let cold = PAGES / 2 + 4 + page % (PAGES / 2 - 8);
        rot(&place.file, page / 4 * 4 + 3);
        rot(&place.file, (page * 7 + 2) % (PAGES / 2));
        if is_whole(&place.file, cold / 4 * 4) {
            rot(&place.file, cold / 4 * 4);
            far += 1;
        }
        std::thread::sleep(Duration::from_millis(7));
    }
    std::thread::sleep(Duration::from_millis(200));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    let (seen, noted) = (
        std::fs::read(&place.file).unwrap(),
        std::fs::read(beside(&place.file, "oracle")).unwrap(),
    );
    let same = |page: usize| {
        let (seen, noted) = (&seen[page * PAGE..][..PAGE], &noted[page * PAGE..][..PAGE]);
        seen[..ROT.start] == noted[..ROT.start] && seen[ROT.end..] == noted[ROT.end..]
    };
    let reverted: Vec<usize> = (0..PAGES).filter(|page| is_hot(*page) && !same(*page)).collect();
    assert_eq!(reverted, [0_usize; 0], "written by the program, and taken back\n{summary}");
    assert!(far > 10 && report.counts.repaired > 10, "{far}\n{summary}");
    assert!(report.contested.is_empty() && report.doubtful.is_empty(), "{summary}");
    assert!(report.seen.stored > 0 && report.seen.written > 0, "{summary}");
    println!("  storm: {} repaired, {} lost", report.counts.repaired, report.lost);
}

/// As [`storm`], but the supervisor itself does the damage, so nothing at all may be missing. A
/// program that does not stand in time is left alone for a while, which a busy machine may cause.
fn drills() {
    let drilled = [1, 2, 4, 8, 16, 32].into_iter().any(drills_for);
    assert!(drilled, "nothing is ever drilled");
}

/// For so many seconds; whether anything was damaged.
fn drills_for(seconds: u64) -> bool {
    let place = place();
    std::fs::write(beside(&place.file, "oracle"), content()).unwrap();
    let mut options = options();
    options.drill = Some(Drill { pages: 6, seed: 5 });
    let file = place.file.clone();
    let guard = std::thread::spawn(move || run("storm", &file, options));
    wait_for(&place.file, "ready");
    std::thread::sleep(Duration::from_secs(seconds));
    mark(&place.file, "go");
    let (summary, report) = guard.join().unwrap();
    let noted = std::fs::read(beside(&place.file, "oracle")).unwrap();
    assert!(std::fs::read(&place.file).unwrap() == noted, "not what it wrote\n{summary}");
    let drilled = &report.drilled;
    let same = [drilled.given_back, report.counts.corrupt, report.counts.repaired];
    assert_eq!(same, [drilled.pages; 3], "{summary}");
    assert!(is_good(&summary, &report) && report.repaired() == 0, "{summary}");
    let beside = std::fs::read_dir(place.file.parent().unwrap()).unwrap();
    let left = beside.flatten().filter(|it| it.file_name().to_str().unwrap().contains("drill"));
    assert_eq!(left.count(), 0, "a copy of a page that came back stays beside");
    println!("  {} pages in {} rounds, {} put off", drilled.pages, drilled.rounds, drilled.put_off);
    drilled.pages > 0 && drilled.rounds > 0
}

/// Whether a stripe is what it was at the beginning.
fn is_whole(file: &Path, first: usize) -> bool {
    let mut seen = vec![0; 4 * PAGE];
    let open = File::open(file).unwrap();
    open.read_exact_at(&mut seen, (first * PAGE) as u64).unwrap();
    seen == content()[first * PAGE..][..4 * PAGE]
}

fn refused() {
    let place = place();
    let name = place.file.as_os_str();
    let error = Guard::launch(name, &[], options()).unwrap_err();
    assert!(error.to_string().contains("not executable"), "{error}");
    let mut nowhere = options();
    nowhere.preload = "/nowhere".into();
    let error = Guard::launch("true".as_ref(), &[], nowhere).unwrap_err();
    assert!(error.to_string().contains("/nowhere"), "{error}");
    assert!(!side_of(&place.file).exists());
    // What nobody asked for is left alone.
    let mut none = options();
    none.globs.clear();
    let summary = launch("store", &place.file, none).run().unwrap();
    assert!(summary.files.is_empty() && summary.spaces == 1, "{summary}");
}
