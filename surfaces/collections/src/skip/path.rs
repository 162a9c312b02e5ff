//! The way to a node of a skip list, kept to change the links along it.

use holdfast_layout::bytemuck;
use holdfast_txn::{Result, Transaction};

use super::{List, Node, place};
use crate::format::{SKIP_LEVELS, SkipLink, skip_link};
use crate::item::Sought;

/// The last node on the way, at each level.
#[derive(Debug)]
pub(super) struct Path {
    nodes: [u64; SKIP_LEVELS],
}

impl Path {
    /// The way to where a key is, that stays before the node `end`; the node it comes to, with
    /// its word.
    pub(super) fn to<T: Transaction>(
        tx: &T,
        list: &List,
        sought: &Sought<'_>,
        end: u64,
    ) -> Result<(Self, u64, Node)> {
        let mut nodes = [0; SKIP_LEVELS];
        let (word, node) = list.descend(tx, sought, end, |level, word| nodes[level] = word)?;
        Ok((Self { nodes }, word, node))
    }

    /// Where the way would go on at a level.
    pub(super) fn link<T: Transaction>(&self, tx: &T, level: usize) -> Result<SkipLink> {
        let mut link = SkipLink::default();
        tx.read_bytes(
            place(self.nodes[level]),
            skip_link(level),
            bytemuck::bytes_of_mut(&mut link),
        )?;
        Ok(link)
    }

    /// Makes it go on elsewhere.
    pub(super) fn set_link<T: Transaction>(
        &self,
        tx: &T,
        level: usize,
        link: SkipLink,
    ) -> Result<()> {
        tx.write_bytes(place(self.nodes[level]), skip_link(level), bytemuck::bytes_of(&link))
    }
}
