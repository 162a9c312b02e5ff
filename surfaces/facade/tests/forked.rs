//! A process that forks while it has a pool open: in the child the handle is given back without a
//! trace, and the parent's pool goes on. And children that are forked for other programs: until
//! they run those, they have what their parent has open, and are no reason to refuse it anything.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::protect::{ProtectOptions, ProtectedFile, side_path};
use holdfast::{Error, ErrorKind, Owner, Pool};

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

/// How long a child lives that lingers in a round, and how long it may live at the most for a
/// round to say anything: the product waits for 100 ms, and to hear of the end for a moment more.
const LINGERS: u32 = 50;
const IN_TIME: Duration = Duration::from_millis(60);

/// How long a child lived that began then. It is left to be waited for.
fn lived(child: libc::pid_t, began: Instant) -> Duration {
    // SAFETY: zeros are a place for what is told of a child, which lives across the call.
    unsafe {
        let mut told: libc::siginfo_t = core::mem::zeroed();
        let how = libc::WEXITED | libc::WNOWAIT;
        libc::waitid(libc::P_PID, child.unsigned_abs(), &raw mut told, how);
    }
    began.elapsed()
}

/// Does something that must not be refused for a child that lingers. `None` if it was, and the
/// child was kept from its end for so long that it was right to.
fn beside_a_child<T>(work: impl FnOnce() -> Result<T, Error>) -> Option<T> {
    let began = Instant::now();
    let child = lingers(LINGERS);
    let alive = std::thread::spawn(move || lived(child, began));
    let done = work();
    if let Err(error) = done {
        let lived = alive.join().unwrap();
        end(child);
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert!(lived > IN_TIME, "the child was gone after {lived:?}: {error}");
        return None;
    }
    end(child);
    alive.join().unwrap();
    done.ok()
}

/// While it is open, before it is opened again, and when somebody wrote to it.
fn round(path: &Path, options: &ProtectOptions) -> Option<()> {
    let open = ProtectedFile::open(path, options).unwrap();
    let done = beside_a_child(|| match open.repair(false, |_, _| true)?.undecided[..] {
        [] => Ok(()),
        _ => Err(Error::new(ErrorKind::Locked, "what it has is undecided")),
    });
    done?;
    let open = beside_a_child(|| {
        drop(open);
        ProtectedFile::open(path, options)
    });
    open?.close().unwrap();
    let written = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let made = beside_a_child(|| {
        drop(written);
        ProtectedFile::protect_again(path, options)
    });
    made?.close().unwrap();
    Some(())
}

#[test]
fn a_file_at_rest_is_not_refused_for_a_child_on_its_way() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let options = ProtectOptions::new();
    let mut done = 0;
    for _ in 0..50 {
        // Anew: a round that was given up may have left something.
        let _ = std::fs::remove_file(side_path(&path));
        std::fs::write(&path, vec![7; 40 << 12]).unwrap();
        ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
        done += usize::from(round(&path, &options).is_some());
        if done == 5 {
            break;
        }
    }
    assert_eq!(done, 5, "no child was gone in time");
    // One that stays is somebody else.
    let written = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let child = lingers(60_000);
    drop(written);
    let error = ProtectedFile::open(&path, &options).unwrap_err();
    end(child);
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
}
