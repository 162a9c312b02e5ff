//! Version words of the object engine, and its state per thread.

use holdfast_object::modelled::{PerThread, Seen, Words};
use holdfast_sync::Access;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use super::{LAW, Model, Own, Wrong, explore, threads};
use crate::nothing::Nothing;

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "versions",
        run: one_state,
        wrong: &[
            Wrong::Weak("versions.rs", Access::Load),
            Wrong::Weak("versions.rs", Access::Store),
            Wrong::Weak("versions.rs", Access::Fence),
            Wrong::Off("not validated"),
            Wrong::Off("released first"),
        ],
    },
    Model {
        name: "writers",
        run: one_writer,
        wrong: &[Wrong::Weak("versions.rs", Access::Store), Wrong::Off("released first")],
    },
    Model {
        name: "skew",
        run: one_order,
        wrong: &[Wrong::Weak("versions.rs", Access::Total), Wrong::Off("validated first")],
    },
    Model {
        name: "pins",
        run: pinned_stays,
        wrong: &[Wrong::Weak("versions.rs", Access::Change), Wrong::Off("not pinned")],
    },
    Model {
        name: "per-thread",
        run: one_thread,
        wrong: &[
            Wrong::Weak("view.rs", Access::Change),
            Wrong::Weak("view.rs", Access::Store),
            Wrong::Off("two holders"),
        ],
    },
    Model {
        name: "per-thread-kept",
        run: passed_on,
        wrong: &[Wrong::Weak("view.rs", Access::Change), Wrong::Weak("view.rs", Access::Store)],
    },
];

struct World {
    m: Nothing,
    words: Words,
    /// An object of two words on the medium, stored to in no order.
    bytes: [AtomicU64; 2],
}

impl World {
    fn new(off: &'static str) -> Arc<Self> {
        let bytes = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { m: Nothing { off }, words: Words::default(), bytes })
    }

    fn off(&self, what: &str) -> bool {
        self.m.off == what
    }

    /// A commit of `number`, if nobody else commits.
    fn commit(&self, number: u64) {
        let Some(seen) = self.words.read(0) else { return };
        if !self.words.try_lock(&self.m, 0, seen) {
            return;
        }
        if self.off("released first") {
            self.words.release(0, number);
        }
        for word in &self.bytes {
            word.store(number, Ordering::Relaxed);
        }
        if !self.off("released first") {
            self.words.release(0, number);
        }
    }
}

/// Who reads between two looks at the version sees one state, that of the version.
fn one_state(off: &'static str) {
    explore(3, move || {
        let world = World::new(off);
        let (writer, reader) = (Arc::clone(&world), world);
        let write = move || {
            writer.commit(1);
            writer.commit(2);
        };
        let read = move || {
            let Some(seen) = reader.words.read(0) else { return };
            let [first, second] = [0, 1].map(|i: usize| reader.bytes[i].load(Ordering::Relaxed));
            if reader.off("not validated") || reader.words.unchanged(0, seen) {
                let number = seen.number();
                assert_eq!((first, second), (number, number), "{LAW}: bytes of one version");
            }
        };
        threads([Box::new(write), Box::new(read)]);
    });
}

/// Of two commits that meet in an object one goes first, whole.
fn one_writer(off: &'static str) {
    explore(3, move || {
        let world = World::new(off);
        let commit = |number: u64| -> Box<dyn FnOnce() + Send> {
            let world = Arc::clone(&world);
            Box::new(move || world.commit(number))
        };
        threads([commit(1), commit(2)]);
        let number = world.words.read(0).map(Seen::number);
        let bytes = [0, 1].map(|i: usize| Some(world.bytes[i].load(Ordering::Relaxed)));
        assert_eq!(bytes, [number, number], "{LAW}: the last commit's bytes at its number");
    });
}

/// Two transactions read two objects and change one each: not both go through.
fn one_order(off: &'static str) {
    explore(3, move || {
        let world = World::new(off);
        let through = Arc::new(AtomicU64::new(0));
        let commit = |writes: u32, reads: u32| -> Box<dyn FnOnce() + Send> {
            let (world, through) = (Arc::clone(&world), Arc::clone(&through));
            Box::new(move || {
                through.fetch_add(u64::from(skewed(&world, writes, reads)), Ordering::Relaxed);
            })
        };
        threads([commit(0, 1), commit(1, 0)]);
        let both = through.load(Ordering::Relaxed) == 2;
        assert!(!both, "{LAW}: both went through as if they were alone");
    });
}

/// Steps 3 and 4 of a commit that read both objects and writes one. Whether it goes through.
fn skewed(world: &World, writes: u32, reads: u32) -> bool {
    // As both were before either began.
    let seen = Words::default().read(0).expect("nobody holds a word of a new table");
    let validate = |seen: Seen| world.words.unchanged(reads, seen);
    if world.off("validated first") {
        return validate(seen) && world.words.try_lock(&world.m, writes, seen);
    }
    world.words.try_lock(&world.m, writes, seen) && validate(seen)
}

/// Nothing is stored to an object while it is borrowed in place.
fn pinned_stays(off: &'static str) {
    explore(3, move || {
        let world = Arc::new((World::new(off), Own::default()));
        let (viewer, writer) = (Arc::clone(&world), world);
        let view = move || {
            let pinned = viewer.0.words.pin(0);
            if pinned || viewer.0.off("not pinned") {
                viewer.1.look();
            }
            if pinned {
                viewer.0.words.unpin(0);
            }
        };
        let write = move || {
            let World { words, m, .. } = &*writer.0;
            if words.read(0).is_some_and(|seen| words.try_lock(m, 0, seen)) {
                writer.1.touch();
                words.release(0, 1);
            }
        };
        threads([Box::new(view), Box::new(write)]);
    });
}

/// Two threads, one lane, which neither keeps: one has it at a time.
fn one_thread(off: &'static str) {
    explore(3, move || {
        let lanes = Arc::new((PerThread::new(1, |_| 0), Own::default()));
        let run = || -> Box<dyn FnOnce() + Send> {
            let lanes = Arc::clone(&lanes);
            Box::new(move || {
                let got = lanes.0.with(|_, _, _| {
                    if off != "two holders" {
                        lanes.1.touch();
                    }
                });
                if got.is_some() && off == "two holders" {
                    lanes.1.touch();
                }
            })
        };
        threads([run(), run()]);
    });
}

/// A lane that its thread kept goes to another once the thread has ended, and is known as passed
/// on.
fn passed_on(_: &'static str) {
    explore(3, move || {
        let lanes = Arc::new((PerThread::new(4, |_| 0), Own::default()));
        let run = |rounds: u32| -> Box<dyn FnOnce() + Send> {
            let lanes = Arc::clone(&lanes);
            Box::new(move || {
                for round in 0..rounds {
                    lanes.0.with(|lane, _, passed_on| {
                        assert_eq!(passed_on, round == 0, "{LAW}: a lane is passed on once");
                        if lane == 0 {
                            lanes.1.touch();
                        }
                    });
                }
            })
        };
        threads([run(2), run(1)]);
    });
}
