//! What the pool should hold: objects by pointer, and the changes of each transaction.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use holdfast_oracle::acked::{Acked, Model};

/// Contents of one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its type number.
    pub kind: u32,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

/// All objects of a pool, by the word of their pointer. The anchor is one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Objects {
    live: BTreeMap<u64, Object>,
}

/// What one transaction changes: new contents by pointer word, or nothing for a freed object.
pub type Change = Vec<(u64, Option<Object>)>;

impl Model for Objects {
    type Op = Change;

    fn apply(&mut self, change: &Change) {
        for (word, object) in change {
            match object {
                Some(object) => self.live.insert(*word, object.clone()),
                None => self.live.remove(word),
            };
        }
    }
}

impl Objects {
    /// Adds or replaces an object.
    pub fn insert(&mut self, word: u64, object: Object) {
        self.live.insert(word, object);
    }

    /// The object with this pointer.
    #[must_use]
    pub fn get(&self, word: u64) -> Option<&Object> {
        self.live.get(&word)
    }

    /// All objects, by pointer.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Object)> {
        self.live.iter().map(|(word, object)| (*word, object))
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// In words, what is different in `found`, where this is what was expected.
    #[must_use]
    pub fn difference(&self, found: &Self) -> String {
        let mut all = Vec::new();
        for (word, object) in &self.live {
            match found.live.get(word) {
                None => all.push(format!("{} is gone", name(*word))),
                Some(other) if other.kind != object.kind => {
                    all.push(format!("{} has another type", name(*word)));
                }
                Some(other) if other.bytes.len() != object.bytes.len() => {
                    all.push(format!("{} has another length", name(*word)));
                }
                Some(other) if other != object => {
                    let differs = |i: &usize| other.bytes[*i] != object.bytes[*i];
                    let first = (0..object.bytes.len()).find(differs).unwrap_or(0);
                    let last = (0..object.bytes.len()).rfind(differs).unwrap_or(0);
                    all.push(format!(
                        "{} of {} bytes differs from byte {first} to {last}",
                        name(*word),
                        object.bytes.len()
                    ));
                }
                Some(_) => {}
            }
        }
        let extra = found.live.keys().filter(|word| !self.live.contains_key(word));
        all.extend(extra.map(|word| format!("{} should not be there", name(*word))));
        all.truncate(8);
        all.join(", ")
    }
}

/// Equal for promises of the same objects with the same changes under way, in every run.
#[must_use]
pub fn fingerprint(promise: &Acked<Objects>) -> u64 {
    let mut hasher = DefaultHasher::new();
    promise.model().hash(&mut hasher);
    promise.under_way().for_each(|change| change.hash(&mut hasher));
    hasher.finish()
}

/// A pointer as reports show it.
#[must_use]
pub fn name(word: u64) -> String {
    format!("{:#x}@{}", word & ((1 << 48) - 1), word >> 48)
}
