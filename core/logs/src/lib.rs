//! Self-certifying, replicated log records: lanes, watermarks, group commit, and the scan that
//! finds them again.
//!
//! # Guarantee
//!
//! Once [`Lane::commit_record`] has returned `Ok`, [`scan()`] finds the record after a crash at
//! any later instant, as long as its commit is not complete, and in order with all others; also
//! if one of its two copies was lost. What it finds was committed or was being committed: nothing
//! torn, nothing of another pool, place or log generation. Whatever the bytes of the log are,
//! reading it ends, in bounded memory, without a panic.
//!
//! Not covered: the loss of *both* copies of a record while its commit is not complete; programs
//! that forge records (a sum finds accidents, not attackers); what the entries mean and whether
//! their data reached the medium, which is the engine's affair: it says [`Numbers::done`].
//!
//! # Picture
//!
//! ```text
//!  side A  ... | ring 0 | ring 1 | ...            copies apart (Dax, Shm): a ring per lane,
//!  side B  ... | ring 0 | ring 1 | ...            the same bytes in both sides
//!
//!  record      | crc lines entries number L | entry | entry | ... | zeros | 64 B lines
//!
//!  side A  ... | marks | 4 5 6 | 4 5 6 | 7 | 7 |  adjacent (File): batches, each followed by
//!  side B  ... | 8 9 | 8 9 | ...                  its replica, one sync for all of a batch
//! ```
//!
//! # Words
//!
//! *Number*: place of a commit in the one order of all commits. *Watermark* L: every commit with
//! a number up to L is complete on the medium. *Lane*: the right to have one commit under way;
//! held by one thread. *Mark*: a record that carries nothing but a watermark. *Batch*: records
//! that one append makes durable. *Generation*: raised in the superblock to kill all records.
//!
//! # Life of a commit
//!
//! 1. Fill a [`RecordBuilder`] while the transaction runs; [`Log::acquire`] a lane.
//! 2. The engine locks what it writes.
//! 3. [`Lane::reserve`]: what the record will overwrite must be covered by a *durable* watermark.
//!    If need be a mark is written and drained (`logs.ring.marked`), or the lane waits. It holds
//!    no number yet, so nobody waits for it.
//! 4. [`Numbers::draw`]: first a lower bound is published, then the number is drawn.
//! 5. [`Lane::commit_record`]: the record, with a recent L, to both copies; then **F1**
//!    (`logs.ring.F1`, or the append `logs.group.F1`). This is the commit point: the last word
//!    of one copy that F1 waits for makes the commit visible to any later recovery. There is no
//!    *complete* mark and no *committed* mark.
//! 6. The engine applies data, slots and parity, and (copies apart) drains them: F2.
//! 7. [`Numbers::done`]: from now on the watermark may pass the number. Adjacent: `done` means
//!    applied to memory, and [`Log::reclaim`] syncs everything applied before L passes it.
//!
//! # After a crash
//!
//! | found in the log | then |
//! |---|---|
//! | number > largest L, a copy certifies | replay, in order of number |
//! | number <= largest L | ignore: complete |
//! | no copy certifies | was never committed, or is complete and overwritten |
//! | unreadable page | use the other copy; rewrite it when everything is replayed |
//!
//! Every combination: `docs/formats/log.md`.
//!
//! # Smallest program
//!
//! ```
//! use holdfast_faultmem::{Config, FaultMedium};
//! use holdfast_logs::{Entry, Log, Numbers, RecordBuilder, scan};
//! # use holdfast_layout::{LogPlacement, SumKind, Superblock};
//! # use holdfast_pmem::MediumKind;
//! # let superblock = Superblock {
//! #     sequence: 1, uuid: [7; 16], compatible: 0, read_only_compatible: 0, incompatible: 0,
//! #     log_generation: 1, clean: false, size: 1 << 20, frame: 4096, chunk: 4096,
//! #     side_len: 1 << 18, events_len: 4096, log_start: 1 << 16, ring_len: 4096, lanes: 4,
//! #     log_placement: LogPlacement::Apart, sum_kind: SumKind::Crc32c, parity: 1, copies: 2,
//! #     allow_inject: false, anchor: 0, rows: 2, label: String::new(),
//! # };
//! let medium = FaultMedium::new(superblock.size, MediumKind::Dax, &Config::default());
//! let log = Log::open(&medium, &superblock)?;
//! let numbers = Numbers::new(log.lanes(), 1);
//!
//! let mut record = RecordBuilder::default();
//! record.data(0x80000, b"hello");
//! let mut lane = log.acquire(&medium, 0).expect("no lane is held yet");
//! lane.reserve(&medium, &numbers, record.len(), || false)?;
//! let number = numbers.draw(&medium, lane.id());
//! lane.commit_record(&medium, &numbers, number, &mut record)?; // durable from here on
//! // The engine would now apply the data, drain it, and say numbers.done(lane.id()).
//!
//! let found = scan(&medium, &superblock)?;
//! let entry = found.to_replay()[0].entries(superblock.size).next();
//! assert_eq!(entry, Some(Ok(Entry::Data { at: 0x80000, bytes: b"hello" })));
//! # Ok::<(), holdfast_logs::LogError>(())
//! ```
//!
//! # Tour
//!
//! `format.rs` every offset | `record.rs` building a record | `entry.rs` reading entries |
//! `seed.rs` what sums are bound to | `numbers.rs` numbers, watermark | `lanes.rs` the log as
//! commits see it | `ring.rs` copies apart | `space.rs` what a ring may overwrite | `group.rs`
//! adjacent copies, reclaim | `pages.rs` what the batches may overwrite | `scan.rs` recovery's
//! reader | `error.rs` errors | `sync.rs` atomics, real or modelled.

#![forbid(unsafe_code)]

mod deferred;
mod entry;
pub mod error;
pub mod format;
mod group;
pub mod lanes;
pub mod numbers;
mod pages;
pub mod record;
mod ring;
pub mod scan;
pub mod seed;
mod space;
mod still;

pub use deferred::{DEFERRED_MAX, Deferred};
pub use entry::{Entries, Entry, entries};
pub use error::{EntryError, LogError};
pub use lanes::{Committed, Lane, Log};
pub use numbers::Numbers;
pub use record::RecordBuilder;
pub use scan::{FoundRecord, Scan, scan};
pub use seed::Seed;
pub use still::Still;
