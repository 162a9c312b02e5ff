//! libpmempool: what looks after libpmemobj's pools while they are closed.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::Path;

use anyhow::bail;

use super::pmemobj::Shim;
use super::{function, load};

/// The functions of the library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeper {
    sync: unsafe extern "C" fn(*const c_char, c_uint) -> c_int,
    error: unsafe extern "C" fn() -> *const c_char,
}

impl Keeper {
    /// Fetches and loads it. It takes the shim, since with that the libraries it needs are loaded:
    /// it finds them by their names then, wherever they lie.
    ///
    /// # Errors
    /// There is no network or no Debian.
    pub(crate) fn load(_shim: Shim) -> anyhow::Result<Self> {
        let library = load(&super::fetch::pmempool()?)?;
        // SAFETY: each type above is the prototype in libpmempool.h, argument for argument.
        unsafe {
            Ok(Self {
                sync: function(library, "pmempool_sync")?,
                error: function(library, "pmempool_errormsg")?,
            })
        }
    }

    /// Makes files of a closed pool that are gone, or are not its own, from its other copy.
    ///
    /// # Errors
    /// Too little is left, or the pool is open.
    pub(crate) fn sync(&self, set: &Path) -> anyhow::Result<()> {
        let name = CString::new(set.as_os_str().as_encoded_bytes())?;
        // SAFETY: `name` is a string that ends in a zero and outlives the call; no flags.
        if unsafe { (self.sync)(name.as_ptr(), 0) } == 0 {
            return Ok(());
        }
        // SAFETY: takes nothing; answers null or a string that stays until the next call of the
        // library in this thread, and it is copied before that.
        let text = unsafe {
            let text = (self.error)();
            if text.is_null() { c"no reason given" } else { CStr::from_ptr(text) }
        };
        bail!("libpmempool did not sync {}: {}", set.display(), text.to_string_lossy())
    }
}
