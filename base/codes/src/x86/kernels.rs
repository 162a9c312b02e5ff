//! XOR, P+Q, field products and Adler sums, written once for any register type.
//!
//! The parity kernels are one loop, [`sweep`], around an operation that handles a few registers at
//! one offset: four registers at a time, so that loads overlap; then single ones; then 32, 16 and
//! 8 bytes. The portable version gets what is left, fewer than 8 bytes.
//!
//! There are no closures here: one is a function of its own to the compiler, without the features
//! of the shell, and is not reliably inlined into it.
//!
//! # Safety (of every function here)
//!
//! The caller runs on a processor that has `B`'s instruction set, which includes AVX2, and has
//! checked that all slices of one call have the same length.

use core::arch::x86_64::__m256i;

use super::block::{Block, Part, Wide, drain};
use crate::adler::MODULUS;
use crate::reference;

/// Registers handled per turn of a main loop.
const UNROLL: usize = 4;

/// Outputs at least this long are written around the caches. They would not stay in a
/// second-level cache anyway, and a streamed line need not be read before it is written, which
/// saves a sixth of the memory traffic of 4 + 1 parity.
const STREAM_FROM: usize = 4 << 20;

/// Something done at every byte offset of a few buffers of one length.
trait Operation {
    /// Does it for the `U * B::SIZE` bytes from offset `i`.
    ///
    /// # Safety
    ///
    /// That many bytes lie within every buffer of the operation.
    unsafe fn at<B: Block, const U: usize>(&self, i: usize);
}

/// Runs `operation` over `start..n` and returns where it stopped: fewer than 8 bytes before `n`.
///
/// # Safety
///
/// Every buffer of the operation has `n` bytes; besides that the module contract.
#[inline(always)]
unsafe fn sweep<B: Block>(operation: &impl Operation, start: usize, n: usize) -> usize {
    let mut i = start;
    while i + UNROLL * B::SIZE <= n {
        // SAFETY: the condition left room for these registers.
        unsafe { operation.at::<B, UNROLL>(i) };
        i += UNROLL * B::SIZE;
    }
    while i + B::SIZE <= n {
        // SAFETY: the condition left room for these registers.
        unsafe { operation.at::<B, 1>(i) };
        i += B::SIZE;
    }
    if B::SIZE > 32 && i + 32 <= n {
        // SAFETY: the condition left room for these registers.
        unsafe { operation.at::<__m256i, 1>(i) };
        i += 32;
    }
    if i + 16 <= n {
        // SAFETY: the condition left room for these registers.
        unsafe { operation.at::<Part<16>, 1>(i) };
        i += 16;
    }
    if i + 8 <= n {
        // SAFETY: the condition left room for these registers.
        unsafe { operation.at::<Part<8>, 1>(i) };
        i += 8;
    }
    i
}

/// `to = a ^ b`; `to` may be one of them.
struct Xor {
    to: *mut u8,
    a: *const u8,
    b: *const u8,
}

impl Operation for Xor {
    #[inline(always)]
    unsafe fn at<B: Block, const U: usize>(&self, i: usize) {
        // SAFETY: the trait's contract.
        unsafe {
            let (a, b) = (load::<B, U>(self.a.add(i)), load::<B, U>(self.b.add(i)));
            store(xor(a, b), self.to.add(i));
        }
    }
}

/// See [`reference::xor_into`].
#[inline(always)]
pub(super) unsafe fn xor_into<B: Block>(dst: &mut [u8], src: &[u8]) {
    let to = dst.as_mut_ptr();
    // SAFETY: module contract; the lengths are equal.
    let i = unsafe { sweep::<B>(&Xor { to, a: to, b: src.as_ptr() }, 0, dst.len()) };
    if i < dst.len() {
        reference::xor_into(&mut dst[i..], &src[i..]);
    }
}

/// See [`reference::xor_delta`].
#[inline(always)]
pub(super) unsafe fn xor_delta<B: Block>(out: &mut [u8], old: &[u8], new: &[u8]) {
    let operation = Xor { to: out.as_mut_ptr(), a: old.as_ptr(), b: new.as_ptr() };
    // SAFETY: module contract; the lengths are equal.
    let i = unsafe { sweep::<B>(&operation, 0, out.len()) };
    if i < out.len() {
        reference::xor_delta(&mut out[i..], &old[i..], &new[i..]);
    }
}

/// Bytes that a byte of `delta_words` tells of.
const LINE: usize = 64;

/// See [`reference::delta_words`]. Besides the module contract: `words` has a byte for each line.
#[inline(always)]
pub(super) unsafe fn delta_words<B: Wide>(
    out: &mut [u8],
    old: &[u8],
    new: &[u8],
    words: &mut [u8],
) {
    let lines = out.len() / LINE;
    for (line, bits) in words[..lines].iter_mut().enumerate() {
        let mut differ = 0;
        for part in 0..LINE / B::SIZE {
            let i = line * LINE + part * B::SIZE;
            // SAFETY: module contract; `lines` whole lines fit, so register `part` of one does.
            unsafe {
                let delta = B::load(old.as_ptr().add(i)).xor(B::load(new.as_ptr().add(i)));
                delta.store(out.as_mut_ptr().add(i));
                differ |= delta.words() << (part * B::SIZE / 8);
            }
        }
        *bits = differ;
    }
    let i = lines * LINE;
    if i < out.len() {
        reference::delta_words(&mut out[i..], &old[i..], &new[i..], &mut words[lines..]);
    }
}

/// `to` = sum of all rows, streamed if `STREAM`.
struct XorMany<'a, const STREAM: bool> {
    to: *mut u8,
    first: &'a [u8],
    others: &'a [&'a [u8]],
}

impl<const STREAM: bool> Operation for XorMany<'_, STREAM> {
    #[inline(always)]
    unsafe fn at<B: Block, const U: usize>(&self, i: usize) {
        // SAFETY: the trait's contract.
        unsafe {
            let mut sum = load::<B, U>(self.first.as_ptr().add(i));
            for other in self.others {
                sum = xor(sum, load(other.as_ptr().add(i)));
            }
            put::<B, U, STREAM>(sum, self.to.add(i));
        }
    }
}

/// See [`reference::xor_many`].
#[inline(always)]
pub(super) unsafe fn xor_many<B: Block>(dst: &mut [u8], sources: &[&[u8]]) {
    let Some((first, others)) = sources.split_first() else {
        return dst.fill(0);
    };
    let n = dst.len();
    let i = if let Some(head) = head_to_stream::<B>(dst) {
        reference::xor_many_part(dst, sources, 0..head);
        let sum = XorMany::<true> { to: dst.as_mut_ptr(), first, others };
        // SAFETY: module contract; `dst` is aligned at `head`, and `drain` follows.
        let i = unsafe { sweep::<B>(&sum, head, n) };
        drain();
        i
    } else {
        let sum = XorMany::<false> { to: dst.as_mut_ptr(), first, others };
        // SAFETY: module contract.
        unsafe { sweep::<B>(&sum, 0, n) }
    };
    if i < n {
        reference::xor_many_part(dst, sources, i..n);
    }
}

/// `p` and `q` of all rows, streamed if `STREAM`.
struct Encode<'a, const STREAM: bool> {
    p: *mut u8,
    q: *mut u8,
    rows: &'a [&'a [u8]],
}

impl<const STREAM: bool> Operation for Encode<'_, STREAM> {
    /// From the last row to the first: each step doubles the sum so far, so row i is doubled i
    /// times and no multiplication tables are needed.
    #[inline(always)]
    unsafe fn at<B: Block, const U: usize>(&self, i: usize) {
        // SAFETY: the trait's contract.
        unsafe {
            let (mut p_sum, mut q_sum) = ([B::zero(); U], [B::zero(); U]);
            for row in self.rows.iter().rev() {
                let row = load::<B, U>(row.as_ptr().add(i));
                p_sum = xor(p_sum, row);
                q_sum = xor(double(q_sum), row);
            }
            put::<B, U, STREAM>(p_sum, self.p.add(i));
            put::<B, U, STREAM>(q_sum, self.q.add(i));
        }
    }
}

/// See [`reference::pq_encode`].
#[inline(always)]
pub(super) unsafe fn pq_encode<B: Block>(p: &mut [u8], q: &mut [u8], rows: &[&[u8]]) {
    let n = p.len();
    // Streamed only if both outputs are aligned alike, as units of one stripe are.
    let heads = head_to_stream::<B>(p).zip(head_to_stream::<B>(q));
    let i = if let Some((head, _)) = heads.filter(|(of_p, of_q)| of_p == of_q) {
        reference::pq_encode_part(p, q, rows, 0..head);
        let encode = Encode::<true> { p: p.as_mut_ptr(), q: q.as_mut_ptr(), rows };
        // SAFETY: module contract; both outputs are aligned at `head`, and `drain` follows.
        let i = unsafe { sweep::<B>(&encode, head, n) };
        drain();
        i
    } else {
        let encode = Encode::<false> { p: p.as_mut_ptr(), q: q.as_mut_ptr(), rows };
        // SAFETY: module contract.
        unsafe { sweep::<B>(&encode, 0, n) }
    };
    if i < n {
        reference::pq_encode_part(p, q, rows, i..n);
    }
}

/// `p ^= from` and `q ^= coef * from`.
struct Add {
    p: *mut u8,
    q: *mut u8,
    from: *const u8,
    coef: u8,
}

impl Operation for Add {
    #[inline(always)]
    unsafe fn at<B: Block, const U: usize>(&self, i: usize) {
        // SAFETY: the trait's contract.
        unsafe {
            let row = load::<B, U>(self.from.add(i));
            store(xor(load(self.p.add(i)), row), self.p.add(i));
            store(xor(load(self.q.add(i)), times(row, self.coef)), self.q.add(i));
        }
    }
}

/// See [`reference::pq_add`].
#[inline(always)]
pub(super) unsafe fn pq_add<B: Block>(p: &mut [u8], q: &mut [u8], src: &[u8], coef: u8) {
    let add = Add { p: p.as_mut_ptr(), q: q.as_mut_ptr(), from: src.as_ptr(), coef };
    // SAFETY: module contract; the lengths are equal.
    let i = unsafe { sweep::<B>(&add, 0, src.len()) };
    if i < src.len() {
        reference::pq_add(&mut p[i..], &mut q[i..], &src[i..], coef);
    }
}

/// `to = coef * from`, added to what is there if `SUM`.
struct Multiply<const SUM: bool> {
    to: *mut u8,
    from: *const u8,
    coef: u8,
}

impl<const SUM: bool> Operation for Multiply<SUM> {
    #[inline(always)]
    unsafe fn at<B: Block, const U: usize>(&self, i: usize) {
        // SAFETY: the trait's contract.
        unsafe {
            let product = times(load::<B, U>(self.from.add(i)), self.coef);
            let result = if SUM { xor(load(self.to.add(i)), product) } else { product };
            store(result, self.to.add(i));
        }
    }
}

/// See [`reference::gf_mul_into`].
#[inline(always)]
pub(super) unsafe fn gf_mul_into<B: Block>(out: &mut [u8], src: &[u8], coef: u8) {
    let multiply = Multiply::<false> { to: out.as_mut_ptr(), from: src.as_ptr(), coef };
    // SAFETY: module contract; the lengths are equal.
    let i = unsafe { sweep::<B>(&multiply, 0, src.len()) };
    if i < src.len() {
        reference::gf_mul_into(&mut out[i..], &src[i..], coef);
    }
}

/// See [`reference::gf_mul_xor_into`].
#[inline(always)]
pub(super) unsafe fn gf_mul_xor_into<B: Block>(dst: &mut [u8], src: &[u8], coef: u8) {
    let multiply = Multiply::<true> { to: dst.as_mut_ptr(), from: src.as_ptr(), coef };
    // SAFETY: module contract; the lengths are equal.
    let i = unsafe { sweep::<B>(&multiply, 0, src.len()) };
    if i < src.len() {
        reference::gf_mul_xor_into(&mut dst[i..], &src[i..], coef);
    }
}

/// See [`reference::is_zero`].
#[inline(always)]
pub(super) unsafe fn is_zero<B: Wide>(bytes: &[u8]) -> bool {
    let (from, n) = (bytes.as_ptr(), bytes.len());
    let mut i = 0;
    while i + UNROLL * B::SIZE <= n {
        // SAFETY: UNROLL registers from `i` fit.
        let [a, b, c, d] = unsafe { load::<B, UNROLL>(from.add(i)) };
        // SAFETY: module contract.
        if unsafe { !a.or(b).or(c.or(d)).is_zero() } {
            return false;
        }
        i += UNROLL * B::SIZE;
    }
    while i + B::SIZE <= n {
        // SAFETY: one register from `i` fits.
        if unsafe { !B::load(from.add(i)).is_zero() } {
            return false;
        }
        i += B::SIZE;
    }
    reference::is_zero(&bytes[i..])
}

/// Registers after which the lanes of `adler_sums` are emptied. The sum that grows fastest gains
/// at most 255 * SIZE for every earlier register: 256 * 255 / 2 * 16,320 = 5.4e8, below 2^32.
const ADLER_RUN: usize = 256;

/// 64 zero bytes, then 64 of all ones: read from offset r, a mask that keeps the last r bytes of
/// a 64-byte register; read from offset 32 + r, the same for one of 32 bytes.
static KEEP_LAST: [u8; 128] = {
    let mut mask = [0; 128];
    let mut i = 64;
    while i < 128 {
        mask[i] = 0xFF;
        i += 1;
    }
    mask
};

/// See [`reference::adler_sums`].
#[inline(always)]
pub(super) unsafe fn adler_sums<B: Wide>(bytes: &[u8]) -> (u32, u32) {
    match bytes.len() {
        0..32 => reference::adler_sums(bytes),
        // SAFETY: module contract, which includes AVX2; the length has just been compared.
        n if n < B::SIZE => unsafe { adler_wide::<__m256i>(bytes) },
        // SAFETY: module contract; the length has just been compared.
        _ => unsafe { adler_wide::<B>(bytes) },
    }
}

/// `adler_sums` of at least one register.
///
/// A byte counts once for every byte from itself to the end. Within its register that is
/// `weighted_sums`; each later register adds `SIZE` more, which is what summing `plain` *before*
/// each register counts. The rest after the last whole register is read as the end of a register
/// whose earlier bytes are masked out.
#[inline(always)]
unsafe fn adler_wide<B: Wide>(bytes: &[u8]) -> (u32, u32) {
    let modulus = u64::from(MODULUS);
    let rest = bytes.len() % B::SIZE;
    let (whole, _) = bytes.split_at(bytes.len() - rest);
    let (mut plain, mut weighted) = (0, 0);
    for run in whole.chunks(ADLER_RUN * B::SIZE) {
        // SAFETY: `run` is a part of `whole`, of whole registers; module contract.
        let (run_plain, run_weighted) = unsafe { adler_run::<B>(run) };
        weighted = (weighted + plain * run.len() as u64 + run_weighted) % modulus;
        plain = (plain + run_plain) % modulus;
    }
    if rest > 0 {
        // SAFETY: the caller's promise of one register, so one ends with the last byte;
        // `KEEP_LAST` has SIZE bytes from 64 - SIZE + rest, as rest is below SIZE.
        let block = unsafe {
            let mask = B::load(KEEP_LAST.as_ptr().add(64 - B::SIZE + rest));
            B::load(bytes.as_ptr().add(bytes.len() - B::SIZE)).and(mask)
        };
        // SAFETY: module contract.
        let (last, inside) = unsafe { (block.sums().total(), block.weighted_sums().total()) };
        weighted = (weighted + plain * rest as u64 + u64::from(inside)) % modulus;
        plain = (plain + u64::from(last)) % modulus;
    }
    (plain as u32, weighted as u32)
}

/// The two sums of at most `ADLER_RUN` whole registers, not reduced.
#[inline(always)]
unsafe fn adler_run<B: Wide>(run: &[u8]) -> (u64, u64) {
    // SAFETY: module contract.
    let (mut sums, mut before, mut inside) = unsafe { (B::zero(), B::zero(), B::zero()) };
    let mut i = 0;
    while i + B::SIZE <= run.len() {
        // SAFETY: one register from `i` fits.
        unsafe {
            let block = B::load(run.as_ptr().add(i));
            before = before.add32(sums);
            sums = sums.add32(block.sums());
            inside = inside.add32(block.weighted_sums());
        }
        i += B::SIZE;
    }
    // SAFETY: module contract.
    let (sums, before, inside) = unsafe { (sums.total(), before.total(), inside.total()) };
    (u64::from(sums), u64::from(before) * B::SIZE as u64 + u64::from(inside))
}

/// Bytes of a long output before its first register-aligned one; `None` for a short output,
/// which is not streamed.
fn head_to_stream<B: Block>(out: &[u8]) -> Option<usize> {
    (out.len() >= STREAM_FROM).then(|| out.as_ptr().align_offset(B::SIZE))
}

/// `U` registers in a row. Caller: they are readable from `from`.
#[inline(always)]
unsafe fn load<B: Block, const U: usize>(from: *const u8) -> [B; U] {
    // SAFETY: module contract.
    let mut values = unsafe { [B::zero(); U] };
    for (u, value) in values.iter_mut().enumerate() {
        // SAFETY: register u lies u * SIZE bytes on, within the caller's promise.
        *value = unsafe { B::load(from.add(u * B::SIZE)) };
    }
    values
}

/// Stores `U` registers in a row. Caller: they are writable from `to`.
#[inline(always)]
unsafe fn store<B: Block, const U: usize>(values: [B; U], to: *mut u8) {
    for (u, value) in values.into_iter().enumerate() {
        // SAFETY: register u lies u * SIZE bytes on, within the caller's promise.
        unsafe { value.store(to.add(u * B::SIZE)) };
    }
}

/// `store`, around the caches if `STREAM`. Caller: then also aligned, and `drain` follows.
#[inline(always)]
unsafe fn put<B: Block, const U: usize, const STREAM: bool>(values: [B; U], to: *mut u8) {
    if !STREAM {
        // SAFETY: the caller's promise.
        return unsafe { store(values, to) };
    }
    for (u, value) in values.into_iter().enumerate() {
        // SAFETY: the caller's promise; a multiple of SIZE keeps the alignment.
        unsafe { value.stream(to.add(u * B::SIZE)) };
    }
}

#[inline(always)]
unsafe fn xor<B: Block, const U: usize>(mut a: [B; U], b: [B; U]) -> [B; U] {
    for (a, b) in a.iter_mut().zip(b) {
        // SAFETY: module contract.
        *a = unsafe { a.xor(b) };
    }
    a
}

#[inline(always)]
unsafe fn times<B: Block, const U: usize>(mut values: [B; U], coef: u8) -> [B; U] {
    // SAFETY: module contract.
    let factor = unsafe { B::factor(coef) };
    for value in &mut values {
        // SAFETY: module contract.
        *value = unsafe { value.times(factor) };
    }
    values
}

#[inline(always)]
unsafe fn double<B: Block, const U: usize>(mut values: [B; U]) -> [B; U] {
    for value in &mut values {
        // SAFETY: module contract.
        *value = unsafe { value.double() };
    }
    values
}
