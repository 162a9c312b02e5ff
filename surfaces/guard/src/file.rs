//! One guarded file: its engine, its source, and who else writes to it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_guard_wire::{Ledger, SLOTS};
use holdfast_mapped::{
    AtRest, Covered, Durability, Facts, Mapped, OpenOptions as OpenSide, ProtectOptions, Scrubbed,
    Writers, Writing,
};
use holdfast_pmem::track::Board;
use holdfast_pmem::track::folios;
use holdfast_pmem::{Access, Clock, Durability as Survive, ForeignFile, Options as Mapping, PAGE};

use crate::choose::Choice;
use crate::foreign::Watch;
use crate::proc::{self, Holds};
use crate::source::Source;
use crate::summary::FileReport;

type Engine = Mapped<ForeignFile, holdfast_pmem::Mapped, Arc<Source>>;

/// Bytes a side file begins with; the engine makes it longer.
const SIDE_START: u64 = 128 << 10;
/// Addresses kept free for a side file to grow.
const SIDE_ROOM: u64 = 64 << 30;
/// Bytes of file a board has bits for, at least.
const BOARD: u64 = 1 << 40;

/// A guarded file.
pub(crate) struct Guarded {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    number: u32,
    data: ForeignFile,
    /// None after an error that ended its protection.
    engine: Option<Engine>,
    pub(crate) source: Arc<Source>,
    ledger: Arc<Ledger>,
    watch: Mutex<Watch>,
    contested: bool,
    report: FileReport,
}

/// The file behind a descriptor that a program sent, opened for ourselves.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> std::io::Result<(File, PathBuf)> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = std::fs::read_link(&link)?;
    let file = OpenOptions::new().read(true).write(true).open(&link)?;
    Ok((file, path))
}

impl Guarded {
    /// Begins to guard a file.
    pub(crate) fn begin(
        number: u32,
        (file, path): (File, PathBuf),
        choice: &Choice,
        protect: &ProtectOptions,
        (ledger, clock): (&Arc<Ledger>, &Arc<dyn Clock>),
    ) -> Result<Self, String> {
        let found = file.metadata().map_err(|error| error.to_string())?;
        let file = Arc::new(file);
        let watch = Watch::new(&path, found.dev(), found.ino());
        let len = BOARD.max(found.len().saturating_mul(2)).next_multiple_of(PAGE);
        let board = Board::create(len, SLOTS).map_err(|error| error.to_string())?;
        let source =
            Arc::new(Source::new(number, found.ino(), Arc::new(board), Arc::clone(ledger)));
        let data = ForeignFile::new(Arc::clone(&file));
        // Before anybody maps it: a first store is ten times as dear in large pieces of the cache.
        let small = match protect.folios {
            holdfast_mapped::Folios::Small => folios::Folios::Small,
            holdfast_mapped::Folios::Any => folios::Folios::AsFound,
        };
        let cache = folios::apply(file.as_fd(), found.len(), small);
        let parts = (data.clone(), Arc::clone(&source), Arc::clone(clock));
        let mut report = FileReport::new(path);
        report.folios = cache.map_or_else(|error| error.to_string(), |cache| cache.to_string());
        let engine = engine(parts, choice, protect, &mut report)?;
        engine.admit(0, u64::MAX, Writing::NotYet).map_err(|error| error.to_string())?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            number,
            data,
            contested: engine.is_contested(),
            engine: Some(engine),
            source,
            ledger: Arc::clone(ledger),
            watch: Mutex::new(watch),
            report,
        })
    }

    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a process can change it.
    pub(crate) fn is_held_by(&self, process: u32) -> bool {
        proc::holds(process, self.device, self.inode, false) == Holds::Writes
    }

    pub(crate) fn size(&self) -> u64 {
        self.data.size()
    }

    /// The parts that have storage: what is worth arming.
    pub(crate) fn allocated(&self) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let size = self.size().next_multiple_of(PAGE);
        self.data.parts(0, size, &mut |at, len| parts.push((at, len)));
        parts
    }

    /// Somebody writes to it of whom nothing is seen: from now on it is checked only.
    pub(crate) fn contest(&mut self, why: String) {
        if self.report.contested.len() < 16 && !self.report.contested.contains(&why) {
            self.report.contested.push(why);
        }
        if self.contested {
            return;
        }
        self.contested = true;
        if let Some(engine) = &self.engine
            && let Err(error) = engine.contest(true)
        {
            self.fail(&error.to_string());
        }
    }

    /// Something went wrong; what is not covered stays known as such.
    fn fail(&mut self, error: &str) {
        if self.report.errors.len() < 16 {
            self.report.errors.push(error.to_owned());
        }
    }

    /// Looks for writers that are not guarded.
    pub(crate) fn look(&mut self, known: &BTreeSet<u32>) {
        let found = self.watch().look(known, || self.ledger.announced(self.number));
        if let Some(why) = found {
            self.contest(why);
        }
    }

    /// Whether nobody but the guarded is known to write, and all that they did is known. Asked
    /// while they stand; says what was found out otherwise later.
    pub(crate) fn is_sure(&self, known: &BTreeSet<u32>, found: &mut Option<String>) -> bool {
        let mut watch = self.watch();
        let foreign = watch.look(known, || self.ledger.announced(self.number));
        let sure = foreign.is_none() && watch.is_sure() && self.source.is_whole();
        if found.is_none() {
            *found = foreign;
        }
        sure
    }

    /// A pass.
    pub(crate) fn pass(&mut self) {
        self.source.reap();
        let done = self.engine.as_ref().map(Engine::pass);
        self.note(done);
    }

    /// Covers a range at once.
    pub(crate) fn cover(&mut self, at: u64, len: u64) {
        let done = self.engine.as_ref().map(|engine| engine.cover(at, len));
        self.report.covered_on_sync += 1;
        self.note(done);
    }

    fn note(&mut self, done: Option<holdfast_mapped::Result<Covered>>) {
        match done {
            Some(Ok(_)) => self.report.passes += 1,
            Some(Err(error)) => self.fail(&error.to_string()),
            None => {}
        }
    }

    /// Looks at the next region, and repairs what is damaged there. False at the end of the file.
    pub(crate) fn scrub_step(&self, writers: &dyn Writers) -> Result<bool, String> {
        let Some(engine) = &self.engine else { return Ok(false) };
        let writers = (!self.contested).then_some(writers);
        let done = engine.scrub_step(writers).map_err(|error| error.to_string())?;
        self.told(&done);
        Ok(!done.finished)
    }

    /// Our own writes are announced ones, too.
    fn told(&self, done: &Scrubbed) {
        if done.repaired > 0 && !self.watch().is_named() {
            self.ledger.begin(self.number);
            self.ledger.end(self.number);
        }
    }

    pub(crate) fn note_error(&mut self, error: &str) {
        self.fail(error);
    }

    /// Nobody stores any more: a last pass, a last look, and the side file is closed clean.
    pub(crate) fn finish(mut self, known: &BTreeSet<u32>, scrub: bool) -> FileReport {
        self.look(known);
        let present = self.watch().present(known);
        if let Some(why) = present {
            self.contest(why);
        }
        self.pass();
        if let (Some(engine), true) = (&self.engine, scrub) {
            let writers: &dyn Writers = &AtRest;
            match engine.scrub((!self.contested).then_some(writers)) {
                Ok(done) => {
                    self.report.good = done.report.good;
                    self.report.lost = done.lost;
                    self.report.damaged = done.report.corrupt.len() as u64;
                    self.report.doubtful = done.report.undecided;
                }
                Err(error) => self.fail(&error.to_string()),
            }
        }
        if let Some(engine) = self.engine.take() {
            self.report.pages = engine.pages();
            self.report.counts = engine.counts();
            match engine.close() {
                Ok(()) => self.report.closed = true,
                Err(error) => self.fail(&error.to_string()),
            }
        }
        self.report.seen = self.source.seen();
        self.report
    }
}

/// Opens or makes the side file.
fn engine(
    (data, source, clock): (ForeignFile, Arc<Source>, Arc<dyn Clock>),
    choice: &Choice,
    protect: &ProtectOptions,
    report: &mut FileReport,
) -> Result<Engine, String> {
    let survive = match protect.open.durability {
        Durability::Process => Survive::Process,
        Durability::Power => Survive::Auto,
    };
    let mapping = Mapping { durability: survive, reserve: Some(SIDE_ROOM), ..Mapping::default() };
    let facts: Arc<dyn Facts> = Arc::new(data.clone());
    let boot = identifier("/proc/sys/kernel/random/boot_id");
    let open = OpenSide { boot, ..protect.open };
    match choice {
        Choice::Open(side) => {
            let side = holdfast_pmem::Mapped::open(side, Access::Write, &mapping)
                .map_err(|error| error.to_string())?;
            let (engine, opened) = Engine::open(data, side, source, facts, clock, open)
                .map_err(|error| error.to_string())?;
            report.opened = Some(opened);
            Ok(engine)
        }
        Choice::Protect(path) => {
            let side = holdfast_pmem::Mapped::create(path, SIDE_START, &mapping)
                .map_err(|error| error.to_string())?;
            let uuid = identifier("/proc/sys/kernel/random/uuid");
            let options = ProtectOptions { uuid, open, ..protect.clone() };
            Engine::protect(data, side, source, facts, clock, &options).map_err(|error| {
                // It protects nothing, and would be in the way.
                let _ = std::fs::remove_file(path);
                error.to_string()
            })
        }
        Choice::Leave => Err("it is not chosen".to_owned()),
    }
}

/// The bytes of a UUID that the system tells; zeros if it does not.
fn identifier(path: &str) -> [u8; 16] {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut digits = text.bytes().filter_map(|byte| char::from(byte).to_digit(16));
    core::array::from_fn(|_| {
        let (high, low) = (digits.next().unwrap_or(0), digits.next().unwrap_or(0));
        (high << 4 | low) as u8
    })
}

impl core::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Guarded").field("path", &self.report.path).finish_non_exhaustive()
    }
}
