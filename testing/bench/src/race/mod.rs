//! The race: our engine and libpmemobj do the same work in turns, in one process.
//!
//! A round is several slices; in a slice every racer has its turn. A racer's figure of a round is
//! the median of its slices, and ratios are taken within a round: what the machine does to one
//! racer it most likely does to the others too. Every object hangs from a table in the pool, one
//! table for each thread and set, and handles to objects are kept in ordinary memory, on both
//! sides. Those to overwrite are lined up before the clock starts, in the order they are visited:
//! looking one up in a table of millions would cost a miss that neither store is responsible for.
//! Processors read a line ahead, but not the objects its handles lead to, which lie anywhere.

pub(crate) mod maps;
mod measure;
pub(crate) mod objects;
mod ours;

use holdfast_object::Parity;

use crate::foreign::pmemobj::Table;

/// Threads of the widest run: as many tables are filled.
pub(crate) const THREADS: usize = 2;

/// One thread's share of a pool.
pub(crate) trait Worker: Send {
    /// Allocates, initialises and links an object, in one transaction.
    fn alloc(&mut self, slot: u64, bytes: &[u8]) -> anyhow::Result<()>;
    /// Says which objects are overwritten next: their handles are put side by side.
    fn line_up(&mut self, slots: &[u64]) -> anyhow::Result<()>;
    /// Overwrites the start of the object at this place of the line.
    fn overwrite(&mut self, place: usize, bytes: &[u8]) -> anyhow::Result<()>;
    /// Frees and unlinks an object.
    fn free(&mut self, slot: u64) -> anyhow::Result<()>;
}

impl Worker for Table<'_> {
    fn alloc(&mut self, slot: u64, bytes: &[u8]) -> anyhow::Result<()> {
        Table::alloc(self, slot, bytes)
    }

    fn line_up(&mut self, slots: &[u64]) -> anyhow::Result<()> {
        Table::line_up(self, slots)
    }

    fn overwrite(&mut self, place: usize, bytes: &[u8]) -> anyhow::Result<()> {
        Table::overwrite(self, place, bytes)
    }

    fn free(&mut self, slot: u64) -> anyhow::Result<()> {
        Table::free(self, slot)
    }
}

/// Who takes part, by the name its figures have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Racer {
    /// Full protection: copies of metadata and log, parity P, sums, guards.
    Full,
    /// Private copies only.
    Bare,
    /// And copies of metadata and log.
    Copies,
    /// And parity P; no sums.
    Parity,
    /// Full protection and parity Q.
    Both,
    /// libpmemobj.
    Peer,
    /// libpmemobj with a replica.
    Replica,
}

impl Racer {
    /// All of them, or only ours.
    pub(crate) fn all(with_peers: bool) -> Vec<Self> {
        let ours = [Self::Full, Self::Bare, Self::Copies, Self::Parity, Self::Both];
        let peers = [Self::Peer, Self::Replica];
        ours.into_iter().chain(peers.into_iter().filter(|_| with_peers)).collect()
    }

    /// What its figures are called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bare => "unprotected",
            Self::Copies => "copies",
            Self::Parity => "parity",
            Self::Both => "P+Q",
            Self::Peer => "libpmemobj",
            Self::Replica => "libpmemobj-replica",
        }
    }

    /// Which of our modes it is, if any.
    fn mode(self) -> Option<(&'static str, Parity, holdfast_layout::SumKind, bool)> {
        match self {
            Self::Full => Some(crate::object::MODES[3]),
            Self::Bare => Some(crate::object::MODES[0]),
            Self::Copies => Some(crate::object::MODES[1]),
            Self::Parity => Some(crate::object::MODES[2]),
            Self::Both => Some(crate::object::MODES[4]),
            Self::Peer | Self::Replica => None,
        }
    }
}
