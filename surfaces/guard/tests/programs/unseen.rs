//! What must hold of ways of writing that are easily overlooked.

use crate::checks::story;

pub(crate) const ALL: &[(&str, fn())] = &[("flags of one write are heeded", || story("flags"))];
