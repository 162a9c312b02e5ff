//! What can be done to a medium, and the log of what was done.

use holdfast_pmem::Site;

/// Whether rewriting a poisoned page makes it readable again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clear {
    /// A rewrite through [`heal`](holdfast_pmem::Medium::heal) clears it.
    Able,
    /// It stays bad for ever: its frame must be relocated.
    Unable,
}

/// Which words of a torn write reach the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Torn {
    /// Only the first so many words that the write touches.
    Prefix(u64),
    /// Each word by the toss of a coin, drawn from this seed.
    Subset(u64),
}

/// A fault of one write, armed in advance. The program sees its write succeed; once the barrier
/// that makes it durable has returned, the medium and the program's view show what the device
/// made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The device acknowledges the write and keeps the old bytes.
    Lost,
    /// The bytes land at `to`; the place meant keeps the old ones.
    Misdirected {
        /// Where the bytes land, as an offset into the pool.
        to: u64,
    },
    /// Only some words land.
    Torn(Torn),
}

/// Which write an armed fault hits.
///
/// Counted are the writes (`put`, `xor`, `zero`, `append`, `heal`) that touch the range and that
/// the fault would change by at least one byte, so that every fault injected is a real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct When {
    start: u64,
    end: u64,
    nth: u64,
}

impl When {
    /// The next write anywhere.
    #[must_use]
    pub const fn next() -> Self {
        Self { start: 0, end: u64::MAX, nth: 1 }
    }

    /// The next write that touches `[at, at + len)`.
    #[must_use]
    pub const fn touching(at: u64, len: u64) -> Self {
        Self { start: at, end: at.saturating_add(len), nth: 1 }
    }

    /// The same writes, but the `nth` of them (1 is the first; 0 is taken as 1).
    #[must_use]
    pub const fn nth(self, nth: u64) -> Self {
        Self { nth: if nth == 0 { 1 } else { nth }, ..self }
    }

    fn touches(&self, at: u64, len: u64) -> bool {
        at < self.end && self.start < at.saturating_add(len)
    }
}

/// What an injection did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// One bit of the byte at `at` changed.
    BitFlip {
        /// 0 is the lowest.
        bit: u8,
    },
    /// Bytes were overwritten behind the program's back.
    Stray,
    /// Pages became unreadable.
    Poison(Clear),
    /// A write went wrong.
    Write(FaultKind),
}

/// One entry of the log of injected faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// What was done.
    pub damage: Damage,
    /// The write that was hit, for [`Damage::Write`].
    pub site: Option<Site>,
    /// First byte, as an offset into the pool.
    pub at: u64,
    /// Bytes affected.
    pub len: u64,
    /// Content of the place before. Empty for poison.
    pub before: Vec<u8>,
    /// What the program believes to be there. Empty for poison.
    pub intended: Vec<u8>,
    /// What is there once the fault has taken effect. Empty for poison.
    pub after: Vec<u8>,
    /// For a misdirected write, content of the place it lands on, before.
    pub target_before: Vec<u8>,
    /// Whether the fault has taken effect, wholly. A faulty write does so at the barriers that
    /// would have made it durable, and never if newer stores replaced all of it first.
    pub settled: bool,
    /// Bytes of the place meant that a faulty write has left other than the program saw them, so
    /// far: what is stored into a word before its barrier takes the rest of it along, and what
    /// others stored to a word that is dropped goes with it.
    pub fell: Vec<Fallen>,
    /// Bytes that a misdirected write has changed where it landed, so far.
    pub landed: Vec<Fallen>,
    /// [Stores](crate::FaultMedium::stores) made before the fault; of a faulty write, with it.
    pub stores: u64,
}

/// A byte that a faulty write has left wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallen {
    /// Where it is, as an offset into the pool.
    pub at: u64,
    /// [Stores](crate::FaultMedium::stores) made before it went wrong.
    pub stores: u64,
}

/// A fault waiting for its write.
#[derive(Debug, Clone, Copy)]
struct Armed {
    kind: FaultKind,
    when: When,
}

/// The faults waiting for their writes.
#[derive(Debug, Default)]
pub(crate) struct Arsenal(Vec<Armed>);

/// A write about to be made, as an armed fault looks at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) at: u64,
    pub(crate) before: &'a [u8],
    pub(crate) intended: &'a [u8],
    /// Length of the medium.
    pub(crate) medium: u64,
}

impl Arsenal {
    pub(crate) fn arm(&mut self, kind: FaultKind, when: When) {
        self.0.push(Armed { kind, when });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn disarm(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Counts a write against every armed fault; returns the one that hits it, if any, with what
    /// the medium will hold. At most one fault hits a write; others that are due take the next.
    pub(crate) fn fire(&mut self, target: &Target<'_>) -> Option<(FaultKind, Vec<u8>)> {
        let mut hit = None;
        for (index, armed) in self.0.iter_mut().enumerate() {
            let after = outcome(armed.kind, target);
            let matters = after.as_ref().is_some_and(|after| after != target.intended);
            if !matters || !armed.when.touches(target.at, target.intended.len() as u64) {
                continue;
            }
            if armed.when.nth > 1 {
                armed.when.nth -= 1;
            } else if hit.is_none() {
                hit = after.map(|after| (index, armed.kind, after));
            }
        }
        let (index, kind, after) = hit?;
        self.0.remove(index);
        Some((kind, after))
    }
}

/// What the place meant holds after a faulty write, or `None` if the fault cannot hit it.
fn outcome(kind: FaultKind, target: &Target<'_>) -> Option<Vec<u8>> {
    match kind {
        FaultKind::Lost => Some(target.before.to_vec()),
        FaultKind::Misdirected { to } => {
            let end = to.checked_add(target.intended.len() as u64)?;
            (end <= target.medium && to != target.at).then(|| target.before.to_vec())
        }
        FaultKind::Torn(torn) => {
            let first = target.at / 8;
            let pairs = target.before.iter().zip(target.intended).enumerate();
            let mixed = pairs.map(|(index, (&before, &intended))| {
                let word = (target.at + index as u64) / 8 - first;
                if lands(torn, word) { intended } else { before }
            });
            Some(mixed.collect())
        }
    }
}

/// Whether the word numbered `index` among those a torn write touches reaches the medium.
pub(crate) fn lands(torn: Torn, index: u64) -> bool {
    match torn {
        Torn::Prefix(words) => index < words,
        Torn::Subset(seed) => crate::rng::Rng::new(seed, index).next() & 1 == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn target<'a>(at: u64, before: &'a [u8], intended: &'a [u8]) -> Target<'a> {
        Target { at, before, intended, medium: 1 << 20 }
    }

    #[test]
    fn counts_only_writes_that_it_would_change() {
        let mut arsenal = Arsenal::default();
        arsenal.arm(FaultKind::Lost, When::touching(100, 8).nth(2));
        assert!(arsenal.fire(&target(100, &[1], &[1])).is_none(), "changes nothing");
        assert!(arsenal.fire(&target(90, &[1; 10], &[2; 10])).is_none(), "ends before the range");
        assert!(arsenal.fire(&target(99, &[1, 1], &[2, 2])).is_none(), "the first");
        assert!(arsenal.fire(&target(108, &[1], &[2])).is_none(), "starts behind the range");
        let (kind, after) = arsenal.fire(&target(107, &[1], &[2])).expect("the second");
        assert_eq!((kind, after), (FaultKind::Lost, vec![1]));
        assert!(arsenal.fire(&target(107, &[1], &[2])).is_none(), "used up");
    }

    #[test]
    fn one_write_takes_one_fault() {
        let mut arsenal = Arsenal::default();
        arsenal.arm(FaultKind::Lost, When::next());
        arsenal.arm(FaultKind::Torn(Torn::Prefix(0)), When::next());
        assert_eq!(arsenal.fire(&target(0, &[1], &[2])).map(|hit| hit.0), Some(FaultKind::Lost));
        assert_eq!(arsenal.len(), 1);
        assert!(arsenal.fire(&target(0, &[1], &[2])).is_some());
    }

    #[test]
    fn torn_writes_tear_between_aligned_words() {
        let (before, intended) = ([1; 20], [2; 20]);
        let mut arsenal = Arsenal::default();
        arsenal.arm(FaultKind::Torn(Torn::Prefix(2)), When::next());
        let (_, after) = arsenal.fire(&target(4, &before, &intended)).expect("it matters");
        let mut expected = [2; 20];
        expected[12..].fill(1);
        assert_eq!(after, expected, "bytes 4..8 and 8..16 landed, 16..24 did not");
    }

    #[test]
    fn a_torn_write_that_lands_whole_waits_for_another() {
        let mut arsenal = Arsenal::default();
        arsenal.arm(FaultKind::Torn(Torn::Prefix(9)), When::next());
        assert!(arsenal.fire(&target(0, &[1; 16], &[2; 16])).is_none());
        assert_eq!(arsenal.len(), 1);
    }

    #[test]
    fn a_misdirected_write_needs_room_where_it_lands() {
        let mut arsenal = Arsenal::default();
        arsenal.arm(FaultKind::Misdirected { to: (1 << 20) - 1 }, When::next());
        assert!(arsenal.fire(&target(0, &[1; 2], &[2; 2])).is_none());
        assert!(arsenal.fire(&target(0, &[1; 1], &[2; 1])).is_some());
    }
}
