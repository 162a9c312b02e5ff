//! A change of a few bytes of a large object copies and verifies the granules it touches, and no
//! others (OB4): what is wrong elsewhere is neither met nor in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::tapped::Tapped;
use crate::common::{clock, create_with, get, pattern, put, quick};
use holdfast_faultmem::{Clear, Config, FaultMedium};
use holdfast_heap::format::GRANULE;
use holdfast_layout::{RawPtr, RegionKind, TypeNumber};
use holdfast_object::{CreateOptions, Parity, Pool, VerifyReads};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_txn::Transaction;

const LEN: usize = 1 << 20;

fn options() -> CreateOptions {
    CreateOptions { parity: Parity::P, ..CreateOptions::tiny(4 << 20) }
}

/// A pool with an object of a mebibyte in it.
fn large(kind: MediumKind) -> (crate::common::TestPool, RawPtr, Vec<u8>) {
    let pool = create_with(kind, &options());
    pool.set_verify_reads(VerifyReads::Always);
    let bytes = pattern(1, LEN);
    let object = put(&pool, &bytes);
    (pool, object, bytes)
}

/// Writes 300 bytes over the edge between two granules in the middle of the object.
fn write_middle(pool: &crate::common::TestPool, object: RawPtr, bytes: &mut [u8]) {
    let from = LEN / 2 + GRANULE as usize - 100;
    let new = pattern(2, 300);
    pool.run(|tx| tx.write_bytes(object, from as u64, &new)).unwrap();
    bytes[from..from + 300].copy_from_slice(&new);
}

#[test]
fn damage_in_granules_that_a_commit_does_not_touch_is_not_met() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let (pool, object, mut bytes) = large(kind);
        // A bit in the granule before the two that are written, one in the granule behind, and
        // one far away. (The slot's sum covers the first granule, which is not opened either.)
        let first = LEN as u64 / 2 / GRANULE;
        let places = [first - 1, first + 2, 1, 1000].map(|granule| granule * GRANULE + 17);
        for place in places {
            pool.medium().flip_bit(object.offset() + place, 3).unwrap();
        }
        write_middle(&pool, object, &mut bytes);
        assert_eq!(pool.stats().detected, 0, "{kind}: nothing else was looked at");
        for place in places {
            let mut byte = [0];
            pool.medium().read(object.offset() + place, &mut byte).unwrap();
            assert_eq!(byte[0], bytes[place as usize] ^ 8, "{kind}: nobody repaired it");
        }
        // It was there to be met: a change of each of these granules meets it, and the bytes that
        // were written in between did not launder it.
        for (met, place) in (1..).zip(places) {
            pool.run(|tx| tx.write_bytes(object, place + 1, &[7])).unwrap();
            bytes[place as usize + 1] = 7;
            assert_eq!(pool.stats().repaired, met, "{kind}");
        }
        assert_eq!(get(&pool, object).unwrap(), bytes, "{kind}");
        assert!(pool.check(|_, _| {}).unwrap().is_clean());
    }
}

#[test]
fn pages_that_cannot_be_read_elsewhere_in_the_object_stop_no_commit() {
    let (pool, object, mut bytes) = large(MediumKind::Shm);
    let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let column = |at: u64| (at - zone.start) % zone.row_len / PAGE;
    let middle = object.offset() + LEN as u64 / 2;
    // Pages in columns of their own, or each would be the other's parity.
    let pages = [middle - 20 * PAGE, middle + 20 * PAGE].map(|at| at / PAGE * PAGE);
    let columns = [column(pages[0]), column(pages[1]), column(middle), column(middle + PAGE)];
    assert!(columns.iter().all(|c| columns.iter().filter(|d| c == *d).count() == 1));
    for page in pages {
        pool.medium().poison(page, PAGE, Clear::Able).unwrap();
    }
    write_middle(&pool, object, &mut bytes);
    assert_eq!(pool.stats().detected, 0);
    assert_eq!(pool.medium().bad_ranges().len(), 2, "both are as bad as before");
    assert_eq!(get(&pool, object).unwrap(), bytes);
    assert_eq!(pool.medium().bad_ranges().len(), 0);
    assert_eq!(pool.stats().lost, 0);
}

#[test]
fn the_bytes_read_of_a_large_object_are_those_of_the_granules_touched() {
    let options = options();
    let m = FaultMedium::new(options.size, MediumKind::Shm, &Config::default());
    let (range, count) = (Arc::<(AtomicU64, AtomicU64)>::default(), Arc::<AtomicU64>::default());
    let (bounds, sum) = (Arc::clone(&range), Arc::clone(&count));
    let tapped = Tapped::new(m, move |at, len| {
        let (start, end) = (bounds.0.load(Ordering::Relaxed), bounds.1.load(Ordering::Relaxed));
        let inside = (at + len).min(end).saturating_sub(at.max(start));
        sum.fetch_add(inside, Ordering::Relaxed);
        Ok(())
    });
    let pool = Pool::create(tapped, &options, quick(), clock()).unwrap();
    let object = pool.run(|tx| tx.alloc_bytes(TypeNumber::BYTES, LEN as u64)).unwrap();
    range.0.store(object.offset(), Ordering::Relaxed);
    range.1.store(object.offset() + LEN as u64, Ordering::Relaxed);
    let granule = GRANULE;
    for (from, len, granules) in
        [(granule * 500 + 3, 8, 1), (granule * 501 - 4, 8, 2), (granule * 7, 3 * granule, 3)]
    {
        count.store(0, Ordering::Relaxed);
        pool.run(|tx| tx.write_bytes(object, from, &vec![0xa5; len as usize])).unwrap();
        let read = count.load(Ordering::Relaxed);
        // Copied once to be verified; then each range is touched (a byte for each row it lies in)
        // before the commit point.
        assert!(
            (granules * granule..=granules * granule + 16).contains(&read),
            "{len} bytes at {from}: {read} bytes read, {granules} granules touched"
        );
    }
}
