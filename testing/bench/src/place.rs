//! Where a run keeps its pools: a folder of its own, which goes when the run ends.
//!
//! A run that is killed cannot clear away, and what it leaves in `/dev/shm` is memory. So every run
//! first removes the folders of runs that have died. A folder is locked by its run as long as that
//! lives, and the kernel drops the lock with the process, however it ends: unlike the process id
//! in the name, which is there for people, the lock never belongs to somebody else.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::say::say;

/// How the folders' names begin; then come the process id and some letters.
const PREFIX: &str = "holdfast-bench.";

/// A folder for the pools of one run.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// Keeps other runs from taking the folder for one whose run has died.
    _lock: File,
}

impl Place {
    /// Makes a folder in `dir`, after removing those of runs that have died.
    ///
    /// # Errors
    /// `dir` is not there, or nothing can be made in it.
    pub(crate) fn make(dir: &Path) -> anyhow::Result<Self> {
        for left in sweep(dir) {
            say!("removed {}, which a run that died had left", left.display());
        }
        Self::locked(dir).with_context(|| format!("cannot make a folder in {}", dir.display()))
    }

    fn locked(dir: &Path) -> anyhow::Result<Self> {
        // Nobody takes it for abandoned before it is locked: its name has another beginning.
        let made = tempfile::Builder::new().prefix(".holdfast-new.").tempdir_in(dir)?;
        let lock = File::open(made.path())?;
        lock.try_lock()?;
        let letters = made.path().extension().unwrap_or_default().to_string_lossy().into_owned();
        let path = dir.join(format!("{PREFIX}{}.{letters}", std::process::id()));
        fs::rename(made.path(), &path)?;
        // It has another name by now: there is nothing to remove under the old one.
        let _ = made.keep();
        Ok(Self { path, _lock: lock })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of runs that have died, and answers which. What cannot be looked at or
/// removed stays: it is no reason not to measure.
fn sweep(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    ours.map(|entry| entry.path()).filter(|path| is_abandoned(path)).collect()
}

/// Whether this was a folder of this user's that no run holds; then it is gone.
fn is_abandoned(path: &Path) -> bool {
    // SAFETY: takes nothing, changes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // Of the entry itself: whoever puts a link there does not choose what is removed.
    let own = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user);
    // The lock is held while the folder is removed, so that no other run does the same.
    own && File::open(path)
        .is_ok_and(|lock| lock.try_lock().is_ok() && fs::remove_dir_all(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_run_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("holdfast-bench.1.dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("holdfast-full-1.pool"), "a pool").unwrap();
        let others = ["other", "holdfast-bench.2.file", "holdfast-bench.3.link"];
        let others = others.map(|name| dir.path().join(name));
        fs::create_dir(&others[0]).unwrap();
        fs::write(&others[1], "no folder").unwrap();
        std::os::unix::fs::symlink(&others[0], &others[2]).unwrap();
        let living = Place::make(dir.path()).unwrap();
        assert!(!dead.exists());
        let second = Place::make(dir.path()).unwrap();
        assert!(living.path().exists() && living.path() != second.path());
        assert!(others.iter().all(|path| path.exists()));
        let paths = [living.path().to_owned(), second.path().to_owned()];
        drop((living, second));
        assert!(paths.iter().all(|path| !path.exists()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), others.len());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Place::make(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/at/all"), "{error:#}");
    }
}
