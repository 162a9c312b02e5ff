//! Free-space figures say what can be had: they add up, and the largest object that is said to
//! fit does fit.

use crate::common::{Zone, pattern};
use holdfast_heap::{Cache, ChunkEntry, ChunkKind, Space};
use proptest::prelude::*;

fn space(zone: &Zone) -> Space {
    zone.heap.space(&zone.m)
}

#[test]
fn an_empty_zone_is_all_free() {
    let zone = Zone::new(40, 8192);
    let s = space(&zone);
    let total = u64::from(zone.table().chunks()) * 8192;
    assert_eq!((s.total, s.free_chunks, s.free_places, s.used), (total, total, 0, 0));
    assert_eq!((s.overhead, s.objects, s.object_bytes), (0, 0, 0));
    assert_eq!(s.largest, zone.table().object_max());
}

#[test]
fn objects_are_counted_as_asked_for_and_as_they_take() {
    let zone = Zone::new(40, 8192);
    let mut cache = Cache::default();
    let small = zone.reserve(&mut cache, 50).unwrap();
    zone.commit(&small, &[1; 50]);
    let s = space(&zone);
    assert_eq!((s.objects, s.object_bytes, s.used), (1, 50, 64));
    let places = zone.places().len() as u64;
    assert_eq!(s.free_places, (places - 1) * 64);
    assert_eq!(s.overhead, 8192 - places * 64, "slots and rounding of one run");
    let large = zone.reserve(&mut cache, 20_000).unwrap();
    zone.commit(&large, &pattern(1, 20_000));
    let s = space(&zone);
    assert_eq!((s.objects, s.object_bytes, s.used), (2, 20_050, 64 + large.capacity));
    zone.free(&mut cache, &large);
    zone.free(&mut cache, &small);
    let s = space(&zone);
    assert_eq!((s.objects, s.object_bytes, s.used), (0, 0, 0));
}

#[test]
fn log_chunks_are_neither_free_nor_used() {
    let zone = Zone::new(40, 8192);
    let before = space(&zone);
    zone.become_kind(0, &ChunkEntry::VIRGIN.next(ChunkKind::Log, 0, 0));
    let s = space(&zone);
    assert_eq!((s.total, s.free_chunks), (before.total, before.free_chunks - 8192));
    assert_eq!((s.used, s.overhead, s.free_places), (0, 0, 0));
}

#[test]
fn without_free_chunks_the_largest_free_place_is_what_fits() {
    let zone = Zone::new(6, 8192);
    let mut cache = Cache::default();
    let small = zone.reserve(&mut cache, 200).unwrap();
    zone.commit(&small, &[1; 200]);
    while zone.table().claim(1).is_some() {}
    assert_eq!(space(&zone).largest, small.capacity);
    assert!(zone.reserve(&mut cache, small.capacity).is_some());
    assert!(zone.reserve(&mut cache, small.capacity + 1).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn figures_add_up_and_promise_what_can_be_had(
        lens in prop::collection::vec(prop_oneof![1..2000_u64, 5000..40_000_u64], 0..60),
        freed in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let zone = Zone::new(64, 8192);
        let mut cache = Cache::default();
        let mut live = Vec::new();
        for len in lens {
            if let Some(spot) = zone.reserve(&mut cache, len) {
                zone.commit(&spot, &pattern(len, len as usize));
                live.push((spot, len));
            }
        }
        for index in freed {
            if !live.is_empty() {
                let (spot, _) = live.swap_remove(index.index(live.len()));
                zone.free(&mut cache, &spot);
            }
        }
        zone.heap.flush(&mut cache);
        let s = space(&zone);
        prop_assert_eq!(s.free_chunks + s.free_places + s.used + s.overhead, s.total);
        prop_assert_eq!(s.objects, live.len() as u64);
        prop_assert_eq!(s.object_bytes, live.iter().map(|(_, len)| len).sum::<u64>());
        prop_assert_eq!(s.used, live.iter().map(|(spot, _)| spot.capacity).sum::<u64>());
        if s.largest > 0 {
            let spot = zone.reserve(&mut cache, s.largest);
            prop_assert!(spot.is_some(), "{:?}", s);
            zone.heap.release(&mut cache, &spot.unwrap());
            zone.heap.flush(&mut cache);
        }
        prop_assert!(zone.reserve(&mut cache, s.largest + 1).is_none(), "{:?}", s);
    }
}
