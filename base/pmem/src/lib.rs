//! Maps, stores, flushes, fences and protects byte-addressable files.

pub mod medium;
pub mod site;

pub use medium::{LINE, MediaCause, MediaError, Medium, MediumKind, PAGE, SyncError};
pub use site::Site;
