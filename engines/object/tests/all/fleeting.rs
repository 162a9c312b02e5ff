//! A page that cannot be read once, and can be from then on: nobody takes that for a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::tapped::Tapped;
use crate::common::{clock, pattern, quick};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::TypeNumber;
use holdfast_object::{CreateOptions, Pool, VerifyReads};
use holdfast_pmem::{MediaCause, MediaError, MediumKind, PAGE};
use holdfast_txn::Transaction;

/// Reads of a repair and more: of the last of these none is left to fail.
const READS_MAX: i64 = 20_000;

#[test]
fn a_read_of_a_repair_that_fails_once_loses_nothing() {
    let options = CreateOptions::tiny(1 << 20);
    let m = FaultMedium::new(options.size, MediumKind::Dax, &Config::default());
    // The read that fails, counted down; none below that.
    let next = Arc::new(AtomicI64::new(0));
    let asked = Arc::clone(&next);
    let tapped = Tapped::new(m, move |at, _| {
        if asked.fetch_sub(1, Ordering::Relaxed) != 1 {
            return Ok(());
        }
        Err(MediaError { at: at / PAGE * PAGE, len: PAGE, cause: MediaCause::Poison })
    });
    let pool = Pool::create(tapped, &options, quick(), clock()).unwrap();
    pool.set_verify_reads(VerifyReads::Always);
    let bytes = pattern(3, 700);
    let object = pool.run(|tx| {
        let object = tx.alloc_bytes(TypeNumber::BYTES, 700)?;
        tx.write_bytes(object, 0, &bytes)?;
        Ok(object)
    });
    let object = object.unwrap();
    for read in 1..READS_MAX {
        let before = pool.stats();
        pool.medium().faulty().flip_bit(object.offset() + 300, 3).unwrap();
        next.store(read, Ordering::Relaxed);
        let mut got = vec![0; 700];
        let done = pool.run(|tx| tx.read_bytes(object, 0, &mut got));
        let left = next.swap(0, Ordering::Relaxed);
        assert!(done.is_ok() && got == bytes, "read {read} failed once: {done:?}");
        let after = pool.stats();
        assert_eq!(after.lost, before.lost, "read {read} failed once");
        assert!(after.repaired > before.repaired, "read {read} failed once");
        if left > 0 {
            assert!(read > 20, "a repair reads more than that");
            return;
        }
    }
    panic!("a repair of one bit read {READS_MAX} times and more");
}
