//! What B-trees and red-black trees share: they choose by separators, so that every key, there or
//! not, belongs to exactly one bucket.

use core::cmp::Ordering;

use holdfast_txn::{Result, Transaction};

use crate::item::Sought;
use crate::separator::{Known, code_of};

/// Which child leads on to a key: separators have `numbers`, all of their first bytes and so in
/// order, and words that `word_at` finds.
#[inline]
pub(crate) fn choose<T: Transaction>(
    tx: &T,
    sought: &Sought<'_>,
    known: &mut Known,
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
        match known.compare(tx, sought, (numbers[middle], 0), || word_at(middle))? {
            Ordering::Less => high = middle,
            _ => low = middle + 1,
        }
    }
    Ok(low)
}

/// As [`choose`], among `count` separators whose numbers are of any of their bytes; `at` answers
/// number and word.
pub(crate) fn choose_coded<T: Transaction>(
    tx: &T,
    sought: &Sought<'_>,
    known: &mut Known,
    at: impl Fn(usize) -> (u64, u64),
    count: usize,
) -> Result<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        let (number, word) = at(middle);
        match known.compare(tx, sought, (number, code_of(word)), || Ok(word))? {
            Ordering::Less => high = middle,
            _ => low = middle + 1,
        }
    }
    Ok(low)
}
