//! One guarded file: its engine, its source, and who else writes to it.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_guard_wire::{Ledger, SLOTS};
use holdfast_mapped::{
    Covered, Durability, Facts, Mapped, OpenOptions as OpenSide, ProtectOptions, Scrubbed, Writers,
    Writing,
};
use holdfast_pmem::track::ear::Hears;
use holdfast_pmem::track::holders::FileId;
use holdfast_pmem::track::{Board, folios};
use holdfast_pmem::{Access, Clock, Durability as Survive, ForeignFile, Options as Mapping, PAGE};

use crate::choose::Choice;
use crate::eyes::Eyes;
use crate::foreign::{Doubt, Known, Watch};
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
    eyes: Arc<Eyes>,
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
        hears: Hears,
    ) -> Result<Self, String> {
        let found = file.metadata().map_err(|error| error.to_string())?;
        let file = Arc::new(file);
        let id = FileId::of(file.as_fd()).map_err(|error| error.to_string())?;
        let watch = Watch::new(Arc::clone(&file), id, hears);
        let len = BOARD.max(found.len().saturating_mul(2)).next_multiple_of(PAGE);
        let board = Board::create(len, SLOTS).map_err(|error| error.to_string())?;
        let source = Arc::new(Source::new(number, id, Arc::new(board), Arc::clone(ledger)));
        let data = ForeignFile::new(Arc::clone(&file));
        // Before anybody maps it: a first store is ten times as dear in large pieces of the cache.
        let small = match protect.folios {
            holdfast_mapped::Folios::Small => folios::Folios::Small,
            holdfast_mapped::Folios::Any => folios::Folios::AsFound,
        };
        let cache = folios::apply(file.as_fd(), found.len(), small);
        let eyes = Arc::new(Eyes::new(data.clone(), watch, number, Arc::clone(ledger)));
        let facts = Arc::clone(&eyes) as Arc<dyn Facts>;
        let parts = (data.clone(), Arc::clone(&source), Arc::clone(clock), facts);
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
            eyes,
            report,
        })
    }

    /// Asks or tells the watch over it something.
    pub(crate) fn watch<T>(&self, ask: impl FnOnce(&mut Watch) -> T) -> T {
        self.eyes.watch(ask)
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

    /// Looks for writes that nobody told of.
    pub(crate) fn look(&mut self, known: &Known) {
        let heard = self.eyes.look(known);
        if let Some(why) = heard.contested {
            self.contest(why);
        }
        if let Some(why) = heard.doubted
            && self.report.doubted.len() < 16
            && !self.report.doubted.contains(&why)
        {
            self.report.doubted.push(why);
        }
    }

    /// If it was quiet for long enough: the next pass looks at every page, and decides about those
    /// that differ for good.
    fn settle(&mut self, known: &Known) {
        if self.watch(|watch| watch.doubted()) != Doubt::Settle {
            return;
        }
        self.source.forget();
        self.pass();
        self.look(known);
        self.watch(Watch::settled);
        self.look(known);
    }

    /// Whether nobody but the guarded is known to write, and all that they did is known. Asked
    /// while they stand; the next look tells what was found out.
    pub(crate) fn is_sure(&self) -> bool {
        self.eyes.is_sure() && self.source.is_whole()
    }

    /// A look, a pass, and the end of a doubt if its time has come.
    pub(crate) fn tick(&mut self, known: &Known) {
        self.look(known);
        self.pass();
        self.settle(known);
    }

    fn pass(&mut self) {
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

    /// Where the system does not tell our own writes from others', they are announced ones, too.
    fn told(&self, done: &Scrubbed) {
        if done.repaired > 0 && self.watch(|watch| watch.hears()) == Hears::Nobody {
            self.ledger.begin(self.number);
            self.ledger.end(self.number);
        }
    }

    pub(crate) fn note_error(&mut self, error: &str) {
        self.fail(error);
    }

    /// Nobody stores any more: a last pass, a last look, and the side file is closed clean.
    pub(crate) fn finish(mut self, known: &Known, scrub: bool) -> FileReport {
        self.look(known);
        let present = self.watch(|watch| watch.present(&known.guarded));
        if let Some(why) = present {
            self.contest(why);
        }
        self.pass();
        if self.watch(Watch::settle_now) {
            self.settle(known);
        }
        if let (Some(engine), true) = (&self.engine, scrub) {
            // Nobody guarded is left; strangers may come at any time.
            let writers = Rest(&self);
            let writers: &dyn Writers = &writers;
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

/// A file that no guarded program has any more.
struct Rest<'a>(&'a Guarded);

impl Writers for Rest<'_> {
    fn freeze(&self) -> bool {
        self.0.is_sure()
    }

    fn thaw(&self) {}
}

/// Opens or makes the side file.
fn engine(
    (data, source, clock, facts): (ForeignFile, Arc<Source>, Arc<dyn Clock>, Arc<dyn Facts>),
    choice: &Choice,
    protect: &ProtectOptions,
    report: &mut FileReport,
) -> Result<Engine, String> {
    let survive = match protect.open.durability {
        Durability::Process => Survive::Process,
        Durability::Power => Survive::Auto,
    };
    let mapping = Mapping { durability: survive, reserve: Some(SIDE_ROOM), ..Mapping::default() };
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
