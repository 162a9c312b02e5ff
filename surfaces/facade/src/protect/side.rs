//! The side file: where it is, how it comes to be, who has it.
//!
//! It is made under another name and renamed when it covers everything, so that whatever has the
//! name of a side file is one. Whoever works with it holds its lock: one process at a time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use holdfast_pmem::{Access, Durability as Survive, Mapped as Mapping, Options, PAGE};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::{Error, ErrorKind, Result};
use crate::protect::file::failed;

/// What is added to the name of the data file.
const SUFFIX: &str = ".holdfast";
/// And while it is being made.
const MAKING: &str = ".making";
/// Bytes of both sides, at the most.
const SIDES: u64 = 4 << 20;
/// Regions of a group.
const GROUP: u64 = 32;
/// Addresses kept for a side file that gets longer.
const ADDRESSES: u64 = 64 << 30;
/// What the header of a side file begins with.
const NAMED: &[u8; 8] = &holdfast_mapped::format::MAGIC;

/// Where the side file of `data` is, unless it is said otherwise: beside it, links followed.
#[must_use]
pub fn side_path(data: &Path) -> PathBuf {
    let real = fs::canonicalize(data).unwrap_or_else(|_| data.to_path_buf());
    with(&real, SUFFIX)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Whether the file looks like a side file: its header has the name of one, damaged or not.
pub(crate) fn is_side(path: &Path) -> bool {
    let mut head = [0; 64];
    let file = File::open(path);
    let read = file.and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0));
    let start = holdfast_layout::format::MIRRORED_LEN;
    read.is_ok() && head.get(start..start + NAMED.len()) == Some(NAMED)
}

/// Opens the side file at `path`.
pub(crate) fn open(path: &Path, access: Access, survive: Survive) -> Result<Mapping> {
    let options = Options {
        durability: survive,
        protection: holdfast_pmem::Protect::None,
        reserve: Some(ADDRESSES),
        keep_still: access == Access::PrivateCopy,
    };
    Mapping::open(path, access, &options).map_err(|error| explain(Error::from(error), path))
}

/// What a side file that cannot be opened means, and what to do.
fn explain(error: Error, path: &Path) -> Error {
    let error = error.at(path);
    match error.kind() {
        ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, "the file is not protected: it has no side file")
                .with_remedy("`holdfast protect` begins to protect it; it was not changed")
                .at(path)
        }
        // Its first page would not fit.
        ErrorKind::NotAPool => {
            Error::new(ErrorKind::Truncated, "the side file was cut off before its header")
                .with_remedy("protect the data file anew; it was not changed")
                .at(path)
        }
        ErrorKind::Locked => {
            let remedy = "wait until it is done there, or end it; nothing was changed here";
            error.with_remedy(remedy)
        }
        _ => error,
    }
}

/// A side file that is being made. Dropped before it is kept, it is gone.
#[derive(Debug)]
pub(crate) struct Making {
    at: PathBuf,
    to: PathBuf,
    kept: bool,
}

impl Making {
    /// Makes room for the side file of `len` bytes of data. Parts that are never written take none.
    pub(crate) fn begin(to: &Path, len: u64, (data, parity): (u32, u32)) -> Result<Self> {
        let at = with(to, MAKING);
        let make = || File::options().read(true).write(true).create_new(true).mode(0o600).open(&at);
        let file = match make() {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                // Left by somebody who was interrupted, or of somebody who is at it.
                drop(open(&at, Access::Write, Survive::Process).or_else(cut_short)?);
                fs::remove_file(&at).map_err(|error| failed(&at, &error))?;
                make()
            }
            made => made,
        };
        let file = file.map_err(|error| {
            let parent = at.parent().unwrap_or(Path::new("."));
            let text = format!("no side file can be made there: {error}");
            let remedy = "check the folder, or name another place for the side file";
            Error::new(failed(&at, &error).kind(), text).with_remedy(remedy).at(parent)
        })?;
        let this = Self { at, to: to.to_path_buf(), kept: false };
        file.set_len(room(len, data, parity)).map_err(|error| failed(&this.at, &error))?;
        Ok(this)
    }

    pub(crate) fn map(&self, survive: Survive) -> Result<Mapping> {
        open(&self.at, Access::Write, survive)
    }

    /// Gives it its name. With `instead`, that of one that is there.
    pub(crate) fn keep(mut self, instead: bool) -> Result<()> {
        let none = RenameFlags::NOREPLACE;
        let renamed = match renameat_with(CWD, &self.at, CWD, &self.to, none) {
            Err(rustix::io::Errno::EXIST) if !instead => {
                return Err(Error::new(ErrorKind::Exists, "somebody else has just protected it")
                    .with_remedy("verify it")
                    .at(&self.to));
            }
            // There, or a file system that has no such call.
            Err(_) => fs::rename(&self.at, &self.to),
            Ok(()) => Ok(()),
        };
        renamed.map_err(|error| failed(&self.to, &error))?;
        self.kept = true;
        sync_folder(&self.to)
    }
}

/// One that has no bytes yet is nobody's.
fn cut_short(error: Error) -> Result<Mapping> {
    // There is nothing to map, and so nothing to hold on to.
    if error.kind() == ErrorKind::Truncated {
        let what = "a side file is just being made, or its making was cut short";
        return Err(Error::new(ErrorKind::Locked, what)
            .with_remedy("remove it if nobody is at it")
            .at(error.path().unwrap_or(Path::new(""))));
    }
    Err(error)
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.at);
        }
    }
}

/// Removes a side file that says nothing any more.
pub(crate) fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| failed(path, &error))?;
    sync_folder(path)
}

fn sync_folder(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed(parent, &error))
}

/// Bytes a side file may come to for so much data; never less than a page of it needs.
fn room(len: u64, data: u32, parity: u32) -> u64 {
    let data = u64::from(data.clamp(1, 64));
    let stripes = (256 / data).min(64);
    let pages = stripes * data;
    let groups = len.div_ceil(PAGE).div_ceil(pages).div_ceil(GROUP);
    let parts = [GROUP * pages * 8, GROUP * pages, GROUP * stripes * u64::from(parity) * PAGE];
    let group: u64 = parts.iter().map(|part| part.next_multiple_of(PAGE)).sum();
    groups.saturating_mul(group + 2 * PAGE).saturating_add(SIDES)
}
