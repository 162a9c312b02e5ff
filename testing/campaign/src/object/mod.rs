//! The campaign against the transactional object store.

pub mod driver;
pub mod fields;
pub mod handle;
pub mod histories;
pub mod judge;
pub mod killers;
pub mod lanes;
pub mod life;
pub mod linked;
pub mod live;
pub mod lives;
pub mod model;
pub mod ops;
pub mod owned;
pub mod promise;
pub mod raw;
pub mod rows;
pub mod scenes;
pub mod sick;
pub mod targets;
pub mod victim;
pub mod watch;
pub mod world;
pub mod wrap;
