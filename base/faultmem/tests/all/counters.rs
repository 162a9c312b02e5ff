//! What persistence costs, counted.

use crate::common::*;
use holdfast_faultmem::Counters;
use holdfast_pmem::Medium;

#[test]
fn stores_flushes_and_drains_are_counted() {
    let m = dax();
    m.put(S, 60, &[1; 8]).unwrap();
    m.zero(S, 0, 4).unwrap();
    m.xor(S, 128, &[1; 8]).unwrap();
    m.drain(D);
    let expected = Counters {
        stores: 3,
        stored_bytes: 20,
        lines_flushed: 4,
        redundant_flushes: 1, // the zeroes change nothing in a line flushed already
        drains: 1,
        ..Counters::default()
    };
    assert_eq!(m.counters(), expected);
    m.reset_counters();
    assert_eq!(m.counters(), Counters::default());
}

#[test]
fn a_flush_of_a_line_that_is_on_the_medium_is_redundant() {
    let m = dax();
    put(&m, 0, 1);
    assert_eq!(m.counters().redundant_flushes, 0, "nothing was drained yet");
    m.drain(D);
    put(&m, 0, 1);
    assert_eq!(m.counters().redundant_flushes, 1);
    put(&m, 8, 1);
    assert_eq!(m.counters().redundant_flushes, 1);
}

#[test]
fn a_flush_that_comes_with_a_store_is_redundant_if_the_store_changes_nothing() {
    let m = dax();
    let wasted = || {
        let counted = m.counters().redundant_flushes;
        m.reset_counters();
        counted
    };
    put(&m, 0, 1);
    put(&m, 64, 1);
    assert_eq!(wasted(), 0);
    // Flushed since, though not drained yet, and though other lines were flushed meanwhile.
    put(&m, 0, 1);
    m.xor(S, 0, &[0; 8]).unwrap();
    m.zero(S, 8, 8).unwrap();
    assert_eq!(wasted(), 3);
    put(&m, 0, 2);
    assert_eq!(wasted(), 0, "this one is new");
    elsewhere(|| put(&m, 0, 2));
    assert_eq!(wasted(), 0, "the flush of a thread does nothing for another one's drain");
    m.store(S, 0, &3_u64.to_le_bytes()).unwrap();
    put(&m, 0, 3);
    assert_eq!(wasted(), 0, "the store before was not flushed");
}

#[test]
fn a_drain_of_nothing_is_redundant() {
    let m = dax();
    m.drain(D);
    put(&m, 0, 1);
    m.drain(D);
    m.drain(D);
    assert_eq!((m.counters().drains, m.counters().redundant_drains), (3, 2));
}

#[test]
fn a_locked_instruction_with_flushes_outstanding_is_a_drain() {
    let m = dax();
    m.locked();
    assert_eq!(m.counters().all_drains(), 0, "nothing outstanding");
    put(&m, 0, 1);
    elsewhere(|| m.locked());
    assert_eq!(m.counters().hidden_drains, 0, "not this thread's flushes");
    m.locked();
    m.locked();
    assert_eq!(m.counters().hidden_drains, 1, "the second finds nothing left to wait for");
    assert_eq!(persisted(&m, 0), 0, "counted, not relied upon");
    m.drain(D);
    assert_eq!(persisted(&m, 0), 1);
    m.locked();
    let counters = m.counters();
    assert_eq!((counters.drains, counters.hidden_drains, counters.all_drains()), (1, 1, 2));
    assert_eq!(counters.redundant_drains, 0);
}

#[test]
fn threads_are_counted_apart() {
    let m = dax();
    put(&m, 0, 1);
    let theirs = elsewhere(|| {
        put(&m, 64, 1);
        m.drain(D);
        m.thread_counters()
    });
    assert_eq!((theirs.stores, theirs.drains), (1, 1));
    assert_eq!((m.thread_counters().stores, m.thread_counters().drains), (1, 0));
    assert_eq!((m.counters().stores, m.counters().drains), (2, 1));
}

#[test]
fn a_file_flushes_nothing() {
    let m = file();
    put(&m, 0, 1);
    m.append(S, 512, &[1; 8]).unwrap();
    m.sync(D).unwrap();
    m.locked();
    let expected =
        Counters { stores: 1, stored_bytes: 8, appends: 1, syncs: 1, ..Counters::default() };
    assert_eq!(m.counters(), expected);
    m.drain(D);
    assert_eq!(m.counters().redundant_drains, 1);
}

#[test]
fn what_is_switched_off_costs_nothing() {
    let m = dax();
    m.elide(S);
    m.elide(D);
    put(&m, 0, 1);
    m.drain(D);
    assert_eq!((m.counters().stores, m.counters().lines_flushed, m.counters().drains), (1, 0, 0));
}
