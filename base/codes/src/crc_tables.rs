//! Arithmetic modulo the Castagnoli polynomial, and the byte table made from it.
//!
//! A CRC is the remainder of a polynomial over GF(2). Everything here is *reflected*: bit 31 of
//! a word is the coefficient of x^0 and bit 0 that of x^31, because the bytes of a message enter
//! lowest bit first. In this notation multiplying by x is a shift to the *right*.

/// The Castagnoli polynomial without its x^32 term, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// Multiplicative order of x modulo the polynomial: x^ORDER = 1. Exponents may be reduced by it.
///
/// (The polynomial is x + 1 times a primitive one of degree 31.) Being odd it has no factor in
/// common with 8, so a count of *bytes* may be reduced by it as well.
pub(crate) const ORDER: u64 = (1 << 31) - 1;

/// `a` times x.
const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLYNOMIAL & (a & 1).wrapping_neg())
}

/// Product of two polynomials modulo the Castagnoli polynomial.
pub(crate) const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut power, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        product ^= power & ((a >> bit) & 1).wrapping_neg();
        power = times_x(power);
    }
    product
}

/// x to the power `exponent`.
pub(crate) const fn power_of_x(exponent: u64) -> u32 {
    let (mut result, mut square, mut rest) = (ONE, times_x(ONE), exponent % ORDER);
    while rest != 0 {
        if rest & 1 != 0 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    result
}

/// `BYTES[k][b]` is the CRC state left by byte `b` followed by `k` zero bytes.
///
/// With eight such rows a state advances by eight bytes in eight independent look-ups.
pub(crate) static BYTES: [[u32; 256]; 8] = byte_table();

const fn byte_table() -> [[u32; 256]; 8] {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        // The state is the message times x^32; one byte alone is `byte` at x^0..x^7.
        let (mut state, mut bit) = (byte as u32, 0);
        while bit < 8 {
            state = times_x(state);
            bit += 1;
        }
        table[0][byte] = state;
        byte += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = table[row - 1][byte];
            table[row][byte] = (before >> 8) ^ table[0][(before & 0xFF) as usize];
            byte += 1;
        }
        row += 1;
    }
    table
}

const _: () = {
    assert!(power_of_x(ORDER) == ONE);
    // The table every description of this CRC prints begins with these.
    assert!(BYTES[0][1] == 0xF26B_8303 && BYTES[0][128] == POLYNOMIAL);
};
