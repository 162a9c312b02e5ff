//! Whether bytes are what was committed, asked of the medium and of a medium as it would be after
//! a repair.

use crate::common::{START, Zone, pattern};
use holdfast_faultmem::Clear;
use holdfast_heap::verify::{
    Direct, Found, Overlay, Source, check_granule, check_object, read_sum,
};
use holdfast_heap::{Cache, Spot};
use holdfast_layout::{Certify, SumKind};
use holdfast_pmem::Medium;
use proptest::prelude::*;

fn with_object(kind: SumKind, len: usize) -> (Zone, Spot, Vec<u8>) {
    let zone = Zone::with(40, 8192, kind);
    let mut cache = Cache::default();
    let spot = zone.reserve(&mut cache, len as u64).unwrap();
    let bytes = pattern(len as u64, len);
    zone.commit(&spot, &bytes);
    (zone, spot, bytes)
}

fn check(zone: &Zone, spot: &Spot) -> (Found, u64) {
    check_object(&Direct(&zone.m), zone.heap.sums(), spot, Certify::when(true)).unwrap()
}

#[test]
fn every_byte_of_an_object_of_its_slot_and_of_its_sums_is_covered() {
    for kind in [SumKind::Crc32c, SumKind::Adler32] {
        let (zone, spot, bytes) = with_object(kind, 2600);
        assert_eq!(check(&zone, &spot).0, Found::Good);
        for at in (0..bytes.len() as u64).step_by(13) {
            zone.m.flip_bit(spot.object + at, 0).unwrap();
            let (found, granule) = check(&zone, &spot);
            assert!(found.is_bad() && granule == at / 1024, "{kind:?} byte {at}: {found:?}");
            zone.m.flip_bit(spot.object + at, 0).unwrap();
        }
        for bit in 0..128 {
            zone.m.flip_bit(spot.slot + bit / 8, (bit % 8) as u8).unwrap();
            assert!(check(&zone, &spot).0.is_bad(), "{kind:?} bit {bit} of the slot");
            zone.m.flip_bit(spot.slot + bit / 8, (bit % 8) as u8).unwrap();
        }
        for granule in 1..3 {
            zone.m.flip_bit(spot.sum_at(granule), 7).unwrap();
            assert_eq!(check(&zone, &spot).1, granule);
            zone.m.flip_bit(spot.sum_at(granule), 7).unwrap();
        }
        assert_eq!(check(&zone, &spot).0, Found::Good);
    }
}

#[test]
fn a_lost_write_of_the_bytes_or_of_the_slot_is_found() {
    let (zone, spot, old) = with_object(SumKind::Crc32c, 300);
    let before = zone.slot(&spot);
    let new = pattern(99, 300);
    let mut slot = before;
    slot.sum = zone.heap.sums().granule(spot.object, &slot, 0, &new);
    // The slot arrived, the bytes did not; and the other way round.
    zone.store(spot.slot, &slot.encode());
    assert!(check(&zone, &spot).0.is_bad());
    zone.store(spot.object, &new);
    assert_eq!(check(&zone, &spot).0, Found::Good);
    zone.store(spot.slot, &before.encode());
    assert!(check(&zone, &spot).0.is_bad());
    zone.store(spot.object, &old);
    assert_eq!(check(&zone, &spot).0, Found::Good);
}

#[test]
fn an_object_that_landed_on_its_neighbour_is_found() {
    let (zone, first, bytes) = with_object(SumKind::Crc32c, 64);
    let mut cache = Cache::default();
    let second = zone.reserve(&mut cache, 64).unwrap();
    zone.commit(&second, &bytes);
    // Equal bytes, type, length and generation: only the place differs.
    assert_eq!(zone.slot(&first).generation, zone.slot(&second).generation);
    zone.store(second.slot, &zone.slot(&first).encode());
    assert_eq!(check(&zone, &first).0, Found::Good);
    assert!(check(&zone, &second).0.is_bad());
}

#[test]
fn a_length_beyond_the_place_is_bad_and_reads_nothing() {
    let (zone, spot, _) = with_object(SumKind::Crc32c, 64);
    let mut slot = zone.slot(&spot);
    slot.len = u32::MAX;
    zone.store(spot.slot, &slot.encode());
    for granule in [0, 1, 1 << 40] {
        let found =
            check_granule(&Direct(&zone.m), zone.heap.sums(), &spot, granule, Certify::when(true))
                .unwrap();
        assert!(found.is_bad());
    }
    assert!(check(&zone, &spot).0.is_bad());
}

#[test]
fn a_large_object_whose_slot_says_free_is_bad() {
    let (zone, spot, _) = with_object(SumKind::Crc32c, 20_000);
    let mut slot = zone.slot(&spot).freed();
    slot.sum = zone.heap.sums().free_slot(spot.object, &slot);
    zone.store(spot.slot, &slot.encode());
    assert!(check(&zone, &spot).0.is_bad(), "the directory says that an object begins there");
}

#[test]
fn without_sums_damage_is_not_found() {
    let (zone, spot, _) = with_object(SumKind::None, 300);
    zone.m.stray(spot.object, &[0; 300]).unwrap();
    assert_eq!(check(&zone, &spot).0, Found::Nothing);
    assert_eq!(zone.slot(&spot).sum, 0);
}

#[test]
fn what_cannot_be_read_is_an_error_and_no_verdict() {
    let (zone, spot, _) = with_object(SumKind::Crc32c, 20_000);
    let bad = (spot.object + 10_000) / 4096 * 4096;
    zone.m.poison(bad, 4096, Clear::Able).unwrap();
    let error =
        check_object(&Direct(&zone.m), zone.heap.sums(), &spot, Certify::when(true)).unwrap_err();
    assert_eq!(error.at / 4096 * 4096, bad);
    let slot = zone.slot(&spot);
    assert_eq!(read_sum(&Direct(&zone.m), &spot, &slot, 0), Ok(slot.sum));
}

#[test]
fn a_candidate_is_judged_before_a_byte_of_it_is_stored() {
    let (zone, spot, bytes) = with_object(SumKind::Crc32c, 2600);
    let page = spot.object / 4096 * 4096;
    zone.m.stray(spot.object + 1100, &[0xee; 300]).unwrap();
    let m = Direct(&zone.m);
    let sums = zone.heap.sums();
    assert!(check_granule(&m, sums, &spot, 1, Certify::when(true)).unwrap().is_bad());
    let right = Overlay { under: &m, at: spot.object + 1024, bytes: &bytes[1024..2048] };
    assert_eq!(check_granule(&right, sums, &spot, 1, Certify::when(true)), Ok(Found::Good));
    let wrong = Overlay { under: &m, at: spot.object + 1024, bytes: &bytes[..1024] };
    assert!(check_granule(&wrong, sums, &spot, 1, Certify::when(true)).unwrap().is_bad());
    // What the overlay covers is not read beneath, so a candidate for a bad page can be judged.
    let mut whole = vec![0; 4096];
    zone.m.read(page, &mut whole).unwrap();
    whole[(spot.object + 1024 - page) as usize..][..1024].copy_from_slice(&bytes[1024..2048]);
    zone.m.poison(page, 4096, Clear::Able).unwrap();
    assert!(check_granule(&m, sums, &spot, 1, Certify::when(true)).is_err());
    let healed = Overlay { under: &m, at: page, bytes: &whole };
    let inside = spot.object + 2048 <= page + 4096;
    assert_eq!(check_granule(&healed, sums, &spot, 1, Certify::when(true)).is_ok(), inside);
}

proptest! {
    #[test]
    fn an_overlay_reads_like_the_medium_with_the_bytes_stored(
        at in 0..9000_u64,
        len in 0..3000_usize,
        from in 0..9000_u64,
        count in 0..3000_usize,
    ) {
        let zone = Zone::new(4, 4096);
        zone.store(START, &pattern(1, 4 * 4096));
        let bytes = pattern(2, len);
        let direct = Direct(&zone.m);
        let over = Overlay { under: &direct, at: START + at, bytes: &bytes };
        let mut found = vec![0; count];
        over.read(START + from, &mut found).unwrap();
        zone.store(START + at, &bytes);
        let mut expected = vec![0; count];
        zone.m.read(START + from, &mut expected).unwrap();
        prop_assert_eq!(found, expected);
    }
}
