//! Why a command could not do what it was asked for, and how that is told.

use core::fmt;

use holdfast::{ErrorKind, TxError};
use serde_json::{Value, json};

use crate::exit::Exit;

/// Result of a command.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

/// The end of a command that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The pool said no.
    Pool(Box<holdfast::Error>),
    /// Anything else: a kind in a word, the cause, the remedy.
    Other { exit: Exit, kind: &'static str, cause: String, remedy: String },
}

impl Failure {
    /// A failure of the command's own.
    pub(crate) fn new(
        kind: &'static str,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Other { exit: Exit::OPERATIONAL, kind, cause: cause.into(), remedy: remedy.into() }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (kind, exit) = ("usage", Exit::USAGE);
        Self::Other { exit, kind, cause: cause.into(), remedy: remedy.into() }
    }

    /// The same, with more to do about it.
    #[must_use]
    pub(crate) fn with_more(self, more: &str) -> Self {
        match self {
            Self::Other { exit, kind, cause, remedy } => {
                Self::Other { exit, kind, cause, remedy: format!("{remedy}; {more}") }
            }
            Self::Pool(error) => {
                let remedy = format!("{}; {more}", error.remedy());
                Self::Pool(Box::new(error.with_remedy(remedy)))
            }
        }
    }

    /// Somebody interrupted the command.
    pub(crate) fn interrupted(remedy: impl Into<String>) -> Self {
        let (kind, exit) = ("cancelled", Exit::CANCELLED);
        Self::Other { exit, kind, cause: "interrupted".to_owned(), remedy: remedy.into() }
    }

    /// A file other than a pool.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let (kind, remedy) = match error.kind() {
            Io::NotFound => ("not-found", "check the path"),
            Io::AlreadyExists => ("exists", "choose another name"),
            Io::IsADirectory | Io::NotADirectory => ("not-a-file", "name a regular file"),
            Io::PermissionDenied => ("permission", "check the owner and mode of the file"),
            Io::ReadOnlyFilesystem => ("read-only", "use a file system that can be written to"),
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => {
                ("no-space", "make room, or raise the limit")
            }
            _ => ("system", "check the path and its permissions"),
        };
        Self::new(kind, format!("{what}: {error}"), remedy)
    }

    /// The exit code. Damage beyond the redundancy is damage left, besides the failure.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Pool(error) if error.kind() == ErrorKind::Damaged => {
                Exit::OPERATIONAL.and(Exit::LEFT)
            }
            Self::Pool(_) => Exit::OPERATIONAL,
            Self::Other { exit, .. } => *exit,
        }
    }

    /// The failure as an object.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Pool(error) => json!({
                "kind": error.kind().name(),
                "path": error.path().map(|path| path.display().to_string()),
                "cause": error.cause(),
                "remedy": error.remedy(),
            }),
            Self::Other { kind, cause, remedy, .. } => {
                json!({ "kind": kind, "path": null, "cause": cause, "remedy": remedy })
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(error) => write!(f, "{error}"),
            Self::Other { cause, remedy, .. } => write!(f, "{cause}; {remedy}"),
        }
    }
}

impl From<holdfast::Error> for Failure {
    fn from(error: holdfast::Error) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<TxError> for Failure {
    fn from(error: TxError) -> Self {
        holdfast::Error::from(error).into()
    }
}
