//! The medium of the model: words with histories.
//!
//! Every word keeps the values it was given since it last became durable. A crash leaves in each
//! word, independently of all others, any one of those values or the durable one: caches evict
//! when they like and a page cache writes back when it likes. A flush takes a snapshot and orders
//! nothing; a drain makes the snapshots of one lane durable. A drain never moves a word back: a
//! snapshot older than what another lane has already made durable is ignored.
//!
//! Units are single 8-byte words on both media. Lines and sectors would only remove crash images,
//! so what holds here holds there.

use crate::rng::Rng;

/// The content of one word at the moment of a flush, named by the number of its store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    word: usize,
    store: u64,
}

/// What the running program sees, what a crash is certain to keep, and everything in between.
#[derive(Clone, Debug)]
pub(super) struct Medium {
    visible: Vec<u64>,
    durable: Vec<u64>,
    /// Number of stores each word has had.
    stores: Vec<u64>,
    /// Values stored since the word was last made durable, oldest first.
    pending: Vec<Vec<u64>>,
    /// Stores up to this one were dropped by a failed sync: the page counts as clean, so no later
    /// sync writes them.
    dropped: Vec<u64>,
}

impl Medium {
    /// A medium that holds exactly `image`, all of it durable.
    pub(super) fn new(image: Vec<u64>) -> Self {
        let words = image.len();
        Self {
            visible: image.clone(),
            durable: image,
            stores: vec![0; words],
            pending: vec![Vec::new(); words],
            dropped: vec![0; words],
        }
    }

    /// What a load returns.
    pub(super) fn load(&self, word: usize) -> u64 {
        self.visible[word]
    }

    /// All words as loads would return them.
    pub(super) fn visible(&self) -> &[u64] {
        &self.visible
    }

    /// Stores one word. From here on a crash may keep it.
    pub(super) fn store(&mut self, word: usize, value: u64) {
        self.visible[word] = value;
        self.stores[word] += 1;
        self.pending[word].push(value);
    }

    /// Flushes one word: remembers its content now.
    pub(super) fn flush(&self, word: usize) -> Snapshot {
        Snapshot { word, store: self.stores[word] }
    }

    /// Makes snapshots durable: a drain by the lane that flushed them, or a finished sync.
    pub(super) fn persist(&mut self, snapshots: &[Snapshot]) {
        for snapshot in snapshots {
            let word = snapshot.word;
            let durable_at = self.stores[word] - self.pending[word].len() as u64;
            if snapshot.store <= durable_at || snapshot.store <= self.dropped[word] {
                continue;
            }
            let passed = (snapshot.store - durable_at) as usize;
            self.durable[word] = self.pending[word][passed - 1];
            self.pending[word].drain(..passed);
        }
    }

    /// A sync failed: what it was to write may or may not have arrived, and is forgotten.
    pub(super) fn drop_dirty(&mut self, snapshots: &[Snapshot]) {
        for snapshot in snapshots {
            self.dropped[snapshot.word] = self.dropped[snapshot.word].max(snapshot.store);
        }
    }

    /// Whether the word is certain to survive a crash with the content loads see.
    pub(super) fn at_rest(&self, word: usize) -> bool {
        self.pending[word].is_empty()
    }

    /// Rots bits of a word at rest: the cell itself changed, so loads and every crash see it.
    pub(super) fn rot(&mut self, word: usize, mask: u64) {
        assert!(self.at_rest(word), "rot is modelled on words at rest only");
        self.visible[word] ^= mask;
        self.durable[word] ^= mask;
    }

    /// One crash image. Choices come in runs of neighbouring words, because a record that leaks
    /// whole, or not at all, is as interesting as one torn at random, and independent coin flips
    /// would almost never produce it.
    pub(super) fn crash_image(&self, rng: &mut Rng) -> Vec<u64> {
        let mut image = self.durable.clone();
        let mut mood = rng.below(4);
        let fixed = rng.one_in(3);
        let mut last = 0;
        for (word, values) in self.pending.iter().enumerate() {
            if values.is_empty() {
                continue;
            }
            if !fixed && (word != last + 1 || rng.one_in(8)) {
                mood = rng.below(4);
            }
            last = word;
            image[word] = match mood {
                0 => continue,
                1 => values[values.len() - 1],
                _ => match rng.below(values.len() + 1) {
                    0 => continue,
                    n => values[n - 1],
                },
            };
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_never_moves_a_word_back() {
        let mut medium = Medium::new(vec![0]);
        medium.store(0, 1);
        let early = medium.flush(0);
        medium.store(0, 2);
        let late = medium.flush(0);
        medium.persist(&[late]);
        medium.persist(&[early]);
        assert_eq!(medium.durable[0], 2);
        assert!(medium.at_rest(0));
    }

    #[test]
    fn every_value_since_the_last_drain_may_survive() {
        let mut medium = Medium::new(vec![9]);
        for value in 1..4 {
            medium.store(0, value);
        }
        let mut rng = Rng::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            seen.insert(medium.crash_image(&mut rng)[0]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2, 3, 9]);
    }

    #[test]
    fn a_retried_sync_writes_nothing() {
        let mut medium = Medium::new(vec![0]);
        medium.store(0, 1);
        let snapshot = medium.flush(0);
        medium.drop_dirty(&[snapshot]);
        medium.persist(&[medium.flush(0)]);
        assert_eq!(medium.durable[0], 0);
        medium.store(0, 2);
        medium.persist(&[medium.flush(0)]);
        assert_eq!(medium.durable[0], 2);
    }

    #[test]
    fn a_flush_keeps_the_content_of_its_moment() {
        let mut medium = Medium::new(vec![0]);
        medium.store(0, 1);
        let snapshot = medium.flush(0);
        medium.store(0, 2);
        medium.persist(&[snapshot]);
        assert_eq!(medium.durable[0], 1);
        assert!(!medium.at_rest(0));
    }
}
