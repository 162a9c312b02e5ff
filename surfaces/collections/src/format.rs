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

/// Places of a bucket: 1,024 bytes in all, which one checksum covers and a size class fits.
/// Fewer make the ways to buckets longer, more make every change verify more.
pub(crate) const BUCKET_ITEMS: usize = 63;

/// One key and its value, or where they are. Nothing if `word` is zero.
///
/// If the lowest bit of `word` is set, both are here: bits 1 to 4 have the length of the key, at
/// most 8, bits 5 to 7 that of the value, at most 7, and the other bytes the value; `key` has the
/// bytes of the key, most significant first, zeros where it is over.
///
/// Else `word` is the pointer of an entry, with a code in bits 1 to 3: 0 if `key` is the hash of
/// the key, `n` if it has the bytes of a key of `n + 1` bytes as above. Objects start at multiples
/// of 16, so these bits are no part of pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Item")]
pub(crate) struct Item {
    pub(crate) key: u64,
    pub(crate) word: u64,
}

/// What all structures keep their items in, in no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Bucket")]
pub(crate) struct Bucket {
    /// In a hash table, how many bits all hashes here start with; else zero.
    pub(crate) depth: u32,
    pub(crate) reserved: u32,
    /// In a hash table, further items with the same 64 bits; else null.
    pub(crate) next: Ptr<Bucket>,
    pub(crate) items: [Item; BUCKET_ITEMS],
}

/// Where `next` is in a bucket.
pub(crate) const BUCKET_NEXT: u64 = offset_of!(Bucket, next) as u64;

/// Where an item is in a bucket.
pub(crate) const fn bucket_item(index: usize) -> u64 {
    (offset_of!(Bucket, items) + index * size_of::<Item>()) as u64
}

/// Bits of the hash the header of a table uses up.
pub(crate) const HEADER_BITS: u32 = 8;
/// Words in the header of a hash table.
pub(crate) const HEADER_WORDS: usize = 1 << HEADER_BITS;
/// Type number of directories of a hash table: nothing but words, 16 to 2,048 of them.
pub(crate) const DIRECTORY: TypeNumber =
    TypeNumber::of_name("holdfast.collections.HashDirectory", 2);
/// Bits of the hash the smallest directory uses up.
pub(crate) const DIRECTORY_BITS: u32 = 4;
/// How often a directory doubles: its code in words goes up to here.
pub(crate) const DIRECTORY_CODE_MAX: u32 = 7;

/// Anchor and first directory of a hash table. A word is the pointer of a bucket, or of a
/// directory with its lowest bit set and its size in bits 1 to 3: `16 << n` words.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.HashHeader")]
pub struct HashHeader {
    /// Key of the hash function.
    pub(crate) seed: [u64; 2],
    /// By the first eight bits of the hash.
    pub(crate) words: [u64; HEADER_WORDS],
}

/// Where the words are in a header.
pub(crate) const HEADER_FIRST: u64 = offset_of!(HashHeader, words) as u64;

/// Anchor of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.TreeHeader")]
pub struct TreeHeader {
    /// Pointer of a bucket, or of an inner node with its lowest bit set; zero if the tree is
    /// empty. In radix trees, bits 1 to 3 say how large the node is.
    pub(crate) root: u64,
    /// Code of the kind of the tree.
    pub(crate) kind: u32,
    pub(crate) reserved: u32,
}

/// Children of a B-tree node.
pub(crate) const BTREE_CHILDREN: usize = 42;
/// Separators of a B-tree node.
pub(crate) const BTREE_SEPARATORS: usize = 41;

/// Inner node of a B-tree: a separator between each two children, no greater than any key on its
/// right and greater than all on its left.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.BTreeNode")]
pub(crate) struct BTreeNode {
    /// Children in use.
    pub(crate) count: u32,
    /// 1 if some number is not of the first bytes of its separator, else 0.
    pub(crate) coded: u32,
    /// Eight bytes of each separator, most significant first, zeros where it is over: the first
    /// ones, or those from eight times the code in its word on.
    pub(crate) numbers: [u64; BTREE_SEPARATORS],
    pub(crate) children: [u64; BTREE_CHILDREN],
    /// Zero if the number is all of the separator, which then does not end in a zero; else the
    /// pointer of an entry with the separator as key, with the code in bits 1 to 3.
    pub(crate) words: [u64; BTREE_SEPARATORS],
}

/// Bytes of a B-tree node that choose among its children.
pub(crate) const BTREE_CHOICE: usize = offset_of!(BTreeNode, children);

/// Where a child is in a B-tree node.
pub(crate) const fn btree_child(index: usize) -> u64 {
    (offset_of!(BTreeNode, children) + index * size_of::<u64>()) as u64
}

/// Where the word of a separator is in a B-tree node.
pub(crate) const fn btree_word(index: usize) -> u64 {
    (offset_of!(BTreeNode, words) + index * size_of::<u64>()) as u64
}

/// Inner node of a red-black tree: one separator, as in a B-tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.RbNode")]
pub(crate) struct RbNode {
    pub(crate) number: u64,
    pub(crate) word: u64,
    pub(crate) children: [u64; 2],
    /// 1 if the node is red, 0 if it is black; buckets are black.
    pub(crate) red: u32,
    pub(crate) reserved: u32,
}

/// Inner node of a crit-bit tree: all keys below agree in all bits before the one at `at`. Every
/// byte of a key has nine bits: a set one that says it is there, then its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.CritNode")]
pub(crate) struct CritNode {
    pub(crate) at: u32,
    pub(crate) reserved: u32,
    pub(crate) children: [u64; 2],
}

/// Inner node of a radix tree: all keys below agree in the bytes before the one at `at`. Child
/// `i` has those with bytes from `bounds[i]` up to the next bound there; the first one has also
/// those that end before, and no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Radix4")]
pub(crate) struct Radix4 {
    pub(crate) at: u32,
    pub(crate) count: u32,
    pub(crate) bounds: [u8; 8],
    pub(crate) children: [u64; 4],
}

/// As [`Radix4`], with up to 16 children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Radix16")]
pub(crate) struct Radix16 {
    pub(crate) at: u32,
    pub(crate) count: u32,
    pub(crate) bounds: [u8; 16],
    pub(crate) children: [u64; 16],
}

/// As [`Radix4`], with up to 48 children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Radix48")]
pub(crate) struct Radix48 {
    pub(crate) at: u32,
    pub(crate) count: u32,
    pub(crate) bounds: [u8; 48],
    pub(crate) children: [u64; 48],
}

/// Inner node of a radix tree with a word for every byte, behind one for keys that end before it;
/// words of one child are next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.Radix256")]
pub(crate) struct Radix256 {
    pub(crate) at: u32,
    pub(crate) count: u32,
    pub(crate) children: [u64; 257],
}

/// Levels of a tall node of a skip list.
pub(crate) const SKIP_LEVELS: usize = 14;
/// Levels of a short one.
pub(crate) const SKIP_SHORT: usize = 2;

/// The next node of a skip list at one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.SkipLink")]
pub(crate) struct SkipLink {
    /// The number of the separator where its keys start, as in a B-tree.
    pub(crate) number: u64,
    /// Its pointer, with the lowest bit set if it is tall and the code of the separator in bits 1
    /// to 3; zero at the end.
    pub(crate) node: u64,
}

/// What all nodes of a skip list start with: a separator, as in a B-tree, between its keys and
/// those before, and the bucket with its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.SkipHead")]
pub(crate) struct SkipHead {
    pub(crate) number: u64,
    pub(crate) word: u64,
    pub(crate) bucket: RawPtr,
    pub(crate) height: u32,
    pub(crate) reserved: u32,
}

/// Node of a skip list of at most two levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.SkipShort")]
pub(crate) struct SkipShort {
    pub(crate) head: SkipHead,
    pub(crate) links: [SkipLink; SKIP_SHORT],
}

/// Node of a skip list of any height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.SkipTall")]
pub(crate) struct SkipTall {
    pub(crate) head: SkipHead,
    pub(crate) links: [SkipLink; SKIP_LEVELS],
}

/// Anchor of a skip list: its first node, which is of all heights and has no separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "holdfast.collections.SkipHeader")]
pub struct SkipHeader {
    pub(crate) head: SkipHead,
    pub(crate) links: [SkipLink; SKIP_LEVELS],
}

/// Where a link is in a node of a skip list.
pub(crate) const fn skip_link(level: usize) -> u64 {
    (size_of::<SkipHead>() + level * size_of::<SkipLink>()) as u64
}

/// Where the bucket is in a node of a skip list.
pub(crate) const SKIP_BUCKET: u64 = offset_of!(SkipHead, bucket) as u64;

const _: () = {
    assert!(size_of::<Bucket>() == 1024 && size_of::<BTreeNode>() == 1000);
    assert!(size_of::<HashHeader>() == 2064 && size_of::<TreeHeader>() == 16);
    assert!(size_of::<Radix48>() == 440 && size_of::<Radix256>() == 2064);
    assert!(size_of::<SkipShort>() == 64 && size_of::<SkipTall>() == 256);
    assert!(size_of::<SkipHeader>() == size_of::<SkipTall>());
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

/// What objects of a type are called, if they are parts of these structures: for tools that look
/// at pools object by object.
#[must_use]
pub fn structure_of(number: TypeNumber) -> Option<&'static str> {
    const KNOWN: &[(TypeNumber, &str)] = &[
        (ENTRY, "Entry"),
        (MapHeader::TYPE, "MapHeader"),
        (Bucket::TYPE, "Bucket"),
        (HashHeader::TYPE, "HashHeader"),
        (DIRECTORY, "HashDirectory"),
        (TreeHeader::TYPE, "TreeHeader"),
        (BTreeNode::TYPE, "BTreeNode"),
        (RbNode::TYPE, "RbNode"),
        (CritNode::TYPE, "CritNode"),
        (Radix4::TYPE, "Radix4"),
        (Radix16::TYPE, "Radix16"),
        (Radix48::TYPE, "Radix48"),
        (Radix256::TYPE, "Radix256"),
        (SkipHeader::TYPE, "SkipHeader"),
        (SkipShort::TYPE, "SkipShort"),
        (SkipTall::TYPE, "SkipTall"),
    ];
    KNOWN.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}
