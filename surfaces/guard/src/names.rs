//! Names of guarded files: the side file goes where its data file goes, so that none ever lies
//! beside a file that it does not belong to.
//!
//! | the data file | its side file |
//! |---|---|
//! | has another name now | is renamed, in place of one that belonged to a file that had the name |
//! | has lost the name that is known, and has another that a guarded program gave it | the same |
//! | has no name any more | loses its own; it serves until the file is let go of |
//! | has others that are not known | the same, which is an error |
//!
//! Names that a file is given while it is looked at for the first time, or about to be closed, are
//! kept until it is guarded, and those of one that was let go of until it is guarded again.
//!
//! What lies where a side file is to go is replaced only if it is a side file that nobody has open,
//! and that says it is another file's: not a pointer into a pool, not what somebody made meanwhile.
//!
//! Several may have gone in a circle: then one of them steps aside for the others. Who is killed in
//! between leaves a file without a side file, which is not protected, and never one with another's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_pmem::{Access, Options as Mapping};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::choose::side_of;
use crate::serve::Guard;

/// Names of a file that are remembered, at most.
const MOST_NAMES: usize = 64;
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Beside {
    /// What differs from it is undecided, as ever.
    Own,
    /// The file was just given its name: the side file itself says whose it is.
    Perhaps,
    /// It is another's, though inodes are the same.
    Others,
    /// Its own lies elsewhere, since something else lies there; whether the file was just given its
    /// name.
    Elsewhere { own: Named, named: bool },
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

/// Device and inode of what has a name.
pub(crate) fn id(path: &Path) -> Option<(u64, u64)> {
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

    /// Gives it another name, if nobody has that; whether it has it now.
    pub(crate) fn rename_to_free(&mut self, to: PathBuf) -> bool {
        self.try_rename(to).is_ok()
    }

    fn try_rename(&mut self, to: PathBuf) -> io::Result<()> {
        match renameat_with(CWD, &self.path, CWD, &to, RenameFlags::NOREPLACE) {
            // Not every file system can do that in one step.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                if id(&to).is_some() {
                    return Err(Errno::EXIST.into());
                }
                fs::rename(&self.path, &to)?;
            }
            done => done?,
        }
        self.path = to;
        Ok(())
    }

    /// Gives it the name of another file's side file.
    ///
    /// # Errors
    /// Why it stays where it is: what has the name is to be kept.
    pub(crate) fn replace(&mut self, to: PathBuf, inode: u64) -> Result<(), String> {
        is_of_another(&to, inode)?;
        fs::rename(&self.path, &to).map_err(|error| error.to_string())?;
        self.path = to;
        Ok(())
    }
}

/// Whether what has the name of a side file is one that nobody uses, and of another file than that
/// with this inode.
fn is_of_another(side: &Path, inode: u64) -> Result<(), String> {
    let found = fs::symlink_metadata(side).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("what lies there is no side file".to_owned());
    }
    let used = holdfast_pmem::Mapped::writer_of(side).map_err(|error| error.to_string())?;
    if used.is_some() {
        return Err("the side file that lies there is in use".to_owned());
    }
    let mapped = holdfast_pmem::Mapped::open(side, Access::ReadOnly, &Mapping::default());
    let mapped = mapped.map_err(|error| error.to_string())?;
    let of = holdfast_mapped::inode_of(&mapped).map_err(|error| error.to_string())?;
    if of == inode {
        return Err("what lies there is another side file of the same file".to_owned());
    }
    Ok(())
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

/// Looks by which name a file can be found that was last seen as `before`, and was given others.
fn fate(file: BorrowedFd<'_>, before: &Path, others: &[PathBuf]) -> Fate {
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
    if links > 0
        && let Some(other) = others.iter().rev().find(|other| id(other) == key)
    {
        return Fate::Other(other.clone());
    }
    let unknown = now.as_os_str().as_bytes().ends_with(DELETED);
    if links == 0 || unknown { Fate::Gone { links } } else { Fate::Same }
}

/// Keeps a name that a file was given, among others of it.
pub(crate) fn remember(names: &mut Vec<PathBuf>, name: PathBuf) {
    names.retain(|known| *known != name);
    if names.len() == MOST_NAMES {
        names.remove(0);
    }
    names.push(name);
}

impl Guard {
    /// Has all side files follow their data files.
    pub(crate) fn follow_names(&mut self) {
        let (mut moved, mut lost) = (Vec::new(), Vec::new());
        for (number, file) in &mut self.files {
            let found = fate(file.descriptor(), file.path(), &file.names);
            match found {
                Fate::Same => {}
                Fate::Gone { links } => {
                    if file.lose_name(links) {
                        lost.push(file.path().to_path_buf());
                    }
                }
                Fate::Other(path) => {
                    file.take_name(path);
                    moved.push(*number);
                }
            }
        }
        self.bring_sides(moved);
        self.asks.lost_names(lost);
    }

    /// Brings the side files of files after them that have other names now.
    fn bring_sides(&mut self, mut left: Vec<usize>) {
        // Those that stepped aside, and where they were.
        let mut aside = BTreeMap::new();
        while !left.is_empty() {
            let before = left.len();
            // In the way of each other, but not for long.
            let theirs: BTreeSet<(u64, u64)> =
                left.iter().filter_map(|number| self.files.get(number)?.side_id()).collect();
            left.retain(|number| {
                let file = self.files.get_mut(number);
                file.is_some_and(|file| !file.bring_side(&theirs, aside.get(number)))
            });
            if left.len() < before {
                continue;
            }
            // Nobody goes first in a circle.
            let Some(at) = left.iter().position(|number| !aside.contains_key(number)) else {
                return;
            };
            let number = left[at];
            match self.files.get_mut(&number).and_then(|file| file.step_aside(number)) {
                Some(was) => drop(aside.insert(number, was)),
                None => drop(left.remove(at)),
            }
        }
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
        if links == 0 {
            self.report().note(
                "the file that had this name was removed, or replaced, while it was guarded; its \
                 side file went with it"
                    .to_owned(),
            );
        } else {
            self.note_error(
                "the file lost this name while it was guarded, and has others that are not known: \
                 its side file is removed; protect it under one of them",
            );
        }
        true
    }

    /// A guarded program gave it one more name.
    pub(crate) fn has_name(&mut self, name: PathBuf) {
        remember(&mut self.names, name);
    }

    /// Tells its side file from others.
    fn side_id(&self) -> Option<(u64, u64)> {
        self.side().map(|side| side.id)
    }

    /// Makes room for others that want the name of its side file; where it was.
    fn step_aside(&mut self, number: usize) -> Option<PathBuf> {
        let side = self.names().1.as_mut()?;
        let was = side.path.clone();
        let mut to = was.clone().into_os_string();
        to.push(format!("{MOVING}{number}"));
        match side.try_rename(to.into()) {
            Ok(()) => Some(was),
            Err(error) => {
                self.note_error(&format!("{}: {error}", was.display()));
                None
            }
        }
    }

    /// The data file has another name.
    fn take_name(&mut self, path: PathBuf) {
        let before = core::mem::replace(self.names().0, path);
        self.report().note(format!("it was {} before", before.display()));
    }

    /// Brings its side file after it; false if that of another one is in the way that is about to
    /// go. `was` is where it was before it stepped aside.
    fn bring_side(&mut self, theirs: &BTreeSet<(u64, u64)>, was: Option<&PathBuf>) -> bool {
        let inode = self.inode;
        let to = side_of(self.names().0);
        let Some(side) = self.names().1.as_mut() else { return true };
        // A folder above both may have been renamed.
        if (Named { path: to.clone(), id: side.id }).is_there() {
            side.path = to;
            return true;
        }
        if !side.is_there() {
            return true;
        }
        let failed = match side.try_rename(to.clone()) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if id(&to).is_some_and(|there| theirs.contains(&there)) {
                    return false;
                }
                side.replace(to.clone(), inode).err()
            }
            Err(error) => Some(error.to_string()),
        };
        let Some(failed) = failed else {
            self.report()
                .note("the side file of the file that had this name before was removed".to_owned());
            return true;
        };
        if let Some(was) = was {
            // Where it cannot be either, it stays under the name that it has.
            let _ = side.rename_to_free(was.clone());
        }
        let stays = side.path.display().to_string();
        self.note_error(&format!("{}: {failed}; its side file stays at {stays}", to.display()));
        true
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
        let fate = || fate(file.as_fd(), &at("a"), &[at("other"), at("linked")]);
        assert_eq!(fate(), Fate::Same);
        fs::hard_link(at("a"), at("also")).unwrap();
        assert_eq!(fate(), Fate::Same);
        fs::rename(at("a"), at("b (deleted)")).unwrap();
        assert_eq!(fate(), Fate::Other(at("b (deleted)")));
        fs::write(at("a"), b"2").unwrap();
        assert_eq!(fate(), Fate::Other(at("b (deleted)")), "another file has its name");
        fs::rename(at("a"), at("b (deleted)")).unwrap();
        assert_eq!(fate(), Fate::Gone { links: 1 });
        fs::hard_link(at("also"), at("linked")).unwrap();
        assert_eq!(fate(), Fate::Other(at("linked")), "a name that it was given");
        fs::remove_file(at("linked")).unwrap();
        fs::remove_file(at("also")).unwrap();
        assert_eq!(fate(), Fate::Gone { links: 0 });
    }
}
