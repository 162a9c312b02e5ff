//! Portable versions of every kernel: the definition the SIMD versions are tested against, and
//! what runs where no faster instruction set is found.
//!
//! They contain no `unsafe` and no assumption about the machine. They are written to be read
//! first and to be fast second; only what a portable build would feel is unrolled.

mod adler;
mod crc;
mod gf;
mod xor;

pub use adler::adler_sums;
pub use crc::{crc_delta, crc_shift, crc_update};
pub use gf::{gf_mul_into, gf_mul_xor_into, pq_add, pq_encode};
pub use xor::{delta_words, is_zero, xor_delta, xor_into, xor_many};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use {gf::pq_encode_part, xor::xor_many_part};
