//! A transaction in progress: reads, private copies, allocation. Nothing here changes the medium.

use core::cell::RefMut;
use core::ops::RangeInclusive;

use holdfast_heap::format::GRANULE;
use holdfast_heap::sums::{granule_range, granules};
use holdfast_heap::verify::{Direct, read_slot, read_sum};
use holdfast_heap::{Slot, Spot, ZoneTable};
use holdfast_layout::{Certify, Persist, Ptr, RawPtr, TypeNumber, bytemuck};
use holdfast_pmem::{MediaError, Medium, Site};
use holdfast_txn::{Result, Transaction, TxError};

use crate::lane::{Fate, LaneState, Piece, Work};
use crate::options::VerifyReads;
use crate::shared::Shared;
use crate::versions::Version;
use crate::view::{CopyId, Held, Mut};

/// Verifying what is opened for change: without it, damage would be patched into sum and parity.
const VERIFY_OPEN: Site = Site::new("object.tx.verify-open");
/// Verifying what is read.
const VERIFY_READ: Site = Site::new("object.tx.verify-read");
/// Times a transaction waits for a disk at one object before it gives up and is run again.
const AWAITED_MAX: u32 = 1_000;

/// A transaction of the object store. Reached through [`Pool::run`](crate::Pool::run).
#[derive(Debug)]
pub struct Tx<'p, M: Medium> {
    pub(crate) shared: &'p Shared<M>,
    pub(crate) lane: Held<'p, LaneState>,
}

/// An object found by its pointer, at a version.
pub(crate) struct Seen<'z> {
    pub(crate) spot: Spot,
    zone: &'z ZoneTable,
    word: u32,
    version: Version,
}

/// Which granules of an object to copy, and the end of the bytes that must exist.
#[derive(Clone, Copy)]
struct Part {
    first: u64,
    last: u64,
    end: u64,
    /// From here to `end` the caller stores at once.
    stored: u64,
}

impl Part {
    const WHOLE: Self = Self { first: 0, last: u64::MAX - 1, end: 0, stored: u64::MAX };
}

/// Granules over bytes `[from, end)`; the first one if there are none.
fn spanned(from: u64, end: u64) -> RangeInclusive<u64> {
    from / GRANULE..=(end.max(from + 1) - 1) / GRANULE
}

pub(crate) fn damaged(error: MediaError) -> TxError {
    TxError::Damaged { at: error.at, len: error.len.max(1) }
}

impl<M: Medium> Tx<'_, M> {
    pub(crate) fn work(&self) -> RefMut<'_, Work> {
        self.lane.work.borrow_mut()
    }

    /// Finds the object and a version this transaction may see.
    #[inline]
    fn see(&self, work: &mut Work, of: RawPtr) -> Result<Seen<'_>> {
        let shared = self.shared;
        let found = shared.heap.zone_of(of.offset()).map(|zone| (zone, zone.locate(of.offset())));
        let Some((zone, Some(spot))) = found else {
            let holds = self.reads_hold(work);
            return Err(if holds { self.without_place(of) } else { TxError::Conflict });
        };
        let word = shared.versions.index(spot.object);
        let version = match shared.versions.read(word) {
            Some(version) => version,
            None => self.await_version(work, word)?,
        };
        if version.number() >= work.sees_below {
            // Committed since the counter was looked at: go on only if nothing read so far changed.
            let sees_below = shared.numbers.next();
            if !self.reads_hold(work) {
                return Err(TxError::Conflict);
            }
            work.sees_below = sees_below;
            if version.number() >= sees_below {
                return Err(TxError::Conflict);
            }
        }
        Ok(Seen { spot, zone, word, version })
    }

    /// The version of a word that a committer has held for long. On a file it holds it until the
    /// disk has written its record: what this transaction has done so far is worth that wait, for
    /// executed again it would meet the same commit. Unless that is about to change what was read.
    #[cold]
    fn await_version(&self, work: &Work, word: u32) -> Result<Version> {
        if self.shared.is_unstored() {
            // Held for good, or soon let go by a committer who was about to end.
            return Err(TxError::ReadOnly);
        }
        let tries = if self.shared.is_file() { AWAITED_MAX } else { 0 };
        for _ in 0..tries {
            if !self.reads_hold(work) {
                break;
            }
            // If nothing is being written, the committer is about to, or storing what was.
            self.shared.log.await_batch();
            if let Some(version) = self.shared.versions.read_soon(word) {
                return Ok(version);
            }
        }
        Err(TxError::Conflict)
    }

    /// Whether nothing that was read so far has changed.
    fn reads_hold(&self, work: &Work) -> bool {
        work.reads.iter().all(|(w, v)| self.shared.versions.unchanged(*w, *v))
    }

    /// What is wrong with an object, if its pointer still is what the objects read so far say. If
    /// one of them changed, whoever changed it may have freed the object, and its chunk by now may
    /// be free or have others in it, with versions that tell nothing of that.
    #[cold]
    fn still(&self, work: &Work, error: TxError) -> TxError {
        if error.is_transient() || self.reads_hold(work) { error } else { TxError::Conflict }
    }

    /// Ends a read of `seen`: `Conflict` if the object changed meanwhile. A finding made on bytes
    /// that changed meanwhile means nothing, so this comes before any verdict.
    #[inline]
    fn settle(&self, work: &mut Work, seen: &Seen<'_>) -> Result<()> {
        if !self.shared.versions.unchanged(seen.word, seen.version) {
            return Err(TxError::Conflict);
        }
        work.reads.push((seen.word, seen.version));
        Ok(())
    }

    /// What an object's slot says of it, verified as far as the read policy asks for.
    fn slot_of(&self, work: &mut Work, of: RawPtr) -> Result<Slot> {
        let seen = self.see(work, of)?;
        let answer = self.slot_seen(&seen, of);
        self.settle(work, &seen)?;
        answer.map_err(|error| self.still(work, error))
    }

    fn slot_seen(&self, seen: &Seen<'_>, of: RawPtr) -> Result<Slot> {
        let touched = self.were_touched(seen, of, 0..=0);
        let slot = read_slot(&Direct(&self.shared.m), &seen.spot).map_err(damaged)?;
        self.judge_slot(seen, of, &slot)?;
        self.certify_slot(seen, &slot, touched)?;
        Ok(slot)
    }

    /// Verifies a slot as it was read, as far as the read policy asks for.
    fn certify_slot(&self, seen: &Seen<'_>, slot: &Slot, touched: bool) -> Result<()> {
        let verified = match self.shared.verify_reads() {
            VerifyReads::Never => true,
            VerifyReads::FirstTouch => touched,
            VerifyReads::Always => false,
        };
        if !verified {
            self.verify_slot(seen, slot)?;
            self.lane.count_verified(self.shared.heap.sums().active().into());
        }
        Ok(())
    }

    /// Whether granules were verified before, if that is asked. It has to be asked before anything
    /// is read: what somebody else verifies meanwhile is not what was read.
    fn were_touched(&self, seen: &Seen<'_>, of: RawPtr, all: RangeInclusive<u64>) -> bool {
        let shared = self.shared;
        let known = |g: u64| {
            (g + 1) * GRANULE <= seen.spot.capacity.next_multiple_of(GRANULE)
                && shared.touched.is(seen.zone, &seen.spot, g, of.generation())
        };
        shared.verify_reads() == VerifyReads::FirstTouch && { all }.all(known)
    }

    /// Verifies granules `[first, first + count)` whose bytes, from the first one's start, are
    /// `bytes`; shows `keep` the sum stored for each.
    fn verify(
        &self,
        seen: &Seen<'_>,
        slot: &Slot,
        first: u64,
        count: u64,
        bytes: &[u8],
        mut keep: impl FnMut(u32),
    ) -> Result<()> {
        let sums = self.shared.heap.sums();
        if !sums.active() {
            return Ok(());
        }
        let certify = Certify::when(self.shared.m.enabled(VERIFY_OPEN));
        let base = first * GRANULE;
        for granule in first..first + count {
            let (start, len) = granule_range(granule, slot.len.into());
            let part = &bytes[(start - base) as usize..(start - base + len) as usize];
            let expected =
                read_sum(&Direct(&self.shared.m), &seen.spot, slot, granule).map_err(damaged)?;
            keep(expected);
            if !certify.agrees(expected, sums.granule(seen.spot.object, slot, granule, part)) {
                return Err(TxError::Damaged { at: seen.spot.object + start, len: len.max(1) });
            }
        }
        Ok(())
    }

    /// Reads bytes `[from, from + into.len())` of an object nobody in this transaction opened.
    /// `typed` is the type and length that must be found.
    #[inline]
    fn read_committed(
        &self,
        work: &mut Work,
        of: RawPtr,
        from: u64,
        into: &mut [u8],
        typed: Option<(TypeNumber, u64)>,
    ) -> Result<()> {
        if self.read_known(work, of, from, into, typed).is_some() {
            return Ok(());
        }
        self.read_unknown(work, of, from, into, typed)
    }

    /// The long way of [`read_committed`](Self::read_committed), which finds out what is wrong.
    #[cold]
    fn read_unknown(
        &self,
        work: &mut Work,
        of: RawPtr,
        from: u64,
        into: &mut [u8],
        typed: Option<(TypeNumber, u64)>,
    ) -> Result<()> {
        let seen = self.see(work, of)?;
        let answer = self.read_seen(&seen, of, from, into, typed);
        self.settle(work, &seen)?;
        answer.map_err(|error| self.still(work, error))
    }

    fn read_seen(
        &self,
        seen: &Seen<'_>,
        of: RawPtr,
        from: u64,
        into: &mut [u8],
        typed: Option<(TypeNumber, u64)>,
    ) -> Result<()> {
        let end = from + into.len() as u64;
        let touched = self.were_touched(seen, of, spanned(from, end));
        let slot = read_slot(&Direct(&self.shared.m), &seen.spot).map_err(damaged)?;
        self.judge_slot(seen, of, &slot)?;
        self.confirm(seen, &slot, check_asked(of, &slot, end, typed))?;
        self.read_as(seen, &slot, from, into, touched)
    }

    /// Reads bytes of an object whose slot, as it was read and is of this object, is `slot`.
    fn read_as(
        &self,
        seen: &Seen<'_>,
        slot: &Slot,
        from: u64,
        into: &mut [u8],
        touched: bool,
    ) -> Result<()> {
        let shared = self.shared;
        if into.is_empty() {
            return Ok(());
        }
        let verify = shared.m.enabled(VERIFY_READ)
            && shared.heap.sums().active()
            && match shared.verify_reads() {
                VerifyReads::Never => false,
                VerifyReads::FirstTouch => !touched,
                VerifyReads::Always => true,
            };
        if !verify {
            return shared.m.read(seen.spot.object + from, into).map_err(damaged);
        }
        self.read_verified(seen, slot, from, into)?;
        let spanned = spanned(from, from + into.len() as u64);
        self.lane.count_verified(spanned.end() - spanned.start() + 1);
        Ok(())
    }

    /// Reads the start of an object, and its length from its slot: the sum of the first granule
    /// covers both.
    fn start_seen(&self, seen: &Seen<'_>, of: RawPtr, into: &mut [u8]) -> Result<u64> {
        let touched = self.were_touched(seen, of, spanned(0, into.len() as u64));
        let slot = read_slot(&Direct(&self.shared.m), &seen.spot).map_err(damaged)?;
        self.judge_slot(seen, of, &slot)?;
        let len = u64::from(slot.len);
        let held = len.min(into.len() as u64) as usize;
        match held {
            0 => self.certify_slot(seen, &slot, touched)?,
            _ => self.read_as(seen, &slot, 0, &mut into[..held], touched)?,
        }
        Ok(len)
    }

    fn read_verified(
        &self,
        seen: &Seen<'_>,
        slot: &Slot,
        from: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let shared = self.shared;
        let end = from + into.len() as u64;
        for granule in from / GRANULE..=(end - 1) / GRANULE {
            let (start, len) = granule_range(granule, slot.len.into());
            let (a, b) = (from.max(start), end.min(start + len));
            let part = &mut into[(a - from) as usize..(b - from) as usize];
            if b - a == len {
                shared.m.read(seen.spot.object + start, part).map_err(damaged)?;
                self.verify(seen, slot, granule, 1, part, |_| {})?;
            } else {
                self.verify_around(seen, slot, granule, (a - start) as usize, part)?;
            }
            if shared.versions.unchanged(seen.word, seen.version) {
                shared.touched.set(seen.zone, seen.spot.object, granule, slot.generation);
            }
        }
        Ok(())
    }

    /// Verifies a granule, and copies a part of it from byte `from` on.
    fn verify_around(
        &self,
        seen: &Seen<'_>,
        slot: &Slot,
        granule: u64,
        from: usize,
        part: &mut [u8],
    ) -> Result<()> {
        let (start, len) = granule_range(granule, slot.len.into());
        let mut buffer = [0; GRANULE as usize];
        let bytes = &mut buffer[..len as usize];
        self.shared.m.read(seen.spot.object + start, bytes).map_err(damaged)?;
        self.verify(seen, slot, granule, 1, bytes, |_| {})?;
        part.copy_from_slice(&bytes[from..from + part.len()]);
        Ok(())
    }

    /// Makes private copies of a part of an object. Always verified, whatever the read policy.
    fn open_piece(
        &self,
        work: &mut Work,
        of: RawPtr,
        part: Part,
        typed: Option<(TypeNumber, u64)>,
    ) -> Result<usize> {
        if self.shared.is_read_only() {
            return Err(TxError::ReadOnly);
        }
        let seen = self.see(work, of)?;
        let from = part.first * GRANULE;
        self.fetch(&seen.spot, from, part.end);
        let sums = work.sums.len();
        let copied = self.copy_verified(&seen, of, part, typed, &mut work.sums);
        // As in `read_committed`: a change meanwhile outranks what was found.
        if !self.shared.versions.unchanged(seen.word, seen.version) {
            return Err(TxError::Conflict);
        }
        let (slot, count, copies) = copied.map_err(|error| self.still(work, error))?;
        work.reads.push((seen.word, seen.version));
        Ok(work.add(Piece {
            spot: seen.spot,
            before: slot,
            after: slot,
            first: part.first,
            count,
            copies,
            fate: Fate::Changed,
            sums,
            version: Some(seen.version),
            found_at: None,
        }))
    }

    fn copy_verified(
        &self,
        seen: &Seen<'_>,
        of: RawPtr,
        part: Part,
        typed: Option<(TypeNumber, u64)>,
        sums: &mut Vec<u32>,
    ) -> Result<(Slot, u64, CopyId)> {
        let shared = self.shared;
        let slot = read_slot(&Direct(&shared.m), &seen.spot).map_err(damaged)?;
        self.judge_slot(seen, of, &slot)?;
        self.confirm(seen, &slot, check_asked(of, &slot, part.end, typed))?;
        let Part { first, last, .. } = part;
        let len = u64::from(slot.len);
        let count = last.min(granules(len) - 1) + 1 - first;
        let start = first * GRANULE;
        let bytes = len.min(start + count * GRANULE) - start;
        let mut arena = self.lane.arena.borrow_mut();
        let copies = arena.make(bytes as usize);
        let Some((old, new)) = arena.both_mut(copies) else {
            return Err(TxError::AlreadyOpen { object: of });
        };
        shared.m.read(seen.spot.object + start, old).map_err(damaged)?;
        self.verify(seen, &slot, first, count, old, |sum| sums.push(sum))?;
        let inside = |at: u64| at.clamp(start, start + bytes) as usize - start as usize;
        let (stored, end) = (inside(part.stored), inside(part.end));
        new[..stored].copy_from_slice(&old[..stored]);
        new[end.max(stored)..].copy_from_slice(&old[end.max(stored)..]);
        Ok((slot, count, copies))
    }

    /// The piece that holds byte `from` of `of`, opened if need be together with the granules up
    /// to that of byte `end - 1` that are not open yet. The caller stores to all of those bytes of
    /// it at once.
    fn piece_for(&self, work: &mut Work, of: RawPtr, from: u64, end: u64) -> Result<usize> {
        let granule = from / GRANULE;
        if let Some(at) = work.find(of.offset(), granule) {
            let at = self.own(work, at, of)?;
            let len = u64::from(work.pieces[at].after.len);
            if end > len {
                return Err(TxError::OutOfBounds { object: of, end, len });
            }
            return Ok(at);
        }
        let mut last = (end.max(1) - 1) / GRANULE;
        if !work.pieces.is_empty() {
            let open = (granule + 1..=last).find(|g| work.find(of.offset(), *g).is_some());
            last = open.map_or(last, |g| g - 1);
        }
        self.open_piece(work, of, Part { first: granule, last, end, stored: from }, None)
    }

    /// A piece this transaction has, if the pointer still names its object. If it does not, the
    /// pointer may have been read before others freed what it led to, and the place is this
    /// transaction's since.
    fn own(&self, work: &Work, at: usize, of: RawPtr) -> Result<usize> {
        let piece = &work.pieces[at];
        let gone = matches!(piece.fate, Fate::Freed | Fate::Nothing);
        if gone || piece.after.generation != of.generation() {
            return Err(self.still(work, Self::dangling(of)));
        }
        Ok(at)
    }

    /// The piece at `at` if it is the whole object, else one that is, with what was written to the
    /// parts that are open.
    fn joined(&self, work: &mut Work, at: usize, of: RawPtr) -> Result<usize> {
        let Piece { count, after, .. } = work.pieces[at];
        if count == granules(after.len.into()) {
            return Ok(at);
        }
        let whole = self.open_piece(work, of, Part::WHOLE, None)?;
        work.join(whole, &mut self.lane.arena.borrow_mut());
        Ok(whole)
    }

    /// Length of an object, through the transaction's own view of it.
    fn length(&self, work: &mut Work, of: RawPtr) -> Result<u64> {
        if let Some(at) = work.any_of(of.offset()) {
            let at = self.own(work, at, of)?;
            return Ok(work.pieces[at].after.len.into());
        }
        Ok(self.slot_of(work, of)?.len.into())
    }

    /// Reads where the transaction has copies of some granules: each from its place.
    fn read_mixed(&self, work: &mut Work, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()> {
        let len = self.length(work, of)?;
        let end = from.saturating_add(into.len() as u64);
        if end > len {
            return Err(TxError::OutOfBounds { object: of, end, len });
        }
        let mut at = from;
        while at < end {
            let granule = at / GRANULE;
            let stop = end.min((granule + 1) * GRANULE);
            let part = &mut into[(at - from) as usize..(stop - from) as usize];
            match work.find(of.offset(), granule) {
                Some(index) => {
                    let piece = work.pieces[index];
                    let arena = self.lane.arena.borrow();
                    let bytes =
                        arena.new_bytes(piece.copies).ok_or(TxError::AlreadyOpen { object: of })?;
                    let start = (at - piece.first * GRANULE) as usize;
                    part.copy_from_slice(&bytes[start..start + part.len()]);
                }
                None => self.read_committed(work, of, at, part, None)?,
            }
            at = stop;
        }
        Ok(())
    }

    /// Declares that only `[from, to)` of an object will be changed. Checked at commit where the
    /// pool was opened with `debug_ranges`; changes outside all declared ranges of an object that
    /// has some are then an error (O36).
    pub fn declare(&self, of: RawPtr, from: u64, to: u64) {
        if self.shared.options.debug_ranges {
            self.work().declared.push((of.offset(), from, to));
        }
    }

    /// Opens an object for change and lends its private copy as raw memory of the object's
    /// length, between guard words: for code in other languages. Valid until the closure returns.
    ///
    /// # Errors
    /// As [`open_mut`](Transaction::open_mut).
    pub fn open_raw(&self, of: RawPtr) -> Result<(*mut u8, u64)> {
        let mut work = self.work();
        let at = match work.any_of(of.offset()) {
            Some(at) => self.own(&work, at, of).and_then(|at| self.joined(&mut work, at, of))?,
            None => self.open_piece(&mut work, of, Part::WHOLE, None)?,
        };
        let piece = work.pieces[at];
        work.changes += 1;
        let raw = self.lane.arena.borrow_mut().lend_raw(piece.copies);
        raw.map(|p| (p, u64::from(piece.after.len))).ok_or(TxError::AlreadyOpen { object: of })
    }

    /// Ends the loan of [`open_raw`](Self::open_raw): the object can be read, freed and opened by
    /// other means again, and what was stored to it counts. Nothing happens if it is not lent.
    pub fn close_raw(&self, of: RawPtr) {
        let work = self.work();
        if let Some(at) = work.find(of.offset(), 0) {
            self.lane.arena.borrow_mut().take_back_raw(work.pieces[at].copies);
        }
    }

    /// The pool's root object whatever its type is, null if none was set.
    ///
    /// # Errors
    /// As [`read`](Transaction::read).
    pub fn raw_root(&self) -> Result<RawPtr> {
        Ok(self.read(self.shared.anchor())?.root)
    }

    /// Makes `object` the pool's root, whatever its type is.
    ///
    /// # Errors
    /// As [`open_mut`](Transaction::open_mut).
    pub fn set_raw_root(&self, object: RawPtr) -> Result<()> {
        self.update(self.shared.anchor(), |anchor| anchor.root = object)
    }

    /// The pool's root object, null if none was set.
    ///
    /// # Errors
    /// As [`read`](Transaction::read); `WrongType` if the root is no `T`.
    pub fn root<T: Persist>(&self) -> Result<Ptr<T>> {
        let root = self.raw_root()?;
        if root.is_null() {
            return Ok(Ptr::null());
        }
        let found = self.type_of(root)?;
        if found != T::TYPE {
            return Err(TxError::WrongType { object: root, wanted: T::TYPE, found });
        }
        Ok(root.typed())
    }

    /// Makes `object` the pool's root.
    ///
    /// # Errors
    /// As [`open_mut`](Transaction::open_mut).
    pub fn set_root<T: Persist>(&self, object: Ptr<T>) -> Result<()> {
        self.set_raw_root(object.raw())
    }

    /// Type number of an object.
    ///
    /// # Errors
    /// As [`read`](Transaction::read).
    pub fn type_of(&self, of: RawPtr) -> Result<TypeNumber> {
        let mut work = self.work();
        if let Some(at) = work.any_of(of.offset()) {
            let at = self.own(&work, at, of)?;
            return Ok(TypeNumber(work.pieces[at].after.type_number));
        }
        Ok(TypeNumber(self.slot_of(&mut work, of)?.type_number))
    }
}

/// Checks what the caller asked for against the slot.
fn check_asked(of: RawPtr, slot: &Slot, end: u64, typed: Option<(TypeNumber, u64)>) -> Result<()> {
    let len = u64::from(slot.len);
    if let Some((wanted, whole)) = typed
        && (wanted.0 != slot.type_number || whole != len)
    {
        let found = TypeNumber(slot.type_number);
        return Err(TxError::WrongType { object: of, wanted, found });
    }
    if end > len {
        return Err(TxError::OutOfBounds { object: of, end, len });
    }
    Ok(())
}

impl<M: Medium> Transaction for Tx<'_, M> {
    type Mut<'t, T: Persist>
        = Mut<'t, T>
    where
        Self: 't;

    #[inline]
    fn read<T: Persist>(&self, of: Ptr<T>) -> Result<T> {
        let mut value = T::zeroed();
        self.read_into(of, &mut value)?;
        Ok(value)
    }

    fn read_into<T: Persist>(&self, of: Ptr<T>, into: &mut T) -> Result<()> {
        let into = bytemuck::bytes_of_mut(into);
        let raw = of.raw();
        let mut work = self.work();
        let typed = (T::TYPE, into.len() as u64);
        if work.any_of_fast(raw.offset()) {
            if let Some(at) = work.any_of(raw.offset()) {
                let at = self.own(&work, at, raw)?;
                check_asked(raw, &work.pieces[at].after, 0, Some(typed))?;
            }
            self.read_mixed(&mut work, raw, 0, into)
        } else {
            self.read_committed(&mut work, raw, 0, into, Some(typed))
        }
    }

    fn read_start(&self, of: RawPtr, into: &mut [u8]) -> Result<u64> {
        let mut work = self.work();
        if !work.any_of_fast(of.offset())
            && let Some(len) = self.start_known(&mut work, of, into)
        {
            return Ok(len);
        }
        if work.any_of_fast(of.offset()) {
            let len = self.length(&mut work, of)?;
            let held = len.min(into.len() as u64) as usize;
            return self.read_mixed(&mut work, of, 0, &mut into[..held]).map(|()| len);
        }
        let seen = self.see(&mut work, of)?;
        let answer = self.start_seen(&seen, of, into);
        self.settle(&mut work, &seen)?;
        answer.map_err(|error| self.still(&work, error))
    }

    fn read_bytes(&self, of: RawPtr, from: u64, into: &mut [u8]) -> Result<()> {
        let mut work = self.work();
        if work.any_of_fast(of.offset()) {
            self.read_mixed(&mut work, of, from, into)
        } else {
            self.read_committed(&mut work, of, from, into, None)
        }
    }

    fn len_of(&self, of: RawPtr) -> Result<u64> {
        self.length(&mut self.work(), of)
    }

    fn open_mut<T: Persist>(&self, of: Ptr<T>) -> Result<Mut<'_, T>> {
        let raw = of.raw();
        let typed = (T::TYPE, size_of::<T>() as u64);
        let mut work = self.work();
        let at = match work.any_of(raw.offset()) {
            Some(at) => {
                let at = self.own(&work, at, raw)?;
                check_asked(raw, &work.pieces[at].after, 0, Some(typed))?;
                self.joined(&mut work, at, raw)?
            }
            None => self.open_piece(&mut work, raw, Part::WHOLE, Some(typed))?,
        };
        let lent = Mut::lend(&self.lane.arena, work.pieces[at].copies);
        work.changes += u64::from(lent.is_some());
        lent.ok_or(TxError::AlreadyOpen { object: raw })
    }

    fn write_bytes(&self, of: RawPtr, from: u64, bytes: &[u8]) -> Result<()> {
        let mut work = self.work();
        let end = from.saturating_add(bytes.len() as u64);
        let mut at = from;
        while at < end {
            let index = self.piece_for(&mut work, of, at, end)?;
            let Piece { first, count, copies, .. } = work.pieces[index];
            let base = first * GRANULE;
            let stop = end.min(base + count * GRANULE);
            let mut arena = self.lane.arena.borrow_mut();
            let (_, new) = arena.both_mut(copies).ok_or(TxError::AlreadyOpen { object: of })?;
            new[(at - base) as usize..(stop - base) as usize]
                .copy_from_slice(&bytes[(at - from) as usize..(stop - from) as usize]);
            work.changes += 1;
            at = stop;
        }
        Ok(())
    }

    fn alloc<T: Persist>(&self, value: T) -> Result<Ptr<T>> {
        let bytes = bytemuck::bytes_of(&value);
        Ok(self.fresh(T::TYPE, bytes.len() as u64, Some(bytes))?.typed())
    }

    fn alloc_bytes(&self, of: TypeNumber, len: u64) -> Result<RawPtr> {
        self.fresh(of, len, None)
    }

    fn alloc_from(&self, of: TypeNumber, bytes: &[u8]) -> Result<RawPtr> {
        self.fresh(of, bytes.len() as u64, Some(bytes))
    }

    fn free(&self, object: RawPtr) -> Result<()> {
        let mut work = self.work();
        let at = match work.any_of(object.offset()) {
            // The slot is patched: the first granule, whose sum covers it, must have been verified.
            Some(at) => {
                let _ = self.own(&work, at, object)?;
                self.piece_for(&mut work, object, 0, 0)?
            }
            None => self.open_piece(&mut work, object, Part { last: 0, ..Part::WHOLE }, None)?,
        };
        let spot = work.pieces[at].spot;
        self.shared.heap.know_run(&self.shared.m, &spot).map_err(damaged)?;
        let arena = self.lane.arena.borrow();
        let of_object = |p: &&mut Piece| p.spot.object == object.offset();
        let copies = work.pieces.iter_mut().filter(of_object).map(|p| p.copies);
        if copies.into_iter().any(|c| arena.new_bytes(c).is_none()) {
            return Err(TxError::AlreadyOpen { object });
        }
        work.changes += 1;
        work.remade = true;
        // One piece stands for the object from now on, the one whose slot was verified.
        let fate = if work.pieces[at].fate == Fate::Fresh { Fate::Nothing } else { Fate::Freed };
        for piece in work.pieces.iter_mut().filter(of_object) {
            piece.fate = Fate::Nothing;
        }
        work.pieces[at].fate = fate;
        Ok(())
    }

    fn whole<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        let before = self.work().changes;
        let watch = Watch(&self.lane, before);
        let done = part();
        core::mem::forget(watch);
        done.inspect_err(|error| self.work().doom_if_changed(before, error))
    }
}

/// Dropped only by a panic in a part of a transaction that has to be whole, which began when there
/// were so many changes: if the closure stops the panic, there is no whole to commit.
struct Watch<'a>(&'a LaneState, u64);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let error = TxError::cancel("a part of the transaction panicked");
        self.0.work.borrow_mut().doom_if_changed(self.1, &error);
    }
}
