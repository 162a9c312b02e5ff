//! The remap table: which frames live elsewhere, because their own place went bad.

use crate::bytes::{get_u64, put_u64};
use crate::format::{REMAP_LEN, REMAPS_MAX};

/// A relocated frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remap {
    /// Offset of the frame as the pool addresses it.
    pub frame: u64,
    /// Offset in the file where its bytes are: a spare frame.
    pub physical: u64,
}

/// The table as the body of its mirrored page.
#[must_use]
pub fn encode(remaps: &[Remap]) -> Vec<u8> {
    let mut body = vec![0; remaps.len().min(REMAPS_MAX) * REMAP_LEN];
    for (entry, r) in body.chunks_exact_mut(REMAP_LEN).zip(remaps) {
        put_u64(entry, 0, r.frame);
        put_u64(entry, 8, r.physical);
    }
    body
}

/// Reads `count` entries of a body that may be anything. `None` if an entry does not name two
/// different whole frames of a pool of `size` bytes, or names one twice.
#[must_use]
pub fn decode(body: &[u8], count: u32, frame: u64, size: u64) -> Option<Vec<Remap>> {
    let count = usize::try_from(count).ok().filter(|c| *c <= REMAPS_MAX)?;
    let mut remaps: Vec<Remap> = Vec::with_capacity(count);
    let inside =
        |at: u64| at.is_multiple_of(frame) && at.checked_add(frame).is_some_and(|end| end <= size);
    for entry in body.chunks_exact(REMAP_LEN).take(count) {
        let r = Remap { frame: get_u64(entry, 0), physical: get_u64(entry, 8) };
        let twice = remaps.iter().any(|o| o.frame == r.frame || o.physical == r.physical);
        if !inside(r.frame) || !inside(r.physical) || r.frame == r.physical || twice {
            return None;
        }
        remaps.push(r);
    }
    (remaps.len() == count).then_some(remaps)
}
