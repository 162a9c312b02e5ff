//! Refusing rings of the kernel's to a program and all that comes of it: what is written through
//! them is not observed. They answer as on a system that has none (`ENOSYS`): programs do without.

use std::io;

/// One instruction of a filter: code, where to go if it is so and if not, operand.
const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Loads a word of what is known of a call, compares, answers.
const LOAD: u16 = 0x20;
const IS: u16 = 0x15;
const MASK: u16 = 0x54;
const ANSWER: u16 = 0x06;
/// Where number and machine lie.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const X86_64: u32 = 0xc000_003e;
const X86_32: u32 = 0x4000_0003;
/// The bit that marks calls of a third kind, with the numbers of the first.
const OTHER_KIND: u32 = 0x4000_0000;
const URING: u32 = libc::SYS_io_uring_setup as u32;
const AIO: u32 = libc::SYS_io_setup as u32;
const AIO_32: u32 = 245;
const ALLOW: u32 = 0x7fff_0000;
const NO_SUCH_CALL: u32 = 0x0005_0000 | libc::ENOSYS as u32;

static FILTER: [libc::sock_filter; 12] = [
    step(LOAD, 0, 0, MACHINE),
    step(IS, 4, 0, X86_64),
    step(IS, 0, 8, X86_32),
    step(LOAD, 0, 0, NUMBER),
    step(IS, 5, 0, AIO_32),
    step(IS, 4, 5, URING),
    step(LOAD, 0, 0, NUMBER),
    step(MASK, 0, 0, !OTHER_KIND),
    step(IS, 1, 0, AIO),
    step(IS, 0, 1, URING),
    step(ANSWER, 0, 0, NO_SUCH_CALL),
    step(ANSWER, 0, 0, ALLOW),
];

/// Refuses rings to this process from now on, and to all it starts. Nor can any of them get rights
/// by starting a set-uid program.
///
/// # Errors
/// What the system says. Called between fork and exec: allocates nothing.
pub(crate) fn refuse_rings() -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: FILTER.len() as u16,
        // Only read.
        filter: FILTER.as_ptr().cast_mut(),
    };
    // SAFETY: sets a flag of this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the list is static, and as long as it says; the kernel checks and copies it.
    let set = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
