//! Why a file could not be created or opened, and what to do about it.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::mapped::LARGEST;
use crate::medium::PAGE;

/// Why [`Mapped::create`](crate::Mapped::create) or [`Mapped::open`](crate::Mapped::open) failed.
/// The file is as it was before; a file that `create` had begun is gone again.
#[derive(Debug)]
pub enum OpenError {
    /// Nothing has this name, or (for a new file) its folder does not exist.
    NotFound {
        /// The name asked for.
        path: PathBuf,
    },
    /// A file to be created has a name that is taken.
    Exists {
        /// The name asked for.
        path: PathBuf,
    },
    /// The name is a folder's.
    IsDirectory {
        /// The name asked for.
        path: PathBuf,
    },
    /// The name is a device's, a pipe's or a socket's.
    NotRegular {
        /// The name asked for.
        path: PathBuf,
        /// What it is instead.
        found: &'static str,
    },
    /// Somebody writes to the file, or has it kept still to read it.
    Locked {
        /// The name asked for.
        path: PathBuf,
        /// The process that does, where the system shows it.
        holder: Option<u32>,
        /// Whether it only reads.
        reads: bool,
    },
    /// The file can be read but not written.
    ReadOnlyFile {
        /// The name asked for.
        path: PathBuf,
    },
    /// The system forbids it.
    Permission {
        /// The name asked for.
        path: PathBuf,
    },
    /// The file system cannot hold the file.
    NoSpace {
        /// The name asked for.
        path: PathBuf,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes the file system reports free, if it does.
        free: Option<u64>,
    },
    /// The file is empty or smaller than one page.
    TooSmall {
        /// The name asked for.
        path: PathBuf,
        /// Its bytes.
        len: u64,
    },
    /// A new file's size is no multiple of a page, or zero, or beyond what can be mapped.
    BadLength {
        /// Bytes asked for.
        len: u64,
    },
    /// The machine lacks what was asked for.
    Unsupported {
        /// What it lacks.
        what: &'static str,
        /// What to ask for instead.
        instead: &'static str,
    },
    /// This process maps as many files as the fault handler can watch.
    TooManyMappings,
    /// Another system call failed.
    Io {
        /// The name asked for.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { path } => {
                write!(f, "{}: no such file or folder; check the path", path.display())
            }
            Self::Exists { path } => {
                write!(f, "{}: exists already; choose another name or remove it", path.display())
            }
            Self::IsDirectory { path } => {
                write!(f, "{}: is a directory; name a file in it", path.display())
            }
            Self::NotRegular { path, found } => {
                write!(
                    f,
                    "{}: is a {found}; name a regular file, nothing else can be mapped",
                    path.display()
                )
            }
            Self::Locked { path, holder, reads } => locked(f, path, *holder, *reads),
            Self::ReadOnlyFile { path } => write!(
                f,
                "{}: is read-only (mode or file system); make it writable or open it read-only",
                path.display()
            ),
            Self::Permission { path } => write!(
                f,
                "{}: permission denied; check the owner and mode of the file and its folder",
                path.display()
            ),
            Self::NoSpace { path, wanted, free } => no_space(f, path, *wanted, *free),
            Self::TooSmall { path, len: 0 } => {
                write!(
                    f,
                    "{}: is empty; check the path, restore the file from a copy, or remove it and \
                     create it anew",
                    path.display()
                )
            }
            Self::TooSmall { path, len } => write!(
                f,
                "{}: has only {len} bytes, less than one page of {PAGE}: it was cut off, or was \
                 never ours; check the path, or restore the file from a copy",
                path.display()
            ),
            Self::BadLength { len } => write!(
                f,
                "a size of {len} bytes cannot be mapped; choose a multiple of {PAGE}, of at most \
                 {LARGEST}"
            ),
            Self::Unsupported { what, instead } => {
                write!(f, "this machine has no {what}; {instead}")
            }
            Self::TooManyMappings => {
                f.write_str("this process has too many files mapped; close one first")
            }
            Self::Io { path, call, source } => {
                write!(f, "{}: {call} failed: {source}", path.display())?;
                if source.kind() == io::ErrorKind::OutOfMemory {
                    f.write_str("; raise the limits on memory and address space")?;
                }
                Ok(())
            }
        }
    }
}

fn locked(
    f: &mut fmt::Formatter<'_>,
    path: &Path,
    holder: Option<u32>,
    reads: bool,
) -> fmt::Result {
    let how = if reads { "is being read" } else { "is in use for writing" };
    write!(f, "{}: {how} by ", path.display())?;
    match holder {
        Some(id) if id == std::process::id() => f.write_str("this process")?,
        Some(id) => write!(f, "process {id}")?,
        None => f.write_str("another process")?,
    }
    f.write_str(if reads {
        "; wait until that is done"
    } else {
        "; close it there (and in children it has forked) or open read-only"
    })
}

fn no_space(
    f: &mut fmt::Formatter<'_>,
    path: &Path,
    wanted: u64,
    free: Option<u64>,
) -> fmt::Result {
    write!(f, "{}: no space for {wanted} bytes", path.display())?;
    if let Some(free) = free {
        write!(f, " ({free} free)")?;
    }
    f.write_str("; make room, raise the quota or choose a smaller size")
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
