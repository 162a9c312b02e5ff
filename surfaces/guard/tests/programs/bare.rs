//! A program that loads no library: a few instructions, written out as an executable file. It
//! opens the file that it is given, maps a page of it, stores there and ends; with one more word,
//! it does not end by itself. Without any it takes a handle that it inherits.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What it stores, and the page.
pub(crate) const STORED: &[u8] = b"unseen!!";
pub(crate) const PAGE_OF: usize = 250;

// In no executable part of this test.
core::arch::global_asm!(
    ".pushsection .rodata",
    ".globl hf_bare_begin",
    "hf_bare_begin:",
    // The one of `hands.rs`.
    "mov r8d, 60",
    "cmp qword ptr [rsp], 1",
    "je 1f",
    // open(its first word, O_RDWR)
    "mov rdi, [rsp + 16]",
    "mov esi, 2",
    "xor edx, edx",
    "mov eax, 2",
    "syscall",
    "mov r8, rax",
    "1:",
    // mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, it, 250 * 4096)
    "xor edi, edi",
    "mov esi, 4096",
    "mov edx, 3",
    "mov r10d, 1",
    "mov r9d, 250 * 4096",
    "mov eax, 9",
    "syscall",
    "movabs rcx, 0x21216e6565736e75",
    "mov [rax], rcx",
    // pause(), if there are three words
    "cmp qword ptr [rsp], 3",
    "jne 2f",
    "mov eax, 34",
    "syscall",
    "2:",
    // exit_group(0)
    "xor edi, edi",
    "mov eax, 231",
    "syscall",
    ".globl hf_bare_end",
    "hf_bare_end:",
    ".popsection",
);

unsafe extern "C" {
    static hf_bare_begin: u8;
    static hf_bare_end: u8;
}

/// Where its file is loaded.
const BASE: u64 = 0x40_0000;
/// Bytes of the headers.
const HEADERS: usize = 64 + 56;

/// Makes the program.
pub(crate) fn write(path: &Path) {
    // SAFETY: the two labels around the instructions above.
    let code = unsafe {
        let (begin, end) = (&raw const hf_bare_begin, &raw const hf_bare_end);
        core::slice::from_raw_parts(begin, end as usize - begin as usize)
    };
    let mut file = Vec::new();
    let mut words = |bytes: &[&[u8]]| bytes.iter().for_each(|word| file.extend_from_slice(word));
    let long = |word: u64| word.to_le_bytes();
    let (len, entry) = ((HEADERS + code.len()) as u64, BASE + HEADERS as u64);
    // An executable of this machine; its one part follows at once.
    words(&[b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0"]);
    words(&[&long(entry), &long(64), &long(0), &[0; 4], &64_u16.to_le_bytes()]);
    words(&[&56_u16.to_le_bytes(), &1_u16.to_le_bytes(), &64_u16.to_le_bytes(), &[0; 4]]);
    // To be read and executed.
    words(&[&1_u32.to_le_bytes(), &5_u32.to_le_bytes(), &long(0), &long(BASE), &long(BASE)]);
    words(&[&long(len), &long(len), &long(4096), code]);
    std::fs::write(path, &file).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
