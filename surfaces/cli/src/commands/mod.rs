//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod grow;
pub(crate) mod guard;
pub(crate) mod import;
pub(crate) mod inject;
pub(crate) mod keeper;
pub(crate) mod lines;
pub(crate) mod list;
pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod manual;
pub(crate) mod map;
pub(crate) mod mend;
pub(crate) mod pool;
pub(crate) mod protect;
pub(crate) mod rm;
pub(crate) mod scrub;
pub(crate) mod stats;
pub(crate) mod sweep;
pub(crate) mod transfer;
