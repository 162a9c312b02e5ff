//! Commit, in numbered steps. A small commit has two drains, F1 and F2.
//!
//! | step | what | crash after it leaves |
//! |---|---|---|
//! | 1 guards | guard words around private copies are as they were set | nothing |
//! | 2 prepare | ranges that changed, their sums, the record; all in DRAM | nothing |
//! | 3 lock | version words of all objects written, ascending, else conflict | nothing |
//! | 4 validate | nothing read has changed since, else conflict | nothing |
//! | 5 touch | parity under the changes can be read, else abort and repair | nothing |
//! | 6 number | a lower bound is published, then the number drawn | nothing |
//! | 7 columns | locks of all columns touched, ascending | nothing |
//! | 8 record | written to both copies of the lane's log | a torn record: ignored |
//! | **F1** | drain: **the commit point**; one valid copy is enough | the record: replayed |
//! | 9 apply | bytes, slots, then P and Q of each, all flushed | some of it: replayed |
//! | 10 release | columns, then version words at the new number | some of it: replayed |
//! | **F2** | drain, before the thread's next commit: bytes, slots, parity last | all of it |
//! | 11 done | the number is no longer held: the next records' watermark says so | all of it |
//!
//! Why F1: a store of step 9 must not reach the medium before the record that can complete it.
//! Why F2: the watermark must not pass this number while its stores can still be lost, since
//! recovery ignores records at or below the watermark. No third drain: there is no mark that says
//! "complete"; later records' watermarks do. The one store that makes a commit visible to other
//! threads is the release of its version words in step 10.
//!
//! F2 comes before step 10 where stores went around the cache: those may become visible to other
//! threads after a later plain store, and somebody could find an object unlocked and its bytes
//! old. Otherwise it waits for the lane's next commit, when it costs little: see `settle.rs`.
//!
//! All locks are taken before step 8, when nothing is outstanding, so their locked instructions
//! are no drains; and all are given back by plain stores. A locked instruction would stop the
//! thread until the drain before it is through. As it is, a drain only orders stores: the thread
//! goes on to apply while the record is still on its way, and prepares its next commit while the
//! last one's bytes are.
//!
//! Objects too long for the record are written in place first, under an intent: see
//! `in_place.rs`, which adds drain **F0**, and may store them again in step 10. On `File` media F1
//! is one synchronous append, which others may share: step 7 comes after it. Nothing is flushed
//! there, F2 is absent, and the number is held until the log is reclaimed.

use holdfast_heap::format::{GRANULE, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::{Slot, granule_range, granules};
use holdfast_heap::verify::{Direct, Source};
use holdfast_heap::{ChunkEntry, ChunkKind, Spot};
use holdfast_layout::RawPtr;
use holdfast_logs::Lane;
use holdfast_pmem::{MediaError, Medium, PAGE, Site};
use holdfast_redundancy::parity::{ParitySites, patch_page};
use holdfast_redundancy::{ColumnId, Place};
use holdfast_txn::{Result, TxError};

use crate::batch::{Batch, Part};
use crate::diff::{LINE, each_change, is_whole};
use crate::lane::{Fate, LaneState, Piece, Work};
use crate::owed::Applied;
use crate::patched::Patching;
use crate::shared::Shared;
use crate::tx::damaged;
use crate::versions::Version;
use crate::view::{Arena, Held};

const STEP_LOCKED: Site = Site::new("object.commit.step-locked");
const STEP_NUMBERED: Site = Site::new("object.commit.step-numbered");
const STEP_DURABLE: Site = Site::new("object.commit.step-durable");
const STEP_COLUMNS: Site = Site::new("object.commit.step-columns");
const STEP_APPLIED: Site = Site::new("object.commit.step-applied");
const STEP_PUT_OFF: Site = Site::new("object.commit.step-put-off");
const STEP_DONE: Site = Site::new("object.commit.step-done");
/// Checking guard words.
const GUARDS: Site = Site::new("object.commit.guards");
/// Validating what was read.
const VALIDATE: Site = Site::new("object.commit.validate");
/// New sums of changed granules.
const SUMS: Site = Site::new("object.commit.sums");
/// Those of fresh objects, of free slots, of entries.
const FRESH_SUMS: Site = Site::new("object.commit.fresh-sums");
const FREED_SUM: Site = Site::new("object.commit.freed-sum");
const ENTRY_SUM: Site = Site::new("object.commit.entry-sum");
/// Bytes of objects, sums and slots.
const DATA: Site = Site::new("object.commit.data");
/// Patching parity.
const PATCH: Patching = Patching {
    on: Site::new("object.commit.patch"),
    parity: ParitySites {
        p: Site::new("object.commit.parity-p"),
        q: Site::new("object.commit.parity-q"),
    },
};
/// Taking what becomes a log chunk out of parity.
const LEAVE: Patching = Patching {
    on: Site::new("object.commit.leave"),
    parity: ParitySites {
        p: Site::new("object.commit.leave-p"),
        q: Site::new("object.commit.leave-q"),
    },
};

impl<M: Medium> Shared<M> {
    /// Commits what the lane's transaction did. On an error nothing happened.
    pub(crate) fn commit(&self, lane: &Held<'_, LaneState>) -> Result<()> {
        let state: &LaneState = lane;
        let mut work = state.work.borrow_mut();
        self.numbers.expect_draw();
        let mut arena = state.arena.borrow_mut();
        arena.take_all_back();
        let mut batch = state.batch.borrow_mut();
        self.check_guards(&work, &arena)?;
        batch.clear();
        self.prepare(&work, &arena, &mut batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut locks = state.locks.borrow_mut();
        self.drain_last(lane);
        self.lock_versions(&work, &mut locks)?;
        self.m.step(STEP_LOCKED);
        let written = self
            .validate(&work, &locks)
            .and_then(|()| self.touch(&mut batch))
            .and_then(|()| self.write(lane, &work, &arena, &mut batch, &locks));
        match written {
            Ok(number) => {
                work.sees_below = number + 1;
                self.finish(&mut work);
                if self.log.reclaim_due() {
                    // Now that nobody waits for what this thread holds. If it fails, the pool
                    // writes no more; what was committed stays so.
                    let _ = self.reclaim();
                }
                Ok(())
            }
            Err(error) => {
                for (word, version) in locks.drain(..) {
                    self.versions.unlock(word, version);
                }
                Err(error)
            }
        }
    }

    /// Step 1.
    fn check_guards(&self, work: &Work, arena: &Arena) -> Result<()> {
        if !self.options.guards || !self.m.enabled(GUARDS) {
            return Ok(());
        }
        match work.pieces.iter().find(|p| !arena.guards_intact(p.copies)) {
            Some(p) => Err(TxError::Overrun { object: pointer(p) }),
            None => Ok(()),
        }
    }

    /// Step 2.
    fn prepare(&self, work: &Work, arena: &Arena, batch: &mut Batch) -> Result<()> {
        for piece in &work.pieces {
            match piece.fate {
                Fate::Changed => self.prepare_changed(work, piece, arena, batch)?,
                Fate::Fresh => self.prepare_fresh(piece, arena, batch)?,
                Fate::Freed => self.prepare_freed(piece, batch)?,
                Fate::Nothing => {}
            }
        }
        Ok(())
    }

    fn prepare_changed(
        &self,
        work: &Work,
        piece: &Piece,
        arena: &Arena,
        batch: &mut Batch,
    ) -> Result<()> {
        let old = arena.old(piece.copies);
        let Some(new) = arena.new_bytes(piece.copies) else {
            return Err(TxError::AlreadyOpen { object: pointer(piece) });
        };
        if self.options.debug_ranges {
            check_declared(work, piece, old, new)?;
        }
        let base = piece.first * GRANULE;
        let mut slot = piece.after;
        let mut new_sums = SumRun::default();
        for granule in piece.first..piece.first + piece.count {
            let (start, len) = granule_range(granule, slot.len.into());
            let range = (start - base) as usize..(start - base + len) as usize;
            let (o, n) = (&old[range.clone()], &new[range]);
            let Some(sum) = self.change_granule(work, piece, granule, o, n, batch) else {
                continue;
            };
            if granule == 0 {
                slot = Slot { sum, ..piece.after.written() };
            } else {
                let before = work.sums.get(piece.sums + (granule - piece.first) as usize);
                new_sums.push(batch, piece, granule, before.copied().unwrap_or(0), sum);
            }
        }
        new_sums.end(batch, piece);
        if slot != piece.before {
            batch.slot(piece.spot.slot, &piece.before.encode(), &slot.encode());
        }
        Ok(())
    }

    /// Adds the changed ranges of a granule; its new sum, if it changed and sums are kept.
    fn change_granule(
        &self,
        work: &Work,
        piece: &Piece,
        granule: u64,
        old: &[u8],
        new: &[u8],
        batch: &mut Batch,
    ) -> Option<u32> {
        let at = piece.spot.object + granule * GRANULE;
        let sums = self.heap.sums();
        let keep = sums.active();
        let mut sum = keep.then(|| work.sums[piece.sums + (granule - piece.first) as usize]);
        let mut changed = 0;
        let first = batch.writes.len();
        let mut words = [0; GRANULE as usize / LINE];
        let words = &mut words[..new.len().div_ceil(LINE)];
        let delta = batch.compare(old, new, words);
        if is_whole(words, new.len()) {
            changed = new.len();
            batch.changed_on(at, new, delta);
        } else {
            each_change(words, new.len(), |from, to| {
                changed += to - from;
                batch.changed(at + from as u64, &new[from..to], delta + from);
            });
        }
        if changed == 0 {
            batch.forget(delta);
            return None;
        }
        if !self.m.enabled(SUMS) {
            return sum;
        }
        let after = piece.after.written();
        if changed * 4 > new.len() {
            return keep.then(|| sums.granule(piece.spot.object, &after, granule, new));
        }
        sum = sum.map(|sum| sums.plain(sum, &piece.before, granule));
        for write in &batch.writes[first..] {
            let from = (write.at - at) as usize;
            let to = from + write.len as usize;
            let delta = &batch.delta[write.delta..write.delta + write.len as usize];
            let tail = new.len() - to;
            sum = sum.map(|s| sums.patch(s, &old[from..to], &new[from..to], delta, tail));
        }
        sum.map(|sum| sums.stored(sum, &after, granule))
    }

    fn prepare_fresh(&self, piece: &Piece, arena: &Arena, batch: &mut Batch) -> Result<()> {
        let Some(new) = arena.new_bytes(piece.copies) else {
            return Err(TxError::AlreadyOpen { object: pointer(piece) });
        };
        let mut slot = piece.after;
        slot.sum = self.fresh_sum(piece, new, 0);
        if !self.is_in_place(piece) {
            if !new.is_empty() {
                batch.free_data(piece.spot.object, new);
            }
            let mut sums = SumRun { free: true, ..SumRun::default() };
            for granule in 1..granules(slot.len.into()) {
                // A page that is bad is better found now than when the record is durable.
                let mut before = [0; SUM_LEN as usize];
                let at = piece.spot.sum_at(granule);
                Direct(&self.m).read(at, &mut before).map_err(damaged)?;
                let sum = self.fresh_sum(piece, new, granule);
                sums.push(batch, piece, granule, u32::from_le_bytes(before), sum);
            }
            sums.end(batch, piece);
        }
        let mut before = [0; SLOT_LEN];
        self.m.read(piece.spot.slot, &mut before).map_err(damaged)?;
        batch.free_slot(piece.spot.slot, &slot.encode());
        if piece.spot.class == Spot::LARGE {
            self.prepare_chunks(&piece.spot, ChunkKind::Free, ChunkKind::Large, batch)?;
        }
        Ok(())
    }

    /// Sum of a granule of a fresh object.
    pub(crate) fn fresh_sum(&self, piece: &Piece, new: &[u8], granule: u64) -> u32 {
        let (start, len) = granule_range(granule, piece.after.len.into());
        let bytes = &new[start as usize..(start + len) as usize];
        if !self.m.enabled(FRESH_SUMS) {
            return 0;
        }
        self.heap.sums().granule(piece.spot.object, &piece.after, granule, bytes)
    }

    fn prepare_freed(&self, piece: &Piece, batch: &mut Batch) -> Result<()> {
        let mut slot = piece.before.freed();
        if self.heap.sums().active() && self.m.enabled(FREED_SUM) {
            slot.sum = self.heap.sums().free_slot(piece.spot.object, &slot);
        }
        batch.slot(piece.spot.slot, &piece.before.encode(), &slot.encode());
        if piece.spot.class == Spot::LARGE {
            self.prepare_chunks(&piece.spot, ChunkKind::Large, ChunkKind::Free, batch)?;
        }
        Ok(())
    }

    /// Adds the directory entries of the chunks of a large object that becomes `to`.
    fn prepare_chunks(
        &self,
        spot: &Spot,
        from: ChunkKind,
        to: ChunkKind,
        batch: &mut Batch,
    ) -> Result<()> {
        let Some(zone) = self.heap.zone(spot.zone) else { return Ok(()) };
        for i in 0..spot.chunks {
            let chunk = spot.chunk + i;
            let now = match from {
                ChunkKind::Free => zone.reserved(chunk, ChunkKind::Free),
                _ => zone.entry(chunk),
            };
            let now = now.unwrap_or(ChunkEntry::VIRGIN);
            let next = large_entry(&now, to, i, spot.chunks);
            let at = zone.entry_at(chunk);
            // What is known of the entry is from memory: whether its page is good is not.
            self.m.read(at, &mut [0; 8]).map_err(damaged)?;
            let sums = self.heap.sums();
            let mut next = next.encode(sums, at);
            if !self.m.enabled(ENTRY_SUM) {
                next[..4].fill(0);
            }
            batch.data(at, &now.encode(sums, at), &next);
        }
        Ok(())
    }

    /// Step 3.
    fn lock_versions(&self, work: &Work, locks: &mut Vec<(u32, Version)>) -> Result<()> {
        locks.clear();
        for piece in work.pieces.iter().filter(|p| p.fate != Fate::Nothing) {
            let word = self.versions.index(piece.spot.object);
            let version = match piece.version.or(piece.found_at) {
                Some(version) => version,
                None => match work.reads.iter().find(|r| r.0 == word) {
                    Some((_, version)) => *version,
                    None => self.versions.read(word).ok_or(TxError::Conflict)?,
                },
            };
            locks.push((word, version));
        }
        if locks.len() > 1 {
            locks.sort_unstable_by_key(|l| l.0);
            locks.dedup();
        }
        for i in 0..locks.len() {
            let (word, version) = locks[i];
            if !self.versions.try_lock(&self.m, word, version) {
                for (word, version) in locks.drain(..).take(i) {
                    self.versions.unlock(word, version);
                }
                return Err(TxError::Conflict);
            }
        }
        Ok(())
    }

    /// Step 4. Comes after the locks: a transaction that validated first could be overtaken.
    fn validate(&self, work: &Work, locks: &[(u32, Version)]) -> Result<()> {
        if !self.m.enabled(VALIDATE) {
            return Ok(());
        }
        let same =
            |&(word, version): &(u32, Version)| match locks.binary_search_by_key(&word, |l| l.0) {
                Ok(mine) => locks[mine].1 == version,
                Err(_) => self.versions.unchanged(word, version),
            };
        if work.reads.iter().all(same) { Ok(()) } else { Err(TxError::Conflict) }
    }

    /// Step 5: media errors under what will be stored are found while aborting is still free. The
    /// bytes themselves were read for their copies, so only their parity is left to be tried.
    fn touch(&self, batch: &mut Batch) -> Result<()> {
        self.place(batch);
        let mut word = [0; 8];
        for part in &batch.parts {
            let Some(zone) = self.zone(part.zone) else { continue };
            // Within one page, so one word tells.
            let col = part.col & !7;
            if zone.has_p() {
                self.m.read(zone.p_at(col), &mut word).map_err(damaged)?;
            }
            if zone.has_q() {
                self.m.read(zone.q_at(col), &mut word).map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// Finds the rows and columns of the writes that came since the last call.
    fn place(&self, batch: &mut Batch) {
        for i in batch.placed..batch.writes.len() {
            let write = batch.writes[i];
            debug_assert!(self.zone_of(write.at).is_some(), "no zone is known at {}", write.at);
            let Some(zone) = self.zone_of(write.at) else { continue };
            // Rows end with pages, so what lies in one page is one part; most writes do.
            if write.at % PAGE + u64::from(write.len) <= PAGE
                && let Some(place) = zone.place(write.at)
            {
                let (zone, len) = (zone.index(), write.len as usize);
                batch.parts.push(Part {
                    zone,
                    row: place.row,
                    col: place.col,
                    delta: write.delta,
                    len,
                });
                continue;
            }
            for piece in zone.split(write.at, u64::from(write.len)) {
                let mut delta = write.delta + (piece.at - write.at) as usize;
                let (mut col, end) = (piece.col, piece.col + piece.len);
                while col < end {
                    let len = (PAGE - col % PAGE).min(end - col) as usize;
                    let (zone, row) = (zone.index(), piece.row);
                    batch.parts.push(Part { zone, row, col, delta, len });
                    (col, delta) = (col + len as u64, delta + len);
                }
            }
        }
        batch.placed = batch.writes.len();
    }

    /// Steps 6 to 11. Answers the number.
    fn write(
        &self,
        lane: &Held<'_, LaneState>,
        work: &Work,
        arena: &Arena,
        batch: &mut Batch,
        locks: &[(u32, Version)],
    ) -> Result<u64> {
        let mut log = self.hold_log(self.log_lane(lane.lane()));
        self.settle_last(lane, &mut log);
        let _gate = WriteGate::open(&self.m);
        let in_place =
            work.remade && work.pieces.iter().any(|p| p.fate == Fate::Fresh && self.is_in_place(p));
        let remade = if in_place { self.remade.times() } else { 0 };
        if in_place {
            self.write_in_place(&mut log, work, arena, batch)?;
        }
        batch.put_off = !in_place && self.may_defer(lane, batch);
        let (number, held) = self.write_record(&mut log, batch)?;
        self.m.step(STEP_DURABLE);
        if work.remade && work.pieces.iter().any(|p| p.fate == Fate::Freed) {
            // Whoever takes the space has to know before it is to be had.
            self.note_freed_in(log.id(), number);
        }
        let again = || {
            if in_place {
                self.store_again(work, arena, remade);
            }
        };
        let release = || locks.iter().for_each(|(word, _)| self.versions.release(*word, number));
        match self.apply(batch, held, || self.publish_all_large(work), again, release) {
            Applied::Stored => self.complete(&log),
            Applied::PutOff => {
                self.defer(&mut log, lane);
                self.m.step(STEP_PUT_OFF);
            }
            Applied::Unstored => {}
        }
        Ok(number)
    }

    /// Steps 6 to F1 of an ordinary record. Tells whether its columns are held already.
    pub(crate) fn write_record(
        &self,
        log: &mut Lane<'_>,
        batch: &mut Batch,
    ) -> Result<(u64, bool)> {
        if !self.log.fits(&batch.builder) {
            // Its chunks are taken by a commit of its own, perhaps in the same columns.
            batch.put_off = false;
            return self.write_overflow(log, batch).map(|number| (number, false));
        }
        self.write_fitting(log, batch)
    }

    /// The same for a record that fits.
    pub(crate) fn write_fitting(
        &self,
        log: &mut Lane<'_>,
        batch: &mut Batch,
    ) -> Result<(u64, bool)> {
        self.reserve_log(log, &batch.builder)?;
        // An append lasts as long as the disk takes, and others may share it.
        let hold = !self.is_file();
        let number = self.numbers.draw(&self.m, log.id());
        self.m.step(STEP_NUMBERED);
        if hold {
            self.hold_columns(batch);
        }
        let parts = if batch.put_off { batch.parts.as_slice() } else { &[] };
        let written = self.append(log, number, &mut batch.builder, self.stores(parts));
        if written.is_err() {
            self.numbers.done(log.id());
            if hold {
                self.columns.unlock_all(&batch.columns);
            }
        }
        written.map(|()| (number, hold))
    }

    /// The locks of all columns touched.
    fn hold_columns(&self, batch: &mut Batch) {
        self.find_columns(batch);
        self.columns.lock_all(&self.m, &batch.columns);
        self.m.step(STEP_COLUMNS);
    }

    /// Steps 9 and 10 of a durable record. `publish` makes known what the columns hold now, before
    /// anybody else can judge them; `again` stores once more what nobody knew before, before it is
    /// judged here. Nothing is released that could not be stored.
    pub(crate) fn apply(
        &self,
        batch: &mut Batch,
        held: bool,
        publish: impl FnOnce(),
        again: impl FnOnce(),
        release: impl FnOnce(),
    ) -> Applied {
        if !held {
            self.hold_columns(batch);
        }
        let stored = self.store(batch);
        self.m.step(STEP_APPLIED);
        if !stored {
            self.owe(batch);
        }
        let put_off = batch.put_off && stored;
        if !put_off {
            self.settle_now();
        }
        publish();
        self.columns.unlock_all(&batch.columns);
        again();
        // The record is durable: its changes must be completed, whatever went bad under them.
        if !stored && !self.complete_owed() {
            return Applied::Unstored;
        }
        release();
        if put_off { Applied::PutOff } else { Applied::Stored }
    }

    fn find_columns(&self, batch: &mut Batch) {
        self.place(batch);
        batch.columns.clear();
        for part in &batch.parts {
            let id = ColumnId::new(part.zone, part.col);
            if batch.columns.last() != Some(&id) {
                batch.columns.push(id);
            }
        }
        for (at, len) in batch.exempts.iter().copied() {
            if let Some(zone) = self.zone_of(at) {
                self.columns.ids_of(zone, at, len, &mut batch.columns);
            }
        }
        if !batch.columns.is_sorted_by(|a, b| a < b) {
            batch.columns.sort_unstable();
            batch.columns.dedup();
        }
    }

    /// Step 9. A page that refuses misses its part and nothing else does: the rest goes on, so that
    /// as little as possible is left to be completed. Answers whether all is stored; an error
    /// would be copied field by field, and wait for F1 where `Held` says why.
    fn store(&self, batch: &mut Batch) -> bool {
        let mut stored = true;
        for i in 0..batch.exempts.len() {
            let (at, len) = batch.exempts[i];
            if self.leave_parity(batch, at, len).is_err() {
                return false;
            }
        }
        for write in &batch.writes {
            let len = write.len as usize;
            let bytes = batch.builder.payload(write.payload, len);
            if write.free {
                let delta = &mut batch.delta[write.delta..write.delta + len];
                stored &= self.differ(write.at, bytes, delta);
            }
            stored &= self.m.put(DATA, write.at, bytes).is_ok();
        }
        if self.m.enabled(PATCH.on) {
            for part in &batch.parts {
                let Some(zone) = self.zone(part.zone).filter(|z| z.has_p()) else { continue };
                let delta = &batch.delta[part.delta..part.delta + part.len];
                let place = Place { row: part.row, col: part.col };
                let scratch = &mut batch.scratch;
                stored &= patch_page(&self.m, zone, place, delta, scratch, PATCH.parity).is_ok();
            }
        }
        for (zone, chunk, entry) in batch.publish.iter().filter(|_| stored) {
            self.heap.publish(*zone, *chunk, entry);
        }
        stored
    }

    /// How `bytes` differ from what is at `at` now, page by page. False if one cannot be read: its
    /// parity is made anew by whoever completes the record.
    fn differ(&self, at: u64, bytes: &[u8], delta: &mut [u8]) -> bool {
        if !self.zone_of(at).is_some_and(|zone| zone.has_p()) {
            return true;
        }
        let (mut from, mut all) = (0, true);
        while from < bytes.len() {
            let page = (PAGE - (at + from as u64) % PAGE) as usize;
            let part = from..bytes.len().min(from + page);
            let delta = &mut delta[part.clone()];
            if self.m.read(at + from as u64, delta).is_ok() {
                holdfast_codes::xor_into(delta, &bytes[part.clone()]);
            } else {
                delta.fill(0);
                all = false;
            }
            from = part.end;
        }
        all
    }

    /// Takes a range that becomes log chunks out of parity, a page at a time: it counts as zeros
    /// from now on, so its bytes are the difference.
    fn leave_parity(
        &self,
        batch: &mut Batch,
        at: u64,
        len: u64,
    ) -> core::result::Result<(), MediaError> {
        let mut old = [0; 4096];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(old.len() as u64) as usize;
            self.m.read(at + done, &mut old[..n])?;
            self.patch_parity(LEAVE, at + done, &old[..n], &mut batch.scratch)?;
            done += n as u64;
        }
        Ok(())
    }

    /// Step 11.
    pub(crate) fn complete(&self, log: &Lane<'_>) {
        self.m.step(STEP_DONE);
        self.numbers.done(log.id());
    }

    /// Makes the chunks of large objects that were made or freed known as such.
    fn publish_all_large(&self, work: &Work) {
        if !work.remade {
            return;
        }
        for piece in work.pieces.iter().filter(|p| p.spot.class == Spot::LARGE) {
            match piece.fate {
                Fate::Freed => self.publish_large(&piece.spot, ChunkKind::Free),
                Fate::Fresh => self.publish_large(&piece.spot, ChunkKind::Large),
                Fate::Changed | Fate::Nothing => {}
            }
        }
    }

    /// After the commit: gives back what was freed.
    fn finish(&self, work: &mut Work) {
        if !work.remade {
            return;
        }
        for i in 0..work.pieces.len() {
            let piece = work.pieces[i];
            let Some(zone) = self.heap.zone(piece.spot.zone) else { continue };
            match piece.fate {
                Fate::Freed => {
                    for granule in 0..granules(piece.before.len.into()) {
                        self.touched.forget(zone, &piece.spot, granule);
                    }
                    if piece.spot.class != Spot::LARGE {
                        self.heap.release(&mut work.cache, &piece.spot);
                    }
                }
                Fate::Nothing if piece.version.is_none() => {
                    self.heap.release(&mut work.cache, &piece.spot);
                }
                Fate::Fresh | Fate::Changed | Fate::Nothing => {}
            }
        }
    }

    fn publish_large(&self, spot: &Spot, kind: ChunkKind) {
        let Some(zone) = self.heap.zone(spot.zone) else { return };
        for i in 0..spot.chunks {
            let chunk = spot.chunk + i;
            let now = zone.entry(chunk).or_else(|| zone.reserved(chunk, ChunkKind::Free));
            let next = large_entry(&now.unwrap_or(ChunkEntry::VIRGIN), kind, i, spot.chunks);
            self.heap.publish(spot.zone, chunk, &next);
        }
    }

    /// After an abort: gives back what was reserved.
    pub(crate) fn forget(&self, work: &mut Work) {
        if !work.remade {
            return;
        }
        for i in 0..work.pieces.len() {
            let piece = work.pieces[i];
            if piece.version.is_none() {
                self.heap.release(&mut work.cache, &piece.spot);
            }
        }
    }
}

/// Lets this thread store to a protected medium; where that costs a system call, once a commit.
pub(crate) struct WriteGate<'m, M: Medium>(&'m M);

impl<'m, M: Medium> WriteGate<'m, M> {
    pub(crate) fn open(m: &'m M) -> Self {
        m.begin_write();
        Self(m)
    }
}

impl<M: Medium> Drop for WriteGate<'_, M> {
    fn drop(&mut self) {
        self.0.end_write();
    }
}

fn pointer(piece: &Piece) -> RawPtr {
    RawPtr::new(piece.spot.object, piece.after.generation)
}

/// The next entry of the `i`-th of `count` chunks of a large object that is made or freed.
fn large_entry(now: &ChunkEntry, to: ChunkKind, i: u32, count: u32) -> ChunkEntry {
    match to {
        ChunkKind::Large if i == 0 => now.next(ChunkKind::Large, 0, count),
        ChunkKind::Large => now.next(ChunkKind::Tail, 0, i),
        _ => now.next(ChunkKind::Free, 0, 0),
    }
}

/// Debug mode: every changed byte of an object with declared ranges lies in one of them.
fn check_declared(work: &Work, piece: &Piece, old: &[u8], new: &[u8]) -> Result<()> {
    let object = piece.spot.object;
    let ranges = || work.declared.iter().filter(|d| d.0 == object);
    if ranges().next().is_none() {
        return Ok(());
    }
    let base = piece.first * GRANULE;
    for (i, (o, n)) in old.iter().zip(new).enumerate() {
        let at = base + i as u64;
        if o != n && !ranges().any(|d| (d.1..d.2).contains(&at)) {
            return Err(TxError::Undeclared { object: pointer(piece), at });
        }
    }
    Ok(())
}

/// Consecutive sum words that changed, committed as one range.
#[derive(Default)]
struct SumRun {
    first: u64,
    count: usize,
    old: [u8; 32],
    new: [u8; 32],
    /// Of a place that is free: see [`Batch::free_data`].
    free: bool,
}

impl SumRun {
    fn push(&mut self, batch: &mut Batch, piece: &Piece, granule: u64, old: u32, new: u32) {
        let next = self.first + self.count as u64;
        if self.count == self.new.len() / SUM_LEN as usize || (self.count > 0 && granule != next) {
            self.end(batch, piece);
        }
        if self.count == 0 {
            self.first = granule;
        }
        let at = self.count * SUM_LEN as usize;
        self.old[at..at + 4].copy_from_slice(&old.to_le_bytes());
        self.new[at..at + 4].copy_from_slice(&new.to_le_bytes());
        self.count += 1;
    }

    fn end(&mut self, batch: &mut Batch, piece: &Piece) {
        if self.count > 0 {
            let len = self.count * SUM_LEN as usize;
            let (at, new) = (piece.spot.sum_at(self.first), &self.new[..len]);
            match self.free {
                true => batch.free_data(at, new),
                false => batch.data(at, &self.old[..len], new),
            }
            self.count = 0;
        }
    }
}
