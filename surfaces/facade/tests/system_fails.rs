//! Every call that the system may refuse is refused in its turn, once, and then with all that
//! follow: whatever a pool or a protected file was asked for ends, nothing acknowledged is lost, no
//! file is left that is in the way, and the next opening, with calls that succeed, finds all well.
//!
//! One test in a program of its own: calls are counted for the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast::protect::{
    KeptRegion, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, side_path,
};
use holdfast::{Observer, Options, Persist, Pool, Protect, Ptr, ScrubOptions, Transaction};
use holdfast_pmem::inject::{Fails, fail_call, fail_no_call};

const PAGE: u64 = 4096;
/// Pages of the files that are protected, and the one that rots.
const PAGES: u64 = 24;
const ROTTEN: u64 = 5;
/// Calls of one deed at most: more means that it never ends.
const MOST: u64 = 3_000;
/// Longest time one run may take: the same without refusals takes milliseconds.
/// It finds what never ends; a disk may keep one that does for long.
const SLOW: Duration = Duration::from_secs(300);
/// Bytes of the pools, before and after growth.
const SIZES: [u64; 2] = [4 << 20, 8 << 20];

/// What is asked for while calls are refused, and what was acknowledged of it.
type Act = fn(&Here) -> Result<(), holdfast::Error>;

/// One deed.
struct Deed {
    name: &'static str,
    before: fn(&Here),
    act: Act,
    /// Judges what is left, with calls that succeed; told whether it was answered success.
    after: fn(&Here, bool),
}

/// Where it is done.
struct Here {
    folder: tempfile::TempDir,
    /// Numbers that were acknowledged to be in the pool: the last one.
    acknowledged: AtomicU64,
    /// Whether a call was refused.
    refused: AtomicBool,
}

#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
struct Count {
    number: u64,
}

impl Here {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            acknowledged: AtomicU64::new(0),
            refused: AtomicBool::new(false),
        }
    }

    fn pool(&self) -> PathBuf {
        self.folder.path().join("a.pool")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data.bin")
    }

    /// No other files are there.
    fn has_only(&self, known: &[PathBuf]) {
        let found = fs::read_dir(self.folder.path()).unwrap();
        let found: BTreeSet<PathBuf> = found.map(|one| one.unwrap().path()).collect();
        let strange: Vec<_> = found.iter().filter(|path| !known.contains(path)).collect();
        assert!(strange.is_empty(), "left over: {strange:?}");
    }
}

// Pools.

fn options() -> Options {
    Pool::options().size(SIZES[0]).frame(4096).chunk(8192).rows(8).lanes(4)
}

fn with_a_pool(here: &Here) {
    let pool = options().create(here.pool()).unwrap();
    pool.run(|tx| {
        let count = tx.alloc(Count { number: 7 })?;
        tx.set_root(count)
    })
    .unwrap();
    here.acknowledged.store(7, Ordering::SeqCst);
    pool.close();
}

/// As with a process that was killed: what is there was not closed.
fn with_a_pool_that_was_not_closed(here: &Here) {
    with_a_pool(here);
    let pool = options().open(here.pool()).unwrap();
    count_on(here, &pool).unwrap();
    let (from, to) = (here.pool(), here.folder.path().join("copy"));
    fs::copy(&from, &to).unwrap();
    drop(pool);
    fs::rename(&to, &from).unwrap();
}

/// Counts one further, and notes that once it is acknowledged.
fn count_on(here: &Here, pool: &Pool) -> Result<(), holdfast::Error> {
    let count: Ptr<Count> = pool.root()?;
    let now = pool.run(|tx| {
        let mut count = tx.open_mut(count)?;
        count.number += 1;
        Ok(count.number)
    })?;
    here.acknowledged.store(now, Ordering::SeqCst);
    Ok(())
}

fn open_and_count(here: &Here, options: &Options) -> Result<(), holdfast::Error> {
    let pool = options.open(here.pool())?;
    for _ in 0..3 {
        count_on(here, &pool)?;
    }
    pool.close();
    Ok(())
}

/// The pool is whole, has what was acknowledged, and perhaps one more, and can be used.
fn pool_is_well(here: &Here, _: bool) {
    here.has_only(&[here.pool()]);
    let pool = options().open(here.pool()).unwrap();
    let count: Ptr<Count> = pool.root().unwrap();
    let number = pool.read(count).unwrap().number;
    let acknowledged = here.acknowledged.load(Ordering::SeqCst);
    assert!((acknowledged..=acknowledged + 1).contains(&number), "{number} of {acknowledged}");
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    count_on(here, &pool).unwrap();
    pool.close();
    let pool = options().open(here.pool()).unwrap();
    assert!(pool.opened().clean);
}

const POOLS: [Deed; 7] = [
    Deed {
        name: "create a pool",
        before: |_| {},
        act: |here| {
            options().create(here.pool())?.close();
            Ok(())
        },
        after: |here, done| {
            assert_eq!(here.pool().exists(), done, "there and not, or half made");
            here.has_only(&[here.pool()]);
            if !done {
                options().create(here.pool()).unwrap().close();
            }
            let report = options().open(here.pool()).unwrap().check(|_, _| {}).unwrap();
            assert!(report.is_clean(), "{report:?}");
        },
    },
    Deed {
        name: "open a pool and commit",
        before: with_a_pool,
        act: |here| open_and_count(here, &options()),
        after: pool_is_well,
    },
    Deed {
        name: "open a pool that was not closed",
        before: with_a_pool_that_was_not_closed,
        act: |here| open_and_count(here, &options()),
        after: pool_is_well,
    },
    Deed {
        name: "commit behind a mapping that is closed in between",
        before: with_a_pool,
        act: |here| open_and_count(here, &options().protection(Protect::Mprotect)),
        after: pool_is_well,
    },
    Deed {
        name: "scrub a pool, check it, and look at it from beside",
        before: with_a_pool,
        act: |here| {
            let pool = options().open(here.pool())?;
            let scrubbed = pool.scrub(ScrubOptions::default(), |_, _| {})?;
            assert_eq!((scrubbed.repaired, scrubbed.lost), (0, 0), "nothing is damaged");
            let report = pool.check(|_, _| {})?;
            assert!(report.is_clean(), "{report:?}");
            let regions = Observer::open(here.pool())?.regions()?;
            assert_eq!(regions, pool.regions());
            pool.close();
            Ok(())
        },
        after: pool_is_well,
    },
    Deed {
        name: "grow a pool",
        before: with_a_pool,
        act: |here| {
            let pool = options().open(here.pool())?;
            let grown = pool.grow(SIZES[1]);
            // Grown or not, it goes on, unless it says that nothing is written any more.
            let counted = count_on(here, &pool);
            assert!(grown.is_err() || counted.is_err() || pool.superblock().size == SIZES[1]);
            pool.close();
            grown.and(counted)
        },
        after: |here, done| {
            pool_is_well(here, done);
            let pool = options().open(here.pool()).unwrap();
            assert!(SIZES.contains(&pool.superblock().size));
            pool.grow(SIZES[1] * 2).unwrap();
        },
    },
    Deed {
        name: "remove a pool",
        before: with_a_pool,
        act: |here| Pool::remove(here.pool()),
        after: |here, done| {
            assert_ne!(here.pool().exists(), done);
            if !done {
                pool_is_well(here, false);
            }
        },
    },
];

// Protected files.

fn content() -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

fn keep() -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_secs(3_600))
}

fn with_a_file(here: &Here) {
    fs::write(here.data(), content()).unwrap();
}

fn with_a_protected_file(here: &Here) {
    with_a_file(here);
    ProtectedFile::protect(here.data(), &keep()).unwrap().close().unwrap();
}

fn by_pool(here: &Here) -> ProtectOptions {
    keep().pool(here.pool())
}

fn rotten() -> Vec<u8> {
    let mut bytes = content();
    let at = (ROTTEN * PAGE + 99) as usize;
    bytes[at..at + 3].copy_from_slice(b"rot");
    bytes
}

/// As rot would: nobody sees it in the file's times.
fn with_a_rotten_file(here: &Here) {
    with_a_protected_file(here);
    let file = File::options().read(true).write(true).open(here.data()).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"rot", ROTTEN * PAGE + 99).unwrap();
    file.set_modified(before).unwrap();
}

/// Nothing but the file and its side file is there, and that is protected and clean once what is
/// in doubt was looked through.
fn file_is_well(here: &Here, expected: &[u8]) {
    let side = side_path(&here.data());
    here.has_only(&[here.data(), side]);
    assert!(fs::read(here.data()).unwrap() == expected, "the file changed");
    let file = ProtectedFile::open(here.data(), &keep()).unwrap();
    let found = file.verify(|_, _| true).unwrap();
    assert_eq!(found.corrupt, [] as [u64; 0], "what nobody damaged is called damaged");
    file.accept().unwrap();
    let done = file.repair(false, |_, _| true).unwrap();
    assert!(done.lost.is_empty() && done.busy.is_empty(), "{done:?}");
    assert!(file.verify(|_, _| true).unwrap().is_clean());
    file.close().unwrap();
    assert!(fs::read(here.data()).unwrap() == expected, "the file was changed");
}

/// Stores to a mapped file, and has it covered.
fn store(here: &Here, tracking: Tracking) -> Result<(), holdfast::Error> {
    let file = ProtectedMap::open(here.data(), &keep().tracking(tracking))?;
    file.write(3 * PAGE + 10, b"stored")?;
    file.write(17 * PAGE, b"more")?;
    file.update_now()?;
    here.acknowledged.store(1, Ordering::SeqCst);
    file.sync()?;
    file.scrub()?;
    file.close()
}

/// What was stored is there, or the first of it, or nothing; nothing else is.
fn stored_or_not(here: &Here, done: bool) {
    let now = fs::read(here.data()).unwrap();
    let mut versions = vec![content()];
    for (at, bytes) in [(3 * PAGE + 10, &b"stored"[..]), (17 * PAGE, &b"more"[..])] {
        let mut next = versions.last().unwrap().clone();
        next[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        versions.push(next);
    }
    let all = here.acknowledged.load(Ordering::SeqCst) == 1;
    let last = versions.last().unwrap();
    assert!(now == *last || !all && versions.contains(&now), "bytes that nobody stored");
    // Where the system would not say what was stored to, what differs is in doubt.
    if done && !here.refused.load(Ordering::SeqCst) {
        let file = ProtectedFile::look(here.data(), &keep()).unwrap();
        assert!(file.verify(|_, _| true).unwrap().is_clean(), "it was closed, and is in doubt");
    }
    file_is_well(here, &now);
}

const FILES: [Deed; 10] = [
    Deed {
        name: "protect a file",
        before: with_a_file,
        act: |here| ProtectedFile::protect(here.data(), &keep())?.close(),
        after: |here, done| {
            let side = side_path(&here.data());
            here.has_only(&[here.data(), side.clone()]);
            assert!(side.exists() || !done);
            if !side.exists() {
                ProtectedFile::protect(here.data(), &keep()).unwrap().close().unwrap();
            }
            file_is_well(here, &content());
        },
    },
    Deed {
        name: "open a protected file",
        before: with_a_protected_file,
        act: |here| {
            let file = ProtectedFile::open(here.data(), &keep())?;
            let found = file.verify(|_, _| true)?;
            assert!(found.corrupt.is_empty(), "{found:?}");
            file.close()
        },
        after: |here, _| file_is_well(here, &content()),
    },
    Deed {
        name: "look at a protected file",
        before: with_a_rotten_file,
        act: |here| {
            let found = ProtectedFile::look(here.data(), &keep())?.verify(|_, _| true)?;
            assert_eq!(found.corrupt, [ROTTEN], "{found:?}");
            Ok(())
        },
        after: |here, _| {
            let found = ProtectedFile::look(here.data(), &keep()).unwrap();
            assert_eq!(found.verify(|_, _| true).unwrap().corrupt, [ROTTEN], "looking changed it");
        },
    },
    Deed {
        name: "take a file for right as it has become",
        before: with_a_rotten_file,
        act: |here| {
            let file = ProtectedFile::open(here.data(), &keep())?;
            file.accept()?;
            file.close()
        },
        after: |here, done| {
            let now = fs::read(here.data()).unwrap();
            assert!(now == rotten(), "the file was changed");
            let file = ProtectedFile::open(here.data(), &keep()).unwrap();
            let found = file.verify(|_, _| true).unwrap();
            assert!(!done || found.is_clean(), "accepted, and {found:?}");
            assert!(found.corrupt.iter().all(|page| *page == ROTTEN), "{found:?}");
            file.accept().unwrap();
            file.close().unwrap();
            file_is_well(here, &now);
        },
    },
    Deed {
        name: "protect a file by a pool",
        before: |here| {
            with_a_pool(here);
            with_a_file(here);
        },
        act: |here| ProtectedFile::protect(here.data(), &by_pool(here))?.close(),
        after: |here, done| {
            match ProtectedFile::open(here.data(), &by_pool(here)) {
                Ok(file) => {
                    assert!(file.verify(|_, _| true).unwrap().is_clean());
                    file.unprotect().unwrap();
                }
                Err(error) => assert!(!done, "{error}"),
            }
            // What is nobody's in the pool, because it was cut off, is swept.
            KeptRegion::sweep(&here.pool(), &[]).unwrap();
            let file = ProtectedFile::protect(here.data(), &by_pool(here)).unwrap();
            assert!(file.verify(|_, _| true).unwrap().is_clean());
            file.unprotect().unwrap();
            assert!(fs::read(here.data()).unwrap() == content(), "the file changed");
            fs::remove_file(here.data()).unwrap();
            pool_is_well(here, done);
        },
    },
    Deed {
        name: "repair a file",
        before: with_a_rotten_file,
        act: |here| {
            let file = ProtectedFile::open(here.data(), &keep())?;
            let done = file.repair(false, |_, _| true)?;
            let whole = fs::read(here.data()).unwrap() == content();
            assert!(whole || done.repaired.is_empty(), "it says that it was repaired");
            file.close()
        },
        after: |here, _| {
            let rotten = fs::read(here.data()).unwrap() != content();
            let file = ProtectedFile::open(here.data(), &keep()).unwrap();
            let found = file.verify(|_, _| true).unwrap();
            assert_eq!(found.is_clean(), !rotten, "{found:?}");
            // In doubt, if the repair was cut off: the one that was told is the one that rots.
            assert!(found.corrupt.iter().all(|page| *page == ROTTEN), "{found:?}");
            file.repair(true, |_, _| true).unwrap();
            file.close().unwrap();
            file_is_well(here, &content());
        },
    },
    Deed {
        name: "end the protection of a file",
        before: with_a_protected_file,
        act: |here| ProtectedFile::open(here.data(), &keep())?.unprotect(),
        after: |here, done| {
            let side = side_path(&here.data());
            assert!(!done || !side.exists(), "it is ended, and its side file is there");
            if side.exists() {
                // It goes on, or it is over and only the name is still there.
                match ProtectedFile::open(here.data(), &keep()) {
                    Ok(file) => {
                        drop(file);
                        file_is_well(here, &content());
                        ProtectedFile::open(here.data(), &keep()).unwrap().unprotect().unwrap();
                    }
                    Err(error) => assert!(error.to_string().contains("was ended"), "{error}"),
                }
            }
            // What could not be removed goes with the next one that is made.
            ProtectedFile::protect(here.data(), &keep()).unwrap().close().unwrap();
            file_is_well(here, &content());
        },
    },
    Deed {
        name: "store to a mapped file",
        before: with_a_protected_file,
        act: |here| store(here, Tracking::Auto),
        after: stored_or_not,
    },
    Deed {
        name: "store to a mapped file, on record",
        before: with_a_protected_file,
        act: |here| store(here, Tracking::Recorded),
        after: stored_or_not,
    },
    Deed {
        name: "make a mapped file longer",
        before: with_a_protected_file,
        act: |here| {
            let file = ProtectedMap::open(here.data(), &keep())?;
            file.grow((PAGES + 9) * PAGE)?;
            file.write((PAGES + 8) * PAGE, &[0; 9])?;
            file.close()
        },
        after: |here, done| {
            let now = fs::read(here.data()).unwrap();
            let (old, new) = now.split_at((PAGES * PAGE) as usize);
            assert!(old == content() && new.iter().all(|byte| *byte == 0));
            assert!(!done || now.len() as u64 == (PAGES + 9) * PAGE);
            file_is_well(here, &now);
        },
    },
];

/// The deed, what is planted, and how.
type Lie = (&'static str, &'static str, fn(&Here));

/// What is planted after a deed that was done, and has to be seen by who judges it; told that it
/// was done.
const LIES: [Lie; 8] = [
    ("open a pool and commit", "a commit that is not there", |here| {
        here.acknowledged.fetch_add(1, Ordering::SeqCst);
    }),
    ("open a pool and commit", "one commit too many", |here| {
        here.acknowledged.fetch_sub(2, Ordering::SeqCst);
    }),
    ("open a pool that was not closed", "a file that is left over", |here| {
        fs::write(here.folder.path().join("a.pool.new"), b"half").unwrap();
    }),
    ("grow a pool", "a pool that was cut short", |here| {
        File::options().write(true).open(here.pool()).unwrap().set_len(SIZES[0]).unwrap();
    }),
    ("create a pool", "a pool that is gone", |here| fs::remove_file(here.pool()).unwrap()),
    ("remove a pool", "a pool that is still there", with_a_pool),
    ("store to a mapped file", "a byte that nobody stored", |here| {
        let file = File::options().write(true).open(here.data()).unwrap();
        file.write_all_at(&[!content()[99]], 99).unwrap();
    }),
    ("end the protection of a file", "a side file that is still there", |here| {
        ProtectedFile::protect(here.data(), &keep()).unwrap().close().unwrap();
    }),
];

/// Of what is planted, what nobody sees.
fn unseen() -> Vec<String> {
    let all = || POOLS.iter().chain(&FILES);
    let is_unseen = |(name, lie, plant): &Lie| {
        let deed = all().find(|deed| deed.name == *name).expect("there is such a deed");
        let judged = |plant: Option<&fn(&Here)>| {
            let here = Here::new();
            (deed.before)(&here);
            (deed.act)(&here).unwrap();
            if let Some(plant) = plant {
                plant(&here);
            }
            catch_unwind(AssertUnwindSafe(|| (deed.after)(&here, true))).is_ok()
        };
        assert!(judged(None), "{name}: it is convicted of nothing");
        judged(Some(plant)).then(|| format!("{name}: {lie}"))
    };
    LIES.iter().filter_map(is_unseen).collect()
}

/// When the run under way began.
static BEGUN: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Ends the program if a run hangs: nothing else could tell which.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if let Some((begun, what)) = &*BEGUN.lock().unwrap()
                && begun.elapsed() > SLOW
            {
                eprintln!("hangs: {what}");
                std::process::abort();
            }
        }
    });
}

/// Which calls are refused: all of them take minutes, and `HOLDFAST_ALL=1` asks for that, as
/// `cargo xtask refused` does. Else one in so many, which ones `HOLDFAST_SEED` decides, and the
/// first in any case: some deeds have few.
fn turns() -> impl Iterator<Item = u64> {
    let step = if std::env::var_os("HOLDFAST_ALL").is_some() { 1 } else { 9 };
    let seed = std::env::var("HOLDFAST_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    let first = 1 + seed % step;
    std::iter::once(1).filter(move |one| *one < first).chain((first..MOST).step_by(step as usize))
}

/// Runs a deed with every call refused in its turn. Answers runs, and those that answered success
/// although a call was refused.
fn play(deed: &Deed, fails: Fails, wrong: &mut Vec<String>) -> (u64, u64) {
    let (mut runs, mut absorbed) = (0, 0);
    for nth in turns() {
        let here = Here::new();
        (deed.before)(&here);
        let what = format!("{}, call {nth} refused ({fails:?})", deed.name);
        *BEGUN.lock().unwrap() = Some((Instant::now(), what.clone()));
        fail_call(nth, fails);
        let answer = catch_unwind(AssertUnwindSafe(|| (deed.act)(&here)));
        let asked = fail_no_call();
        let told = match &answer {
            Ok(Ok(())) => "success".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic".to_owned(),
        };
        let what = format!("{what}: {}, answered {told}", asked.refused.unwrap_or("none"));
        let done = match answer {
            Ok(done) => done.is_ok(),
            Err(_) => {
                wrong.push(what);
                continue;
            }
        };
        here.refused.store(asked.refused.is_some(), Ordering::SeqCst);
        let judged = catch_unwind(AssertUnwindSafe(|| (deed.after)(&here, done)));
        if judged.is_err() {
            wrong.push(what.clone());
        }
        *BEGUN.lock().unwrap() = None;
        if asked.refused.is_none() {
            assert!(done, "{what}");
            return (runs, absorbed);
        }
        runs += 1;
        absorbed += u64::from(done);
    }
    panic!("{} never ends", deed.name);
}

#[test]
fn whatever_the_system_refuses_nothing_is_lost_and_nothing_is_in_the_way() {
    let unseen = unseen();
    println!("{} planted, {} seen", LIES.len(), LIES.len() - unseen.len());
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
    watch();
    let mut wrong = Vec::new();
    for deed in POOLS.iter().chain(&FILES) {
        for fails in [Fails::Once, Fails::ForEver] {
            let begun = Instant::now();
            let (runs, absorbed) = play(deed, fails, &mut wrong);
            println!("{}, {fails:?}: {runs} calls, {absorbed} done without", deed.name);
            println!("    {:?}", begun.elapsed());
            assert!(runs > 0, "{}: no call was asked for", deed.name);
        }
    }
    wrong.iter().for_each(|what| println!("wrong: {}", what.replace('\n', " ")));
    assert!(wrong.is_empty(), "{} runs went wrong:\n{}", wrong.len(), wrong.join("\n"));
}
