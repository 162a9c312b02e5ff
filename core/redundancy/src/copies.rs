//! Two copies of one page: how each is stored, and in which order.
//!
//! # Life of a write
//!
//! 1. If copy B is the only newest one (A is damaged or stale), A is healed from B first: the only
//!    copy of what is valid is never overwritten.
//! 2. Copy B is stored. **Drain.**
//! 3. Copy A is stored. **Drain.**
//!
//! | crash | B | A | read answers |
//! |---|---|---|---|
//! | in 2 | torn | old | old |
//! | after the drain of 2 | new | old | new, and A is stale |
//! | in 3 | new | torn | new, and A is bad |
//! | after 3 | new | new | new |
//!
//! On [`MediumKind::File`] each store is an `append`, which is durable and ordered by itself.

use holdfast_layout::format::PAGE_LEN;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site};

use crate::error::Result;
use crate::verdict::Side;

/// Names of the stores and drains of one place in the code that writes a mirrored page.
#[derive(Debug, Clone, Copy)]
pub struct MirrorSites {
    /// Store to side B.
    pub b: Site,
    /// Drain after it.
    pub drain_b: Site,
    /// Store to side A.
    pub a: Site,
    /// Drain after it.
    pub drain_a: Site,
    /// Rewriting a copy that cannot be stored to.
    pub clear: Site,
    /// Rewriting a copy that was found to be bad.
    pub heal: Site,
}

/// What a copy is to survive before the next one is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// What the kind of the medium is about.
    Kind,
    /// The loss of power, whatever the kind.
    Power,
}

impl Against {
    /// What was stored survives that; elsewhere than on a file, a drain alone may not do.
    fn settle<M: Medium>(self, m: &M, site: Site) -> Result<()> {
        if self == Self::Power && m.kind() != MediumKind::File {
            m.sync_through(site)?;
        }
        Ok(())
    }
}

/// What was found where a copy has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// A valid copy with this sequence, the newest.
    Good(u64),
    /// A valid copy with this sequence, older than the other one.
    Stale(u64),
    /// Bytes that do not verify.
    Invalid,
    /// Nothing can be read there.
    Unreadable(MediaError),
    /// The pool keeps one copy only.
    None,
}

impl CopyState {
    /// Whether the copy has to be written again from the other one.
    #[must_use]
    pub const fn needs_heal(self) -> bool {
        matches!(self, Self::Stale(_) | Self::Invalid | Self::Unreadable(_))
    }

    /// Whether the copy is damaged; a stale one is what a crash or a lost write leaves.
    #[must_use]
    pub const fn is_damaged(self) -> bool {
        matches!(self, Self::Invalid | Self::Unreadable(_))
    }
}

impl core::fmt::Display for CopyState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Good(sequence) => write!(f, "is good (sequence {sequence})"),
            Self::Stale(sequence) => write!(f, "is old (sequence {sequence})"),
            Self::Invalid => f.write_str("does not verify"),
            Self::Unreadable(error) => write!(f, "is unreadable ({error})"),
            Self::None => f.write_str("is not kept"),
        }
    }
}

/// Where the copies of one page are; `b` is missing in pools with one copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) a: u64,
    pub(crate) b: Option<u64>,
}

/// The newest valid copy and what was found in both places.
#[derive(Debug)]
pub(crate) struct Newest<T> {
    pub(crate) value: Option<T>,
    pub(crate) a: CopyState,
    pub(crate) b: CopyState,
}

/// Reads both copies; `decode` verifies a page and tells its sequence.
pub(crate) fn read<M: Medium, T>(
    m: &M,
    places: Places,
    decode: impl Fn(&[u8]) -> Option<(u64, T)>,
) -> Newest<T> {
    let one = |at| {
        let mut page = vec![0; PAGE_LEN];
        match m.read(at, &mut page) {
            Err(error) => (None, CopyState::Unreadable(error)),
            Ok(()) => match decode(&page) {
                None => (None, CopyState::Invalid),
                Some((sequence, value)) => (Some(value), CopyState::Good(sequence)),
            },
        }
    };
    let (a, mut a_state) = one(places.a);
    let (b, mut b_state) = places.b.map_or((None, CopyState::None), one);
    let mut newer_b = a.is_none();
    if let (CopyState::Good(in_a), CopyState::Good(in_b)) = (a_state, b_state) {
        newer_b = in_b > in_a;
        if newer_b {
            a_state = CopyState::Stale(in_a);
        } else if in_a > in_b {
            b_state = CopyState::Stale(in_b);
        }
    }
    Newest { value: if newer_b { b } else { a }, a: a_state, b: b_state }
}

/// Stores `page` in both places, in the order that keeps one of them valid. Answers the sides
/// whose page had been bad and was cleared by it.
pub(crate) fn write<M: Medium>(
    m: &M,
    places: Places,
    page: &[u8],
    sites: MirrorSites,
    against: Against,
) -> Result<Vec<Side>> {
    let mut cleared = Vec::new();
    if let Some(b) = places.b {
        let sites_b = StoreSites { put: sites.b, drain: sites.drain_b, clear: sites.clear };
        if store(m, b, page, sites_b)? {
            cleared.push(Side::B);
        }
        against.settle(m, sites.drain_b)?;
    }
    let sites_a = StoreSites { put: sites.a, drain: sites.drain_a, clear: sites.clear };
    if store(m, places.a, page, sites_a)? {
        cleared.push(Side::A);
    }
    against.settle(m, sites.drain_a)?;
    Ok(cleared)
}

/// Rewrites what is stale or damaged with `page`, clearing poison. Durable on return.
pub(crate) fn heal<M: Medium>(
    m: &M,
    places: Places,
    states: (CopyState, CopyState),
    page: &[u8],
    site: Site,
) -> Result<Vec<Side>> {
    let b = places.b.map(|b| (Side::B, b, states.1));
    let mut healed = Vec::new();
    for (side, at, state) in b.into_iter().chain([(Side::A, places.a, states.0)]) {
        if state.needs_heal() {
            m.heal(site, at, page)?;
            healed.push(side);
        }
    }
    Ok(healed)
}

/// Names of what is done to one copy.
#[derive(Debug, Clone, Copy)]
struct StoreSites {
    put: Site,
    drain: Site,
    clear: Site,
}

/// Stores a page and makes it durable; true if it had been bad.
fn store<M: Medium>(m: &M, at: u64, page: &[u8], sites: StoreSites) -> Result<bool> {
    let stored = if m.kind() == MediumKind::File {
        // A bad page must not look like a failed sync, after which nothing may be written.
        match m.read(at, &mut vec![0; page.len()]) {
            Ok(()) => {
                m.append(sites.put, at, page)?;
                return Ok(false);
            }
            Err(error) => Err(error),
        }
    } else {
        m.put(sites.put, at, page)
    };
    match stored {
        Ok(()) => {
            m.drain(sites.drain);
            Ok(false)
        }
        // The whole page is being replaced, so its old bytes are not missed.
        Err(_) => {
            m.heal(sites.clear, at, page)?;
            Ok(true)
        }
    }
}
