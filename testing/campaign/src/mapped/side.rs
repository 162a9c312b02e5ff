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
