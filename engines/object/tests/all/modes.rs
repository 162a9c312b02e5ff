//! Every protection is a value: each one on finds what it is for, and off does not.

use crate::common::{clock, crash, create_with, get, pattern, put};
use holdfast_faultmem::{Config, FaultMedium};
use holdfast_layout::{RegionKind, SumKind};
use holdfast_object::{
    CreateOptions, Error, OpenOptions, Parity, Pool, ScrubControl, ScrubOptions, VerifyReads,
};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_txn::{Transaction, TxError};

fn open_with(options: &CreateOptions, open: OpenOptions) -> crate::common::TestPool {
    let m = FaultMedium::new(options.size, MediumKind::Shm, &Config::default());
    Pool::create(m, options, open, clock()).unwrap()
}

#[test]
fn writing_beyond_a_private_copy_aborts_and_leaves_the_medium_alone() {
    for at in [-1_isize, -64, 64, 80, 100] {
        let pool = create_with(MediumKind::Shm, &CreateOptions::tiny(1 << 20));
        let p = put(&pool, &pattern(1, 64));
        let answer = pool.run(|tx| {
            let (copy, len) = tx.open_raw(p)?;
            assert_eq!(len, 64);
            // SAFETY: not at all: this is the overrun that guards are there to catch. The arena
            // reserves a guard line on both sides, so the byte is the arena's own.
            unsafe { copy.offset(at).write(0x5a) };
            Ok(())
        });
        assert!(matches!(answer, Err(Error::Tx(TxError::Overrun { .. }))), "{at}: {answer:?}");
        assert_eq!(get(&pool, p).unwrap(), pattern(1, 64));
    }
}

#[test]
fn without_guards_an_overrun_is_not_noticed() {
    let open = OpenOptions { guards: false, ..OpenOptions::default() };
    let pool = open_with(&CreateOptions::tiny(1 << 20), open);
    let p = put(&pool, &pattern(1, 64));
    let answer = pool.run(|tx| {
        let (copy, _) = tx.open_raw(p)?;
        // SAFETY: as above.
        unsafe { copy.add(64).write(0x5a) };
        Ok(())
    });
    assert!(answer.is_ok());
}

#[test]
fn a_change_outside_declared_ranges_is_an_error_in_debug_mode_only() {
    for debug_ranges in [true, false] {
        let open = OpenOptions { debug_ranges, ..OpenOptions::default() };
        let pool = open_with(&CreateOptions::tiny(1 << 20), open);
        let p = put(&pool, &pattern(1, 256));
        let run = |at| {
            pool.run(|tx| {
                tx.declare(p, 16, 32);
                tx.write_bytes(p, at, &[0xff; 8])
            })
        };
        run(16).unwrap();
        match run(40) {
            Err(Error::Tx(TxError::Undeclared { at, .. })) if debug_ranges => {
                assert!((40..48).contains(&at));
            }
            Ok(()) if !debug_ranges => {}
            other => panic!("{debug_ranges}: {other:?}"),
        }
    }
}

#[test]
fn without_sums_a_stray_write_is_served_and_with_them_it_is_repaired() {
    for sums in [SumKind::None, SumKind::Crc32c, SumKind::Adler32] {
        let options = CreateOptions { sums, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(MediumKind::Shm, &options);
        pool.set_verify_reads(VerifyReads::Always);
        let p = put(&pool, &pattern(1, 500));
        pool.medium().stray(p.offset() + 100, &[0xaa; 40]).unwrap();
        let found = get(&pool, p).unwrap();
        assert_eq!(found == pattern(1, 500), sums != SumKind::None, "{sums:?}");
    }
}

#[test]
fn without_parity_damage_is_named_and_not_repaired() {
    let options = CreateOptions { parity: Parity::None, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let (p, q) = (put(&pool, &pattern(1, 500)), put(&pool, &pattern(2, 500)));
    pool.medium().stray(p.offset() + 100, &[0xaa; 40]).unwrap();
    assert!(matches!(get(&pool, p), Err(Error::Tx(TxError::Lost { .. }))));
    assert_eq!(get(&pool, q).unwrap(), pattern(2, 500));
}

#[test]
fn reads_verify_as_the_policy_says() {
    for policy in [VerifyReads::Never, VerifyReads::FirstTouch, VerifyReads::Always] {
        let pool = create_with(MediumKind::Shm, &CreateOptions::tiny(1 << 20));
        pool.set_verify_reads(policy);
        let p = put(&pool, &pattern(1, 500));
        pool.medium().stray(p.offset() + 100, &[0xaa; 40]).unwrap();
        let first = get(&pool, p).unwrap() == pattern(1, 500);
        assert_eq!(first, policy != VerifyReads::Never, "{policy:?}");
        pool.medium().stray(p.offset() + 200, &[0xaa; 40]).unwrap();
        let second = get(&pool, p).unwrap() == pattern(1, 500);
        assert_eq!(second, policy == VerifyReads::Always, "{policy:?}");
        // Opening for change verifies whatever the policy.
        pool.run(|tx| tx.write_bytes(p, 0, &pattern(1, 500)[..8])).unwrap();
        assert_eq!(get(&pool, p).unwrap(), pattern(1, 500), "{policy:?}");
    }
}

#[test]
fn without_metadata_copies_one_bad_page_of_them_is_fatal() {
    for copies in [true, false] {
        let options = CreateOptions { metadata_copies: copies, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(MediumKind::Shm, &options);
        put(&pool, &pattern(1, 500));
        let image = pool.medium().crash_point().persisted();
        drop(pool);
        let m = FaultMedium::from_crash(image, MediumKind::Shm, &Config::default());
        m.stray(4096, &[0x77; 64]).unwrap();
        let opened = Pool::open(m, OpenOptions::default(), clock());
        assert_eq!(opened.is_ok(), copies);
    }
}

#[test]
fn objects_longer_than_a_row_and_pools_of_odd_sizes_work() {
    for pages in [260_u64, 301, 333, 517] {
        for parity in [Parity::P, Parity::PQ] {
            let options =
                CreateOptions { parity, rows: 12, ..CreateOptions::tiny(pages * 4096 + 123) };
            let m = FaultMedium::new(pages * 4096, MediumKind::Shm, &Config::default());
            let options = CreateOptions { size: pages * 4096, ..options };
            let pool = Pool::create(m, &options, OpenOptions::default(), clock()).unwrap();
            let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
            let len = (zone.row_len * 2 + 777) as usize;
            let p = put(&pool, &pattern(5, len));
            pool.run(|tx| tx.write_bytes(p, zone.row_len - 50, &[3; 100])).unwrap();
            let mut expected = pattern(5, len);
            expected[zone.row_len as usize - 50..][..100].fill(3);
            for at in [0, zone.row_len - 60, 2 * zone.row_len] {
                pool.medium().stray(p.offset() + at, &[0x11; 90]).unwrap();
                let control = ScrubControl::default();
                let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
                assert_eq!(done.lost, 0, "{pages} {parity:?} {at}");
            }
            assert_eq!(get(&pool, p).unwrap(), expected);
            let (pool, _) = crash(pool);
            assert_eq!(get(&pool, p).unwrap(), expected);
            assert!(pool.check(|_, _| {}).unwrap().is_clean());
        }
    }
}

#[test]
fn without_sums_damage_that_parity_cannot_locate_is_left_alone_and_named() {
    let scrub = |pool: &crate::common::TestPool| {
        pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
    };
    for parity in [Parity::P, Parity::PQ] {
        let options = CreateOptions { parity, sums: SumKind::None, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(MediumKind::Shm, &options);
        let bytes = pattern(5, 900);
        let p = put(&pool, &bytes);
        let zone = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let rows = u64::from(zone.data_rows) * zone.row_len;
        let mut before = vec![0; zone.row_len as usize];
        pool.medium().read(zone.start + rows, &mut before).unwrap();
        pool.medium().stray(p.offset() + 100, &[0xee; 7]).unwrap();
        for _ in 0..2 {
            let done = scrub(&pool);
            let mut after = vec![0; zone.row_len as usize];
            pool.medium().read(zone.start + rows, &mut after).unwrap();
            assert_eq!(before, after, "P may be all that is left of the right bytes");
            match parity {
                Parity::PQ => assert_eq!(get(&pool, p).unwrap(), bytes),
                _ => assert_eq!((done.repaired, done.lost, done.undecided), (0, 0, 1)),
            }
        }
    }
}
