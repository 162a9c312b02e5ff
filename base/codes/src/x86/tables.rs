//! Constants in the forms the instructions want, made at compile time.

use crate::crc_tables::{ORDER, multiply, power_of_x};
use crate::gf_tables;

/// `SHIFT[d][i]` = x^(8 * i * 256^d) * x^-33: multiplies by "append i * 256^d zero bytes".
///
/// A carry-less 32 x 32 bit multiply followed by the CRC32 instruction on the 64-bit product
/// computes `a * b * x^33`; x^-33 makes up for that. A distance below [`ORDER`] has four base-256
/// digits; one up to 65,535 needs two rows.
pub(super) static SHIFT: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut digit = 0;
    while digit < 4 {
        let step = power_of_x(8 << (8 * digit));
        let (mut value, mut i) = (power_of_x(ORDER - 33), 0);
        while i < 256 {
            table[digit][i] = value;
            value = multiply(value, step);
            i += 1;
        }
        digit += 1;
    }
    table
};

/// Multipliers that move a 128-bit block `distance` bits ahead, for its earlier and later half.
///
/// A carry-less product of two reflected 64-bit words comes out one bit short, a factor of x;
/// hence the exponents one below the distance.
pub(super) const fn fold(distance: u64) -> [u64; 2] {
    [(power_of_x(distance + 63) as u64) << 32, (power_of_x(distance - 1) as u64) << 32]
}

/// `MATRIX[c]`: multiplication by c as an 8 x 8 bit matrix in the layout of GF2P8AFFINEQB.
///
/// The instruction that multiplies in GF(2^8) outright is of no use: its polynomial is 0x11B.
pub(super) static MATRIX: [u64; 256] = {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = 0;
        while column < 8 {
            let image = gf_tables::multiply(c as u8, 1 << column) as u64;
            let mut bit = 0;
            while bit < 8 {
                // The row that makes result bit `bit` is byte 7 - bit of the matrix.
                table[c] |= ((image >> bit) & 1) << (8 * (7 - bit) + column);
                bit += 1;
            }
            column += 1;
        }
        c += 1;
    }
    table
};
