//! Stores to a page that is being put right wait until that is over; none is lost, none gets by.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Nothing, protected};
use holdfast_pmem::track::{AsyncProtect, Bar, DirtySource, FirstStore, SourceKind};
use holdfast_pmem::{Mapped, Medium, PAGE, Protect};

fn stays_and_goes_on(medium: &Mapped, source: &dyn DirtySource, bar: &dyn Fn() -> Bar) {
    source.arm(0, 16 * PAGE).unwrap();
    let address = medium.view(3 * PAGE, 8).unwrap().expose_provenance();
    let stop = AtomicBool::new(false);
    // SAFETY: an aligned word of the mapping, which outlives the threads; here it is reached as an
    // atomic one only.
    let word = || unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(address)) };
    let read = || word().load(Ordering::Relaxed);
    thread::scope(|scope| {
        let stored = scope.spawn(|| {
            let mut stored = 0_u64;
            while !stop.load(Ordering::Acquire) {
                stored += 1;
                word().store(stored, Ordering::Relaxed);
            }
            stored
        });
        let mut held = 0;
        for round in 0..200 {
            source.take(0, 16 * PAGE, &mut |_, _| {}).unwrap();
            let closed = bar();
            let mut told = false;
            source.peek(3 * PAGE, PAGE, &mut |_, _| told = true).unwrap();
            if told && source.kind() == SourceKind::FirstStore {
                // It was let through before: who asks learns that, and replaces nothing.
                drop(closed);
                continue;
            }
            held += 1;
            let before = read();
            let until = if round % 50 == 0 { 5_000 } else { 20 };
            thread::sleep(Duration::from_micros(until));
            let now = read();
            drop(closed);
            if now != before {
                stop.store(true, Ordering::Release);
            }
            assert_eq!(now, before, "{}: a store got by", source.kind());
            let end = Instant::now() + Duration::from_secs(20);
            while read() == now {
                if Instant::now() > end {
                    stop.store(true, Ordering::Release);
                }
                assert!(Instant::now() < end, "{}: it does not go on", source.kind());
            }
        }
        stop.store(true, Ordering::Release);
        assert!(held > 0, "{}: never closed", source.kind());
        assert_eq!(stored.join().unwrap(), read());
    });
}

#[test]
fn stores_to_a_barred_page_wait_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = protected(Protect::None);
    let make = |name: &str| {
        Arc::new(Mapped::create(&folder.path().join(name), 16 * PAGE, &options).unwrap())
    };
    let medium = make("first");
    let source = FirstStore::of(Arc::clone(&medium), Arc::new(Nothing)).unwrap();
    stays_and_goes_on(&medium, &source, &|| source.bar(3 * PAGE).unwrap());
    let medium = make("async");
    match AsyncProtect::of(&medium) {
        Ok(source) => stays_and_goes_on(&medium, &source, &|| source.bar(3 * PAGE).unwrap()),
        Err(error) => println!("skipped: {error}"),
    }
}
