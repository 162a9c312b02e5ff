//! Negative controls: a commit protocol passes, and fails with any of its sites switched off.

use crate::common::*;
use holdfast_faultmem::{Budget, Config, FaultMedium, SiteKind};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Places of the pair, of its copy in the record, and of the sum behind the copy. Both pairs lie
/// in two sectors, so that a file can tear them too.
const PAIR: [u64; 2] = [0, 512];
const COPY: [u64; 2] = [4096, 4096 + 512];
const SUM: u64 = COPY[1] + 8;

const PUT_RECORD: Site = Site::new("toy.record");
const F1: Site = Site::new("toy.F1");
const PUT_DATA: Site = Site::new("toy.data");
const F2: Site = Site::new("toy.F2");
const CHECK: Site = Site::new("toy.check");

fn sum(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1
}

/// Both words of the pair become `value`, or neither: record, F1, data, F2.
fn commit(m: &FaultMedium, value: u64) -> Result<(), SyncError> {
    let mut record = [0; (SUM + 8 - COPY[0]) as usize];
    for (at, word) in [(COPY[0], value), (COPY[1], value), (SUM, sum(value))] {
        let at = (at - COPY[0]) as usize;
        record[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let failed = |e: MediaError| SyncError { call: "put", source: std::io::Error::other(e) };
    if m.kind() == MediumKind::File {
        m.append(PUT_RECORD, COPY[0], &record)?;
    } else {
        m.put(PUT_RECORD, COPY[0], &record).map_err(failed)?;
        m.drain(F1);
    }
    for at in PAIR {
        m.put(PUT_DATA, at, &value.to_le_bytes()).map_err(failed)?;
    }
    if m.kind() == MediumKind::File {
        m.sync(F2)
    } else {
        m.drain(F2);
        Ok(())
    }
}

fn recover(m: &FaultMedium) -> [u64; 2] {
    let copy = COPY.map(|at| get(m, at));
    let good = copy[0] == copy[1] && get(m, SUM) == sum(copy[0]);
    if good || !m.enabled(CHECK) { copy } else { PAIR.map(|at| get(m, at)) }
}

/// Commits 1, 2, 3 with a site switched off; counts the images that recover to a wrong state.
fn wrong_images(kind: MediumKind, off: Option<Site>) -> (u64, u64) {
    let m = FaultMedium::new(2 * 4096, kind, &Config::default());
    off.into_iter().for_each(|site| m.elide(site));
    let counts = Arc::new([const { AtomicU64::new(0) }; 3]);
    let shared = Arc::clone(&counts);
    m.on_barrier(Box::new(move |_, _, point| {
        let [acked, wrong, images] = &*shared;
        for image in point.images(&Budget::default()) {
            let m = FaultMedium::from_crash(image, kind, &Config::default());
            off.into_iter().for_each(|site| m.elide(site));
            let [a, b] = recover(&m);
            let acked = acked.load(SeqCst);
            images.fetch_add(1, SeqCst);
            wrong.fetch_add(u64::from(a != b || (a != acked && a != acked + 1)), SeqCst);
        }
    }));
    for value in 1..=3 {
        commit(&m, value).expect("nothing fails here");
        counts[0].store(value, SeqCst);
    }
    (counts[1].load(SeqCst), counts[2].load(SeqCst))
}

#[test]
fn the_right_protocol_passes() {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        let (wrong, images) = wrong_images(kind, None);
        assert_eq!(wrong, 0, "{kind}");
        assert!(images >= 18, "{kind}: {images} images are too few to mean anything");
    }
}

#[test]
fn every_site_of_the_memory_protocol_is_needed() {
    for site in [PUT_RECORD, F1, PUT_DATA, F2, CHECK] {
        assert!(wrong_images(MediumKind::Dax, Some(site)).0 > 0, "{site} survived");
    }
}

#[test]
fn every_site_of_the_file_protocol_is_needed() {
    for site in [PUT_RECORD, F2, CHECK] {
        assert!(wrong_images(MediumKind::File, Some(site)).0 > 0, "{site} survived");
    }
}

#[test]
fn sites_are_listed_with_kind_and_count() {
    let m = dax();
    let unknown = m.sites_seen();
    assert!(unknown.is_empty());
    commit(&m, 1).unwrap();
    assert!(m.enabled(CHECK));
    m.step(Site::new("toy.step"));
    let seen: Vec<_> = m.sites_seen();
    let expected = [
        (F1, SiteKind::Drain, 1),
        (F2, SiteKind::Drain, 1),
        (CHECK, SiteKind::Enabled, 1),
        (PUT_DATA, SiteKind::Put, 2),
        (PUT_RECORD, SiteKind::Put, 1),
        (Site::new("toy.step"), SiteKind::Step, 1),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn sites_are_listed_while_switched_off_too() {
    let m = dax();
    m.elide(F1);
    m.drain(F1);
    assert_eq!(m.sites_seen(), [(F1, SiteKind::Drain, 1)]);
    assert_eq!(m.counters().drains, 0);
}

#[test]
fn one_deed_of_a_place_is_switched_off_by_itself() {
    let m = dax();
    m.elide_name(&SiteKind::Put.at(PUT_DATA));
    assert!(m.enabled(PUT_DATA), "only the flush is switched off");
    m.put(PUT_DATA, 0, &[7; 8]).unwrap();
    m.drain(F1);
    assert_eq!(m.crash_point().persisted().bytes()[..8], [0; 8]);
    m.restore_sites();
    m.put(PUT_DATA, 64, &[7; 8]).unwrap();
    m.drain(F1);
    assert_eq!(m.crash_point().persisted().bytes()[64..72], [7; 8]);
    // Each line of the source by itself, here of this test.
    let kinds: Vec<SiteKind> = m.passed().iter().map(|(_, kind, _)| *kind).collect();
    let lines = |kind| kinds.iter().filter(|k| **k == kind).count();
    assert_eq!((lines(SiteKind::Put), lines(SiteKind::Enabled), lines(SiteKind::Drain)), (2, 1, 2));
    assert!(m.passed().iter().all(|(.., at)| at.file().ends_with("elision.rs")));
}
