//! The side file: where it is, how it comes to be, who has it.
//!
//! It is made under another name and renamed when it covers everything, so that whatever has the
//! name of a side file is one. Whoever works with it holds its lock: one process at a time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use holdfast_pmem::Site;
use holdfast_pmem::call::{ask, sync_all};
use holdfast_pmem::{
    Access, Durability as Survive, Making, Mapped as Mapping, Options, PAGE, Room,
};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::protect::file::{self, failed};

/// What is added to the name of the data file.
const SUFFIX: &str = ".holdfast";
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
    let file = file::look(path);
    let read = file.and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0));
    let start = holdfast_layout::format::MIRRORED_LEN;
    read.is_ok() && head.get(start..start + NAMED.len()) == Some(NAMED)
}

/// Opens the side file at `path`.
pub(crate) fn open(path: &Path, access: Access, survive: Survive) -> Result<Mapping> {
    let options = how(access, survive);
    Mapping::open(path, access, &options).map_err(|error| explain(Error::from(error), path))
}

const fn how(access: Access, survive: Survive) -> Options {
    Options {
        durability: survive,
        protection: holdfast_pmem::Protect::None,
        reserve: Some(ADDRESSES),
        keep_still: matches!(access, Access::PrivateCopy),
        foreign: false,
    }
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

/// Begins to make the side file `to`; with `instead`, for those who may read the one that is there.
pub(crate) fn begin(to: &Path, instead: bool) -> Result<Making> {
    let making = Making::begin(to).map_err(|error| {
        let error = Error::from(error);
        if error.kind() == ErrorKind::Locked {
            let what = "a side file is just being made";
            let remedy = "wait until that is done; nothing was changed";
            return Error::new(ErrorKind::Locked, what).with_remedy(remedy).at(to);
        }
        let parent = to.parent().unwrap_or(Path::new("."));
        let text = format!("no side file can be made there: {}", error.cause());
        let remedy = "check the folder, or name another place for the side file";
        Error::new(error.kind(), text).with_remedy(remedy).at(parent)
    })?;
    if instead {
        let old = file::look(to).map_err(|error| failed(to, &error))?;
        making.like(&old).map_err(|error| Error::from(error).at(to))?;
    }
    Ok(making)
}

/// Maps one that is being made, for `len` bytes of data in stripes of so many pages.
pub(crate) fn map(making: &Making, to: &Path, len: u64, stripe: (u32, u32)) -> Result<Mapping> {
    let mapped = making.map(room(len, stripe), Room::Sparse, &how(Access::Write, Survive::Auto));
    mapped.map_err(|error| Error::from(error).at(to))
}

/// Gives it its name. With `instead`, that of one that is there.
pub(crate) fn keep(making: &mut Making, to: &Path, instead: bool) -> Result<()> {
    making.keep(instead).map_err(|error| {
        let error = Error::from(error);
        match error.kind() {
            _ if making.is_kept() => error.at(to).with_remedy(
                "it is protected, but a power cut may take that back; check the device, and \
                 `holdfast protect --again`",
            ),
            ErrorKind::Exists => {
                Error::new(ErrorKind::Exists, "somebody else has just protected it")
                    .with_remedy("verify it")
                    .at(to)
            }
            _ => error.at(to),
        }
    })
}

/// Removes a side file that says nothing any more.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let gone = ask("unlink", Errno::IO).map_err(io::Error::from);
    gone.and_then(|()| fs::remove_file(path)).map_err(|error| failed(path, &error))?;
    sync_folder(Site::new("facade.side.removed"), path)
}

/// Makes the names in the folder of a file durable.
pub(crate) fn sync_folder(site: Site, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|folder| sync_all(site, &folder));
    synced.map_err(|error| failed(parent, &error))
}

/// Bytes a side file may come to for so much data; never less than a page of it needs.
fn room(len: u64, (data, parity): (u32, u32)) -> u64 {
    let data = u64::from(data.clamp(1, 64));
    let stripes = (256 / data).min(64);
    let pages = stripes * data;
    let groups = len.div_ceil(PAGE).div_ceil(pages).div_ceil(GROUP);
    let parts = [GROUP * pages * 8, GROUP * pages, GROUP * stripes * u64::from(parity) * PAGE];
    let group: u64 = parts.iter().map(|part| part.next_multiple_of(PAGE)).sum();
    groups.saturating_mul(group + 2 * PAGE).saturating_add(SIDES)
}
