//! Words of the object engine by which threads that hold nothing in common tell each other what
//! happened (`object/marks.rs`).

use std::sync::Arc as Kept;

use holdfast_object::modelled::{Freed, Redoing, Remade, Suspects};
use holdfast_sync::Access;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};

use super::{LAW, Model, Own, Wrong, explore, threads};

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "remade",
        run: one_sees_the_other,
        wrong: &[
            Wrong::Weak("marks.rs", Access::Change),
            Wrong::Off("verified first"),
            Wrong::Off("asked first"),
        ],
    },
    Model {
        name: "redoing",
        run: nothing_half_done,
        wrong: &[Wrong::Off("begun late"), Wrong::Off("done early")],
    },
    Model {
        name: "redoing-chunks",
        run: nobody_comes_later,
        wrong: &[
            Wrong::Weak("marks.rs", Access::Change),
            Wrong::Weak("marks.rs", Access::Load),
            Wrong::Off("published first"),
        ],
    },
    Model { name: "freed", run: number_of_what_is_had, wrong: &[Wrong::Off("had first")] },
    Model { name: "suspects", run: all_looked_after, wrong: &[Wrong::Off("taken first")] },
];

/// Of who makes parity anew and who fills a chunk meanwhile, one sees the other: rows that were
/// summed with what was filled in are verified, or it is stored again.
fn one_sees_the_other(off: &'static str) {
    #[derive(Default)]
    struct World {
        remade: Remade,
        /// What the columns hold: whether the chunk was filled.
        column: Mutex<bool>,
        known: AtomicBool,
        unverified: AtomicBool,
        again: AtomicBool,
    }
    explore(3, move || {
        let world = Arc::new(World::default());
        let (maker, filler) = (Arc::clone(&world), Arc::clone(&world));
        let make = move || {
            let filled = maker.column.lock().expect("nobody panics");
            let known = || maker.known.load(Ordering::Relaxed);
            let verified = if off == "verified first" {
                let known = known();
                maker.remade.note();
                known
            } else {
                maker.remade.note();
                known()
            };
            maker.unverified.store(*filled && !verified, Ordering::Relaxed);
        };
        let fill = move || {
            let before = filler.remade.times();
            *filler.column.lock().expect("nobody panics") = true;
            let early = (off == "asked first").then(|| filler.remade.times());
            filler.known.store(true, Ordering::Relaxed);
            let after = early.unwrap_or_else(|| filler.remade.times());
            filler.again.store(after != before, Ordering::Relaxed);
        };
        threads([Box::new(make), Box::new(fill)]);
        let unverified = world.unverified.load(Ordering::Relaxed);
        let again = world.again.load(Ordering::Relaxed);
        assert!(!unverified || again, "{LAW}: damage is in parity, and nobody stores again");
    });
}

/// Who holds a column and sees no commit that is owed finds it whole.
fn nothing_half_done(off: &'static str) {
    explore(3, move || {
        // What the column is: 1 half patched.
        let world = Arc::new((Redoing::default(), Mutex::new(0)));
        let (commit, judge) = (Arc::clone(&world), world);
        let commit = move || {
            let (redoing, column) = &*commit;
            let mut held = column.lock().expect("nobody panics");
            *held = 1;
            if off != "begun late" {
                redoing.begin();
            }
            drop(held);
            if off == "begun late" {
                redoing.begin();
            }
            if off == "done early" {
                redoing.done(1);
            }
            *column.lock().expect("nobody panics") = 2;
            if off != "done early" {
                redoing.done(1);
            }
        };
        let judge = move || {
            let (redoing, column) = &*judge;
            let held = column.lock().expect("nobody panics");
            if !redoing.any() {
                assert_ne!(*held, 1, "{LAW}: what is judged is whole");
            }
        };
        threads([Box::new(commit), Box::new(judge)]);
    });
}

/// Who has taken a chunk that a commit freed, and saw none that is owed, has it alone.
fn nobody_comes_later(off: &'static str) {
    explore(3, move || {
        let world = Arc::new((Redoing::default(), AtomicBool::new(false), Own::default()));
        let (commit, taker) = (Arc::clone(&world), world);
        let commit = move || {
            let (redoing, free, chunk) = &*commit;
            if off == "published first" {
                free.store(true, Ordering::Release);
            }
            redoing.begin();
            if off != "published first" {
                free.store(true, Ordering::Release);
            }
            // The redo: its entry, and parity over it.
            chunk.touch();
            redoing.done(1);
        };
        let take = move || {
            let (redoing, free, chunk) = &*taker;
            if free.load(Ordering::Acquire) && !redoing.any() {
                chunk.touch();
            }
        };
        threads([Box::new(commit), Box::new(take)]);
    });
}

/// Who has a place that was freed knows of the commit that freed it.
fn number_of_what_is_had(off: &'static str) {
    explore(3, move || {
        // The place is had by number of the commit that freed it.
        let world = Arc::new((Freed::new(2, 0), AtomicU64::new(0)));
        let free = |lane: usize, number: u64| -> Box<dyn FnOnce() + Send> {
            let world = Arc::clone(&world);
            Box::new(move || {
                let (freed, place) = &*world;
                if off == "had first" {
                    place.fetch_max(number, Ordering::AcqRel);
                }
                if lane == 0 {
                    freed.note_shared(0, number)
                } else {
                    freed.note_in(lane, number)
                }
                if off != "had first" {
                    place.fetch_max(number, Ordering::AcqRel);
                }
            })
        };
        let take = {
            let world = Arc::clone(&world);
            Box::new(move || {
                let (freed, place) = &*world;
                let had = place.load(Ordering::Acquire);
                let last = freed.last();
                assert!(last >= had, "{LAW}: freed by {had}, and {last} is the last that freed");
            })
        };
        threads([free(0, 1), free(1, 2), take]);
    });
}

/// What anybody noted is looked after by the time all are through with their commits.
fn all_looked_after(off: &'static str) {
    explore(3, move || {
        let suspects = Kept::new(Suspects::default());
        let commit = |at: u64| -> Box<dyn FnOnce() + Send> {
            let suspects = Kept::clone(&suspects);
            Box::new(move || {
                suspects.add(at);
                if !suspects.any() {
                    return;
                }
                if off == "taken first" {
                    drop(suspects.take());
                }
                while suspects.lower() && off != "taken first" {
                    drop(suspects.take());
                }
            })
        };
        threads([commit(1), commit(2)]);
        assert!(suspects.take().is_empty(), "{LAW}: what was noted is looked after");
    });
}
