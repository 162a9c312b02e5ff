//! Opening a data file, and what the system says if it cannot be had.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use holdfast_pmem::ForeignFile;
use holdfast_pmem::call::ask;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};

/// Opening waits for nobody.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Opens the regular file `path` beside whoever else has it.
pub(crate) fn open(path: &Path, write: bool) -> Result<ForeignFile> {
    refuse_others(path)?;
    let may = ask("open", Errno::MFILE).map_err(io::Error::from);
    let file = may.and_then(|()| File::options().read(true).write(write).open(path));
    let file = file.map_err(|error| failed(path, &error))?;
    Ok(ForeignFile::new(Arc::new(file)))
}

/// Refuses what is no regular file: to open it might do something, or wait for ever.
pub(crate) fn refuse_others(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(|error| failed(path, &error))?;
    if found.is_file() {
        return Ok(());
    }
    let what = "is no regular file, and only those can be protected";
    Err(Error::new(ErrorKind::NotAFile, what).at(path))
}

/// Opens a regular file to see what it is, waiting for nobody: a pipe has no end.
pub(crate) fn look(path: &Path) -> io::Result<File> {
    let refuse = |found: std::fs::Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    };
    refuse(std::fs::metadata(path)?)?;
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path)?;
    refuse(file.metadata()?)?;
    Ok(file)
}

/// What the system said of a file.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Io;
    let kind = match error.kind() {
        Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
        Io::AlreadyExists => ErrorKind::Exists,
        Io::IsADirectory => ErrorKind::NotAFile,
        Io::PermissionDenied => ErrorKind::Permission,
        Io::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
        _ => ErrorKind::System,
    };
    let text = match kind {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::Permission => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let error = Error::new(kind, text).at(path);
    match kind {
        ErrorKind::NotFound => error.with_remedy("check the path"),
        ErrorKind::ReadOnly => error.with_remedy("use a file system that can be written to"),
        ErrorKind::NoSpace => error.with_remedy("make room, or raise the limit"),
        _ => error,
    }
}
