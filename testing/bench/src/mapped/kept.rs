//! A file and what keeps its redundancy: which means notice stores, when sums and parity follow.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use holdfast_codes::{crc32c, xor_many};
use holdfast_mapped::{
    Durability, Instructions, Keep, Mapped as Engine, OpenOptions, ProtectOptions, Rearm, When,
    Writing, record_places,
};
use holdfast_pmem::track::{
    AsyncProtect, Board, DirtySource, FirstStore, MediumRecord, Notified, Open, Record, WriteWay,
};
use holdfast_pmem::{Access, Durability as Survive, Mapped, Options, PAGE, Protect, SystemClock};

use super::area::{Area, Told};
use super::loads::Hook;

/// How stores are noticed, and when redundancy follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Pages are tracked and armed again each period; nothing is computed. The share of faults.
    TrackOnly,
    /// Dirty bits, lazily: the kernel lifts a write protection.
    Lazy,
    /// Write protection with a handler that records each first store durably, lazily.
    FirstStore,
    /// The program announces each store, lazily.
    Notified,
    /// Sums and parity at the end of each operation, in a side file that survives a crash.
    AtCommit,
    /// The same with nothing that survives a crash: sums and parity in plain memory, no notes.
    Bare,
}

/// One way to protect, with all of its switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Protection {
    pub(crate) means: Means,
    pub(crate) keep: Keep,
    pub(crate) batch_pages: u32,
    pub(crate) rearm: Rearm,
    pub(crate) instructions: Instructions,
    /// Caches are lost with the power: the program flushes, and so do we.
    pub(crate) volatile: bool,
    pub(crate) durability: Durability,
    /// Passes keep note of what they found stored to.
    pub(crate) trace: bool,
}

impl Protection {
    pub(crate) fn of(means: Means) -> Self {
        Self {
            means,
            keep: Keep::default(),
            batch_pages: OpenOptions::default().batch_pages,
            rearm: Rearm::default(),
            instructions: Instructions::default(),
            volatile: false,
            durability: Durability::Process,
            trace: false,
        }
    }
}

/// What is asked of the engine's parts.
type Parts = Engine<Arc<Mapped>, Arc<Mapped>, Arc<dyn DirtySource>>;

/// A file under protection.
pub(crate) struct Kept {
    pub(crate) protection: Protection,
    area: Arc<Area>,
    engine: Option<Parts>,
    source: Option<Arc<dyn DirtySource>>,
    board: Option<Arc<Board>>,
    side: PathBuf,
}

/// Notes first stores where nothing but the death of the process is to be survived: nowhere.
#[derive(Debug)]
struct Nowhere;

impl Record for Nowhere {
    fn set(&self, _at: u64) -> bool {
        true
    }

    fn clear(&self, _at: u64, _len: u64) {}

    fn is_set(&self, _at: u64) -> bool {
        true
    }
}

impl Kept {
    /// Protects `area` as it is, by a side file beside it.
    pub(crate) fn new(area: &Arc<Area>, protection: Protection) -> anyhow::Result<Self> {
        let side = area.path().with_extension("side");
        let mut this = Self {
            protection,
            area: Arc::clone(area),
            engine: None,
            source: None,
            board: None,
            side: side.clone(),
        };
        if protection.means == Means::Bare {
            return Ok(this);
        }
        let medium = Arc::new(side_file(&side, protection.volatile)?);
        if protection.means == Means::FirstStore && protection.volatile {
            this.protect_on_record(medium)?;
            return Ok(this);
        }
        this.source = Some(this.source_of().context("no such source of dirty pages")?);
        if protection.means != Means::TrackOnly {
            this.engine = Some(this.protect(medium)?);
        }
        Ok(this)
    }

    fn source_of(&mut self) -> anyhow::Result<Arc<dyn DirtySource>> {
        let data = &self.area.medium;
        Ok(match self.protection.means {
            Means::FirstStore => Arc::new(FirstStore::of(Arc::clone(data), Arc::new(Nowhere))?),
            Means::Notified | Means::AtCommit => {
                let board = Arc::new(Board::create(self.area.len(), 4)?);
                self.board = Some(Arc::clone(&board));
                Arc::new(Notified::new(board, &[WriteWay::Store]))
            }
            _ => Arc::new(AsyncProtect::of(data)?),
        })
    }

    /// As the library does it: the record lies in the side file, which has to be there first.
    fn protect_on_record(&mut self, side: Arc<Mapped>) -> anyhow::Result<()> {
        let len = self.area.len();
        let nobody = Notified::new(Arc::new(Board::create(len, 1)?), &[]);
        self.source = Some(Arc::new(nobody));
        self.protect(Arc::clone(&side))?.close()?;
        let record = MediumRecord::new(Arc::clone(&side), record_places(&*side)?, 0, len)?;
        let source = FirstStore::of(Arc::clone(&self.area.medium), Arc::new(record))?;
        let source: Arc<dyn DirtySource> = Arc::new(source);
        self.source = Some(Arc::clone(&source));
        let (engine, _) = Engine::open(
            Arc::clone(&self.area.medium),
            side,
            source,
            Arc::new(Told::of(self.area.path())?),
            Arc::new(SystemClock::new()),
            self.how(),
        )?;
        self.engine = Some(engine);
        Ok(())
    }

    fn how(&self) -> OpenOptions {
        let Protection { batch_pages, rearm, instructions, durability, means, trace, .. } =
            self.protection;
        let when = if means == Means::AtCommit { When::AtCommit } else { When::Lazily };
        let open = OpenOptions { batch_pages, rearm, instructions, ..OpenOptions::default() };
        OpenOptions { durability, when, trace, ..open }
    }

    fn protect(&self, side: Arc<Mapped>) -> anyhow::Result<Parts> {
        let (keep, open) = (self.protection.keep, self.how());
        let options = ProtectOptions { keep, open, ..ProtectOptions::default() };
        let source = self.source.as_ref().context("a source was made before")?;
        let engine = Engine::protect(
            Arc::clone(&self.area.medium),
            side,
            Arc::clone(source),
            Arc::new(Told::of(self.area.path())?),
            Arc::new(SystemClock::new()),
            &options,
        )?;
        Ok(engine)
    }

    /// Begins to track stores: from here on they are protected.
    pub(crate) fn begin(&self) -> anyhow::Result<()> {
        match (&self.engine, &self.source) {
            (Some(engine), _) => {
                engine.admit(0, u64::MAX, Writing::NotYet)?;
                // The slice without protection has stored wherever it liked.
                engine.mark(0, u64::MAX)?;
                engine.update_now()?;
            }
            (None, Some(source)) => {
                source.arm(0, self.area.len())?;
                source.take(0, self.area.len(), &mut |_, _| {})?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// One pass: how many pages had been stored to.
    pub(crate) fn pass(&self) -> anyhow::Result<u64> {
        if let Some(engine) = &self.engine {
            let covered = engine.pass()?;
            anyhow::ensure!(
                covered.corrupt + covered.undecided == 0,
                "a pass found damage where there is none: {covered:?}"
            );
            return Ok(covered.pages + covered.unchanged);
        }
        let mut pages = 0;
        if let Some(source) = &self.source {
            source.take(0, self.area.len(), &mut |_, len| pages += len / PAGE)?;
        }
        Ok(pages)
    }

    /// Ends the tracking, after a last pass: stores are as fast as without protection.
    pub(crate) fn end(&self) -> anyhow::Result<()> {
        match (&self.engine, &self.source) {
            (Some(engine), _) => {
                engine.dismiss(0, u64::MAX)?;
            }
            (None, Some(source)) => source.disarm(0, self.area.len())?,
            (None, None) => {}
        }
        Ok(())
    }

    /// Looks whether everything is covered and right.
    pub(crate) fn verify(&self) -> anyhow::Result<()> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let report = engine.verify_all()?;
        anyhow::ensure!(report.is_clean(), "not clean: {:?}", report.corrupt.first());
        Ok(())
    }

    pub(crate) fn engine(&self) -> Option<&Parts> {
        self.engine.as_ref()
    }

    pub(crate) fn source(&self) -> Option<&Arc<dyn DirtySource>> {
        self.source.as_ref()
    }

    pub(crate) fn area(&self) -> &Arc<Area> {
        &self.area
    }

    pub(crate) fn side(&self) -> &Path {
        &self.side
    }

    /// What the program has to do around its stores.
    pub(crate) fn hooks(&self) -> Hooks<'_> {
        match (self.protection.means, &self.board, &self.engine) {
            (Means::Notified, Some(board), _) => Hooks::Announce(Announce { board, open: None }),
            (Means::AtCommit, _, Some(engine)) => Hooks::Commit(Commit(engine)),
            (Means::Bare, ..) => Hooks::Bare(Bare::new(&self.area, self.protection.keep)),
            _ if self.protection.volatile => Hooks::Flush(Flush(&self.area)),
            _ => Hooks::Free(Free),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.side);
    }
}

/// A side file of a few pages, which grows as far as it has to.
fn side_file(path: &Path, volatile: bool) -> anyhow::Result<Mapped> {
    let durability = if volatile { Survive::Auto } else { Survive::Process };
    let reserve = Some(64 << 30);
    let how = Options { durability, reserve, protection: Protect::None, ..Options::default() };
    drop(Mapped::create(path, 4 << 20, &how)?);
    Ok(Mapped::open(path, Access::Write, &how)?)
}

/// What is done around a store, chosen before the operations begin.
pub(crate) enum Hooks<'a> {
    Free(Free),
    Flush(Flush<'a>),
    Announce(Announce<'a>),
    Commit(Commit<'a>),
    Bare(Bare<'a>),
}

/// Nothing.
pub(crate) struct Free;

impl Hook for Free {
    #[inline(always)]
    fn before(&mut self, _at: u64, _len: u64) {}

    #[inline(always)]
    fn after(&mut self, _at: u64, _len: u64) {}
}

/// Lines are written back: caches do not survive.
pub(crate) struct Flush<'a>(&'a Area);

impl Hook for Flush<'_> {
    #[inline(always)]
    fn before(&mut self, _at: u64, _len: u64) {}

    #[inline(always)]
    fn after(&mut self, at: u64, len: u64) {
        self.0.flush(at, len);
    }
}

/// Stores are announced.
pub(crate) struct Announce<'a> {
    board: &'a Board,
    open: Option<Open<'a>>,
}

impl Hook for Announce<'_> {
    #[inline(always)]
    fn before(&mut self, at: u64, len: u64) {
        self.open = Some(self.board.open(at, len));
    }

    #[inline(always)]
    fn after(&mut self, _at: u64, _len: u64) {
        self.open = None;
    }
}

/// Each operation is a commit.
pub(crate) struct Commit<'a>(&'a Parts);

impl Hook for Commit<'_> {
    #[inline(always)]
    fn before(&mut self, _at: u64, _len: u64) {}

    fn after(&mut self, at: u64, len: u64) {
        // A failure would show: nothing is covered then, and the verification at the end says so.
        let _ = self.0.commit(at, len);
    }
}

/// Sums and parity straight away: what per-commit redundancy costs at the least.
pub(crate) struct Bare<'a> {
    area: &'a Area,
    sums: Vec<u32>,
    parity: Vec<u8>,
    keep: Keep,
    rows: Vec<u8>,
}

/// Data pages of a stripe.
const ROWS: u64 = 4;

impl<'a> Bare<'a> {
    fn new(area: &'a Area, keep: Keep) -> Self {
        let pages = area.len().div_ceil(PAGE * ROWS) * ROWS;
        Self {
            area,
            sums: vec![0; pages as usize],
            parity: vec![0; (pages / ROWS * PAGE) as usize],
            keep,
            rows: vec![0; (ROWS * PAGE) as usize],
        }
    }

    fn stripe(&mut self, stripe: u64, pages: core::ops::Range<u64>) {
        let (at, all) = (stripe * ROWS * PAGE, self.area.len());
        let here = (all - at).min(ROWS * PAGE) as usize;
        let read = holdfast_pmem::Medium::read(&*self.area.medium, at, &mut self.rows[..here]);
        debug_assert!(read.is_ok(), "the file is as long as it was made");
        let rows: Vec<&[u8]> = self.rows.chunks(PAGE as usize).collect();
        for page in pages.filter(|_| self.keep.sums) {
            self.sums[page as usize] = crc32c(page as u32, rows[(page % ROWS) as usize]);
        }
        if self.keep.parity > 0 {
            let to = (stripe * PAGE) as usize;
            xor_many(&mut self.parity[to..to + PAGE as usize], &rows);
        }
    }
}

impl Hook for Bare<'_> {
    #[inline(always)]
    fn before(&mut self, _at: u64, _len: u64) {}

    fn after(&mut self, at: u64, len: u64) {
        let (first, last) = (at / PAGE, (at + len - 1) / PAGE);
        for stripe in first / ROWS..=last / ROWS {
            let pages = first.max(stripe * ROWS)..(last + 1).min((stripe + 1) * ROWS);
            self.stripe(stripe, pages);
        }
    }
}

/// Bytes the file at `path` takes on its file system.
pub(crate) fn taken(path: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::open(path)?;
    Ok(file.metadata()?.blocks() * 512)
}

impl<'a> Hooks<'a> {
    /// Lines of this file are written back after each store.
    pub(crate) fn flush(area: &'a Area) -> Self {
        Self::Flush(Flush(area))
    }
}
