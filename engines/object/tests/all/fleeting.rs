//! A page that cannot be read once, and can be from then on: nobody takes that for a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::tapped::Tapped;
use crate::common::{clock, pattern, quick};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_heap::ZoneTable;
use holdfast_layout::{RawPtr, RegionKind, TypeNumber};
use holdfast_object::{CreateOptions, Pool, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::{MediaCause, MediaError, MediumKind, PAGE};
use holdfast_txn::Transaction;

/// Reads of a repair and more: of the last of these none is left to fail.
const READS_MAX: i64 = 20_000;

/// A pool, of which a read fails when the number comes down to one, or to one of so many.
fn pool(in_a_row: i64) -> (Pool<Tapped>, Arc<AtomicI64>) {
    let options = CreateOptions::tiny(1 << 20);
    let m = FaultMedium::new(options.size, MediumKind::Dax, &Config::default());
    let next = Arc::new(AtomicI64::new(0));
    let asked = Arc::clone(&next);
    let tapped = Tapped::new(m, move |at, _| {
        if !(1..=in_a_row).contains(&asked.fetch_sub(1, Ordering::Relaxed)) {
            return Ok(());
        }
        Err(MediaError { at: at / PAGE * PAGE, len: PAGE, cause: MediaCause::Poison })
    });
    let pool = Pool::create(tapped, &options, quick(), clock()).unwrap();
    pool.set_verify_reads(VerifyReads::Always);
    (pool, next)
}

/// Puts an object of these bytes.
fn put(pool: &Pool<Tapped>, bytes: &[u8]) -> RawPtr {
    pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, bytes)).unwrap()
}

/// Has each read of `work` fail in its turn, with something to repair each time.
fn each_fails(in_a_row: i64, hurt: fn(&Pool<Tapped>, RawPtr), work: fn(&Pool<Tapped>, RawPtr)) {
    let (pool, next) = pool(in_a_row);
    let bytes = pattern(3, 700);
    let object = put(&pool, &bytes);
    for read in 1..READS_MAX {
        let before = pool.stats();
        hurt(&pool, object);
        next.store(read + in_a_row - 1, Ordering::Relaxed);
        work(&pool, object);
        let left = next.swap(0, Ordering::Relaxed);
        let mut got = vec![0; 700];
        let done = pool.run(|tx| tx.read_bytes(object, 0, &mut got));
        assert!(done.is_ok() && got == bytes, "read {read} of {in_a_row}: {done:?}");
        let after = pool.stats();
        assert_eq!(after.lost, before.lost, "read {read} of {in_a_row}");
        assert!(after.repaired > before.repaired, "read {read} of {in_a_row}");
        if left >= in_a_row {
            assert!(read > 20, "a repair reads more than that");
            return;
        }
    }
    panic!("a repair of one bit read {READS_MAX} times and more");
}

fn read(pool: &Pool<Tapped>, object: RawPtr) {
    let mut got = vec![0; 700];
    // What it comes to is asked for once all can be read.
    let _ = pool.run(|tx| tx.read_bytes(object, 0, &mut got));
}

fn scrub(pool: &Pool<Tapped>, _: RawPtr) {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap();
}

#[test]
fn a_read_of_a_repair_that_fails_once_or_twice_loses_nothing() {
    for in_a_row in 1..=2 {
        let hurt = |pool: &Pool<Tapped>, of: RawPtr| {
            pool.medium().faulty().flip_bit(of.offset() + 300, 3).unwrap();
        };
        each_fails(in_a_row, hurt, read);
    }
}

#[test]
fn a_read_of_a_scrub_that_fails_once_costs_no_entry() {
    let hurt = |pool: &Pool<Tapped>, of: RawPtr| {
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let table = ZoneTable::new(0, &zone);
        let entry = table.entry_at(table.chunk_of(of.offset()).unwrap());
        pool.medium().faulty().flip_bit(entry + 2, 3).unwrap();
    };
    each_fails(1, hurt, scrub);
}
