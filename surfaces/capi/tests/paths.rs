//! Paths are bytes: those that are no UTF-8 name files like others, and are told in messages.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use holdfast_capi::{
    holdfast_code, holdfast_message, holdfast_options, holdfast_pool, holdfast_pool_close,
    holdfast_pool_create, holdfast_pool_open, holdfast_pool_open_read_only,
};

type Opener = unsafe extern "C" fn(
    *const core::ffi::c_char,
    *const holdfast_options,
    *mut holdfast_pool,
) -> holdfast_code;

#[test]
fn paths_in_other_encodings_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"caf\xe9 \xff.pool"));
    let text = CString::new(path.as_os_str().as_bytes()).unwrap();
    let by = |open: Opener| {
        let mut pool = holdfast_pool { id: 0 };
        // SAFETY: a text, no options, and a place for the handle.
        let code = unsafe { open(text.as_ptr(), core::ptr::null(), &raw mut pool) };
        if code == holdfast_code::HoldfastOk {
            assert_eq!(holdfast_pool_close(pool), code);
        }
        code
    };
    assert_eq!(by(holdfast_pool_open), holdfast_code::HoldfastNotFound);
    // SAFETY: the text lives until the next error of this thread.
    let message = unsafe { CStr::from_ptr(holdfast_message()) }.to_str().unwrap();
    assert!(message.contains("caf\u{fffd} \u{fffd}.pool"), "{message}");
    for open in [holdfast_pool_create as Opener, holdfast_pool_open, holdfast_pool_open_read_only] {
        assert_eq!(by(open), holdfast_code::HoldfastOk);
        assert!(path.is_file());
    }
}
