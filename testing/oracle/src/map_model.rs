//! The naive ordered map that every durable map is compared with.
//!
//! It is the standard library's ordered map with the few operations a durable map promises, and
//! a comparison that names the first difference, so that a failed test says which key is wrong
//! and in what way.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use crate::acked::Model;

/// An ordered map of byte-string keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapModel {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// One change of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapOp {
    /// Insert or replace.
    Put {
        /// Key, possibly empty.
        key: Vec<u8>,
        /// Value, possibly empty.
        value: Vec<u8>,
    },
    /// Remove, if there.
    Delete {
        /// Key.
        key: Vec<u8>,
    },
}

/// The first place at which a map differs from its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The model has this key, the map has not.
    Missing {
        /// The key.
        key: Vec<u8>,
    },
    /// The map has this key, the model has not.
    Extra {
        /// The key.
        key: Vec<u8>,
    },
    /// Both have the key, with different values.
    Value {
        /// The key.
        key: Vec<u8>,
        /// The model's value.
        expected: Vec<u8>,
        /// The map's value.
        found: Vec<u8>,
    },
    /// The map yields this key after a greater or equal one.
    Order {
        /// The key.
        key: Vec<u8>,
    },
}

impl MapModel {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new() }
    }

    /// Inserts or replaces. Returns the value replaced.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.entries.insert(key.to_vec(), value.to_vec())
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(key).map(Vec::as_slice)
    }

    /// Removes a key. Returns its value.
    pub fn delete(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries.remove(key)
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pairs with keys in a range, in ascending order of bytes. A range that ends before it
    /// begins is empty.
    pub fn scan<'a>(
        &'a self,
        from: Bound<&'a [u8]>,
        to: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let after = move |key: &[u8]| match from {
            Bound::Unbounded => true,
            Bound::Included(first) => key >= first,
            Bound::Excluded(first) => key > first,
        };
        let before = move |key: &[u8]| match to {
            Bound::Unbounded => true,
            Bound::Included(last) => key <= last,
            Bound::Excluded(last) => key < last,
        };
        // Filtering everything is slower than a range query and cannot get its bounds wrong.
        self.iter().filter(move |(key, _)| after(key) && before(key))
    }

    /// All pairs in ascending order of bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// The first difference between this model and the pairs a map yields in its order.
    pub fn difference<K, V>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Option<Difference>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut expected = self.iter().peekable();
        let mut last: Option<Vec<u8>> = None;
        for (key, value) in pairs {
            let (key, found) = (key.as_ref(), value.as_ref());
            if last.as_deref().is_some_and(|last| last >= key) {
                return Some(Difference::Order { key: key.to_vec() });
            }
            last = Some(key.to_vec());
            match expected.next() {
                Some((want, _)) if want < key => {
                    return Some(Difference::Missing { key: want.to_vec() });
                }
                Some((want, value)) if want == key => {
                    if value != found {
                        let (expected, found) = (value.to_vec(), found.to_vec());
                        return Some(Difference::Value { key: key.to_vec(), expected, found });
                    }
                }
                _ => return Some(Difference::Extra { key: key.to_vec() }),
            }
        }
        expected.next().map(|(key, _)| Difference::Missing { key: key.to_vec() })
    }
}

impl Model for MapModel {
    type Op = MapOp;

    fn apply(&mut self, op: &MapOp) {
        match op {
            MapOp::Put { key, value } => drop(self.put(key, value)),
            MapOp::Delete { key } => drop(self.delete(key)),
        }
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for MapModel {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::new();
        pairs.into_iter().for_each(|(key, value)| drop(map.put(key.as_ref(), value.as_ref())));
        map
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key } => write!(f, "key {} is missing", key.escape_ascii()),
            Self::Extra { key } => write!(f, "key {} should not be there", key.escape_ascii()),
            Self::Order { key } => write!(f, "key {} is out of order", key.escape_ascii()),
            Self::Value { key, expected, found } => write!(
                f,
                "key {} has {} instead of {}",
                key.escape_ascii(),
                found.escape_ascii(),
                expected.escape_ascii()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abc() -> MapModel {
        [("a", "1"), ("c", "3"), ("b", "2")].into_iter().collect()
    }

    #[test]
    fn puts_replace_and_deletes_return() {
        let mut map = abc();
        assert_eq!(map.put(b"a", b"9"), Some(b"1".to_vec()));
        assert_eq!(map.get(b"a"), Some(&b"9"[..]));
        assert_eq!(map.delete(b"a"), Some(b"9".to_vec()));
        assert_eq!(map.delete(b"a"), None);
        assert_eq!(map.len(), 2);
        assert!(!map.is_empty());
    }

    #[test]
    fn scans_respect_both_bounds() {
        let map = abc();
        let keys = |from, to| map.scan(from, to).map(|(k, _)| k[0]).collect::<Vec<_>>();
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded), b"abc");
        assert_eq!(keys(Bound::Included(b"a"), Bound::Excluded(b"c")), b"ab");
        assert_eq!(keys(Bound::Excluded(b"a"), Bound::Included(b"c")), b"bc");
        assert_eq!(keys(Bound::Included(b"c"), Bound::Included(b"a")), b"");
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let map = abc();
        let key = |k: &str| k.as_bytes().to_vec();
        assert_eq!(map.difference(map.clone().iter()), None);
        let cases = [
            (vec![("a", "1"), ("c", "3")], Difference::Missing { key: key("b") }),
            (vec![("a", "1"), ("b", "2")], Difference::Missing { key: key("c") }),
            (vec![("a", "1"), ("aa", "")], Difference::Extra { key: key("aa") }),
            (vec![("", "1"), ("a", "1")], Difference::Extra { key: key("") }),
            (
                vec![("a", "1"), ("b", "2"), ("c", "3"), ("d", "")],
                Difference::Extra { key: key("d") },
            ),
            (vec![("a", "1"), ("a", "1")], Difference::Order { key: key("a") }),
            (
                vec![("a", "x")],
                Difference::Value { key: key("a"), expected: key("1"), found: key("x") },
            ),
        ];
        for (pairs, expect) in cases {
            assert_eq!(map.difference(pairs.clone()), Some(expect), "{pairs:?}");
        }
    }

    #[test]
    fn differences_read_as_sentences() {
        let missing = Difference::Missing { key: vec![0, b'k'] };
        assert_eq!(missing.to_string(), "key \\x00k is missing");
    }
}
