//! The processes that are killed: a supervisor, and the program it guards, which maps its file and
//! stores to it. Both are this program, started again.
//!
//! The program says in a log what it is about to store, with a `write` that has returned before it
//! stores: what a log holds is there, whoever is killed. The last entry may or may not be done.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use holdfast_guard::{FileReport, Guard, Options};
use holdfast_pmem::PAGE;
use holdfast_workloads::Rng;
use serde::{Deserialize, Serialize};

/// Bytes of a word, which is what is stored at once.
pub const WORD: u64 = 8;
/// Bytes of an entry of the log.
pub const ENTRY: usize = 16;

/// Stores by which the program counts as begun.
const ENOUGH: u32 = 4;

/// What a process is told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    /// Whether it is the program or its supervisor.
    pub program: bool,
    /// Whether the program stores, or only opens its file.
    pub stores: bool,
    /// The file.
    pub path: PathBuf,
    /// Of everything random in it.
    pub seed: u64,
    /// Whether the program is to end before anybody kills it.
    #[serde(default)]
    pub dies: bool,
}

/// What a supervisor that came to its end has to say of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Pages of the file.
    pub pages: u64,
    /// Pages found good at the end.
    pub good: u64,
    /// Damaged pages found.
    pub corrupt: u64,
    /// Damaged pages put right.
    pub repaired: u64,
    /// Damaged pages beyond redundancy.
    pub lost: u64,
    /// Pages in doubt at the end.
    pub doubtful: Vec<u64>,
    /// Why the file was checked only, and what went wrong.
    pub told: Vec<String>,
    /// Whether the side file was closed clean.
    pub closed: bool,
    /// The signal that ended the program, if one did.
    pub signal: Option<i32>,
    /// What the program ended with, if it did by itself.
    pub code: Option<i32>,
}

/// Whether the program never stores to a page: it leaves every third stripe alone.
#[must_use]
pub const fn is_left_alone(page: u64) -> bool {
    (page / 4).is_multiple_of(3)
}

/// A file beside the guarded one.
#[must_use]
pub fn beside(path: &Path, what: &str) -> PathBuf {
    path.with_extension(what)
}

/// Does what the orders say.
#[must_use]
pub fn run(text: &str) -> ExitCode {
    let orders: Orders = match serde_json::from_str(text) {
        Ok(orders) => orders,
        Err(error) => {
            eprintln!("campaign: no such orders: {error}");
            return ExitCode::from(2);
        }
    };
    let done = if orders.program { program(&orders) } else { supervisor(&orders) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever started this looks for it there.
            let _ = std::fs::write(beside(&orders.path, "failed"), error.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Where the library that is loaded into programs is: beside this program, or where it was built.
///
/// # Errors
/// It is nowhere.
pub fn preload() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = me.parent().unwrap_or(Path::new("."));
    let name = "libholdfast_preload.so";
    let places = [folder.join(name), folder.join("deps").join(name)];
    let found = places.into_iter().find(|place| place.exists());
    found.ok_or_else(|| format!("there is no {name} in {}; build it", folder.display()))
}

fn supervisor(orders: &Orders) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut options = Options::new(preload()?);
    options.period = Duration::from_millis(5);
    options.globs = vec!["*.guarded".to_owned()];
    let me = std::env::current_exe().map_err(|error| text(&error))?;
    // It contains code for other rows that makes calls by itself; what the victim writes goes
    // through the C library.
    let own = me.file_name().map(|name| name.to_string_lossy().into_owned());
    options.trusted.extend(own);
    let child = Orders { program: true, ..orders.clone() };
    let child = serde_json::to_string(&child).map_err(|error| text(&error))?;
    let words = ["mapped".into(), "--victim".into(), child.into()];
    let guard = Guard::launch(me.as_os_str(), &words, options).map_err(|error| text(&error))?;
    let summary = guard.run().map_err(|error| text(&error))?;
    let mut told: Vec<String> = summary.not_observed.clone();
    told.extend(summary.refused.iter().map(|(path, why)| format!("{}: {why}", path.display())));
    let report = summary.files.first().map(|file| said(file, &mut told)).unwrap_or_default();
    let (signal, code) = (summary.status.signal(), summary.status.code());
    let report = Report { told, signal, code, ..report };
    let report = serde_json::to_vec(&report).map_err(|error| text(&error))?;
    let (made, done) = (beside(&orders.path, "making"), beside(&orders.path, "report"));
    std::fs::write(&made, report).map_err(|error| text(&error))?;
    std::fs::rename(made, done).map_err(|error| text(&error))
}

fn said(file: &FileReport, told: &mut Vec<String>) -> Report {
    told.extend(file.contested.iter().chain(&file.errors).cloned());
    Report {
        pages: file.pages,
        good: file.good,
        corrupt: file.counts.corrupt,
        repaired: file.counts.repaired,
        lost: file.lost,
        doubtful: file.doubtful.iter().map(|(page, _)| *page).collect(),
        told: Vec::new(),
        closed: file.closed,
        signal: None,
        code: None,
    }
}

/// The program: it knows nothing of a guard.
fn program(orders: &Orders) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let open = OpenOptions::new().read(true).write(true).open(&orders.path);
    let file = open.map_err(|error| text(&error))?;
    let len = file.metadata().map_err(|error| text(&error))?.len();
    let map = Map::new(&file, len as usize).map_err(|error| text(&error))?;
    let pid = std::process::id().to_string();
    std::fs::write(beside(&orders.path, "pid"), pid).map_err(|error| text(&error))?;
    if !orders.stores {
        if orders.dies {
            std::process::abort();
        }
        return Ok(());
    }
    let log = OpenOptions::new().append(true).create(true).open(beside(&orders.path, "log"));
    let mut log = log.map_err(|error| text(&error))?;
    let (mut rng, mut stored) = (Rng::new(orders.seed), 0);
    loop {
        let (word, value) = (rng.below(len / WORD), rng.next_u64());
        if is_left_alone(word * WORD / PAGE) {
            continue;
        }
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&word.to_le_bytes());
        entry[8..].copy_from_slice(&value.to_le_bytes());
        log.write_all(&entry).map_err(|error| text(&error))?;
        if rng.below(8) == 0 {
            let done = file.write_all_at(&value.to_le_bytes(), word * WORD);
            done.map_err(|error| text(&error))?;
        } else {
            map.store(word, value);
        }
        // Once enough is in the log for it to count as begun.
        stored += 1;
        if orders.dies && stored > ENOUGH && rng.below(16) == 0 {
            std::process::abort();
        }
    }
}

/// The file as the program has it mapped, by the calls any program would use.
struct Map {
    at: *mut u64,
    words: u64,
}

impl Map {
    #[allow(unsafe_code, reason = "a program that maps its file by itself is what is guarded")]
    fn new(file: &File, len: usize) -> std::io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let null = core::ptr::null_mut();
        // SAFETY: a new mapping at an address of the system's choice, of a file that is open.
        let at = unsafe { libc::mmap(null, len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), words: len as u64 / WORD })
    }

    #[allow(unsafe_code, reason = "as above")]
    fn store(&self, word: u64, value: u64) {
        if word < self.words {
            // SAFETY: inside the mapping, which is writable and lives as long as the process; the
            // address is a multiple of eight.
            unsafe { self.at.add(word as usize).write_volatile(value) };
        }
    }
}
