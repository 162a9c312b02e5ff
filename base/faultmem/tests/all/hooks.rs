//! Hooks: what they see, what they may do, growth, nested crashes.

use crate::common::*;
use holdfast_faultmem::{Budget, Config, FaultMedium, SiteKind};
use holdfast_pmem::{Medium, MediumKind, Site};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};

fn record(m: &FaultMedium) -> Arc<Mutex<Vec<(Site, SiteKind)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    m.on_barrier(Box::new(move |_, site, point| {
        let (named, kind) = point.barrier().expect("hooks run at barriers");
        assert_eq!(named, site);
        sink.lock().expect("nobody panics").push((site, kind));
    }));
    seen
}

#[test]
fn the_hook_comes_before_the_effect_and_may_use_the_medium() {
    let m = dax();
    let seen = Arc::new(AtomicU64::new(0));
    let sink = Arc::clone(&seen);
    m.on_barrier(Box::new(move |m, _, point| {
        assert_eq!(get(m, 0), 1, "reads do not wait for the drain");
        assert_eq!(word(point.persisted().bytes(), 0), 0, "the drain has not taken effect");
        put(m, 64, 2);
        m.drain(D); // not announced again
        sink.fetch_add(1, SeqCst);
    }));
    put(&m, 0, 1);
    m.drain(D);
    assert_eq!(seen.load(SeqCst), 1);
    assert_eq!(persisted(&m, 0), 1);
    m.clear_on_barrier();
    put(&m, 0, 3);
    m.drain(D);
    assert_eq!(seen.load(SeqCst), 1);
}

#[test]
fn every_barrier_in_force_is_announced() {
    let m = file();
    let seen = record(&m);
    put(&m, 0, 1);
    m.drain(D);
    m.append(S, 0, &[1]).unwrap();
    m.sync(D).unwrap();
    m.heal(S, 0, &[0; 4096]).unwrap();
    m.step(S);
    m.elide(D);
    m.sync(D).unwrap();
    let expected = [(S, SiteKind::Append), (D, SiteKind::Sync), (S, SiteKind::Heal)];
    assert_eq!(*seen.lock().unwrap(), expected, "no drain of a file, no step, nothing elided");
    assert_eq!(m.crash_point().ordinal(), 3);
}

#[test]
fn steps_are_announced_on_demand_and_run_their_own_hook() {
    let config = Config { crash_at_steps: true, ..Config::default() };
    let m = FaultMedium::new(4096, MediumKind::Dax, &config);
    let seen = record(&m);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&steps);
    m.on_step(Box::new(move |site| sink.lock().unwrap().push(site)));
    m.step(S);
    m.clear_on_step();
    m.step(D);
    assert_eq!(*seen.lock().unwrap(), [(S, SiteKind::Step), (D, SiteKind::Step)]);
    assert_eq!(*steps.lock().unwrap(), [S]);
}

#[test]
fn a_thread_parked_at_a_step_stops_nobody() {
    let m = dax();
    let (parked, reached) = mpsc::channel();
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    m.on_step(Box::new(move |site| {
        if site == S {
            parked.send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
        }
    }));
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            put(&m, 0, 1);
            m.step(S);
            m.drain(D);
        });
        reached.recv().unwrap();
        put(&m, 64, 2);
        m.step(D);
        m.drain(D);
        assert_eq!((persisted(&m, 0), persisted(&m, 64)), (0, 2));
        release.send(()).unwrap();
        held.join().unwrap();
    });
    assert_eq!(persisted(&m, 0), 1);
}

#[test]
fn a_thread_killed_at_a_step_leaves_its_flushes_undrained() {
    let m = dax();
    m.on_step(Box::new(|_| std::panic::resume_unwind(Box::new("killed"))));
    let died =
        std::thread::scope(|scope| scope.spawn(|| (put(&m, 0, 1), m.step(S))).join().is_err());
    assert!(died);
    m.drain(D);
    assert_eq!((get(&m, 0), persisted(&m, 0)), (1, 0));
}

#[test]
fn a_hook_that_panics_does_not_break_the_medium() {
    let m = dax();
    m.on_barrier(Box::new(|_, _, _| std::panic::resume_unwind(Box::new("found something"))));
    put(&m, 0, 1);
    let run = std::panic::AssertUnwindSafe(|| m.drain(D));
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(persisted(&m, 0), 0, "the drain was not reached");
    m.clear_on_barrier();
    m.drain(D);
    assert_eq!(persisted(&m, 0), 1);
}

#[test]
fn crashes_nest() {
    // Counts images at depth 2: each image is "recovered" by one more store under its own hook.
    let m = dax();
    let inner = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&inner);
    m.on_barrier(Box::new(move |_, _, point| {
        for image in point.images(&Budget::default()) {
            let seen = image.fingerprint();
            let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
            assert_eq!(m.crash_point().persisted().fingerprint(), seen);
            let count = Arc::clone(&count);
            m.on_barrier(Box::new(move |_, _, point| {
                count.fetch_add(point.images(&Budget::default()).count() as u64, SeqCst);
            }));
            put(&m, 128, 9);
            m.drain(D);
        }
    }));
    put(&m, 0, 1);
    put(&m, 64, 1);
    m.drain(D);
    assert_eq!(inner.load(SeqCst), 4 * 2);
}

#[test]
fn a_crash_point_is_a_picture_not_a_window() {
    let m = dax();
    put(&m, 0, 1);
    let point = m.crash_point();
    put(&m, 0, 2);
    m.drain(D);
    assert_eq!(point.images(&Budget::default()).count(), 2);
    assert_eq!(word(point.newest().bytes(), 0), 1);
}

#[test]
fn concurrent_barriers_are_all_announced() {
    let m = dax();
    let seen = record(&m);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let m = &m;
            scope.spawn(move || {
                for round in 0..50 {
                    put(m, 64 * thread, round + 1);
                    m.drain(D);
                }
            });
        }
    });
    assert_eq!(seen.lock().unwrap().len(), 200);
    assert_eq!(m.crash_point().units(), 0);
    assert_eq!([0, 64, 128, 192].map(|at| persisted(&m, at)), [50; 4]);
}

#[test]
fn what_was_acknowledged_is_in_every_image_the_hook_sees() {
    // A hook that learns of an acknowledgement must not be shown an instant before its barrier.
    let m = dax();
    let acked = Arc::new([const { AtomicU64::new(0) }; 4]);
    let shared = Arc::clone(&acked);
    m.on_barrier(Box::new(move |_, _, point| {
        std::thread::yield_now();
        let image = point.persisted();
        for (thread, acked) in shared.iter().enumerate() {
            assert!(word(image.bytes(), 64 * thread as u64) >= acked.load(SeqCst));
        }
    }));
    std::thread::scope(|scope| {
        for (thread, acked) in acked.iter().enumerate() {
            let m = &m;
            scope.spawn(move || {
                for round in 1..=500 {
                    put(m, 64 * thread as u64, round);
                    m.drain(D);
                    acked.store(round, SeqCst);
                }
            });
        }
    });
}

#[test]
fn growth_keeps_addresses_and_adds_zeroes() {
    let config = Config { reserve: 4 * 4096, ..Config::default() };
    let m = FaultMedium::new(4096, MediumKind::Dax, &config);
    put(&m, 0, 1);
    let at = m.view(0, 4096).unwrap();
    assert_eq!(m.view(4096, 1), None);
    let seen = record(&m);
    m.grow(3 * 4096).unwrap();
    assert_eq!(m.len(), 3 * 4096);
    assert_eq!(m.view(0, 3 * 4096), Some(at));
    assert_eq!((get(&m, 0), get(&m, 2 * 4096)), (1, 0));
    put(&m, 2 * 4096, 5);
    m.drain(D);
    assert_eq!(persisted(&m, 2 * 4096), 5);
    assert_eq!(m.crash_point().persisted().bytes().len(), 3 * 4096);
    assert_eq!(seen.lock().unwrap()[0].1, SiteKind::Grow);
    for refused in [5 * 4096, 2 * 4096, 4096 * 3 + 1] {
        assert!(m.grow(refused).is_err(), "{refused}");
    }
    assert!(dax().grow(4 * 4096).is_err(), "no reserve");
}

#[test]
fn an_image_of_any_length_is_a_medium() {
    for len in [0, 1, 7, 8, 511, 4095, 4097] {
        let m = FaultMedium::from_image(vec![3; len], MediumKind::File, &Config::default());
        assert_eq!(m.len(), len as u64);
        assert!(m.read(0, &mut vec![0; len + 1]).is_err());
        if len > 0 {
            m.put(S, len as u64 - 1, &[9]).unwrap();
            let images: Vec<u8> = images(&m).iter().map(|image| image.bytes()[len - 1]).collect();
            assert_eq!(images, [3, 9]);
        }
        assert!(images(&m).iter().all(|image| image.bytes().len() == len));
    }
}
