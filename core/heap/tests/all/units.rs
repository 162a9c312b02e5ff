//! What lies over a range: every unit that has a byte in it, and no other. A repair that is told
//! of one unit too few accepts bytes that nobody verified.

use crate::common::{PAGE, START, Zone, pattern};
use holdfast_heap::class::class_of;
use holdfast_heap::format::{CHUNK_LEN, GRANULE, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::granules;
use holdfast_heap::verify::{Direct, Found};
use holdfast_heap::{Cache, ChunkEntry, ChunkKind, Unit};
use holdfast_layout::Certify;
use proptest::prelude::*;

const CHUNK: u64 = 8192;
const PAGES: u64 = 60;

/// A zone with runs of several classes, large objects, log chunks and free chunks.
fn furnished() -> Zone {
    let zone = Zone::new(PAGES, CHUNK);
    let mut cache = Cache::default();
    for (i, len) in [64, 200, 1000, 1280, 9000, 30_000].into_iter().enumerate() {
        let spot = zone.reserve(&mut cache, len).unwrap();
        zone.commit(&spot, &pattern(i as u64, len as usize));
    }
    let (_, chunk, before) = zone.heap.claim_chunk().unwrap();
    zone.become_kind(chunk, &before.next(ChunkKind::Log, 0, 0));
    zone
}

/// What names a unit, so that sets of them can be compared: granules by place and number.
type Key = (u64, u64);

/// A unit and the byte ranges that belong to it, each from its first byte to its end.
type Owner = (Key, Vec<(u64, u64)>);

fn key(unit: &Unit) -> Key {
    match unit {
        Unit::Entry { at, chunk } => (*at, u64::from(*chunk)),
        Unit::Granule { spot, granule } => (spot.object, *granule),
    }
}

/// Every unit of the zone with the byte ranges that belong to it, from the definition of the
/// format and not from the code under test.
fn all_units(zone: &Zone) -> Vec<Owner> {
    let mut all = Vec::new();
    for chunk in 0..zone.table().chunks() {
        let at = START + u64::from(chunk) * CHUNK_LEN as u64;
        all.push(((at, chunk.into()), vec![(at, at + CHUNK_LEN as u64)]));
    }
    for spot in zone.places() {
        for granule in 0..granules(spot.capacity) {
            let from = spot.object + granule * GRANULE;
            let to = (from + GRANULE).min(spot.object + spot.capacity);
            let word = match granule {
                0 => (spot.slot, spot.slot + SLOT_LEN as u64),
                _ => {
                    let at = spot.sums + (granule - 1) * SUM_LEN;
                    (at, at + SUM_LEN)
                }
            };
            all.push(((spot.object, granule), vec![(from, to), word]));
        }
    }
    all
}

fn named(zone: &Zone, at: u64, len: u64) -> Vec<Key> {
    let mut found = Vec::new();
    zone.table().units_over(at, len, &mut |unit| found.push(key(&unit)));
    found.sort_unstable();
    found.dedup();
    found
}

fn expected(all: &[Owner], at: u64, len: u64) -> Vec<Key> {
    let touches = |(from, to): &(u64, u64)| *from < at + len && at < *to;
    let mut over: Vec<_> =
        all.iter().filter(|(_, ranges)| ranges.iter().any(touches)).map(|(key, _)| *key).collect();
    over.sort_unstable();
    over
}

#[test]
fn every_byte_is_over_the_units_that_own_it() {
    let zone = furnished();
    let all = all_units(&zone);
    let kinds: Vec<_> = (0..zone.table().chunks()).map(|c| zone.table().entry(c)).collect();
    for kind in [ChunkKind::Free, ChunkKind::Run, ChunkKind::Large, ChunkKind::Tail, ChunkKind::Log]
    {
        assert!(kinds.iter().flatten().any(|e| e.kind == kind), "{kind:?} is among them");
    }
    for at in START..START + PAGES * PAGE {
        assert_eq!(named(&zone, at, 1), expected(&all, at, 1), "byte {at:#x}");
    }
}

#[test]
fn no_byte_belongs_to_two_units() {
    let zone = furnished();
    let mut ranges: Vec<_> = all_units(&zone).into_iter().flat_map(|(_, ranges)| ranges).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:x?}");
    }
    assert!(ranges.last().unwrap().1 <= START + PAGES * PAGE);
}

#[test]
fn all_units_of_a_furnished_zone_verify_and_none_does_without_its_bytes() {
    let zone = furnished();
    let mut units = Vec::new();
    zone.table().units_over(START, PAGES * PAGE, &mut |unit| units.push(unit));
    let mut good = 0;
    for unit in &units {
        let found = unit.check(&Direct(&zone.m), zone.heap.sums(), Certify::when(true)).unwrap();
        assert!(!found.is_bad(), "{unit:?}");
        let (at, len) = unit.range();
        let covered = found == Found::Good && matches!(unit, Unit::Entry { .. });
        let live = match unit {
            Unit::Granule { spot, granule } => {
                let slot = zone.slot(spot);
                slot.is_live() && granule * GRANULE < u64::from(slot.len)
            }
            Unit::Entry { .. } => false,
        };
        if covered || live {
            good += 1;
            zone.m.flip_bit(at, 3).unwrap();
            let found =
                unit.check(&Direct(&zone.m), zone.heap.sums(), Certify::when(true)).unwrap();
            assert!(found.is_bad(), "{unit:?} {len}");
            zone.m.flip_bit(at, 3).unwrap();
        }
    }
    assert!(good > 60, "{good}");
}

#[test]
fn ranges_outside_the_zone_are_over_nothing() {
    let zone = furnished();
    let end = START + PAGES * PAGE;
    for (at, len) in [(0, START), (end, 4096), (end, u64::MAX), (u64::MAX, u64::MAX), (START, 0)] {
        assert_eq!(named(&zone, at, len), [], "{at:#x}+{len:#x}");
    }
}

#[test]
fn a_tail_whose_head_is_gone_has_no_units() {
    let zone = Zone::new(PAGES, CHUNK);
    let tail = ChunkEntry { kind: ChunkKind::Tail, class: 0, generation: 1, count: 2 };
    zone.table().set(5, &tail);
    let at = zone.table().chunk_at(5);
    assert_eq!(named(&zone, at, CHUNK), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_range_is_over_what_it_touches(
        from in 0..PAGES * PAGE,
        len in prop_oneof![1..64_u64, 1..PAGE, 1..PAGES * PAGE],
    ) {
        let zone = furnished();
        let all = all_units(&zone);
        let (at, len) = (START + from, len.min(PAGES * PAGE - from));
        prop_assert_eq!(named(&zone, at, len), expected(&all, at, len));
    }

    #[test]
    fn runs_of_every_class_name_their_places(class in 0..32_u8, byte in 0..65_536_u64) {
        let zone = Zone::new(40, 65_536);
        let Some(shape) = zone.table().shape(class) else { return Ok(()) };
        prop_assert_eq!(class_of(shape.size.into(), 65_536), Some(class));
        zone.table().set(0, &ChunkEntry::VIRGIN.next(ChunkKind::Run, class, 0));
        let all = all_units(&zone);
        let at = zone.table().chunk_at(0) + byte;
        prop_assert_eq!(named(&zone, at, 1), expected(&all, at, 1));
    }
}
