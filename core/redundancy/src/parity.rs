//! Parity of a zone: patch it, store it, check it against the rows, rebuild what is lost.
//!
//! ```text
//!            col .. col + len
//!  row 0     | d0 |
//!  row 1     | d1 |        P = d0 + d1 + d2            (XOR)
//!  row 2     | d2 |        Q = d0 + g d1 + g^2 d2      (in GF(2^8))
//!  P         | p  |
//!  Q         | q  |
//! ```
//!
//! Both are sums, so a change of one row is a change of the parity by its *delta* (old XOR new),
//! whatever the other rows hold, and deltas may be applied in any order.
//!
//! # Rules for callers
//!
//! * Hold the column lock of every page column named, from before the first store of a change
//!   until after its parity is patched, or while checking and rebuilding.
//! * A delta comes from *verified* old bytes. A delta from bytes read a second time would launder
//!   damage into parity.
//! * Nothing here drains or syncs: stores are flushed, the caller drains when it has done all.
//! * What is rebuilt is a *candidate*: it is true only if every other unit was. Accept it by a
//!   sum, or by the agreement of P and Q ([`Parity::Both`]), before it is written anywhere.
//!
//! A range that cannot be read is an error, never zeros: zeros would be a wrong row that verifies.

use holdfast_codes::{Located, PqSums, gf_mul_into, gf_pow_g, is_zero, locate, xor_into};
use holdfast_pmem::{MediaError, Medium, PAGE, Site};

use crate::error::{Error, Result};
use crate::exempt::{Exempt, read_exempt};
use crate::zone::{Place, Unit, Zone};

/// Bytes of a row that are worked on at a time: three buffers of this size stay in a core's
/// second-level cache.
pub const BLOCK: usize = 16 * 1024;
/// Bytes of the next row that are asked for ahead: from there on, the hardware sees where it goes.
const AHEAD: u64 = 1024;
/// Bytes at a time in which a mismatch is located when the whole range cannot be.
const LOCATE: usize = 64;

const CHECK_P: Site = Site::new("redundancy.parity.check-p");
const CHECK_Q: Site = Site::new("redundancy.parity.check-q");

/// Buffers for streaming rows, 48 KiB: one per thread that works on parity, reused by every call.
#[derive(Debug)]
pub struct Scratch {
    p: Box<[u8]>,
    q: Box<[u8]>,
    row: Box<[u8]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Allocates the buffers.
    #[must_use]
    pub fn new() -> Self {
        let buffer = || vec![0; BLOCK].into_boxed_slice();
        Self { p: buffer(), q: buffer(), row: buffer() }
    }
}

/// Names of the two parity stores of one place in the caller's code.
#[derive(Debug, Clone, Copy)]
pub struct ParitySites {
    /// The store to P.
    pub p: Site,
    /// The store to Q.
    pub q: Site,
}

/// Applies `delta` (old XOR new of the bytes at `at`) to P and Q. Flushes, does not drain. The
/// caller holds the columns.
///
/// # Errors
/// [`Error::OutsideZone`] before anything is stored; [`Error::Media`] with the first bad parity
/// page: all others were patched nevertheless, so that nothing is wrong but what cannot be read.
pub fn patch<M: Medium>(
    m: &M,
    zone: &Zone,
    at: u64,
    delta: &[u8],
    scratch: &mut Scratch,
    sites: ParitySites,
) -> Result<()> {
    if !zone.contains_range(at, delta.len() as u64) {
        return Err(Error::OutsideZone { at, len: delta.len() as u64, limit: zone.data_len() });
    }
    let mut rest = delta;
    let mut done = Ok(());
    for piece in zone.split(at, delta.len() as u64) {
        let (change, after) = rest.split_at(piece.len as usize);
        rest = after;
        for (col, part) in page_parts(piece.col, change) {
            let place = Place { row: piece.row, col };
            done = done.and(patch_page(m, zone, place, part, scratch, sites));
        }
    }
    Ok(done?)
}

/// Applies `delta` (old XOR new of the bytes at `place`, all in one page) to P and Q. The same
/// rules hold as for [`patch`].
///
/// # Errors
/// The first bad parity page; the other one was patched nevertheless.
#[inline]
pub fn patch_page<M: Medium>(
    m: &M,
    zone: &Zone,
    place: Place,
    delta: &[u8],
    scratch: &mut Scratch,
    sites: ParitySites,
) -> core::result::Result<(), MediaError> {
    patch_some(m, zone, (zone.has_p(), zone.has_q()), place, delta, scratch, sites)
}

/// The same for P, for Q, or for both, as the pair says. The zone has them.
///
/// # Errors
/// The first bad parity page; the other one was patched nevertheless.
#[inline]
pub fn patch_some<M: Medium>(
    m: &M,
    zone: &Zone,
    (p, q): (bool, bool),
    place: Place,
    delta: &[u8],
    scratch: &mut Scratch,
    sites: ParitySites,
) -> core::result::Result<(), MediaError> {
    debug_assert!(place.col % PAGE + delta.len() as u64 <= PAGE, "a part lies in one page");
    let p = if p { m.xor(sites.p, zone.p_at(place.col), delta) } else { Ok(()) };
    if q {
        let weighted = &mut scratch.row[..delta.len()];
        gf_mul_into(weighted, delta, gf_pow_g(place.row as usize));
        m.xor(sites.q, zone.q_at(place.col), weighted)?;
    }
    p
}

/// The parts of `bytes`, which lie over `col`, on each page: one that is bad must not leave
/// another half patched.
fn page_parts(mut col: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    core::iter::from_fn(move || {
        let on_page = (PAGE - col % PAGE) as usize;
        let (part, rest) = bytes.split_at(on_page.min(bytes.len()));
        let at = col;
        (col, bytes) = (col + part.len() as u64, rest);
        (!part.is_empty()).then_some((at, part))
    })
}

/// Stores P and, with Q, Q over columns from `col` on, which are held. Flushes, does not drain.
///
/// # Errors
/// [`Error::Media`] if a parity page cannot be written; the other one was nevertheless.
pub fn store<M: Medium>(
    m: &M,
    zone: &Zone,
    col: u64,
    (p, q): (&[u8], &[u8]),
    sites: ParitySites,
) -> Result<()> {
    let p = m.put(sites.p, zone.p_at(col), p);
    // A page of P that is bad is no reason to leave Q behind.
    if zone.has_q() {
        m.put(sites.q, zone.q_at(col), q)?;
    }
    Ok(p?)
}

/// What the stored parity differs by from what the rows give: all zero where they agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syndromes {
    /// Stored P XOR computed P; empty if the zone has no P.
    pub p: Vec<u8>,
    /// Stored Q XOR computed Q; empty if the zone has no Q.
    pub q: Vec<u8>,
}

/// Computes the syndromes of columns `[col, col + len)`. The caller holds the columns.
///
/// # Errors
/// [`Error::Media`] if any unit cannot be read; [`Error::OutsideZone`].
pub fn syndromes<M: Medium>(
    m: &M,
    zone: &Zone,
    col: u64,
    len: u64,
    exempt: &impl Exempt,
    scratch: &mut Scratch,
) -> Result<Syndromes> {
    check_columns(zone, col, len)?;
    let mut found = Syndromes { p: Vec::new(), q: Vec::new() };
    if !zone.has_p() {
        return Ok(found);
    }
    for (col, n) in blocks(col, len) {
        block_syndromes(m, zone, col, n, exempt, scratch)?;
        found.p.extend_from_slice(&scratch.p[..n]);
        if zone.has_q() {
            found.q.extend_from_slice(&scratch.q[..n]);
        }
    }
    Ok(found)
}

/// Who is to blame for a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// A change of this unit alone explains it.
    Unit(Unit),
    /// Some unit: with P alone it cannot be told which.
    Any,
    /// More than one unit is wrong at the same bytes.
    Several,
}

/// Columns over which the units do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// First byte that differs, from the start of the row.
    pub col: u64,
    /// Bytes up to the last one that differs.
    pub len: u64,
    /// Whose fault it is.
    pub suspect: Suspect,
}

/// Compares the rows over `[col, col + len)` with their parity: no entry means that they agree.
/// Each entry is a range that does not, and the unit that explains it where Q is kept. A zone
/// without parity always agrees. The caller holds the columns.
///
/// # Errors
/// [`Error::Media`] if any unit cannot be read; [`Error::OutsideZone`].
pub fn check<M: Medium>(
    m: &M,
    zone: &Zone,
    col: u64,
    len: u64,
    exempt: &impl Exempt,
    scratch: &mut Scratch,
) -> Result<Vec<Mismatch>> {
    check_columns(zone, col, len)?;
    let mut found = Vec::new();
    if !zone.has_p() {
        return Ok(found);
    }
    for (col, n) in blocks(col, len) {
        block_syndromes(m, zone, col, n, exempt, scratch)?;
        if !m.enabled(CHECK_P) {
            scratch.p[..n].fill(0);
        }
        if !zone.has_q() || !m.enabled(CHECK_Q) {
            scratch.q[..n].fill(0);
        }
        locate_in(zone, col, &scratch.p[..n], &scratch.q[..n], &mut found);
    }
    Ok(found)
}

/// Names what is wrong in one block: the whole block if one unit explains it, else line by line,
/// because every byte position is a code word of its own.
fn locate_in(zone: &Zone, col: u64, p: &[u8], q: &[u8], found: &mut Vec<Mismatch>) {
    if is_zero(p) && is_zero(q) {
        return;
    }
    let whole = suspect(zone, p, q);
    if whole != Suspect::Several {
        note(found, col, p, q, whole);
        return;
    }
    let mut line = col;
    for (p, q) in p.chunks(LOCATE).zip(q.chunks(LOCATE)) {
        if !is_zero(p) || !is_zero(q) {
            note(found, line, p, q, suspect(zone, p, q));
        }
        line += p.len() as u64;
    }
}

/// Who explains the syndromes of some columns, which do not add up. Without Q that is anybody.
///
/// # Panics
/// If there are two of them and they differ in length.
#[must_use]
pub fn suspect(zone: &Zone, p: &[u8], q: &[u8]) -> Suspect {
    if !zone.has_q() {
        return Suspect::Any;
    }
    match locate(p, q, zone.data_rows() as usize) {
        Located::Row(row) => Suspect::Unit(Unit::Row(row as u32)),
        Located::P => Suspect::Unit(Unit::P),
        Located::Q => Suspect::Unit(Unit::Q),
        _ => Suspect::Several,
    }
}

/// Adds the differing part of these bytes, joined to the entry before it where they touch.
fn note(found: &mut Vec<Mismatch>, col: u64, p: &[u8], q: &[u8], suspect: Suspect) {
    let differs = |i: &usize| p[*i] != 0 || q[*i] != 0;
    let (Some(first), Some(last)) = ((0..p.len()).find(differs), (0..p.len()).rfind(differs))
    else {
        return;
    };
    let (first, end) = (col + first as u64, col + last as u64 + 1);
    match found.last_mut() {
        Some(before) if before.suspect == suspect && first < before.col + before.len + PAGE => {
            before.len = end - before.col;
        }
        _ => found.push(Mismatch { col: first, len: end - first, suspect }),
    }
}

/// Which parity a rebuild may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// P only.
    P,
    /// Q only.
    Q,
    /// Both: needed for two rows; for one row the second confirms the first.
    Both,
}

/// Computes the bytes of the `missing` units over columns `[col, col + len)` from all others; one
/// `Vec` of `len` bytes for each, in their order. Possible are: one row (from P, from Q, or from
/// both, which must agree), two rows, a row with P, a row with Q, and P and Q themselves.
///
/// Exempt parts of a missing row come out as zeros, because that is what they count as: they must
/// not be written over the log that lies there. The caller holds the columns.
///
/// # Errors
/// [`Error::TooManyMissing`], [`Error::Contradiction`] if P and Q give different bytes for a row,
/// [`Error::Media`] if another unit cannot be read either (name it as missing and try again),
/// [`Error::OutsideZone`].
#[expect(clippy::too_many_arguments, reason = "each is a different unit of the same question")]
pub fn rebuild<M: Medium>(
    m: &M,
    zone: &Zone,
    missing: &[Unit],
    col: u64,
    len: u64,
    exempt: &impl Exempt,
    with: Parity,
    scratch: &mut Scratch,
) -> Result<Vec<Vec<u8>>> {
    check_columns(zone, col, len)?;
    let plan = Plan::new(zone, missing, with).ok_or_else(|| Error::TooManyMissing {
        zone: zone.index(),
        col,
        len,
        missing: missing.len(),
        limit: match with {
            Parity::Both => zone.parity_rows() as usize,
            Parity::P | Parity::Q => 1,
        },
    })?;
    let mut rebuilt: Vec<Vec<u8>> =
        missing.iter().map(|_| Vec::with_capacity(len as usize)).collect();
    for (col, n) in blocks(col, len) {
        let parts = plan.solve(m, zone, col, n, exempt, scratch)?;
        for (unit, bytes) in missing.iter().zip(&mut rebuilt) {
            bytes.extend_from_slice(match unit {
                Unit::Row(row) if Some(*row) == plan.second => parts.second,
                Unit::Row(_) => parts.first,
                Unit::P => parts.p,
                Unit::Q => parts.q,
            });
        }
    }
    Ok(rebuilt)
}

/// How a rebuild is done: which rows are left out and which parity is read.
struct Plan {
    first: Option<u32>,
    second: Option<u32>,
    use_p: bool,
    use_q: bool,
}

/// Bytes of each unit after a block is solved; those not asked for are meaningless.
struct Parts<'a> {
    first: &'a [u8],
    second: &'a [u8],
    p: &'a [u8],
    q: &'a [u8],
}

impl Plan {
    fn new(zone: &Zone, missing: &[Unit], with: Parity) -> Option<Self> {
        let mut plan = Self {
            first: None,
            second: None,
            use_p: zone.has_p() && with != Parity::Q,
            use_q: zone.has_q() && with != Parity::P,
        };
        let mut lost = (false, false);
        for unit in missing {
            match unit {
                Unit::P if zone.has_p() && !lost.0 => lost.0 = true,
                Unit::Q if zone.has_q() && !lost.1 => lost.1 = true,
                Unit::Row(row) if *row < zone.data_rows() && plan.first != Some(*row) => {
                    if plan.second.is_some() {
                        return None;
                    }
                    plan.second = plan.first.replace(*row);
                }
                _ => return None,
            }
        }
        plan.use_p &= !lost.0;
        plan.use_q &= !lost.1;
        let rows = usize::from(plan.first.is_some()) + usize::from(plan.second.is_some());
        if rows == 0 {
            // Parity is computed from the rows alone.
            plan.use_p = false;
            plan.use_q = false;
        }
        (rows <= usize::from(plan.use_p) + usize::from(plan.use_q)).then_some(plan)
    }

    /// The missing units of one block, in the buffers of `scratch`.
    fn solve<'s, M: Medium>(
        &self,
        m: &M,
        zone: &Zone,
        col: u64,
        n: usize,
        exempt: &impl Exempt,
        scratch: &'s mut Scratch,
    ) -> Result<Parts<'s>> {
        let Scratch { p, q, row: buffer } = scratch;
        let buffer = &mut buffer[..n];
        let mut sums = PqSums::new(&mut p[..n], &mut q[..n]);
        for row in (0..zone.data_rows()).filter(|r| ![self.first, self.second].contains(&Some(*r)))
        {
            read_row(m, zone, row, col, exempt, buffer)?;
            sums.add(row as usize, buffer);
        }
        if self.use_p {
            m.read(zone.p_at(col), buffer)?;
            sums.add_p(buffer);
        }
        if self.use_q {
            m.read(zone.q_at(col), buffer)?;
            sums.add_q(buffer);
        }
        let none: &[u8] = &[];
        let parts = match (self.first, self.second) {
            (None, _) => {
                let (p, q) = sums.solve_p_and_q();
                Parts { first: none, second: none, p, q }
            }
            (Some(row), Some(other)) => {
                let (first, second) = sums.solve_rows(row as usize, other as usize);
                Parts { first, second, p: none, q: none }
            }
            (Some(row), None) if self.use_p => {
                let (first, q) = sums.solve_row_and_q(row as usize);
                Parts { first, second: none, p: none, q }
            }
            (Some(row), None) => {
                let (first, p) = sums.solve_row_and_p(row as usize);
                Parts { first, second: none, p, q: none }
            }
        };
        self.confirm(zone, col, parts.q)?;
        Ok(parts)
    }

    /// Where a row came from P and the stored Q was added as well, what is left of Q must be zero.
    fn confirm(&self, zone: &Zone, col: u64, q: &[u8]) -> Result<()> {
        let (Some(row), None, true, true) = (self.first, self.second, self.use_p, self.use_q)
        else {
            return Ok(());
        };
        if is_zero(q) {
            return Ok(());
        }
        let start = q.iter().position(|b| *b != 0).unwrap_or(0);
        let end = q.iter().rposition(|b| *b != 0).map_or(q.len(), |i| i + 1);
        let at = zone.at(row, col + start as u64);
        Err(Error::Contradiction { at, len: (end - start) as u64 })
    }
}

fn check_columns(zone: &Zone, col: u64, len: u64) -> Result<()> {
    match col.checked_add(len) {
        Some(end) if end <= zone.row_len() => Ok(()),
        _ => Err(Error::OutsideZone { at: col, len, limit: zone.row_len() }),
    }
}

/// `[col, col + len)` in parts that fit the buffers.
fn blocks(col: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    let step = BLOCK as u64;
    (0..len.div_ceil(step)).map(move |i| {
        let from = i * step;
        (col + from, (len - from).min(step) as usize)
    })
}

/// Reads a part of a data row; exempt bytes read as zeros and are not touched on the medium.
fn read_row<M: Medium>(
    m: &M,
    zone: &Zone,
    row: u32,
    col: u64,
    exempt: &impl Exempt,
    into: &mut [u8],
) -> Result<()> {
    // Rows are far apart, which no hardware prefetcher follows: ask for the next one ourselves.
    if row + 1 < zone.data_rows() {
        m.prefetch(zone.at(row + 1, col), (into.len() as u64).min(AHEAD));
    }
    Ok(read_exempt(m, zone.at(row, col), into, exempt)?)
}

/// Sums of all rows of a block into `scratch.p` and, with Q, `scratch.q`.
fn sum_rows<M: Medium>(
    m: &M,
    zone: &Zone,
    col: u64,
    n: usize,
    exempt: &impl Exempt,
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch { p, q, row: buffer } = scratch;
    let (p, q, buffer) = (&mut p[..n], &mut q[..n], &mut buffer[..n]);
    if zone.has_q() {
        let mut sums = PqSums::new(p, q);
        for row in 0..zone.data_rows() {
            read_row(m, zone, row, col, exempt, buffer)?;
            sums.add(row as usize, buffer);
        }
        return Ok(());
    }
    read_row(m, zone, 0, col, exempt, p)?;
    for row in 1..zone.data_rows() {
        read_row(m, zone, row, col, exempt, buffer)?;
        xor_into(p, buffer);
    }
    Ok(())
}

/// Syndromes of a block into `scratch.p` and, with Q, `scratch.q`.
fn block_syndromes<M: Medium>(
    m: &M,
    zone: &Zone,
    col: u64,
    n: usize,
    exempt: &impl Exempt,
    scratch: &mut Scratch,
) -> Result<()> {
    sum_rows(m, zone, col, n, exempt, scratch)?;
    let Scratch { p, q, row: buffer } = scratch;
    m.read(zone.p_at(col), &mut buffer[..n])?;
    xor_into(&mut p[..n], &buffer[..n]);
    if zone.has_q() {
        m.read(zone.q_at(col), &mut buffer[..n])?;
        xor_into(&mut q[..n], &buffer[..n]);
    }
    Ok(())
}
