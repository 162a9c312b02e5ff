//! Group commit, for a log whose copies are adjacent: one write, one sync, many commits.
//!
//! ```text
//!  committers            batch being filled        the leader writes one batch
//!  record 7 --> +-----------------------------+    pages: | 4 5 6 . | 4 5 6 . |
//!  record 8 --> | 7 | 8 | ...                 |            records     replicas
//!               +-----------------------------+    in one append; then it wakes everybody
//! ```
//!
//! A committer puts its record into the open batch. If fewer than [`ABREAST`] batches are being
//! written it becomes a leader: it closes the batch, seals its records for the place they get, and
//! appends them with their replicas. Who comes meanwhile fills the next batch. A failed append or
//! sync stops the log for good: what it covered may or may not be on the medium, and no later
//! success would tell.
//!
//! Batches being written at the same time may reach the medium in any order. That is as with lanes
//! that have rings of their own: what a commit has read was durable before its number was drawn,
//! so of two records under way neither is about what the other one changes.

use core::time::Duration;
use holdfast_sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::sync::Arc;

use holdfast_sync::atomic::{AtomicU64, Ordering};

use holdfast_codes::{crc32c, crc32c_combine};
use holdfast_layout::Superblock;
use holdfast_layout::bytes::{get_u16, put_u32, put_u64};
use holdfast_pmem::{Medium, Site, SyncError};

use crate::error::LogError;
use crate::format::{
    LINE_LEN, NO_LANE, PAGE_LEN, RECORD_COVERED_AT, RECORD_CRC_AT, RECORD_LINES_AT,
    RECORD_LINES_MAX, RECORD_WATERMARK_AT,
};
use crate::numbers::Numbers;
use crate::pages::Pages;
use crate::record::{RecordBuilder, mark};
use crate::seed::Seed;

/// Batches written at the same time. A disk has most of two syncs done in the time of one and a
/// half; of more, each takes as much longer, and larger batches are worth more.
const ABREAST: usize = 2;

/// Pages left when a reclaim is due, of a log of few pages.
const SLACK: u64 = 12;

/// A batch is closed and sealed, and about to be written. Its leader holds nothing.
const WRITING: Site = Site::new("logs.group.writing");
/// The commit point of everything in the batch.
const F1: Site = Site::new("logs.group.F1");
/// Sums of records, and of watermark records.
const SUM: Site = Site::new("logs.group.sum");
const MARK_SUM: Site = Site::new("logs.group.mark-sum");
/// Overwrite a batch only if a durable watermark covers it.
const REUSE: Site = Site::new("logs.group.reuse");
/// The heap reaches the medium before the log stops protecting it.
const SYNCED: Site = Site::new("logs.group.synced");
/// The watermark is durable before what it covers is overwritten.
const MARKED: Site = Site::new("logs.group.marked");
/// Write the watermark records in turn, not over the one that is in force.
const TURN: Site = Site::new("logs.group.turn");
/// The rewrite of a bad page of the log.
const HEAL: Site = Site::new("logs.group.heal");

/// The open batch, the ring, and who is at work.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Records of the open batch, framed but not sealed.
    open: Vec<u8>,
    /// Largest number in the open batch.
    newest: u64,
    /// Promises made for the open batch.
    promised: u64,
    /// Number of the open batch; all with a smaller one are durable but for those in `unwritten`.
    ticket: u64,
    /// Batches that are being written, or could not be.
    unwritten: Vec<u64>,
    /// Leaders at work.
    leaders: usize,
    /// Batches that are through, written or not.
    finished: u64,
    /// Whether one of them is waiting for company in the open batch.
    led: bool,
    /// Leaders' buffers that nobody uses.
    spare: Vec<Vec<u8>>,
    pages: Pages,
    /// Which watermark place is written next.
    turn: bool,
}

impl Inner {
    /// Whether a batch is durable.
    fn is_written(&self, ticket: u64) -> bool {
        ticket < self.ticket && !self.unwritten.contains(&ticket)
    }
}

/// The adjacent log.
#[derive(Debug)]
pub(crate) struct Group {
    seed: Seed,
    batch_len: usize,
    /// How long a leader waits for company before it closes its batch.
    linger: Duration,
    inner: Mutex<Inner>,
    /// Something happened that a committer may wait for.
    turn: Condvar,
    /// Held by who reclaims.
    reclaiming: Mutex<()>,
    /// The first failure, after which nothing is written any more.
    stopped: OnceLock<Arc<SyncError>>,
    /// Pages in use, readable without the lock.
    used: AtomicU64,
    due: u64,
}

impl Group {
    pub(crate) fn new(superblock: &Superblock, linger: Duration) -> Result<Self, LogError> {
        let pages = Pages::new(superblock)?;
        let batch_len = pages.batch_len();
        // Late: what a reclaim writes is the pages touched since the last one, and most are touched
        // many times. What is left is room for those who commit meanwhile.
        let due = pages.total() - (pages.total() / 8).max(SLACK.min(pages.total() / 2));
        Ok(Self {
            seed: Seed::new(superblock).lane(NO_LANE),
            batch_len,
            linger,
            inner: Mutex::new(Inner {
                open: Vec::new(),
                newest: 0,
                promised: 0,
                ticket: 1,
                unwritten: Vec::with_capacity(ABREAST),
                leaders: 0,
                finished: 0,
                led: false,
                spare: Vec::with_capacity(ABREAST),
                pages,
                turn: false,
            }),
            turn: Condvar::new(),
            reclaiming: Mutex::new(()),
            stopped: OnceLock::new(),
            used: AtomicU64::new(0),
            due,
        })
    }

    /// Most bytes of a record.
    pub(crate) fn capacity(&self) -> usize {
        self.batch_len.min(RECORD_LINES_MAX * LINE_LEN)
    }

    /// Step 3: promises room for a record of `len` bytes. While there is none, `wait` lets the
    /// caller reclaim, until it answers false. The caller has drawn no number.
    pub(crate) fn reserve(
        &self,
        len: usize,
        mut wait: impl FnMut() -> bool,
    ) -> Result<u64, LogError> {
        loop {
            self.running()?;
            if let Some(pages) = self.lock().pages.promise(len) {
                return Ok(pages);
            }
            if !wait() {
                return Err(LogError::GaveUp);
            }
        }
    }

    /// Gives back what was promised and not used.
    pub(crate) fn cancel(&self, pages: u64) {
        self.lock().pages.settle(pages);
    }

    /// Steps 5 and F1: returns once the record is durable, written by this thread or another.
    /// `last` is the number of the lane's record before; `promised` is what
    /// [`reserve`](Self::reserve) answered for a record at least as long.
    pub(crate) fn commit<M: Medium>(
        &self,
        m: &M,
        numbers: &Numbers,
        number: u64,
        record: &mut RecordBuilder,
        last: u64,
        promised: u64,
    ) -> Result<(), LogError> {
        let bytes = record.frame(number, last, 0);
        let mut inner = self.lock();
        while inner.open.len() + bytes.len() > self.batch_len {
            self.running()?;
            inner = self.sleep(inner);
        }
        inner.open.extend_from_slice(bytes);
        inner.newest = inner.newest.max(number);
        inner.promised += promised;
        let ticket = inner.ticket;
        loop {
            if inner.is_written(ticket) {
                return Ok(());
            }
            self.running()?;
            let left = ticket < inner.ticket || inner.led || inner.leaders >= ABREAST;
            inner = if left { self.sleep(inner) } else { self.lead(m, numbers, inner) };
        }
    }

    /// Whether so much of the log is in use that a reclaim is due, and nobody is at it: while one
    /// thread waits for the disk, others fill what is left.
    pub(crate) fn reclaim_due(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.due
            && !matches!(self.reclaiming.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Makes room: everything applied to memory so far is synced, a watermark says so, and the
    /// batches it covers are free. Answers the watermark.
    pub(crate) fn reclaim<M: Medium>(&self, m: &M, numbers: &Numbers) -> Result<u64, LogError> {
        let _only = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        self.reclaim_alone(m, numbers)
    }

    fn reclaim_alone<M: Medium>(&self, m: &M, numbers: &Numbers) -> Result<u64, LogError> {
        self.running()?;
        // Everything up to here is in memory, so a sync that starts now covers it.
        let applied = numbers.watermark(m);
        if applied > numbers.durable() {
            m.sync(SYNCED).map_err(|e| self.stop(e))?;
            self.write_mark(m, applied)?;
            numbers.raise_durable(m, applied);
            numbers.count_reclaim();
        }
        let mut inner = self.lock();
        inner.pages.free(if m.enabled(REUSE) { numbers.durable() } else { u64::MAX });
        self.used.store(inner.pages.used(), Ordering::Relaxed);
        Ok(numbers.durable())
    }

    /// Rewrites a page of the log that turned bad, with zeros. Records on it have their other
    /// copy; after the reclaim done here, only those of commits not yet applied still hang on it.
    pub(crate) fn heal<M: Medium>(
        &self,
        m: &M,
        numbers: &Numbers,
        at: u64,
    ) -> Result<(), LogError> {
        self.running()?;
        let (_only, inner) = self.hold_still();
        let page = at / PAGE_LEN * PAGE_LEN;
        m.heal(HEAL, page, &vec![0; PAGE_LEN as usize]).map_err(LogError::Media)?;
        drop(inner);
        self.reclaim_alone(m, numbers)?;
        // The page may have held the newest watermark record.
        self.write_mark(m, numbers.durable())
    }

    /// Nobody writes to the log while the locks answered are held.
    pub(crate) fn hold_still(&self) -> (MutexGuard<'_, ()>, MutexGuard<'_, Inner>) {
        let only = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.lock();
        while inner.leaders > 0 {
            inner = self.sleep(inner);
        }
        (only, inner)
    }

    /// Sleeps until a batch that is being written is through; not at all if there is none.
    pub(crate) fn await_batch(&self) {
        let mut inner = self.lock();
        let finished = inner.finished;
        while inner.leaders > 0 && inner.finished == finished {
            inner = self.sleep(inner);
        }
    }

    /// Whether the byte at `at` belongs to this log.
    pub(crate) fn contains(&self, at: u64) -> bool {
        self.lock().pages.contains(at)
    }

    /// Closes the open batch, writes it, and wakes everybody.
    fn lead<'a, M: Medium>(
        &'a self,
        m: &M,
        numbers: &Numbers,
        mut inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        inner.leaders += 1;
        inner.led = true;
        if !self.linger.is_zero() {
            let waited = self.turn.wait_timeout(inner, self.linger);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let spare = inner.spare.pop().unwrap_or_default();
        let mut batch = core::mem::replace(&mut inner.open, spare);
        let (ticket, newest) = (inner.ticket, inner.newest);
        let count = inner.pages.pages_of(batch.len());
        let promised = core::mem::take(&mut inner.promised);
        inner.pages.settle(promised);
        let at = inner.pages.take(count, newest);
        let copies = inner.pages.copies();
        inner.newest = 0;
        inner.led = false;
        inner.ticket += 1;
        inner.unwritten.push(ticket);
        self.used.store(inner.pages.used(), Ordering::Relaxed);
        drop(inner);
        let written = at.map(|at| {
            self.seal(&mut batch, at, copies, numbers.durable(), m.enabled(SUM));
            m.step(WRITING);
            m.append(F1, at, &batch)
        });
        inner = self.lock();
        match written {
            Some(Ok(())) => inner.unwritten.retain(|one| *one != ticket),
            Some(Err(e)) => drop(self.stop(e)),
            None => drop(self.stop(unpromised())),
        }
        batch.clear();
        inner.spare.push(batch);
        inner.leaders -= 1;
        inner.finished += 1;
        self.turn.notify_all();
        inner
    }

    /// Pads the batch to whole pages, appends its replicas, and seals each copy of each record
    /// for its own place.
    fn seal(&self, batch: &mut Vec<u8>, at: u64, copies: u64, watermark: u64, summed: bool) {
        let records = batch.len();
        let half = records.next_multiple_of(PAGE_LEN as usize);
        batch.resize(half, 0);
        let mut next = 0;
        while next < records {
            let len = usize::from(get_u16(batch, next + RECORD_LINES_AT)) * LINE_LEN;
            let record = &mut batch[next..next + len];
            put_u64(record, RECORD_WATERMARK_AT, watermark);
            next += len;
        }
        if copies > 1 {
            batch.extend_from_within(..half);
        }
        next = 0;
        while next < records {
            let len = usize::from(get_u16(batch, next + RECORD_LINES_AT)) * LINE_LEN;
            let covered = len - RECORD_COVERED_AT;
            let sum = crc32c(0, &batch[next + RECORD_COVERED_AT..next + len]);
            for copy in 0..copies as usize {
                let place = copy * half + next;
                let seed = self.seed.place(at + place as u64);
                let crc = if summed { crc32c_combine(seed, sum, covered) } else { 0 };
                put_u32(batch, place + RECORD_CRC_AT, crc);
            }
            next += len;
        }
    }

    /// Writes a watermark record and its replica, in turn at one of two places: until the new one
    /// is durable, the old one is what allows earlier overwriting.
    fn write_mark<M: Medium>(&self, m: &M, watermark: u64) -> Result<(), LogError> {
        if watermark == 0 {
            return Ok(());
        }
        let (at, copies) = {
            let mut inner = self.lock();
            let at = inner.pages.mark(inner.turn);
            inner.turn = !inner.turn && m.enabled(TURN);
            (at, inner.pages.copies())
        };
        let mut pages = vec![0; (copies * PAGE_LEN) as usize];
        for page in 0..copies {
            let place = page * PAGE_LEN;
            let line = mark(self.seed.place(at + place), watermark, m.enabled(MARK_SUM));
            pages[place as usize..][..LINE_LEN].copy_from_slice(&line);
        }
        m.append(MARKED, at, &pages).map_err(|e| self.stop(e))
    }

    /// Stops the log for good; later failures do not matter.
    fn stop(&self, error: SyncError) -> LogError {
        let first = self.stopped.get_or_init(|| Arc::new(error));
        LogError::Stopped(Arc::clone(first))
    }

    fn running(&self) -> Result<(), LogError> {
        self.stopped.get().map_or(Ok(()), |e| Err(LogError::Stopped(Arc::clone(e))))
    }

    /// Nothing panics while it holds the lock, so what it guards is whole.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.turn.wait(inner).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch for which no room was promised: a fault of this program, answered by writing nothing.
fn unpromised() -> SyncError {
    SyncError { call: "reserve", source: std::io::ErrorKind::StorageFull.into() }
}
