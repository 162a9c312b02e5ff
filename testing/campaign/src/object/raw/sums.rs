//! Checksums and parity arithmetic, written a second time: what judges the engine must not share
//! its mistakes.

/// CRC-32C tables for eight bytes at a time, reflected polynomial.
static CRC: [[u32; 256]; 8] = crc_tables();

const fn crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82F6_3B78 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

/// CRC-32C of `bytes`, going on from `sum`.
#[must_use]
pub fn crc(sum: u32, bytes: &[u8]) -> u32 {
    let mut state = !sum;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) ^ state;
        state = CRC[7][(low & 0xff) as usize]
            ^ CRC[6][(low >> 8 & 0xff) as usize]
            ^ CRC[5][(low >> 16 & 0xff) as usize]
            ^ CRC[4][(low >> 24) as usize]
            ^ CRC[3][usize::from(word[4])]
            ^ CRC[2][usize::from(word[5])]
            ^ CRC[1][usize::from(word[6])]
            ^ CRC[0][usize::from(word[7])];
    }
    for byte in rest {
        state = (state >> 8) ^ CRC[0][((state ^ u32::from(*byte)) & 0xff) as usize];
    }
    !state
}

/// Adler-32 of `bytes`, going on from `sum`.
#[must_use]
pub fn adler(sum: u32, bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (sum & 0xffff, sum >> 16);
    for byte in bytes {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    high << 16 | low
}

/// What is stored for a checksum of the heap: see `docs/formats/zone.md`.
#[must_use]
pub fn stored(sum: u32) -> u32 {
    let product = u64::from(sum ^ sum >> 16) * 2_654_435_761;
    let low = (product & 0xffff_ffff) as u32;
    low ^ low >> 16
}

/// `into ^= bytes`, as far as both go.
pub fn add(into: &mut [u8], bytes: &[u8]) {
    for (into, byte) in into.iter_mut().zip(bytes) {
        *into ^= byte;
    }
}

/// Every byte times g = 2 in GF(2^8) with the polynomial 0x11D, eight bytes at a time.
pub fn double(bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        let value = u64::from_le_bytes(*word);
        let carries = value >> 7 & 0x0101_0101_0101_0101;
        let shifted = value << 1 & 0xfefe_fefe_fefe_fefe;
        *word = (shifted ^ (carries * 0x1d)).to_le_bytes();
    }
    for byte in rest {
        *byte = (*byte << 1) ^ ((*byte >> 7) * 0x1d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_their_known_values() {
        assert_eq!(crc(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc(crc(0, b"1234567"), b"89"), 0xE306_9283);
        assert_eq!(adler(1, b"Wikipedia"), 0x11E6_0398);
    }

    #[test]
    fn stored_sums_have_their_known_values() {
        let sums = [0, 1, 0x8000_0000, 0xE306_9283].map(stored);
        assert_eq!(sums, [0, 0x9e37_e786, 0x3cd8_bcd8, 0x7caf_255a]);
    }

    #[test]
    fn doubling_is_multiplication_by_g() {
        let mut bytes: Vec<u8> = (0..=255).chain(0..3).collect();
        double(&mut bytes);
        assert_eq!(bytes[1..4], [2, 4, 6]);
        assert_eq!((bytes[0x80], bytes[0xff], bytes[258]), (0x1d, 0xe3, 4));
    }
}
