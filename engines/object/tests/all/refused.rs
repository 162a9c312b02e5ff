//! Pools that cannot be made or grown are refused with what would do, and a pool that was refused
//! to grow is as it was. Pools of all sorts that can be.

use crate::common::{clock, create_with, get, pattern, put, quick, reopened};
use holdfast_faultmem::{Config, FailMode, FaultMedium};
use holdfast_layout::format::REGIONS_MAX;
use holdfast_layout::{RegionKind, SumKind};
use holdfast_object::{CreateOptions, Error, Parity, Pool};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Transaction, TxError};

const MIB: u64 = 1 << 20;

fn tiny() -> CreateOptions {
    CreateOptions::tiny(MIB)
}

/// Why a pool cannot be made on a medium that is as long as it asks for, and the limit told.
fn refusal(options: &CreateOptions) -> (&'static str, u64) {
    let len = options.size.clamp(4096, MIB);
    let m = FaultMedium::new(len, MediumKind::Shm, &Config::default());
    let refused = Pool::create(m, options, quick(), clock()).map(|_| ());
    let Err(Error::Options { what, limit }) = refused else { panic!("{options:?}: {refused:?}") };
    (what, limit)
}

#[test]
fn pools_that_cannot_be_made_say_which_would_do() {
    let cases: Vec<(CreateOptions, &str, u64)> = vec![
        (CreateOptions { size: 4 * MIB, ..CreateOptions::default() }, "larger", 16 * MIB),
        (CreateOptions { size: (1 << 47) + 4096, ..tiny() }, "smaller", 1 << 47),
        (CreateOptions { log: 2 * MIB, ..tiny() }, "log is longer", MIB),
        (CreateOptions { size: 1 << 46, log: 1 << 45, ..tiny() }, "log can have", 5 << 34),
        (CreateOptions { frame: 0, ..tiny() }, "frame", 4096),
        (CreateOptions { size: 16 * MIB, frame: 6144, ..tiny() }, "frame", 4096),
        (CreateOptions { size: 4 << 30, frame: 2 << 30, ..tiny() }, "frame", 4096),
        (CreateOptions { chunk: 2048, ..tiny() }, "chunk", 4096),
        (CreateOptions { chunk: 12_288, ..tiny() }, "chunk", 4096),
        (CreateOptions { rows: 2, ..tiny() }, "rows", 254),
        (CreateOptions { rows: 255, ..tiny() }, "rows", 254),
        (CreateOptions { lanes: 1024, ..tiny() }, "lanes", 1023),
        (CreateOptions { events: (16 << 20) + 1, ..tiny() }, "events", 16 << 20),
        (CreateOptions { label: "x".repeat(65), ..tiny() }, "label", 64),
        (CreateOptions { label: "a\0b".to_owned(), ..tiny() }, "label", 64),
    ];
    for (options, word, limit) in cases {
        let (what, told) = refusal(&options);
        assert!(what.contains(word), "{what:?} says nothing of {word:?}");
        assert_eq!(told, limit, "{what}");
    }
    // What metadata and log need depends on all of them; what is told is enough for them.
    let (what, least) = refusal(&CreateOptions { size: 64 << 10, ..tiny() });
    assert!(what.contains("metadata and log alone") && least < MIB, "{what} {least}");
}

#[test]
fn a_medium_that_is_too_short_is_no_place_for_a_pool() {
    let m = FaultMedium::new(MIB / 2, MediumKind::Shm, &Config::default());
    let refused = Pool::create(m, &tiny(), quick(), clock()).map(|_| ());
    let Err(Error::Truncated { pool, file }) = refused else { panic!("{refused:?}") };
    assert_eq!((pool, file), (MIB, MIB / 2));
}

#[test]
fn every_sort_of_pool_opens_as_what_it_is() {
    for kind in [MediumKind::Shm, MediumKind::Dax, MediumKind::File] {
        for sums in [SumKind::Crc32c, SumKind::Adler32, SumKind::None] {
            for parity in [Parity::None, Parity::P, Parity::PQ] {
                for metadata_copies in [true, false] {
                    let options = CreateOptions { sums, parity, metadata_copies, ..tiny() };
                    let what = format!("{kind} {sums:?} {parity:?} {metadata_copies}");
                    let pool = create_with(kind, &options);
                    let bytes = pattern(1, 3000);
                    let of = put(&pool, &bytes);
                    let pool = reopened(pool);
                    assert_eq!(get(&pool, of).unwrap(), bytes, "{what}");
                    let known = pool.superblock();
                    assert_eq!(known.sum_kind, sums, "{what}");
                    assert_eq!(known.parity, parity.rows(), "{what}");
                    assert_eq!(known.copies, if metadata_copies { 2 } else { 1 }, "{what}");
                    assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{what}");
                }
            }
        }
    }
}

#[test]
fn growth_that_cannot_be_says_which_could_and_a_pool_has_so_many_zones() {
    let config = Config { reserve: 64 << 20, ..Config::default() };
    let m = FaultMedium::new(MIB, MediumKind::Shm, &config);
    let pool = Pool::create(m, &tiny(), quick(), clock()).unwrap();
    let bytes = pattern(3, 500);
    let of = put(&pool, &bytes);
    let zones = || pool.regions().iter().filter(|r| r.kind == RegionKind::Zone).count();
    loop {
        let size = pool.superblock().size;
        match pool.grow(size + 1) {
            Err(Error::Growth { what, limit }) if what.contains("the next size") => {
                let zones_before = zones();
                assert!(pool.grow(limit - 1).is_err(), "less than what was told");
                assert_eq!((zones(), pool.superblock().size), (zones_before, size));
                match pool.grow(limit) {
                    Ok(()) => assert_eq!(zones(), zones_before + 1),
                    Err(Error::Growth { what, limit }) => {
                        assert!(what.contains("as many as there can be"), "{what}");
                        assert_eq!(limit, REGIONS_MAX as u64);
                        assert_eq!(pool.regions().len(), REGIONS_MAX);
                        break;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(get(&pool, of).unwrap(), bytes);
    let pool = reopened(pool);
    assert_eq!(get(&pool, of).unwrap(), bytes);
    assert_eq!(pool.regions().len(), REGIONS_MAX);
    assert!(pool.check(|_, _| {}).unwrap().is_clean());
}

#[test]
fn nothing_grows_that_is_only_read() {
    let pool = create_with(MediumKind::File, &tiny());
    let bytes = pattern(5, 900);
    let of = put(&pool, &bytes);
    // A write or a sync that fails ends all writing; which call is one is found out.
    for nth in 1..200 {
        pool.medium().fail_nth(pool.medium().calls() + nth, FailMode::Once);
        let _ = pool.run(|tx| tx.write_bytes(of, 0, &pattern(nth, 100)));
        if pool.is_read_only() {
            break;
        }
    }
    assert!(pool.is_read_only());
    pool.medium().fail_none();
    let refused = pool.grow(4 * MIB);
    assert!(matches!(refused, Err(Error::Tx(TxError::ReadOnly))), "{refused:?}");
    assert_eq!(pool.superblock().size, MIB);
    assert_eq!(get(&pool, of).unwrap()[100..], bytes[100..]);
}
