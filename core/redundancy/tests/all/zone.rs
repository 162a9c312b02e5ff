//! Geometry: every byte has one place, and every place one byte.

use holdfast_layout::{Region, RegionKind};
use holdfast_redundancy::{Error, Piece, Unit, Zone};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn region(start: u64, data_rows: u32, parity_rows: u32, row_len: u64) -> Region {
    let len = row_len * u64::from(data_rows + parity_rows);
    Region { start, len, kind: RegionKind::Zone, data_rows, parity_rows, row_len, chunk: PAGE }
}

fn any_zone() -> impl Strategy<Value = Zone> {
    let pages = prop_oneof![1..20u64, 1..5000u64, Just(u64::from(u32::MAX)), 1 << 20..1u64 << 32];
    (0..1u64 << 20, 1..=254u32, 0..=2u32, pages).prop_map(|(start, rows, parity, pages)| {
        Zone::new(&region(start * PAGE, rows, parity, pages * PAGE), 3).unwrap()
    })
}

proptest! {
    #[test]
    fn places_are_what_division_says(zone in any_zone(), pick in any::<u64>()) {
        let from = pick % zone.data_len();
        let place = zone.place(zone.data_start() + from).unwrap();
        prop_assert_eq!(u64::from(place.row), from / zone.row_len());
        prop_assert_eq!(place.col, from % zone.row_len());
        prop_assert_eq!(zone.at(place.row, place.col), zone.data_start() + from);
        // The ends of rows are where a reciprocal would be off by one.
        let row = (pick % u64::from(zone.data_rows())) as u32;
        let first = zone.place(zone.at(row, 0)).unwrap();
        let last = zone.place(zone.at(row, 0) + zone.row_len() - 1).unwrap();
        prop_assert_eq!((first.row, first.col), (row, 0));
        prop_assert_eq!((last.row, last.col), (row, zone.row_len() - 1));
    }

    #[test]
    fn pieces_cover_the_range_once(zone in any_zone(), a in any::<u64>(), b in any::<u64>()) {
        let at = zone.data_start() + a % zone.data_len();
        let len = b % (zone.data_end() - at).min(6 * zone.row_len());
        let pieces: Vec<Piece> = zone.split(at, len).collect();
        let mut next = at;
        for piece in &pieces {
            prop_assert_eq!(piece.at, next);
            prop_assert!(piece.len > 0 && piece.col + piece.len <= zone.row_len());
            prop_assert_eq!(zone.at(piece.row, piece.col), piece.at);
            next += piece.len;
        }
        prop_assert_eq!(next, at + len);
        // Cut at row ends only.
        let rows = if len == 0 { 0 } else {
            (at + len - 1 - zone.data_start()) / zone.row_len()
                - (at - zone.data_start()) / zone.row_len() + 1
        };
        prop_assert_eq!(pieces.len() as u64, rows);
    }

    #[test]
    fn units_are_found_from_their_bytes(zone in any_zone(), pick in any::<u64>()) {
        let col = pick % zone.row_len();
        for unit in [Unit::Row(zone.data_rows() - 1), Unit::P, Unit::Q] {
            let there = match unit {
                Unit::Row(_) => true,
                Unit::P => zone.has_p(),
                Unit::Q => zone.has_q(),
            };
            let found = zone.unit(zone.unit_at(unit, col));
            prop_assert_eq!(found, there.then_some((unit, col)));
        }
    }

    #[test]
    fn chosen_geometry_fits_and_keeps_frames_apart(
        pages in 1..300_000u64, rows in 0..400u32, parity in 0..=2u32, shift in 12..22u32,
    ) {
        let (len, frame) = (pages * PAGE, 1u64 << shift);
        match Zone::for_size(PAGE, len, rows, parity, frame, PAGE) {
            Err(Error::Geometry { .. }) => prop_assert!(pages < 2 * u64::from(2 + parity)),
            Err(other) => prop_assert!(false, "{other}"),
            Ok(region) => {
                let zone = Zone::new(&region, 0).unwrap();
                prop_assert!(zone.data_rows() >= 2 && zone.data_rows() + parity <= 256);
                prop_assert!(zone.row_len() * u64::from(zone.data_rows() + parity) <= len);
                prop_assert!(zone.data_rows() + parity <= rows.max(2 + parity));
                let fits = len / frame >= u64::from(2 + parity);
                prop_assert!(!fits || zone.row_len() >= frame, "a lost frame takes a column twice");
            }
        }
    }

    #[test]
    fn any_region_is_taken_or_refused(
        start in any::<u64>(), len in any::<u64>(), data_rows in any::<u32>(),
        parity_rows in any::<u32>(), row_len in any::<u64>(), chunk in any::<u64>(),
        small in any::<bool>(),
    ) {
        let cut = |n: u64| if small { n % (1 << 20) } else { n };
        let kind = RegionKind::Zone;
        let region = Region {
            start: cut(start) / PAGE * PAGE,
            len: cut(len),
            kind,
            data_rows: if small { data_rows % 8 } else { data_rows },
            parity_rows: parity_rows % 4,
            row_len: cut(row_len) / PAGE * PAGE,
            chunk,
        };
        if let Ok(zone) = Zone::new(&region, 0) {
            prop_assert!(zone.data_end() - region.start <= region.len);
            prop_assert!(zone.place(region.start.wrapping_sub(1)).is_none());
            prop_assert!(zone.place(zone.data_end()).is_none());
        }
    }
}

#[test]
fn regions_that_are_no_zones_are_refused() {
    let good = region(PAGE, 3, 1, 2 * PAGE);
    let longer = (u64::from(u32::MAX) + 1) * PAGE;
    let cases = [
        (Region { kind: RegionKind::Spare, ..good }, "kind"),
        (Region { start: PAGE + 8, ..good }, "on pages"),
        (Region { row_len: PAGE + 8, ..good }, "on pages"),
        (Region { row_len: 0, ..good }, "2^32"),
        (Region { row_len: longer, len: 4 * longer, ..good }, "2^32"),
        (Region { data_rows: 0, ..good }, "254"),
        (Region { data_rows: 255, len: u64::MAX, ..good }, "254"),
        (Region { parity_rows: 3, ..good }, "parity"),
        (Region { len: good.len - 1, ..good }, "fit"),
        (Region { start: u64::MAX / PAGE * PAGE, ..good }, "fit"),
    ];
    for (bad, word) in cases {
        let refused = Zone::new(&bad, 0);
        let Err(Error::Geometry { at, len, expected }) = refused else { panic!("{bad:?}") };
        assert_eq!((at, len), (bad.start, bad.len));
        assert!(expected.contains(word), "{expected:?} says nothing of {word:?}");
    }
    let sizes = [(0, MIB, 3, PAGE), (8, MIB, 1, PAGE), (0, MIB, 1, 0), (0, PAGE, 1, PAGE)];
    for (start, len, parity, frame) in sizes {
        let refused = Zone::for_size(start, len, 100, parity, frame, 32 << 10);
        assert!(matches!(refused, Err(Error::Geometry { .. })), "{refused:?}");
    }
    let refused = Zone::for_size(0, MIB, 3, 1, PAGE, MIB);
    assert!(matches!(refused, Err(Error::Geometry { .. })), "no room for a chunk: {refused:?}");
}

#[test]
fn ranges_outside_are_noticed() {
    let zone = Zone::new(&region(PAGE, 3, 1, 2 * PAGE), 0).unwrap();
    assert!(zone.contains(PAGE) && !zone.contains(PAGE - 1) && !zone.contains(7 * PAGE));
    assert!(zone.contains_range(PAGE, 6 * PAGE) && !zone.contains_range(PAGE, 6 * PAGE + 1));
    assert!(!zone.contains_range(PAGE, u64::MAX) && !zone.contains_range(0, 1));
    assert!(zone.contains_range(7 * PAGE, 0) && !zone.contains_range(7 * PAGE + 1, 0));
    assert_eq!(zone.split(6 * PAGE, u64::MAX).map(|p| p.len).sum::<u64>(), PAGE);
    assert_eq!(zone.split(7 * PAGE, PAGE).count(), 0);
}

#[test]
fn a_full_size_zone_has_the_parity_share_promised() {
    let gib = Zone::for_size(0, 1 << 30, 100, 1, 2 << 20, 256 << 10).unwrap();
    assert_eq!((gib.data_rows, gib.parity_rows), (99, 1));
    let share = gib.row_len as f64 / (u64::from(gib.data_rows) * gib.row_len) as f64;
    assert!(share <= 0.011, "parity takes {share}");
    assert!(gib.row_len >= 2 << 20);
}
