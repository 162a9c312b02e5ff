//! Derive macro for plain persistent data.
