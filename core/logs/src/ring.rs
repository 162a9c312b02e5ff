//! A lane's ring: where its records go, in both sides, and when they may go there.
//!
//! ```text
//! line  0        1        2                                          ring_len / 64
//!       | mark 0 | mark 1 | record | record | ...  | (tail too short) |
//! ```
//!
//! Both copies are the same bytes at the same place of their side, so either heals the other.

use holdfast_layout::Superblock;
use holdfast_pmem::{MediaError, Medium, Site};

use crate::error::LogError;
use crate::format::{LINE_LEN, PAGE_LEN, RECORD_LINES_MAX};
use crate::numbers::Numbers;
use crate::record::{RecordBuilder, mark};
use crate::seed::Seed;
use crate::space::{Place, Space};

/// Commits after which a lane looks at all lanes again for a newer watermark.
const REFRESH: u32 = 16;

/// Overwrite a record only if a durable watermark covers it.
const REUSE: Site = Site::new("logs.ring.reuse");
/// Copy A of a record.
const RECORD_A: Site = Site::new("logs.ring.record_a");
/// Copy B of a record.
const RECORD_B: Site = Site::new("logs.ring.record_b");
/// Both copies are on their way and nothing is certain yet.
const RECORDED: Site = Site::new("logs.ring.recorded");
/// The commit point.
const F1: Site = Site::new("logs.ring.F1");
/// Sums of records, and of watermark records.
const SUM: Site = Site::new("logs.ring.sum");
const MARK_SUM: Site = Site::new("logs.ring.mark-sum");
/// Copy A of a watermark record.
const MARK_A: Site = Site::new("logs.ring.mark_a");
/// Copy B of a watermark record.
const MARK_B: Site = Site::new("logs.ring.mark_b");
/// The watermark record is durable, before what it covers is overwritten.
const MARKED: Site = Site::new("logs.ring.marked");
/// Write the watermark records in turn, not over the one that is in force.
const TURN: Site = Site::new("logs.ring.turn");
/// The rewrite of a bad page of a ring.
const HEAL: Site = Site::new("logs.ring.heal");
/// The rewrite of its other copy, if that was bad too.
const HEAL_TWIN: Site = Site::new("logs.ring.heal_twin");

/// What a lane's holder knows about its ring. Rebuilt empty at every open: the log generation was
/// raised before, so nothing in the ring certifies. Starts a line of its own: its lane writes to it
/// at each commit, and the rings of all lanes are made one after the other.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Ring {
    seed: Seed,
    /// Start of copy A, as an offset into the pool.
    a: u64,
    /// Start of copy B, if the pool keeps two.
    b: Option<u64>,
    len: u64,
    space: Space,
    /// Place of the next record.
    reserved: Option<Place>,
    /// Newest watermark this lane has computed.
    watermark: u64,
    /// Newest watermark this lane has made durable, or found to be.
    known: u64,
    /// What others were told of that.
    told: u64,
    /// Commits since the watermark was computed.
    age: u32,
    /// Which watermark line is written next.
    turn: bool,
    /// Number of the newest record; 0 if there is none.
    last: u64,
    /// Copy that could not be written, and was not reported yet.
    damaged: Option<MediaError>,
}

impl Ring {
    /// The ring of `lane`. The superblock's fields were checked by `Log::open`.
    pub(crate) fn new(superblock: &Superblock, lane: u32) -> Self {
        let start = superblock.log_start + u64::from(lane) * superblock.ring_len;
        let lines = (superblock.ring_len / LINE_LEN as u64).min(u32::MAX.into());
        Self {
            seed: Seed::new(superblock).lane(lane),
            a: start,
            b: (superblock.copies > 1).then_some(superblock.side_len + start),
            len: superblock.ring_len,
            space: Space::new(lines as u32),
            reserved: None,
            watermark: 0,
            known: 0,
            told: 0,
            age: 0,
            turn: false,
            last: 0,
            damaged: None,
        }
    }

    /// Most bytes of a record.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        (self.space.capacity() as usize).min(RECORD_LINES_MAX) * LINE_LEN
    }

    /// Step 3: makes sure that a record of `len` bytes has room. If what it would overwrite is
    /// not covered by a durable watermark, a newer watermark is written; if there is none, `wait`
    /// lets other lanes go on, until it answers false.
    ///
    /// The caller has drawn no number, so it holds back nobody while it waits.
    #[inline]
    pub(crate) fn reserve<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        len: usize,
        mut wait: impl FnMut() -> bool,
    ) -> Result<(), LogError> {
        self.tell(m, numbers);
        let place = self.space.place(len.max(LINE_LEN).div_ceil(LINE_LEN) as u32);
        let needed = self.space.overwrites(&place);
        if needed > self.known && m.enabled(REUSE) {
            while needed > numbers.durable() {
                self.refresh(m, numbers);
                if self.watermark >= needed {
                    self.write_mark(m, numbers)?;
                } else if !wait() {
                    return Err(LogError::GaveUp);
                }
            }
            self.known = numbers.durable();
            // What allows the overwriting is carried on by what overwrites.
            self.watermark = self.watermark.max(self.known);
        }
        self.reserved = Some(place);
        Ok(())
    }

    /// Gives back what was reserved and not used.
    #[inline]
    pub(crate) fn cancel(&mut self) {
        self.reserved = None;
    }

    /// Steps 5 and F1: the record goes to both copies, and is committed once they are drained.
    /// One copy is enough; the answer names one that could not be written. `meanwhile` is done
    /// while they are on their way.
    #[inline]
    pub(crate) fn commit<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        number: u64,
        record: &mut RecordBuilder,
        meanwhile: impl FnOnce(),
    ) -> Result<Option<MediaError>, LogError> {
        record.check(self.capacity())?;
        let place = match self.reserved {
            Some(place) if place.lines as usize * LINE_LEN >= record.len() => place,
            _ => return Err(LogError::NoRoom),
        };
        self.reserved = None;
        self.age += 1;
        // Looking ahead, so that the next record finds its room without a record just for that.
        if self.age >= REFRESH || self.space.overwrites_next(&place) > self.known {
            self.refresh(m, numbers);
        }
        let watermark = self.watermark.min(number.saturating_sub(1));
        let offset = u64::from(place.line) * LINE_LEN as u64;
        let seed = self.seed.place(offset);
        let bytes = record.seal(seed, number, self.last, watermark, m.enabled(SUM));
        let a = m.put_aside(RECORD_A, self.a + offset, bytes);
        let b = self.b.map(|b| m.put_aside(RECORD_B, b + offset, bytes));
        m.step(RECORDED);
        let written = self.either(a, b);
        self.space.take(&place, number);
        written.map_err(LogError::Media)?;
        self.last = number;
        meanwhile();
        m.drain(F1);
        // Others are told at this lane's next record: telling takes a locked instruction, which
        // would wait for the drain.
        self.known = self.known.max(watermark);
        Ok(self.damaged.take())
    }

    /// Makes the newest watermark durable, if it is news.
    pub(crate) fn mark_newest<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
    ) -> Result<(), LogError> {
        self.tell(m, numbers);
        self.refresh(m, numbers);
        if self.watermark > numbers.durable() { self.write_mark(m, numbers) } else { Ok(()) }
    }

    /// Rewrites a page of this ring that turned bad, from its other copy. If that is bad too,
    /// both become zero: the records they held are lost, which matters only if the machine stops
    /// before every commit up to now is complete and covered by a newer watermark.
    ///
    /// Safe while other lanes commit; this lane's holder is the caller. Nothing may be
    /// outstanding. Ends with a new watermark record, in case the page held the newest one.
    pub(crate) fn heal<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        at: u64,
    ) -> Result<(), LogError> {
        let page = at / PAGE_LEN * PAGE_LEN;
        let twin = match self.b {
            Some(b) if self.holds(b, page) => Some(page - b + self.a),
            Some(b) if self.holds(self.a, page) => Some(page - self.a + b),
            _ => None,
        };
        let mut bytes = vec![0; PAGE_LEN as usize];
        if let Some(twin) = twin
            && m.read(twin, &mut bytes).is_err()
        {
            bytes.fill(0);
            m.heal(HEAL_TWIN, twin, &bytes).map_err(LogError::Media)?;
        }
        m.heal(HEAL, page, &bytes).map_err(LogError::Media)?;
        self.refresh(m, numbers);
        self.watermark = self.watermark.max(numbers.durable());
        self.write_mark(m, numbers)
    }

    /// Whether the ring copy that starts at `start` holds the byte at `at`.
    fn holds(&self, start: u64, at: u64) -> bool {
        at >= start && at - start < self.len
    }

    /// Writes a record that carries nothing but the watermark. The two places take turns: until
    /// the new one is durable, the old one is what allows earlier overwriting.
    fn write_mark<M: Medium>(&mut self, m: &M, numbers: &Numbers) -> Result<(), LogError> {
        if self.watermark == 0 {
            return Ok(());
        }
        let offset = if self.turn { LINE_LEN as u64 } else { 0 };
        self.turn = !self.turn && m.enabled(TURN);
        let line = mark(self.seed.place(offset), self.watermark, m.enabled(MARK_SUM));
        let a = m.put(MARK_A, self.a + offset, &line);
        let b = self.b.map(|b| m.put(MARK_B, b + offset, &line));
        self.either(a, b).map_err(LogError::Media)?;
        m.drain(MARKED);
        self.known = self.known.max(self.watermark);
        self.tell(m, numbers);
        numbers.count_reclaim();
        Ok(())
    }

    #[inline]
    fn refresh<M: Medium>(&mut self, m: &M, numbers: &Numbers) {
        // Both are true, and the larger says more.
        self.watermark = self.watermark.max(numbers.watermark(m));
        self.age = 0;
    }

    /// Tells others which watermark this lane made durable.
    #[inline]
    fn tell<M: Medium>(&mut self, m: &M, numbers: &Numbers) {
        if self.known > self.told {
            numbers.raise_durable(m, self.known);
            self.told = self.known;
        }
    }

    /// Success if at least one copy was written; remembers the other's error.
    #[inline]
    fn either(
        &mut self,
        a: Result<(), MediaError>,
        b: Option<Result<(), MediaError>>,
    ) -> Result<(), MediaError> {
        match (a, b) {
            (Ok(()), None | Some(Ok(()))) => Ok(()),
            (Ok(()), Some(Err(e))) | (Err(e), Some(Ok(()))) => {
                self.damaged = Some(e);
                Ok(())
            }
            (Err(e), None | Some(Err(_))) => Err(e),
        }
    }
}
