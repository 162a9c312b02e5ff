//! Loaded into a guarded program: registers its mappings and tells of its writes. Computes nothing.
//!
//! # Guarantee
//!
//! Before a call that may change a guarded file returns to the program, and before it begins where
//! that matters, the supervisor knows of it: it is told, or it finds it in shared memory. What
//! could not be told is said to be so ([`holdfast_guard_wire::Ledger::lose`]), and makes the
//! supervisor careful. The program's results and its `errno` are those of the real calls.
//!
//! Not covered: system calls made without the C library, libraries that do not find the hooks (told
//! where they are loaded; `dlvsym` is not), `io_uring` and kernel `aio` (told where they are asked
//! for through the C library), and what that does inside itself other than what is
//! listed here. The supervisor has other means to notice them. A media error under a system call is
//! the kernel's error, as without us. `aio_write` on a guarded file, `aio_read` into a
//! mapping of one and `remap_file_pages` are refused (`ENOSYS`).
//!
//! # Picture
//!
//! ```text
//!   program --> hook --> fstat, ledger: one of ours? --no--> real function
//!                           | yes
//!                           |  writes: slot on the board -> real function -> bits -> slot cleared
//!                           |  maps:   real function -> userfaultfd -> tell, wait -> return
//!                           v  unmaps: read-only -> tell, wait -> real function
//!                       supervisor
//!   anchor: a process that shares the addresses, owns nothing else, and waits on a socket
//! ```
//!
//! # Vocabulary
//!
//! As in [`holdfast_guard_wire`]. *hook*: a function of this library that stands before one of the
//! C library. *quiet*: with all signals blocked and the one lock held.
//!
//! # Life of a store
//!
//! 1. `mmap` has registered its pages; the supervisor has armed them
//! 2. the program stores; the kernel lifts the protection of that page; nobody of us is involved
//!
//! # Life of a `pwrite`
//!
//! 1. the range is published in a slot of the file's board: it counts as stored to (a locked
//!    instruction, in order before the call)
//! 2. the real call; 3. the pages are marked (locked), then the slot is cleared
//!
//! # After a fork, and after an exec
//!
//! A child registers everything anew before `fork` returns in it. A program that is replaced leaves
//! its addresses to the anchor; the new one begins afresh, by `LD_PRELOAD`. Both are strangers to
//! the supervisor until they have said, last of all, that they are set up.
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `real.rs` | hooks, and the functions behind them |
//! | `state.rs` | start, what is known, the lock |
//! | `anchor.rs` | keeping page tables |
//! | `files.rs` | which file a descriptor is; announcing |
//! | `leaps.rs` | calls that are left by a jump |
//! | `table.rs`, `maps.rs` | mappings |
//! | `opens.rs`, `streams.rs`, `writes.rs`, `lengths.rs`, `syncs.rs` | the hooks by family |
//! | `reads.rs` | reads whose buffers lie in mappings |
//! | `names.rs` | files that are given names, or were there before |
//! | `faults.rs` | loads that meet a media error |
//! | `raw.rs` | `syscall`, and functions that write by themselves |
//! | `handles.rs` | functions asked for by a handle |
//! | `fork.rs`, `exec.rs` | new processes and new programs |
//! | `handing.rs` | handles that go to others |
//! | `strict.rs` | programs that give their calls up |
//! | `attach.rs` | the one function for programs that know of us |

#![cfg_attr(test, allow(dead_code, reason = "tests export no hooks"))]

mod anchor;
mod attach;
mod exec;
mod faults;
mod files;
mod fork;
mod handing;
mod handles;
mod leaps;
mod lengths;
mod maps;
mod names;
mod opens;
mod raw;
mod reads;
mod real;
mod state;
mod streams;
mod strict;
mod syncs;
mod table;
mod writes;

pub use attach::holdfast_guard_attach;
