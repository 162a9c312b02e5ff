//! Bytes of data rows that count as zeros in parity, whatever they are.
//!
//! Overflow of large transactions lies in heap chunks, but writing a log must not contend for
//! parity: those chunks count as zeros. Everything that sums rows must leave out the same bytes,
//! so the set is a parameter of every such function. A log has its own second copy.

use holdfast_pmem::{MediaError, Medium};

/// Says which bytes count as zeros in parity.
pub trait Exempt {
    /// The first range of exempt bytes that meets `[at, at + len)`, as (offset, length); `None`
    /// if all of it counts. May reach beyond the range asked for on both sides.
    fn first_in(&self, at: u64, len: u64) -> Option<(u64, u64)>;
}

/// Nothing is exempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoneExempt;

impl Exempt for NoneExempt {
    fn first_in(&self, _at: u64, _len: u64) -> Option<(u64, u64)> {
        None
    }
}

/// These ranges (offset, length) are exempt: ascending and without overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExemptRanges<'a>(pub &'a [(u64, u64)]);

impl Exempt for ExemptRanges<'_> {
    fn first_in(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let next = self.0.partition_point(|(start, n)| start.saturating_add(*n) <= at);
        self.0.get(next).copied().filter(|(start, _)| *start < at.saturating_add(len))
    }
}

impl<F: Fn(u64, u64) -> Option<(u64, u64)>> Exempt for F {
    fn first_in(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        self(at, len)
    }
}

/// Reads `[at, at + into.len())` with zeros for exempt bytes, which are not read at all: a bad
/// page under a log must not stop the rebuild of another row.
///
/// # Errors
/// A [`MediaError`] for the first bytes that count and cannot be read.
pub fn read_exempt<M: Medium>(
    m: &M,
    at: u64,
    into: &mut [u8],
    exempt: &impl Exempt,
) -> Result<(), MediaError> {
    read_exempt_by(at, into, exempt, |at, into| m.read(at, into))
}

/// As [`read_exempt`], with what `read` shows.
///
/// # Errors
/// The first of `read`.
pub fn read_exempt_by<E>(
    at: u64,
    into: &mut [u8],
    exempt: &impl Exempt,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = at;
    let mut rest = into;
    while !rest.is_empty() {
        let len = rest.len() as u64;
        let end = at + len;
        let (start, stop) = match exempt.first_in(at, len) {
            // An answer that ends before the range would never end the loop: take it as none.
            Some((start, n)) if start.saturating_add(n) > at => {
                (start.clamp(at, end), start.saturating_add(n).min(end))
            }
            _ => (end, end),
        };
        let (counted, after) = rest.split_at_mut((start - at) as usize);
        let (zeros, after) = after.split_at_mut((stop - start) as usize);
        if !counted.is_empty() {
            read(at, counted)?;
        }
        zeros.fill(0);
        rest = after;
        at = stop;
    }
    Ok(())
}
