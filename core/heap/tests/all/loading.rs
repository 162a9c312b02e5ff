//! What an open makes of a directory: the heap that was there, or the entries that are bad. No
//! bytes, damaged or forged, lead outside the zone or to a panic.

use crate::common::{PAGE, START, Zone, pattern, region};
use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_heap::format::CHUNK_LEN;
use holdfast_heap::verify::Direct;
use holdfast_heap::{BadEntry, Cache, ChunkEntry, ChunkKind, Heap};
use holdfast_layout::{Certify, SumKind};
use holdfast_pmem::{Medium, MediumKind};
use proptest::prelude::*;

#[test]
fn objects_are_found_again_and_reservations_are_forgotten() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    let mut live = Vec::new();
    let mut dropped = Vec::new();
    for i in 0..120_usize {
        let len = [64, 300, 1280, 9000][i % 4];
        let Some(spot) = zone.reserve(&mut cache, len) else { continue };
        if i % 3 == 0 {
            dropped.push(spot);
        } else {
            zone.commit(&spot, &pattern(i as u64, len as usize));
            live.push(spot);
        }
    }
    assert!(live.len() > 20 && dropped.len() > 10);
    let zone = zone.reopened();
    let mut found = Vec::new();
    zone.heap.for_each_live(&zone.m, &mut |spot, _| found.push(spot.object), &mut |spot, error| {
        panic!("{spot:?} {error}")
    });
    let mut expected: Vec<u64> = live.iter().map(|spot| spot.object).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    // Chunks and places that were only reserved can be had again, and no others.
    let mut cache = Cache::default();
    let mut again = Vec::new();
    while let Some(spot) = zone.reserve(&mut cache, 64) {
        assert!(!expected.contains(&spot.object));
        again.push(spot.object);
    }
    let small = dropped.iter().filter(|spot| spot.capacity == 64);
    assert!(small.clone().count() > 3);
    for spot in small {
        assert!(again.contains(&spot.object), "{:#x} leaked", spot.object);
    }
}

#[test]
fn a_place_freed_before_its_run_is_known_is_not_lent_while_the_commit_is_under_way() {
    let zone = Zone::new(8, 8192);
    let mut cache = Cache::default();
    let spot = zone.reserve(&mut cache, 64).unwrap();
    zone.commit(&spot, &[1; 64]);
    let zone = zone.reopened();
    // The run is made known first, then the slot says free, then the place is given back: in
    // between nobody may have it.
    zone.heap.know_run(&zone.m, &spot).unwrap();
    let mut slot = zone.slot(&spot).freed();
    slot.sum = zone.heap.sums().free_slot(spot.object, &slot);
    zone.store(spot.slot, &slot.encode());
    let mut other = Cache::default();
    let mut count = 0;
    while let Ok(lent) = zone.heap.reserve(&zone.m, &mut other, 64) {
        assert_ne!(lent.object, spot.object);
        count += 1;
    }
    assert_eq!(count + 1, zone.places().len());
    zone.heap.release(&mut other, &spot);
    assert_eq!(zone.heap.reserve(&zone.m, &mut other, 64).map(|s| s.object), Ok(spot.object));
}

#[test]
fn a_bad_entry_is_named_and_the_chunk_stays_as_it_was_known() {
    let zone = Zone::new(20, 8192);
    assert!(zone.format_run(3));
    let before = zone.table().entry(0);
    let at = zone.table().entry_at(0);
    for byte in 0..CHUNK_LEN as u64 {
        zone.m.flip_bit(at + byte, 5).unwrap();
        assert_eq!(zone.heap.load_zone(&Direct(&zone.m), 0), [BadEntry { at, media: None }]);
        assert_eq!(zone.table().entry(0), before);
        zone.m.flip_bit(at + byte, 5).unwrap();
    }
    zone.m.poison(at, PAGE, Clear::Able).unwrap();
    let bad = zone.heap.load_zone(&Direct(&zone.m), 0);
    assert_eq!(bad.len(), zone.table().chunks() as usize);
    assert!(bad.iter().all(|entry| entry.media.is_some()));
    assert_eq!(zone.table().entry(0), before);
}

#[test]
fn an_entry_of_another_chunk_is_bad() {
    // A misdirected write of the directory: valid bytes, one entry further.
    let zone = Zone::new(20, 8192);
    assert!(zone.format_run(3));
    let (from, to) = (zone.table().entry_at(0), zone.table().entry_at(1));
    let mut bytes = [0; CHUNK_LEN];
    zone.m.read(from, &mut bytes).unwrap();
    zone.store(to, &bytes);
    assert_eq!(zone.heap.load_zone(&Direct(&zone.m), 0), [BadEntry { at: to, media: None }]);
}

#[test]
fn a_pool_has_a_bounded_number_of_zones_and_says_when_they_are_all_used() {
    let heap = Heap::new(1, SumKind::Crc32c);
    for i in 0..holdfast_heap::heap::ZONES_MAX as u64 {
        let at = START + i * 4 * PAGE;
        assert_eq!(heap.add_zone(&region(at, 4, 4096)), Some(i as u8));
        assert_eq!(heap.zone_of(at).map(|z| z.index()), Some(i as u8));
    }
    assert_eq!(heap.add_zone(&region(1 << 40, 4, 4096)), None);
    assert_eq!(heap.zones().count(), holdfast_heap::heap::ZONES_MAX);
}

#[test]
fn entries_that_lead_out_of_the_zone_are_refused() {
    let zone = Zone::new(40, 8192);
    let table = zone.table();
    let entry = |kind, class, count| ChunkEntry { kind, class, generation: 1, count };
    for (chunk, entry, plausible) in [
        (0, entry(ChunkKind::Free, 99, 99), true),
        (0, entry(ChunkKind::Log, 99, 99), true),
        (0, entry(ChunkKind::Run, 0, 0), true),
        (0, entry(ChunkKind::Run, 31, 0), false),
        (0, entry(ChunkKind::Run, 32, 0), false),
        (0, entry(ChunkKind::Run, 255, 0), false),
        (0, entry(ChunkKind::Large, 0, 19), true),
        (0, entry(ChunkKind::Large, 0, 20), false),
        (18, entry(ChunkKind::Large, 0, 1), true),
        (18, entry(ChunkKind::Large, 0, 2), false),
        (18, entry(ChunkKind::Large, 0, u32::MAX), false),
        (5, entry(ChunkKind::Large, 0, 0), false),
        (5, entry(ChunkKind::Tail, 0, 0), false),
        (5, entry(ChunkKind::Tail, 0, 5), true),
        (5, entry(ChunkKind::Tail, 0, 6), false),
    ] {
        zone.write_entry(chunk, &entry);
        let at = table.entry_at(chunk);
        let expected = if plausible { Ok(()) } else { Err(BadEntry { at, media: None }) };
        assert_eq!(zone.heap.load_entry(&Direct(&zone.m), 0, chunk), expected, "{entry:?}");
    }
}

/// Everything a heap offers that follows what the directory says.
fn walk(zone: &Zone) {
    let table = zone.table();
    let end = START + zone.region.len;
    for chunk in 0..table.chunks() {
        let Some(entry) = table.entry(chunk) else { continue };
        assert!(table.plausible(chunk, &entry));
        table.each_place(chunk, &mut |spot| {
            assert!(spot.slot >= START && spot.object >= START);
            assert!(spot.object + spot.capacity <= end, "{spot:?}");
            assert_eq!(table.locate(spot.object), Some(*spot));
        });
    }
    zone.heap.space(&zone.m);
    let mut units = 0;
    table.units_over(START, zone.region.len, &mut |unit| {
        let (at, len) = unit.range();
        assert!(at >= START && at + len <= end, "{unit:?}");
        let found = unit.check(
            &holdfast_heap::verify::Direct(&zone.m),
            zone.heap.sums(),
            Certify::when(true),
        );
        assert!(found.is_ok(), "{unit:?} {found:?}");
        units += 1;
    });
    assert!(units >= table.chunks());
    let met = zone.heap.log_chunk_in(START, zone.region.len);
    assert!(met.is_none_or(|(at, len)| at >= START && at + len <= end));
    let mut cache = Cache::default();
    for len in [1, 700, 8192, 20_000] {
        if let Ok(spot) = zone.heap.reserve(&zone.m, &mut cache, len) {
            assert!(spot.object + spot.capacity <= end);
            zone.heap.release(&mut cache, &spot);
        }
    }
    while let Some((_, chunk, _)) = zone.heap.claim_empty_run(&zone.m) {
        assert!(chunk < table.chunks());
    }
}

fn forged() -> impl Strategy<Value = ChunkEntry> {
    let kind = prop_oneof![
        Just(ChunkKind::Free),
        Just(ChunkKind::Run),
        Just(ChunkKind::Large),
        Just(ChunkKind::Tail),
        Just(ChunkKind::Log),
    ];
    let count = prop_oneof![0..30_u32, any::<u32>()];
    (kind, 0..40_u8, any::<u16>(), count).prop_map(|(kind, class, generation, count)| ChunkEntry {
        kind,
        class,
        generation,
        count,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Entries whose sums are right and whose contents are anything: the worst a medium can say.
    #[test]
    fn forged_entries_are_refused_or_stay_inside(
        entries in prop::collection::vec(forged(), 19),
        noise in any::<u64>(),
    ) {
        let zone = Zone::new(40, 8192);
        prop_assert_eq!(zone.table().chunks(), 19);
        zone.store(zone.table().chunk_at(0), &pattern(noise, 19 * 8192));
        for (chunk, entry) in entries.iter().enumerate() {
            zone.write_entry(chunk as u32, entry);
        }
        zone.heap.load_zone(&Direct(&zone.m), 0);
        walk(&zone);
    }

    #[test]
    fn a_directory_of_noise_is_refused_entry_by_entry(noise in any::<u64>()) {
        let zone = Zone::new(40, 8192);
        zone.store(START, &pattern(noise, 40 * 4096));
        let bad = zone.heap.load_zone(&Direct(&zone.m), 0);
        prop_assert_eq!(bad.len(), 19, "no 32 bytes of noise have a right sum");
        walk(&zone);
    }

    #[test]
    fn any_geometry_that_the_region_table_lets_through_has_its_chunks_inside(
        data_rows in 1..254_u32,
        pages in 1..64_u64,
        shift in 12..24_u32,
    ) {
        let region = holdfast_layout::Region {
            data_rows,
            chunk: 1 << shift,
            ..region(START, pages, 4096)
        };
        let heap = Heap::new(1, SumKind::Crc32c);
        prop_assert_eq!(heap.add_zone(&region), Some(0));
        let table = heap.zone(0).unwrap();
        let end = START + region.row_len * u64::from(data_rows);
        let chunks = table.chunks();
        prop_assert!(table.chunk_at(chunks) <= end || chunks == 0);
        prop_assert!(table.entry_at(chunks) <= table.chunks_at());
        // No chunk more would have fitted, directory entry included.
        let more = u64::from(chunks + 1);
        let directory = (more * CHUNK_LEN as u64).next_multiple_of(PAGE);
        prop_assert!(directory + (more << shift) > end - START);
        prop_assert_eq!(table.chunk_of(table.chunk_at(chunks)), None);
        let m = FaultMedium::new(4096, MediumKind::Shm, &Config::default());
        let bad = heap.load_zone(&Direct(&m), 0).len();
        prop_assert_eq!(bad, chunks as usize, "all beyond the medium");
    }
}
