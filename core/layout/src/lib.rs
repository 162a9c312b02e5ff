//! Headers, typed offsets, plain data and the fixed tables every pool starts with.
//!
//! # Guarantee
//!
//! Whatever bytes a table is decoded from, the result is bounded: no offset, length or count in a
//! decoded value points outside the pool it was decoded for. Encoding and decoding are exact
//! inverses on valid values. Nothing here touches a medium.
//!
//! Not covered: whether the bytes are the *newest* copy (see `holdfast-redundancy`), and malice:
//! checksums find accidents, not attackers.
//!
//! # Picture
//!
//! ```text
//!  0            side_len       2 x side_len
//!  | side A     | side B     | spare frames | zone | zone | ...
//!  | superblock | superblock |
//!  | regions    | regions    |   every page of a side is there twice, in different frames
//!  | remap      | remap      |
//!  | intent     | intent     |
//!  | progress   | progress   |
//!  | status     |            |
//!  | events     | events     |
//!  | log        | log        |
//! ```
//!
//! # Vocabulary
//!
//! *frame*: what one lost large page takes with it (2 MiB). *side*: one of the two places of all
//! mirrored records. *mirrored record*: written to side B, drained, then to side A, drained.
//! *zone*: a piece of heap with its own rows and parity; its geometry never changes.
//!
//! # Life of a table
//!
//! 1. The owner changes the decoded value, for example [`Superblock::log_generation`].
//! 2. `encode` makes the page: contents, a sequence one higher, a sum over pool, place and bytes.
//! 3. `holdfast-redundancy` stores it in side B, **drain**, then in side A, **drain**.
//! 4. At the next open both copies are decoded. A page that does not verify, is of another kind,
//!    place or pool, or says something impossible, is no page; the newer of what is left counts.
//!
//! | a crash in 3 | left |
//! |---|---|
//! | side B torn | the old page, in side A |
//! | between the drains | the new page in side B, the old one in side A: the new one counts |
//! | side A torn | the new page, in side B |
//!
//! # Tour
//!
//! `format.rs` every offset; `certify.rs` where sums decide; `superblock.rs`, `region.rs`,
//! `remap.rs` the tables; `mirrored.rs` the header of mirrored pages; `ptr.rs` pointers;
//! `persist.rs` what may be stored; `bytes.rs` little-endian access; `field.rs` fields as data for
//! the format check.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("holdfast pools are mapped in place: only 64-bit little-endian targets can do that");

pub mod bytes;
pub mod certify;
pub mod field;
pub mod format;
pub mod mirrored;
pub mod persist;
pub mod ptr;
pub mod region;
pub mod remap;
pub mod superblock;

pub use bytemuck;
pub use certify::Certify;
pub use field::{Field, covers};
pub use holdfast_derive::Persist;
pub use persist::{Persist, TypeHash, TypeNumber};
pub use ptr::{Ptr, RawPtr};
pub use region::{Region, RegionKind};
pub use remap::Remap;
pub use superblock::{LogPlacement, SumKind, Superblock, SuperblockError};
