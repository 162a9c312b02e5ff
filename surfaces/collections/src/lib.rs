//! Durable maps on any transactional store.
//!
//! # Guarantee
//!
//! A map is a pointer plus functions that work inside a transaction; what the transaction
//! promises, atomic, durable, isolated, checked against damage, holds for the map. Every operation
//! changes a bounded number of objects of bounded size, however large the map is: none stops the
//! world to move everything. A map whose pointers contradict each other, after a bug or damage
//! that went past all sums, gives errors: no function panics, runs in circles or follows a depth
//! without bound, and `check` says what is wrong and which objects belong to the map.
//!
//! Not covered: freeing or clearing a large map in bounded time; it is one transaction as large as
//! the map. Counting entries walks the map. A map that is changed behind its functions' back is
//! found out by `check`, not always by use. Crit-bit and radix trees are as deep as keys make
//! them: keys of which each is the start of the next make one level per bucket.
//!
//! # Picture
//!
//! ```text
//!  MapHeader: kind, type of keys, type of values
//!      |
//!      +--> HashHeader --> directories ------------+
//!      +--> TreeHeader --> inner nodes ------------+--> buckets: 63 items each
//!      +--> SkipHeader --> nodes linked in order --+      |
//!                                                         +--> entries: long keys and values
//! ```
//!
//! # Vocabulary
//!
//! *bucket*: one object with up to 63 items, in no order; the same in all structures, which differ
//! in how they lead to it only. *item*: 16 bytes with a key of at most eight bytes and a value of
//! at most seven, or with a number for the key and the pointer of an *entry*, an object with both.
//! *home*: the line of a bucket where an item is looked for first. *separator*: what divides the
//! keys of one bucket from those of the next. *directory*, *inner node*: leads to buckets.
//!
//! # Which to choose
//!
//! `docs/collections.md` says it with figures.
//!
//! - [`Kind::Hash`]: no order; lookups and changes of single keys, for fewest reads.
//! - [`Kind::RTree`]: lookups nearly as cheap, in order, for numbers and for texts that start the
//!   same; but half full buckets where keys come in order, and as deep as keys make it.
//! - [`Kind::BTree`]: everything else in order: few levels whatever the keys are, full buckets when
//!   filled in order.
//! - [`Kind::CTree`]: keys in order that start the same in more than 64 bytes, where B-trees read
//!   separators at each step.
//! - [`Kind::RbTree`]: order with the smallest inner nodes, when what changes beside a bucket
//!   should be least.
//! - [`Kind::SkipList`]: long walks in order, one link a bucket; single keys cost most here.
//!
//! Values of more than seven bytes, and keys of more than eight, cost an object each: to allocate
//! one is about as much work as the rest of an insertion, and a lookup reads one object more.
//!
//! # Life of one insertion
//!
//! 1. The header is read, then a directory or a node per level, down to a bucket.
//! 2. The key is looked for among the items by its number; only entries whose number agrees are
//!    read.
//! 3. It is not there: an entry is allocated and written, if key and value do not fit an item.
//! 4. Sixteen bytes of the bucket are changed. If it is full, it is split first: half of its items
//!    move to a new bucket, and what leads there is changed too.
//! 5. The transaction ends. All flushes and fences are the engine's; nothing here knows of them.
//!
//! # Tour
//!
//! `format.rs` every structure as stored; `item.rs` items; `separator.rs` separators, and comparing
//! with them; `entry.rs` entries;
//! `bucket.rs` buckets; `sip.rs` the hash function; `common.rs` what all structures do, over the
//! few steps they differ in; `hash/` the hash table; `tree/` the four trees: what they share in
//! `mod.rs`, one shape a file, crit-bit and radix trees over `trie.rs`; `skip/` the skip list;
//! `api.rs`, `structures.rs` their functions under their names; `map.rs` typed maps; `codec.rs`
//! their keys and values; `report.rs` what a check finds.

#![forbid(unsafe_code)]

mod api;
mod bucket;
mod codec;
mod common;
mod entry;
mod format;
mod hash;
mod item;
pub mod map;
mod report;
mod separator;
mod sip;
mod skip;
mod structures;
mod tree;

pub use codec::{Key, Value};
pub use format::{HashHeader, KEY_MAX, MapHeader, SkipHeader, TreeHeader, structure_of};
pub use map::{Cursor, Kind, Map, MapInfo};
pub use report::CheckReport;
pub use structures::{BTree, CritBitTree, HashTable, RadixTree, RbTree, SkipList};
