//! Durable maps on any transactional store.
//!
//! # Guarantee
//!
//! A map is a pointer plus functions that work inside a transaction; what the transaction
//! promises, atomic, durable, isolated, checked against damage, holds for the map. Every operation
//! changes a bounded number of objects of bounded size, however large the map is. A map whose
//! pointers contradict each other, after a bug or damage that went past all sums, gives errors:
//! no function panics, runs in circles or follows a depth without bound, and `check` says what is
//! wrong and which objects belong to the map.
//!
//! Not covered: freeing or clearing a large map in bounded time; it is one transaction as large as
//! the map. Counting entries walks the map. A map that is changed behind its functions' back is
//! found out by `check`, not always by use.
//!
//! # Picture
//!
//! ```text
//!  MapHeader: kind, type of keys, type of values
//!      |
//!      +--> HashHeader --> directories --> leaves --+
//!      |                                            +--> entries: key length, key, value
//!      +--> BTreeHeader --> inner nodes --> leaves -+
//! ```
//!
//! # Vocabulary
//!
//! *entry*: one object with a key and its value. *leaf*: one object with pointers to up to 30
//! entries, and enough of their keys or hashes to choose among them. *directory*, *inner node*:
//! leads to leaves. *path*: the bits all hashes below a place start with.
//!
//! # Life of one insertion
//!
//! 1. The header is read, then one node per level, down to a leaf: one read each.
//! 2. An entry of the key is looked for; only entries whose hash or prefix agrees are read.
//! 3. There is none: an entry is allocated and written.
//! 4. The leaf is changed; if it is full, it is split first and the node above is changed too.
//! 5. The transaction ends. All flushes and fences are the engine's; nothing here knows of them.
//!
//! # Tour
//!
//! `format.rs` every structure as stored; `entry.rs` entries; `sip.rs` the hash function;
//! `hash_map/` the hash table: growing in `split.rs`, shrinking in `shrink.rs`, walking in
//! `walk.rs`; `btree/` the ordered map: a node in memory in `node.rs`, growing in `insert.rs`,
//! shrinking in `remove.rs`, walking in `scan.rs`; `map.rs` typed maps; `codec.rs` their keys and
//! values; `report.rs` what a check finds.

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
mod sip;
mod skip;
mod structures;
mod tree;

pub use codec::{Key, Value};
pub use format::{HashHeader, KEY_MAX, MapHeader, SkipHeader, TreeHeader, structure_of};
pub use map::{Cursor, Kind, Map, MapInfo};
pub use report::CheckReport;
pub use structures::{BTree, CritBitTree, HashTable, RadixTree, RbTree, SkipList};
