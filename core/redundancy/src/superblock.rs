//! The two copies of the superblock, and how copy B is found when copy A is gone.
//!
//! Everything else is found through the superblock, so its copy B has to be found without it: it
//! is the first byte of side B, a multiple of 4 KiB, and says itself where it is. If copy A is
//! lost, the pages from the start are searched for one that verifies and names its own place.

use holdfast_layout::format::{MAGIC, PAGE_LEN, SUPERBLOCK_PAGE};
use holdfast_layout::{Certify, Superblock, SuperblockError};
use holdfast_pmem::{Medium, Site};

use crate::copies::{self, Against, CopyState, MirrorSites, Places};
use crate::error::{Error, Result};
use crate::mirror::damaged;
use crate::verdict::Side;

/// Believing only pages whose sum is right.
const VERIFY: Site = Site::new("redundancy.superblock.verify");
/// Its sum.
const SUM: Site = Site::new("redundancy.superblock.sum");

/// How far from the start copy B is searched when copy A is lost.
pub const SEARCH: u64 = 128 << 20;

/// Names of the stores and drains that replace the superblock.
pub const SUPERBLOCK_SITES: MirrorSites = MirrorSites {
    b: Site::new("redundancy.superblock.b"),
    drain_b: Site::new("redundancy.superblock.drain-b"),
    a: Site::new("redundancy.superblock.a"),
    drain_a: Site::new("redundancy.superblock.drain-a"),
    clear: Site::new("redundancy.superblock.clear"),
    heal: Site::new("redundancy.superblock.heal"),
};

/// The superblock as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSuperblock {
    /// The newest valid copy.
    pub superblock: Superblock,
    /// State of copy A.
    pub a: CopyState,
    /// State of copy B.
    pub b: CopyState,
}

impl FoundSuperblock {
    /// The side whose copy is damaged, if one is: an event is due.
    #[must_use]
    pub const fn damaged(&self) -> Option<Side> {
        damaged(self.a, self.b)
    }

    /// Whether one copy has to be written again from the other.
    #[must_use]
    pub const fn needs_heal(&self) -> bool {
        self.a.needs_heal() || self.b.needs_heal()
    }
}

/// Reads the superblock: the newest valid copy. Writes nothing.
///
/// # Errors
/// [`Error::Superblock`] with what the start of the file is, if no copy can be used: not a pool,
/// of a newer version, damaged in both copies; [`Error::Media`] if the start cannot be read and
/// no copy B is found.
pub fn read_superblock<M: Medium>(m: &M) -> Result<FoundSuperblock> {
    let mut page = vec![0; PAGE_LEN];
    let unreadable = m.read(SUPERBLOCK_PAGE, &mut page).err();
    let in_a = match unreadable {
        None => decode(m, &page),
        Some(_) => Err(SuperblockError::NotAPool),
    };
    let source = match in_a {
        Ok(superblock) => return Ok(with_copy_b(m, superblock)),
        Err(source) => source,
    };
    // A page that verifies but is not for this build was not damaged: copy B says the same.
    let genuine =
        matches!(source, SuperblockError::NewerVersion(_) | SuperblockError::UnknownFeatures(_));
    let searched = if genuine { 0 } else { SEARCH.min(m.len()) };
    match search_copy_b(m, searched, &mut page) {
        Some(superblock) => Ok(FoundSuperblock {
            a: unreadable.map_or(CopyState::Invalid, CopyState::Unreadable),
            b: CopyState::Good(superblock.sequence),
            superblock,
        }),
        None => Err(match unreadable {
            Some(error) => Error::Media(error),
            None => Error::Superblock { source, searched },
        }),
    }
}

/// Copy A is valid and says where copy B is.
fn with_copy_b<M: Medium>(m: &M, in_a: Superblock) -> FoundSuperblock {
    let newest = copies::read(m, places(&in_a), |page| {
        let found = decode(m, page).ok()?;
        let same = found.uuid == in_a.uuid && found.side_len == in_a.side_len;
        same.then_some((found.sequence, found))
    });
    let copies::Newest { value, a, b } = newest;
    FoundSuperblock { superblock: value.unwrap_or(in_a), a, b }
}

/// The first page in `[0, searched)` that verifies and says that it is copy B of this place.
fn search_copy_b<M: Medium>(m: &M, searched: u64, page: &mut [u8]) -> Option<Superblock> {
    let step = PAGE_LEN as u64;
    let mut magic = [0; MAGIC.len()];
    for at in (step..searched).step_by(PAGE_LEN) {
        if m.read(at, &mut magic).is_err() || magic != MAGIC || m.read(at, page).is_err() {
            continue;
        }
        match decode(m, page) {
            Ok(found) if found.side_len == at && found.copies == 2 => return Some(found),
            _ => {}
        }
    }
    None
}

/// What a page read from `m` says, if it is a superblock.
fn decode<M: Medium>(m: &M, page: &[u8]) -> core::result::Result<Superblock, SuperblockError> {
    Superblock::decode(page, Certify::when(m.enabled(VERIFY)))
}

fn places(superblock: &Superblock) -> Places {
    let b = (superblock.copies == 2).then_some(superblock.side_len + SUPERBLOCK_PAGE);
    Places { a: SUPERBLOCK_PAGE, b }
}

/// Writes the good copy of the superblock just read over the stale or damaged one and clears
/// poison. Durable on return. Answers which sides were written.
///
/// # Errors
/// [`Error::Media`] if a page stays bad: the superblock must not be written any more.
pub fn heal_superblock<M: Medium>(m: &M, found: &FoundSuperblock) -> Result<Vec<Side>> {
    let page = encode(m, &found.superblock);
    let states = (found.a, found.b);
    copies::heal(m, places(&found.superblock), states, &page, SUPERBLOCK_SITES.heal)
}

/// Replaces the superblock: raises its sequence, then side B, drain, side A, drain. The caller is
/// the only writer. Answers the sides whose page had been bad and was cleared by it.
///
/// # Errors
/// [`Error::Media`] if a copy cannot be written; then the other one is valid, old or new.
/// [`Error::Sync`]: the pool must not be written any more.
pub fn write_superblock<M: Medium>(m: &M, superblock: &mut Superblock) -> Result<Vec<Side>> {
    let copies::Newest { value, a, b } = current(m, superblock);
    let places = places(superblock);
    let mut cleared = Vec::new();
    if let (Some(good), true, CopyState::Good(_)) = (value, a.needs_heal(), b) {
        // Side B is about to be overwritten and is the only copy of what is valid now.
        cleared = copies::heal(m, places, (a, b), &encode(m, &good), SUPERBLOCK_SITES.heal)?;
    }
    superblock.sequence += 1;
    let page = encode(m, superblock);
    cleared.extend(copies::write(m, places, &page, SUPERBLOCK_SITES, Against::Kind)?);
    Ok(cleared)
}

/// The page as it is stored.
fn encode<M: Medium>(m: &M, superblock: &Superblock) -> Vec<u8> {
    let mut page = superblock.encode();
    if !m.enabled(SUM) {
        page[8..12].fill(0);
    }
    page
}

fn current<M: Medium>(m: &M, like: &Superblock) -> copies::Newest<Superblock> {
    copies::read(m, places(like), |page| {
        let found = decode(m, page).ok()?;
        (found.uuid == like.uuid).then_some((found.sequence, found))
    })
}
