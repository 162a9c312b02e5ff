//! A cure is tried at every call that stores or orders: what came before is durable by then.

use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_pmem::{Medium, MediumKind};

use crate::common::{D, S, persisted, put, word};

/// Runs `call` on a medium whose first word is stored and not flushed, and again with a cure tried
/// before it: what its barrier finds durable of that word, both times.
fn at_its_barrier(kind: MediumKind, call: impl Fn(&FaultMedium)) -> [u64; 2] {
    let mut place = None;
    [false, true].map(|cured| {
        let m = FaultMedium::new(2 * 4096, kind, &Config { trace: true, ..Config::default() });
        m.store(S, 0, &7_u64.to_le_bytes()).unwrap();
        if cured {
            m.persist_before(place.expect("the first run recorded the call"));
        }
        let found = Arc::new(Mutex::new(None));
        let at_barrier = Arc::clone(&found);
        m.on_barrier(Box::new(move |_, _, point| {
            let now = word(point.persisted().bytes(), 0);
            at_barrier.lock().unwrap().get_or_insert(now);
        }));
        call(&m);
        place = m.trace().last().map(|call| call.place);
        let found = *found.lock().unwrap();
        found.expect("the call is a barrier")
    })
}

#[test]
fn a_drain_waits_for_what_the_cure_makes_durable() {
    assert_eq!(at_its_barrier(MediumKind::Dax, |m| m.drain(D)), [0, 7]);
}

#[test]
fn so_does_a_sync_of_memory_and_of_a_file() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        assert_eq!(at_its_barrier(kind, |m| m.sync(D).unwrap()), [0, 7], "{kind:?}");
    }
}

#[test]
fn so_does_a_sync_of_a_range() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let found = at_its_barrier(kind, |m| m.sync_range(D, 4096, 4096).unwrap());
        assert_eq!(found, [0, 7], "{kind:?}");
    }
}

#[test]
fn so_does_an_append() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let found = at_its_barrier(kind, |m| m.append(S, 512, &[1; 8]).unwrap());
        assert_eq!(found, [0, 7], "{kind:?}");
    }
}

#[test]
fn so_does_the_rewrite_of_a_page() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let found = at_its_barrier(kind, |m| {
            m.poison(4096, 1, Clear::Able).unwrap();
            m.heal(S, 4096, &[1; 4096]).unwrap();
        });
        assert_eq!(found, [0, 7], "{kind:?}");
    }
}

#[test]
fn a_cure_is_of_one_place() {
    let m = FaultMedium::new(4096, MediumKind::File, &Config::default());
    m.persist_before(core::panic::Location::caller());
    put(&m, 0, 7);
    m.append(S, 64, &[1; 8]).unwrap();
    let found = [0, 64].map(|at| persisted(&m, at));
    assert_eq!(found, [0, u64::from_le_bytes([1; 8])], "an append to a file is alone durable");
}
