//! What a pool keeps of a region beside its pages: how long it is, how far, and whose.
//!
//! A region is its pointer's, and a pointer is known by where it is and by its inode. A copy of it
//! points to the same region and is somebody else's: what is done by the copy must not be done to
//! the region. And a pointer that cannot be seen just now is not one that is gone.
//!
//! | the pointer of a region | told as |
//! |---|---|
//! | is there, and points to it | here |
//! | is there, and points elsewhere; or it is a side file | elsewhere |
//! | is not there, in the folder of the file system it was in | gone, for sure |
//! | is not there, nor is that folder: moved, or not mounted | gone, perhaps |
//! | cannot be looked at, or is damaged in both copies | unknown |

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_layout::bytes::{get_u32, get_u64, put, put_u32, put_u64};
use holdfast_pmem::PAGE;

use crate::protect::format::{EXTENT_LEN, LEN_MAX};
use crate::protect::pointer::Pointer;
use crate::protect::side;

/// Most bytes of a path.
const PATH_MAX: usize = 4096;

/// How far a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its pointer may not have its name yet.
    Making,
    Kept,
    Ended,
}

/// The pointer of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    /// Of its folder.
    pub(crate) device: u64,
    /// Its own.
    pub(crate) inode: u64,
}

/// What became of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Points {
    Here,
    Elsewhere,
    Gone { sure: bool },
    Unknown,
}

/// What a pool keeps of a region beside its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) len: u64,
    pub(crate) stage: Stage,
    pub(crate) pointer: Option<Named>,
    /// The region whose place it takes, once its pointer has its name.
    pub(crate) replaces: Option<[u8; 16]>,
}

impl Named {
    /// The pointer that is to have the name `to` and is open as `file`.
    pub(crate) fn of(to: &Path, file: &File) -> Option<Self> {
        Self::of_inode(to, file.metadata().ok()?.ino())
    }

    /// The pointer that has the name `side`.
    pub(crate) fn at(side: &Path) -> Option<Self> {
        Self::of_inode(side, fs::metadata(side).ok()?.ino())
    }

    fn of_inode(name: &Path, inode: u64) -> Option<Self> {
        let path = real(name);
        let device = fs::metadata(path.parent()?).ok()?.dev();
        (path.as_os_str().len() <= PATH_MAX).then_some(Self { path, device, inode })
    }

    /// Whether it points to this region of the pool with this identity.
    pub(crate) fn points(&self, pool: &[u8; 16], region: &[u8; 16]) -> Points {
        match fs::symlink_metadata(&self.path) {
            Err(error) if is_none(&error) => {
                let folder = self.path.parent().and_then(|folder| fs::metadata(folder).ok());
                Points::Gone { sure: folder.is_some_and(|folder| folder.dev() == self.device) }
            }
            Err(_) => Points::Unknown,
            Ok(_) => match Pointer::load(&self.path) {
                Ok(to) if (&to.uuid, &to.region) == (pool, region) => Points::Here,
                Ok(_) => Points::Elsewhere,
                Err(_) if side::is_side(&self.path) => Points::Elsewhere,
                Err(_) => Points::Unknown,
            },
        }
    }
}

fn is_none(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Extent {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; EXTENT_LEN];
        put_u64(&mut bytes, 0, self.len);
        let stage = match self.stage {
            Stage::Making => 1,
            Stage::Kept => 2,
            Stage::Ended => 3,
        };
        put_u32(&mut bytes, 8, stage);
        put(&mut bytes, 32, &self.replaces.unwrap_or_default());
        if let Some(Named { path, device, inode }) = &self.pointer {
            let path = path.as_os_str().as_bytes();
            put_u32(&mut bytes, 12, path.len() as u32);
            put_u64(&mut bytes, 16, *device);
            put_u64(&mut bytes, 24, *inode);
            bytes.extend_from_slice(path);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, path) = bytes.split_at_checked(EXTENT_LEN)?;
        if get_u32(head, 12) as usize != path.len() || path.len() > PATH_MAX {
            return None;
        }
        let stage = match get_u32(head, 8) {
            1 => Stage::Making,
            2 => Stage::Kept,
            3 => Stage::Ended,
            _ => return None,
        };
        let pointer = (!path.is_empty()).then(|| Named {
            path: PathBuf::from(OsStr::from_bytes(path)),
            device: get_u64(head, 16),
            inode: get_u64(head, 24),
        });
        let replaces = core::array::from_fn(|i| head[32 + i]);
        let replaces = (replaces != [0; 16]).then_some(replaces);
        let len = get_u64(head, 0);
        let possible = len <= LEN_MAX && len.is_multiple_of(PAGE);
        possible.then_some(Self { len, stage, pointer, replaces })
    }
}

/// The name of a file from the root, as far as its folder can be told; links in its last part are
/// left, since they have names of their own.
pub(crate) fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")));
    let whole = folder.ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    whole.unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_cannot_be_are_refused() {
        let pointer = Some(Named { path: "/a/b".into(), device: 3, inode: 5 });
        for stage in [Stage::Making, Stage::Kept, Stage::Ended] {
            for (pointer, replaces) in [(pointer.clone(), Some([9; 16])), (None, None)] {
                let good = Extent { len: 5 * PAGE, stage, pointer, replaces };
                assert_eq!(Extent::decode(&good.encode()), Some(good));
            }
        }
        let good = Extent { len: 5 * PAGE, stage: Stage::Kept, pointer, replaces: None };
        for (at, byte) in [(0, 1), (7, 1), (8, 0), (8, 4), (9, 1), (12, 1), (15, 1)] {
            let mut bytes = good.encode();
            bytes[at] = byte;
            assert_eq!(Extent::decode(&bytes), None, "{at}");
        }
        assert_eq!(Extent::decode(&good.encode()[1..]), None);
        let long = Named { path: "x".repeat(PATH_MAX + 1).into(), device: 3, inode: 5 };
        let long = Extent { pointer: Some(long), ..good };
        assert_eq!(Extent::decode(&long.encode()), None);
    }

    #[test]
    fn a_pointer_that_cannot_be_seen_is_not_one_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.holdfast");
        let device = fs::metadata(folder.path()).unwrap().dev();
        let named = Named { path: place.clone(), device, inode: 1 };
        let asked = |named: &Named| named.points(&[1; 16], &[2; 16]);
        assert_eq!(asked(&named), Points::Gone { sure: true });
        // Another file system is mounted there, or none is.
        let elsewhere = Named { device: device + 1, ..named.clone() };
        assert_eq!(asked(&elsewhere), Points::Gone { sure: false });
        let nowhere = Named { path: folder.path().join("x/a.holdfast"), ..named.clone() };
        assert_eq!(asked(&nowhere), Points::Gone { sure: false });
        // Nothing that can be read, a link to nothing, a loop.
        fs::write(&place, [7; 9000]).unwrap();
        assert_eq!(asked(&named), Points::Unknown);
        fs::remove_file(&place).unwrap();
        for to in [folder.path().join("none"), place.clone()] {
            std::os::unix::fs::symlink(to, &place).unwrap();
            assert_eq!(asked(&named), Points::Unknown);
            fs::remove_file(&place).unwrap();
        }
        let write = |region: u8| {
            let mut making = side::begin(&place, false).unwrap();
            let to = Pointer { pool: "/p".into(), uuid: [1; 16], region: [region; 16] };
            to.write(&making, &place).unwrap();
            side::keep(&mut making, &place, true).unwrap();
        };
        write(2);
        assert_eq!((asked(&named), asked(&elsewhere)), (Points::Here, Points::Here));
        write(3);
        assert_eq!(asked(&named), Points::Elsewhere);
    }
}
