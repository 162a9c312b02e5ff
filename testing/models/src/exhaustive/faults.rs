//! Places where threads wait for answers about bad pages (`base/pmem`): what is taken is what was
//! posted, and each answer is about the fault it was given to. And entries of mappings in which
//! they wait: what a handler sees of one is all of the same mapping.

use holdfast_pmem::modelled::life::{Life, Spans};
use holdfast_pmem::modelled::slot::{Slot, State};
use holdfast_pmem::modelled::{free_life, free_slot};
use holdfast_pmem::{Fault, Verdict};
use holdfast_sync::Access;
use loom::sync::Arc;

use super::{LAW, Model, Wrong, explore, threads};

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "faults",
        run: taken,
        wrong: &[
            Wrong::Weak("slot.rs", Access::Store),
            Wrong::Weak("slot.rs", Access::Load),
            Wrong::Off("any turn"),
            Wrong::Off("posted first"),
        ],
    },
    Model {
        name: "answers",
        run: answered,
        wrong: &[Wrong::Off("any turn"), Wrong::Off("posted first")],
    },
    Model {
        name: "registry",
        run: seen,
        wrong: &[
            Wrong::Weak("life.rs", Access::Store),
            Wrong::Weak("life.rs", Access::Load),
            Wrong::Weak("life.rs", Access::Change),
            Wrong::Weak("life.rs", Access::Fence),
            Wrong::Off("number"),
            Wrong::Off("shown late"),
        ],
    },
];

/// A mapping of which each word is the same number.
const fn mapping(number: u64) -> Spans {
    Spans { view: number, alias: number, span: number, mapped: number }
}

/// One mapping after the other has the entry.
fn lives(life: &Life, off: &'static str) {
    for number in 1..=2 {
        assert!(life.take(), "nobody else takes it");
        if off == "number" {
            life.turn.store(1, loom::sync::atomic::Ordering::Relaxed);
        }
        let shown = mapping(number);
        if off == "shown late" {
            // Seen before all of it is there.
            life.show(Spans { span: number - 1, ..shown });
        }
        life.show(shown);
        life.retire();
        life.give_back();
    }
}

/// A handler looks at the entry meanwhile.
fn seen(off: &'static str) {
    explore(3, move || {
        let life = Arc::new(free_life());
        let (lived, looked) = (Arc::clone(&life), life);
        let look = move || {
            if let Some(seen) = looked.look() {
                assert_eq!(seen, mapping(seen.view), "{LAW}: all of it is of one mapping");
            }
        };
        threads([Box::new(move || lives(&lived, off)), Box::new(look)]);
    });
}

/// The page whose number is that of the turn.
fn fault(page: u64) -> Fault {
    Fault { at: page, len: 1, thread: 7, memory: None }
}

fn turn(state: State) -> u64 {
    u64::from(state.word() >> 3)
}

/// A thread meets page 1, is answered or gives up as if there were nobody to answer, and meets page
/// 2 with the same place.
fn meet(slot: &Slot, off: &'static str) {
    post(slot, off);
    while !slot.leave(slot.look()) {
        loom::thread::yield_now();
    }
    post(slot, off);
}

/// Somebody takes what is posted.
fn taken(off: &'static str) {
    explore(3, move || {
        let slot = Arc::new(free_slot());
        let (meets, takes) = (Arc::clone(&slot), slot);
        let take = move || {
            let state = takes.look();
            if state.is_posted() {
                let fault = takes.fault();
                let with = newest(&takes, state, off);
                if takes.take(with) {
                    assert_eq!(fault.at, turn(with), "{LAW}: what is taken is what was posted");
                }
            }
        };
        threads([Box::new(move || meet(&meets, off)), Box::new(take)]);
    });
}

/// Somebody answers for page 1, as who repaired it on behalf of another thread.
fn answered(off: &'static str) {
    explore(3, move || {
        let slot = Arc::new(free_slot());
        let (meets, answers, after) = (Arc::clone(&slot), Arc::clone(&slot), slot);
        let answer = move || {
            let (state, fault) = (answers.look(), answers.fault());
            if state.is_posted() && fault.at == 1 {
                answers.give(newest(&answers, state, off), Verdict::Lost);
            }
        };
        threads([Box::new(move || meet(&meets, off)), Box::new(answer)]);
        let answer = after.look().answer();
        assert!(answer.is_none(), "{LAW}: an answer is about the page that was asked about");
    });
}

/// The state that was seen; in the variant, that of now if it is in the same phase.
fn newest(slot: &Slot, seen: State, off: &'static str) -> State {
    let now = slot.look();
    let same = now.is_posted() == seen.is_posted() && now.is_taken() == seen.is_taken();
    if off == "any turn" && same && now.answer().is_none() { now } else { seen }
}

fn post(slot: &Slot, off: &'static str) {
    let mine = slot.claim().expect("it was left");
    let page = turn(mine);
    if off == "posted first" {
        // Another page for a moment, as from another turn.
        slot.post(mine, fault(3 - page));
    }
    slot.post(mine, fault(page));
}
