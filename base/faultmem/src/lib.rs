//! The faulty twin of a medium: DRAM that knows what a crash may leave of it, lists those images,
//! and can be damaged in every way real storage is.
//!
//! # What it guarantees, and what it does not
//!
//! Code that is generic over [`Medium`](holdfast_pmem::Medium) runs on [`FaultMedium`] unchanged.
//! At each barrier the images that a crash could leave are known exactly (up to the fineness of
//! the [`Mode`]): every image listed is possible, and every possible one is listed if there are
//! at most [`Budget::exhaustive`]. One enumeration just before each barrier also covers the
//! instants since the barrier before, because a word may hold any value it had in between.
//!
//! Not covered: stores a compiler splits or moves before they reach the medium; reads of another
//! thread's unfenced data that lead to effects outside the medium; hardware that breaks its own
//! rules; what a crash between two barriers means to the caller (an operation that returned after
//! its last barrier is to be checked by a [`FaultMedium::crash_point`] taken by hand).
//!
//! # Picture
//!
//! ```text
//!  program                                                    crash image = persisted image
//!    | put, xor, zero     +------ view: what loads see          + a choice per unit
//!    v                    |                                         ^
//!  relocation --> armed faults --> log of each line --------------- | (unfenced, in doubt)
//!                                   | flush: remembers the newest store, per thread
//!                                   v
//!                                 drain, append, sync, heal --> persisted image
//! ```
//!
//! # Words
//!
//! *Store number*: counts stores into words; a flush is a line and the newest number it saw.
//! *Barrier*: drain, append, sync, heal, growth. *Unit*: a word, line or sector whose state a
//! crash decides. *In doubt*: covered by a sync that failed; no later sync proves anything.
//! *Site*: the name of a place in the code. *Elision*: switching a site off, to prove it needed.
//!
//! # Life of a store (Dax, Shm)
//!
//! 1. `put` finds the file's lines behind the pool's bytes, and asks the armed faults.
//! 2. Each aligned word becomes an event with its own store number; less than a word is stored
//!    byte by byte. The view shows the new bytes. From here on a crash may show any of the word's
//!    values.
//! 3. The flush remembers (line, newest number) for this thread.
//! 4. `drain` of the *same* thread first runs the hook, then moves each remembered line to the
//!    persisted image as the flush saw it. Later stores stay pending; what a newer barrier has
//!    persisted is never moved back. Another thread's drain does nothing for it.
//!
//! On File, step 3 is missing and `drain` orders nothing. `append` makes its range durable and
//! nothing else; until it returns, any subset of its sectors may be there. `sync` makes every
//! sector durable that was stored into. After a failed one the covered stores are in doubt.
//!
//! `heal` is durable on return, whatever the kind. Loads see a bad page whole at once; until the
//! call returns a crash leaves it bad, or good with a part of the rewrite. Where its site is
//! switched off, every crash from then on leaves it bad: nothing else clears poison.
//!
//! # Faults
//!
//! | fault | how | what the program sees |
//! |---|---|---|
//! | bit flip, stray write | [`FaultMedium::flip_bit`], [`FaultMedium::stray`] | at once |
//! | poison | [`FaultMedium::poison`] | a media error; `heal` clears it or says it cannot |
//! | lost, misdirected, torn write | [`FaultMedium::arm`] | success; wrong bytes afterwards |
//! | failing call | [`FaultMedium::fail_nth`] | an error, once or for ever |
//!
//! # Testing your own data structure
//!
//! Write it against [`Medium`](holdfast_pmem::Medium), name every persistence call, and let the
//! hook recover from every image. Then switch each site off in turn: if the checker still finds
//! nothing, either the call is not needed or the checker is blind.
//!
//! ```
//! use holdfast_faultmem::{Budget, Config, FaultMedium};
//! use holdfast_pmem::{MediaError, Medium, MediumKind, Site};
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}};
//!
//! // A 16-byte value at 0, changed as one, through a redo record (value, check) at 64.
//! fn set<M: Medium>(m: &M, value: [u64; 2]) -> Result<(), MediaError> {
//!     let [a, b] = value.map(u64::to_le_bytes);
//!     let record = [a, b, check(value).to_le_bytes()].concat();
//!     m.put(Site::new("set.record"), 64, &record)?;
//!     m.drain(Site::new("set.F1")); //           from here on the change will survive
//!     m.put(Site::new("set.data"), 0, &[a, b].concat())?;
//!     m.drain(Site::new("set.F2")); //           only now may the record be overwritten
//!     Ok(())
//! }
//! fn check([a, b]: [u64; 2]) -> u64 {
//!     (a ^ b.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
//! }
//! fn get<M: Medium>(m: &M, at: u64) -> Result<[u64; 3], MediaError> {
//!     let mut words = [0; 3];
//!     for (i, word) in words.iter_mut().enumerate() {
//!         let mut le = [0; 8];
//!         m.read(at + 8 * i as u64, &mut le)?;
//!         *word = u64::from_le_bytes(le);
//!     }
//!     Ok(words)
//! }
//! fn recover<M: Medium>(m: &M) -> Result<[u64; 2], MediaError> {
//!     let [a, b, sum] = get(m, 64)?;
//!     let [c, d, _] = get(m, 0)?;
//!     Ok(if sum == check([a, b]) { [a, b] } else { [c, d] })
//! }
//!
//! // Runs three changes with `off` switched off; counts crash images that recover wrongly.
//! fn wrong(off: &str) -> u64 {
//!     let (acked, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
//!     let m = FaultMedium::new(4096, MediumKind::Dax, &Config::default());
//!     m.elide_name(off);
//!     let (a, w) = (acked.clone(), wrong.clone());
//!     m.on_barrier(Box::new(move |_, _, point| {
//!         for image in point.images(&Budget::default()) {
//!             let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
//!             let [x, y] = recover(&m).expect("no page is bad");
//!             let old_or_new = x == a.load(SeqCst) || x == a.load(SeqCst) + 1;
//!             w.fetch_add(u64::from(x != y || !old_or_new), SeqCst);
//!         }
//!     }));
//!     for n in 1..=3 {
//!         set(&m, [n, n]).expect("no page is bad");
//!         acked.store(n, SeqCst);
//!     }
//!     wrong.load(SeqCst)
//! }
//! assert_eq!(wrong("nothing"), 0);
//! for site in ["set.record", "set.F1", "set.data", "set.F2"] {
//!     assert!(wrong(site) > 0, "{site} is not needed, or the check is blind");
//! }
//! ```
//!
//! # Tour
//!
//! medium: [`FaultMedium`], hooks, the trait | `state`: the way of a store | `durable`: persisted
//! image and pending stores | `frames`: relocation | `units`: states of a crash | crash:
//! [`CrashPoint`], [`Image`] | images: [`Budget`], enumeration | faults, inject: damage and its
//! log | sites: elision | window: several files on one medium, so that a crash hits them at one
//! instant | watched: a file that knows which pages were stored to, with bits that outlive a crash
//! or do not | counters: what persistence costs | trace: every call with its place in the source |
//! `gate`: failing calls.

#![forbid(unsafe_code)]

mod config;
mod counters;
mod crash;
mod durable;
mod faults;
mod frames;
mod gate;
mod images;
mod inject;
mod medium;
mod rng;
mod sites;
mod state;
mod trace;
mod units;
mod view;
mod watched;
mod window;

pub use config::{Config, Mode};
pub use counters::Counters;
pub use crash::{CrashPoint, Image, Pick};
pub use faults::{Clear, Damage, Fallen, FaultKind, Injected, Torn, When};
pub use gate::FailMode;
pub use images::{Budget, Images};
pub use medium::{BarrierHook, FaultMedium, GROW, StepHook};
pub use sites::{Passed, SiteKind, at_line, told_apart};
pub use trace::{Call, UnitStates};
pub use watched::{Marks, Watched};
pub use window::Window;
