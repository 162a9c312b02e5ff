//! What is told when all is over.

use core::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, UNIX_EPOCH};

use holdfast_mapped::{Counts, Opened};
use holdfast_redundancy::Unsure;

use crate::drill::{Drill, Drilled};
use crate::options::Placement;
use crate::source::Seen;

/// What became of a program and its files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// How the program ended.
    pub status: ExitStatus,
    /// How long it was guarded.
    pub lasted: Duration,
    /// Processor time that guarding took, on all processors together.
    pub spent: Duration,
    /// Where that was.
    pub placement: Placement,
    /// Address spaces that were guarded: programs, and children of theirs.
    pub spaces: u64,
    /// Bytes that passes covered in a second at the most; `None` is no limit.
    pub pace: Option<u64>,
    /// What was damaged on purpose, and from which seed.
    pub drill: Option<Drill>,
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
    /// Where it is, or was when it had a name last.
    pub path: PathBuf,
    /// Tells it apart from others that had the name.
    pub(crate) inode: u64,
    /// What became of its name, and how it came to be guarded if not by being opened.
    pub notes: Vec<String>,
    /// Pages it has now.
    pub pages: u64,
    /// Pages and parity pages of its stripes.
    pub stripe: (u32, u32),
    /// What was seen of the program's writing.
    pub seen: Seen,
    /// Time between two passes.
    pub period: Duration,
    /// The longest that a store can have waited until it was covered: between the beginning of one
    /// pass and the end of the next.
    pub oldest: Duration,
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
    /// Of those, pages that the last look put right.
    pub mended: u64,
    /// Damaged pages that could not be given back.
    pub lost: u64,
    /// Pages nobody can judge, and why.
    pub doubtful: Vec<(u64, Unsure)>,
    /// When that of it which the last look found damaged, or cannot judge, was verified last, the
    /// earliest if there is more, in nanoseconds since 1970; 0 if never. `None` if all was good.
    pub verified_ns: Option<u64>,
    /// What drills came to. Pages that they damaged count as corrupt and as repaired, too.
    pub drilled: Drilled,
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
    pub(crate) fn new(path: PathBuf, inode: u64) -> Self {
        Self {
            path,
            inode,
            notes: Vec::new(),
            pages: 0,
            stripe: (0, 0),
            seen: Seen::default(),
            period: Duration::ZERO,
            oldest: Duration::ZERO,
            passes: 0,
            covered_on_sync: 0,
            counts: Counts::default(),
            good: 0,
            damaged: 0,
            mended: 0,
            lost: 0,
            doubtful: Vec::new(),
            verified_ns: None,
            drilled: Drilled::default(),
            contested: Vec::new(),
            doubted: Vec::new(),
            errors: Vec::new(),
            folios: String::new(),
            opened: None,
            closed: false,
        }
    }
}

impl FileReport {
    /// Notes something that is neither an error nor a doubt.
    pub(crate) fn note(&mut self, what: String) {
        if self.notes.len() < 16 && !self.notes.contains(&what) {
            self.notes.push(what);
        }
    }

    /// What became of the same file since it was taken up again.
    fn go_on(&mut self, later: Self) {
        let before = core::mem::replace(self, later);
        let all = |now: &mut Vec<String>, before: Vec<String>| {
            let new: Vec<String> =
                core::mem::take(now).into_iter().filter(|it| !before.contains(it)).collect();
            *now = before.into_iter().chain(new).collect();
        };
        all(&mut self.notes, before.notes);
        all(&mut self.contested, before.contested);
        all(&mut self.doubted, before.doubted);
        all(&mut self.errors, before.errors);
        self.opened = before.opened;
        self.oldest = self.oldest.max(before.oldest);
        self.passes += before.passes;
        self.covered_on_sync += before.covered_on_sync;
        self.mended += before.mended;
        self.damaged += before.mended;
        self.seen.stored += before.seen.stored;
        self.seen.written += before.seen.written;
        self.seen.tracked = self.seen.tracked.max(before.seen.tracked);
        self.drilled.add(before.drilled);
        let (now, then) = (&mut self.counts, before.counts);
        for (now, then) in [
            (&mut now.passes, then.passes),
            (&mut now.covered, then.covered),
            (&mut now.unchanged, then.unchanged),
            (&mut now.corrupt, then.corrupt),
            (&mut now.repaired, then.repaired),
            (&mut now.undecided, then.undecided),
            (&mut now.unreported, then.unreported),
        ] {
            *now += then;
        }
    }

    /// Makes one report of those of each file, in the order in which they began.
    pub(crate) fn join(all: Vec<Self>) -> Vec<Self> {
        let mut joined: Vec<Self> = Vec::new();
        for report in all {
            let same = |other: &&mut Self| other.path == report.path && other.inode == report.inode;
            match joined.iter_mut().find(same) {
                Some(before) => before.go_on(report),
                None => joined.push(report),
            }
        }
        joined
    }

    /// Why pages are undecided, and how many each.
    #[must_use]
    pub fn reasons(&self) -> Vec<(Unsure, u64)> {
        let mut reasons: Vec<(Unsure, u64)> = Vec::new();
        for (_, why) in &self.doubtful {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, pages)) => *pages += 1,
                None => reasons.push((*why, 1)),
            }
        }
        reasons
    }

    /// Pages put right that no drill had damaged.
    #[must_use]
    pub fn repaired(&self) -> u64 {
        self.counts.repaired.saturating_sub(self.drilled.given_back)
    }

    /// Whether damage is left, or a drill failed. Pages that nobody can judge are none: they are in
    /// [`doubtful`](Self::doubtful).
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        let bad = self.damaged > self.mended || self.drilled.has_failed();
        bad || self.lost > 0
    }

    /// Whether it was guarded all the time, as it should be.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.contested.is_empty() && self.errors.is_empty() && self.closed
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, counts, .. } = self;
        writeln!(f, "{}: {} pages, {} good", self.path.display(), self.pages, self.good)?;
        writeln!(
            f,
            "  bytes by store {}, by write {}; pages tracked {}; {}",
            seen.stored,
            seen.written,
            seen.tracked / holdfast_pmem::PAGE,
            self.folios
        )?;
        writeln!(f, "  stripes of {} pages, {} parity", self.stripe.0, self.stripe.1)?;
        writeln!(
            f,
            "  passes {} ({} on a sync), one each {:?}; nothing waited longer than {:.1?}",
            self.passes, self.covered_on_sync, self.period, self.oldest
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
        for (why, pages) in self.reasons() {
            writeln!(f, "  undecided: {pages} pages: {why}")?;
        }
        match self.verified_ns.map(|ns| UNIX_EPOCH + Duration::from_nanos(ns)) {
            None => {}
            Some(UNIX_EPOCH) => writeln!(f, "  what is not good there was never verified before")?,
            Some(then) => {
                let ago = then.elapsed().unwrap_or_default();
                writeln!(f, "  what is not good there was verified last {ago:.1?} ago")?;
            }
        }
        if self.opened.is_some_and(|opened| opened.changed) {
            writeln!(f, "  it had been changed, or replaced, while it was not protected")?;
        }
        if self.drilled != Drilled::default() {
            let Drilled { rounds, put_off, pages, given_back, called_off, .. } = &self.drilled;
            write!(f, "  drilled {pages}, given back {given_back}, in {rounds} rounds")?;
            writeln!(f, "; {put_off} rounds put off, {called_off} pages called off")?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
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
        if let Some(pace) = self.pace {
            writeln!(f, "at most {pace} bytes covered in a second")?;
        }
        if let Some(drill) = self.drill {
            writeln!(f, "drills from seed {}", drill.seed)?;
        }
        let place = match self.placement {
            Placement::Anywhere => String::new(),
            Placement::Own(number) => format!(" on processor {number}"),
            Placement::Same => " beside the program".to_owned(),
        };
        writeln!(
            f,
            "{} address spaces; {}; guarded for {:.1?} with {:.1?} of processor time{place}",
            self.spaces, self.status, self.lasted, self.spent
        )
    }
}
