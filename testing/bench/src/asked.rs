//! What was asked for is looked at before anything runs: a race takes an hour, and nobody wants to
//! hear then that its figures cannot be written.

use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context;

use crate::place::Place;

/// The command was asked in a way it does not understand.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of the kind [`Usage`], unless `holds`.
///
/// # Errors
/// It does not hold.
pub(crate) fn require(holds: bool, otherwise: impl FnOnce() -> String) -> anyhow::Result<()> {
    if holds { Ok(()) } else { Err(Usage(otherwise()).into()) }
}

/// That figures can be written to this file. What it holds stays until they are.
///
/// # Errors
/// They cannot.
pub(crate) fn writable_file(path: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = path {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("--json: cannot write {}", path.display()))?;
    }
    Ok(())
}

/// That charts can be written to this folder, which is made if it is not there.
///
/// # Errors
/// They cannot.
pub(crate) fn writable_folder(path: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = path {
        let made = std::fs::create_dir_all(path).map_err(anyhow::Error::from);
        let tried = made.and_then(|()| Ok(tempfile::tempfile_in(path).map(drop)?));
        tried.with_context(|| format!("--charts: cannot write to {}", path.display()))?;
    }
    Ok(())
}

/// That pools can be made in the folder given for the comparison on a disk.
///
/// # Errors
/// They cannot.
pub(crate) fn disk(path: Option<&Path>) -> anyhow::Result<()> {
    path.map_or(Ok(()), |path| Place::make(path).map(drop).context("--disk"))
}
