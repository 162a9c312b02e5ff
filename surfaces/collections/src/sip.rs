//! The hash function: SipHash with a 128-bit key, of which one and three rounds are used.
//!
//! It is part of the format: where an entry is in a pool follows from it, so it is written here
//! and not taken from a library that may change it. The key makes collisions unpredictable for
//! whoever supplies the keys of a map but does not know its seed.

/// Hash of `bytes` under `seed`, as stored in tables.
pub(crate) fn hash(seed: [u64; 2], bytes: &[u8]) -> u64 {
    rounds::<1, 3>(seed, bytes)
}

fn rounds<const PER_WORD: usize, const AT_END: usize>(seed: [u64; 2], bytes: &[u8]) -> u64 {
    let mut v = [
        seed[0] ^ 0x736f_6d65_7073_6575,
        seed[1] ^ 0x646f_7261_6e64_6f6d,
        seed[0] ^ 0x6c79_6765_6e65_7261,
        seed[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        absorb::<PER_WORD>(&mut v, u64::from_le_bytes(*word));
    }
    // The last word holds what is left over and, in its top byte, the length.
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    last[7] = bytes.len() as u8;
    absorb::<PER_WORD>(&mut v, u64::from_le_bytes(last));
    v[2] ^= 0xff;
    for _ in 0..AT_END {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn absorb<const ROUNDS: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    for _ in 0..ROUNDS {
        round(v);
    }
    v[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::Hasher;

    #[test]
    #[expect(deprecated, reason = "the only keyed one the standard library still has")]
    fn two_and_four_rounds_agree_with_the_standard_library_under_any_key() {
        let bytes: Vec<u8> = (0..200).map(|i: u32| (i * 37) as u8).collect();
        for len in 0..bytes.len() {
            let seed = [0x0706_0504_0302_0100 ^ len as u64, 0x0f0e_0d0c_0b0a_0908];
            let mut theirs = core::hash::SipHasher::new_with_keys(seed[0], seed[1]);
            theirs.write(&bytes[..len]);
            assert_eq!(rounds::<2, 4>(seed, &bytes[..len]), theirs.finish(), "{len} bytes");
        }
    }

    #[test]
    fn one_and_three_rounds_agree_with_the_standard_library() {
        for len in 0..100 {
            let bytes = vec![len as u8; len];
            let mut theirs = std::hash::DefaultHasher::new();
            theirs.write(&bytes);
            assert_eq!(hash([0, 0], &bytes), theirs.finish(), "{len} bytes");
        }
    }

    #[test]
    fn both_halves_of_the_seed_matter() {
        let hashes = [[0, 0], [1, 0], [0, 1]].map(|seed| hash(seed, b"word"));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
    }
}
