//! A side file that is being made: it has another name until it covers everything, so that whatever
//! has the final name is whole. One that was cut short is made anew by whoever comes next.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use holdfast_pmem::{Access, Mapped, OpenError, Options};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Added to the name of a side file that is being made; the `protect` command uses the same.
const MAKING: &str = ".making";

/// Dropped before it is kept, the file is gone.
#[derive(Debug)]
pub(crate) struct Making {
    at: PathBuf,
    to: PathBuf,
    kept: bool,
}

impl Making {
    /// Makes a file of `len` bytes, to be named `to` in the end.
    pub(crate) fn begin(to: &Path, len: u64, options: &Options) -> Result<(Self, Mapped), String> {
        let mut at = to.as_os_str().to_owned();
        at.push(MAKING);
        let at = PathBuf::from(at);
        if at.exists() {
            // Left by somebody who was killed, or of somebody who is at it and holds its lock.
            match Mapped::open(&at, Access::Write, options) {
                Ok(left) => drop(left),
                Err(error @ OpenError::Locked { .. }) => return Err(error.to_string()),
                Err(error) => {
                    return Err(format!("{error}; remove {} if nobody is at it", at.display()));
                }
            }
            fs::remove_file(&at).map_err(|error| format!("{}: {error}", at.display()))?;
        }
        let side = Mapped::create(&at, len, options).map_err(|error| error.to_string())?;
        Ok((Self { at, to: to.to_path_buf(), kept: false }, side))
    }

    /// Gives it its name, if nobody has it.
    pub(crate) fn keep(mut self) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.to.display());
        match renameat_with(CWD, &self.at, CWD, &self.to, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => {
                return Err("somebody else has just protected it".to_owned());
            }
            // A file system that has no such call.
            Err(_) if !self.to.exists() => fs::rename(&self.at, &self.to).map_err(wrong)?,
            Err(error) => return Err(wrong(error.into())),
        }
        self.kept = true;
        let folder = self.to.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).map_err(|error| error.to_string())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.kept {
            // It protects nothing, and would be in the way.
            let _ = fs::remove_file(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_short_is_made_anew_and_what_is_whole_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.holdfast");
        let at = folder.path().join("a.holdfast.making");
        let begin = || Making::begin(&to, 128 << 10, &Options::default());
        let (making, side) = begin().unwrap();
        assert!(at.exists() && !to.exists());
        assert!(begin().is_err(), "somebody is at it");
        drop(side);
        // As if it had been killed.
        core::mem::forget(making);
        let (making, side) = begin().unwrap();
        drop((making, side));
        assert!(!at.exists() && !to.exists(), "given up");
        let (making, _side) = begin().unwrap();
        making.keep().unwrap();
        assert!(!at.exists() && to.exists());
        let (making, _other) = begin().unwrap();
        assert!(making.keep().is_err_and(|why| why.contains("somebody else")));
        assert!(!at.exists() && to.exists());
    }
}
