//! Incremental sums equal sums made anew, and do not hide damage that was there before.

use holdfast_codes::{
    adler32, adler32_patch, crc32c, crc32c_combine, crc32c_patch, crc32c_zeros, xor_delta,
};
use proptest::prelude::*;

/// x to this power is 1 in the ring of the CRC.
const ORDER: usize = (1 << 31) - 1;

/// A message and the same with one range replaced: (old, new, range start, range length).
fn change() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, usize, usize)> {
    (1..5000usize)
        .prop_flat_map(|n| (prop::collection::vec(any::<u8>(), n), 0..n))
        .prop_flat_map(|(old, start)| {
            let room = old.len() - start;
            let range = prop::collection::vec(any::<u8>(), 0..=room.min(600));
            (Just(old), Just(start), range)
        })
        .prop_map(|(old, start, range)| {
            let mut new = old.clone();
            new[start..start + range.len()].copy_from_slice(&range);
            (old, new, start, range.len())
        })
}

proptest! {
    #[test]
    fn patched_equals_made_anew((old, new, start, length) in change()) {
        let (from, to) = (&old[start..start + length], &new[start..start + length]);
        let tail = old.len() - start - length;
        let mut delta = vec![0; length];
        xor_delta(&mut delta, from, to);
        prop_assert_eq!(crc32c_patch(crc32c(0, &old), &delta, tail), crc32c(0, &new));
        prop_assert_eq!(crc32c_patch(crc32c(77, &old), &delta, tail), crc32c(77, &new));
        prop_assert_eq!(adler32_patch(adler32(1, &old), from, to, tail), adler32(1, &new));
    }

    /// A sum that did not match before does not match after, and by the same difference.
    #[test]
    fn damage_is_not_laundered((old, new, start, length) in change(), wrong in 1..=u32::MAX) {
        let tail = old.len() - start - length;
        let mut delta = vec![0; length];
        xor_delta(&mut delta, &old[start..start + length], &new[start..start + length]);
        let patched = crc32c_patch(crc32c(0, &old) ^ wrong, &delta, tail);
        prop_assert_eq!(patched ^ crc32c(0, &new), wrong);
    }

    #[test]
    fn combined(a in prop::collection::vec(any::<u8>(), 0..2000),
                b in prop::collection::vec(any::<u8>(), 0..2000)) {
        let whole = [&a[..], &b].concat();
        let joined = crc32c_combine(crc32c(0, &a), crc32c(0, &b), b.len());
        prop_assert_eq!(joined, crc32c(0, &whole));
    }

    #[test]
    fn zeros_appended(a in prop::collection::vec(any::<u8>(), 0..200), n in 0..70_000usize) {
        let mut whole = a.clone();
        whole.resize(a.len() + n, 0);
        prop_assert_eq!(crc32c_zeros(crc32c(0, &a), n), crc32c(0, &whole));
    }

    /// Distances too long to try out: in two steps as in one, and modulo the order of x.
    #[test]
    fn far_zeros(crc in any::<u32>(), a in 0..1usize << 40, b in 0..1usize << 40) {
        prop_assert_eq!(crc32c_zeros(crc32c_zeros(crc, a), b), crc32c_zeros(crc, a + b));
        prop_assert_eq!(crc32c_zeros(crc, a), crc32c_zeros(crc, a + ORDER));
    }
}

/// Every place of a 64-byte change in a 4 KiB unit, the case commits meet.
#[test]
fn every_line_of_a_page() {
    let old: Vec<u8> = (0..4096usize).map(|i| (i * i / 7) as u8).collect();
    for start in (0..4096).step_by(64) {
        let mut new = old.clone();
        let mut delta = [0; 64];
        for (i, byte) in new[start..start + 64].iter_mut().enumerate() {
            delta[i] = (start / 64 + 3 * i + 1) as u8;
            *byte ^= delta[i];
        }
        assert_eq!(crc32c_patch(crc32c(0, &old), &delta, 4032 - start), crc32c(0, &new));
    }
}

#[test]
#[should_panic(expected = "must have one length")]
fn adler_patch_of_unequal_ranges() {
    adler32_patch(1, &[1, 2], &[1], 0);
}
