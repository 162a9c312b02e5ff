//! The only instructions that touch a mapping: load, store, XOR and zero, each with an error exit.
//!
//! All routines lie between two symbols and keep three rules, which make one error exit serve
//! them all: they never move the stack pointer, they change only registers that a call may change,
//! and they leave no flag that a caller relies on. So the fault handler, seeing the instruction
//! pointer between the symbols, may put it on a bare `ret` with an error in the result registers,
//! and the routine has returned to its caller.
//!
//! The layout of every storing routine is the same. The range is cut at line borders. A whole line
//! is stored by the widest instruction there is, around the cache if the range is long; a partial
//! line is stored as bytes up to the next multiple of 8, then as whole 8-byte words, then as bytes,
//! and its line is flushed once. So aligned words are stored whole, whatever the flavour. A line
//! that stays in the cache is fetched for writing first: the fetch, unlike the store, need not wait
//! for the drain before it.
//!
//! Registers of the SSE flavour are `xmm0..3`; the AVX-512 flavour uses `zmm16..19`, which need no
//! `vzeroupper`.

use core::arch::{asm, global_asm};

use crate::medium::PUT_CACHED_MAX;

/// What a routine answers: in `rax` and `rdx`, so that the handler can fill it in.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Outcome {
    /// 0 if the access was done, else [`TRAPPED`] plus the binary logarithm of the bad extent.
    pub(crate) code: u64,
    /// The faulting address; meaningless if `code` is 0.
    pub(crate) address: u64,
}

impl Outcome {
    /// Whether the access met a fault.
    #[inline(always)]
    pub(crate) fn trapped(self) -> bool {
        self.code != 0
    }

    /// Bytes the platform takes for bad around the address (a power of two, at least a page).
    pub(crate) fn extent(self) -> u64 {
        1 << (self.code & 0xff).clamp(PAGE_SHIFT, FRAME_SHIFT)
    }
}

/// Set in [`Outcome::code`] by the handler.
pub(crate) const TRAPPED: u64 = 0x100;
/// Binary logarithm of a page.
pub(crate) const PAGE_SHIFT: u64 = 12;
/// Binary logarithm of the largest extent reported at once (a large-page mapping).
const FRAME_SHIFT: u64 = 21;

/// How stores reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Whole lines by 64-byte non-temporal stores, partial lines flushed by `clwb`.
    Wide,
    /// Whole lines by 16-byte non-temporal stores, partial lines flushed by `clwb`.
    Clwb,
    /// The same with `clflushopt`.
    Clflushopt,
    /// The same with `clflush`.
    Clflush,
    /// Ordinary stores, nothing flushed.
    Plain,
}

/// Puts aside of at most so many bytes go through the cache. Up to here storing and flushing is
/// cheaper; from here on, going around the cache is.
pub(crate) const NEAR_ASIDE: usize = 448;

global_asm!(
    r#"
.section .text.holdfast_pmem_access,"ax",@progbits

.macro HF_FLUSH_clwb
    clwb [r10]
.endm
.macro HF_FLUSH_clflushopt
    clflushopt [r10]
.endm
.macro HF_FLUSH_clflush
    clflush [r10]
.endm
.macro HF_FLUSH_nothing
.endm

.macro HF_PUT_BYTE
    mov al, [rsi]
    mov [rdi], al
.endm
.macro HF_PUT_WORD
    mov rax, [rsi]
    mov [rdi], rax
.endm
.macro HF_PUT_LINE_wide flush
    vmovdqu64 zmm16, [rsi]
    vmovntdq [rdi], zmm16
.endm
.macro HF_LOAD_LINE
    movdqu xmm0, [rsi]
    movdqu xmm1, [rsi + 16]
    movdqu xmm2, [rsi + 32]
    movdqu xmm3, [rsi + 48]
.endm
.macro HF_PUT_LINE_around flush
    HF_LOAD_LINE
    movntdq [rdi], xmm0
    movntdq [rdi + 16], xmm1
    movntdq [rdi + 32], xmm2
    movntdq [rdi + 48], xmm3
.endm
.macro HF_PUT_LINE_near_wide flush
    prefetchw [rdi]
    mov r10, rdi
    vmovdqu64 zmm16, [rsi]
    vmovdqa64 [rdi], zmm16
    HF_FLUSH_\flush
.endm
.macro HF_PUT_LINE_near flush
    prefetchw [rdi]
    mov r10, rdi
    HF_LOAD_LINE
    movdqa [rdi], xmm0
    movdqa [rdi + 16], xmm1
    movdqa [rdi + 32], xmm2
    movdqa [rdi + 48], xmm3
    HF_FLUSH_\flush
.endm

.macro HF_XOR_BYTE
    mov al, [rsi]
    xor [rdi], al
.endm
.macro HF_XOR_WORD
    mov rax, [rsi]
    xor [rdi], rax
.endm
.macro HF_XOR_LINE_near_wide flush
    vmovdqu64 zmm16, [rsi]
    vpxorq zmm16, zmm16, [rdi]
    vmovdqa64 [rdi], zmm16
    mov r10, rdi
    HF_FLUSH_\flush
.endm
.macro HF_XOR_LINE_near flush
    HF_LOAD_LINE
    pxor xmm0, [rdi]
    pxor xmm1, [rdi + 16]
    pxor xmm2, [rdi + 32]
    pxor xmm3, [rdi + 48]
    movdqa [rdi], xmm0
    movdqa [rdi + 16], xmm1
    movdqa [rdi + 32], xmm2
    movdqa [rdi + 48], xmm3
    mov r10, rdi
    HF_FLUSH_\flush
.endm

.macro HF_ZERO_BYTE
    mov byte ptr [rdi], 0
.endm
.macro HF_ZERO_WORD
    mov qword ptr [rdi], 0
.endm
.macro HF_ZERO_LINE_wide flush
    vpxorq zmm16, zmm16, zmm16
    vmovntdq [rdi], zmm16
.endm
.macro HF_ZERO_LINE_around flush
    pxor xmm0, xmm0
    movntdq [rdi], xmm0
    movntdq [rdi + 16], xmm0
    movntdq [rdi + 32], xmm0
    movntdq [rdi + 48], xmm0
.endm
.macro HF_ZERO_LINE_near flush
    pxor xmm0, xmm0
    movdqa [rdi], xmm0
    movdqa [rdi + 16], xmm0
    movdqa [rdi + 32], xmm0
    movdqa [rdi + 48], xmm0
.endm

.macro HF_BEGIN name
.globl \name
.hidden \name
.type \name,@function
.p2align 6
\name:
    .cfi_startproc
.endm
.macro HF_END name
    .cfi_endproc
.size \name, . - \name
.endm

// rdi: to, rsi: from (rdi itself for zero), rdx: bytes. r9: bytes of this line, r10: this line.
.macro HF_STORE name, what, line, flush
HF_BEGIN \name
    test    rdx, rdx
    jz      9f
1:  mov     eax, edi
    and     eax, 63
    mov     r9d, 64
    sub     r9d, eax
    cmp     r9, rdx
    cmova   r9, rdx
    sub     rdx, r9
    cmp     r9d, 64
    je      6f
    prefetchw [rdi]
    mov     r10, rdi
2:  test    dil, 7
    jz      3f
    HF_\what\()_BYTE
    inc     rdi
    inc     rsi
    dec     r9d
    jnz     2b
    jmp     5f
3:  cmp     r9d, 8
    jb      4f
    HF_\what\()_WORD
    add     rdi, 8
    add     rsi, 8
    sub     r9d, 8
    jnz     3b
    jmp     5f
4:  HF_\what\()_BYTE
    inc     rdi
    inc     rsi
    dec     r9d
    jnz     4b
5:  HF_FLUSH_\flush
    test    rdx, rdx
    jnz     1b
    jmp     9f
6:  HF_\what\()_LINE_\line \flush
    add     rdi, 64
    add     rsi, 64
    cmp     rdx, 64
    jb      7f
    sub     rdx, 64
    jmp     6b
7:  test    rdx, rdx
    jnz     1b
9:  xor     eax, eax
    ret
HF_END \name
.endm

.globl holdfast_pmem_access_begin
.hidden holdfast_pmem_access_begin
.p2align 6
holdfast_pmem_access_begin:

HF_STORE holdfast_pmem_put_wide, PUT, wide, clwb
HF_STORE holdfast_pmem_put_near_wide, PUT, near_wide, clwb
HF_STORE holdfast_pmem_put_clwb, PUT, around, clwb
HF_STORE holdfast_pmem_put_near_clwb, PUT, near, clwb
HF_STORE holdfast_pmem_put_clflushopt, PUT, around, clflushopt
HF_STORE holdfast_pmem_put_clflush, PUT, around, clflush
HF_STORE holdfast_pmem_put_plain, PUT, near, nothing
HF_STORE holdfast_pmem_xor_wide, XOR, near_wide, clwb
HF_STORE holdfast_pmem_xor_clwb, XOR, near, clwb
HF_STORE holdfast_pmem_xor_clflushopt, XOR, near, clflushopt
HF_STORE holdfast_pmem_xor_clflush, XOR, near, clflush
HF_STORE holdfast_pmem_xor_plain, XOR, near, nothing
HF_STORE holdfast_pmem_zero_wide, ZERO, wide, clwb
HF_STORE holdfast_pmem_zero_clwb, ZERO, around, clwb
HF_STORE holdfast_pmem_zero_clflushopt, ZERO, around, clflushopt
HF_STORE holdfast_pmem_zero_clflush, ZERO, around, clflush
HF_STORE holdfast_pmem_zero_plain, ZERO, near, nothing

// Loads of less than 64 bytes: two overlapping pieces of the largest power of two that fits.
.macro HF_LOAD_SMALL
7:  cmp     edx, 16
    jae     5f
    cmp     edx, 8
    jae     4f
    cmp     edx, 4
    jae     3f
    test    edx, edx
    jz      9f
    mov     ecx, edx
    shr     ecx, 1
    movzx   eax, byte ptr [rsi]
    movzx   r8d, byte ptr [rsi + rcx]
    movzx   r9d, byte ptr [rsi + rdx - 1]
    mov     [rdi + rcx], r8b
    mov     [rdi + rdx - 1], r9b
    mov     [rdi], al
    jmp     9f
3:  mov     eax, [rsi]
    mov     ecx, [rsi + rdx - 4]
    mov     [rdi], eax
    mov     [rdi + rdx - 4], ecx
    jmp     9f
4:  mov     rax, [rsi]
    mov     rcx, [rsi + rdx - 8]
    mov     [rdi], rax
    mov     [rdi + rdx - 8], rcx
    jmp     9f
5:  movdqu  xmm0, [rsi]
    movdqu  xmm1, [rsi + rdx - 16]
    cmp     edx, 32
    jbe     6f
    movdqu  xmm2, [rsi + 16]
    movdqu  xmm3, [rsi + rdx - 32]
    movdqu  [rdi + 16], xmm2
    movdqu  [rdi + rdx - 32], xmm3
6:  movdqu  [rdi], xmm0
    movdqu  [rdi + rdx - 16], xmm1
9:  xor     eax, eax
    ret
.endm

// rdi: to, rsi: from, rdx: bytes.
HF_BEGIN holdfast_pmem_load_wide
    cmp     rdx, 64
    jb      7f
    vmovdqu64 zmm19, [rsi + rdx - 64]
    lea     r8, [rdi + rdx - 64]
    cmp     rdx, 256
    jb      2f
    cmp     rdx, 512
    jb      1f
    // Stores that straddle lines cost twice: begin a long loop where `to` begins a line.
    vmovdqu64 zmm16, [rsi]
    vmovdqu64 [rdi], zmm16
    mov     eax, edi
    and     eax, 63
    sub     rax, 64
    sub     rsi, rax
    sub     rdi, rax
    add     rdx, rax
1:  vmovdqu64 zmm16, [rsi]
    vmovdqu64 zmm17, [rsi + 64]
    vmovdqu64 zmm18, [rsi + 128]
    vmovdqu64 [rdi], zmm16
    vmovdqu64 zmm16, [rsi + 192]
    vmovdqu64 [rdi + 64], zmm17
    vmovdqu64 [rdi + 128], zmm18
    vmovdqu64 [rdi + 192], zmm16
    add     rsi, 256
    add     rdi, 256
    sub     rdx, 256
    cmp     rdx, 256
    jae     1b
2:  cmp     rdx, 64
    jbe     3f
    vmovdqu64 zmm16, [rsi]
    vmovdqu64 [rdi], zmm16
    add     rsi, 64
    add     rdi, 64
    sub     rdx, 64
    jmp     2b
3:  vmovdqu64 [r8], zmm19
    xor     eax, eax
    ret
    HF_LOAD_SMALL
HF_END holdfast_pmem_load_wide

HF_BEGIN holdfast_pmem_load_base
    cmp     rdx, 64
    jb      7f
1:  HF_LOAD_LINE
    movdqu  [rdi], xmm0
    movdqu  [rdi + 16], xmm1
    movdqu  [rdi + 32], xmm2
    movdqu  [rdi + 48], xmm3
    add     rsi, 64
    add     rdi, 64
    sub     rdx, 64
    cmp     rdx, 64
    jae     1b
    HF_LOAD_SMALL
HF_END holdfast_pmem_load_base

.globl holdfast_pmem_access_end
.hidden holdfast_pmem_access_end
holdfast_pmem_access_end:

// Where the handler sends a routine that met a fault; rax and rdx hold the outcome.
HF_BEGIN holdfast_pmem_access_failed
    ret
HF_END holdfast_pmem_access_failed
.text
"#,
    options(raw)
);

unsafe extern "sysv64" {
    fn holdfast_pmem_put_wide(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_near_wide(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_clwb(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_near_clwb(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_clflushopt(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_clflush(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_put_plain(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_xor_wide(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_xor_clwb(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_xor_clflushopt(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_xor_clflush(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_xor_plain(to: usize, from: *const u8, len: usize) -> Outcome;
    fn holdfast_pmem_zero_wide(to: usize, same: usize, len: usize) -> Outcome;
    fn holdfast_pmem_zero_clwb(to: usize, same: usize, len: usize) -> Outcome;
    fn holdfast_pmem_zero_clflushopt(to: usize, same: usize, len: usize) -> Outcome;
    fn holdfast_pmem_zero_clflush(to: usize, same: usize, len: usize) -> Outcome;
    fn holdfast_pmem_zero_plain(to: usize, same: usize, len: usize) -> Outcome;
    fn holdfast_pmem_load_wide(to: *mut u8, from: usize, len: usize) -> Outcome;
    fn holdfast_pmem_load_base(to: *mut u8, from: usize, len: usize) -> Outcome;
    static holdfast_pmem_access_begin: u8;
    static holdfast_pmem_access_end: u8;
    fn holdfast_pmem_access_failed();
}

/// Copies `len` bytes from the mapping at `from` to `to`.
///
/// # Safety
/// `to` is valid for `len` bytes of writes and `[from, from + len)` lies in a registered mapping
/// (whose pages may be bad). If `wide`, the CPU has AVX-512 F and VL.
#[inline(always)]
pub(crate) unsafe fn load(wide: bool, to: *mut u8, from: usize, len: usize) -> Outcome {
    // SAFETY: the contract above is the routines' own.
    unsafe {
        if wide {
            holdfast_pmem_load_wide(to, from, len)
        } else {
            holdfast_pmem_load_base(to, from, len)
        }
    }
}

/// Stores `len` bytes from `from` into the mapping at `to`.
///
/// # Safety
/// `from` is valid for `len` bytes of reads, `[to, to + len)` lies in a registered mapping (whose
/// pages may be bad), no reference covers the range, and the CPU has what `stores` names.
#[inline(always)]
pub(crate) unsafe fn put(
    stores: Stores,
    to: usize,
    from: *const u8,
    len: usize,
    near: usize,
) -> Outcome {
    // SAFETY: the contract above is the routines' own.
    unsafe {
        match stores {
            Stores::Wide if len <= near => holdfast_pmem_put_near_wide(to, from, len),
            Stores::Wide => holdfast_pmem_put_wide(to, from, len),
            Stores::Clwb if len <= near => holdfast_pmem_put_near_clwb(to, from, len),
            Stores::Clwb => holdfast_pmem_put_clwb(to, from, len),
            Stores::Clflushopt => holdfast_pmem_put_clflushopt(to, from, len),
            Stores::Clflush => holdfast_pmem_put_clflush(to, from, len),
            Stores::Plain => holdfast_pmem_put_plain(to, from, len),
        }
    }
}

/// Whether [`put`] leaves all lines of `len` bytes in the cache.
#[inline(always)]
pub(crate) fn put_is_cached(stores: Stores, len: u64) -> bool {
    match stores {
        Stores::Wide | Stores::Clwb => len <= PUT_CACHED_MAX as u64,
        // No whole line fits.
        Stores::Clflushopt | Stores::Clflush => len < 64,
        Stores::Plain => true,
    }
}

/// XORs `len` bytes from `from` into the mapping at `to`.
///
/// # Safety
/// As for [`put`].
#[inline(always)]
pub(crate) unsafe fn xor(stores: Stores, to: usize, from: *const u8, len: usize) -> Outcome {
    // SAFETY: the contract above is the routines' own.
    unsafe {
        match stores {
            Stores::Wide => holdfast_pmem_xor_wide(to, from, len),
            Stores::Clwb => holdfast_pmem_xor_clwb(to, from, len),
            Stores::Clflushopt => holdfast_pmem_xor_clflushopt(to, from, len),
            Stores::Clflush => holdfast_pmem_xor_clflush(to, from, len),
            Stores::Plain => holdfast_pmem_xor_plain(to, from, len),
        }
    }
}

/// Stores `len` zero bytes into the mapping at `to`.
///
/// # Safety
/// As for [`put`], without a source.
#[inline(always)]
pub(crate) unsafe fn zero(stores: Stores, to: usize, len: usize) -> Outcome {
    // SAFETY: the contract above is the routines' own; the second argument is counted, not read.
    unsafe {
        match stores {
            Stores::Wide => holdfast_pmem_zero_wide(to, to, len),
            Stores::Clwb => holdfast_pmem_zero_clwb(to, to, len),
            Stores::Clflushopt => holdfast_pmem_zero_clflushopt(to, to, len),
            Stores::Clflush => holdfast_pmem_zero_clflush(to, to, len),
            Stores::Plain => holdfast_pmem_zero_plain(to, to, len),
        }
    }
}

/// Waits until this thread's flushes and non-temporal stores are done.
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: sfence touches no register and every x86-64 CPU has it. Without `nomem` it is also
    // a barrier to the compiler.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// Where to resume instead, if the instruction at `rip` belongs to a routine of this file.
/// Async-signal-safe.
pub(crate) fn error_exit(rip: usize) -> Option<usize> {
    let begin = &raw const holdfast_pmem_access_begin as usize;
    let end = &raw const holdfast_pmem_access_end as usize;
    (begin..end).contains(&rip).then_some(holdfast_pmem_access_failed as *const () as usize)
}

#[cfg(test)]
mod tests;
