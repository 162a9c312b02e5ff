//! Chunks change hands: claimed by one transaction at a time, given back as they were, and taken
//! from runs only when nothing is in them.

use crate::common::{Zone, pattern};
use holdfast_heap::{Cache, ChunkEntry, ChunkKind};

/// Times that each of two threads looks for a run that it could recycle.
const TURNS: u32 = 10_000;

#[test]
fn a_claimed_chunk_is_nobody_elses_until_it_is_given_back() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    let first = table.claim(3).unwrap();
    assert_eq!(table.entry(first), None, "reserved: neither free nor anything else");
    assert_eq!(table.reserved(first, ChunkKind::Free), Some(ChunkEntry::VIRGIN));
    let mut others = Vec::new();
    while let Some(chunk) = table.claim(1) {
        assert!(!(first..first + 3).contains(&chunk));
        assert!(!others.contains(&chunk));
        others.push(chunk);
    }
    assert_eq!(others.len() as u32, table.chunks() - 3);
    (first..first + 3).for_each(|chunk| table.unreserve(chunk, ChunkKind::Free));
    assert_eq!(table.entry(first), Some(ChunkEntry::VIRGIN));
    assert_eq!(table.claim(3), Some(first));
}

#[test]
fn a_claim_is_of_neighbours_or_of_nothing() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    let all = table.chunks();
    assert_eq!((table.claim(0), table.claim(all + 1), table.claim(u32::MAX)), (None, None, None));
    // Every third chunk is in use: two neighbours can be had, three cannot.
    for chunk in (0..all).step_by(3) {
        table.set(chunk, &ChunkEntry { kind: ChunkKind::Log, ..ChunkEntry::VIRGIN });
    }
    assert_eq!(table.claim(3), None);
    let free = |chunk: &u32| table.entry(*chunk).is_some_and(|e| e.kind == ChunkKind::Free);
    assert_eq!((0..all).filter(free).count() as u32, all - all.div_ceil(3), "nothing stays taken");
    let mut pairs = 0;
    while let Some(first) = table.claim(2) {
        assert_eq!(first % 3, 1);
        pairs += 1;
    }
    assert_eq!(pairs, all / 3);
}

#[test]
fn generation_and_class_survive_a_claim_that_came_to_nothing() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    let before = ChunkEntry { kind: ChunkKind::Free, class: 0, generation: 41, count: 0 };
    table.set(2, &before);
    assert!(table.reserve_if(2, ChunkKind::Free));
    assert!(!table.reserve_if(2, ChunkKind::Free), "once");
    assert_eq!(table.reserved(2, ChunkKind::Free), Some(before));
    table.unreserve(2, ChunkKind::Free);
    assert_eq!(table.entry(2), Some(before));
    // What is not reserved cannot be given back as something else.
    table.unreserve(2, ChunkKind::Log);
    assert_eq!(table.entry(2), Some(before));
    assert!(!table.reserve_if(2, ChunkKind::Run));
    assert!(!table.reserve_if(u32::MAX, ChunkKind::Free));
    table.unreserve(u32::MAX, ChunkKind::Free);
}

#[test]
fn generations_rise_with_every_change_of_kind_and_wrap() {
    let run = ChunkEntry::VIRGIN.next(ChunkKind::Run, 4, 0);
    assert_eq!((run.kind, run.class, run.generation), (ChunkKind::Run, 4, 1));
    let last = ChunkEntry { generation: u16::MAX, ..run };
    assert_eq!(last.next(ChunkKind::Free, 0, 0).generation, 0);
}

#[test]
fn an_aborted_large_object_gives_all_its_chunks_back() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    let before = zone.heap.space(&zone.m);
    let spot = zone.reserve(&mut cache, 50_000).unwrap();
    assert!(spot.chunks > 6);
    assert_eq!(
        zone.heap.space(&zone.m).free_chunks,
        before.free_chunks - u64::from(spot.chunks) * 8192
    );
    zone.heap.release(&mut cache, &spot);
    assert_eq!(zone.heap.space(&zone.m), before);
}

#[test]
fn only_a_run_without_objects_and_reservations_is_taken_out_of_service() {
    let zone = Zone::new(40, 8192);
    let (mut cache, mut other) = (Cache::default(), Cache::default());
    let spot = zone.reserve(&mut cache, 64).unwrap();
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None, "places of it are in a cache");
    zone.commit(&spot, &pattern(1, 64));
    zone.heap.flush(&mut cache);
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None, "an object is in it");
    zone.free(&mut other, &spot);
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None, "the freed place is in a cache");
    zone.heap.flush(&mut other);
    let (at, chunk, entry) = zone.heap.claim_empty_run(&zone.m).unwrap();
    assert_eq!((at, chunk, entry.kind), (0, spot.chunk, ChunkKind::Run));
    assert_eq!(zone.heap.claim_empty_run(&zone.m), None, "taken once");
    // Nothing is handed out of it any more, and nobody else gets the chunk.
    assert!(zone.heap.reserve(&zone.m, &mut cache, 64).is_err());
    assert_ne!(zone.table().claim(1), Some(chunk));
}

/// Two threads make one chunk a run over and over. What one of them saw of it before it had to wait
/// for the other is a run that was.
#[test]
fn a_run_is_taken_out_of_service_as_what_it_is_by_then() {
    let zone = Zone::new(4, 8192);
    assert!(zone.format_run(0));
    let recycle = || {
        for _ in 0..TURNS {
            let Some((at, chunk, run)) = zone.heap.claim_empty_run(&zone.m) else { continue };
            assert_eq!(zone.table().reserved(chunk, ChunkKind::Run), Some(run), "another by now");
            zone.heap.publish(at, chunk, &run.next(ChunkKind::Free, 0, 0));
            let (at, chunk, free) = zone.heap.claim_chunk().unwrap();
            zone.heap.publish(at, chunk, &free.next(ChunkKind::Run, run.class, 0));
            // Whoever looks at it next reads all of it, for which the other one has to wait.
            zone.heap.forget_run(at, chunk);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(recycle);
        recycle();
    });
}

#[test]
fn a_run_whose_recycling_failed_goes_on_in_service() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    assert!(zone.format_run(0));
    let (_, chunk, entry) = zone.heap.claim_empty_run(&zone.m).unwrap();
    zone.table().set(chunk, &entry);
    zone.heap.forget_run(0, chunk);
    let mut count = 0;
    while zone.heap.reserve(&zone.m, &mut cache, 64).is_ok() {
        count += 1;
    }
    assert_eq!(count, zone.places().len());
}

#[test]
fn a_recycled_chunk_starts_a_new_life() {
    let zone = Zone::new(4, 8192);
    let mut cache = Cache::default();
    let first = zone.reserve(&mut cache, 64).unwrap();
    zone.commit(&first, &[1; 64]);
    let old = zone.slot(&first);
    zone.free(&mut cache, &first);
    zone.heap.flush(&mut cache);
    assert!(zone.recycle());
    let second = zone.reserve(&mut cache, 64).unwrap();
    zone.commit(&second, &[1; 64]);
    let new = zone.slot(&second);
    assert_eq!(second.object, first.object, "the same place");
    assert_ne!(new.generation, old.generation, "a pointer kept too long is told from a new one");
    assert_ne!(new.sum, old.sum);
}

#[test]
fn an_emptied_run_is_found_although_it_was_never_read_since_the_open() {
    let zone = Zone::new(40, 8192);
    assert!(zone.format_run(5));
    let zone = zone.reopened();
    let (_, chunk, entry) = zone.heap.claim_empty_run(&zone.m).unwrap();
    assert_eq!((chunk, entry.class), (0, 5));
}

#[test]
fn log_chunks_are_found_in_the_ranges_they_meet() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    for chunk in [3, 7] {
        zone.become_kind(chunk, &ChunkEntry::VIRGIN.next(ChunkKind::Log, 0, 0));
    }
    let log = |chunk| Some((table.chunk_at(chunk), 8192));
    let find = |at, len| zone.heap.log_chunk_in(at, len);
    assert_eq!(find(table.entry_at(0), 1 << 20), log(3), "the directory is none");
    assert_eq!(find(table.chunk_at(0), 3 * 8192), None);
    assert_eq!(find(table.chunk_at(0), 3 * 8192 + 1), log(3));
    assert_eq!(find(table.chunk_at(3) + 8191, 1), log(3));
    assert_eq!(find(table.chunk_at(4), 8192), None);
    assert_eq!(find(table.chunk_at(4), 1 << 30), log(7));
    assert_eq!(find(table.chunk_at(8), u64::MAX), None);
    assert_eq!(find(table.chunk_at(3), 0), None);
    assert_eq!(find(0, u64::MAX), None, "outside the zone");
}

#[test]
fn threads_claim_different_chunks() {
    let zone = Zone::new(800, 4096);
    let mut claimed: Vec<u32> = std::thread::scope(|scope| {
        let claim = |size: u32| {
            let zone = &zone;
            scope.spawn(move || {
                let mut mine = Vec::new();
                for round in 0..300 {
                    let Some(first) = zone.table().claim(size) else { break };
                    if round % 5 == 0 {
                        (first..first + size)
                            .for_each(|c| zone.table().unreserve(c, ChunkKind::Free));
                    } else {
                        mine.extend(first..first + size);
                    }
                }
                mine
            })
        };
        let threads = [claim(1), claim(2), claim(3)];
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    let all = claimed.len();
    claimed.sort_unstable();
    claimed.dedup();
    assert_eq!(claimed.len(), all, "no chunk twice");
    assert!(all > 300);
    // A claim that lost a race half way gives back what it had.
    for chunk in 0..zone.table().chunks() {
        let free = zone.table().entry(chunk) == Some(ChunkEntry::VIRGIN);
        assert_eq!(free, claimed.binary_search(&chunk).is_err(), "chunk {chunk}");
    }
}
