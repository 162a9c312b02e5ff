//! The campaign against the transactional object store.

pub mod driver;
pub mod fields;
pub mod handle;
pub mod images;
pub mod judge;
pub mod killers;
pub mod lanes;
pub mod life;
pub mod linked;
pub mod live;
pub mod lives;
pub mod logged;
pub mod marks;
pub mod model;
pub mod ops;
pub mod owned;
pub mod promise;
pub mod raw;
pub mod rows;
pub mod scenes;
pub mod targets;
pub mod unsynced;
pub mod victim;
pub mod watch;
pub mod world;
pub mod wrap;
