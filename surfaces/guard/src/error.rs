//! Why nothing was guarded.

use core::fmt;
use std::io;
use std::path::PathBuf;

use holdfast_pmem::track::TrackError;

/// Why a program was not started. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such program.
    NotFound {
        /// As it was named.
        program: PathBuf,
    },
    /// It may not be executed.
    NotExecutable {
        /// Where it is.
        program: PathBuf,
    },
    /// The processor that the supervisor was to have cannot be had.
    Processor {
        /// Its number.
        number: u32,
        /// What is in the way.
        why: &'static str,
    },
    /// What the program does could not be seen.
    Unobservable {
        /// The program, or the interpreter it needs.
        program: PathBuf,
        /// What is in the way.
        why: &'static str,
    },
    /// The library that is loaded into programs is missing.
    NoPreload {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// There are no such stripes.
    Stripes {
        /// Pages of a stripe.
        data: u32,
        /// Parity pages of a stripe.
        parity: u32,
    },
    /// This machine cannot track stores.
    Track(TrackError),
    /// A system call failed.
    Io {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Io { call, source: error.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program } => {
                write!(f, "{}: there is no such program; nothing was started", program.display())
            }
            Self::NotExecutable { program } => {
                write!(f, "{} is not executable; nothing was started", program.display())
            }
            Self::Processor { number, why } => {
                write!(f, "processor {number}: {why}; nothing was started")
            }
            Self::Unobservable { program, why } => write!(
                f,
                "{} cannot be guarded: {why}; it was not started. Run it without the guard, and \
                 verify its files afterwards",
                program.display()
            ),
            Self::NoPreload { path } => write!(
                f,
                "{}: the library for guarded programs is not there; install it, or say where it is",
                path.display()
            ),
            Self::Stripes { data, parity } => write!(
                f,
                "a stripe has 1 to 64 pages and 0 to 2 parity pages, not {data} and {parity}; \
                 nothing was started"
            ),
            Self::Track(error) => write!(f, "{error}; nothing was started"),
            Self::Io { call, source } => write!(f, "{call} failed: {source}; nothing was started"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Track(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
