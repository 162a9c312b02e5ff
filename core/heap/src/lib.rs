//! Persistent heap: chunk directory, runs, slots, object sums, reservations.
//!
//! # Guarantee
//!
//! After any crash the allocated objects are exactly those whose slots say so, and slots change
//! only together with the transaction that allocates or frees: nothing leaks and nothing is
//! handed out twice. A granule of an object verifies only if its bytes, its address, its
//! generation, type and length are what was committed. Not covered: free bytes have no sum (zone
//! parity repairs them), and a pool created without sums detects no damage to objects.
//!
//! # Picture
//!
//! ```text
//!  zone data:  directory | chunk | chunk | chunk ...
//!               32 B each
//!  run:        slot slot slot ... | sums of later granules | object | object | ...
//!  large:      slot | sums of later granules | object ............ (over several chunks)
//! ```
//!
//! A *slot* is the header of an object kept apart from it: sum, generation, state, type, length.
//! A store that is lost or lands elsewhere leaves the slot and the bytes in disagreement.
//!
//! # Vocabulary
//!
//! *chunk*: unit of the directory. *run*: a chunk cut into places of one size class. *place*:
//! room for one object. *spot*: where a place and what certifies it are. *granule*: up to 1 KiB of
//! an object under one sum. *reservation*: a place taken in DRAM only.
//!
//! # Life of an allocation
//!
//! 1. `reserve` pops a place from the lane's cache (no lock, no store to the medium)
//! 2. the transaction's record carries the new slot: its commit publishes the object
//! 3. abort: `release` puts the place back; crash: the place was never taken
//! 4. free: the record carries the freed slot; after the commit is complete, `release`
//!
//! # After a crash
//!
//! | found | then |
//! |---|---|
//! | a slot that says live, and verifies | the object is there |
//! | a slot that says free, and verifies | the place can be reserved |
//! | a slot that does not verify | its place is not handed out; the slot or the object is damaged |
//! | an entry that verifies and fits its zone | the chunk is what it says |
//! | any other entry | it is named; the engine repairs it before the zone is used |
//!
//! Reservations leave no trace. The heap has no **fence** of its own: slots and entries become
//! durable with the commit that carries them.
//!
//! # Tour
//!
//! `format.rs` offsets | `class.rs` size classes, inside of a run | `sums.rs` slots and sums |
//! `directory.rs` chunk entries | `table.rs` what DRAM knows of a zone | `heap.rs` reservations |
//! `verify.rs` whether bytes are what was committed | `units.rs` what a repair must satisfy.

#![forbid(unsafe_code)]

pub mod class;
pub mod directory;
pub mod format;
pub mod heap;
pub mod sums;
pub mod table;
pub mod units;
pub mod verify;

pub use directory::{ChunkEntry, ChunkKind};
pub use heap::{BadEntry, Cache, Heap, ReserveError, Space};
pub use sums::{Slot, Sums};
pub use table::{Spot, ZoneTable};
pub use units::Unit;
