//! A pool: made, opened, used, closed.

use holdfast_sync::atomic::Ordering;
use std::sync::Arc;

use holdfast_heap::Heap;
use holdfast_layout::{Persist, Ptr, RawPtr, RegionKind, Superblock, bytemuck};
use holdfast_logs::Log;
use holdfast_pmem::{Clock, Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::events::Journal;
use holdfast_redundancy::intent::RepairIntent;
use holdfast_redundancy::progress::{Progress, ScrubProgress};
use holdfast_redundancy::remap::RemapTable;
use holdfast_redundancy::superblock::read_superblock;
use holdfast_redundancy::{Mirror, Zone};
use holdfast_txn::{Isolation, Store, Transaction, TxError};

use crate::anchor::Anchor;
use crate::error::Error;
use crate::geometry;
use crate::hopeless::Hopeless;
use crate::options::{CreateOptions, OpenOptions, VerifyReads};
use crate::shared::{Parts, Repairer, Shared};
use crate::tx::Tx;
use crate::versions::Pinned;
use crate::view::Held;

/// Making everything durable before a clean close on a file.
const CLOSED: Site = Site::new("object.pool.closed");

/// Times a transaction is run again after conflicts before it is given up.
const CONFLICTS_MAX: u32 = 100_000;
/// Repairs for one `run` before it is given up.
const REPAIRS_MAX: usize = 10_000;
/// Repairs of one place for one `run` before damage there is reported as lost.
const AGAIN_MAX: usize = 8;

/// An open pool of objects on a medium. Cheap to clone; the last clone to go closes the pool.
#[derive(Debug)]
pub struct Pool<M: Medium> {
    pub(crate) shared: Arc<Shared<M>>,
}

impl<M: Medium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Figures of an open pool since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that changed something.
    pub commits: u64,
    /// Transactions given up: the closure returned an error or panicked, the commit failed, or
    /// one begun as a value was dropped. Not those executed again.
    pub aborts: u64,
    /// Times a transaction was run again because of another.
    pub conflicts: u64,
    /// Damages found.
    pub detected: u64,
    /// Damages repaired.
    pub repaired: u64,
    /// Damages beyond the redundancy.
    pub lost: u64,
    /// Granules that reads found to agree with their sums; which reads look, the policy says.
    pub verified: u64,
    /// Times the log was freed: on a file, by a sync and a watermark; else watermark records that
    /// carry nothing else, which are written only where no commit's record came in time.
    pub reclaims: u64,
}

impl<M: Medium> Pool<M> {
    /// Makes a pool on an empty (all-zero) medium of at least `options.size` bytes. The
    /// superblock is written last: a crash before leaves something that is no pool.
    ///
    /// # Errors
    /// [`Error::Options`] if the options cannot make a pool, or whatever the medium answers.
    pub fn create(
        m: M,
        options: &CreateOptions,
        open: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let plan = geometry::plan(options, m.kind())?;
        if m.len() < plan.superblock.size {
            return Err(Error::Truncated { pool: plan.superblock.size, file: m.len() });
        }
        let mirror = Mirror::of(&plan.superblock);
        let heap = Heap::new(plan.superblock.seed(), plan.superblock.sum_kind);
        crate::open::write_regions(&m, mirror, 1, &plan.regions)?;
        let repairer = Repairer {
            intent: RepairIntent::create(&m, mirror)?,
            remap: RemapTable::create(&m, &plan.superblock, &plan.regions)?,
            progress: ScrubProgress::create(&m, mirror)?,
            scrubbed: Progress::default(),
            scratch: holdfast_redundancy::parity::Scratch::new(),
            holds_columns: false,
            completes: false,
            beside: 0,
            stuck: Vec::new(),
            given_up: Vec::new(),
            healed: Vec::new(),
            hopeless: Hopeless::default(),
            installs: 0,
        };
        if m.kind() == MediumKind::File {
            let log = u64::from(plan.superblock.lanes) * plan.superblock.ring_len;
            for side in [0, plan.superblock.side_len] {
                m.prepare(side + plan.superblock.log_start, log);
            }
        }
        let pool = Self::assemble(Parts {
            heap,
            log: Log::open(&m, &plan.superblock)?,
            first_number: 1,
            repairer,
            journal: Journal::open(&m, &plan.superblock),
            superblock: plan.superblock,
            regions: plan.regions,
            regions_sequence: 1,
            options: open,
            clock,
            read_only: false,
            m,
        })?;
        for (table, zone) in pool.shared.heap.zones().zip(pool.shared.zones()) {
            pool.shared.format_directory(table, zone)?;
        }
        let anchor = pool.run(|tx| {
            tx.alloc(Anchor { root: RawPtr::NULL, maps: RawPtr::NULL, reserved: [0; 6] })
        })?;
        pool.shared.set_anchor(anchor);
        let shared = &pool.shared;
        {
            let mut superblock = shared.superblock();
            superblock.anchor = anchor.raw().word();
            shared.store_superblock(&mut superblock)?;
        }
        shared.report_early();
        shared.closable.store(true, Ordering::Release);
        Ok(pool)
    }

    /// Puts the parts of a pool together: zones from the region table.
    pub(crate) fn assemble(parts: Parts<M>) -> Result<Self, Error> {
        let shared = Shared::new(parts);
        let regions = shared.regions.lock().unwrap_or_else(holdfast_sync::PoisonError::into_inner);
        for region in regions.iter().filter(|r| r.kind == RegionKind::Zone) {
            let zone = Zone::new(region, shared.heap.zones().count() as u32)?;
            shared.heap.add_zone_with(region, |table| shared.know_zone(table, zone));
        }
        drop(regions);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Runs `body` as one serializable transaction and returns once it is durable. After a
    /// conflict or a repair `body` is executed again; a `run` inside a `run` on the same pool
    /// joins the outer one, which fails with it if it fails after it changed something.
    ///
    /// # Errors
    /// What `body` returned, or why it could not be committed; nothing happened then.
    pub fn run<R>(
        &self,
        mut body: impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>,
    ) -> Result<R, Error> {
        let shared = &*self.shared;
        if shared.m.inherited() {
            return Err(Error::Forked);
        }
        let (lane, nested) = self.enter_lane();
        if nested {
            return run_nested(shared, lane, body);
        }
        let abort = Abort(&lane);
        let mut retry = Retry::default();
        loop {
            match attempt(shared, &lane, &mut body) {
                Ok(value) => {
                    core::mem::forget(abort);
                    after_commit(shared);
                    return Ok(value);
                }
                Err(error) => retry.after(shared, error)?,
            }
        }
    }

    /// A free lane; waits until another transaction ends if all are taken. Or the one this thread
    /// is in already, and says so.
    #[inline]
    pub(crate) fn enter_lane(&self) -> (Held<'_, crate::lane::LaneState>, bool) {
        loop {
            if let Some(entered) = self.shared.lanes.enter() {
                return entered;
            }
            holdfast_sync::thread::yield_now();
        }
    }

    /// Reads an object outside a transaction: a copy of one committed state of it.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T, Error> {
        self.run(|tx| tx.read(of))
    }

    /// The root object, null if none was set.
    ///
    /// # Errors
    /// `WrongType` if it is no `T`, and as [`run`](Self::run).
    pub fn root<T: Persist>(&self) -> Result<Ptr<T>, Error> {
        self.run(|tx| tx.root())
    }

    /// Borrows an object in place. While the guard lives, nothing is stored to the object:
    /// commits that would are run again later. The loads themselves are plain; whether the bytes
    /// were verified before depends on the read policy.
    ///
    /// # Errors
    /// `TooManyViews` if 127 views of the object, or of others with the same version word, do not
    /// end within about a tenth of a second; and as [`run`](Self::run).
    pub fn view<T: Persist>(&self, of: Ptr<T>) -> Result<View<'_, T, M>, Error> {
        let shared = &*self.shared;
        let word = shared.versions.index(of.raw().offset());
        loop {
            // Verified (as the policy says) and checked for type and life by an ordinary read.
            self.read(of)?;
            let version = match shared.versions.pin(word) {
                Pinned::At(version) => version,
                Pinned::Held => {
                    holdfast_sync::thread::yield_now();
                    continue;
                }
                Pinned::Full => return Err(TxError::TooManyViews { object: of.raw() }.into()),
            };
            let len = size_of::<T>() as u64;
            let guard = View { shared, word, at: of.raw().offset(), of: core::marker::PhantomData };
            // Between the read and the pin the object may have been freed or replaced.
            let Some(spot) = shared.heap.locate(guard.at) else { continue };
            let slot =
                holdfast_heap::verify::read_slot(&holdfast_heap::verify::Direct(&shared.m), &spot)?;
            let same = slot.is_live()
                && slot.generation == of.raw().generation()
                && slot.type_number == T::TYPE.0
                && u64::from(slot.len) == len;
            if same && shared.versions.unchanged(word, version) {
                return Ok(guard);
            }
        }
    }

    /// When reads verify, from now on.
    pub fn set_verify_reads(&self, policy: VerifyReads) {
        self.shared.set_verify_reads(policy);
    }

    /// Figures since the pool was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let c = &self.shared.counters;
        let get = |n: &holdfast_sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            commits: self.shared.lanes.commits(),
            aborts: self.shared.lanes.aborts(),
            conflicts: get(&c.conflicts),
            detected: get(&c.detected),
            repaired: get(&c.repaired),
            lost: get(&c.lost),
            verified: self.shared.lanes.verified(),
            reclaims: self.shared.numbers.reclaims(),
        }
    }

    /// What the pool is.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.shared.superblock().clone()
    }

    /// The medium behind the pool.
    #[must_use]
    pub fn medium(&self) -> &M {
        &self.shared.m
    }

    /// How much of the heap is what. Reads every slot.
    #[must_use]
    pub fn space(&self) -> holdfast_heap::Space {
        self.shared.heap.space(&self.shared.m)
    }

    /// Makes the pool read-only from now on: for a medium whose changes are not kept.
    pub fn stop_writing(&self) {
        self.shared.stop_writing();
    }

    /// Whether the pool can only be read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.is_read_only()
    }
}

/// A `run` within a `run`: a part of the outer one.
#[cold]
fn run_nested<M: Medium, R>(
    shared: &Shared<M>,
    lane: Held<'_, crate::lane::LaneState>,
    mut body: impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>,
) -> Result<R, Error> {
    let tx = Tx { shared, lane };
    Ok(tx.whole(|| body(&tx))?)
}

/// One execution of a transaction.
#[inline]
fn attempt<M: Medium, R>(
    shared: &Shared<M>,
    lane: &Held<'_, crate::lane::LaneState>,
    body: &mut impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>,
) -> holdfast_txn::Result<R> {
    let undo = Undo { shared, lane };
    let value = body(&Tx { shared, lane: lane.share() })?;
    undo.commit_instead()?;
    Ok(value)
}

/// Counts an abort when dropped: a `run` that comes through forgets it.
struct Abort<'a, 'l>(&'a Held<'l, crate::lane::LaneState>);

impl Drop for Abort<'_, '_> {
    fn drop(&mut self) {
        self.0.count_abort();
    }
}

/// What was done already about a transaction that has to be executed again.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    conflicts: u32,
    /// Places repaired.
    repairs: Vec<u64>,
}

impl Retry {
    /// Does what there is to do about a transaction that failed and was undone: waits a little, or
    /// repairs. It is to be executed again then.
    ///
    /// # Errors
    /// There is nothing to be done.
    #[cold]
    pub(crate) fn after<M: Medium>(
        &mut self,
        shared: &Shared<M>,
        error: TxError,
    ) -> Result<(), Error> {
        match error {
            TxError::Conflict if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                shared.counters.conflicts.fetch_add(1, Ordering::Relaxed);
                back_off(self.conflicts);
            }
            TxError::Damaged { at, len } if may_mend(&self.repairs, at) => {
                shared.refuse_cut_off()?;
                // One damage seldom comes alone: from the second on, objects are repaired whole,
                // instead of one granule for each time the closure runs.
                let (first, count) =
                    if self.repairs.is_empty() { (at, len) } else { shared.whole_object(at, len) };
                let finder = holdfast_redundancy::events::Finder::Read;
                let mended = shared.mend_found(first, count, finder);
                let again = self.repairs.contains(&at);
                self.repairs.push(at);
                let is_page = first.is_multiple_of(PAGE) && count == PAGE;
                match mended {
                    // Something beside it, on the page that could not be read or behind it, or
                    // parity. What was asked for may be back: it is read again.
                    Err(Error::Tx(TxError::Lost { object }))
                        if !again
                            && (is_page
                                || object.offset().wrapping_sub(first) >= count
                                || shared.is_parity(object.offset())) => {}
                    other => other?,
                }
            }
            TxError::Damaged { .. }
            | TxError::Lost { .. }
            | TxError::InDoubt { .. }
            | TxError::ReadOnly => {
                shared.refuse_cut_off()?;
                return Err(error.into());
            }
            other => return Err(other.into()),
        }
        Ok(())
    }
}

/// Whether a run that had these places repaired may have `at` repaired: as long as it gets on.
fn may_mend(repairs: &[u64], at: u64) -> bool {
    repairs.len() < REPAIRS_MAX && repairs.iter().filter(|r| **r == at).count() < AGAIN_MAX
}

/// What a commit left to be done once it holds nothing: log chunks to free, copies to mend. That it
/// cannot be done now is no answer to who made the commit, which is durable: the chunks are tried
/// again later, what is damaged is found again, and a pool that had to stop writing says so next.
#[inline]
pub(crate) fn after_commit<M: Medium>(shared: &Shared<M>) {
    if shared.has_retiring() {
        let _ = shared.retire_log_chunks();
    }
    if shared.suspects.any() {
        shared.mend_suspects();
    }
}

fn tidy_lane(lane: &Held<'_, crate::lane::LaneState>) {
    lane.work.borrow_mut().clear();
    lane.arena.borrow_mut().reset();
}

/// Aborts when dropped: also when the closure panics.
pub(crate) struct Undo<'a, 'l, M: Medium> {
    pub(crate) shared: &'a Shared<M>,
    pub(crate) lane: &'a Held<'l, crate::lane::LaneState>,
}

impl<M: Medium> Undo<'_, '_, M> {
    /// Commits what the lane holds; aborts if that cannot be.
    #[inline]
    pub(crate) fn commit_instead(self) -> holdfast_txn::Result<()> {
        let Self { shared, lane } = self;
        if let Some(error) = lane.work.borrow_mut().doomed.take() {
            // A part of it failed half way: there is no whole to commit.
            return Err(error);
        }
        // Without changes there is nothing to do: reads were consistent all along, see `Tx::see`.
        if !lane.work.borrow().pieces.is_empty() {
            shared.commit(lane)?;
            lane.count_commit();
        }
        core::mem::forget(self);
        tidy_lane(lane);
        Ok(())
    }
}

impl<M: Medium> Drop for Undo<'_, '_, M> {
    fn drop(&mut self) {
        self.shared.forget(&mut self.lane.work.borrow_mut());
        tidy_lane(self.lane);
    }
}

fn back_off(conflicts: u32) {
    if conflicts < 4 {
        for _ in 0..holdfast_sync::patience(1 << (4 + conflicts)) {
            holdfast_sync::hint::spin_loop();
        }
    } else {
        holdfast_sync::thread::yield_now();
    }
}

impl<M: Medium> Store for Pool<M> {
    type Tx<'s> = Tx<'s, M>;
    type Error = Error;

    fn run<R>(
        &self,
        _: Isolation,
        body: impl FnMut(&Tx<'_, M>) -> holdfast_txn::Result<R>,
    ) -> Result<R, Error> {
        // Serializable in an order that agrees with real time is what every run is.
        Pool::run(self, body)
    }
}

/// A borrowed object. Holds off commits that would change it.
#[derive(Debug)]
pub struct View<'p, T: Persist, M: Medium> {
    shared: &'p Shared<M>,
    word: u32,
    at: u64,
    of: core::marker::PhantomData<&'p T>,
}

impl<T: Persist, M: Medium> core::ops::Deref for View<'_, T, M> {
    type Target = T;
    fn deref(&self) -> &T {
        crate::view::in_place(&self.shared.m, self.at)
    }
}

impl<T: Persist, M: Medium> Drop for View<'_, T, M> {
    fn drop(&mut self) {
        self.shared.versions.unpin(self.word);
    }
}

impl<M: Medium> Drop for Shared<M> {
    fn drop(&mut self) {
        // A pool that cannot be closed clean is recovered at its next open: nothing is lost.
        let _ = self.close();
    }
}

impl<M: Medium> Shared<M> {
    /// Marks the pool clean: everything committed is complete, old records are dead.
    fn close(&self) -> Result<(), Error> {
        if self.is_read_only() || self.m.inherited() || !self.closable.load(Ordering::Acquire) {
            return Ok(());
        }
        self.refuse_cut_off()?;
        if self.m.kind() == MediumKind::File {
            self.m.sync(CLOSED)?;
        }
        // Nobody commits any more: nothing is skipped.
        self.settle_others(usize::MAX);
        let mut superblock = self.superblock();
        if read_superblock(&self.m).is_ok_and(|found| found.damaged().is_some()) {
            // The event has to be durable before the pool is clean.
            self.store_superblock(&mut superblock)?;
        }
        superblock.log_generation += 1;
        superblock.clean = true;
        self.store_superblock(&mut superblock)
    }
}

/// Whether bytes are plain enough to be shown in place; a compile-time reminder that `View`
/// relies on it.
const _: fn() = || {
    fn plain<T: bytemuck::Pod>() {}
    plain::<Anchor>();
};
