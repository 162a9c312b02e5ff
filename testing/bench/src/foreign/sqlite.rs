//! SQLite: the few functions that insert a row.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};

use anyhow::bail;
use libloading::Library;

use super::{function, load};

/// Read, write, create.
const OPEN: c_int = 0x2 | 0x4;
/// A row is there.
const ROW: c_int = 100;
/// The statement came to its end.
const DONE: c_int = 101;

/// The functions of the library.
#[derive(Debug, Clone, Copy)]
struct Calls {
    open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    busy_timeout: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    prepare: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        c_int,
        *mut *mut c_void,
        *mut *const c_char,
    ) -> c_int,
    bind_int64: unsafe extern "C" fn(*mut c_void, c_int, i64) -> c_int,
    bind_blob:
        unsafe extern "C" fn(*mut c_void, c_int, *const c_void, c_int, *const c_void) -> c_int,
    step: unsafe extern "C" fn(*mut c_void) -> c_int,
    reset: unsafe extern "C" fn(*mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
    message: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

impl Calls {
    fn look_up(library: &'static Library) -> anyhow::Result<Self> {
        // SAFETY: each type above is the prototype in sqlite3.h, argument for argument; handles
        // are opaque pointers, the destructor of a blob is a pointer or a small number.
        unsafe {
            Ok(Self {
                open: function(library, "sqlite3_open_v2")?,
                close: function(library, "sqlite3_close")?,
                busy_timeout: function(library, "sqlite3_busy_timeout")?,
                prepare: function(library, "sqlite3_prepare_v2")?,
                bind_int64: function(library, "sqlite3_bind_int64")?,
                bind_blob: function(library, "sqlite3_bind_blob")?,
                step: function(library, "sqlite3_step")?,
                reset: function(library, "sqlite3_reset")?,
                finalize: function(library, "sqlite3_finalize")?,
                message: function(library, "sqlite3_errmsg")?,
            })
        }
    }
}

/// A connection, for one thread at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    calls: Calls,
    db: NonNull<c_void>,
    begin: *mut c_void,
    insert: *mut c_void,
    commit: *mut c_void,
}

// SAFETY: Debian builds the library in serialized mode: a connection may move between threads, and
// every use takes `&mut`.
unsafe impl Send for Connection {}

impl Connection {
    /// Opens a file, makes it write ahead and sync at every commit, and makes the table.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let calls = Calls::look_up(load(&super::fetch::sqlite()?)?)?;
        let name = CString::new(path.as_os_str().as_encoded_bytes())?;
        let mut db = null_mut();
        // SAFETY: `name` ends in a zero; `db` is a place for a pointer; no name of a VFS.
        let code = unsafe { (calls.open)(name.as_ptr(), &raw mut db, OPEN, null()) };
        let Some(db) = NonNull::new(db) else { bail!("SQLite opened nothing") };
        // From here on dropping closes it, also if opening failed, as the manual asks for.
        let (begin, insert, commit) = (null_mut(), null_mut(), null_mut());
        let mut this = Self { calls, db, begin, insert, commit };
        this.done(code, "open the file")?;
        // SAFETY: the connection is open.
        this.done(unsafe { (calls.busy_timeout)(db.as_ptr(), 10_000) }, "wait when busy")?;
        for text in [
            c"PRAGMA journal_mode=WAL",
            c"PRAGMA synchronous=FULL",
            c"CREATE TABLE IF NOT EXISTS pairs(k INTEGER PRIMARY KEY, v BLOB)",
        ] {
            let statement = this.prepare(text)?;
            let ran = this.finish(statement);
            // SAFETY: prepared above and not used again.
            unsafe { (calls.finalize)(statement) };
            ran?;
        }
        this.begin = this.prepare(c"BEGIN IMMEDIATE")?;
        this.insert = this.prepare(c"INSERT INTO pairs VALUES(?1, ?2)")?;
        this.commit = this.prepare(c"COMMIT")?;
        Ok(this)
    }

    /// Inserts some pairs in one durable transaction.
    pub(crate) fn put_all(&mut self, keys: &[u64], value: &[u8]) -> anyhow::Result<()> {
        if keys.len() > 1 {
            self.finish(self.begin)?;
        }
        for key in keys {
            let len = c_int::try_from(value.len())?;
            // SAFETY: the statement is prepared and reset, with two places; a null destructor
            // says that the bytes stay, and they do: the statement ends before this returns.
            let code = unsafe {
                (self.calls.bind_int64)(self.insert, 1, *key as i64);
                (self.calls.bind_blob)(self.insert, 2, value.as_ptr().cast(), len, null())
            };
            self.done(code, "take the values")?;
            self.finish(self.insert)?;
        }
        if keys.len() > 1 {
            self.finish(self.commit)?;
        }
        Ok(())
    }

    fn prepare(&self, text: &CStr) -> anyhow::Result<*mut c_void> {
        let mut statement = null_mut();
        // SAFETY: the connection is open; the text ends in a zero; nobody wants its rest.
        let code = unsafe {
            let db = self.db.as_ptr();
            (self.calls.prepare)(db, text.as_ptr(), -1, &raw mut statement, null_mut())
        };
        self.done(code, "prepare a statement").map(|()| statement)
    }

    /// Runs a statement to its end and makes it ready for the next time.
    fn finish(&self, statement: *mut c_void) -> anyhow::Result<()> {
        // SAFETY: every statement passed here was prepared on this connection and is not
        // finalized before it is closed.
        let code = unsafe {
            let mut code = (self.calls.step)(statement);
            while code == ROW {
                code = (self.calls.step)(statement);
            }
            (self.calls.reset)(statement);
            code
        };
        self.done(if code == DONE { 0 } else { code }, "run a statement")
    }

    fn done(&self, code: c_int, what: &str) -> anyhow::Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the connection is there; the text is copied before it is used again.
        let text = unsafe { CStr::from_ptr((self.calls.message)(self.db.as_ptr())) };
        bail!("SQLite did not {what}: {} ({code})", text.to_string_lossy())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: each was prepared on this connection, or is null, which is allowed; the
        // connection is used by nobody else.
        unsafe {
            for statement in [self.begin, self.insert, self.commit] {
                (self.calls.finalize)(statement);
            }
            (self.calls.close)(self.db.as_ptr());
        }
    }
}
