//! Transactional object store: private copies, object sums, zone parity, online repair.
#![deny(unsafe_code)]

mod anchor;
mod batch;
mod chunks;
mod commit;
mod copies;
mod error;
pub mod format;
mod geometry;
mod grow;
mod in_place;
mod lane;
mod log;
mod mend_unit;
mod open;
mod options;
mod overflow;
mod pool;
mod recover;
mod redo;
mod repair;
mod scrub;
mod shared;
mod sweep;
mod touched;
mod tx;
mod versions;
#[allow(unsafe_code)]
mod view;

pub use anchor::Anchor;
pub use error::Error;
pub use open::Opened;
pub use options::{CreateOptions, OpenOptions, Parity, VerifyReads};
pub use pool::{Pool, Stats, View};
pub use recover::Recovered;
pub use scrub::{ScrubControl, ScrubOptions, Scrubbed};
pub use sweep::{CheckReport, Finding};
pub use tx::Tx;
pub use view::Mut;
