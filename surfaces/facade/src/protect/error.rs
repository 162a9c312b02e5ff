//! What the engine says, in the words of this crate: place, cause, remedy.

use std::path::Path;

use holdfast_mapped::Error as EngineError;
use holdfast_pmem::MediaCause;
use holdfast_pmem::track::TrackError;

use crate::error::{Error, ErrorKind};

/// An error of the engine about the side file `side`.
pub(crate) fn of_engine(error: &EngineError, side: &Path) -> Error {
    let text = error.to_string();
    let (cause, remedy) = text.split_once("; ").unwrap_or((&text, ""));
    let kind = match error {
        EngineError::NotASideFile => ErrorKind::NotAPool,
        EngineError::Newer { .. } | EngineError::Features { .. } => ErrorKind::NewerVersion,
        EngineError::Options { .. } => ErrorKind::Invalid,
        EngineError::Ended => ErrorKind::NotFound,
        EngineError::ReadOnly => ErrorKind::ReadOnly,
        EngineError::Sync(error) => return Error::from(sync(error)).at(side),
        EngineError::Track(error) => return of_track(error).at(side),
        EngineError::Media(error)
            if matches!(error.cause, MediaCause::OutOfRange | MediaCause::Truncated) =>
        {
            return Error::new(ErrorKind::Truncated, "the side file was cut off")
                .with_remedy(
                    "`holdfast unprotect --force` and `holdfast protect` begin anew; the data file \
                     was not changed",
                )
                .at(side);
        }
        EngineError::Damaged
        | EngineError::Header { .. }
        | EngineError::Media(_)
        | EngineError::Redundancy(_) => ErrorKind::Damaged,
        _ => ErrorKind::System,
    };
    let error = Error::new(kind, cause).at(side);
    let remedy = match kind {
        ErrorKind::NotAPool => "check the path; neither file was changed",
        ErrorKind::NewerVersion => "use a build at least as new; neither file was changed",
        ErrorKind::Damaged => {
            "`holdfast unprotect --force` and `holdfast protect` begin anew; the data file was not \
             changed"
        }
        _ if remedy.is_empty() => return error,
        _ => remedy,
    };
    error.with_remedy(remedy)
}

fn sync(error: &holdfast_pmem::SyncError) -> holdfast_pmem::SyncError {
    let source = match error.source.raw_os_error() {
        Some(number) => std::io::Error::from_raw_os_error(number),
        None => std::io::Error::new(error.source.kind(), error.source.to_string()),
    };
    holdfast_pmem::SyncError { call: error.call, source }
}

/// Stores that cannot be tracked.
pub(crate) fn of_track(error: &TrackError) -> Error {
    let text = error.to_string();
    let (cause, remedy) = text.split_once("; ").unwrap_or((&text, "use another way to track"));
    let kind = match error {
        TrackError::NoPermission { .. } => ErrorKind::Permission,
        TrackError::Busy { .. } => ErrorKind::Locked,
        TrackError::Forked | TrackError::OutOfRange { .. } => ErrorKind::Invalid,
        _ => ErrorKind::System,
    };
    Error::new(kind, cause).with_remedy(remedy)
}
