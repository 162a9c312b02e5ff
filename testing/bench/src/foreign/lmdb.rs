//! LMDB: the few functions that put a key.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};

use anyhow::bail;
use libloading::Library;

use super::{function, load};

/// The path is a file, not a folder.
const NO_SUBDIR: c_uint = 0x4000;
/// Make the table if it is not there.
const CREATE: c_uint = 0x40000;

/// A key or a value, as LMDB passes it.
#[repr(C)]
struct Val {
    size: usize,
    data: *const c_void,
}

impl Val {
    fn of(bytes: &[u8]) -> Self {
        Self { size: bytes.len(), data: bytes.as_ptr().cast() }
    }
}

/// The functions of the library.
#[derive(Debug, Clone, Copy)]
struct Calls {
    env_create: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    env_set_mapsize: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    env_open: unsafe extern "C" fn(*mut c_void, *const c_char, c_uint, c_uint) -> c_int,
    env_close: unsafe extern "C" fn(*mut c_void),
    begin: unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint, *mut *mut c_void) -> c_int,
    commit: unsafe extern "C" fn(*mut c_void) -> c_int,
    abort: unsafe extern "C" fn(*mut c_void),
    open: unsafe extern "C" fn(*mut c_void, *const c_char, c_uint, *mut c_uint) -> c_int,
    put: unsafe extern "C" fn(*mut c_void, c_uint, *mut Val, *mut Val, c_uint) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Calls {
    fn look_up(library: &'static Library) -> anyhow::Result<Self> {
        // SAFETY: each type above is the prototype in lmdb.h, argument for argument; handles are
        // opaque pointers, `MDB_dbi` is an unsigned int, `MDB_val` is `Val`.
        unsafe {
            Ok(Self {
                env_create: function(library, "mdb_env_create")?,
                env_set_mapsize: function(library, "mdb_env_set_mapsize")?,
                env_open: function(library, "mdb_env_open")?,
                env_close: function(library, "mdb_env_close")?,
                begin: function(library, "mdb_txn_begin")?,
                commit: function(library, "mdb_txn_commit")?,
                abort: function(library, "mdb_txn_abort")?,
                open: function(library, "mdb_dbi_open")?,
                put: function(library, "mdb_put")?,
                strerror: function(library, "mdb_strerror")?,
            })
        }
    }

    fn done(&self, code: c_int, what: &str) -> anyhow::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: answers a string that ends in a zero, for every code.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        bail!("LMDB did not {what}: {}", text.to_string_lossy())
    }
}

/// An open environment with one table.
#[derive(Debug)]
pub(crate) struct Env {
    calls: Calls,
    env: NonNull<c_void>,
    table: c_uint,
}

// SAFETY: an environment may be used by any thread (lmdb.h); write transactions stay in the thread
// that began them, and `put_all` begins and ends each within one call.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Env {
    /// Makes a file of at most `size` bytes. Everything is synced at each commit, as by default.
    pub(crate) fn create(path: &Path, size: usize) -> anyhow::Result<Self> {
        let calls = Calls::look_up(load(&super::fetch::lmdb()?)?)?;
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        let mut env = null_mut();
        // SAFETY: `env` is a place for a pointer.
        calls.done(unsafe { (calls.env_create)(&raw mut env) }, "make an environment")?;
        let Some(env) = NonNull::new(env) else { bail!("LMDB made no environment") };
        // From here on dropping closes it.
        let mut this = Self { calls, env, table: 0 };
        // SAFETY: the environment was made above and is not open yet.
        calls.done(unsafe { (calls.env_set_mapsize)(env.as_ptr(), size) }, "take a size")?;
        // SAFETY: as above; `name` ends in a zero and outlives the call.
        let code = unsafe { (calls.env_open)(env.as_ptr(), name.as_ptr(), NO_SUBDIR, 0o600) };
        calls.done(code, "open the environment")?;
        this.table = this.within(|tx| {
            let mut table = 0;
            // SAFETY: `tx` is a write transaction of this thread; no name means the main table.
            let code = unsafe { (calls.open)(tx, null(), CREATE, &raw mut table) };
            calls.done(code, "open the table").map(|()| table)
        })?;
        Ok(this)
    }

    /// Puts some pairs in one durable transaction.
    pub(crate) fn put_all(&self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        self.within(|tx| {
            for key in keys {
                let key = key.to_be_bytes();
                let (mut key, mut value) = (Val::of(&key), Val::of(value));
                // SAFETY: `tx` is a write transaction of this thread; both point to bytes that
                // live until the call returns, and LMDB copies them.
                let code =
                    unsafe { (self.calls.put)(tx, self.table, &raw mut key, &raw mut value, 0) };
                self.calls.done(code, "put")?;
            }
            Ok(())
        })
    }

    /// Runs one write transaction.
    fn within<R>(&self, body: impl FnOnce(*mut c_void) -> anyhow::Result<R>) -> anyhow::Result<R> {
        let mut tx = null_mut();
        // SAFETY: the environment is open; no parent; `tx` is a place for a pointer.
        let code = unsafe { (self.calls.begin)(self.env.as_ptr(), null_mut(), 0, &raw mut tx) };
        self.calls.done(code, "begin")?;
        match body(tx) {
            Ok(value) => {
                // SAFETY: begun above, in this thread, and not ended yet.
                let code = unsafe { (self.calls.commit)(tx) };
                self.calls.done(code, "commit").map(|()| value)
            }
            Err(error) => {
                // SAFETY: as above.
                unsafe { (self.calls.abort)(tx) };
                Err(error)
            }
        }
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: made by `create`; no transaction outlives a call.
        unsafe { (self.calls.env_close)(self.env.as_ptr()) };
    }
}
