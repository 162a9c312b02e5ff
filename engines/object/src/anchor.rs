//! The anchor: the one object whose pointer is in the superblock.

use holdfast_layout::{Persist, RawPtr};

/// The first object of every pool.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.anchor", version = 1)]
pub struct Anchor {
    /// What the program made its root, or null.
    pub root: RawPtr,
    /// The catalogue of named maps, or null.
    pub maps: RawPtr,
    /// Zero.
    pub reserved: [u64; 6],
}
