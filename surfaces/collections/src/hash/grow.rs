//! How a table grows: a full bucket splits by its next bit, if need be after its directory
//! doubled or a directory was put below.

use holdfast_layout::{RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction};

use super::{HASH_BITS, Table, Way, Words};
use crate::bucket::move_out;
use crate::format::{BUCKET_NEXT, Bucket, DIRECTORY, DIRECTORY_BITS, DIRECTORY_CODE_MAX};
use crate::item::word_of;

/// Does one step to make room in the bucket for a hash.
pub(super) fn make_room<T: Transaction>(tx: &T, table: &Table, hash: u64) -> Result<()> {
    let way = table.way(tx, hash)?;
    let last = way.words[way.words.len() - 1];
    if way.bucket.next.is_null() {
        if way.bucket.depth < last.end() {
            return split(tx, table, way, hash);
        }
        let doubles = last.base > 0
            && last.bits < DIRECTORY_BITS + DIRECTORY_CODE_MAX
            && last.end() < HASH_BITS;
        if doubles {
            return double(tx, &way, hash);
        }
        if last.end() + DIRECTORY_BITS <= HASH_BITS {
            let words = vec![word_of(way.at.raw())?; 1 << DIRECTORY_BITS];
            let directory = create(tx, &words, DIRECTORY_BITS)?;
            return last.fill(tx, hash, last.end(), directory);
        }
    }
    // The bits are used up: another bucket behind the first one, which all look at anyway.
    let fresh = tx.alloc(Bucket { next: way.bucket.next, ..empty(way.bucket.depth) })?;
    tx.write_bytes(way.at.raw(), BUCKET_NEXT, bytemuck::bytes_of(&fresh))
}

fn empty(depth: u32) -> Bucket {
    Bucket { depth, ..Bucket::EMPTY }
}

/// Moves all keys with the next bit set to another bucket.
fn split<T: Transaction>(tx: &T, table: &Table, mut way: Way, hash: u64) -> Result<()> {
    let depth = way.bucket.depth;
    let bit = 1 << (HASH_BITS - 1 - depth);
    let mut leaving = Vec::new();
    for (slot, item) in way.bucket.used() {
        if table.hash_of(tx, item)? & bit != 0 {
            leaving.push(slot);
        }
    }
    way.bucket.depth = depth + 1;
    let high = move_out(tx, way.at, &mut way.bucket, empty(depth + 1), leaving)?;
    way.words[way.words.len() - 1].fill(tx, hash | bit, depth + 1, word_of(high)?)
}

/// Makes the last directory twice as large, so that it looks at one more bit.
fn double<T: Transaction>(tx: &T, way: &Way, hash: u64) -> Result<()> {
    let [.., above, last] = way.words[..] else { return Ok(()) };
    let words: Vec<u64> = last.read_all(tx)?.iter().flat_map(|word| [*word; 2]).collect();
    let larger = create(tx, &words, last.bits + 1)?;
    above.fill(tx, hash, above.end(), larger)?;
    tx.free(last.object)
}

/// Allocates a directory; returns the word that leads to it.
fn create<T: Transaction>(tx: &T, words: &[u64], bits: u32) -> Result<u64> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let directory: RawPtr = tx.alloc_from(DIRECTORY, &bytes)?;
    Ok(word_of(directory)? | 1 | u64::from(bits - DIRECTORY_BITS) << 1)
}

/// The words a directory was doubled from, for those who undo it.
pub(super) fn leads_to_one_bucket(words: &Words, depth: u32) -> bool {
    words.base > 0 && depth == words.base
}
