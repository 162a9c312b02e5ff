//! The log of a pool as commits see it: lanes to hold, room to reserve, records to commit.

use core::fmt;
use core::time::Duration;

use holdfast_layout::{LogPlacement, Superblock};
use holdfast_pmem::{MediaError, Medium};
use holdfast_sync::spin::{SpinMutex, SpinMutexGuard};

use crate::deferred::Deferred;
use crate::error::LogError;
use crate::format::{LINE_LEN, PAGE_LEN, RECORD_ENTRIES_MAX, RING_MARKS};
use crate::group::Group;
use crate::numbers::Numbers;
use crate::record::RecordBuilder;
use crate::ring::Ring;
use crate::seed::Seed;

/// A commit that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// A copy of the record that could not be written. The other one was: the commit stands, and
    /// the page named is to be repaired with [`Log::heal`].
    pub damaged: Option<MediaError>,
}

/// How a lane's records get to the medium.
#[derive(Debug)]
enum Path {
    /// Its own ring, one copy in each side. Boxed: it is large, the other variant is small.
    Apart(Box<Ring>),
    /// The group's batches; what is promised for the next record, and the number of the last one.
    Adjacent(Option<Promise>, u64),
}

/// Room promised by the group.
#[derive(Debug, Clone, Copy)]
struct Promise {
    pages: u64,
    /// Bytes of the record it is for.
    len: usize,
}

/// Keeps the lock words of two lanes off each other's lines. Nobody ever waits for one, and giving
/// it back is a plain store: a locked instruction there would wait for the drain before it, which
/// otherwise goes on while the thread prepares its next commit.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(SpinMutex<State>);

/// What a lane's holder works with.
#[derive(Debug)]
struct State {
    path: Path,
    deferred: Deferred,
}

/// The log of a pool: its lanes, and for adjacent placement the group they commit through.
#[derive(Debug)]
pub struct Log {
    lanes: Box<[Slot]>,
    group: Option<Group>,
    seed: Seed,
    max_record: usize,
    rings: Rings,
}

/// Where the rings of the lanes lie; the same in both sides.
#[derive(Debug, Clone, Copy)]
struct Rings {
    start: u64,
    ring_len: u64,
    side_len: u64,
    sides: u64,
}

impl Rings {
    /// The lane whose ring holds the byte at `at`, if one does.
    fn lane_of(&self, at: u64) -> Option<usize> {
        let side = (at / self.side_len < self.sides).then_some(at % self.side_len)?;
        usize::try_from(side.checked_sub(self.start)? / self.ring_len).ok()
    }

    /// Whether a copy of the ring of `lane` lies in `[at, at + len)`, even in part.
    fn lies_in(&self, lane: usize, at: u64, len: u64) -> bool {
        (0..self.sides).any(|side| {
            let start = side * self.side_len + self.start + lane as u64 * self.ring_len;
            start < at + len && at < start + self.ring_len
        })
    }
}

impl Log {
    /// The empty log of the pool's live generation. To be called when nothing of that generation
    /// was written yet: recovery and clean close raise it as their last step.
    ///
    /// # Errors
    /// [`LogError::Geometry`] if the log does not lie inside the medium or is too small.
    pub fn open<M: Medium>(m: &M, superblock: &Superblock) -> Result<Self, LogError> {
        Self::open_lingering(m, superblock, Duration::ZERO)
    }

    /// As [`open`](Self::open); with adjacent placement, a group leader waits as long as `linger`
    /// for company before it writes. Worth it only with many threads and a slow medium.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_lingering<M: Medium>(
        m: &M,
        superblock: &Superblock,
        linger: Duration,
    ) -> Result<Self, LogError> {
        check(m, superblock)?;
        let group = match superblock.log_placement {
            LogPlacement::Apart => None,
            LogPlacement::Adjacent => Some(Group::new(superblock, linger)?),
        };
        let lane = |lane: u32| {
            let path = match &group {
                None => Path::Apart(Box::new(Ring::new(superblock, lane))),
                Some(_) => Path::Adjacent(None, 0),
            };
            Slot(SpinMutex::new(State { path, deferred: Deferred::default() }))
        };
        let lanes: Box<[Slot]> = (0..superblock.lanes).map(lane).collect();
        let max_record = match &group {
            None => Ring::new(superblock, 0).capacity(),
            Some(group) => group.capacity(),
        };
        let rings = Rings {
            start: superblock.log_start,
            ring_len: superblock.ring_len,
            side_len: superblock.side_len,
            sides: if superblock.copies > 1 { 2 } else { 1 },
        };
        Ok(Self { lanes, group, seed: Seed::new(superblock), max_record, rings })
    }

    /// Number of lanes: how many commits can be under way at once.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Most bytes of a record ([`RecordBuilder::len`]); longer ones overflow into the heap.
    #[must_use]
    pub fn max_record_len(&self) -> usize {
        self.max_record
    }

    /// Whether a record fits this log. One that does not overflows into the heap: its
    /// [`body`](RecordBuilder::body) is written to two places there, and a record that says so
    /// ([`RecordBuilder::overflow`]) is committed in its stead.
    #[inline]
    #[must_use]
    pub fn fits(&self, record: &RecordBuilder) -> bool {
        record.len() <= self.max_record && record.entries() <= RECORD_ENTRIES_MAX
    }

    /// What binds overflow payloads to this pool and log generation.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Takes a free lane, looking at `hint` (modulo the number of lanes) first; `None` if all are
    /// held. A thread that keeps its hint keeps its lane, and its lines stay in its cache. One
    /// locked instruction if the first one is free.
    #[inline]
    pub fn acquire<M: Medium>(&self, m: &M, hint: usize) -> Option<Lane<'_>> {
        let lanes = self.lanes.len();
        (0..lanes).find_map(|i| self.acquire_exact(m, (hint % lanes + i) % lanes))
    }

    /// Takes this lane, if it is free.
    #[inline]
    pub fn acquire_exact<M: Medium>(&self, m: &M, lane: usize) -> Option<Lane<'_>> {
        m.locked();
        let state = self.lanes.get(lane)?.0.try_lock()?;
        Some(Lane { lane, state, group: self.group.as_ref() })
    }

    /// Whether a reclaim is due (adjacent placement) and nobody is at it: call
    /// [`reclaim`](Self::reclaim) soon, or commits will have to wait for it.
    #[inline]
    #[must_use]
    pub fn reclaim_due(&self) -> bool {
        self.group.as_ref().is_some_and(Group::reclaim_due)
    }

    /// With adjacent placement, waits until some batch that is being written is through: for who
    /// needs what a commit holds until then. Returns at once if there is none.
    pub fn await_batch(&self) {
        if let Some(group) = &self.group {
            group.await_batch();
        }
    }

    /// Syncs everything applied to memory so far, says so in a durable watermark record, and
    /// frees the log space it covers. Answers the watermark. With copies apart there is nothing
    /// to do: each commit drains its own data. Others may commit meanwhile.
    ///
    /// # Errors
    /// [`LogError::Stopped`]; the pool is read-only from then on.
    pub fn reclaim<M: Medium>(&self, m: &M, numbers: &Numbers) -> Result<u64, LogError> {
        match &self.group {
            Some(group) => group.reclaim(m, numbers),
            None => Ok(numbers.durable()),
        }
    }

    /// Whether the byte at `at` lies in a place this log writes to.
    #[must_use]
    pub fn contains(&self, at: u64) -> bool {
        match &self.group {
            Some(group) => group.contains(at),
            None => self.lane_of(at).is_some(),
        }
    }

    /// Rewrites a log page that turned bad, while the pool is in use: from the other copy where
    /// copies are apart, empty after a reclaim where they are adjacent. `None` if the lane it
    /// belongs to is held: try again when that commit is through. Nothing flushed by this thread
    /// may be outstanding.
    ///
    /// # Errors
    /// [`LogError::Media`] if the page stays bad: relocate its frame, then call this again.
    /// [`LogError::Geometry`] if the page is not of the log.
    pub fn heal<M: Medium>(
        &self,
        m: &M,
        numbers: &Numbers,
        at: u64,
    ) -> Option<Result<(), LogError>> {
        if !self.contains(at) {
            let what = "a page outside it was to be healed";
            return Some(Err(LogError::Geometry { what, value: at }));
        }
        if let Some(group) = &self.group {
            return Some(group.heal(m, numbers, at));
        }
        let lane = self.lane_of(at)?;
        let mut lane = self.acquire_exact(m, lane)?;
        match &mut lane.state.path {
            Path::Apart(ring) => Some(ring.heal(m, numbers, at)),
            Path::Adjacent(..) => None,
        }
    }

    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Whether a copy of the ring of `lane` lies in `[at, at + len)`, even in part.
    pub(crate) fn lies_in(&self, lane: usize, at: u64, len: u64) -> bool {
        self.rings.lies_in(lane, at, len)
    }

    /// Whether the byte at `at` lies in what the pool sets aside for its log, in use or not. Takes
    /// no lock.
    #[must_use]
    pub fn owns(&self, at: u64) -> bool {
        self.lane_of(at).is_some()
    }

    /// Where the other copy of the page of a ring is, if copies are apart and there are two.
    #[must_use]
    pub fn twin(&self, page: u64) -> Option<u64> {
        let Rings { side_len, sides, .. } = self.rings;
        let twin = if page < side_len { page + side_len } else { page - side_len };
        (self.group.is_none() && sides > 1 && self.lane_of(page).is_some()).then_some(twin)
    }

    /// The lane whose ring holds the byte at `at`.
    fn lane_of(&self, at: u64) -> Option<usize> {
        self.rings.lane_of(at).filter(|lane| *lane < self.lanes.len())
    }
}

/// A lane that is held, until dropped: through the whole of a transaction's commit, up to the
/// last drain.
pub struct Lane<'a> {
    lane: usize,
    state: SpinMutexGuard<'a, State>,
    group: Option<&'a Group>,
}

impl Lane<'_> {
    /// The lane's number: what [`Numbers::draw`] and [`Numbers::done`] want.
    #[inline]
    #[must_use]
    pub fn id(&self) -> usize {
        self.lane
    }

    /// Leaves the stores of the commit just made, which [`commit_storing`](Self::commit_storing)
    /// was told, to be drained later: its number stays under way.
    #[inline]
    pub fn defer(&mut self) {
        self.state.deferred.leave();
    }

    /// What the last commit of the lane left to be drained.
    #[inline]
    #[must_use]
    pub fn deferred(&self) -> Option<&Deferred> {
        let deferred = &self.state.deferred;
        deferred.is_due().then_some(deferred)
    }

    /// That was drained: its commit is complete.
    #[inline]
    pub fn drained(&mut self, numbers: &Numbers) {
        self.state.deferred.clear();
        numbers.done(self.lane);
    }

    /// Makes sure that the log has room for a record of `len` bytes ([`RecordBuilder::len`]).
    /// To be called before a number is drawn: while a lane waits for room it must not hold
    /// others back. `wait` is called as long as there is no room; it lets others go on, or
    /// reclaims; once it answers false this gives up.
    ///
    /// Room is for one record, and is used up by [`commit_record`](Self::commit_record) or given
    /// back by [`cancel`](Self::cancel), by the next `reserve`, and on drop.
    ///
    /// # Errors
    /// [`LogError::TooBig`], [`LogError::GaveUp`], [`LogError::Media`] (both copies of a
    /// watermark record), [`LogError::Stopped`]. Nothing is reserved then.
    #[inline]
    pub fn reserve<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        len: usize,
        wait: impl FnMut() -> bool,
    ) -> Result<(), LogError> {
        self.cancel();
        match &mut self.state.path {
            Path::Apart(ring) => {
                fit(len, ring.capacity())?;
                ring.reserve(m, numbers, len, wait)
            }
            Path::Adjacent(promised, _) => {
                let group = self.group.ok_or(LogError::NoRoom)?;
                fit(len, group.capacity())?;
                *promised = Some(Promise { pages: group.reserve(len, wait)?, len });
                Ok(())
            }
        }
    }

    /// Gives back reserved room: the transaction aborts before its commit.
    #[inline]
    pub fn cancel(&mut self) {
        match &mut self.state.path {
            Path::Apart(ring) => ring.cancel(),
            Path::Adjacent(promised, _) => {
                if let (Some(promise), Some(group)) = (promised.take(), self.group) {
                    group.cancel(promise.pages);
                }
            }
        }
    }

    /// Commits `record` under `number`: once this returns `Ok`, the record is on the medium. One
    /// drain (copies apart) or one append, shared with whoever commits at the same time
    /// (adjacent).
    ///
    /// `number` was drawn by this lane, after [`reserve`](Self::reserve), and is not done.
    ///
    /// # Errors
    /// [`LogError::Media`]: no copy could be written; not committed. [`LogError::Stopped`]: not
    /// known whether it is committed; nothing may be applied. [`LogError::Empty`],
    /// [`LogError::TooBig`], [`LogError::NoRoom`]: the caller's mistake; not committed.
    #[inline]
    pub fn commit_record<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        number: u64,
        record: &mut RecordBuilder,
    ) -> Result<Committed, LogError> {
        self.commit_storing(m, numbers, number, record, core::iter::empty())
    }

    /// As [`commit_record`](Self::commit_record), for who may [`defer`](Self::defer) what it is
    /// going to store: `stores`, at most [`DEFERRED_MAX`](crate::DEFERRED_MAX) ranges, all through
    /// the cache. They are noted while the record is on its way: after the drain, when they are
    /// known to be stored, each store of the program would lengthen the wait.
    ///
    /// # Errors
    /// As [`commit_record`](Self::commit_record).
    #[inline]
    pub fn commit_storing<M: Medium>(
        &mut self,
        m: &M,
        numbers: &Numbers,
        number: u64,
        record: &mut RecordBuilder,
        stores: impl Iterator<Item = (u64, u32)>,
    ) -> Result<Committed, LogError> {
        let State { path, deferred } = &mut *self.state;
        match path {
            Path::Apart(ring) => {
                let damaged = ring.commit(m, numbers, number, record, || deferred.note(stores))?;
                Ok(Committed { damaged })
            }
            Path::Adjacent(promised, last) => {
                let group = self.group.ok_or(LogError::NoRoom)?;
                record.check(group.capacity())?;
                let pages = match *promised {
                    Some(Promise { pages, len }) if len >= record.len() => pages,
                    _ => return Err(LogError::NoRoom),
                };
                *promised = None;
                group.commit(m, numbers, number, record, *last, pages)?;
                *last = number;
                Ok(Committed { damaged: None })
            }
        }
    }

    /// Makes the newest watermark durable, in a record of its own if need be: for whoever must
    /// know that recovery will ignore the records up to some number. One drain. With adjacent
    /// copies only a [`reclaim`](Log::reclaim) can do that; this does nothing then.
    ///
    /// # Errors
    /// [`LogError::Media`] if neither copy of the watermark record could be written.
    pub fn mark<M: Medium>(&mut self, m: &M, numbers: &Numbers) -> Result<(), LogError> {
        match &mut self.state.path {
            Path::Apart(ring) => ring.mark_newest(m, numbers),
            Path::Adjacent(..) => Ok(()),
        }
    }
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// Refuses a record of more than `max` bytes.
#[inline]
fn fit(len: usize, max: usize) -> Result<(), LogError> {
    if len > max {
        return Err(LogError::TooBig { len: len as u64, max: max as u64 });
    }
    Ok(())
}

/// Refuses a log that does not lie inside the medium, whatever the superblock says.
pub(crate) fn check<M: Medium>(m: &M, superblock: &Superblock) -> Result<(), LogError> {
    let fail = |what, value| Err(LogError::Geometry { what, value });
    let Superblock { lanes, ring_len, log_start, side_len, .. } = *superblock;
    if lanes == 0 || ring_len % PAGE_LEN != 0 || ring_len == 0 {
        return fail("its rings are not whole pages", ring_len);
    }
    if ring_len / LINE_LEN as u64 > u64::from(u32::MAX - RING_MARKS) {
        return fail("its rings are too long", ring_len);
    }
    if log_start % PAGE_LEN != 0 || side_len % PAGE_LEN != 0 {
        return fail("it does not start at a page", log_start);
    }
    let log = u64::from(lanes).checked_mul(ring_len);
    let end = log.and_then(|len| log_start.checked_add(len));
    match end {
        Some(end) if end <= side_len => {}
        _ => return fail("it does not fit its side", log_start),
    }
    match side_len.checked_mul(2) {
        Some(sides) if sides <= m.len() => Ok(()),
        _ => fail("a side lies outside the medium", side_len),
    }
}
