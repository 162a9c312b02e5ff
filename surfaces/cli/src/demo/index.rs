//! The index in the pool: one entry for each pair of a word and a file, so that no transaction
//! gets larger with the number of files.
//!
//! ```text
//! key    word, a zero byte, the file's number (most significant byte first)
//! value  positions, four bytes each
//! ```

use core::ops::Bound;

use holdfast::{NamedMap, Pool, TxError};

use super::corpus::{Corpus, Postings};
use crate::failure::Outcome;

/// Entries put in one transaction.
const BATCH: usize = 128;
/// Name of the map.
const NAME: &str = "words";

/// The index of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    map: NamedMap<[u8], [u8]>,
}

impl Index {
    /// The index of `pool`; an empty one if it has none.
    pub(crate) fn of(pool: &Pool) -> Outcome<Self> {
        Ok(Self { map: pool.map(NAME)? })
    }

    /// Puts the files of `corpus` from number `from` up to `to` into the index.
    pub(crate) fn build(
        &self,
        corpus: &Corpus,
        (from, to): (usize, usize),
        mut done: impl FnMut(u64),
    ) -> Outcome<()> {
        for number in from..to {
            let entries: Vec<_> = corpus.files[number].iter().collect();
            for batch in entries.chunks(BATCH) {
                self.map.pool().run(|tx| {
                    for (word, positions) in batch {
                        let value: Vec<u8> =
                            positions.iter().flat_map(|at| at.to_le_bytes()).collect();
                        self.map.map().put(tx, &key(word, number as u32), &value)?;
                    }
                    Ok(())
                })?;
                done(batch.len() as u64);
            }
        }
        Ok(())
    }

    /// Where a word is.
    pub(crate) fn query(&self, word: &str) -> Outcome<Postings> {
        let (from, to) = (key(word, 0), key(word, u32::MAX));
        let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let found = self.map.pool().run(|tx| {
            let mut found = Postings::new();
            self.map.map().scan(tx, range, usize::MAX, |key, value| {
                let (file, positions) =
                    decode(key, value).ok_or(TxError::Inconsistent("an entry of the index"))?;
                found.insert(file, positions);
                Ok(())
            })?;
            Ok(found)
        });
        Ok(found?)
    }
}

fn key(word: &str, file: u32) -> Vec<u8> {
    let [a, b, c, d] = [file >> 24, file >> 16, file >> 8, file].map(|byte| byte as u8);
    [word.as_bytes(), &[0, a, b, c, d]].concat()
}

fn decode(key: &[u8], value: &[u8]) -> Option<(u32, Vec<u32>)> {
    let &[.., 0, a, b, c, d] = key else { return None };
    let file = [a, b, c, d].into_iter().fold(0, |file, byte| file << 8 | u32::from(byte));
    let positions = value.chunks(4).map(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
    Some((file, positions.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_word_and_file_and_come_back() {
        let mut keys = [key("b", 1), key("a", 256), key("ab", 0), key("a", 2)];
        keys.sort();
        let back: Vec<_> = keys.iter().filter_map(|key| decode(key, &[7, 0, 0, 0])).collect();
        assert_eq!(back, [(2, vec![7]), (256, vec![7]), (0, vec![7]), (1, vec![7])]);
        assert_eq!(decode(b"word", b""), None);
        assert_eq!(decode(&key("a", 1), &[1, 2]), None);
    }
}
