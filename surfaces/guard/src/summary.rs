//! What is told when all is over.

use core::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;

use holdfast_mapped::{Counts, Opened};
use holdfast_redundancy::Unsure;

use crate::source::Seen;

/// What became of a program and its files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// How the program ended.
    pub status: ExitStatus,
    /// Address spaces that were guarded: programs, and children of theirs.
    pub spaces: u64,
    /// The guarded files.
    pub files: Vec<FileReport>,
    /// Files that were wanted and could not be guarded, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// Messages that were refused or could not be told. While there are any, what differs proves
    /// nothing.
    pub untold: u64,
    /// Means of writing that nobody sees, and who has them.
    pub not_observed: Vec<String>,
}

/// What became of one file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileReport {
    /// Where it was when it was found.
    pub path: PathBuf,
    /// Pages it has now.
    pub pages: u64,
    /// What was seen of the program's writing.
    pub seen: Seen,
    /// Passes over it, those on a sync included.
    pub passes: u64,
    /// Passes because the program synced.
    pub covered_on_sync: u64,
    /// What the engine found and did.
    pub counts: Counts,
    /// What the last look found good.
    pub good: u64,
    /// What the last look found damaged, repaired or not.
    pub damaged: u64,
    /// Damaged pages that could not be given back.
    pub lost: u64,
    /// Pages nobody can judge, and why.
    pub doubtful: Vec<(u64, Unsure)>,
    /// Why it was checked only.
    pub contested: Vec<String>,
    /// Why what differed was not repaired for a while, since a write may have gone unnoticed.
    pub doubted: Vec<String>,
    /// What went wrong.
    pub errors: Vec<String>,
    /// How the page cache holds it.
    pub folios: String,
    /// What was found when its side file was opened; `None` if it was made anew.
    pub opened: Option<Opened>,
    /// Whether its side file was closed clean.
    pub closed: bool,
}

impl FileReport {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            pages: 0,
            seen: Seen::default(),
            passes: 0,
            covered_on_sync: 0,
            counts: Counts::default(),
            good: 0,
            damaged: 0,
            lost: 0,
            doubtful: Vec::new(),
            contested: Vec::new(),
            doubted: Vec::new(),
            errors: Vec::new(),
            folios: String::new(),
            opened: None,
            closed: false,
        }
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, counts, .. } = self;
        writeln!(f, "{}: {} pages, {} good", self.path.display(), self.pages, self.good)?;
        writeln!(
            f,
            "  bytes by store {}, by write {}; pages tracked {}; passes {} ({} on a sync)",
            seen.stored,
            seen.written,
            seen.tracked / holdfast_pmem::PAGE,
            self.passes,
            self.covered_on_sync
        )?;
        writeln!(
            f,
            "  covered {}, unchanged {}, corrupt {}, repaired {}, lost {}, undecided {}",
            counts.covered,
            counts.unchanged,
            counts.corrupt,
            counts.repaired,
            self.lost,
            self.doubtful.len()
        )?;
        for why in &self.contested {
            writeln!(f, "  checked only: {why}")?;
        }
        for why in &self.doubted {
            writeln!(f, "  not repaired for a while: {why}")?;
        }
        for error in &self.errors {
            writeln!(f, "  error: {error}")?;
        }
        if !self.closed {
            writeln!(f, "  the side file could not be closed clean")?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            write!(f, "{file}")?;
        }
        for (path, why) in &self.refused {
            writeln!(f, "{}: not guarded: {why}", path.display())?;
        }
        for what in &self.not_observed {
            writeln!(f, "not observed: {what}")?;
        }
        if self.spaces == 0 {
            writeln!(f, "not observed: the program did not load the library")?;
        }
        if self.untold > 0 {
            writeln!(f, "{} events could not be told: what differs proves nothing", self.untold)?;
        }
        writeln!(f, "{} address spaces; {}", self.spaces, self.status)
    }
}
