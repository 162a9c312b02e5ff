//! Where what is in the side files of these machines, by the page of the format and not by the
//! engine's code.

use holdfast_pmem::PAGE;

use super::machine::SIDE;

/// Pages of a region.
pub const REGION: u64 = 8;
/// Regions of a group.
const GROUP: u64 = 2;
/// Bytes of a region's state, and of an entry.
const STATE: u64 = 128;
const ENTRY: u64 = 8;
/// Where the events begin in a side.
const EVENTS: u64 = 24_576;

/// A part of the side file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The header, copy 0 or 1.
    Header(u64),
    /// What lies between header and events: the intent.
    Intent(u64),
    /// Events.
    Events(u64),
    /// States of a group's regions, copy 0 or 1.
    States(u64, u64),
    /// Entries of a group's regions.
    Entries(u64),
    /// Records of first stores.
    Records(u64),
    /// Parity of a stripe, by its number in the file.
    Parity(u64),
}

/// The side file of a data file of `pages` pages.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Parity pages of a stripe.
    pub parity: u64,
    /// Pages of the data file.
    pub pages: u64,
}

impl Layout {
    const fn group_len(&self) -> u64 {
        (4 + GROUP * 2 * self.parity) * PAGE
    }

    /// Groups there are.
    #[must_use]
    pub const fn groups(&self) -> u64 {
        self.pages.div_ceil(REGION * GROUP)
    }

    /// Where an area is in the side file, and its bytes as far as they are used.
    #[must_use]
    pub fn place(&self, area: Area) -> (u64, u64) {
        let group = |group: u64, page: u64| 2 * SIDE + group * self.group_len() + page * PAGE;
        match area {
            Area::Header(copy) => (copy * SIDE, PAGE),
            Area::Intent(copy) => (copy * SIDE + PAGE, EVENTS - PAGE),
            Area::Events(copy) => (copy * SIDE + EVENTS, SIDE - EVENTS),
            Area::States(of, 0) => (group(of, 0), GROUP * STATE),
            Area::States(of, _) => (group(of, 3 + GROUP * 2 * self.parity), GROUP * STATE),
            Area::Entries(of) => (group(of, 1), GROUP * REGION * ENTRY),
            Area::Records(of) => (group(of, 2), GROUP * REGION),
            Area::Parity(stripe) => {
                let (of, inside) = (stripe / (2 * GROUP), stripe % (2 * GROUP));
                (group(of, 3 + inside * self.parity), self.parity * PAGE)
            }
        }
    }

    /// Regions of which an area knows something.
    #[must_use]
    pub fn regions(&self, area: Area) -> std::ops::Range<u64> {
        match area {
            Area::States(of, _) | Area::Entries(of) => of * GROUP..(of + 1) * GROUP,
            Area::Parity(stripe) => stripe / 2..stripe / 2 + 1,
            _ => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::machine::{Machine, Setting};
    use holdfast_pmem::Medium;
    use holdfast_workloads::Rng;

    #[test]
    fn the_parts_are_where_the_engine_puts_them() {
        for parity in 1..=2 {
            let setting = Setting { parity, ..Setting::numbered(0) };
            let machine = Machine::new(setting.kind, 24 * PAGE, &mut Rng::new(1), None);
            machine.protect(&setting).expect("it protects");
            let layout = Layout { parity: parity.into(), pages: 24 };
            let read = |at: u64, len: u64| {
                let mut bytes = vec![0; len as usize];
                machine.side.read(at, &mut bytes).expect("it reads");
                bytes
            };
            assert_eq!(&read(layout.place(Area::Header(1)).0 + 32, 8), b"HOLDSIDE");
            let states = [0, 1].map(|copy| layout.place(Area::States(1, copy)));
            // The generation differs: the copies are written one after the other.
            assert_eq!(read(states[0].0 + 16, 8), read(states[1].0 + 16, 8));
            assert!(read(states[0].0, 128).iter().any(|byte| *byte != 0));
            let (at, len) = layout.place(Area::Entries(1));
            let entries = read(at, len);
            assert!(entries[..64].chunks(8).all(|entry| entry != [0; 8]));
            assert!(entries[64..].iter().all(|byte| *byte == 0), "there is no region 3");
            let rows: Vec<Vec<u8>> =
                (12..16).map(|page| machine.page(page).expect("it reads")).collect();
            let p: Vec<u8> = (0..4096).map(|i| rows.iter().fold(0, |x, row| x ^ row[i])).collect();
            assert_eq!(read(layout.place(Area::Parity(3)).0, PAGE), p);
        }
    }
}
