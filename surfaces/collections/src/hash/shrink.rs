//! How a table shrinks: two thin buckets that differ in their last bit become one, and a directory
//! that leads to one bucket only goes.

use holdfast_layout::{Ptr, RawPtr, bytemuck};
use holdfast_txn::{Result, Transaction, TxError};

use super::grow::leads_to_one_bucket;
use super::{CHAIN_MAX, HASH_BITS, Table, Way};
use crate::bucket::join;
use crate::common::MERGED_MAX;
use crate::format::{BUCKET_NEXT, Bucket};
use crate::item::word_of;

/// Joins what can be joined at the bucket for a hash.
pub(super) fn tidy<T: Transaction>(tx: &T, table: &Table, hash: u64) -> Result<()> {
    let mut way = table.way(tx, hash)?;
    if !way.bucket.next.is_null() {
        shorten(tx, &mut way)?;
    }
    while way.bucket.next.is_null() {
        let Some(last) = way.words.last().copied() else { break };
        if leads_to_one_bucket(&last, way.bucket.depth) {
            tx.free(last.object)?;
            way.words.pop();
            let Some(above) = way.words.last() else { break };
            above.fill(tx, hash, above.end(), word_of(way.at.raw())?)?;
            continue;
        }
        if way.bucket.depth == 0 || !join_halves(tx, &mut way, hash)? {
            break;
        }
    }
    Ok(())
}

/// Joins the bucket with the one that was split from it, or it from that; whether it did.
fn join_halves<T: Transaction>(tx: &T, way: &mut Way, hash: u64) -> Result<bool> {
    let depth = way.bucket.depth;
    let bit = 1 << (HASH_BITS - depth);
    let Some(words) = way.words.last() else { return Ok(false) };
    let word = words.read(tx, words.index(hash ^ bit))?;
    if word & 1 != 0 {
        return Ok(false);
    }
    let other: Ptr<Bucket> = RawPtr::from_word(word).typed();
    let half: Bucket = tx.read(other)?;
    let fits = half.depth == depth
        && half.next.is_null()
        && other != way.at
        && half.len() + way.bucket.len() <= MERGED_MAX;
    if !fits {
        return Ok(false);
    }
    way.bucket.depth = depth - 1;
    join(tx, way.at, way.bucket, &half)?;
    way.bucket = tx.read(way.at)?;
    tx.free(other.raw())?;
    words.fill(tx, hash ^ bit, depth, word_of(way.at.raw())?).map(|()| true)
}

/// Takes empty buckets out of a chain.
fn shorten<T: Transaction>(tx: &T, way: &mut Way) -> Result<()> {
    let mut before = way.at;
    let mut next = way.bucket.next;
    for _ in 0..CHAIN_MAX {
        if next.is_null() {
            way.bucket = tx.read(way.at)?;
            return Ok(());
        }
        let bucket: Bucket = tx.read(next)?;
        if bucket.len() == 0 {
            tx.write_bytes(before.raw(), BUCKET_NEXT, bytemuck::bytes_of(&bucket.next))?;
            tx.free(next.raw())?;
        } else {
            before = next;
        }
        next = bucket.next;
    }
    Err(TxError::Inconsistent("a chain of a hash table has no end"))
}
