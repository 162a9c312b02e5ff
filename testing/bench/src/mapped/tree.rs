//! A B+tree on a plain mapping: nodes of one page, values in the leaves.
//!
//! A leaf: number of pairs, keys, values. An inner node: number of keys, keys, children, one more
//! than keys; a child's keys are below the key at its place.

use std::sync::Arc;

use super::area::Area;
use super::loads::{Pairs, Value};

/// Bytes of a node.
const NODE: u64 = 4096;
/// Pairs of a leaf.
const LEAF: u64 = 37;
/// Keys of an inner node.
const INNER: u64 = 340;
const KEYS: u64 = 8;
const VALUES: u64 = KEYS + LEAF * 8;
const CHILDREN: u64 = KEYS + INNER * 8;
/// Bytes of a value.
const VALUE: u64 = 100;

/// The tree. Node 0 is a leaf at first; the root moves.
#[derive(Debug)]
pub(crate) struct Tree {
    area: Arc<Area>,
    root: u64,
    /// Levels above the leaves.
    height: u32,
    nodes: u64,
}

impl Tree {
    #[inline(always)]
    fn count(&self, node: u64) -> u64 {
        u64::from(self.area.load::<u32>(node * NODE))
    }

    fn set_count(&self, node: u64, count: u64) {
        self.area.store(node * NODE, count as u32);
    }

    #[inline(always)]
    fn key(&self, node: u64, at: u64) -> u64 {
        self.area.load(node * NODE + KEYS + at * 8)
    }

    fn set_key(&self, node: u64, at: u64, key: u64) {
        self.area.store(node * NODE + KEYS + at * 8, key);
    }

    #[inline(always)]
    fn child(&self, node: u64, at: u64) -> u64 {
        u64::from(self.area.load::<u32>(node * NODE + CHILDREN + at * 4))
    }

    fn set_child(&self, node: u64, at: u64, child: u64) {
        self.area.store(node * NODE + CHILDREN + at * 4, child as u32);
    }

    #[inline(always)]
    fn value(&self, leaf: u64, at: u64) -> u64 {
        leaf * NODE + VALUES + at * VALUE
    }

    /// How many keys of a node are at most `key`.
    #[inline(always)]
    fn upper(&self, node: u64, key: u64) -> u64 {
        let (mut low, mut len) = (0, self.count(node));
        while len > 0 {
            let half = len / 2;
            let above = self.key(node, low + half) <= key;
            low = if above { low + half + 1 } else { low };
            len = if above { len - half - 1 } else { half };
        }
        low
    }

    fn fresh(&mut self) -> u64 {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Inserts below a node; if that was split, the key from which the new node holds on, and it.
    fn put(&mut self, node: u64, height: u32, key: u64, value: &Value) -> Option<(u64, u64)> {
        let at = self.upper(node, key);
        if height == 0 {
            return self.put_leaf(node, at, key, value);
        }
        let (from, new) = self.put(self.child(node, at), height - 1, key, value)?;
        let count = self.count(node);
        for i in (at..count).rev() {
            self.set_key(node, i + 1, self.key(node, i));
            self.set_child(node, i + 2, self.child(node, i + 1));
        }
        self.set_key(node, at, from);
        self.set_child(node, at + 1, new);
        self.set_count(node, count + 1);
        (count + 1 == INNER).then(|| self.split_inner(node))
    }

    fn put_leaf(&mut self, leaf: u64, at: u64, key: u64, value: &Value) -> Option<(u64, u64)> {
        let count = self.count(leaf);
        for i in (at..count).rev() {
            self.set_key(leaf, i + 1, self.key(leaf, i));
            let moved: Value = self.area.load(self.value(leaf, i));
            self.area.store(self.value(leaf, i + 1), moved);
        }
        self.set_key(leaf, at, key);
        self.area.store(self.value(leaf, at), *value);
        self.set_count(leaf, count + 1);
        if count + 1 < LEAF {
            return None;
        }
        let (new, half) = (self.fresh(), LEAF / 2);
        for i in half..LEAF {
            self.set_key(new, i - half, self.key(leaf, i));
            let moved: Value = self.area.load(self.value(leaf, i));
            self.area.store(self.value(new, i - half), moved);
        }
        self.set_count(new, LEAF - half);
        self.set_count(leaf, half);
        Some((self.key(new, 0), new))
    }

    fn split_inner(&mut self, node: u64) -> (u64, u64) {
        let (new, half) = (self.fresh(), INNER / 2);
        for i in half + 1..INNER {
            self.set_key(new, i - half - 1, self.key(node, i));
        }
        for i in half + 1..=INNER {
            self.set_child(new, i - half - 1, self.child(node, i));
        }
        self.set_count(new, INNER - half - 1);
        self.set_count(node, half);
        (self.key(node, half), new)
    }
}

impl Pairs for Tree {
    /// Leaves that were split are half full, in the worst case all of them.
    fn room(count: u64) -> u64 {
        (count / (LEAF / 2) + count / 1000 + 4) * NODE
    }

    fn new(area: Arc<Area>, _count: u64) -> Self {
        Self { area, root: 0, height: 0, nodes: 1 }
    }

    fn insert(&mut self, key: u64, value: &Value) {
        let Some((from, new)) = self.put(self.root, self.height, key, value) else { return };
        let root = self.fresh();
        self.set_key(root, 0, from);
        self.set_child(root, 0, self.root);
        self.set_child(root, 1, new);
        self.set_count(root, 1);
        (self.root, self.height) = (root, self.height + 1);
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<u64> {
        let mut node = self.root;
        for _ in 0..self.height {
            node = self.child(node, self.upper(node, key));
        }
        let at = self.upper(node, key).checked_sub(1)?;
        (self.key(node, at) == key).then(|| self.value(node, at))
    }

    fn area(&self) -> &Area {
        &self.area
    }

    fn name() -> &'static str {
        "B+tree"
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pmem::track::folios::Folios;

    use super::super::hash::Hash;
    use super::super::loads::{Pairs, fill};
    use super::*;

    /// Enough for three levels: everything inserted is found, where nothing else is.
    fn all_are_found<P: Pairs>() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let count = 30_000;
        let path = dir.path().join("pairs");
        let area = Arc::new(Area::new(&path, P::room(2 * count), Folios::AsFound).unwrap());
        let mut pairs: P = fill(area, count);
        for key in 0..count {
            pairs.insert(key | 1 << 63, &[key as u8; 100]);
            if key % 7 == 0 {
                let at = pairs.find(key | 1 << 63).unwrap();
                assert_eq!(pairs.area().load::<Value>(at), [key as u8; 100]);
            }
            if key == count / 2 {
                break;
            }
        }
        assert_eq!(pairs.find(12_345), None);
        let mut places: Vec<u64> =
            (0..count / 2).map(|key| pairs.find(key | 1 << 63).unwrap()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= VALUE), "values overlap");
    }

    #[test]
    fn pairs_are_found_in_trees() {
        all_are_found::<Tree>();
    }

    #[test]
    fn pairs_are_found_in_tables() {
        all_are_found::<Hash>();
    }
}
