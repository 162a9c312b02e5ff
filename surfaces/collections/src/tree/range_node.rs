//! What B-trees and red-black trees share: they choose by separators, so that every key, there or
//! not, belongs to exactly one bucket.

use core::cmp::Ordering;

use holdfast_txn::{Result, Transaction};

use crate::item::Sought;

/// Which child leads on to a key: separators have `numbers`, and words that `word_at` finds.
#[inline]
pub(crate) fn choose<T: Transaction>(
    tx: &T,
    sought: &Sought<'_>,
    numbers: &[u64],
    word_at: impl Fn(usize) -> Result<u64>,
) -> Result<usize> {
    let mut low = numbers.partition_point(|number| *number < sought.prefix);
    if numbers.get(low) != Some(&sought.prefix) {
        return Ok(low);
    }
    let mut high = low + numbers[low..].partition_point(|number| *number == sought.prefix);
    while low < high {
        let middle = low.midpoint(high);
        match sought.compare(tx, numbers[middle], || word_at(middle))? {
            Ordering::Less => high = middle,
            _ => low = middle + 1,
        }
    }
    Ok(low)
}
