//! The record of calls: which call made which store, where it stands, what it was for.

use std::sync::{Arc, Mutex};

use holdfast_faultmem::{Config, FaultMedium, GROW, Pick, SiteKind};
use holdfast_pmem::{Medium, MediumKind, Site};

use crate::common::{D, S, images, persisted, word};

fn traced(kind: MediumKind) -> FaultMedium {
    FaultMedium::new(2 * 4096, kind, &Config { trace: true, ..Config::default() })
}

#[test]
fn calls_carry_their_place_also_through_a_shared_medium() {
    fn save<M: Medium>(m: &M) {
        m.put(S, 0, &7_u64.to_le_bytes()).unwrap();
        m.drain(D);
    }
    let shared = Arc::new(traced(MediumKind::Dax));
    save(&shared);
    let calls = shared.trace();
    let kinds: Vec<_> = calls.iter().map(|call| (call.site, call.kind)).collect();
    assert_eq!(kinds, [(S, SiteKind::Put), (D, SiteKind::Drain)]);
    assert!(calls.iter().all(|call| call.place.file().ends_with("traces.rs")), "{calls:?}");
    assert_eq!(calls[1].place.line(), calls[0].place.line() + 1);
}

#[test]
fn a_store_is_found_by_its_number() {
    let m = traced(MediumKind::Dax);
    m.put(S, 0, &[1; 16]).unwrap();
    m.put(S, 64, &[2; 8]).unwrap();
    let (units, calls) = (m.crash_point().unit_states(), m.trace());
    let makers: Vec<_> = units
        .iter()
        .map(|unit| (unit.at, calls.iter().position(|call| call.made(unit.stores[0]))))
        .collect();
    assert_eq!(makers, [(0, Some(0)), (8, Some(0)), (64, Some(1))]);
}

#[test]
fn an_image_of_choice_has_what_was_chosen() {
    let m = traced(MediumKind::Dax);
    m.put(S, 0, &[1; 16]).unwrap();
    let point = m.crash_point();
    let pick = |at, state| Pick { at, state, of: 2 };
    let image = point.image_of(&[pick(8, 1)]).unwrap();
    assert_eq!((word(image.bytes(), 0), word(image.bytes(), 8)), (0, u64::from_le_bytes([1; 8])));
    assert!(images(&m).iter().any(|listed| listed.fingerprint() == image.fingerprint()));
    assert_eq!(point.image_of(&[]).unwrap().fingerprint(), point.persisted().fingerprint());
    assert!(point.image_of(&[pick(16, 1)]).is_none() && point.image_of(&[pick(0, 2)]).is_none());
}

#[test]
fn stores_and_flushes_come_apart() {
    let m = traced(MediumKind::Dax);
    m.store(S, 0, &[1; 8]).unwrap();
    m.drain(D);
    assert_eq!(persisted(&m, 0), 0, "nothing was flushed");
    m.flush(S, 0, 8).unwrap();
    m.store(S, 0, &[2; 8]).unwrap();
    m.drain(D);
    assert_eq!(persisted(&m, 0), u64::from_le_bytes([1; 8]), "the flush saw the first value");
    assert!(m.flush(S, 2 * 4096, 1).is_err());
}

#[test]
fn what_had_nothing_to_do_is_told() {
    let m = traced(MediumKind::Dax);
    m.drain(D);
    m.store(S, 0, &[1; 8]).unwrap();
    for _ in 0..2 {
        m.flush(S, 0, 8).unwrap();
    }
    m.drain(D);
    m.flush(S, 0, 8).unwrap();
    let redundant: Vec<_> = m.trace().iter().map(|call| call.is_redundant()).collect();
    assert_eq!(redundant, [true, false, false, true, false, true]);
}

#[test]
fn a_flush_that_comes_with_a_store_and_had_nothing_to_do_is_told() {
    let m = traced(MediumKind::Dax);
    m.put(S, 0, &[1; 128]).unwrap();
    m.put(S, 0, &[1; 128]).unwrap();
    m.put(S, 0, &[[1; 64], [2; 64]].concat()).unwrap();
    let told: Vec<_> = m.trace().iter().map(|c| (c.flushed, c.wasted, c.is_redundant())).collect();
    assert_eq!(told, [(2, 0, false), (2, 2, true), (2, 1, false)]);
}

#[test]
fn growth_is_recorded_where_it_is_asked_for() {
    fn longer<M: Medium>(m: &M, len: u64) {
        m.grow(len).unwrap();
    }
    let config = Config { trace: true, reserve: 4 * 4096, ..Config::default() };
    let m = Arc::new(FaultMedium::new(4096, MediumKind::Dax, &config));
    m.put(S, 0, &[1; 8]).unwrap();
    let at_barrier = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&at_barrier);
    m.on_barrier(Box::new(move |_, _, point| seen.lock().unwrap().push(point.calls())));
    longer(&m, 3 * 4096);
    longer(&m, 3 * 4096); // as long as it is
    assert!(m.grow(4096).is_err());
    let calls = m.trace();
    assert_eq!(calls.len(), 2, "{calls:?}");
    let call = calls[1];
    assert_eq!((call.site, call.kind, call.at, call.len), (GROW, SiteKind::Grow, 4096, 2 * 4096));
    assert_eq!(call.place.line(), calls[0].place.line() - 4, "{calls:?}");
    assert!(call.is_barrier() && !call.is_redundant() && !call.made(1), "{call:?}");
    assert_eq!(*at_barrier.lock().unwrap(), [2], "the record has it before it takes effect");
}

#[test]
fn a_flush_switched_off_is_not_made_and_nothing_is_recorded_unless_asked_for() {
    let m = traced(MediumKind::Dax);
    let off = Site::new("test.off");
    m.elide(off);
    m.store(S, 0, &[1; 8]).unwrap();
    m.flush(off, 0, 8).unwrap();
    m.drain(D);
    assert_eq!(persisted(&m, 0), 0);
    let silent = FaultMedium::new(4096, MediumKind::Dax, &Config::default());
    silent.put(S, 0, &[1; 8]).unwrap();
    silent.drain(D);
    assert!(silent.trace().is_empty() && silent.crash_point().calls() == 0);
}

#[test]
fn a_file_records_its_syncs_and_appends() {
    let m = traced(MediumKind::File);
    m.append(S, 0, &[1; 8]).unwrap();
    m.put(S, 512, &[1; 8]).unwrap();
    m.sync(D).unwrap();
    m.sync(D).unwrap();
    let calls: Vec<_> =
        m.trace().iter().map(|c| (c.kind, c.is_barrier(), c.is_redundant())).collect();
    let expected = [
        (SiteKind::Append, true, false),
        (SiteKind::Put, false, false),
        (SiteKind::Sync, true, false),
        (SiteKind::Sync, true, true),
    ];
    assert_eq!(calls, expected);
}
