//! Names of guarded files: the side file goes where its data file goes, so that none ever lies
//! beside a file that it does not belong to.
//!
//! | the data file | its side file |
//! |---|---|
//! | has another name now | is renamed, in place of one that belonged to a file that had the name |
//! | has no name any more | loses its own; it serves until the file is let go of |
//! | has lost the name by which it is known, and has others | the same, which is told |
//!
//! Several may have gone in a circle, so all of them step aside first. Who is killed in between
//! leaves a file without a side file, which is not protected, and never one with another's.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::choose::side_of;
use crate::serve::Guard;

/// Added to the name of a side file on its way.
const MOVING: &str = ".moving-";
/// What the system adds to a name that does not exist any more.
const DELETED: &[u8] = b" (deleted)";

/// A name that leads to a certain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    path: PathBuf,
    id: (u64, u64),
}

/// Whether the side file that lies beside a file may be that of another one, which had its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// What differs from it is undecided, as ever.
    Own,
    /// The file was just given its name: the side file itself says whose it is.
    Perhaps,
    /// It is another's, though inodes are the same.
    Others,
}

/// When a file was made, as far as its file system tells.
pub(crate) type Born = Option<(i64, u32)>;

/// When the file of a descriptor was made.
pub(crate) fn born(file: BorrowedFd<'_>) -> Born {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let told = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    told.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

fn id(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Named {
    /// The file of that name.
    pub(crate) fn of(path: PathBuf) -> Option<Self> {
        let id = id(&path)?;
        Some(Self { path, id })
    }

    /// Whether the name still leads to it.
    pub(crate) fn is_there(&self) -> bool {
        id(&self.path) == Some(self.id)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it another name, whoever has that.
    pub(crate) fn rename(&mut self, to: PathBuf) -> io::Result<()> {
        fs::rename(&self.path, &to)?;
        self.path = to;
        Ok(())
    }
}

/// What became of a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Same,
    Other(PathBuf),
    /// It has no name any more, or only such as are not known.
    Gone {
        links: u64,
    },
}

/// Looks by which name a file can be found that was last seen as `before`.
fn fate(file: BorrowedFd<'_>, before: &Path) -> Fate {
    let Ok(found) = rustix::fs::fstat(file) else { return Fate::Same };
    let links = found.st_nlink;
    let key = Some((found.st_dev, found.st_ino));
    if links > 0 && id(before) == key {
        return Fate::Same;
    }
    let Ok(now) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
        return Fate::Same;
    };
    if links > 0 && id(&now) == key {
        return Fate::Other(now);
    }
    let unknown = now.as_os_str().as_bytes().ends_with(DELETED);
    if links == 0 || unknown { Fate::Gone { links } } else { Fate::Same }
}

impl Guard {
    /// Has all side files follow their data files.
    pub(crate) fn follow_names(&mut self) {
        let (mut moved, mut lost) = (Vec::new(), Vec::new());
        for (number, file) in &mut self.files {
            let found = fate(file.descriptor(), file.path());
            match found {
                Fate::Same => {}
                Fate::Gone { links } => {
                    if file.lose_name(links) {
                        lost.push(file.path().to_path_buf());
                    }
                }
                Fate::Other(path) => moved.push((*number, path)),
            }
        }
        for (number, _) in &moved {
            if let Some(file) = self.files.get_mut(number) {
                file.step_aside(*number);
            }
        }
        for (number, path) in moved {
            if let Some(file) = self.files.get_mut(&number) {
                file.take_name(path);
            }
        }
        self.asks.lost_names(lost);
    }
}

impl crate::file::Guarded {
    /// The name is gone, and so is that of its side file; false if it was before.
    fn lose_name(&mut self, links: u64) -> bool {
        let Some(side) = self.names().1.take() else { return false };
        if side.is_there()
            && let Err(error) = fs::remove_file(&side.path)
        {
            self.note_error(&format!("{}: {error}", side.path.display()));
        }
        self.report().note(match links {
            0 => "the file that had this name was removed, or replaced, while it was guarded; its \
                  side file went with it"
                .to_owned(),
            _ => "the file lost this name while it was guarded, and has others that are not \
                  known: its side file is removed; protect it under one of them"
                .to_owned(),
        });
        true
    }

    /// Makes room for others that want the name of its side file.
    fn step_aside(&mut self, number: usize) {
        let Some(mut side) = self.names().1.take() else { return };
        if side.is_there() {
            let mut to = side.path.clone().into_os_string();
            to.push(format!("{MOVING}{number}"));
            if let Err(error) = side.rename(to.into()) {
                self.note_error(&format!("{}: {error}", side.path.display()));
            }
        }
        *self.names().1 = Some(side);
    }

    /// The data file has another name.
    fn take_name(&mut self, path: PathBuf) {
        let before = core::mem::replace(self.names().0, path.clone());
        self.report().note(format!("it was {} before", before.display()));
        let Some(mut side) = self.names().1.take() else { return };
        let to = side_of(&path);
        // A folder above both may have been renamed.
        let aside = Named { path: to.clone(), id: side.id };
        if aside.is_there() {
            side = aside;
        } else if side.is_there() {
            let other = to.exists();
            match side.rename(to) {
                Ok(()) if other => self.report().note(
                    "the side file of the file that had this name before was removed".to_owned(),
                ),
                Ok(()) => {}
                Err(error) => self.note_error(&format!("{}: {error}", side.path.display())),
            }
        }
        *self.names().1 = Some(side);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn what_became_of_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), b"1").unwrap();
        let file = File::open(at("a")).unwrap();
        let fate = || fate(file.as_fd(), &at("a"));
        assert_eq!(fate(), Fate::Same);
        fs::hard_link(at("a"), at("also")).unwrap();
        assert_eq!(fate(), Fate::Same);
        fs::rename(at("a"), at("b (deleted)")).unwrap();
        assert_eq!(fate(), Fate::Other(at("b (deleted)")));
        fs::write(at("a"), b"2").unwrap();
        assert_eq!(fate(), Fate::Other(at("b (deleted)")), "another file has its name");
        fs::rename(at("a"), at("b (deleted)")).unwrap();
        assert_eq!(fate(), Fate::Gone { links: 1 });
        fs::remove_file(at("also")).unwrap();
        assert_eq!(fate(), Fate::Gone { links: 0 });
    }
}
