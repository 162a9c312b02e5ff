//! Every structure of the collections as it lies in objects, and where fields are that are
//! written one by one. The numbers of the types follow from the fields, so that a change here
//! makes old objects of another type instead of misread.

use core::mem::offset_of;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};

/// Type number of entries: `key length u32 | key | value`, no gaps; the value goes to the end of
/// the object.
pub(crate) const ENTRY: TypeNumber = TypeNumber::of_name("holdfast.collections.Entry", 1);
/// Bytes of an entry before its key.
pub(crate) const ENTRY_HEAD: usize = 4;
/// Longest key, in bytes. Values are limited by the store alone.
pub const KEY_MAX: usize = 1 << 16;

/// Bits of the hash a directory uses up.
pub(crate) const DIRECTORY_BITS: u32 = 8;
/// Words of a directory.
pub(crate) const DIRECTORY_WORDS: usize = 1 << DIRECTORY_BITS;
/// Slots of a leaf; 504 bytes then fit the size class of 512 with nothing over.
pub(crate) const LEAF_SLOTS: usize = 30;

/// Anchor of a hash table: never changes while the table only grows, except once per 30 entries
/// at its very start, so that operations in different leaves do not conflict over it.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.HashHeader")]
pub struct HashHeader {
    /// Key of the hash function.
    pub(crate) seed: [u64; 2],
    /// Word that leads to everything; see `HashDirectory`.
    pub(crate) root: u64,
}

/// Inner node of a hash table. Each word is a pointer to a leaf, or a pointer to a directory with
/// its lowest bit set: objects never start at odd offsets.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.HashDirectory")]
pub(crate) struct HashDirectory {
    pub(crate) words: [u64; DIRECTORY_WORDS],
}

/// One place for an entry. Empty if the pointer is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.HashSlot")]
pub(crate) struct HashSlot {
    pub(crate) hash: u64,
    pub(crate) entry: RawPtr,
}

/// Leaf of a hash table: all entries whose hash starts with the same `depth` bits.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.HashLeaf")]
pub(crate) struct HashLeaf {
    /// Those bits, at the top; the others are zero.
    pub(crate) path: u64,
    /// Further entries with the same 64 bits; null before `depth` is 64.
    pub(crate) next: Ptr<HashLeaf>,
    pub(crate) depth: u32,
    /// Rises along `next`, so that a loop ends where it starts.
    pub(crate) ordinal: u32,
    pub(crate) slots: [HashSlot; LEAF_SLOTS],
}

/// Where the root word is in the header.
pub(crate) const HEADER_ROOT: u64 = offset_of!(HashHeader, root) as u64;
/// Where the pointer is in a slot.
pub(crate) const SLOT_ENTRY: u64 = offset_of!(HashSlot, entry) as u64;
/// Where `next` is in a leaf.
pub(crate) const LEAF_NEXT: u64 = offset_of!(HashLeaf, next) as u64;

/// Where a word is in a directory.
pub(crate) const fn directory_word(index: usize) -> u64 {
    (index * size_of::<u64>()) as u64
}

/// Where a slot is in a leaf.
pub(crate) const fn leaf_slot(index: usize) -> u64 {
    (offset_of!(HashLeaf, slots) + index * size_of::<HashSlot>()) as u64
}

/// Bytes all keys of a node start with that a node can leave out of its prefixes.
pub(crate) const COMMON_MAX: usize = 24;
/// Items of a leaf: 512 bytes in all.
pub(crate) const LEAF_ITEMS: usize = 30;
/// Items of an inner node: 1,000 bytes in all, still under one checksum, and twice the fan-out
/// of a node of 512 bytes; inner nodes change only when a node below splits or merges.
pub(crate) const INNER_ITEMS: usize = 40;
/// Most levels of a B-tree. The fewest items per node make a tree of this height larger than any
/// pool.
pub(crate) const HEIGHT_MAX: u32 = 32;

/// Anchor of a B-tree; changes with its height only.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeHeader")]
pub struct BTreeHeader {
    /// The root node; null if the tree is empty.
    pub(crate) root: RawPtr,
    /// Levels of the tree; zero if it is empty.
    pub(crate) height: u32,
    pub(crate) reserved: u32,
}

/// What leaves and inner nodes start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeNodeHead")]
pub(crate) struct NodeHead {
    /// Distance from the leaves, which are at level 0: whoever comes to a node knows what to
    /// expect, so no chain of nodes can be longer than the tree is high.
    pub(crate) level: u16,
    pub(crate) count: u16,
    /// Bytes in `common`.
    pub(crate) skip: u16,
    pub(crate) reserved: u16,
    /// What the keys of all items in this node start with.
    pub(crate) common: [u8; COMMON_MAX],
}

/// One entry in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeItem")]
pub(crate) struct Item {
    /// The eight bytes of the key after the common ones, most significant first, zeros where the
    /// key is over: comparing these numbers is comparing the keys, unless they are equal.
    pub(crate) prefix: u64,
    pub(crate) entry: RawPtr,
}

/// Leaf of a B-tree.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeLeaf")]
pub(crate) struct BTreeLeaf {
    pub(crate) head: NodeHead,
    pub(crate) items: [Item; LEAF_ITEMS],
}

/// Inner node of a B-tree: an item between each two children.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeInner")]
pub(crate) struct BTreeInner {
    pub(crate) head: NodeHead,
    pub(crate) items: [Item; INNER_ITEMS],
    pub(crate) children: [RawPtr; INNER_ITEMS + 1],
}

/// Where the pointer of an item is in a leaf or inner node.
pub(crate) const fn item_entry(index: usize) -> u64 {
    (offset_of!(BTreeLeaf, items) + index * size_of::<Item>() + offset_of!(Item, entry)) as u64
}

const _: () = {
    assert!(size_of::<HashLeaf>() == 504 && size_of::<HashDirectory>() == 2048);
    assert!(size_of::<BTreeLeaf>() == 512 && size_of::<BTreeInner>() == 1000);
    assert!(offset_of!(BTreeLeaf, items) == offset_of!(BTreeInner, items));
};

/// Anchor of a typed map: says what it is, so that opening it as something else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.MapHeader")]
pub struct MapHeader {
    pub(crate) kind: u32,
    pub(crate) key: u32,
    pub(crate) value: u32,
    pub(crate) reserved: u32,
    /// Header of the structure that holds the entries.
    pub(crate) root: RawPtr,
}
