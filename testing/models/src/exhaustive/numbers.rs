//! The rule that makes the watermark true.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use holdfast_logs::Numbers;
use holdfast_sync::{Access, atomic};
use loom::sync::Arc;

use super::{LAW, Model, Wrong, explore, threads};
use crate::nothing::Nothing;

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "numbers",
        run: watermark_is_true,
        wrong: &[
            Wrong::Off("logs.numbers.bound"),
            Wrong::Off("logs.numbers.busy"),
            Wrong::Weak("numbers.rs", Access::Load),
            Wrong::Weak("numbers.rs", Access::Store),
        ],
    },
    Model {
        name: "durable",
        run: durable_only_rises,
        wrong: &[
            Wrong::Weak("numbers.rs", Access::Load),
            Wrong::Weak("numbers.rs", Access::Change),
        ],
    },
];

/// What the threads share: flag `n` says that commit `n + 1` is complete.
struct World {
    m: Nothing,
    numbers: Numbers,
    complete: [loom::sync::atomic::AtomicBool; 3],
}

/// Two lanes commit, one of them twice, while a third thread computes the watermark. All
/// watermarks have to be seen: a model that never shows a high one proves nothing.
fn watermark_is_true(off: &'static str) {
    use loom::sync::atomic::Ordering;
    let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let noted = std::sync::Arc::clone(&seen);
    explore(2, move || {
        let world = Arc::new(World {
            m: Nothing { off },
            numbers: Numbers::new(2, 1),
            complete: std::array::from_fn(|_| loom::sync::atomic::AtomicBool::new(false)),
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
            noted.lock().unwrap_or_else(PoisonError::into_inner).insert(l);
            for number in 1..=l {
                let complete = reader.complete[number as usize - 1].load(Ordering::Relaxed);
                assert!(complete, "{LAW}: commit {number} counts as complete and is not");
            }
        });
        for thread in threads.into_iter().chain([reader]) {
            thread.join().expect("neither lanes nor the reader panic");
        }
        assert_eq!(world.numbers.watermark(&world.m), 3, "{LAW}: all are complete");
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]), "the model shows every watermark");
}

/// The durable watermark only rises, whoever raises it; who sees it sees what was durable.
fn durable_only_rises(off: &'static str) {
    explore(3, move || {
        let marks = [atomic::AtomicBool::new(false), atomic::AtomicBool::new(false)];
        let world = Arc::new((Nothing { off }, Numbers::new(2, 1), marks));
        let raise = |l: u64, mark: usize| -> Box<dyn FnOnce() + Send> {
            let world = Arc::clone(&world);
            Box::new(move || {
                world.2[mark].store(true, atomic::Ordering::Relaxed);
                world.1.raise_durable(&world.0, l);
                assert!(world.1.durable() >= l, "{LAW}: it is as high as it was raised");
            })
        };
        let reader = Arc::clone(&world);
        let read = Box::new(move || {
            let (first, second) = (reader.1.durable(), reader.1.durable());
            assert!(first <= second, "{LAW}: it sank from {first} to {second}");
            for (l, mark) in [(3, 0), (5, 1)] {
                let marked = reader.2[mark].load(atomic::Ordering::Relaxed);
                assert!(second != l || marked, "{LAW}: {l} is seen before what it says");
            }
        });
        threads([raise(3, 0), raise(5, 1), read]);
        assert_eq!(world.1.durable(), 5, "{LAW}: the highest stays");
    });
}
