//! How a table grows: a full leaf becomes two, by the next bit of the hash.

use holdfast_layout::bytemuck;
use holdfast_txn::{Result, Transaction};

use super::{
    HASH_BITS, Seek, Spot, Word, directory_word_of, index_of, leaf_word, read_word, write_word,
};
use crate::format::{
    DIRECTORY_WORDS, HashDirectory, HashLeaf, HashSlot, LEAF_NEXT, directory_word,
};

/// Splits the leaf at `spot`, whose content is `leaf`. Changes the leaf, allocates another, and
/// changes the words of the directory that shall lead there; or allocates a directory.
pub(super) fn split<T: Transaction>(tx: &T, spot: &Spot, leaf: &HashLeaf) -> Result<()> {
    let depth = leaf.depth;
    let bit = 1 << (HASH_BITS - 1 - depth);
    // What stays keeps its slot, so that only what leaves is changed.
    let mut low = HashLeaf { depth: depth + 1, ..*leaf };
    let mut high = HashLeaf::empty(leaf.path | bit, depth + 1);
    let moving = low.slots.iter_mut().filter(|slot| slot.hash & bit != 0);
    for (place, slot) in high.slots.iter_mut().zip(moving) {
        *place = core::mem::take(slot);
    }
    let high = leaf_word(tx.alloc(high)?)?;
    *tx.open_mut(spot.leaf)? = low;
    if depth < spot.base {
        let words = 1 << (spot.base - depth);
        let from = index_of(leaf.path, spot.base) + words / 2;
        return fill(tx, spot, from, words / 2, high);
    }
    let low = leaf_word(spot.leaf)?;
    let mut directory = HashDirectory { words: [low; DIRECTORY_WORDS] };
    directory.words[DIRECTORY_WORDS / 2..].fill(high);
    let directory = directory_word_of(tx.alloc(directory)?.raw())?;
    write_word(tx, leaf_place(spot, leaf.path), directory)
}

/// Chains a leaf with one entry to the end of a search among equal hashes.
pub(super) fn chain<T: Transaction>(tx: &T, seek: &Seek, only: HashSlot) -> Result<()> {
    let mut leaf = HashLeaf::empty(seek.last.path, HASH_BITS);
    leaf.ordinal = seek.last.ordinal.saturating_add(1);
    leaf.slots[0] = only;
    let next = tx.alloc(leaf)?;
    tx.write_bytes(seek.end.raw(), LEAF_NEXT, bytemuck::bytes_of(&next))
}

/// Makes `count` words of the leaf's directory, from the one at `from` on, lead elsewhere.
pub(super) fn fill<T: Transaction>(
    tx: &T,
    spot: &Spot,
    from: usize,
    count: usize,
    word: u64,
) -> Result<()> {
    let words = [word; DIRECTORY_WORDS];
    tx.write_bytes(spot.directory, directory_word(from), bytemuck::cast_slice(&words[..count]))
}

/// The word that leads to a leaf which has used up all bits of its directory.
fn leaf_place(spot: &Spot, path: u64) -> Word {
    if spot.base == 0 {
        spot.parent
    } else {
        Word { object: spot.directory, at: directory_word(index_of(path, spot.base)) }
    }
}

/// The word that leads to the other half of a leaf that was split from it at its last bit.
pub(super) fn buddy_word<T: Transaction>(tx: &T, spot: &Spot, leaf: &HashLeaf) -> Result<u64> {
    let words = 1 << (spot.base - leaf.depth);
    let at = directory_word(index_of(leaf.path, spot.base) ^ words);
    read_word(tx, Word { object: spot.directory, at })
}
