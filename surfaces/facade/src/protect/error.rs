//! What the engine says, in the words of this crate: place, cause, remedy.

use std::path::Path;

use holdfast_mapped::Error as EngineError;
use holdfast_pmem::track::TrackError;
use holdfast_pmem::{MediaCause, MediaError};

use crate::error::{Error, ErrorKind};

/// An error of the engine about the data file `data` or its side file `side`.
pub(crate) fn of_engine(error: &EngineError, (data, side): (&Path, &Path)) -> Error {
    let text = error.to_string();
    let (cause, remedy) = text.split_once("; ").unwrap_or((&text, ""));
    let kind = match error {
        EngineError::NotASideFile => ErrorKind::NotAPool,
        EngineError::Newer { .. } | EngineError::Features { .. } => ErrorKind::NewerVersion,
        EngineError::Options { .. } => ErrorKind::Invalid,
        EngineError::Ended => ErrorKind::NotFound,
        EngineError::ReadOnly => ErrorKind::ReadOnly,
        EngineError::Sync(error) => return Error::from(sync(error)).at(side),
        EngineError::DataSync(error) => return Error::from(sync(error)).at(data),
        EngineError::Data(error) => return of_data(error).at(data),
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
        EngineError::Media(error) if error.cause == MediaCause::NoSpace => {
            return Error::new(ErrorKind::NoSpace, "there is no room for all of the side file")
                .with_remedy("make room, or raise the limit, and do it again")
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

/// A place of the data file that takes no other bytes. Its redundancy is not the worse for it: that
/// may give the page back where there is room for it, and is not to be given up.
fn of_data(error: &MediaError) -> Error {
    let (kind, remedy) = match error.cause {
        MediaCause::NoSpace => (ErrorKind::NoSpace, "make room, or raise the limit, and repair it"),
        _ => (ErrorKind::System, "look to the device, or copy what can be read to another"),
    };
    Error::new(kind, error.to_string()).with_remedy(remedy)
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_pmem::SyncError;

    #[test]
    fn what_is_wrong_with_a_data_file_is_not_told_of_its_side_file() {
        let (data, side) = (Path::new("/tmp/a.db"), Path::new("/tmp/a.db.holdfast"));
        let media = |cause| MediaError { at: 4096, len: 4096, cause };
        let sync = || SyncError { call: "fdatasync", source: std::io::Error::other("no") };
        let causes = [MediaCause::Unclearable, MediaCause::Poison, MediaCause::NoSpace];
        let of_data = causes.map(|cause| EngineError::Data(media(cause)));
        for error in of_data.into_iter().chain([EngineError::DataSync(sync())]) {
            let told = of_engine(&error, (data, side));
            assert_eq!(told.path(), Some(data), "{told}");
            let text = told.to_string();
            assert!(!text.contains("unprotect") && !text.contains("was not changed"), "{text}");
            assert_ne!(told.kind(), ErrorKind::Damaged, "{text}");
            assert!(!told.remedy().is_empty());
        }
        for error in [EngineError::Media(media(MediaCause::Poison)), EngineError::Sync(sync())] {
            assert_eq!(of_engine(&error, (data, side)).path(), Some(side));
        }
        let told = of_engine(&EngineError::Media(media(MediaCause::Poison)), (data, side));
        assert!(told.remedy().contains("unprotect --force"), "{told}");
    }
}
