//! A process that forks while it has a pool open: in the child the handle is given back without a
//! trace, and the parent's pool goes on. And children that are forked for other programs: until
//! they run those, they have what their parent has open, and are no reason to refuse it anything.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::protect::{ProtectOptions, ProtectedFile};
use holdfast::{ErrorKind, Owner, Pool};

/// A child that one test forks has what the other has open.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something in a forked child; how that ended, as the system tells it.
fn in_child(work: impl FnOnce()) -> libc::c_int {
    // SAFETY: the child calls `work` and ends. Of other threads it needs no lock but the
    // allocator's, which the C library makes usable in it.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no arguments; a child that hangs dies of it.
            unsafe { libc::alarm(20) };
            let code = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
            // SAFETY: ends the process, without what the parent registered for its own end.
            unsafe { libc::_exit(code) }
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: waits for the child made above; the place for its status is ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

#[test]
fn a_pool_dropped_in_a_forked_child_is_the_parents_still() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    // All the threads there can be.
    let options = Pool::options().size(16 << 20).scrub_every(Some(Duration::from_secs(3600)));
    let pool = options.create(&path).unwrap();
    let map = pool.map::<u64, [u8]>("map").unwrap();
    map.put(&1, b"before").unwrap();
    let mut left = Some((pool, map));
    let status = in_child(|| drop(left.take()));
    assert_eq!(status, 0, "the child died or panicked: {status:#x}");
    let (pool, map) = left.unwrap();
    map.put(&2, b"after").unwrap();
    assert_eq!(Owner::reach(&path).unwrap().stats().unwrap(), pool.stats());
    assert!(Pool::open(&path).is_err(), "the parent has it open");
    drop((pool, map));
    assert!(Owner::reach(&path).is_none());
    let map = Pool::open(&path).unwrap().map::<u64, [u8]>("map").unwrap();
    assert_eq!(map.get(&1).unwrap().as_deref(), Some(&b"before"[..]));
    assert_eq!(map.get(&2).unwrap().as_deref(), Some(&b"after"[..]));
}

/// Forks a child that does nothing for so many milliseconds, as one does that is about to run
/// another program.
fn lingers(millis: u32) -> libc::pid_t {
    // SAFETY: the child makes system calls only, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::usleep(millis * 1000);
            libc::_exit(0);
        }
        assert!(child > 0);
        child
    }
}

fn end(child: libc::pid_t) {
    // SAFETY: a child of this process, which is not waited for elsewhere.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, core::ptr::null_mut(), 0);
    }
}

#[test]
fn a_file_at_rest_is_not_refused_for_a_child_on_its_way() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, vec![7; 40 << 12]).unwrap();
    let options = ProtectOptions::new();
    ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
    for _ in 0..5 {
        let open = ProtectedFile::open(&path, &options).unwrap();
        // While it is open, and before it is opened again.
        let child = lingers(50);
        assert!(open.repair(false, |_, _| true).unwrap().undecided.is_empty());
        end(child);
        let child = lingers(50);
        drop(open);
        let open = ProtectedFile::open(&path, &options).unwrap();
        end(child);
        open.close().unwrap();
        let written = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let child = lingers(50);
        drop(written);
        ProtectedFile::protect_again(&path, &options).unwrap().close().unwrap();
        end(child);
    }
    // One that stays is somebody else.
    let written = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let child = lingers(60_000);
    drop(written);
    let error = ProtectedFile::open(&path, &options).unwrap_err();
    end(child);
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}
