//! What durable records say the medium holds once they are replayed: bytes over bytes, later
//! records over earlier ones. Nothing here touches the medium.
//!
//! Replaying overwrites, and what it overwrites may be what a damaged neighbour has to be rebuilt
//! from: parity on the medium may still be that of the old bytes. So a redo first looks at the
//! medium *as it will be* ([`Future`]), cures what would then not verify from the medium *as it
//! is*, makes the cures durable, and only then replays.

use std::collections::BTreeMap;

use holdfast_heap::verify::Source;
use holdfast_pmem::{MediaError, Site};
use holdfast_redundancy::Zone;

/// Changes to be made, merged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// New bytes by place; ranges do not overlap.
    bytes: BTreeMap<u64, Vec<u8>>,
    /// Every range whose columns are concerned, in the order it came.
    ranges: Vec<(u64, u64)>,
}

impl Changes {
    /// Adds bytes of a record newer than all before.
    pub(crate) fn put(&mut self, at: u64, new: &[u8]) {
        let end = at + new.len() as u64;
        self.touch(at, new.len() as u64);
        let covers = |start: &u64, old: &Vec<u8>| start + old.len() as u64 > at;
        let below = self.bytes.range(..end).rev();
        let over: Vec<u64> = below.take_while(|(s, b)| covers(s, b)).map(|(s, _)| *s).collect();
        for start in over {
            let Some(old) = self.bytes.remove(&start) else { continue };
            let old_end = start + old.len() as u64;
            if start < at {
                self.bytes.insert(start, old[..(at - start) as usize].to_vec());
            }
            if old_end > end {
                self.bytes.insert(end, old[(end - start) as usize..].to_vec());
            }
        }
        if !new.is_empty() {
            self.bytes.insert(at, new.to_vec());
        }
    }

    /// Adds a range whose bytes are on the medium already, but whose parity may not be.
    pub(crate) fn touch(&mut self, at: u64, len: u64) {
        if len > 0 {
            self.ranges.push((at, len));
        }
    }

    /// The new bytes, in ascending order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.bytes.iter().map(|(at, bytes)| (*at, bytes.as_slice()))
    }

    /// Number of new bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// The ranges concerned.
    pub(crate) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// The columns of a zone that are concerned: offset in the row and length, merged, ascending.
    pub(crate) fn columns(&self, zone: &Zone) -> Vec<(u64, u64)> {
        let mut columns: Vec<(u64, u64)> = Vec::new();
        for (at, len) in self.ranges.iter().filter(|(at, _)| zone.contains(*at)) {
            columns.extend(zone.split(*at, *len).map(|p| (p.col, p.len)));
        }
        columns.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (col, len) in columns {
            match merged.last_mut() {
                Some((start, n)) if col <= *start + *n => *n = (*n).max(col + len - *start),
                _ => merged.push((col, len)),
            }
        }
        merged
    }

    /// Whether bytes of any row over `[col, col + len)` are replaced.
    pub(crate) fn replace_over(&self, zone: &Zone, col: u64, len: u64) -> bool {
        (0..zone.data_rows()).any(|row| {
            let at = zone.at(row, col);
            let last = self.bytes.range(..at + len).next_back();
            last.is_some_and(|(start, new)| start + new.len() as u64 > at)
        })
    }

    /// What `under` will be after the changes.
    pub(crate) fn over<'a, S: Source>(&'a self, under: &'a S) -> Future<'a, S> {
        Future { under, changes: self }
    }
}

/// A source with changes over it.
#[derive(Debug)]
pub(crate) struct Future<'a, S> {
    under: &'a S,
    changes: &'a Changes,
}

impl<S: Source> Source for Future<'_, S> {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let end = at + into.len() as u64;
        let bytes = &self.changes.bytes;
        let first = bytes.range(..=at).next_back().map_or(at, |(start, _)| *start);
        let mut from = at;
        for (start, new) in bytes.range(first..end) {
            let stop = (start + new.len() as u64).min(end);
            if stop <= from {
                continue;
            }
            if from < *start {
                // Only what is not covered comes from beneath: the rest may be unreadable there.
                self.under.read(from, &mut into[(from - at) as usize..(start - at) as usize])?;
                from = *start;
            }
            into[(from - at) as usize..(stop - at) as usize]
                .copy_from_slice(&new[(from - start) as usize..(stop - start) as usize]);
            from = stop;
        }
        if from < end {
            self.under.read(from, &mut into[(from - at) as usize..])?;
        }
        Ok(())
    }

    fn enabled(&self, site: Site) -> bool {
        self.under.enabled(site)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pmem::MediaCause;
    use proptest::prelude::*;

    use super::*;

    /// Bytes in DRAM, some of which cannot be read.
    struct Flat {
        bytes: Vec<u8>,
        bad: Option<u64>,
    }

    impl Source for Flat {
        fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
            let end = at + into.len() as u64;
            if let Some(bad) = self.bad.filter(|bad| (at..end).contains(bad)) {
                return Err(MediaError { at: bad, len: 1, cause: MediaCause::Poison });
            }
            into.copy_from_slice(&self.bytes[at as usize..end as usize]);
            Ok(())
        }

        fn enabled(&self, _: Site) -> bool {
            true
        }
    }

    #[test]
    fn covered_bytes_may_be_unreadable_beneath() {
        let flat = Flat { bytes: vec![1; 20], bad: Some(9) };
        let mut changes = Changes::default();
        changes.put(8, &[2, 2]);
        let mut seen = [0; 4];
        changes.over(&flat).read(7, &mut seen).unwrap();
        assert_eq!(seen, [1, 2, 2, 1]);
        assert!(Changes::default().over(&flat).read(7, &mut seen).is_err());
    }

    proptest! {
        #[test]
        fn later_bytes_win(
            puts in prop::collection::vec(
                (0..60_u64, prop::collection::vec(any::<u8>(), 0..20)),
                0..12,
            ),
            from in 0..80_usize,
        ) {
            let mut flat = Flat { bytes: (0..80).collect(), bad: None };
            let mut changes = Changes::default();
            let mut model = flat.bytes.clone();
            for (at, bytes) in &puts {
                changes.put(*at, bytes);
                model[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
            }
            let mut seen = vec![0; 80 - from];
            changes.over(&flat).read(from as u64, &mut seen).unwrap();
            prop_assert_eq!(&seen[..], &model[from..]);
            for (at, bytes) in changes.pieces() {
                flat.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(flat.bytes, model);
        }
    }
}
