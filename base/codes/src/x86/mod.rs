//! The x86-64 kernels and the tokens through which safe code reaches them.
//!
//! A token (`Sse42`, `Avx2`, `Folds256`, `Avx512`) can only be made from what [`crate::cpu`]
//! found, so that holding one proves that the instructions exist; its methods are safe. All
//! `unsafe` of the crate is below this folder:
//!
//! | file | content |
//! |---|---|
//! | `block` | one vector register of 32 or 64 bytes: the narrow waist between algorithm and ISA |
//! | `kernels` | XOR, P+Q, field products and Adler sums, written once over `block` |
//! | `shells` | `Avx2` and `Avx512`: each kernel compiled for each set |
//! | `sse42` | `Sse42`: CRC by the CRC32 instruction, three ways for middle lengths |
//! | `crc256` | `Folds256`: CRC by folding 256-bit registers and CRC32 at once |
//! | `crc512` | CRC by folding 512-bit registers, a method of `Avx512` |
//! | `tables` | multipliers and matrices in the forms the instructions want |
//!
//! No kernel reads or writes a byte outside the slices it is given, not even under a mask: the
//! byte after a slice may lie in a page that answers with a media error.

mod block;
mod crc256;
mod crc512;
mod kernels;
mod shells;
mod sse42;
mod tables;

pub(crate) use crc256::Folds256;
pub(crate) use shells::{Avx2, Avx512};
pub(crate) use sse42::Sse42;
