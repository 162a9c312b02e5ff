//! Crash states of any persistent structure: enumerated, recovered, judged, and the failing one
//! reduced to the store and the fence it hangs on.
//!
//! # Guarantee, and what is not covered
//!
//! Operations are run in all sequences of one and two, then in sampled longer ones. At each fence,
//! flush through a file or sync of the last operation, and after it has returned, the images that
//! a crash may leave are built (all of them where they are few, see [`Budget`]), recovered and
//! checked; so is what a crash of that recovery leaves, and of the next. A clean report says that
//! none of these images fails the check, and nothing about sequences or images beyond the budget.
//! The first failure found is of the shortest sequence that fails. From one seed all is repeated
//! exactly, provided the closures answer the same each time.
//!
//! Not covered: what other threads do meanwhile (their stores are torn like all others, but which
//! schedules are met is chance); stores through raw pointers, which nobody sees: use
//! [`Mapping::edit`]; crashes while the structure is made; a growth torn in itself, for the new
//! length counts as durable when the call returns; a recovery that never ends; damage other than by
//! a crash, which is the matter of the campaigns.
//!
//! # Picture
//!
//! ```text
//!  ops --> sequences --> run on a FaultMedium --> at each barrier: images of a crash
//!                                                      |      (known ones left out)
//!                          report <-- reduce <-- check <- recover
//!                          store, fence,                    | its own barriers
//!                          replay line                      +--> images, one level deeper
//! ```
//!
//! # Vocabulary
//!
//! - *structure* (`H`): what the program works with; opened by `recover` alone.
//! - *model* (`A`): the same in DRAM. [`Seen`] has it as acknowledged and as it will be.
//! - *instant*: a barrier about to take effect, or an operation that has returned.
//! - *arrived*, *missing*: stores on their way that an image has or has not.
//! - *hinge*: what is wrong between the stores that matter.
//! - *redundant*: a flush or a fence that had nothing to do.
//!
//! # Life of one exploration
//!
//! 1. `setup` makes the structure on an empty medium; all of it counts as durable.
//! 2. For each sequence `recover` opens a copy. The operations run; each tells the model.
//! 3. In the last one, before each **fence** takes effect, the images are listed. An image that was
//!    judged against the same model is left out.
//! 4. An image is recovered and checked. Instants of the recovery are kept, and their images
//!    judged in the same way.
//! 5. The first wrong image is reduced: what can arrive does, what can be taken away is. The record
//!    of the run says which call made each store that is left, and which fence came next.
//!
//! # Example: a queue with a missing fence
//!
//! ```
//! use holdfast_explore::{Explorer, Hinge, Mapping, MediumKind, Shared, Verdict};
//!
//! // A number of items at 0, the items from 64 on.
//! struct Stack(Mapping);
//!
//! impl Stack {
//!     fn push(&self, item: u64, fenced: bool) -> Verdict {
//!         let Self(m) = self;
//!         let count = m.load_u64(0)?;
//!         m.store_u64(64 + 8 * count, item)?;
//!         m.flush(64 + 8 * count, 8)?;
//!         if fenced {
//!             m.fence();
//!         }
//!         m.store_u64(0, count + 1)?; // may arrive before the item, unless there was a fence
//!         m.flush(0, 8)?;
//!         m.fence();
//!         Ok(())
//!     }
//!     fn items(&self) -> Verdict<Vec<u64>> {
//!         (0..self.0.load_u64(0)?).map(|i| Ok(self.0.load_u64(64 + 8 * i)?)).collect()
//!     }
//! }
//!
//! let stack = |name, fenced| {
//!     Explorer::new(
//!         name, // of this explorer alone: replay lines are obeyed by name
//!         4096,
//!         MediumKind::Dax,
//!         |medium: Shared| Ok(Stack(Mapping::new(medium))),
//!         |stack, seen| seen.agree(&stack.items()?),
//!     )
//!     .op("push 7", move |stack| stack.push(7, fenced), |items: &mut Vec<u64>| items.push(7))
//! };
//!
//! stack("stack", true).elisions().assert_all_needed();
//! let failure = stack("hasty-stack", false).run().failure.expect("the fence is missing");
//! assert!(matches!(failure.hinge, Hinge::NoFence { .. }), "{failure}");
//! println!("{failure}"); // the two stores by file and line, and how to see it again
//! ```
//!
//! A larger one, with its report: `cargo run -p holdfast-explore --example queue`.
//!
//! # In your `Cargo.toml`
//!
//! Nothing is published: name the folder of the sources, or with `git` where they are fetched from.
//!
//! ```toml
//! [dev-dependencies]
//! holdfast-explore = { path = "../holdfast/testing/explore" }
//! holdfast = { path = "../holdfast/surfaces/facade" } # only for structures in a `holdfast::Pool`
//! ```
//!
//! What the signatures name is here as well:
//!
//! ```
//! # #![allow(unused_imports)]
//! use holdfast_explore::{Budget, Explorer, Mapping, MediumKind, Shared, Verdict}; // bytes
//! use holdfast_explore::{FaultMedium, MediaError, Medium, Site, SyncError}; // code over media
//! use holdfast_explore::{CreateOptions, Pool, Ptr, Transaction, pool}; // transactions
//! ```
//!
//! # A structure in a `holdfast::Pool`
//!
//! The pool that programs use goes on any medium, by `create_on` and `open_on`:
//!
//! ```
//! use holdfast::{NamedMap, Pool, VerifyReads};
//! use holdfast_explore::{Budget, Explorer, MediumKind, Seen, Shared, Verdict};
//!
//! // Small is quick, and with an identity of its own each run makes the same pool.
//! fn options() -> holdfast::Options {
//!     let small = Pool::options().size(128 * 4096).rows(8).frame(4096).chunk(8192).lanes(4);
//!     let small = small.log(5 * 8192).events(4096).uuid(Some([7; 16]));
//!     small.verify_reads(VerifyReads::Always)
//! }
//! fn words(pool: &Pool<Shared>) -> Verdict<NamedMap<str, u64, Shared>> {
//!     Ok(pool.map("words")?)
//! }
//!
//! Explorer::new(
//!     "words",
//!     128 * 4096,
//!     MediumKind::Dax,
//!     |medium: Shared| words(&options().open_on(medium)?),
//!     |words, seen: &Seen<Option<u64>>| seen.agree(&words.get("tree")?),
//! )
//! .setup(|medium| words(&options().create_on(medium)?).map(drop))
//! .op("put", |words| Ok(words.put("tree", &7).map(drop)?), |tree| *tree = Some(7))
//! .longest(1)
//! .budget(Budget { exhaustive: 4, singles: 2, pairs: 0, samples: 1, seed: 5 })
//! .nested(0, Budget::default())
//! .run()
//! .assert_clean();
//! ```
//!
//! Such a pool closes on the medium when it is dropped, which is not explored: [`elisions`] lists
//! what only a close passes as not needed. Its clock is the machine's. Neither is so of [`pool()`].
//! Of both it also lists the pool's own verification, which only damage would show to be needed,
//! and none is done here: `assert_all_needed` is for structures with sites of their own.
//!
//! [`elisions`]: Explorer::elisions
//!
//! # Tour
//!
//! | file | concept |
//! |---|---|
//! | `explorer.rs` | [`Explorer`]: what is run, and how much |
//! | `run.rs` | sequences, instants, [`Explorer::run`] |
//! | `judge.rs` | recover, check, crashes of recoveries, what was judged before |
//! | `reduce.rs` | the stores that matter |
//! | `hinge.rs`, `report.rs` | [`Hinge`], [`Report`]: what is wrong, in words |
//! | `replay.rs` | [`Replay`]: one line, one crash |
//! | `elide.rs` | [`Explorer::elisions`]: each place switched off |
//! | `ledger.rs` | [`Seen`], [`Ledger`]: what was acknowledged |
//! | `mapping.rs`, `pool.rs` | bytes of the user's own; pools and transactions |
//! | `verdict.rs` | [`Verdict`]: what closures answer; their panics |

#![forbid(unsafe_code)]

mod elide;
mod explorer;
mod hinge;
mod judge;
mod ledger;
mod mapping;
mod owed;
mod pool;
mod reduce;
mod replay;
mod report;
mod run;
mod verdict;

pub use elide::{Elision, Elisions};
pub use explorer::{DEEPEST, Explorer};
pub use hinge::{Hinge, Spot, StoreAt};
pub use holdfast_faultmem::{Budget, FaultMedium, Mode, SiteKind};
pub use holdfast_layout::Ptr;
pub use holdfast_object::{CreateOptions, Pool};
pub use holdfast_pmem::{MediaError, Medium, MediumKind, Site, SyncError};
pub use holdfast_txn::Transaction;
pub use ledger::{Ledger, Model, Seen};
pub use mapping::{Mapping, Shared};
pub use pool::{PoolInUse, pool};
pub use replay::{Crash, NoReplay, REPLAY, Replay};
pub use report::{Failure, Redundant, Report};
pub use verdict::{Failed, Verdict};
