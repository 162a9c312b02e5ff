//! The six structures under their names.

use core::ops::{Bound, RangeBounds};

use holdfast_layout::Ptr;
use holdfast_txn::{Result, Transaction};

use crate::api::{common_functions, ordered_functions};
use crate::bucket::Hit;
use crate::common::{Core, OpenHeader, Way, keys, load, one, walk};
use crate::format::{HashHeader, SkipHeader, TreeHeader};
use crate::hash::Table;
use crate::report::CheckReport;
use crate::skip::List;
use crate::tree::Tree;
use crate::tree::btree::Branching;
use crate::tree::crit::CritBit;
use crate::tree::radix::Radix;
use crate::tree::rbtree::RedBlack;

/// An unordered map of byte strings: fewest reads. The value is only a pointer and the key of the
/// hash function: copy it freely, keep it anywhere.
///
/// Keys have at most [`KEY_MAX`](crate::KEY_MAX) bytes. Errors of all functions are those of the
/// transaction, `TooLarge` for a longer key, and `Inconsistent` for a structure that contradicts
/// itself. `for_each` and `next_after` go in order of hashes.
///
/// ```
/// use holdfast_collections::HashTable;
/// use holdfast_txn::{Isolation, Store, toy::ToyStore};
///
/// let store = ToyStore::new();
/// let table = store.run(Isolation::Serializable, |tx| {
///     let table = HashTable::create(tx, [1, 2])?;
///     table.put(tx, b"key", b"value")?;
///     Ok(table)
/// })?;
/// let value = store.run(Isolation::Serializable, |tx| table.get(tx, b"key"))?;
/// assert_eq!(value.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), holdfast_txn::TxError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashTable {
    core: Table,
}
common_functions!(HashTable, HashHeader);

impl HashTable {
    /// Creates an empty table whose hash function is keyed by `seed`.
    ///
    /// # Errors
    /// See the type.
    pub fn create<T: Transaction>(tx: &T, seed: [u64; 2]) -> Result<Self> {
        Ok(Self { core: Table::create(tx, seed)? })
    }
}

/// An ordered map of byte strings in a B-tree: few levels with many children each. The value is
/// only a pointer: copy it freely, keep it anywhere. Keys are ordered byte by byte, a shorter key
/// before what it is the start of. Errors are those of [`HashTable`].
///
/// ```
/// use holdfast_collections::BTree;
/// use holdfast_txn::{Isolation, Store, toy::ToyStore};
///
/// let store = ToyStore::new();
/// let keys = store.run(Isolation::Serializable, |tx| {
///     let tree = BTree::create(tx)?;
///     for key in ["one", "two", "three"] {
///         tree.put(tx, key.as_bytes(), b"")?;
///     }
///     let mut keys = Vec::new();
///     tree.scan(tx, .., usize::MAX, |key, _| {
///         keys.push(String::from_utf8_lossy(key).into_owned());
///         Ok(())
///     })?;
///     Ok(keys)
/// })?;
/// assert_eq!(keys, ["one", "three", "two"]);
/// # Ok::<(), holdfast_txn::TxError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BTree {
    core: Tree<Branching>,
}
common_functions!(BTree, TreeHeader);
ordered_functions!(BTree);

/// An ordered map as [`BTree`], in a red-black tree over buckets: an insertion never changes more
/// than a few small nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RbTree {
    core: Tree<RedBlack>,
}
common_functions!(RbTree, TreeHeader);
ordered_functions!(RbTree);

/// An ordered map as [`BTree`], in a crit-bit tree over buckets: no key is compared on the way
/// down, so long keys with long common starts cost no more than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CritBitTree {
    core: Tree<CritBit>,
}
common_functions!(CritBitTree, TreeHeader);
ordered_functions!(CritBitTree);

/// An ordered map as [`BTree`], in a radix tree over buckets: one node per byte in which keys
/// differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RadixTree {
    core: Tree<Radix>,
}
common_functions!(RadixTree, TreeHeader);
ordered_functions!(RadixTree);

/// An ordered map as [`BTree`], in a skip list of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SkipList {
    core: List,
}
common_functions!(SkipList, SkipHeader);
ordered_functions!(SkipList);
