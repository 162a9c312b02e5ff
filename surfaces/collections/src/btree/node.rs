//! A node in memory: what insertion, removal, splitting and joining do to it.
//!
//! Pure: nothing here touches the store. It has room for two full nodes and the item between
//! them, so that joining, splitting and evening out are the same two steps.

use holdfast_layout::RawPtr;

use crate::entry::{KeyHead, prefix_of};
use crate::format::{BTreeInner, BTreeLeaf, COMMON_MAX, INNER_ITEMS, Item, LEAF_ITEMS, NodeHead};

/// Most items of a node in memory.
const ROOM: usize = 2 * INNER_ITEMS + 1;

/// A node in memory, of any level.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) level: u32,
    skip: usize,
    common: [u8; COMMON_MAX],
    items: [Item; ROOM],
    count: usize,
    children: [RawPtr; ROOM + 1],
}

impl Node {
    /// A node without items; above the leaves, with one child.
    pub(super) fn new(level: u32, child: RawPtr) -> Self {
        let mut children = [RawPtr::NULL; ROOM + 1];
        children[0] = child;
        let items = [Item::default(); ROOM];
        Self { level, skip: 0, common: [0; COMMON_MAX], items, count: 0, children }
    }

    /// A leaf that was read.
    pub(super) fn of_leaf(leaf: &BTreeLeaf) -> Self {
        let mut this = Self::new(0, RawPtr::NULL);
        this.take_items(&leaf.head, leaf.items());
        this
    }

    /// An inner node that was read.
    pub(super) fn of_inner(inner: &BTreeInner) -> Self {
        let mut this = Self::new(inner.head.level.into(), RawPtr::NULL);
        this.take_items(&inner.head, inner.items());
        this.children[..=this.count].copy_from_slice(inner.children());
        this
    }

    fn take_items(&mut self, head: &NodeHead, items: &[Item]) {
        self.skip = head.skip.into();
        self.common = head.common;
        self.count = items.len();
        self.items[..self.count].copy_from_slice(items);
    }

    /// The leaf to store; the node is one and has no more items than a leaf.
    pub(super) fn leaf(&self) -> BTreeLeaf {
        let mut leaf = BTreeLeaf { head: self.head(), items: [Item::default(); LEAF_ITEMS] };
        leaf.items[..self.count].copy_from_slice(self.items());
        leaf
    }

    /// The inner node to store; the node is one and has no more items than an inner node.
    pub(super) fn inner(&self) -> BTreeInner {
        let mut inner = BTreeInner {
            head: self.head(),
            items: [Item::default(); INNER_ITEMS],
            children: [RawPtr::NULL; INNER_ITEMS + 1],
        };
        inner.items[..self.count].copy_from_slice(self.items());
        inner.children[..=self.count].copy_from_slice(self.children());
        inner
    }

    fn head(&self) -> NodeHead {
        NodeHead {
            level: self.level as u16,
            count: self.count as u16,
            skip: self.skip as u16,
            reserved: 0,
            common: self.common,
        }
    }

    /// Most items it may have when it is stored.
    pub(super) fn capacity(&self) -> usize {
        if self.level == 0 { LEAF_ITEMS } else { INNER_ITEMS }
    }

    /// Items.
    pub(super) fn items(&self) -> &[Item] {
        &self.items[..self.count]
    }

    /// Children: one more than items, and meaningless in a leaf.
    pub(super) fn children(&self) -> &[RawPtr] {
        &self.children[..=self.count]
    }

    /// Inserts an item before the one at `index`. Above the leaves, `child` is what comes after
    /// it.
    pub(super) fn insert(&mut self, index: usize, key: &KeyHead, entry: RawPtr, child: RawPtr) {
        self.fit(key);
        self.items.copy_within(index..self.count, index + 1);
        self.items[index] = Item { prefix: key.prefix(self.skip), entry };
        if self.level > 0 {
            self.children.copy_within(index + 1..=self.count, index + 2);
            self.children[index + 1] = child;
        }
        self.count += 1;
    }

    /// Puts another item in place of the one at `index`.
    pub(super) fn set(&mut self, index: usize, key: &KeyHead, entry: RawPtr) {
        self.fit(key);
        self.items[index] = Item { prefix: key.prefix(self.skip), entry };
    }

    /// Removes the item at `index` and, above the leaves, the child after it.
    pub(super) fn remove(&mut self, index: usize) -> Item {
        let item = self.items[index];
        self.items.copy_within(index + 1..self.count, index);
        if self.level > 0 {
            self.children.copy_within(index + 2..=self.count, index + 1);
        }
        self.count -= 1;
        item
    }

    /// Appends an item and another node of the same level.
    pub(super) fn join(&mut self, key: &KeyHead, entry: RawPtr, mut right: Self) {
        self.fit(key);
        self.leave_out(same(&self.common[..self.skip], &right.common[..right.skip]));
        right.leave_out(self.skip);
        let at = self.count;
        self.items[at] = Item { prefix: key.prefix(self.skip), entry };
        self.items[at + 1..=at + right.count].copy_from_slice(right.items());
        self.children[at + 1..=at + 1 + right.count].copy_from_slice(right.children());
        self.count += 1 + right.count;
    }

    /// Splits off what is after the item at `index`, and that item.
    pub(super) fn split(&mut self, index: usize) -> (Item, Self) {
        let mut right = Self::new(self.level, RawPtr::NULL);
        (right.skip, right.common) = (self.skip, self.common);
        right.count = self.count - index - 1;
        right.items[..right.count].copy_from_slice(&self.items()[index + 1..]);
        right.children[..=right.count].copy_from_slice(&self.children()[index + 1..]);
        self.count = index;
        (self.items[index], right)
    }

    /// Whether some keys cannot be told apart by what the node holds of them, although it could
    /// leave out more bytes.
    pub(super) fn is_blurred(&self) -> bool {
        self.skip < COMMON_MAX && self.items().windows(2).any(|w| w[0].prefix == w[1].prefix)
    }

    /// Leaves out all bytes the first and the last key have in common; `None` if that is no more
    /// than now. Else the heads of all keys have to be given to `sharpen`.
    pub(super) fn common_of(&self, first: &KeyHead, last: &KeyHead) -> Option<usize> {
        let common = same(first.common(), last.common());
        (common > self.skip).then_some(common)
    }

    /// Leaves out the first `skip` bytes of all keys, whose heads are `keys`, in order. False, and
    /// nothing done, if a key between the first and the last has less in common with them: the
    /// node is out of order, which only damage explains.
    #[must_use]
    pub(super) fn sharpen(&mut self, skip: usize, keys: &[KeyHead]) -> bool {
        if keys.iter().any(|key| key.common().len() < skip) {
            return false;
        }
        self.skip = skip;
        self.common = [0; COMMON_MAX];
        for (item, key) in self.items[..self.count].iter_mut().zip(keys) {
            self.common[..skip].copy_from_slice(&key.common()[..skip]);
            item.prefix = key.prefix(skip);
        }
        true
    }

    /// Makes room for a key that does not start with what all others do.
    fn fit(&mut self, key: &KeyHead) {
        if self.count == 0 {
            self.skip = key.common().len();
            self.common = [0; COMMON_MAX];
            self.common[..self.skip].copy_from_slice(key.common());
        } else {
            self.leave_out(same(&self.common[..self.skip], key.common()));
        }
    }

    /// Leaves out only `skip` bytes, no more than now: those that were left out beyond it come
    /// back from what was common.
    fn leave_out(&mut self, skip: usize) {
        let back = self.skip - skip;
        if back == 0 {
            return;
        }
        let known = prefix_of(&self.common[skip..self.skip]);
        for item in &mut self.items[..self.count] {
            let old = item.prefix.checked_shr(8 * back as u32).unwrap_or(0);
            item.prefix = known | old;
        }
        self.common[skip..].fill(0);
        self.skip = skip;
    }
}

/// How many bytes both start with.
fn same(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize) -> RawPtr {
        RawPtr::new(64 * (n as u64 + 1), 1)
    }

    fn node(keys: &[&[u8]]) -> Node {
        let mut node = Node::new(0, RawPtr::NULL);
        for (n, key) in keys.iter().enumerate() {
            node.insert(n, &KeyHead::of(key), entry(n), RawPtr::NULL);
        }
        node
    }

    /// The node says of each key what a node made for these keys alone would say, except that it
    /// may leave out less.
    fn assert_true(node: &Node, keys: &[&[u8]]) {
        assert_eq!(node.items().len(), keys.len());
        for (item, key) in node.items().iter().zip(keys) {
            assert_eq!(&key[..node.skip], &node.common[..node.skip], "{key:?}");
            assert_eq!(item.prefix, prefix_of(&key[node.skip..]), "{key:?} after {}", node.skip);
        }
        assert!(node.common[node.skip..].iter().all(|b| *b == 0));
    }

    #[test]
    fn the_common_bytes_shrink_as_keys_come_in() {
        let long = [b'x'; 40];
        let keys: [&[u8]; 6] =
            [&long, &long[..30], b"xxxxxxxxxxxxxxxxxxxxxxxxA", b"xxxxxxxxxxB", b"xx", b""];
        for count in 1..=keys.len() {
            let node = node(&keys[..count]);
            assert_true(&node, &keys[..count]);
            assert_eq!(node.skip, [24, 24, 24, 10, 2, 0][count - 1], "{count} keys");
        }
    }

    #[test]
    fn joining_and_splitting_are_inverse() {
        let keys: [&[u8]; 7] =
            [b"abcdefgh0", b"abcdefgh1", b"abcdefgh12345678", b"abcdzz", b"abd", b"abd1", b"abd2"];
        for at in 1..keys.len() - 1 {
            let mut left = node(&keys[..at]);
            let right = node(&keys[at + 1..]);
            left.join(&KeyHead::of(keys[at]), entry(at), right);
            assert_true(&left, &keys);
            for cut in 1..keys.len() - 1 {
                let mut first = left.clone();
                let (item, second) = first.split(cut);
                assert_eq!(item.prefix, prefix_of(&keys[cut][first.skip..]));
                assert_true(&first, &keys[..cut]);
                assert_true(&second, &keys[cut + 1..]);
            }
        }
    }

    #[test]
    fn a_blurred_node_is_sharpened() {
        let keys: [&[u8]; 3] = [b"user:00000001", b"user:00000002", b"user:0000001"];
        let mut node = node(&keys);
        node.leave_out(0);
        assert_true(&node, &keys);
        assert!(node.is_blurred());
        let heads = keys.map(KeyHead::of);
        let skip = node.common_of(&heads[0], &heads[2]).expect("they have more in common");
        assert_eq!(skip, 11);
        assert!(node.sharpen(skip, &heads));
        assert_true(&node, &keys);
        assert!(!node.is_blurred());
        assert_eq!(node.common_of(&heads[0], &heads[2]), None);
    }

    #[test]
    fn children_move_with_their_items() {
        let mut inner = Node::new(1, entry(100));
        for (n, key) in [b"b", b"d", b"f"].into_iter().enumerate() {
            inner.insert(n, &KeyHead::of(key), entry(n), entry(101 + n));
        }
        inner.insert(1, &KeyHead::of(b"c"), entry(9), entry(109));
        assert_eq!(inner.children(), [100, 101, 109, 102, 103].map(entry));
        let stored = inner.inner();
        assert_eq!(Node::of_inner(&stored).children(), inner.children());
        assert_eq!(inner.remove(1).entry, entry(9));
        assert_eq!(inner.children(), [100, 101, 102, 103].map(entry));
        let (middle, right) = inner.split(1);
        assert_eq!(middle.entry, entry(1));
        assert_eq!(inner.children(), [100, 101].map(entry));
        assert_eq!(right.children(), [102, 103].map(entry));
        inner.join(&KeyHead::of(b"d"), entry(1), right);
        assert_eq!(inner.children(), [100, 101, 102, 103].map(entry));
        assert_eq!(inner.items().len(), 3);
    }
}
