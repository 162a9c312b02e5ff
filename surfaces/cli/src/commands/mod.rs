//! The commands, one file each.

pub(crate) mod check;
pub(crate) mod events;
pub(crate) mod grow;
pub(crate) mod inject;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod pool;
pub(crate) mod scrub;
