//! What tests of protected files share: a folder with a file, and with a pool where one is wanted.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use holdfast::Pool;
use holdfast::protect::{ProtectOptions, ProtectedFile};

pub(crate) const PAGE: u64 = 4096;

static PROGRAMS: RwLock<()> = RwLock::new(());

/// Held by a test that starts programs, beside which there is no other: a child that has not become
/// its program yet has the handles of all tests, by which it may write.
pub(crate) fn starts_programs() -> RwLockWriteGuard<'static, ()> {
    PROGRAMS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by the tests beside them, several at a time.
pub(crate) fn starts_none() -> RwLockReadGuard<'static, ()> {
    PROGRAMS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A file, and a pool that may have its redundancy.
pub(crate) struct Here {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) pool: PathBuf,
}

/// A file with a side file.
pub(crate) struct Alone {
    pub(crate) _folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

/// Bytes that differ from page to page.
pub(crate) fn content(pages: u64) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / PAGE * 31 + at % 251 + at / 7) as u8).collect()
}

impl Here {
    /// Nothing is protected yet.
    pub(crate) fn with(name: &str, pages: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, pool) = (folder.path().join(name), folder.path().join("keep.pool"));
        fs::write(&path, content(pages)).unwrap();
        Pool::options().size(32 << 20).create(&pool).unwrap().close();
        Self { folder, path, pool }
    }

    /// What the pool has by name.
    pub(crate) fn maps(&self) -> Vec<String> {
        let pool = Pool::open_read_only(&self.pool).unwrap();
        pool.maps().unwrap().into_iter().map(|(name, _)| name).collect()
    }
}

impl Alone {
    pub(crate) fn protected(len: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.bin");
        fs::write(&path, vec![7; len as usize]).unwrap();
        ProtectedFile::protect(&path, &ProtectOptions::new()).unwrap().close().unwrap();
        Self { _folder: folder, path }
    }
}

/// Has system calls refused to this thread, and to those it starts; whether that can be.
pub(crate) fn refuse(calls: &[libc::c_long], error: i32) -> bool {
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    // The number of the call; for each, is it that one; it is refused. All others are permitted.
    let mut steps = vec![step(0x20, 0, 0, 0)];
    for call in calls {
        steps.push(step(0x15, 0, 1, *call as u32));
        steps.push(step(0x06, 0, 0, 0x0005_0000 | error as u32));
    }
    steps.push(step(0x06, 0, 0, 0x7fff_0000));
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: sets flags of this thread; the list lives across the call, and is as long as it says.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if !done {
        eprintln!("skipped: this system lets nobody filter his own calls");
    }
    done
}
