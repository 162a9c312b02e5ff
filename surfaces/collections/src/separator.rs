//! Separators: what divides the keys of one bucket from those of the next, and how a key is
//! compared with them on the way down.
//!
//! To read the entry of each long separator would be most of the work of a lookup. So a separator
//! keeps its *last* bytes at hand: eight of them, from a multiple of eight on, the *code* times
//! eight. They decide if what comes before is known to be the same in the key. And that is known:
//! the way down goes between two separators, and everything between two keys that start with the
//! same bytes starts with these bytes too.

use core::cmp::Ordering;

use holdfast_layout::RawPtr;
use holdfast_txn::{Result, Transaction, TxError};

use crate::entry::{self, EntryBuf, prefix_of};
use crate::item::{SHORT, Sought, TAG_MASK, common_len, word_of};

/// Highest code: separators have at most 64 bytes that are compared without their entry.
const CODE_MAX: usize = 7;

/// A separator: the shortest key that is greater than one and not greater than the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Separator {
    /// Eight bytes from eight times the code on, zeros where it is over.
    pub(crate) number: u64,
    /// Zero if the number is all of it; else the pointer of an entry, with the code.
    pub(crate) word: u64,
}

/// Where the number of a separator starts, in units of eight bytes, by its word.
#[inline]
pub(crate) fn code_of(word: u64) -> u64 {
    word >> 1 & CODE_MAX as u64
}

impl Separator {
    /// Between two keys; allocates an entry for one that a number cannot hold.
    pub(crate) fn between<T: Transaction>(tx: &T, left: &[u8], right: &[u8]) -> Result<Self> {
        let same = common_len(left, right);
        let Some(key) = right.get(..=same).filter(|_| left < right) else {
            return Err(TxError::Inconsistent("keys of a map are out of order"));
        };
        if key.len() <= SHORT && right[same] != 0 {
            return Ok(Self { number: prefix_of(key), word: 0 });
        }
        let code = (same / SHORT).min(CODE_MAX);
        let word = word_of(entry::create(tx, key, b"")?)? | (code as u64) << 1;
        Ok(Self { number: prefix_of(&key[code * SHORT..]), word })
    }

    /// Its entry, if it has one.
    pub(crate) fn entry(&self) -> Option<RawPtr> {
        (self.word != 0).then(|| RawPtr::from_word(self.word & !TAG_MASK))
    }

    /// Whether number and word are those of a separator with this key.
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        let from = code_of(self.word) as usize * SHORT;
        key.get(from..).is_some_and(|rest| prefix_of(rest) == self.number) && self.word & 1 == 0
    }

    /// Frees its entry, if it has one.
    pub(crate) fn free<T: Transaction>(&self, tx: &T) -> Result<()> {
        self.entry().map_or(Ok(()), |entry| tx.free(entry))
    }
}

/// What is known of a key on its way down: how many bytes the nearest separators it has been
/// compared with on either side start with that it starts with too. Bytes behind the end of a key
/// count as zeros.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    below: usize,
    above: usize,
}

impl Known {
    /// A separator was passed on its right, or else on its left. Nearer ones have no less in
    /// common with the key than those passed before.
    #[inline]
    fn pass(&mut self, order: Ordering, common: usize) {
        let side = if order.is_lt() { &mut self.above } else { &mut self.below };
        *side = common.max(*side);
    }

    /// How a key compares with a separator. `word` reads its word, whose code is given.
    #[inline]
    pub(crate) fn compare<T: Transaction>(
        &mut self,
        tx: &T,
        sought: &Sought<'_>,
        (number, code): (u64, u64),
        word: impl FnOnce() -> Result<u64>,
    ) -> Result<Ordering> {
        let from = code as usize * SHORT;
        if from <= self.below.min(self.above) {
            let own = match code {
                0 => sought.prefix,
                _ => prefix_of(sought.key.get(from..).unwrap_or_default()),
            };
            if own != number {
                let order = own.cmp(&number);
                self.pass(order, from + (own ^ number).leading_zeros() as usize / 8);
                return Ok(order);
            }
        }
        let (order, common) = match word()? {
            // It ends in no zero, so a key with the same number starts with it.
            0 => (Ordering::Greater, SHORT),
            word => {
                let entry = EntryBuf::read(tx, RawPtr::from_word(word & !TAG_MASK))?;
                (entry.compare(tx, sought.key)?.reverse(), entry.common(sought.key))
            }
        };
        self.pass(order, common);
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_txn::toy::ToyStore;
    use holdfast_txn::{Isolation, Store};

    /// Keys that begin alike in some bytes, end in zeros, or begin one another.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for start in [0, 1, 7, 8, 9, 15, 16, 17, 24, 55, 56, 57, 63, 64, 65, 90] {
            let start = vec![b'p'; start];
            for end in [&b""[..], b"\0", b"\0\0", b"\x01", b"a", b"a\0", b"a\0b", b"ab", b"z"] {
                keys.push([&start[..], end].concat());
                keys.push([&start[..], end, b"12345678"].concat());
                keys.push([&start[..], end, &[0; 10]].concat());
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn a_search_by_what_is_known_comes_to_where_keys_belong() {
        let keys = keys();
        let done = ToyStore::new().run(Isolation::Serializable, |tx| {
            let pairs = keys.windows(2).map(|pair| Separator::between(tx, &pair[0], &pair[1]));
            let separators = pairs.collect::<Result<Vec<_>>>()?;
            for (place, key) in keys.iter().enumerate() {
                // Begun at many widths, so that different neighbours are known.
                for first in (0..separators.len()).step_by(7) {
                    let (mut low, mut high) = (0, separators.len());
                    let (mut known, mut middle) = (Known::default(), first);
                    while low < high {
                        let Separator { number, word } = separators[middle];
                        let sought = Sought::ordered(key);
                        let sign = (number, code_of(word));
                        match known.compare(tx, &sought, sign, || Ok(word))? {
                            Ordering::Less => high = middle,
                            _ => low = middle + 1,
                        }
                        middle = low.midpoint(high);
                    }
                    assert_eq!(low, place, "{key:?}");
                }
            }
            Ok(())
        });
        done.expect("committed");
    }

    #[test]
    fn long_common_starts_are_read_once_and_not_again() {
        let done = ToyStore::new().run(Isolation::Serializable, |tx| {
            let key = |n: u64| format!("https://example.com/user/{n:07}").into_bytes();
            let (wanted, mut read, mut known) = (key(500), 0, Known::default());
            for n in [1000, 100, 700, 300, 600, 400, 550, 450] {
                let Separator { number, word } = Separator::between(tx, &key(n - 1), &key(n))?;
                let sought = Sought::ordered(&wanted);
                let order = known.compare(tx, &sought, (number, code_of(word)), || {
                    read += 1;
                    Ok(word)
                })?;
                assert_eq!(order, 500.cmp(&n));
            }
            assert_eq!(read, 2, "one on either side");
            Ok(())
        });
        done.expect("committed");
    }
}
