//! One error for users: what happened, where, and what to do about it.

use core::fmt;
use std::path::{Path, PathBuf};

use holdfast_layout::SuperblockError;
use holdfast_layout::format::VERSION;
use holdfast_object::Error as EngineError;
use holdfast_pmem::{MediaCause, MediaError, OpenError, SyncError};
use holdfast_redundancy::Error as RedundancyError;
use holdfast_txn::TxError;

/// Kinds of errors, for programs that decide by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing has this name.
    NotFound,
    /// The name is taken.
    Exists,
    /// The name is a directory's, a device's, a pipe's or a socket's.
    NotAFile,
    /// The file is no pool.
    NotAPool,
    /// A newer build wrote the pool.
    NewerVersion,
    /// The file is shorter than the pool in it.
    Truncated,
    /// Somebody else writes to the pool.
    Locked,
    /// The file, or the pool as it was opened, can only be read.
    ReadOnly,
    /// The system forbids it.
    Permission,
    /// No space, on the file system or in the pool.
    NoSpace,
    /// Damage beyond the redundancy.
    Damaged,
    /// An option or argument that makes no sense.
    Invalid,
    /// The object or map is of another type than asked for.
    WrongType,
    /// The transaction decided not to commit.
    Cancelled,
    /// The transaction did something that is not allowed.
    Refused,
    /// A system call failed.
    System,
}

impl ErrorKind {
    /// The kind as one word, for machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::NotAFile => "not-a-file",
            Self::NotAPool => "not-a-pool",
            Self::NewerVersion => "newer-version",
            Self::Truncated => "truncated",
            Self::Locked => "locked",
            Self::ReadOnly => "read-only",
            Self::Permission => "permission",
            Self::NoSpace => "no-space",
            Self::Damaged => "damaged",
            Self::Invalid => "invalid",
            Self::WrongType => "wrong-type",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::System => "system",
        }
    }

    /// All kinds.
    const ALL: [Self; 16] = [
        Self::NotFound,
        Self::Exists,
        Self::NotAFile,
        Self::NotAPool,
        Self::NewerVersion,
        Self::Truncated,
        Self::Locked,
        Self::ReadOnly,
        Self::Permission,
        Self::NoSpace,
        Self::Damaged,
        Self::Invalid,
        Self::WrongType,
        Self::Cancelled,
        Self::Refused,
        Self::System,
    ];

    /// The kind of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What usually helps.
    const fn remedy(self) -> &'static str {
        match self {
            Self::NotFound => "check the name",
            Self::Exists => "choose another name",
            Self::NotAFile => "name a regular file",
            Self::NotAPool => {
                "check the path, or create a pool under another name; this file was not changed"
            }
            Self::NewerVersion => "use a build at least as new; the file was not changed",
            Self::Truncated => "restore the whole file from a copy; it was not changed",
            Self::Locked => "close it there, or open it read-only",
            Self::ReadOnly => "open the pool for writing; after a failed sync, open it anew",
            Self::Permission => "check the owner and mode of the file and its folder",
            Self::NoSpace => "make room, or grow the pool",
            Self::Damaged => "restore what is lost from a copy; the rest stays usable",
            Self::Invalid => "change the option",
            Self::WrongType => "open it as what it was created as",
            Self::Cancelled => "nothing was committed",
            Self::Refused => "nothing was committed; correct the program",
            Self::System => "check the path, its file system and the limits of the process",
        }
    }
}

/// Result of the functions of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What can go wrong with a pool. Prints as one line: place, cause, remedy.
///
/// Nothing was changed by whatever failed, unless the text says so.
#[derive(Debug)]
pub struct Error {
    path: Option<PathBuf>,
    cause: Cause,
    /// What to do, where that is known better here than below.
    remedy: Option<String>,
}

#[derive(Debug)]
enum Cause {
    Open(OpenError),
    Engine(EngineError),
    Own { kind: ErrorKind, what: String },
}

impl Error {
    /// An error of this crate's own.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { path: None, cause: Cause::Own { kind, what: what.into() }, remedy: None }
    }

    /// The same with a remedy that fits better than the usual one.
    #[must_use]
    pub fn with_remedy(self, text: impl Into<String>) -> Self {
        Self { remedy: Some(text.into()), ..self }
    }

    /// The same, said of the file at `path`.
    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::Open(error) => kind_of_open(error),
            Cause::Engine(error) => kind_of_engine(error),
            Cause::Own { kind, .. } => *kind,
        }
    }

    /// The file concerned, if one is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Why the transaction failed, if it was one that did.
    #[must_use]
    pub fn as_tx(&self) -> Option<&TxError> {
        match &self.cause {
            Cause::Engine(EngineError::Tx(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether another process only reads the pool, and so keeps writers out.
    #[must_use]
    pub fn is_being_read(&self) -> bool {
        matches!(self.cause, Cause::Open(OpenError::Locked { reads: true, .. }))
    }

    /// What happened.
    #[must_use]
    pub fn cause(&self) -> String {
        self.parts().0
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        self.remedy.clone().unwrap_or_else(|| self.parts().1)
    }

    /// Cause and remedy. Texts from below hold both, parted by a semicolon, or the cause only.
    fn parts(&self) -> (String, String) {
        let usual = self.kind().remedy();
        let text = match &self.cause {
            Cause::Open(error) => error.to_string(),
            Cause::Engine(EngineError::Sync(error)) => {
                let what = if is_full(error) {
                    "make room or raise the limit"
                } else {
                    "check the device"
                };
                let remedy = format!("{what}, then open the pool anew: until then it is read-only");
                return (error.to_string(), remedy);
            }
            Cause::Engine(EngineError::Extend(error)) => return extend(error),
            Cause::Engine(EngineError::Redundancy(RedundancyError::Superblock {
                source,
                searched,
            })) => return (superblock(source, *searched), usual.to_owned()),
            Cause::Engine(EngineError::Redundancy(RedundancyError::Geometry {
                expected, ..
            })) => {
                let text = format!("the pool cannot be laid out like this: {expected}");
                return (text, "make it larger, or its frame or chunk smaller".to_owned());
            }
            Cause::Engine(EngineError::Tx(error)) => match tx(error) {
                Some(parts) => return parts,
                None => error.to_string(),
            },
            Cause::Engine(error) => error.to_string(),
            Cause::Own { what, .. } => return (what.clone(), usual.to_owned()),
        };
        // The path is told once, in front.
        let text = match &self.path {
            Some(path) => text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text),
            None => &text,
        };
        match text.split_once("; ") {
            Some((what, remedy)) => (what.to_owned(), remedy.to_owned()),
            None => (text.to_owned(), usual.to_owned()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}; {}", self.cause(), self.remedy())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Open(error) => std::error::Error::source(error),
            Cause::Engine(error) => std::error::Error::source(error),
            Cause::Own { .. } => None,
        }
    }
}

/// What is wrong with the superblock of a file; what can be done depends on the kind alone.
fn superblock(error: &SuperblockError, searched: u64) -> String {
    match error {
        SuperblockError::NewerVersion(found) => format!(
            "the pool has version {found} of the format, and this build reads up to {VERSION}"
        ),
        SuperblockError::UnknownFeatures(mask) => {
            format!("the pool has features that this build does not know ({mask:#x})")
        }
        error => format!("{error}, and no second copy in the first {searched} bytes"),
    }
}

/// Cause and remedy of a growth for which the system has no room.
fn extend(error: &SyncError) -> (String, String) {
    let remedy = if is_full(error) {
        "make room there or raise the limit, or ask for less; the pool is as it was"
    } else if is_out_of_addresses(error) {
        "ask for less, or open the pool with more address space reserved; it is as it was"
    } else {
        "check its file system and the limits of the process; the pool is as it was"
    };
    // What lies below adds its own remedy, for programs.
    let text = error.to_string();
    let what = text.split_once("; ").map_or(text.as_str(), |(what, _)| what);
    (format!("the pool's file cannot be made longer: {what}"), remedy.to_owned())
}

/// Cause and remedy of a failed transaction, where the engine's own words do not help a user.
fn tx(error: &TxError) -> Option<(String, String)> {
    let (cause, remedy) = match error {
        TxError::NoSpace { wanted } => (
            format!("the pool has no free space for {wanted} bytes"),
            "free objects, grow the pool, or make a larger one",
        ),
        TxError::TooLarge { .. } => (error.to_string(), "make it smaller, or split it"),
        TxError::TooManyViews { .. } => {
            (error.to_string(), "end some and try again, or read a copy of it")
        }
        TxError::InDoubt { .. } => (
            error.to_string(),
            "write or free what is there, or restore the pool from a copy; then scrub it",
        ),
        TxError::Conflict => (
            "other transactions came in between, again and again".to_owned(),
            "nothing was committed; try again",
        ),
        _ => return None,
    };
    Some((cause, remedy.to_owned()))
}

fn kind_of_open(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NotFound { .. } => ErrorKind::NotFound,
        OpenError::Exists { .. } => ErrorKind::Exists,
        OpenError::IsDirectory { .. } | OpenError::NotRegular { .. } => ErrorKind::NotAFile,
        OpenError::Locked { .. } => ErrorKind::Locked,
        OpenError::ReadOnlyFile { .. } => ErrorKind::ReadOnly,
        OpenError::Permission { .. } => ErrorKind::Permission,
        OpenError::NoSpace { .. } => ErrorKind::NoSpace,
        OpenError::TooSmall { .. } => ErrorKind::NotAPool,
        OpenError::BadLength { .. } | OpenError::Unsupported { .. } => ErrorKind::Invalid,
        OpenError::TooManyMappings | OpenError::Io { .. } => ErrorKind::System,
    }
}

fn kind_of_engine(error: &EngineError) -> ErrorKind {
    match error {
        EngineError::Tx(error) => kind_of_tx(error),
        EngineError::Redundancy(RedundancyError::Superblock { source, .. }) => match source {
            SuperblockError::NotAPool => ErrorKind::NotAPool,
            SuperblockError::NewerVersion(_) | SuperblockError::UnknownFeatures(_) => {
                ErrorKind::NewerVersion
            }
            SuperblockError::Corrupt { .. } | SuperblockError::BadField { .. } => {
                ErrorKind::Damaged
            }
        },
        EngineError::Media(error) if error.cause == MediaCause::Truncated => ErrorKind::Truncated,
        EngineError::Media(error) if error.cause == MediaCause::NoSpace => ErrorKind::NoSpace,
        EngineError::Redundancy(RedundancyError::Geometry { .. })
        | EngineError::Options { .. }
        | EngineError::Growth { .. } => ErrorKind::Invalid,
        EngineError::Redundancy(_)
        | EngineError::Media(_)
        | EngineError::Log(_)
        | EngineError::Fatal { .. } => ErrorKind::Damaged,
        EngineError::Truncated { .. } | EngineError::CutOff => ErrorKind::Truncated,
        EngineError::NeedsRecovery | EngineError::ReadOnlyFeatures(_) => ErrorKind::ReadOnly,
        EngineError::Forked => ErrorKind::Invalid,
        EngineError::Sync(error) | EngineError::Extend(error) if is_full(error) => {
            ErrorKind::NoSpace
        }
        EngineError::Extend(error) if is_out_of_addresses(error) => ErrorKind::NoSpace,
        _ => ErrorKind::System,
    }
}

fn is_full(error: &SyncError) -> bool {
    use std::io::ErrorKind as Io;
    matches!(error.source.kind(), Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge)
}

/// Whether a medium was asked to grow beyond the addresses it reserved when it was opened.
fn is_out_of_addresses(error: &SyncError) -> bool {
    error.call == "grow" && error.source.kind() == std::io::ErrorKind::OutOfMemory
}

fn kind_of_tx(error: &TxError) -> ErrorKind {
    match error {
        TxError::Lost { .. }
        | TxError::InDoubt { .. }
        | TxError::Damaged { .. }
        | TxError::Inconsistent(_) => ErrorKind::Damaged,
        TxError::WrongType { .. } => ErrorKind::WrongType,
        TxError::NoSpace { .. } | TxError::TooLarge { .. } => ErrorKind::NoSpace,
        TxError::ReadOnly => ErrorKind::ReadOnly,
        TxError::Cancelled(_) => ErrorKind::Cancelled,
        _ => ErrorKind::Refused,
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Self { path: None, cause: Cause::Open(error), remedy: None }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self { path: None, cause: Cause::Engine(error), remedy: None }
    }
}

impl From<TxError> for Error {
    fn from(error: TxError) -> Self {
        EngineError::Tx(error).into()
    }
}

impl From<RedundancyError> for Error {
    fn from(error: RedundancyError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<MediaError> for Error {
    fn from(error: MediaError) -> Self {
        EngineError::Media(error).into()
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        EngineError::Sync(error).into()
    }
}

/// Inside a transaction, errors of the pool (`pool.root()?`) end it.
impl From<Error> for TxError {
    fn from(error: Error) -> Self {
        match error.cause {
            Cause::Engine(EngineError::Tx(error)) => error,
            _ => Self::cancel(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_where_what_and_what_to_do() {
        let path = Path::new("/tmp/a.pool");
        let cases: [(Error, ErrorKind); 5] = [
            (OpenError::NotFound { path: path.into() }.into(), ErrorKind::NotFound),
            (OpenError::TooSmall { path: path.into(), len: 0 }.into(), ErrorKind::NotAPool),
            (EngineError::Truncated { pool: 8192, file: 4096 }.into(), ErrorKind::Truncated),
            (TxError::NoSpace { wanted: 64 }.into(), ErrorKind::NoSpace),
            (Error::new(ErrorKind::Invalid, "a rate of zero"), ErrorKind::Invalid),
        ];
        for (error, kind) in cases {
            let error = error.at(path);
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert_eq!(text.matches("/tmp/a.pool").count(), 1, "{text}");
            assert!(text.ends_with(&format!("{}; {}", error.cause(), error.remedy())), "{text}");
            assert!(!error.remedy().is_empty() && !error.cause().is_empty());
        }
    }

    #[test]
    fn errors_pass_through_transactions() {
        let lost = TxError::NoSpace { wanted: 1 };
        assert_eq!(TxError::from(Error::from(lost.clone())), lost);
        let own = TxError::from(Error::new(ErrorKind::Locked, "in use"));
        assert!(matches!(own, TxError::Cancelled(text) if text.contains("in use")));
    }
}
