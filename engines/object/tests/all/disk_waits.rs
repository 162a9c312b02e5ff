//! Commits on a file wait for its disk. Who meets one meanwhile loses neither what it has done nor
//! more time than it must, and whoever frees the log holds nobody up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{TestPool, create, create_with, get, pattern, put};
use holdfast_layout::RawPtr;
use holdfast_object::CreateOptions;
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

/// Longer than anybody waits who does not wait for a disk.
const LONG: Duration = Duration::from_millis(200);
/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A disk that takes its time: writes wait before it until it is let go.
#[derive(Default)]
struct SlowDisk {
    /// Whether a write is waiting, and whether none has to any more.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl SlowDisk {
    fn of(pool: &TestPool) -> Arc<Self> {
        let disk = Arc::new(Self::default());
        let hook = Arc::clone(&disk);
        pool.medium().on_step(Box::new(move |site| {
            if site.name() == "logs.group.writing" {
                let mut state = hook.state.lock().unwrap();
                state.0 = true;
                hook.changed.notify_all();
                drop(hook.changed.wait_while(state, |state| !state.1).unwrap());
            }
        }));
        disk
    }

    /// Returns once a write waits.
    fn is_written_to(&self) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| !state.0).unwrap();
        assert!(!waited.1.timed_out(), "nothing is written");
    }

    fn let_go(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// A pool whose log need not be freed for every few commits.
fn with_much_log() -> TestPool {
    let options = CreateOptions { log: 32 * 8192, ..CreateOptions::tiny(2 << 20) };
    create_with(MediumKind::File, &options)
}

fn overwrite(pool: &TestPool, objects: &[RawPtr], with: u8) {
    pool.run(|tx| objects.iter().try_for_each(|of| tx.write_bytes(*of, 0, &[with; 8]))).unwrap();
}

/// On a busy machine the commit may stand still behind the disk for longer than a reader waits: one
/// round in which it does not is enough. A reader that does not wait runs again in each.
#[test]
fn a_reader_waits_for_the_disk_and_is_not_run_again() {
    assert!(std::iter::repeat_with(runs_and_conflicts).take(5).any(|round| round == (1, 0)));
}

/// Of a reader that meets what a commit writes to the disk.
fn runs_and_conflicts() -> (usize, u64) {
    let pool = create(MediumKind::File);
    let [first, wanted] = [1, 2].map(|i| put(&pool, &pattern(i, 100)));
    let disk = SlowDisk::of(&pool);
    let runs = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| overwrite(&pool, &[wanted], 7));
        disk.is_written_to();
        let reader = scope.spawn(|| {
            let mut found = [0; 8];
            let read = pool.run(|tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                tx.read_bytes(first, 0, &mut found)?;
                tx.read_bytes(wanted, 0, &mut found)
            });
            read.unwrap();
            found
        });
        std::thread::sleep(LONG);
        disk.let_go();
        assert_eq!(reader.join().unwrap(), [7; 8]);
    });
    (runs.into_inner(), pool.stats().conflicts)
}

/// What it has read is about to change: it can start over while the disk writes.
#[test]
fn who_will_have_to_start_over_does_so_at_once() {
    let pool = create(MediumKind::File);
    let [first, second] = [1, 2].map(|i| put(&pool, &pattern(i, 100)));
    let disk = SlowDisk::of(&pool);
    let (runs, (begun, begins)) = (AtomicUsize::new(0), channel());
    std::thread::scope(|scope| {
        let (pool, disk, runs) = (&pool, &disk, &runs);
        // Overwrites both once it is told to.
        let (tell, told) = channel();
        scope.spawn(move || told.recv().map(|()| overwrite(pool, &[first, second], 7)));
        scope.spawn(move || {
            let mut found = [0; 8];
            let read = pool.run(|tx| {
                begun.send(runs.fetch_add(1, Ordering::Relaxed)).unwrap();
                tx.read_bytes(first, 0, &mut found)?;
                if runs.load(Ordering::Relaxed) == 1 {
                    tell.send(()).unwrap();
                    disk.is_written_to();
                }
                tx.read_bytes(second, 0, &mut found)
            });
            read.unwrap();
            assert_eq!(found, [7; 8]);
        });
        assert_eq!(begins.recv_timeout(LIMIT), Ok(0));
        let again = begins.recv_timeout(LIMIT);
        disk.let_go();
        assert_eq!(again, Ok(1), "it waits for nothing");
    });
    assert_eq!(runs.into_inner(), 2);
}

/// The sync of a reclaim takes as long as all that was changed takes to write. Whoever does it has
/// released what its own commit held.
#[test]
fn a_reclaim_holds_nobody_up() {
    let pool = with_much_log();
    let object = put(&pool, &pattern(1, 100));
    let (ask, asked) = channel();
    let (answer, answered) = channel();
    let in_time = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&in_time);
    pool.medium().on_barrier(Box::new(move |_, site, _| {
        if site.name() == "logs.group.synced" {
            ask.send(()).unwrap();
            let mut seen = seen.lock().unwrap();
            // An answer that comes too late is none to the next question.
            if seen.iter().all(|read| *read) {
                seen.push(answered.recv_timeout(LIMIT).is_ok());
            }
        }
    }));
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            while asked.recv().is_ok() {
                get(pool, object).unwrap();
                let _ = answer.send(());
            }
        });
        for i in 0..150 {
            overwrite(pool, &[object], i);
        }
        pool.medium().clear_on_barrier();
    });
    let in_time = in_time.lock().unwrap();
    assert!(in_time.len() >= 2, "the log was freed {} times", in_time.len());
    assert!(in_time.iter().all(|read| *read), "a reader waits for a reclaim: {in_time:?}");
}
