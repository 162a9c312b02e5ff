//! Fresh objects too long to travel in a record: written in place, under an intent.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | a intent | a record that names the ranges, at a number of its own | nothing, or the intent |
//! | **F0** | drain | the intent: recovery recomputes parity of the ranges |
//! | b store | bytes and sums into free space, with their parity, under column locks | free bytes |
//! | then | steps 6 to 11 of `commit.rs`, whose F1 makes b durable with the record | the object |
//!
//! Two rules. The lane keeps holding the intent's number while the second one is drawn: were the
//! watermark to pass the intent before F1, a crash would leave parity of the ranges torn and
//! nobody would recompute it. And the intent's watermark must reach the last commit that freed
//! any of the space: replaying an older record would otherwise write over the new bytes. On
//! `File` media b is synced before the second record.

use holdfast_codes::xor_delta;
use holdfast_heap::format::{GRANULE, SUM_LEN};
use holdfast_heap::sums::granules;
use holdfast_logs::{Lane, RecordBuilder};
use holdfast_pmem::{Medium, Site};
use holdfast_txn::{Result, TxError};

use crate::batch::Batch;
use crate::lane::{Fate, Piece, Work};
use crate::shared::Shared;
use crate::tx::damaged;
use crate::view::Arena;

const STEP_INTENT: Site = Site::new("object.in_place.step-intent");
const STEP_STORED: Site = Site::new("object.in_place.step-stored");
/// Writing the intent record.
const INTENT: Site = Site::new("object.in_place.intent");
/// Waiting until the watermark covers the commits that freed the space.
const REUSE: Site = Site::new("object.in_place.reuse");
/// Bytes of the object.
const DATA: Site = Site::new("object.in_place.data");
/// The drain before columns are released.
const STEP_SETTLED: Site = Site::new("object.in_place.settled");
/// Making b durable on a file.
const SYNC: Site = Site::new("object.in_place.sync");

/// Bytes stored under one set of column locks: keeps other commits' waits short.
const STEP: usize = 16 * 1024;

impl<M: Medium> Shared<M> {
    /// Whether a fresh object is written in place.
    pub(crate) fn is_in_place(&self, piece: &Piece) -> bool {
        u64::from(piece.after.len) > self.inline_max
    }

    /// Steps a, F0, b, and the second record with its F1. Returns the number of the commit.
    pub(crate) fn write_in_place(
        &self,
        log: &mut Lane<'_>,
        work: &Work,
        arena: &Arena,
        batch: &mut Batch,
    ) -> Result<u64> {
        let pieces =
            || work.pieces.iter().filter(|p| p.fate == Fate::Fresh && self.is_in_place(p));
        self.wait_freed(work.freed_before)?;
        let mut record = RecordBuilder::default();
        for piece in pieces() {
            record.fresh(piece.spot.object, piece.after.len.into());
            let sums = (granules(piece.after.len.into()) - 1) * SUM_LEN;
            if sums > 0 {
                record.fresh(piece.spot.sums, sums);
            }
        }
        self.reserve_log(log, &record)?;
        let intent = self.numbers.draw(&self.m, log.id());
        if self.m.enabled(INTENT)
            && let Err(error) = self.append(log, intent, &mut record)
        {
            self.numbers.done(log.id());
            return Err(error);
        }
        self.m.step(STEP_INTENT);
        let stored = pieces().try_for_each(|p| self.store_piece(p, arena, batch));
        let stored = stored.and_then(|()| {
            if self.is_file() { self.m.sync(SYNC).map_err(|e| self.stop(e)) } else { Ok(()) }
        });
        let written = stored.and_then(|()| {
            self.m.step(STEP_STORED);
            if !self.log.fits(&batch.builder) {
                return Err(TxError::TooLarge {
                    wanted: batch.builder.len() as u64,
                    limit: self.log.max_record_len() as u64,
                });
            }
            self.reserve_log(log, &batch.builder)?;
            let number = self.numbers.draw_again(&self.m);
            self.append(log, number, &mut batch.builder).map(|()| number)
        });
        if written.is_err() {
            // What was stored is free bytes with right parity, but it may still be on its way:
            // the intent stays in force until it has arrived.
            self.abandon(log);
        }
        written
    }

    fn store_piece(&self, piece: &Piece, arena: &Arena, batch: &mut Batch) -> Result<()> {
        let object = pointer_error(piece);
        let new = arena.new_bytes(piece.copies).ok_or(object)?;
        self.store_range(piece.spot.object, new, batch)?;
        let count = granules(piece.after.len.into());
        let mut sums = Vec::with_capacity(((count - 1) * SUM_LEN) as usize);
        for granule in 1..count {
            sums.extend_from_slice(&self.fresh_sum(piece, new, granule).to_le_bytes());
        }
        self.store_range(piece.spot.sums, &sums, batch)
    }

    /// Stores `new` at `at` with its parity, a step at a time.
    fn store_range(&self, at: u64, new: &[u8], batch: &mut Batch) -> Result<()> {
        let mut old = vec![0; new.len().min(STEP)];
        let mut delta = vec![0; old.len()];
        for (i, part) in new.chunks(STEP).enumerate() {
            let at = at + (i * STEP) as u64;
            let (old, delta) = (&mut old[..part.len()], &mut delta[..part.len()]);
            let Some(zone) = self.zone_of(at) else { continue };
            batch.columns.clear();
            self.columns.ids_of(zone, at, part.len() as u64, &mut batch.columns);
            batch.columns.sort_unstable();
            batch.columns.dedup();
            self.columns.lock_all(&self.m, &batch.columns);
            let stored = self.m.read(at, old).and_then(|()| {
                xor_delta(delta, old, part);
                self.m.put(DATA, at, part)?;
                self.patch_parity(at, delta, &mut batch.scratch)
            });
            // Before the columns are released, for stores that go around the cache are not ordered
            // before that otherwise: one drain for each 16 KiB.
            if !self.is_file() {
                self.m.drain(STEP_SETTLED);
            }
            self.columns.unlock_all(&batch.columns);
            stored.map_err(damaged)?;
        }
        Ok(())
    }

    /// Waits until a new record's watermark covers every commit up to `number`.
    fn wait_freed(&self, number: u64) -> Result<()> {
        if !self.m.enabled(REUSE) {
            return Ok(());
        }
        let mut rounds = 0_u32;
        while self.complete_up_to() < number {
            if self.is_file() {
                self.reclaim()?;
            }
            rounds += 1;
            if rounds > 1_000_000 {
                return Err(TxError::Conflict);
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn pointer_error(piece: &Piece) -> TxError {
    let object = holdfast_layout::RawPtr::new(piece.spot.object, piece.after.generation);
    debug_assert!(u64::from(piece.after.len) > 0 && GRANULE > 0);
    TxError::AlreadyOpen { object }
}
