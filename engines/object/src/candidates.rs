//! What bytes may have been, by parity: candidates, of which sums say which was it.
//!
//! P, Q and both together each say something, and where one of them or another row is damaged not
//! the same. Nothing here judges: what is not borne out by a sum is not installed.

use holdfast_pmem::{Medium, PAGE};
use holdfast_redundancy::parity::{Parity, Scratch, rebuild};
use holdfast_redundancy::zone::{Piece, Unit};
use holdfast_redundancy::{Exempt, Zone};

use crate::shared::{Repairer, Shared};

impl<M: Medium> Shared<M> {
    /// Everything the bytes of `unit` over `[col, col + len)` may be, likeliest first, and whether
    /// something that was asked could not be had. Bytes that are `exempt` count as zeros.
    pub(crate) fn candidates(
        &self,
        scratch: &mut Scratch,
        zone: &Zone,
        unit: Unit,
        (col, len): (u64, u64),
        exempt: &impl Exempt,
    ) -> (Vec<Vec<u8>>, bool) {
        let (mut found, mut missed): (Vec<Vec<u8>>, bool) = (Vec::new(), false);
        let mut missing = vec![unit];
        for with in [Parity::P, Parity::Q, Parity::Both] {
            let mut again = false;
            loop {
                let rebuilt = rebuild(&self.m, zone, &missing, col, len, exempt, with, scratch);
                match rebuilt {
                    Ok(mut units) => {
                        let bytes = units.swap_remove(0);
                        if !found.contains(&bytes) {
                            found.push(bytes);
                        }
                    }
                    // It may be that it could not be read for once.
                    Err(holdfast_redundancy::Error::Media(e))
                        if !again && !self.is_bad(e.at / PAGE * PAGE) =>
                    {
                        again = true;
                        continue;
                    }
                    Err(holdfast_redundancy::Error::Media(e)) => {
                        // Another unit of the columns is bad too: it is missing as well.
                        let other = zone.unit(e.at).map(|(u, _)| u);
                        if let Some(other) = other.filter(|o| !missing.contains(o))
                            && missing.len() < 2
                        {
                            missing.push(other);
                            continue;
                        }
                        missed = true;
                    }
                    Err(_) => missed = true,
                }
                break;
            }
        }
        (found, missed)
    }

    /// Candidates for `[at, at + len)` of one row; see `candidates`. A range that continues in the
    /// next row is rebuilt in parts.
    pub(crate) fn range_candidates(
        &self,
        repairer: &mut Repairer,
        at: u64,
        len: u64,
        exempt: &impl Exempt,
    ) -> Vec<Vec<u8>> {
        let Some(zone) = self.zone_of(at).copied() else { return Vec::new() };
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        for piece in zone.split(at, len) {
            let parts = self.piece_candidates(repairer, &zone, piece, exempt);
            if parts.is_empty() {
                return Vec::new();
            }
            all = joined(&all, &parts);
        }
        all
    }

    /// The same for what lies in one row. Over a border of pages it lies in two page columns: where
    /// something of one of them cannot be had, the other tells no less. Then each is made up by
    /// itself, and what nothing is said of is as it lies there.
    fn piece_candidates(
        &self,
        repairer: &mut Repairer,
        zone: &Zone,
        piece: Piece,
        exempt: &impl Exempt,
    ) -> Vec<Vec<u8>> {
        let mut of = |piece: Piece| {
            let (unit, columns) = (Unit::Row(piece.row), (piece.col, piece.len));
            self.candidates(&mut repairer.scratch, zone, unit, columns, exempt)
        };
        let (mut whole, missed) = of(piece);
        if !missed || piece.pages().nth(1).is_none() {
            return whole;
        }
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        for page in piece.pages() {
            let (mut parts, _) = of(page);
            if parts.is_empty() {
                parts.extend(self.read_now(page.at, page.len));
            }
            all = joined(&all, &parts);
        }
        all.retain(|bytes| !whole.contains(bytes));
        whole.extend(all);
        whole
    }

    /// What `made` makes of each page of a piece over a border of pages; as it lies there, where
    /// that is nothing. `None` if all of it is on one page.
    pub(crate) fn by_pages(
        &self,
        piece: Piece,
        mut made: impl FnMut(Piece) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        piece.pages().nth(1)?;
        let mut page = |page: Piece| made(page).or_else(|| self.read_now(page.at, page.len));
        Some(piece.pages().map(&mut page).collect::<Option<Vec<_>>>()?.concat())
    }

    /// What lies in a range; `None` if it cannot be read.
    pub(crate) fn read_now(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.m.read(at, &mut bytes).ok().map(|()| bytes)
    }
}

/// Each of the heads with each of the tails.
pub(crate) fn joined(heads: &[Vec<u8>], tails: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let with_each = |head: &Vec<u8>| {
        let head = head.clone();
        tails.iter().map(move |tail| [head.as_slice(), tail].concat())
    };
    heads.iter().flat_map(with_each).collect()
}
