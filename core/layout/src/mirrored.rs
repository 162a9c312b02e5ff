//! Pages kept twice: header, checksum, and the tables in them. Pure bytes; which copy is read and
//! written when is `holdfast-redundancy`'s affair.

use holdfast_codes::crc32c;

use crate::Certify;
use crate::bytes::{get_u32, get_u64, put_u32, put_u64};
use crate::format::{MIRRORED_LEN, PAGE_LEN, SEQUENCE_MAX};

/// A valid mirrored page: its sequence, its entry count, and the whole page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredPage {
    /// Rises with each write; the newer valid copy wins.
    pub sequence: u64,
    /// Number of entries, meaning set by the kind.
    pub count: u32,
    /// Bytes after the header.
    pub body: Vec<u8>,
}

/// Builds the page of `kind` whose entries are `body`; a body longer than the page is cut off.
/// `seed` is the pool's, `place` the page's offset in its side: a page found elsewhere than it
/// was written does not verify.
#[must_use]
pub fn encode(seed: u32, place: u64, kind: u32, sequence: u64, count: u32, body: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE_LEN];
    put_u32(&mut page, 4, kind);
    put_u64(&mut page, 8, sequence);
    put_u32(&mut page, 16, count);
    let len = body.len().min(PAGE_LEN - MIRRORED_LEN);
    page[MIRRORED_LEN..MIRRORED_LEN + len].copy_from_slice(&body[..len]);
    let sum = page_sum(seed, place, &page);
    put_u32(&mut page, 0, sum);
    page
}

/// Reads a page that may be anything; `None` if it is not a valid page of `kind` at `place`, as far
/// as `certify` lets its sum decide.
#[must_use]
pub fn decode(
    seed: u32,
    place: u64,
    kind: u32,
    page: &[u8],
    certify: Certify,
) -> Option<MirroredPage> {
    if page.len() < PAGE_LEN || get_u32(page, 4) != kind {
        return None;
    }
    let page = &page[..PAGE_LEN];
    let certified = certify.agrees(get_u32(page, 0), page_sum(seed, place, page));
    if !certified || get_u64(page, 8) > SEQUENCE_MAX {
        return None;
    }
    Some(MirroredPage {
        sequence: get_u64(page, 8),
        count: get_u32(page, 16),
        body: page[MIRRORED_LEN..].to_vec(),
    })
}

fn page_sum(seed: u32, place: u64, page: &[u8]) -> u32 {
    crc32c(crc32c(seed, &place.to_le_bytes()), &page[4..])
}
