//! Watermark records and the rule of reuse, driven into the corners where each step is needed.
//!
//! One thread plays all lanes; what a lane does to its end drains only what it flushed itself.

mod common;

use std::sync::{Arc, Mutex};

use common::engine::{End, Engine, Lose, judged_medium, watch};
use common::lockstep::{Lockstep, Turns};
use common::{OBJECTS, Oracle, SharedOracle, lock, superblock};
use holdfast_faultmem::Budget;
use holdfast_layout::LogPlacement;

/// Few images while rings fill, many once it matters.
const FEW: Budget = Budget { exhaustive: 4, singles: 1, pairs: 0, samples: 2, seed: 1 };
const MANY: Budget = Budget { exhaustive: 256, singles: 16, pairs: 16, samples: 60, seed: 1 };

fn engine(lose: Lose, off: &'static str) -> (Arc<Engine<Lockstep>>, SharedOracle) {
    let superblock = superblock(LogPlacement::Apart, 4, 1, 2);
    let oracle = SharedOracle::default();
    let inner = Arc::new(judged_medium(&superblock, lose, off, None, FEW, &oracle));
    let m = Lockstep { inner, turns: Turns::new(&[1], 0, 0) };
    (Arc::new(Engine::new(m, superblock, Arc::clone(&oracle))), oracle)
}

/// Commits on a lane until its ring is full, or three laps are done; leaves objects 0 to 2 alone.
fn fill(engine: &Engine<Lockstep>, lane: usize) {
    for i in 0..93 {
        if engine.update(lane, &[3 + i % (OBJECTS - 3)], || false) == End::Retry {
            return;
        }
    }
}

/// Lane 0 overwrites the newest record of object 1, of which lane 1 holds an older one, right
/// after the only commit that held the watermark back has come to its end.
fn overwrite_after_a_mark(lose: Lose, off: &'static str) -> Oracle {
    let (engine, oracle) = engine(lose, off);
    let parked = engine.begin(2, &[0], || false).expect("rings are empty");
    assert_eq!(engine.update(1, &[1], || false), End::Committed);
    assert_eq!(engine.update(0, &[1], || false), End::Committed);
    fill(&engine, 0);
    watch(&engine.m.inner, &engine.superblock, lose, off, MANY, &oracle);
    engine.finish(parked);
    assert_eq!(engine.update(0, &[4], || false), End::Committed);
    let oracle = std::mem::take(&mut *lock(&oracle));
    println!("{off}: {} images, {:?}", oracle.images, oracle.wrong);
    oracle
}

/// Lane 1 overwrites the newest record of object 1, because of a mark that lane 0 wrote; at the
/// same time lane 0 writes another mark.
fn two_marks(off: &'static str) -> Oracle {
    let (engine, oracle) = engine(Lose::Nothing, off);
    let first = engine.begin(2, &[0], || false).expect("rings are empty");
    assert_eq!(engine.update(0, &[1], || false), End::Committed);
    assert_eq!(engine.update(1, &[1], || false), End::Committed);
    fill(&engine, 1);
    let second = engine.begin(3, &[2], || false).expect("its ring is empty");
    fill(&engine, 0);
    watch(&engine.m.inner, &engine.superblock, Lose::Nothing, off, MANY, &oracle);
    engine.finish(first);
    reserve(&engine, 128);
    engine.finish(second);
    let (again, once) = (Arc::clone(&engine), Mutex::new(true));
    engine.m.inner.on_step(Box::new(move |site| {
        if site.name() == "logs.ring.recorded" && std::mem::take(&mut *lock(&once)) {
            reserve(&again, 3000);
        }
    }));
    assert_eq!(engine.update(1, &[4], || false), End::Committed);
    engine.m.inner.clear_on_step();
    let oracle = std::mem::take(&mut *lock(&oracle));
    println!("{off}: {} images, {:?}", oracle.images, oracle.wrong);
    oracle
}

/// Lane 0 wants room, gets it, and changes its mind.
fn reserve(engine: &Engine<Lockstep>, len: usize) {
    let Engine { m, log, numbers, .. } = engine;
    let mut lane = log.acquire_exact(m, 0).expect("nobody holds it");
    lane.reserve(m, numbers, len, || false).expect("all is complete");
}

#[test]
fn with_every_step_in_force_nothing_is_lost() {
    for lose in [Lose::Nothing, Lose::A, Lose::B] {
        assert_eq!(overwrite_after_a_mark(lose, "").violations(), 0);
    }
    assert_eq!(two_marks("").violations(), 0);
}

#[test]
fn the_rule_of_reuse_is_needed() {
    assert!(overwrite_after_a_mark(Lose::Nothing, "logs.ring.reuse").violations() > 0);
}

#[test]
fn a_mark_is_durable_before_it_is_relied_on() {
    assert!(overwrite_after_a_mark(Lose::Nothing, "logs.ring.marked").violations() > 0);
}

#[test]
fn each_copy_of_a_mark_is_needed_when_the_other_is_lost() {
    assert!(overwrite_after_a_mark(Lose::B, "logs.ring.mark_a").violations() > 0);
    assert!(overwrite_after_a_mark(Lose::A, "logs.ring.mark_b").violations() > 0);
}

#[test]
fn marks_take_turns() {
    assert!(two_marks("logs.ring.turn").violations() > 0);
}
