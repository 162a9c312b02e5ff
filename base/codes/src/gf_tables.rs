//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), as compile-time tables.
//!
//! The generator is g = 2: its powers run through all 255 nonzero elements, so that up to 255
//! rows have coefficients of their own.

/// What x^8 reduces to.
const REDUCED: u8 = 0x1D;

/// Number of nonzero elements, the order of g.
pub(crate) const ORDER: usize = 255;

/// `EXP[i]` = g^i, written out twice so that the sum of two logarithms needs no reduction.
pub(crate) static EXP: [u8; 2 * ORDER] = {
    let mut table = [0; 2 * ORDER];
    let (mut value, mut i) = (1, 0);
    while i < 2 * ORDER {
        table[i] = value;
        value = double(value);
        i += 1;
    }
    table
};

/// `LOG[EXP[i]]` = i for i below 255. `LOG[0]` has no meaning and must not be used.
pub(crate) static LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// `NIBBLES[c]`: c times each low nibble, then c times each high nibble.
///
/// A product is the XOR of one entry of each half, and a half fits a byte shuffle.
pub(crate) static NIBBLES: [[u8; 32]; 256] = {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut i = 0;
        while i < 16 {
            table[c][i] = multiply(c as u8, i as u8);
            table[c][16 + i] = multiply(c as u8, (i as u8) << 4);
            i += 1;
        }
        c += 1;
    }
    table
};

const fn double(a: u8) -> u8 {
    (a << 1) ^ (REDUCED & (a >> 7).wrapping_neg())
}

/// Product by repeated doubling; only for building tables.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut power, mut rest) = (0, a, b);
    while rest != 0 {
        product ^= power & (rest & 1).wrapping_neg();
        power = double(power);
        rest >>= 1;
    }
    product
}

const _: () = assert!(EXP[ORDER] == 1 && EXP[8] == REDUCED);
