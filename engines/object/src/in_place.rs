//! Fresh objects too long to travel in a record: written in place, under an intent.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | a intent | a record that names the ranges, at a number of its own | nothing, or the intent |
//! | **F0** | drain | the intent: recovery recomputes parity of the ranges |
//! | b store | bytes and sums into free space, with their parity, under column locks | free bytes |
//! | **FC** | drain, at each release of columns: one for each 16 KiB | free bytes, right parity |
//! | c done | the intent's number is no longer held | the same |
//! | then | an ordinary commit: steps 6 to 11 of `commit.rs` | the object |
//!
//! Why FC comes before the commit's record is written, and does not share its F1: the record could
//! reach the medium before the bytes, and would then vouch for what is not there. Why a durable
//! watermark must cover the last commit that freed any of the space before b: recovery could
//! otherwise replay an older record over the new bytes. On `File` media b is synced before c.
//!
//! Until the commit has made the object known, its bytes are free ones to everybody else, and a
//! repair takes damage to free bytes into parity. So if parity was made anew meanwhile, they are
//! stored again once they are known, and a repair that finds no cure waits for that.

use holdfast_codes::xor_delta;
use holdfast_heap::format::SUM_LEN;
use holdfast_heap::sums::granules;
use holdfast_logs::{Lane, RecordBuilder};
use holdfast_pmem::{Medium, PAGE, Site};
use holdfast_redundancy::events::{Cause, Finder};
use holdfast_redundancy::parity::ParitySites;
use holdfast_txn::{Result, TxError};

use crate::batch::Batch;
use crate::lane::{Fate, Piece, Work};
use crate::patched::Patching;
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
/// Patching parity with them.
const PATCH: Patching = Patching {
    on: Site::new("object.in_place.patch"),
    parity: ParitySites {
        p: Site::new("object.in_place.parity-p"),
        q: Site::new("object.in_place.parity-q"),
    },
};
/// FC.
const FC: Site = Site::new("object.in_place.FC");
/// The object is known, and held by who made it.
const STEP_KNOWN: Site = Site::new("object.in_place.step-known");
/// Storing an object again once it is known.
const AGAIN: Site = Site::new("object.in_place.again");
/// Making that durable on a file.
const AGAIN_SYNC: Site = Site::new("object.in_place.again-sync");
/// Making b durable on a file.
const SYNC: Site = Site::new("object.in_place.sync");

/// Bytes stored under one set of column locks: keeps other commits' waits short.
const STEP: usize = 16 * 1024;

impl<M: Medium> Shared<M> {
    /// Whether a fresh object is written in place.
    pub(crate) fn is_in_place(&self, piece: &Piece) -> bool {
        u64::from(piece.after.len) > self.inline_max
    }

    /// Steps a to c.
    pub(crate) fn write_in_place(
        &self,
        log: &mut Lane<'_>,
        work: &Work,
        arena: &Arena,
        batch: &mut Batch,
    ) -> Result<()> {
        let pieces = || work.pieces.iter().filter(|p| p.fate == Fate::Fresh && self.is_in_place(p));
        if self.m.enabled(REUSE) {
            self.cover(log, work.freed_before)?;
        }
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
            && let Err(error) = self.append(log, intent, &mut record, core::iter::empty())
        {
            self.numbers.done(log.id());
            return Err(error);
        }
        self.m.step(STEP_INTENT);
        let stored = pieces().try_for_each(|p| self.store_piece(p, arena, batch, false));
        let stored = stored.and_then(|()| {
            if self.is_file() { self.m.sync(SYNC).map_err(|e| self.stop(e)) } else { Ok(()) }
        });
        self.m.step(STEP_STORED);
        // Also after an error: what was stored is free bytes with right parity by now.
        self.numbers.done(log.id());
        stored
    }

    fn store_piece(
        &self,
        piece: &Piece,
        arena: &Arena,
        batch: &mut Batch,
        again: bool,
    ) -> Result<()> {
        let object = pointer_error(piece);
        let new = arena.new_bytes(piece.copies).ok_or(object)?;
        let stored = self.store_range(piece.spot.object, new, batch, again);
        let count = granules(piece.after.len.into());
        let mut sums = Vec::with_capacity(((count - 1) * SUM_LEN) as usize);
        for granule in 1..count {
            sums.extend_from_slice(&self.fresh_sum(piece, new, granule).to_le_bytes());
        }
        stored.and(self.store_range(piece.spot.sums, &sums, batch, again))
    }

    /// After the commit, before any transaction can read them: stores objects written in place
    /// again if parity was made anew since `remade` was asked. Where nothing was hit, nothing is
    /// stored.
    pub(crate) fn store_again(&self, work: &Work, arena: &Arena, remade: u64) {
        self.m.step(STEP_KNOWN);
        let remade = self.remade.times() != remade && !self.is_read_only();
        if !remade || !self.m.enabled(AGAIN) {
            return;
        }
        for piece in work.pieces.iter().filter(|p| p.fate == Fate::Fresh && self.is_in_place(p)) {
            // The object is committed: what cannot be stored is damage like any other, and found.
            let _ = self.store_piece(piece, arena, &mut Batch::default(), true);
        }
        if self.is_file() {
            let _ = self.m.sync(AGAIN_SYNC).map_err(|error| self.stop(error));
        }
    }

    /// Stores `new` at `at` with its parity, a step at a time; one that fails keeps no other from
    /// being stored. If it was stored before, only what is not there `again`: what hit it and is
    /// not in parity yet comes in by the difference, so these columns are looked at afterwards.
    fn store_range(&self, at: u64, new: &[u8], batch: &mut Batch, again: bool) -> Result<()> {
        let mut old = vec![0; new.len().min(STEP)];
        let mut delta = vec![0; old.len()];
        let mut done = Ok(());
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
                if again && old == part {
                    return Ok(());
                } else if again {
                    self.suspect(at, part.len() as u64, Cause::Parity, Finder::Commit);
                }
                xor_delta(delta, old, part);
                // Page by page: only one that cannot be written may differ from what parity says.
                let (mut done, mut refused) = (0, None);
                while done < part.len() {
                    let here = at + done as u64;
                    let end = part.len().min(done + (PAGE - here % PAGE) as usize);
                    let put = self.m.put(DATA, here, &part[done..end]);
                    let delta = &delta[done..end];
                    let patched = self.patch_parity(PATCH, here, delta, &mut batch.scratch);
                    refused = refused.or(put.and(patched).err());
                    done = end;
                }
                refused.map_or(Ok(()), Err)
            });
            if !self.is_file() {
                self.m.drain(FC);
            }
            self.columns.unlock_all(&batch.columns);
            done = done.and(stored);
        }
        done.map_err(damaged)
    }
}

fn pointer_error(piece: &Piece) -> TxError {
    let object = holdfast_layout::RawPtr::new(piece.spot.object, piece.after.generation);
    debug_assert!(piece.after.len > 0);
    TxError::AlreadyOpen { object }
}
