//! Commit numbers, and the watermark L: up to where every commit is complete on the medium.
//!
//! # The rule that makes L true
//!
//! A lane publishes a *lower bound* of the number it is about to draw before it draws it, and
//! takes the bound back only when its commit is complete. Whoever computes L reads the counter
//! first and the bounds after. Were the bound published after the draw, a commit between the two
//! would be counted complete: its record would be ignored by recovery and lost.
//!
//! Why it holds: let a reader see the counter above s. Then its load synchronises with the draw
//! of s (or a later one), so it sees the bound of the lane that drew s, or something the lane
//! published after it: the number itself, the end of that commit, or the bound of a later one,
//! which is only published after that end. If it sees the counter at s or below, L is below s.
//!
//! # Which commits are complete
//!
//! In a log with copies apart: those whose data was drained ([`Numbers::done`] after F2). In an
//! adjacent log, on a file: `done` says *applied to memory*, and [`Numbers::watermark`] is what a
//! reclaim may sync; complete is what it synced, and that is [`Numbers::durable`].

use holdfast_pmem::{Medium, Site};

use holdfast_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The lane has no commit under way.
const IDLE: u64 = u64::MAX;

/// Publish the lower bound before drawing.
const BOUND: Site = Site::new("logs.numbers.bound");
/// The number is drawn, and not yet published itself.
const DRAWN: Site = Site::new("logs.numbers.drawn");
/// Take the bounds of the lanes into account.
const BUSY: Site = Site::new("logs.numbers.busy");

/// Keeps a word that one thread writes often off the lines of its neighbours, and off the line
/// that is fetched along with them.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The counter, what each lane has under way, and the durable watermark. One per pool.
#[derive(Debug)]
pub struct Numbers {
    /// The next number to be drawn.
    next: Padded<AtomicU64>,
    /// Largest watermark in a record that this process knows durable.
    durable: Padded<AtomicU64>,
    /// Lanes above this one never drew: nobody needs to look at them.
    used: Padded<AtomicUsize>,
    /// Times log space was freed otherwise than by a commit's own record.
    reclaims: AtomicU64,
    /// Per lane: a lower bound of the number under way, or `IDLE`.
    busy: Box<[Padded<AtomicU64>]>,
}

impl Numbers {
    /// Numbers for `lanes` lanes, the first one drawn being `first` (1 for a new log generation).
    #[must_use]
    pub fn new(lanes: usize, first: u64) -> Self {
        let first = first.max(1);
        Self {
            next: Padded(AtomicU64::new(first)),
            durable: Padded(AtomicU64::new(first - 1)),
            used: Padded(AtomicUsize::new(0)),
            reclaims: AtomicU64::new(0),
            busy: (0..lanes).map(|_| Padded(AtomicU64::new(IDLE))).collect(),
        }
    }

    /// Starts anew at `first`, after recovery. All lower numbers count as complete; no commit may
    /// be under way.
    pub fn start_at(&self, first: u64) {
        let first = first.max(1);
        self.durable.0.store(first - 1, Ordering::Release);
        self.next.0.store(first, Ordering::Release);
    }

    /// A number will be drawn soon: gets the counter's line to this thread meanwhile.
    #[inline]
    pub fn expect_draw(&self) {
        holdfast_pmem::claim(&self.next.0);
    }

    /// Draws the next number for `lane`, which the caller holds. The number stays under way, and
    /// the watermark below it, until [`done`](Self::done).
    ///
    /// One locked instruction: call it while nothing flushed by this thread is outstanding.
    #[inline]
    pub fn draw<M: Medium>(&self, m: &M, lane: usize) -> u64 {
        let busy = &self.busy[lane].0;
        if lane >= self.used.0.load(Ordering::Relaxed) {
            m.locked();
            self.used.0.fetch_max(lane + 1, Ordering::AcqRel);
        }
        // Relaxed: whatever value of the counter this is, the one drawn is not smaller.
        if m.enabled(BOUND) {
            busy.store(self.next.0.load(Ordering::Relaxed), Ordering::Release);
        }
        m.locked();
        let number = self.next.0.fetch_add(1, Ordering::AcqRel);
        m.step(DRAWN);
        busy.store(number, Ordering::Release);
        number
    }

    /// Draws a number for a change that has no record, and is complete when it is seen: no commit
    /// will ever have it. One locked instruction, as [`draw`](Self::draw).
    pub fn skip<M: Medium>(&self, m: &M) -> u64 {
        m.locked();
        self.next.0.fetch_add(1, Ordering::AcqRel)
    }

    /// The lane's commit is complete (copies apart) or applied to memory (adjacent), or was given
    /// up before any of its record was written.
    #[inline]
    pub fn done(&self, lane: usize) {
        self.busy[lane].0.store(IDLE, Ordering::Release);
    }

    /// L: every commit with a number up to this one is [`done`](Self::done). Two calls in a row
    /// may answer a smaller number the second time; both answers are true.
    #[inline]
    pub fn watermark<M: Medium>(&self, m: &M) -> u64 {
        // The counter first: see the module's rule.
        let mut low = self.next.0.load(Ordering::Acquire);
        let used = self.used.0.load(Ordering::Acquire);
        if m.enabled(BUSY) {
            for busy in self.busy.iter().take(used) {
                low = low.min(busy.0.load(Ordering::Acquire));
            }
        }
        low - 1
    }

    /// The next number to be drawn: what has a smaller one was drawn before this call.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }

    /// The largest watermark known to be in a durable record. Log space of commits up to it may
    /// be overwritten.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.0.load(Ordering::Acquire)
    }

    /// Times space of the log was freed since it was opened: reclaims that synced (adjacent
    /// placement), or records written only for their watermark. Few: what a commit writes carries
    /// one as well.
    #[must_use]
    pub fn reclaims(&self) -> u64 {
        self.reclaims.load(Ordering::Relaxed)
    }

    /// Counts one of those.
    pub(crate) fn count_reclaim(&self) {
        self.reclaims.fetch_add(1, Ordering::Relaxed);
    }

    /// A record with watermark `l` has become durable. A locked instruction if that is news.
    #[inline]
    pub fn raise_durable<M: Medium>(&self, m: &M, l: u64) {
        if l > self.durable.0.load(Ordering::Relaxed) {
            m.locked();
            self.durable.0.fetch_max(l, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use holdfast_faultmem::{Config, FaultMedium};
    use holdfast_pmem::MediumKind;

    use super::*;

    fn medium() -> FaultMedium {
        FaultMedium::new(4096, MediumKind::Dax, &Config::default())
    }

    #[test]
    fn the_watermark_is_below_the_oldest_commit_under_way() {
        let (m, n) = (medium(), Numbers::new(3, 10));
        assert_eq!((n.watermark(&m), n.durable(), n.next()), (9, 9, 10));
        assert_eq!((n.draw(&m, 2), n.draw(&m, 0), n.draw(&m, 1)), (10, 11, 12));
        n.done(0);
        assert_eq!(n.watermark(&m), 9);
        n.done(2);
        assert_eq!(n.watermark(&m), 11);
        n.done(1);
        assert_eq!(n.watermark(&m), 12);
    }

    #[test]
    fn durable_only_rises() {
        let (m, n) = (medium(), Numbers::new(1, 1));
        n.raise_durable(&m, 7);
        n.raise_durable(&m, 5);
        assert_eq!(n.durable(), 7);
        n.start_at(100);
        assert_eq!((n.durable(), n.next(), n.watermark(&m)), (99, 100, 99));
    }

    #[test]
    fn only_lanes_in_use_hold_the_watermark_back() {
        let (m, n) = (medium(), Numbers::new(64, 1));
        n.draw(&m, 63);
        n.draw(&m, 5);
        n.done(63);
        assert_eq!(n.watermark(&m), 1);
    }
}
