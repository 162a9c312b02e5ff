//! The hot path neither allocates nor enters the kernel: a million commits under an allocator that
//! counts, a hundred thousand under a filter that kills on any system call.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{CreateOptions, OpenOptions, Pool};
use holdfast_pmem::{Mapped, SystemClock};
use holdfast_txn::Transaction;

/// Counts what it is asked for.
struct Counting;

thread_local! {
    /// Allocations of this thread: others, such as the test harness, may allocate as they like.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; counting changes nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const OBJECTS: usize = 2_000;

fn pool(name: &str) -> (Pool<Mapped>, Vec<RawPtr>) {
    let path = PathBuf::from(format!("/dev/shm/holdfast-quiet-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = CreateOptions { size: 64 << 20, ..CreateOptions::default() };
    let m = Mapped::create(&path, options.size, &holdfast_pmem::Options::default()).unwrap();
    // The mapping is all that is needed, and it goes with the process, however that ends.
    std::fs::remove_file(&path).unwrap();
    let clock = Arc::new(SystemClock::new());
    let pool = Pool::create(m, &options, OpenOptions::default(), clock).unwrap();
    let mut objects = Vec::new();
    for _ in 0..OBJECTS {
        objects.push(pool.run(|tx| tx.alloc_bytes(TypeNumber::BYTES, 200)).unwrap());
    }
    (pool, objects)
}

/// A mix of small commits: overwrites, several objects at once, allocation and free.
fn commits(pool: &Pool<Mapped>, objects: &[RawPtr], count: usize) {
    let mut spare = None;
    for i in 0..count {
        let p = objects[(i * 7919) % OBJECTS];
        let q = objects[(i * 104_729 + 1) % OBJECTS];
        match i % 4 {
            0 => pool.run(|tx| tx.write_bytes(p, 8, &(i as u64).to_le_bytes())),
            1 => pool.run(|tx| {
                tx.write_bytes(p, 0, &[i as u8; 64])?;
                if p != q { tx.write_bytes(q, 64, &[i as u8; 64]) } else { Ok(()) }
            }),
            2 => pool.run(|tx| {
                let mut bytes = [0; 64];
                tx.read_bytes(p, 0, &mut bytes)?;
                tx.write_bytes(q, 128, &(i as u64 + 1).to_le_bytes())
            }),
            _ => {
                let old = spare.take();
                let made = pool.run(|tx| {
                    if let Some(old) = old {
                        tx.free(old)?;
                    }
                    tx.alloc_bytes(TypeNumber::BYTES, 100)
                });
                made.map(|p| spare = Some(p))
            }
        }
        .unwrap();
    }
    if let Some(p) = spare {
        pool.run(|tx| tx.free(p)).unwrap();
    }
}

#[test]
fn a_million_commits_allocate_nothing() {
    let (pool, objects) = pool("alloc");
    commits(&pool, &objects, 20_000);
    let before = ALLOCATIONS.get();
    commits(&pool, &objects, 1_000_000);
    let after = ALLOCATIONS.get();
    assert_eq!(after - before, 0, "allocations in 1e6 commits");
}

#[test]
fn a_hundred_thousand_commits_enter_the_kernel_never() {
    const CHILD: &str = "HOLDFAST_QUIET_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let status = Command::new(me)
            .args(["--exact", "a_hundred_thousand_commits_enter_the_kernel_never", "--nocapture"])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success(), "the child entered the kernel: {status}");
        return;
    }
    let (pool, objects) = pool("calls");
    commits(&pool, &objects, 20_000);
    kill_on_system_calls();
    commits(&pool, &objects, 100_000);
    // SAFETY: ends the process at once, by the one call the filter lets through.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
}

/// From here on any system call of this thread but `exit_group` kills the process.
fn kill_on_system_calls() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain system calls; the program outlives the second one, which copies it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(installed, "the filter could not be installed");
}
