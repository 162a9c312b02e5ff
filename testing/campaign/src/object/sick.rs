//! A machine whose own memory or device fails under a pool (`cargo xtask lab`): nothing is injected
//! into the mapping, and what has failed stays so.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use holdfast_pmem::inject::device::{fail_memory, lose_sectors, strike};
use holdfast_pmem::inject::place_in_file;
use holdfast_pmem::{Mapped, MediaCause, MediaError, PAGE, Site};
use serde::{Deserialize, Serialize};

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Sectors of the persistent memory.
    Sectors,
    /// Memory, as the kernel gives it up.
    Memory,
    /// Persistent memory, as the machine reports it: to the thread that comes along, in the middle
    /// of what it does.
    Struck,
    /// The program itself: it stores astray.
    Strays,
}

/// A file on such a machine.
#[derive(Debug)]
pub struct Sick {
    how: How,
    path: PathBuf,
    file: File,
    /// Steps of the engine that are left out, by the names of their sites.
    off: Vec<String>,
}

impl Sick {
    /// The machine under the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn of(path: &Path, how: How, off: Vec<String>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { how, path: path.to_path_buf(), file, off })
    }

    /// Whether who has a page fail waits until it is put right, for which others need the medium.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.how == How::Struck
    }

    /// Whether a step is left out.
    #[must_use]
    pub fn is_off(&self, site: Site) -> bool {
        self.off.iter().any(|name| name == site.name())
    }

    /// Has the page of the medium fail that is served from the file at a place only it knows.
    ///
    /// # Errors
    /// The machine does not do that.
    pub fn lose(&self, mapped: &Mapped, page: u64) -> Result<(), MediaError> {
        let at = place_in_file(mapped, page);
        let lost = match self.how {
            How::Sectors => lose_sectors(&self.file, at),
            How::Memory => fail_elsewhere(&self.path, at),
            How::Struck => strike(mapped, &self.file, page),
            How::Strays => Err(io::ErrorKind::Unsupported.into()),
        };
        lost.map_err(|error| {
            eprintln!("sick: page {page:#x} of {}: {error}", self.path.display());
            MediaError { at: page, len: PAGE, cause: MediaCause::OutOfRange }
        })
    }
}

/// What a process is told that has memory fail: it is ended for it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Fail {
    path: PathBuf,
    at: u64,
}

/// Has the memory of a page of a file fail, by a process of its own. This one hears of it when it
/// loads the page.
///
/// # Errors
/// This kernel does not do that, or not for us.
pub fn fail_elsewhere(path: &Path, at: u64) -> io::Result<()> {
    let orders = serde_json::to_string(&Fail { path: path.to_path_buf(), at })?;
    let me = std::env::current_exe()?;
    let mut child = Command::new(me);
    child.args(["object", "--fail-memory", &orders]).stdout(Stdio::null());
    let status = child.status()?;
    match status.code() {
        // By the signal that it got for it.
        None | Some(0) => Ok(()),
        Some(code) => Err(io::Error::other(format!("the kernel refuses: exit code {code}"))),
    }
}

/// Has the memory of a page of a file fail.
#[must_use]
pub fn run(orders: &str) -> ExitCode {
    let Ok(orders) = serde_json::from_str::<Fail>(orders) else { return ExitCode::from(2) };
    // Only to be read: who opens somebody's file for writing may be taken for a stranger.
    match File::open(&orders.path).and_then(|file| fail_memory(&file, orders.at)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", orders.path.display());
            ExitCode::FAILURE
        }
    }
}
