//! Makes damage verify: sums are computed again over what a field became, and parity follows, as
//! if a program had written it.

use holdfast_heap::format::{GRANULE, SLOT_LEN, STATE_LIVE, SUM_LEN};
use holdfast_pmem::Medium;

use super::spots::Spot;
use crate::object::handle::Handle;
use crate::object::raw::log::LogSeed;
use crate::object::raw::sums::{add, crc, double, stored};
use crate::object::raw::{Bytes, Place, Slot, ZoneMap};
use crate::object::targets::Targets;
use crate::tally::{Fault, Judged, Violation};

/// What certifies a field, and how it is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// Nothing.
    None,
    /// The sum of the superblock page that starts here.
    Superblock(u64),
    /// The sum of a mirrored page.
    Mirrored {
        /// Where it starts.
        page: u64,
        /// Where it starts in its side.
        place: u64,
    },
    /// The sum of an event.
    Event {
        /// First byte.
        at: u64,
        /// Offset in its journal.
        place: u64,
    },
    /// The sum of the directory entry that starts here.
    Chunk(u64),
    /// Sums of an object.
    Object(Place),
    /// The sum of a log record.
    Record {
        /// First byte.
        at: u64,
        /// Bytes it had.
        len: u64,
        /// What its sum starts from.
        seed: LogSeed,
    },
    /// The sum of what overflowed, which both copies of its record have.
    Overflow {
        /// First byte of the copy that was damaged.
        at: u64,
        /// Bytes.
        len: u64,
        /// Number of the record.
        number: u64,
        /// Of each copy of the record: where it has the sum, its first byte and its bytes.
        records: [(u64, u64, u64); 2],
        /// What their sums start from.
        seeds: [LogSeed; 2],
    },
}

/// What sealing needs to know of a pool, from before the damage.
#[derive(Debug, Clone)]
pub struct Sealer {
    seed: u32,
    zones: Vec<ZoneMap>,
}

impl Sealer {
    /// For the pool with these bytes.
    #[must_use]
    pub fn of(bytes: &Bytes) -> Self {
        let zones = Targets::zones(bytes);
        Self { seed: bytes.superblock().map_or(0, |(_, seed)| seed), zones }
    }

    /// The first zone.
    #[must_use]
    pub fn zone(&self) -> Option<&ZoneMap> {
        self.zones.first()
    }

    /// Overwrites a field; with `sealed`, both copies and what certifies them follow. `false` if
    /// it is as it was: the field may have been the sum.
    ///
    /// # Errors
    /// A place is outside the pool.
    pub fn damage(&self, medium: &Handle, spot: &Spot, new: &[u8], sealed: bool) -> Judged<bool> {
        let old = read(medium, spot.at, spot.len)?;
        if new == old {
            return Ok(false);
        }
        self.store(medium, spot.at, new, sealed)?;
        if sealed {
            self.seal(medium, spot.seal)?;
            if let Some((twin, seal)) = spot.twin {
                self.store(medium, twin, new, true)?;
                self.seal(medium, seal)?;
            }
        }
        Ok(read(medium, spot.at, spot.len)? != old)
    }

    /// Overwrites bytes; with `parity`, P and Q over them follow.
    ///
    /// # Errors
    /// The place is outside the pool.
    pub fn store(&self, medium: &Handle, at: u64, bytes: &[u8], parity: bool) -> Judged<()> {
        if parity {
            let mut delta = read(medium, at, bytes.len() as u64)?;
            add(&mut delta, bytes);
            self.follow(medium, at, &delta)?;
        }
        stray(medium, at, bytes)
    }

    /// Adds a change of data bytes to the parity over them.
    fn follow(&self, medium: &Handle, at: u64, delta: &[u8]) -> Judged<()> {
        let inside =
            |zone: &&ZoneMap| at >= zone.start && at < zone.start + zone.data_rows * zone.row_len;
        let Some(zone) = self.zones.iter().find(inside) else { return Ok(()) };
        if zone.exempt().any(|(log, len)| (log..log + len).contains(&at)) {
            return Ok(());
        }
        for (byte, change) in (at..).zip(delta).filter(|(_, change)| **change != 0) {
            let (row, col) =
                ((byte - zone.start) / zone.row_len, (byte - zone.start) % zone.row_len);
            let mut change = [*change];
            for parity in 0..zone.parity_rows {
                if parity == 1 {
                    (0..row).for_each(|_| double(&mut change));
                }
                let place = zone.start + (zone.data_rows + parity) * zone.row_len + col;
                let mut old = read(medium, place, 1)?;
                add(&mut old, &change);
                stray(medium, place, &old)?;
            }
        }
        Ok(())
    }

    /// Computes the sum again that certifies a damaged field, and stores it.
    ///
    /// # Errors
    /// The place is outside the pool.
    pub fn seal(&self, medium: &Handle, seal: Seal) -> Judged<()> {
        let word = |sum: u32| sum.to_le_bytes();
        match seal {
            Seal::None => Ok(()),
            Seal::Superblock(at) => {
                let page = read(medium, at, 4096)?;
                let sum = crc(crc(crc(0, &page[..8]), &[0; 4]), &page[12..]);
                stray(medium, at + 8, &word(sum))
            }
            Seal::Mirrored { page, place } => {
                let bytes = read(medium, page, 4096)?;
                stray(medium, page, &word(self.bound(place, &bytes[4..])))
            }
            Seal::Event { at, place } => {
                let bytes = read(medium, at, holdfast_redundancy::format::EVENT_LEN as u64)?;
                stray(medium, at, &word(self.bound(place, &bytes[4..])))
            }
            Seal::Chunk(at) => {
                let bytes = read(medium, at, holdfast_heap::format::CHUNK_LEN as u64)?;
                self.store(medium, at, &word(stored(self.bound(at, &bytes[4..]))), true)
            }
            Seal::Object(place) => self.seal_object(medium, &place),
            Seal::Record { at, len, seed } => {
                let head = read(medium, at, len)?;
                let said = u64::from(u16::from_le_bytes([head[4], head[5]])) * 64;
                // As long as it says it is, where that can be.
                let long = if said > 0 && at + said <= medium.len() { said } else { len };
                let bytes = read(medium, at, long)?;
                stray(medium, at, &word(seed.sum(at, &bytes[4..])))
            }
            Seal::Overflow { at, len, number, records, seeds } => {
                let sum = seeds[0].overflow(number, &read(medium, at, len)?);
                for ((sum_at, at, len), seed) in records.into_iter().zip(seeds) {
                    stray(medium, sum_at, &word(sum))?;
                    self.seal(medium, Seal::Record { at, len, seed })?;
                }
                Ok(())
            }
        }
    }

    /// Sum over bytes bound to a place.
    fn bound(&self, place: u64, covered: &[u8]) -> u32 {
        crc(crc(self.seed, &place.to_le_bytes()), covered)
    }

    fn seal_object(&self, medium: &Handle, place: &Place) -> Judged<()> {
        let Some(zone) = self.zone() else { return Ok(()) };
        let slot = Slot::decode(&read(medium, place.slot, SLOT_LEN as u64)?);
        let live = slot.state == STATE_LIVE;
        let len = if live { slot.len.min(place.capacity) } else { 0 };
        let data = read(medium, place.object, len)?;
        for granule in 0..len.div_ceil(GRANULE).max(1) {
            let from = (granule * GRANULE) as usize;
            let part = &data[from..data.len().min(from + GRANULE as usize)];
            let sum = zone.sum(place.object, &slot, granule, part).to_le_bytes();
            let at = match granule {
                0 => place.slot,
                _ => place.sums + (granule - 1) * SUM_LEN,
            };
            self.store(medium, at, &sum, true)?;
        }
        Ok(())
    }
}

/// Bytes as the program sees them.
///
/// # Errors
/// The place is outside the pool, or cannot be read.
pub fn read(medium: &Handle, at: u64, len: u64) -> Judged<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let done = medium.read(at, &mut bytes);
    done.map_err(|error| Violation::new(Fault::Refused, format!("reading a field: {error}")))?;
    Ok(bytes)
}

fn stray(medium: &Handle, at: u64, bytes: &[u8]) -> Judged<()> {
    let done = medium.stray(at, bytes);
    done.map_err(|error| Violation::new(Fault::Refused, format!("damaging a field: {error}")))
}
