//! Addresses at which pools are mapped. What the library answers never goes there: an address that
//! a view lent, taken for room of the program, would be a stray store, or the program's end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::border::{Done, Fail};

/// The mapping of one pool.
#[derive(Debug)]
struct Mapping {
    pool: u64,
    start: usize,
    end: usize,
}

static MAPPINGS: RwLock<Vec<Mapping>> = RwLock::new(Vec::new());
/// Every mapping there was lies between these two: most rooms are beyond, and are let pass without
/// a lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Notes where a pool is. Who hands over an address of it has its handle, and so came after this.
pub(crate) fn add(pool: u64, start: usize, len: usize) {
    let end = start.saturating_add(len);
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(end, Ordering::Relaxed);
    let mut mappings = MAPPINGS.write().unwrap_or_else(PoisonError::into_inner);
    mappings.push(Mapping { pool, start, end });
}

/// Forgets a pool.
pub(crate) fn remove(pool: u64) {
    let mut mappings = MAPPINGS.write().unwrap_or_else(PoisonError::into_inner);
    mappings.retain(|mapping| mapping.pool != pool);
}

/// Refuses memory to write to that is a part of a pool.
pub(crate) fn refuse(at: usize, len: usize, what: &str) -> Done {
    let end = at.saturating_add(len);
    if end <= LOWEST.load(Ordering::Relaxed) || at >= HIGHEST.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mappings = MAPPINGS.read().unwrap_or_else(PoisonError::into_inner);
    if mappings.iter().any(|mapping| at < mapping.end && mapping.start < end) {
        let text = format!("{what} lies in a pool, which only transactions change");
        return Err(Fail::invalid(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_a_mapping_is_refused_until_it_is_gone() {
        add(1, 0x7000, 0x1000);
        add(2, 0xa000, 0x1000);
        for (at, len, fine) in [
            (0x6ff8, 8, true),
            (0x6ff8, 9, false),
            (0x7fff, 1, false),
            (0x8000, 0x2000, true),
            (0x8000, 0x2001, false),
            (0xb000, 8, true),
            (0x10, usize::MAX, false),
        ] {
            assert_eq!(refuse(at, len, "it").is_ok(), fine, "{at:#x} {len:#x}");
        }
        remove(1);
        assert!(refuse(0x7800, 8, "it").is_ok());
        assert!(refuse(0xa800, 8, "it").is_err());
    }
}
