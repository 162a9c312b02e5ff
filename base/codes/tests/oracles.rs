//! The public functions against other people's implementations and published values.

use crc::{CRC_32_ISCSI, Crc};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use holdfast_codes::{adler32, crc32c, crc32c_u64, gf_inv, gf_mul, gf_pow_g};
use proptest::prelude::*;

const TABLE_CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..140),
        prop::collection::vec(any::<u8>(), 0..5000)
    ]
}

proptest! {
    #[test]
    fn crc_equals_two_other_crates(message in message(), skip in 0..64usize) {
        let slice = &message[skip.min(message.len())..];
        let sum = crc32c(0, slice);
        prop_assert_eq!(sum, TABLE_CRC.checksum(slice));
        prop_assert_eq!(u64::from(sum), crc_fast::checksum(Crc32Iscsi, slice));
    }

    #[test]
    fn crc_continues(message in message(), cut in any::<prop::sample::Index>()) {
        let (a, b) = message.split_at(cut.index(message.len() + 1));
        prop_assert_eq!(crc32c(crc32c(0, a), b), TABLE_CRC.checksum(&message));
    }

    #[test]
    fn crc_of_a_word(seed in any::<u32>(), word in any::<u64>()) {
        let mut digest = TABLE_CRC.digest_with_initial(seed.reverse_bits() ^ u32::MAX);
        digest.update(&word.to_le_bytes());
        prop_assert_eq!(crc32c_u64(seed, word), digest.finalize());
    }

    #[test]
    fn adler_equals_another_crate(message in message(), skip in 0..64usize) {
        let slice = &message[skip.min(message.len())..];
        prop_assert_eq!(adler32(1, slice), simd_adler32::adler32(&slice));
    }

    #[test]
    fn adler_continues(message in message(), cut in any::<prop::sample::Index>()) {
        let (a, b) = message.split_at(cut.index(message.len() + 1));
        prop_assert_eq!(adler32(adler32(1, a), b), simd_adler32::adler32(&message.as_slice()));
    }
}

#[test]
fn published_crc_values() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    assert_eq!(crc32c(0, b""), 0);
    assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(0, &[0xFF; 32]), 0x62A8_AB43);
    assert_eq!(crc32c(0, &ascending), 0x46DD_794E);
    assert_eq!(crc32c(0, &descending), 0x113F_DB5C);
}

#[test]
fn published_adler_values() {
    assert_eq!(adler32(1, b""), 1);
    assert_eq!(adler32(1, b"Wikipedia"), 0x11E6_0398);
    let megabyte = vec![0xFF; 1 << 20];
    assert_eq!(adler32(1, &megabyte), simd_adler32::adler32(&megabyte.as_slice()));
}

/// A seed from a damaged record may be anything; it counts modulo 65,521.
#[test]
fn adler_takes_any_seed() {
    // 65,535 is 14 more than the modulus.
    let reduced = 0x000E_000E;
    assert_eq!(adler32(u32::MAX, b"message"), adler32(reduced, b"message"));
    assert_eq!(adler32(u32::MAX, b""), reduced);
}

/// All 65,536 products, and the laws that make a field of them.
#[test]
fn field_products() {
    for a in 0..=255 {
        for b in 0..=255 {
            let mut expected = 0;
            let mut power = a;
            for bit in 0..8 {
                expected ^= if b >> bit & 1 != 0 { power } else { 0 };
                power = power << 1 ^ if power & 0x80 != 0 { 0x1D } else { 0 };
            }
            assert_eq!(gf_mul(a, b), expected, "{a} times {b}");
        }
        assert_eq!(gf_mul(a, gf_inv(a)), u8::from(a != 0), "{a} times its inverse");
    }
    // Values every RAID-6 paper prints for this field.
    assert_eq!([0, 1, 7, 8, 25, 254, 255].map(gf_pow_g), [1, 2, 128, 29, 3, 142, 1]);
}
