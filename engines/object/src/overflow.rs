//! Records too long for the log: their entries go to heap chunks of kind `Log` (O7).
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | a take | a system commit makes chunks `Log`; their bytes leave parity | log chunks |
//! | b store | the entries, in two copies far apart, without parity | same |
//! | **FO** | drain: the record must not vouch for what is not there | same |
//! | c commit | a record that names copies, length, sum: then as `commit.rs` | all of it |
//! | d retire | once a durable watermark covers it: zero, **drain**, free | same |
//!
//! Why d waits: until then recovery would replay the record, and must find its entries. Log
//! chunks found by recovery go through d after the log generation was raised.

use holdfast_heap::{ChunkEntry, ChunkKind, ZoneTable};
use holdfast_logs::{Lane, RecordBuilder};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_sync::PoisonError;
use holdfast_sync::atomic::Ordering;
use holdfast_txn::{Result, TxError};

use crate::batch::Batch;
use crate::repair::Mended;
use crate::shared::Shared;
use crate::tx::damaged;

const STEP_TAKEN: Site = Site::new("object.overflow.step-taken");
const STEP_STORED: Site = Site::new("object.overflow.step-stored");
/// The entries, copy A.
const COPY_A: Site = Site::new("object.overflow.copy-a");
/// The entries, copy B.
const COPY_B: Site = Site::new("object.overflow.copy-b");
/// FO.
const FO: Site = Site::new("object.overflow.FO");
/// The sum of what overflowed, in its record.
const SUM: Site = Site::new("object.overflow.sum");
/// Waiting until no older record can be replayed over the chunks.
const REUSE: Site = Site::new("object.overflow.reuse");
/// Making the entries durable before the record on a file.
const SYNC: Site = Site::new("object.overflow.sync");
/// Zeroing chunks before they count in parity again.
const ZERO: Site = Site::new("object.overflow.zero");
/// Making a page of theirs usable.
const HEAL_ZERO: Site = Site::new("object.overflow.heal-zero");
/// The drain between that and their becoming free.
const ZEROED: Site = Site::new("object.overflow.zeroed");
/// The same on a file.
const ZEROED_SYNC: Site = Site::new("object.overflow.zeroed-sync");
/// Waiting for the watermark before chunks are zeroed.
const RETIRE: Site = Site::new("object.overflow.retire");

/// Neighbouring log chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogChunks {
    pub(crate) zone: u8,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// While they are filled: the last commit that may have freed them. Afterwards: the commit
    /// whose entries are in them.
    pub(crate) number: u64,
}

impl<M: Medium> Shared<M> {
    /// Steps a to c up to F1. Returns the number.
    pub(crate) fn write_overflow(&self, log: &mut Lane<'_>, batch: &mut Batch) -> Result<u64> {
        let body = batch.builder.body();
        let (a, b) = self.take_log_chunks(body.len() as u64)?;
        self.m.step(STEP_TAKEN);
        let written = self.write_overflow_into(log, body, &a, &b);
        let number = *written.as_ref().unwrap_or(&0);
        let mut retiring = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        retiring.extend([LogChunks { number, ..a }, LogChunks { number, ..b }]);
        self.retiring_count.store(retiring.len(), Ordering::Relaxed);
        written
    }

    fn write_overflow_into(
        &self,
        log: &mut Lane<'_>,
        body: &[u8],
        a: &LogChunks,
        b: &LogChunks,
    ) -> Result<u64> {
        let (a_at, b_at) = (self.chunks_at(a), self.chunks_at(b));
        if self.m.enabled(REUSE) {
            self.cover(log, a.number.max(b.number))?;
        }
        self.m.put(COPY_A, a_at, body).map_err(damaged)?;
        self.m.put(COPY_B, b_at, body).map_err(damaged)?;
        if self.is_file() {
            self.m.sync(SYNC).map_err(|e| self.stop(e))?;
        } else {
            self.m.drain(FO);
        }
        self.m.step(STEP_STORED);
        let mut record = RecordBuilder::default();
        record.overflow(a_at, b_at, body.len() as u64, 0);
        self.reserve_log(log, &record)?;
        let number = self.numbers.draw(&self.m, log.id());
        let sum = if self.m.enabled(SUM) { self.log.seed().overflow(number, body) } else { 0 };
        record.clear();
        record.overflow(a_at, b_at, body.len() as u64, sum);
        let written = self.append(log, number, &mut record, core::iter::empty());
        if written.is_err() {
            self.numbers.done(log.id());
        }
        written.map(|()| number)
    }

    fn chunks_at(&self, chunks: &LogChunks) -> u64 {
        self.heap.zone(chunks.zone).map_or(0, |z| z.chunk_at(chunks.first))
    }

    /// Step a: two runs of free chunks for `len` bytes each, in different frames.
    fn take_log_chunks(&self, len: u64) -> Result<(LogChunks, LogChunks)> {
        let no_space = TxError::NoSpace { wanted: 2 * len };
        let a = self.claim_apart(len, None).ok_or(no_space.clone())?;
        let Some(b) = self.claim_apart(len, Some(&a)) else {
            self.unclaim(&a);
            return Err(no_space);
        };
        self.await_owed();
        let taken = self.system_commit(|batch| {
            for chunks in [&a, &b] {
                for chunk in chunks.first..chunks.first + chunks.count {
                    self.exempt_chunk(batch, chunks.zone, chunk)?;
                }
            }
            Ok(())
        });
        match taken {
            Ok(_) => Ok((a, b)),
            Err(error) => {
                self.unclaim(&a);
                self.unclaim(&b);
                Err(error)
            }
        }
    }

    /// Claims chunks for `len` bytes, no frame of which holds any of `other`: what one bad frame
    /// takes must not take both copies.
    fn claim_apart(&self, len: u64, other: Option<&LogChunks>) -> Option<LogChunks> {
        let frame = self.superblock().frame;
        let frames = |chunks: &LogChunks| {
            let zone = self.heap.zone(chunks.zone)?;
            let start = zone.chunk_at(chunks.first);
            let end = start + u64::from(chunks.count) * zone.chunk_len();
            Some((start / frame, end.div_ceil(frame)))
        };
        let taken = other.and_then(frames);
        // What memory stands in for is durable as parity only, and log chunks have none.
        let lasts = |chunks: &LogChunks| {
            let len = self.heap.zone(chunks.zone).map_or(0, ZoneTable::chunk_len);
            !self.stands_in(self.chunks_at(chunks), u64::from(chunks.count) * len)
        };
        let apart = |chunks: &LogChunks| match (frames(chunks), taken) {
            (Some((first, end)), Some((from, to))) => end <= from || to <= first,
            _ => true,
        };
        let stand_ins = self.count_stand_ins() as u64;
        let number = self.last_freed();
        let mut passed_over = Vec::new();
        let found = self.heap.zones().find_map(|zone| {
            let count = u32::try_from(len.div_ceil(zone.chunk_len()).max(1)).ok()?;
            // A claim that shares a frame is kept while the next one is made, so that it is
            // another; there are fewer of them than chunks in a frame.
            for _ in 0..=frame.div_ceil(zone.chunk_len()) + 1 + stand_ins {
                let first = zone.claim(count)?;
                let chunks = LogChunks { zone: zone.index(), first, count, number };
                if apart(&chunks) && lasts(&chunks) {
                    return Some(chunks);
                }
                passed_over.push(chunks);
            }
            None
        });
        passed_over.iter().for_each(|chunks| self.unclaim(chunks));
        found
    }

    fn unclaim(&self, chunks: &LogChunks) {
        if let Some(zone) = self.heap.zone(chunks.zone) {
            let all = chunks.first..chunks.first + chunks.count;
            all.for_each(|c| zone.unreserve(c, ChunkKind::Free));
        }
    }

    fn exempt_chunk(&self, batch: &mut Batch, zone: u8, chunk: u32) -> Result<()> {
        let table = self.table(zone)?;
        let before = table.reserved(chunk, ChunkKind::Free).unwrap_or(ChunkEntry::VIRGIN);
        let next = before.next(ChunkKind::Log, 0, 0);
        batch.exempt(table.chunk_at(chunk), table.chunk_len());
        batch.publish.push((zone, chunk, next));
        self.change_entry(batch, zone, chunk, &before, &next)
    }

    /// Whether log chunks wait to be freed.
    pub(crate) fn has_retiring(&self) -> bool {
        self.retiring_count.load(Ordering::Relaxed) > 0
    }

    /// Step d for all chunks whose commit a durable watermark covers. Whether any are left.
    pub(crate) fn retire_log_chunks(&self) -> Result<bool> {
        let retiring = || self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        if retiring().is_empty() {
            return Ok(false);
        }
        // This waits for a lane, whose holder may wait for one that adds to the list.
        self.spread_watermark()?;
        let due: Vec<LogChunks> = {
            let mut retiring = retiring();
            let durable = self.numbers.durable();
            let all = core::mem::take(&mut *retiring);
            let (due, later) =
                all.into_iter().partition(|c| c.number <= durable || !self.m.enabled(RETIRE));
            *retiring = later;
            due
        };
        let mut done = Ok(());
        let mut left = due.as_slice();
        while let [chunks, rest @ ..] = left {
            done = self.free_log_chunks(chunks);
            if done.is_err() {
                break;
            }
            left = rest;
        }
        let mut retiring = retiring();
        retiring.extend(left);
        self.retiring_count.store(retiring.len(), Ordering::Relaxed);
        done.map(|()| !retiring.is_empty())
    }

    /// Makes the newest watermark durable.
    pub(crate) fn spread_watermark(&self) -> Result<()> {
        if self.is_file() {
            return self.reclaim();
        }
        self.settle_others(crate::shared::SYSTEM_LANE as usize);
        let mut log = self.hold_log(crate::shared::SYSTEM_LANE);
        log.mark(&self.m, &self.numbers).map_err(|_| TxError::Conflict)
    }

    /// Zeroes log chunks. What is in them is not needed any more, so a page that cannot be written
    /// is only made usable.
    fn zero_chunks(&self, at: u64, len: u64) -> Result<()> {
        let mut pages = 0;
        loop {
            match self.m.zero(ZERO, at, len) {
                Ok(()) => return Ok(()),
                Err(error) if pages > len / PAGE => return Err(damaged(error)),
                Err(error) => {
                    pages += 1;
                    let page = error.at / PAGE * PAGE;
                    let event = self.event(Cause::MediaError, Finder::Commit, page, PAGE);
                    let mended = match self.m.heal(HEAL_ZERO, page, &[0; PAGE as usize]) {
                        Ok(()) => Mended::Repaired(Wrong::Log),
                        Err(_) => {
                            let zeros = ([0; PAGE as usize].as_slice(), true);
                            let repairer = &mut self.repairer_now();
                            self.move_or_stand_in(
                                repairer,
                                page,
                                zeros,
                                (Wrong::Log, Finder::Commit),
                            )
                            .map_err(|_| damaged(error))?
                        }
                    };
                    self.report_mended(event, mended);
                    if let Mended::Lost(_) = mended {
                        return Err(damaged(error));
                    }
                }
            }
        }
    }

    fn free_log_chunks(&self, chunks: &LogChunks) -> Result<()> {
        let table = self.table(chunks.zone)?;
        let at = self.chunks_at(chunks);
        let len = u64::from(chunks.count) * table.chunk_len();
        self.zero_chunks(at, len)?;
        if self.is_file() {
            self.m.sync(ZEROED_SYNC).map_err(|e| self.stop(e))?;
        } else {
            self.m.drain(ZEROED);
        }
        let number = self.system_commit(|batch| {
            for chunk in chunks.first..chunks.first + chunks.count {
                let before = table.entry(chunk).unwrap_or(ChunkEntry::VIRGIN);
                let next = before.next(ChunkKind::Free, 0, 0);
                batch.publish.push((chunks.zone, chunk, next));
                self.change_entry(batch, chunks.zone, chunk, &before, &next)?;
            }
            Ok(())
        })?;
        self.note_freed(number);
        Ok(())
    }
}
