//! Every SIMD path, called by its token, against the portable reference.
//!
//! A set that the processor lacks is skipped with a printed line (`--nocapture` shows it).
//! Outputs lie between guard bytes that must survive.

use proptest::prelude::*;

use crate::x86::{Avx2, Avx512, Folds256, Sse42};
use crate::{cpu, gf_pow_g, reference};

/// Runs `$body` with `$isa` bound to the token, or says why not.
macro_rules! with {
    ($token:ident, |$isa:ident| $body:block) => {
        match $token::on(cpu::found()) {
            Some($isa) => $body,
            None => println!("skipped: this processor has no {}", stringify!($token)),
        }
    };
}

/// Bytes that look random, from a seed.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A buffer of which `length` bytes from `offset` are used; 64 guard bytes or more on each side.
struct Guarded {
    buffer: Vec<u8>,
    offset: usize,
    length: usize,
}

const GUARD: usize = 64;

impl Guarded {
    fn new(seed: u64, offset: usize, length: usize) -> Self {
        Self { buffer: bytes(seed, length + offset + 2 * GUARD), offset: offset + GUARD, length }
    }

    fn slice(&self) -> &[u8] {
        &self.buffer[self.offset..][..self.length]
    }

    /// Lets `change` write to the slice; returns the result after checking the guards.
    fn after(&self, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut buffer = self.buffer.clone();
        change(&mut buffer[self.offset..][..self.length]);
        let end = self.offset + self.length;
        assert_eq!(buffer[..self.offset], self.buffer[..self.offset], "wrote before the slice");
        assert_eq!(buffer[end..], self.buffer[end..], "wrote behind the slice");
        buffer[self.offset..end].to_vec()
    }
}

/// One random case: contents, lengths and alignments of a handful of buffers.
#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    length: usize,
    offsets: [usize; 4],
    state: u32,
    coef: u8,
}

fn case() -> impl Strategy<Value = Case> {
    let length = prop_oneof![0..130usize, 0..5000usize];
    let offsets = prop::array::uniform4(0..64usize);
    (any::<u64>(), length, offsets, any::<u32>(), any::<u8>()).prop_map(
        |(seed, length, offsets, state, coef)| Case { seed, length, offsets, state, coef },
    )
}

impl Case {
    fn buffer(&self, i: usize) -> Guarded {
        Guarded::new(self.seed ^ i as u64, self.offsets[i % 4], self.length)
    }
}

macro_rules! parity_paths {
    ($name:ident, $token:ident) => {
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn xor(case in case()) {
                    with!($token, |isa| {
                        let [a, b, c] = [0, 1, 2].map(|i| case.buffer(i));
                        let sources = [a.slice(), b.slice(), c.slice()];
                        assert_eq!(
                            c.after(|dst| isa.xor_into(dst, a.slice())),
                            c.after(|dst| reference::xor_into(dst, a.slice()))
                        );
                        assert_eq!(
                            c.after(|out| isa.xor_delta(out, a.slice(), b.slice())),
                            c.after(|out| reference::xor_delta(out, a.slice(), b.slice()))
                        );
                        // Most words alike, as in objects of which little changed.
                        let mut near = case.buffer(0);
                        for i in (case.coef as usize..near.length).step_by(37) {
                            near.buffer[near.offset + i] ^= 1;
                        }
                        for new in [b.slice(), near.slice()] {
                            let mut words = [vec![0; case.length.div_ceil(64)], Vec::new()];
                            words[1] = words[0].clone();
                            let [mine, theirs] = &mut words;
                            assert_eq!(
                                c.after(|out| isa.delta_words(out, a.slice(), new, mine)),
                                c.after(|out| {
                                    reference::delta_words(out, a.slice(), new, theirs);
                                })
                            );
                            assert_eq!(mine, theirs);
                        }
                        for count in 0..=3 {
                            assert_eq!(
                                c.after(|dst| isa.xor_many(dst, &sources[..count])),
                                c.after(|dst| reference::xor_many(dst, &sources[..count]))
                            );
                        }
                    });
                }

                #[test]
                fn zero(case in case(), place in any::<prop::sample::Index>()) {
                    with!($token, |isa| {
                        let mut zeros = case.buffer(0);
                        let range = zeros.offset..zeros.offset + zeros.length;
                        zeros.buffer[range].fill(0);
                        assert!(isa.is_zero(zeros.slice()));
                        if case.length > 0 {
                            let at = zeros.offset + place.index(case.length);
                            zeros.buffer[at] = case.coef.max(1);
                            assert!(!isa.is_zero(zeros.slice()));
                        }
                    });
                }

                #[test]
                fn field(case in case()) {
                    with!($token, |isa| {
                        let [a, b] = [0, 1].map(|i| case.buffer(i));
                        assert_eq!(
                            b.after(|out| isa.gf_mul_into(out, a.slice(), case.coef)),
                            b.after(|out| reference::gf_mul_into(out, a.slice(), case.coef))
                        );
                        assert_eq!(
                            b.after(|dst| isa.gf_mul_xor_into(dst, a.slice(), case.coef)),
                            b.after(|dst| reference::gf_mul_xor_into(dst, a.slice(), case.coef))
                        );
                    });
                }

                #[test]
                fn two_sums(case in case(), count in 0..12usize) {
                    with!($token, |isa| {
                        let rows: Vec<_> = (0..count).map(|i| case.buffer(i)).collect();
                        let rows: Vec<_> = rows.iter().map(Guarded::slice).collect();
                        let [p, q] = [20, 21].map(|i| case.buffer(i));
                        check_both(&p, &q, |p, q| isa.pq_encode(p, q, &rows),
                            |p, q| reference::pq_encode(p, q, &rows));
                        let src = case.buffer(22);
                        check_both(&p, &q, |p, q| isa.pq_add(p, q, src.slice(), case.coef),
                            |p, q| reference::pq_add(p, q, src.slice(), case.coef));
                    });
                }

                #[test]
                fn adler(case in case()) {
                    with!($token, |isa| {
                        let a = case.buffer(0);
                        assert_eq!(isa.adler_sums(a.slice()), reference::adler_sums(a.slice()));
                    });
                }
            }

            #[test]
            fn all_products() {
                with!($token, |isa| {
                    let all: Vec<u8> = (0..=255).collect();
                    for coef in 0..=255 {
                        let mut products = vec![0; 256];
                        isa.gf_mul_into(&mut products, &all, coef);
                        let slow: Vec<u8> = all.iter().map(|a| product(*a, coef)).collect();
                        assert_eq!(products, slow, "times {coef}");
                        // The same in steps that end in the narrow parts of the sweep.
                        for chunk in [1, 8, 16, 31, 40, 56] {
                            let mut products = vec![0; 256];
                            for (to, from) in products.chunks_mut(chunk).zip(all.chunks(chunk)) {
                                isa.gf_mul_into(to, from, coef);
                            }
                            assert_eq!(products, slow, "times {coef} by {chunk}");
                        }
                    }
                });
            }

            #[test]
            fn long_outputs_are_streamed() {
                with!($token, |isa| {
                    for (offset, length) in [(0, 4 << 20), (1, (4 << 20) + 333), (63, 5 << 20)] {
                        let rows = [0, 1, 2].map(|i| Guarded::new(i, 7 * i as usize, length));
                        let rows = [rows[0].slice(), rows[1].slice(), rows[2].slice()];
                        let p = Guarded::new(3, offset, length);
                        assert_eq!(
                            p.after(|dst| isa.xor_many(dst, &rows)),
                            p.after(|dst| reference::xor_many(dst, &rows))
                        );
                        // Alike and differently aligned outputs.
                        for q_offset in [offset, offset + 1] {
                            let q = Guarded::new(4, q_offset, length);
                            check_both(
                                &p,
                                &q,
                                |p, q| isa.pq_encode(p, q, &rows),
                                |p, q| reference::pq_encode(p, q, &rows),
                            );
                        }
                    }
                });
            }

            #[test]
            fn adler_lanes_do_not_overflow() {
                with!($token, |isa| {
                    for length in [16_383, 16_384, 16_385, 1 << 20, (1 << 20) + 63] {
                        let worst = vec![0xFF; length];
                        assert_eq!(isa.adler_sums(&worst), reference::adler_sums(&worst));
                    }
                });
            }
        }
    };
}

parity_paths!(avx2, Avx2);
parity_paths!(avx512, Avx512);

/// Compares what two functions make of the same two outputs.
fn check_both(
    p: &Guarded,
    q: &Guarded,
    left: impl Fn(&mut [u8], &mut [u8]),
    right: impl Fn(&mut [u8], &mut [u8]),
) {
    let run = |change: &dyn Fn(&mut [u8], &mut [u8])| {
        let mut of_q = Vec::new();
        let of_p = p.after(|p| of_q = q.after(|q| change(p, q)));
        (of_p, of_q)
    };
    assert_eq!(run(&left), run(&right));
}

/// A field product from its definition.
fn product(a: u8, b: u8) -> u8 {
    let wide = (0..8).filter(|i| b >> i & 1 != 0).fold(0, |sum, i| sum ^ u32::from(a) << i);
    let reduce =
        |value: u32, i: u32| if value >> i & 1 != 0 { value ^ 0x11D << (i - 8) } else { value };
    (8..15).rev().fold(wide, reduce) as u8
}

/// A raw CRC state from its definition, one bit at a time.
fn slow_update(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| {
            if state & 1 != 0 { (state >> 1) ^ 0x82F6_3B78 } else { state >> 1 }
        })
    })
}

proptest! {
    #[test]
    fn crc_update(case in case()) {
        let a = case.buffer(0);
        let expected = slow_update(case.state, a.slice());
        prop_assert_eq!(reference::crc_update(case.state, a.slice()), expected);
        with!(Sse42, |isa| {
            prop_assert_eq!(isa.crc_update(case.state, a.slice()), expected);
            prop_assert_eq!(isa.chain(case.state, a.slice()), expected);
        });
        with!(Folds256, |isa| { prop_assert_eq!(isa.crc_update(case.state, a.slice()), expected) });
        with!(Avx512, |isa| { prop_assert_eq!(isa.crc_update(case.state, a.slice()), expected) });
    }

    #[test]
    fn crc_shift(state in any::<u32>(), n in prop_oneof![0..5000usize, any::<usize>()]) {
        with!(Sse42, |isa| {
            prop_assert_eq!(isa.crc_shift(state, n), reference::crc_shift(state, n));
        });
    }
}

proptest! {
    #[test]
    fn crc_delta(case in case(), tail in prop_oneof![0..5000usize, 0..usize::MAX / 2]) {
        let a = case.buffer(0);
        let expected = reference::crc_shift(slow_update(0, a.slice()), tail);
        prop_assert_eq!(reference::crc_delta(a.slice(), tail), expected);
        with!(Sse42, |isa| { prop_assert_eq!(isa.crc_delta(a.slice(), tail), expected) });
        with!(Avx512, |isa| { prop_assert_eq!(isa.crc_delta(a.slice(), tail), expected) });
    }
}

/// Every length up to well past the last change of method, at an odd address.
#[test]
fn crc_of_every_length() {
    let data = bytes(1, 1300);
    for n in 0..1200 {
        let slice = &data[1..][..n];
        let expected = slow_update(!0, slice);
        assert_eq!(reference::crc_update(!0, slice), expected, "{n} bytes");
        with!(Sse42, |isa| { assert_eq!(isa.crc_update(!0, slice), expected, "{n} bytes") });
        with!(Folds256, |isa| { assert_eq!(isa.crc_update(!0, slice), expected, "{n} bytes") });
        with!(Avx512, |isa| { assert_eq!(isa.crc_update(!0, slice), expected, "{n} bytes") });
    }
}

#[test]
fn crc_shift_is_appending_zeros() {
    for n in (0..700).chain([4095, 4096, 65_535, 65_536, 70_001]) {
        let expected = slow_update(0xDEAD_BEEF, &vec![0; n]);
        assert_eq!(reference::crc_shift(0xDEAD_BEEF, n), expected, "{n} zeros");
        with!(Sse42, |isa| { assert_eq!(isa.crc_shift(0xDEAD_BEEF, n), expected, "{n} zeros") });
    }
}

#[test]
fn powers_of_g_differ() {
    let mut powers: Vec<u8> = (0..crate::MAX_ROWS).map(gf_pow_g).collect();
    powers.sort_unstable();
    assert_eq!(powers, (1..=255).collect::<Vec<u8>>());
}
