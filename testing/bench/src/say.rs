//! What a run prints, and what happens if nobody reads it any more.
//!
//! Lines are printed from deep within measurements, where pools and files have to be cleared away
//! first. So a line that cannot be written ends the work by unwinding, without a panic's message,
//! to [`heard`], which makes an error of it like any other.

use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::anyhow;

/// Prints a line; the arguments are those of `println!`.
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;

/// Why a line could not be written.
struct Unheard(io::Error);

/// Prints a line, on the thread that called [`heard`].
pub(crate) fn line(text: core::fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{text}") {
        resume_unwind(Box::new(Unheard(error)));
    }
}

/// Does `work`, which prints.
///
/// # Errors
/// Those of `work`; or a line could not be written.
pub(crate) fn heard<R>(work: impl FnOnce() -> anyhow::Result<R>) -> anyhow::Result<R> {
    let payload = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => return done,
        Err(payload) => payload,
    };
    match payload.downcast::<Unheard>() {
        Ok(unheard) if unheard.0.kind() == ErrorKind::BrokenPipe => {
            Err(anyhow!("standard output was closed by its reader; the run was stopped"))
        }
        Ok(unheard) => Err(anyhow!("standard output: {}; the run was stopped", unheard.0)),
        Err(panic) => resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_cannot_be_written_become_an_error() {
        let lost = |kind: ErrorKind| {
            heard(|| -> anyhow::Result<()> { resume_unwind(Box::new(Unheard(kind.into()))) })
        };
        assert!(lost(ErrorKind::BrokenPipe).unwrap_err().to_string().contains("closed"));
        assert!(lost(ErrorKind::StorageFull).unwrap_err().to_string().contains("no storage space"));
    }
}
