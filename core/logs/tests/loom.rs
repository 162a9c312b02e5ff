//! The rule that makes the watermark true, under every interleaving and every order of memory
//! that the model knows. Run it with
//! `RUSTFLAGS="--cfg loom" cargo test -p holdfast-logs --release --test loom`.
#![cfg(loom)]

use std::collections::BTreeSet;
use std::sync::Mutex;

use holdfast_logs::Numbers;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

/// A medium with nothing on it: numbers only ask it which sites are in force.
#[derive(Debug)]
struct Nothing {
    /// The site that is switched off.
    off: &'static str,
}

impl Medium for Nothing {
    fn len(&self) -> u64 {
        0
    }
    fn kind(&self) -> MediumKind {
        MediumKind::Dax
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn put(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn put_is_cached(&self, _: u64) -> bool {
        true
    }

    fn xor(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn zero(&self, _: Site, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn drain(&self, _: Site) {}
    fn enabled(&self, site: Site) -> bool {
        site.name() != self.off
    }
    fn append(&self, _: Site, _: u64, _: &[u8]) -> Result<(), SyncError> {
        Ok(())
    }
    fn sync(&self, _: Site) -> Result<(), SyncError> {
        Ok(())
    }
    fn view(&self, _: u64, _: u64) -> Option<*const u8> {
        None
    }
    fn grow(&self, _: u64) -> Result<(), SyncError> {
        Ok(())
    }
    fn heal(&self, _: Site, _: u64, _: &[u8]) -> Result<(), MediaError> {
        Ok(())
    }
    fn remap(&self, _: u64, _: u64, _: u64) -> Result<(), MediaError> {
        Ok(())
    }
    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

/// What the threads share: flag `n` says that commit `n + 1` is complete.
struct World {
    m: Nothing,
    numbers: Numbers,
    complete: [AtomicBool; 3],
}

/// Two lanes commit, one of them twice, while a third thread computes the watermark. Answers
/// which watermarks that thread saw: a model that never shows it a high one proves nothing.
fn watermark_is_true(off: &'static str) -> BTreeSet<u64> {
    let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let noted = std::sync::Arc::clone(&seen);
    let mut model = loom::model::Builder::new();
    // All interleavings with so many switches away from a thread that could go on: the shortest
    // wrong ones take two.
    model.preemption_bound = Some(2);
    model.check(move || {
        let world = Arc::new(World {
            m: Nothing { off },
            numbers: Numbers::new(2, 1),
            complete: std::array::from_fn(|_| AtomicBool::new(false)),
        });
        let commits = |lane: usize, count: usize| {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                for _ in 0..count {
                    let number = world.numbers.draw(&world.m, lane);
                    // The data of the commit: not ordered by anything but `done`.
                    world.complete[number as usize - 1].store(true, Ordering::Relaxed);
                    world.numbers.done(lane);
                }
            })
        };
        let threads = [commits(0, 2), commits(1, 1)];
        let (reader, noted) = (Arc::clone(&world), std::sync::Arc::clone(&noted));
        let reader = loom::thread::spawn(move || {
            let l = reader.numbers.watermark(&reader.m);
            noted.lock().expect("nobody panics with it").insert(l);
            for number in 1..=l {
                let complete = reader.complete[number as usize - 1].load(Ordering::Relaxed);
                assert!(complete, "commit {number} counts as complete and is not");
            }
        });
        for thread in threads.into_iter().chain([reader]) {
            thread.join().expect("neither lanes nor the reader panic");
        }
        assert_eq!(world.numbers.watermark(&world.m), 3);
    });
    std::mem::take(&mut seen.lock().expect("the threads are gone"))
}

#[test]
fn no_incomplete_commit_is_below_the_watermark() {
    assert_eq!(watermark_is_true(""), BTreeSet::from([0, 1, 2, 3]));
}

#[test]
#[should_panic(expected = "counts as complete and is not")]
fn the_lower_bound_is_needed() {
    watermark_is_true("logs.numbers.bound");
}

#[test]
#[should_panic(expected = "counts as complete and is not")]
fn the_bounds_are_needed() {
    watermark_is_true("logs.numbers.busy");
}

/// The durable watermark only rises, whoever raises it.
#[test]
fn the_durable_watermark_only_rises() {
    loom::model(|| {
        let world = Arc::new((Nothing { off: "" }, Numbers::new(2, 1)));
        let raise = |l: u64| {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                world.1.raise_durable(&world.0, l);
                assert!(world.1.durable() >= l);
            })
        };
        let threads = [raise(3), raise(5)];
        let (first, second) = (world.1.durable(), world.1.durable());
        assert!(first <= second);
        for thread in threads {
            thread.join().expect("raising does not panic");
        }
        assert_eq!(world.1.durable(), 5);
    });
}
