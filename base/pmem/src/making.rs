//! A file that is being made: it has another name until it is whole, so that whatever has the final
//! name is. One that was cut short is made anew by whoever comes next.
//!
//! | who | knows that somebody is at it by |
//! |---|---|
//! | another maker | a lock (`flock`) of the file, which ends with the process that made it |
//! | whoever wants the final name | it is taken, or not; it is replaced only if asked for |
//!
//! The lock is not the one that a mapping takes: a file may be mapped while it is being made.
//!
//! What is to go may go the other way: [`PutAside`] gives it the name of one that is being made, so
//! that whatever cuts the going short, the next maker clears away what is left.
//!
//! | in the way | answer |
//! |---|---|
//! | the folder cannot be synced | found out before a byte is made |
//! | another file, or a link, was put where the one being made was | neither mapped nor named |
//! | an error once it has its name | told; it keeps its name |

use core::fmt;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, Gid, Mode, RenameFlags, Uid};
use rustix::io::Errno;

use crate::call;
use crate::error::OpenError;
use crate::file::{allocate, explain, open_as};
use crate::mapped::Mapped;
use crate::options::Options;
use crate::site::Site;

/// Added to the name of a file until it is whole,
const SUFFIX: &str = ".making";
/// with this in front, unless it is there: what has both is ours and may be removed.
const OURS: &str = ".holdfast";
/// Most bytes of a name in a folder.
const NAME_MAX: usize = 255;
/// How often a name is tried for that others make and remove at the same moment, and how long is
/// waited in between.
const TRIES: u32 = 16;
const NAP: Duration = Duration::from_millis(1);
/// Where a file keeps rights beyond those of its mode.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Whether room is taken for a whole new file at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Parts that are never written take none.
    Sparse,
    /// All of it, so that no later store dies of a full disk.
    Taken,
}

/// A file on its way to its name, empty at first and readable by its owner only. Dropped before it
/// is kept, it is gone.
pub struct Making {
    file: File,
    /// Where it is, to be synced when its name is there.
    folder: File,
    at: PathBuf,
    to: PathBuf,
    kept: bool,
}

impl fmt::Debug for Making {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Making").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Making {
    /// Begins to make what is to have the name `to`, beside it, under a name that ends in
    /// `.holdfast.making`. What somebody left there who was killed is removed first.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if somebody is at it; or no file can be made there, or none whose name
    /// would be durable.
    pub fn begin(to: &Path) -> Result<Self, OpenError> {
        let at = Self::name_of(to);
        let folder = folder_of(to)?;
        for _ in 0..TRIES {
            let mut options = File::options();
            options.read(true).write(true).create_new(true).mode(0o600);
            match open_as(&options, &at) {
                Ok(file) => match held(&file, &at) {
                    Ok(true) if has_name(&file, &at) => {
                        return Ok(Self { file, folder, at, to: to.to_path_buf(), kept: false });
                    }
                    // Whoever came in between took it for one that was left.
                    Ok(_) => std::thread::sleep(NAP),
                    Err(error) => {
                        drop(Self { file, folder, at, to: to.to_path_buf(), kept: false });
                        return Err(error);
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => clear(&at)?,
                Err(error) => return Err(explain(&at, "open", error)),
            }
        }
        Err(OpenError::Locked { path: at, holder: None, reads: false })
    }

    /// The name that what is to be called `to` has until it is whole. Where that would be too long
    /// for a name, it is cut: files that begin with so much the same are made one after another.
    #[must_use]
    pub fn name_of(to: &Path) -> PathBuf {
        let name = to.file_name().unwrap_or_default().as_bytes();
        let stem = name.strip_suffix(OURS.as_bytes()).unwrap_or(name);
        let most = NAME_MAX - OURS.len() - SUFFIX.len();
        let mut at = OsStr::from_bytes(&stem[..stem.len().min(most)]).to_owned();
        at.push(OURS);
        at.push(SUFFIX);
        to.with_file_name(at)
    }

    /// The file itself, for whoever writes it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it the owner and the rights of `like`, before it has a byte: who may not read that may
    /// not read this. Where that cannot be had exactly, fewer have rights.
    ///
    /// # Errors
    /// The system says no.
    pub fn like(&self, like: &File) -> Result<(), OpenError> {
        let failed = |call| move |error: io::Error| explain(&self.at, call, error);
        let theirs = like.metadata().map_err(failed("fstat"))?;
        let (uid, gid) = (Uid::from_raw(theirs.uid()), Gid::from_raw(theirs.gid()));
        // One at a time: who may not give it away may still give it to a group of theirs.
        for (uid, gid) in [(None, Some(gid)), (Some(uid), None)] {
            let _ = rustix::fs::fchown(&self.file, uid, gid);
        }
        let ours = self.file.metadata().map_err(failed("fstat"))?;
        let mut mode = theirs.mode() & 0o777;
        if ours.gid() != theirs.gid() {
            // Their group are others here, and our group is not theirs.
            mode &= 0o700 | mode >> 3 & 0o007;
        }
        // One that does not fit is there.
        let listed = rustix::fs::fgetxattr(like, ACCESS_LIST, &mut [0_u8; 1]);
        if !matches!(listed, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            // The mode says what the list grants at the most, not to whom.
            mode &= 0o700;
        }
        let may = call::ask("fchmod", Errno::IO);
        let set = may.and_then(|()| rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)));
        set.map_err(|error| explain(&self.at, "fchmod", error.into()))
    }

    /// Whether it has its name, whatever went wrong after it was given.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept
    }

    /// Refuses to go on if the name is that of another file, or of a link, by now: whoever put it
    /// there is not to have it written, or named.
    fn refuse_other(&self) -> Result<(), OpenError> {
        if has_name(&self.file, &self.at) {
            return Ok(());
        }
        let text = "another file is in the place of the one that is being made";
        Err(explain(&self.at, "stat", io::Error::other(text)))
    }

    /// Makes it `len` bytes long, all zero, and maps it for writing: the file that was made,
    /// whatever has its name.
    ///
    /// # Errors
    /// There is no space; somebody put another file in its place; or as [`Mapped::open`].
    pub fn map(&self, len: u64, room: Room, options: &Options) -> Result<Mapped, OpenError> {
        let failed = |call| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => {
                    OpenError::NoSpace { path: self.at.clone(), wanted: len, free: None }
                }
                _ => explain(&self.at, call, error),
            }
        };
        self.refuse_other()?;
        call::set_len(&self.file, len).map_err(failed("ftruncate"))?;
        if room == Room::Taken {
            allocate(self.file.as_fd(), 0, len).map_err(failed("fallocate"))?;
        }
        Mapped::over(&self.file, &self.at, options)
    }

    /// Gives it its name, durably. With `instead`, that of one that may be there.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if the name is taken; it is not replaced then, whatever the file
    /// system can do. Or the system says no; if [`is_kept`](Self::is_kept) then, it has its name,
    /// and only a power cut may take that away.
    pub fn keep(&mut self, instead: bool) -> Result<(), OpenError> {
        self.refuse_other()?;
        self.name(instead, no_replace)?;
        call::sync_all(Site::new("pmem.making.named"), &self.folder)
            .map_err(|error| explain(&self.to, "fsync of the folder", error))
    }

    /// The same by `rename`, which does not replace, where the file system has such a call.
    fn name(
        &mut self,
        instead: bool,
        rename: impl FnOnce(&Path, &Path) -> Result<(), Errno>,
    ) -> Result<(), OpenError> {
        let (at, to) = (&self.at, &self.to);
        let failed = |error| explain(to, "rename", error);
        if instead {
            let may = call::ask("rename", Errno::IO).map_err(io::Error::from);
            may.and_then(|()| fs::rename(at, to)).map_err(failed)?;
        } else {
            match rename(at, to) {
                Ok(()) => {}
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link(at, to)?,
                Err(error) => return Err(failed(error.into())),
            }
        }
        self.kept = true;
        Ok(())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // It is worth nothing, and would be in the way.
        if !self.kept && has_name(&self.file, &self.at) {
            let _ = fs::remove_file(&self.at);
        }
    }
}

/// A file on its way out: it has the name of one that is being made, and the lock of its maker.
/// Dropped, it keeps that name, and the next maker removes it.
#[derive(Debug)]
pub struct PutAside {
    /// Has the lock, as long as it is open.
    _file: File,
    /// What has the name: a link may.
    named: (u64, u64),
    folder: File,
    at: PathBuf,
    from: PathBuf,
}

impl PutAside {
    /// Takes the name from the file `from`, durably.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if somebody is just making what is to have the name; or the system
    /// says no. The file has its name then.
    pub fn begin(from: &Path) -> Result<Self, OpenError> {
        let (at, folder) = (Making::name_of(from), folder_of(from)?);
        let named = name(from).map_err(|error| explain(from, "stat", error))?;
        let mut options = File::options();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = open_as(options, from).map_err(|error| explain(from, "open", error))?;
        let locked = || OpenError::Locked { path: at.clone(), holder: None, reads: false };
        if !held(&file, from)? {
            return Err(locked());
        }
        clear(&at)?;
        let moved = match no_replace(from, &at) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(from, &at),
            moved => moved.map_err(io::Error::from),
        };
        moved.map_err(|error| explain(from, "rename", error))?;
        let this = Self { _file: file, named, folder, at, from: from.to_path_buf() };
        match call::sync_all(Site::new("pmem.making.aside"), &this.folder) {
            Ok(()) => Ok(this),
            Err(error) => {
                let from = this.from.clone();
                let _ = this.back();
                Err(explain(&from, "fsync of the folder", error))
            }
        }
    }

    /// Gives it its name back, unless somebody has it by now.
    ///
    /// # Errors
    /// The system says no.
    pub fn back(self) -> Result<(), OpenError> {
        let back = match no_replace(&self.at, &self.from) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link(&self.at, &self.from),
            back => back.map_err(|error| explain(&self.from, "rename", error.into())),
        };
        // One that is not durable is found under the other name, as after a kill.
        let _ = call::sync_all(Site::new("pmem.making.back"), &self.folder);
        back
    }

    /// Removes it. What cannot be removed goes with the next one that is made.
    pub fn remove(self) {
        let same = name(&self.at).is_ok_and(|named| named == self.named);
        let gone = || call::ask("unlink", Errno::IO).is_ok() && fs::remove_file(&self.at).is_ok();
        if same && gone() {
            let _ = call::sync_all(Site::new("pmem.making.gone"), &self.folder);
        }
    }
}

/// What has a name, links as themselves.
fn name(at: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(at).map(|found| (found.dev(), found.ino()))
}

/// The folder of a file, open to be synced.
fn folder_of(path: &Path) -> Result<File, OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let open = open_as(File::options().read(true), folder);
    open.map_err(|error| explain(folder, "open", error))
}

/// Renames without replacing, where the file system can.
fn no_replace(from: &Path, to: &Path) -> Result<(), Errno> {
    call::ask("renameat2", Errno::IO)?;
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)
}

/// Gives a file a second name, which is refused if it is taken, and takes the first one away.
fn link(at: &Path, to: &Path) -> Result<(), OpenError> {
    let may = call::ask("link", Errno::IO).map_err(io::Error::from);
    match may.and_then(|()| fs::hard_link(at, to)) {
        Ok(()) => {
            // What has both is whole; the next maker removes the first.
            let _ = fs::remove_file(at);
            Ok(())
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
            Err(OpenError::Unsupported {
                what: "way to name a file there without replacing another",
                instead: "choose a place on another file system",
            })
        }
        Err(error) => Err(explain(to, "link", error)),
    }
}

/// Takes the lock of a file that is being made; whether it was free.
fn held(file: &File, at: &Path) -> Result<bool, OpenError> {
    let may = call::ask("flock", Errno::NOLCK);
    match may.and_then(|()| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(explain(at, "flock", error.into())),
    }
}

/// Whether the file still is what has the name.
fn has_name(file: &File, at: &Path) -> bool {
    let both = fs::symlink_metadata(at).ok().zip(file.metadata().ok());
    both.is_some_and(|(named, open)| (named.dev(), named.ino()) == (open.dev(), open.ino()))
}

/// Removes what was left by somebody who was killed.
fn clear(at: &Path) -> Result<(), OpenError> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::symlink_metadata(at) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(OpenError::Exists { path: at.to_path_buf() }),
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(explain(at, "stat", error)),
    }
    let mut options = File::options();
    let options = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let left = match open_as(options, at) {
        Ok(left) => left,
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(explain(at, "open", error)),
    };
    let locked = |holder| OpenError::Locked { path: at.to_path_buf(), holder, reads: false };
    if !held(&left, at)? {
        return Err(locked(None));
    }
    // Builds that take no such lock have it mapped.
    if let Ok(Some(holder)) = Mapped::writer_of(at) {
        return Err(locked(holder));
    }
    if has_name(&left, at) {
        let may = call::ask("unlink", Errno::IO).map_err(io::Error::from);
        let gone = may.and_then(|()| fs::remove_file(at));
        gone.map_err(|error| explain(at, "unlink", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
