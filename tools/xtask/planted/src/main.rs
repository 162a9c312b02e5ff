//! Faults that a sanitizer has to tell of, one for each word this program is started with. It is
//! built by `cargo xtask sanitize` as the tests are, and run before them: a sanitizer that is told
//! to look away, or was left out, convicts nobody.
//!
//! What is unsafe here is wrong on purpose, each time in one way, which its name says.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::scope;

/// Bytes of a buffer.
const LEN: usize = 64;

static GLOBAL: [u8; LEN] = [7; LEN];

/// A word that threads share without any order.
struct Shared(UnsafeCell<u64>);

// SAFETY: it is not: who uses it from several threads makes the fault that is planted.
unsafe impl Sync for Shared {}

impl Shared {
    const fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn write(&self, value: u64) {
        // SAFETY: the pointer is that of the word, which lives; another thread may use it.
        unsafe { self.0.get().write_volatile(value) };
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get().read_volatile() }
    }
}

static WORD: Shared = Shared::new();

fn main() -> ExitCode {
    let word = std::env::args().nth(1).unwrap_or_default();
    match word.as_str() {
        "nothing" => nothing(),
        "freed" => freed(),
        "twice" => twice(),
        "past" => read(&vec![7; black_box(LEN)], LEN as isize),
        "before" => read(&vec![7; black_box(LEN)], -1),
        "stack" => read(&black_box([7; LEN]), LEN as isize + 4),
        "global" => read(&GLOBAL, LEN as isize + 4),
        "writers" => both(|| WORD.write(1), || WORD.write(2)),
        "reader" => both(|| WORD.write(1), || see(WORD.read())),
        "flag" => flag(),
        "pointer" => pointer(),
        "locks" => locks(),
        _ => return ExitCode::from(16),
    }
    ExitCode::SUCCESS
}

/// Nothing is wrong with this.
fn nothing() {
    let (count, bytes) = (AtomicU64::new(0), [7_u8; LEN].to_vec());
    both(
        || see(count.fetch_add(u64::from(bytes[0]), Ordering::AcqRel)),
        || see(count.fetch_add(u64::from(bytes[LEN - 1]), Ordering::AcqRel)),
    );
    WORD.write(count.load(Ordering::Acquire));
    assert_eq!(WORD.read(), 14);
}

/// Does two things on two threads, neither before both are there: what starts one thread may order
/// it behind the other's end. That they are there is told by words that order nothing.
fn both(one: impl FnOnce() + Send, two: impl FnOnce() + Send) {
    let there = AtomicU64::new(0);
    let meet = || {
        there.fetch_add(1, Ordering::Relaxed);
        while there.load(Ordering::Relaxed) < 2 {
            std::hint::spin_loop();
        }
    };
    scope(|scope| {
        scope.spawn(|| {
            meet();
            one();
        });
        scope.spawn(|| {
            meet();
            two();
        });
    });
}

/// Has a value been used.
fn see<T>(value: T) {
    black_box(&value);
}

fn read(bytes: &[u8], at: isize) {
    // SAFETY: none: the byte is not one of these.
    see(unsafe { bytes.as_ptr().offset(black_box(at)).read_volatile() });
}

fn freed() {
    let at = Box::into_raw(Box::new(7_u64));
    // SAFETY: it comes from a box.
    drop(unsafe { Box::from_raw(black_box(at)) });
    // SAFETY: none: the box is gone.
    see(unsafe { black_box(at).read_volatile() });
}

fn twice() {
    let layout = Layout::new::<[u8; LEN]>();
    // SAFETY: the layout has a length.
    let at = unsafe { alloc(layout) };
    for _ in 0..2 {
        // SAFETY: the first time it comes from there; there is none for the second.
        unsafe { dealloc(black_box(at), layout) };
    }
}

/// What is written before a flag that orders nothing is read behind it.
fn flag() {
    let set = AtomicBool::new(false);
    both(
        || {
            WORD.write(1);
            set.store(true, Ordering::Relaxed);
        },
        || {
            while !set.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            see(WORD.read());
        },
    );
}

/// The same of what a pointer leads to.
fn pointer() {
    let shared = AtomicPtr::new(std::ptr::null_mut());
    both(
        || shared.store(Box::into_raw(Box::new(7_u64)), Ordering::Relaxed),
        || {
            let at: *mut u64 = loop {
                let at = shared.load(Ordering::Relaxed);
                if !at.is_null() {
                    break at;
                }
            };
            // SAFETY: it comes from a box that nobody frees; nothing orders its making.
            see(unsafe { at.read_volatile() });
        },
    );
}

/// Each holds a lock, and not the same one.
fn locks() {
    let locks = [Mutex::new(()), Mutex::new(())];
    let write = |lock: &Mutex<()>, value| {
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        WORD.write(value);
    };
    both(|| write(&locks[0], 1), || write(&locks[1], 2));
}
