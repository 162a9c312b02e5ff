//! Zones and chunks that are not there, classes that nothing has: nothing comes of them, and all
//! else stays as it is. And runs that are taken out of service, or give nobody a place any more.

use crate::common::{START, Zone};
use holdfast_faultmem::Clear;
use holdfast_heap::verify::Direct;
use holdfast_heap::{Cache, ChunkEntry, ChunkKind, Spot};
use std::collections::BTreeSet;

/// No shape has this class.
const NO_CLASS: u8 = 200;

#[test]
fn what_is_not_there_is_nobodys() {
    let zone = Zone::new(40, 8192);
    let (heap, table, direct) = (&zone.heap, zone.table(), Direct(&zone.m));
    let mut cache = Cache::default();
    let spot = zone.reserve(&mut cache, 60).unwrap();
    let run = table.entry(spot.chunk).unwrap();
    let chunks = table.chunks();
    let known = || (0..chunks).map(|chunk| table.entry(chunk)).collect::<Vec<_>>();
    let before = known();
    for (index, chunk) in [(1, 0), (u8::MAX, 0), (0, chunks), (0, u32::MAX - 1)] {
        let there = Spot { zone: index, chunk, ..spot };
        if index != 0 {
            assert!(heap.zone(index).is_none());
            assert!(heap.load_entry(&direct, index, chunk).is_ok());
            assert!(heap.load_zone(&direct, index).is_empty());
        }
        assert!(!heap.claim_unread_run(index, chunk));
        heap.shut_run(index, chunk);
        heap.show_run(index, chunk, &run);
        heap.publish(index, chunk, &run);
        heap.forget_run(index, chunk);
        heap.know_run(&zone.m, &there).unwrap();
        heap.release(&mut cache, &Spot { class: Spot::LARGE, chunks: 1, ..there });
        heap.release(&mut cache, &there);
        heap.flush(&mut cache);
        table.each_place(chunks, &mut |spot| panic!("{spot:?}"));
    }
    heap.release(&mut cache, &Spot { class: NO_CLASS, ..spot });
    heap.show_run(0, spot.chunk, &ChunkEntry { class: NO_CLASS, ..run });
    assert_eq!(known(), before);
    // Places are still given out once each, and only where there are any.
    let mut all = BTreeSet::from([spot.object]);
    while let Some(spot) = zone.reserve(&mut cache, 60) {
        assert!(spot.zone == 0 && spot.chunk < chunks, "{spot:?}");
        assert!(all.insert(spot.object), "{spot:?}");
    }
}

#[test]
fn objects_are_found_where_they_begin_and_nowhere_else() {
    let zone = Zone::new(40, 8192);
    let spot = zone.reserve(&mut Cache::default(), 60).unwrap();
    let (table, run) = (zone.table(), zone.table().entry(spot.chunk).unwrap());
    let shape = table.shape(run.class).unwrap();
    assert_eq!(table.locate(spot.object), Some(spot));
    assert_eq!(spot.sum_at(0), spot.slot, "the first granule's sum is in the slot");
    assert_eq!(table.locate(spot.object + 8), None, "in the middle of one");
    let first = table.chunk_at(spot.chunk) + u64::from(shape.objects);
    let end = first + u64::from(shape.places * shape.size);
    assert_eq!(table.locate(first - 8), None, "before all of them");
    assert!(table.locate(end - u64::from(shape.size)).is_some());
    assert_eq!(table.locate(end), None, "behind all of them");
}

#[test]
fn a_run_of_no_class_is_passed_over() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    let odd = ChunkEntry { kind: ChunkKind::Run, class: NO_CLASS, generation: 1, count: 0 };
    table.set(2, &odd);
    table.each_place(2, &mut |spot| panic!("{spot:?}"));
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None);
    assert!(!zone.heap.claim_unread_run(0, 2));
    zone.heap.shut_run(0, 2);
    assert_eq!(table.entry(2), Some(odd));
    assert_eq!(table.locate(table.chunk_at(2)), None);
}

#[test]
fn a_run_that_nobody_has_looked_into_can_be_taken_once() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    let spot = zone.reserve(&mut cache, 60).unwrap();
    let (heap, table) = (&zone.heap, zone.table());
    assert!(!heap.claim_unread_run(0, spot.chunk), "its places are known");
    let other = table.claim(1).unwrap();
    assert!(!heap.claim_unread_run(0, other), "it is no run");
    heap.forget_run(0, spot.chunk);
    assert!(heap.claim_unread_run(0, spot.chunk));
    assert!(!heap.claim_unread_run(0, spot.chunk), "once");
    assert_eq!(table.entry(spot.chunk), None, "reserved");
    // Nobody is given a place of it, although it was on the list of those that have some.
    let mut fresh = Cache::default();
    for _ in 0..50 {
        assert_ne!(zone.reserve(&mut fresh, 60).unwrap().chunk, spot.chunk);
    }
}

#[test]
fn a_run_that_is_shut_gives_nobody_a_place() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    let spot = zone.reserve(&mut cache, 60).unwrap();
    zone.heap.shut_run(0, spot.chunk);
    let mut fresh = Cache::default();
    for _ in 0..50 {
        assert_ne!(zone.reserve(&mut fresh, 60).unwrap().chunk, spot.chunk);
    }
    assert!(zone.table().entry(spot.chunk).is_some(), "it stays a run");
}

#[test]
fn of_empty_runs_one_is_taken_that_can_be_read() {
    let zone = Zone::new(40, 8192);
    for _ in 0..3 {
        assert!(zone.format_run(1));
    }
    let table = zone.table();
    let is_run = |chunk: &u32| table.entry(*chunk).is_some_and(|e| e.kind == ChunkKind::Run);
    let runs: Vec<u32> = (0..table.chunks()).filter(is_run).collect();
    runs.iter().for_each(|chunk| zone.heap.forget_run(0, *chunk));
    let first = table.chunk_at(runs[0]);
    assert!(first > START);
    zone.m.poison(first / 4096 * 4096, 8192, Clear::Able).unwrap();
    // Of the second one a place is in use.
    let entry = table.entry(runs[1]).unwrap();
    let shape = table.shape(entry.class).unwrap();
    zone.commit(&table.spot(runs[1], &entry, &shape, 3), &[7; 20]);
    let (_, taken, before) = zone.heap.claim_empty_run(&zone.m).unwrap();
    assert_eq!((taken, before), (runs[2], table.reserved(runs[2], ChunkKind::Run).unwrap()));
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None, "there is no other");
}
