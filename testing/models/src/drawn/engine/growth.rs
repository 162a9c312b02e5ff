//! A pool in which nothing is free grows, and somebody waits for the room it makes.

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_layout::TypeNumber;
use holdfast_object::Error;
use holdfast_txn::{Transaction as _, TxError};
use shuttle::thread;

use super::super::{LAW, Reached};
use super::{GROWN, TestPool, World, filled, get};

/// Objects for which there was no room first.
pub(in super::super) static SETTLED: Reached = Reached::new("objects that waited for a zone");

/// Bytes of an object that takes a whole chunk.
const WHOLE: usize = 7_000;

/// How far the growth is.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Raised once it has ended.
    ended: AtomicBool,
}

/// Makes objects until no chunk is free.
pub(super) fn fill(pool: &TestPool) {
    loop {
        match pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &[5; WHOLE])) {
            Ok(_) => {}
            Err(Error::Tx(TxError::NoSpace { .. })) => return,
            Err(error) => panic!("a pool can be filled: {error}"),
        }
    }
}

impl World {
    pub(super) fn grow(&self) {
        let grown = self.pool.grow(GROWN);
        assert!(grown.is_ok(), "{LAW}: a pool with room grows: {grown:?}");
        self.growth.ended.store(true, Ordering::Relaxed);
    }

    /// Takes a place as soon as there is one. Whether its columns are in parity is for the check
    /// at the end.
    pub(super) fn settle(&self) {
        let bytes = filled(3).repeat(WHOLE / 64);
        let mut waited = 0;
        loop {
            let ended = self.growth.ended.load(Ordering::Relaxed);
            match self.pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &bytes)) {
                Ok(of) => {
                    SETTLED.add(waited);
                    let found = self.pool.run(|tx| get(tx, of));
                    assert_eq!(found.ok(), Some(3), "{LAW}: an object is what was made");
                    return;
                }
                Err(Error::Tx(TxError::NoSpace { .. })) => {
                    assert!(!ended, "{LAW}: a pool that grew has room");
                    waited = 1;
                    thread::yield_now();
                }
                Err(error) => panic!("{LAW}: an object is made, or there is no room: {error}"),
            }
        }
    }
}
