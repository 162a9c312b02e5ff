//! Stripes of pages: a page that is lost, rotten or in the wrong place is told and comes back.

use holdfast_redundancy::pages::{PageStripes, page_sum};
use proptest::prelude::*;

const PAGE: usize = 4096;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Multiplication by g = 2 in the field of Q, written out.
fn doubled(byte: u8) -> u8 {
    (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 }
}

#[test]
fn geometry_is_bounded_and_places_are_what_division_says() {
    for (data, parity, stripes) in
        [(0, 1, 1), (65, 1, 1), (4, 3, 1), (4, 1, 0), (4, 1, 65), (5, 1, 52), (u32::MAX, 1, 1)]
    {
        assert!(PageStripes::new(data, parity, stripes).is_none(), "{data} {parity} {stripes}");
    }
    assert_eq!(PageStripes::standard(0, 1), None);
    for data in 1..=64 {
        let g = PageStripes::standard(data, 1).unwrap();
        assert_eq!(g.pages(), data * g.stripes());
        assert!(g.pages() <= 256 && g.stripes() <= 64);
        assert!(g.stripes() == 64 || 256 - g.pages() < data, "as large as it may be");
        for page in [0, 1, 255, 256, 100_000, 1 << 40] {
            let place = g.place(page);
            assert_eq!(g.page(place.region, place.inside), Some(page));
            assert_eq!(place.inside, place.stripe * data + place.row);
            assert!(place.row < data && place.stripe < g.stripes());
        }
        assert_eq!(g.page(u64::MAX, 0).is_none(), data * g.stripes() > 1);
    }
    assert_eq!(PageStripes::standard(4, 1).unwrap().region_len(), 1 << 20);
}

#[test]
fn parity_is_the_sum_and_the_weighted_sum() {
    let g = PageStripes::new(5, 2, 2).unwrap();
    let rows = bytes(7, g.rows_len());
    let mut parity = vec![0; g.parity_len()];
    g.encode(&rows, &mut parity);
    for at in 0..PAGE {
        let (mut p, mut q) = (0, 0);
        for row in (0..5).rev() {
            p ^= rows[row * PAGE + at];
            q = doubled(q) ^ rows[row * PAGE + at];
        }
        assert_eq!((parity[at], parity[PAGE + at]), (p, q), "{at}");
    }
    assert_eq!(g.differing(&rows, &parity), [false; 2]);
    parity[PAGE] ^= 1;
    assert_eq!(g.differing(&rows, &parity), [false, true]);
    parity[0] ^= 1;
    assert_eq!(g.differing(&rows, &parity), [true; 2]);
    let none = PageStripes::new(5, 0, 2).unwrap();
    none.encode(&rows, &mut []);
    assert_eq!(none.differing(&rows, &[]), [false; 2]);
}

#[test]
fn a_sum_is_bound_to_file_page_and_every_byte() {
    let page = bytes(1, PAGE);
    let sum = page_sum(3, 17, &page);
    assert_ne!(sum, page_sum(4, 17, &page), "another file");
    assert_ne!(sum, page_sum(3, 18, &page), "a misdirected write");
    for at in [0, 1, 2047, 4095] {
        let mut other = page.clone();
        other[at] ^= 0x10;
        assert_ne!(sum, page_sum(3, 17, &other));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_parity_can_give_back_comes_back(
        data in 1_u32..9, parity in 0_u32..3, seed: u64,
        x in 0_u32..9, y in 0_u32..9, usable: [bool; 2],
    ) {
        let g = PageStripes::new(data, parity, 1).unwrap();
        let rows = bytes(seed, g.rows_len());
        let mut sums = vec![0; g.parity_len()];
        g.encode(&rows, &mut sums);
        for (unit, bytes) in sums.chunks_mut(PAGE).enumerate() {
            if !usable[unit] {
                bytes.fill(0xaa);
            }
        }
        let mut missing = vec![x % data];
        if y % data != x % data {
            missing.push(y % data);
        }
        for missing in [vec![], missing[..1].to_vec(), missing] {
            let mut found = rows.clone();
            for row in &missing {
                let at = *row as usize * PAGE;
                found[at..at + PAGE].copy_from_slice(&bytes(!seed, PAGE));
            }
            let broken = found.clone();
            let have = usable.iter().take(parity as usize).filter(|u| **u).count();
            let can = g.rebuild(&mut found, &missing, &sums, usable);
            prop_assert_eq!(can, missing.len() <= have);
            let expected = if can { rows.clone() } else { broken };
            prop_assert!(found == expected, "{}", missing.len());
        }
    }
}
