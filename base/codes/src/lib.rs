//! Checksums and parity of byte slices: CRC-32C, Adler-32, XOR and P+Q, whole and incremental.
//!
//! # Guarantee, and what is not covered
//!
//! Every function is pure: its result depends on its arguments alone, not on the machine. Which
//! instructions compute it is chosen at run time, and each choice is tested to equal the portable
//! version in [`mod@reference`]. Nothing outside the given slices is read or written, so that a
//! media error just behind an object cannot be met by summing the object.
//!
//! Not covered: where sums and parity lie, when they are trusted, and writing them to a medium.
//! These functions work on ordinary memory; a change of parity is made here as a *delta* in a
//! buffer and applied to the medium by the crate that owns its stores. A checksum finds accidents
//! and not attackers: whoever can change the bytes can change a sum to match.
//!
//! # Picture
//!
//! ```text
//!            old bytes   new bytes               row 0   row 1   ...   row k-1
//!                 \       /                         |       |             |
//!      xor_delta   \     /                          +-------+--- XOR -----+--> P  xor_many
//!                  [delta]                          |       |             |       pq_encode
//!                 /   |   \                      x g^0   x g^1   ...   x g^(k-1)
//!   crc32c_patch /    |    \ gf_mul_into            +-------+--- XOR -----+--> Q
//!           new CRC   |     Q ^= g^row * delta
//!                     P ^= delta
//! ```
//!
//! # Vocabulary
//!
//! | word | meaning |
//! |---|---|
//! | seed | the sum of what came before, or a constant that starts it; sums continue |
//! | raw state | a CRC without its two inversions: a linear function of the message |
//! | delta | old bytes XOR new bytes |
//! | tail | bytes of a message that follow a changed range |
//! | row | one data unit of a stripe; its index is its exponent in Q |
//! | P, Q | the two check units of a stripe |
//! | syndrome | a stored check unit XORed with what the rows say it should be |
//! | token | a value whose existence proves that the processor has an instruction set |
//!
//! # Life of one operation
//!
//! A commit changes 64 bytes of an object that is covered by a CRC and by P and Q:
//!
//! 1. `xor_delta` makes the delta from the verified old bytes and the private copy.
//! 2. `crc32c_patch` turns the old sum into the new one; the rest of the object is not read.
//! 3. `gf_mul_into` makes the change of Q from the delta; the change of P is the delta itself.
//! 4. The caller stores bytes, sum and both deltas, and orders these stores. No function above
//!    contains a fence. Only [`xor_many`] and [`pq_encode`], for outputs of several MiB, store
//!    around the caches, and order that themselves with one `sfence` before they return.
//!
//! Each call is one load of a cached byte and a branch away from its kernel; inputs up to 64
//! bytes are summed and XORed in the caller itself.
//!
//! ```
//! use holdfast_codes::{crc32c, crc32c_patch, xor_delta};
//!
//! let old = *b"the object as it was, with a tail";
//! let mut new = old;
//! new[14..17].copy_from_slice(b"...");
//! let mut delta = [0; 3];
//! xor_delta(&mut delta, &old[14..17], &new[14..17]);
//! assert_eq!(crc32c_patch(crc32c(0, &old), &delta, old.len() - 17), crc32c(0, &new));
//! ```
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `crc`, `adler` | the sums, their continuation and their patches |
//! | `xor` | parity of two or many slices, deltas, comparison with zero |
//! | `gf` | the field of Q, on bytes and slices |
//! | `pq`, `rebuild` | P+Q of a stripe, lost units, the one wrong unit |
//! | `dispatch` | the table of kernels: which instruction sets have which |
//! | `cpu` | what this processor has |
//! | `reference/` | portable versions, the definition of all others |
//! | `crc_tables`, `gf_tables` | the arithmetic behind the sums, at compile time |
//! | `x86/` | SIMD kernels; all `unsafe` of the crate |
//! | `paths` | tests: every kernel of every set against `reference/` |

#![deny(unsafe_code)]

mod adler;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod cpu;
mod crc;
mod crc_tables;
mod dispatch;
mod gf;
mod gf_tables;
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod paths;
mod pq;
mod rebuild;
pub mod reference;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod x86;
mod xor;

pub use adler::{adler32, adler32_patch};
pub use crc::{crc32c, crc32c_combine, crc32c_patch, crc32c_u64, crc32c_zeros};
pub use gf::{gf_inv, gf_mul, gf_mul_into, gf_mul_xor_into, gf_pow_g};
pub use pq::{Located, MAX_ROWS, PqSums, locate, pq_encode};
pub use rebuild::{rebuild_from_p, rebuild_from_q, rebuild_two};
pub use xor::{delta_words, is_zero, xor_delta, xor_into, xor_many};
