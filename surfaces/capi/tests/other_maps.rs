//! Maps that C did not make: of types it has no name for, of a kind no build knows, of no version
//! of a map at all. Opening one is a code and a text that says what is there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::ffi::{CStr, CString};

use holdfast::{Kind, Pool, Transaction, TypeNumber};
use holdfast_capi::{
    holdfast_code, holdfast_map, holdfast_map_close, holdfast_map_count, holdfast_map_create,
    holdfast_map_drop, holdfast_map_get, holdfast_map_open, holdfast_map_put, holdfast_message,
    holdfast_pool, holdfast_pool_close, holdfast_pool_open, holdfast_tx,
};

const NONE: holdfast_tx = holdfast_tx { id: 0 };

fn message() -> String {
    // SAFETY: the text lives until the next error of this thread.
    unsafe { CStr::from_ptr(holdfast_message()) }.to_str().unwrap().to_owned()
}

/// A pool made by `make` in Rust, opened as C does. The folder has to outlive it.
fn opened(make: impl FnOnce(&Pool)) -> (tempfile::TempDir, holdfast_pool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.pool");
    let made = Pool::options().size(16 << 20).create(&path).unwrap();
    make(&made);
    made.close();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let mut pool = holdfast_pool { id: 0 };
    // SAFETY: a text, and a place for the handle.
    let code = unsafe { holdfast_pool_open(path.as_ptr(), core::ptr::null(), &raw mut pool) };
    assert_eq!(code, holdfast_code::HoldfastOk, "{}", message());
    (folder, pool)
}

fn open(pool: holdfast_pool, name: &CStr) -> (holdfast_code, holdfast_map) {
    let mut map = holdfast_map { id: 7 };
    // SAFETY: a text, and a place for the handle.
    let code = unsafe { holdfast_map_open(pool, name.as_ptr(), &raw mut map) };
    (code, map)
}

fn refused(pool: holdfast_pool, name: &CStr, code: holdfast_code, said: &str) {
    let (found, map) = open(pool, name);
    assert_eq!((found, map.id), (code, 0), "{}", message());
    assert!(message().contains(said), "{}", message());
    let mut map = holdfast_map { id: 7 };
    // SAFETY: a text, and a place for the handle.
    let found = unsafe { holdfast_map_create(pool, name.as_ptr(), 1, 0, 0, &raw mut map) };
    assert_eq!((found, map.id), (code, 0), "{}", message());
    // SAFETY: a text.
    let found = unsafe { holdfast_map_drop(pool, name.as_ptr()) };
    assert_eq!(found, code, "{}", message());
}

#[test]
fn types_that_c_has_no_name_for_are_told() {
    let (_folder, pool) = opened(|pool| {
        pool.map::<u32, [u8]>("short keys").unwrap().put(&1, b"v").unwrap();
        pool.map::<str, f64>("fractions").unwrap().put("half", &0.5).unwrap();
    });
    let wrong = holdfast_code::HoldfastWrongType;
    refused(pool, c"short keys", wrong, "keys of u32");
    refused(pool, c"fractions", wrong, "values of f64");
    assert_eq!(holdfast_pool_close(pool), holdfast_code::HoldfastOk);
}

#[test]
fn a_kind_that_is_not_known_is_told() {
    let (_folder, pool) = opened(|pool| {
        let named = pool.map::<[u8], [u8]>("later").unwrap();
        let header = named.map().pointer().raw();
        // The kind is the first number of the header.
        pool.run(|tx| tx.write_bytes(header, 0, &99_u32.to_le_bytes())).unwrap();
    });
    let damaged = holdfast_code::HoldfastDamaged;
    refused(pool, c"later", damaged, "a kind this build does not know");
    assert_eq!(holdfast_pool_close(pool), holdfast_code::HoldfastOk);
}

#[test]
fn a_map_of_another_version_is_told() {
    let (_folder, pool) = opened(|pool| {
        let header = pool.map::<[u8], [u8]>("v").unwrap().map().pointer().raw();
        // Another version is another type: here the header is replaced by an object of that.
        pool.run(|tx| {
            let later = TypeNumber::of_name("holdfast.collections.MapHeader", 9);
            let new = tx.alloc_bytes(later, tx.len_of(header)?)?;
            let info = pool.superblock().anchor;
            let catalogue = holdfast::RawPtr::from_word(info);
            let mut anchor = vec![0; usize::try_from(tx.len_of(catalogue)?).unwrap()];
            tx.read_bytes(catalogue, 0, &mut anchor)?;
            let maps = anchor.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap()));
            let maps = maps
                .map(holdfast::RawPtr::from_word)
                .find(|at| holdfast::MapInfo::read(tx, at.typed()).is_ok());
            let names = holdfast::MapInfo::open_untyped(tx, maps.unwrap().typed())?;
            names.put(tx, b"v", &new.word().to_le_bytes())?;
            tx.free(header)
        })
        .unwrap();
    });
    refused(pool, c"v", holdfast_code::HoldfastWrongType, "type");
    assert_eq!(holdfast_pool_close(pool), holdfast_code::HoldfastOk);
}

#[test]
fn numbers_of_rust_are_numbers_of_c() {
    let (_folder, pool) = opened(|pool| {
        for kind in Kind::ALL {
            let map = pool.map_as::<i64, u64>(kind.name(), kind).unwrap();
            map.put(&-3, &33).unwrap();
        }
    });
    for kind in Kind::ALL {
        let (code, map) = open(pool, &CString::new(kind.name()).unwrap());
        assert_eq!(code, holdfast_code::HoldfastOk, "{}", message());
        let (key, new, mut value, mut len, mut count) = (-3_i64, 44_u64, 0_u64, 0_usize, 0_u64);
        // SAFETY: all places are of their types and lengths.
        let codes = unsafe {
            [
                holdfast_map_get(
                    map,
                    NONE,
                    (&raw const key).cast(),
                    8,
                    (&raw mut value).cast(),
                    8,
                    &raw mut len,
                ),
                holdfast_map_put(map, NONE, (&raw const key).cast(), 8, (&raw const new).cast(), 8),
                holdfast_map_count(map, NONE, &raw mut count),
            ]
        };
        assert_eq!(codes, [holdfast_code::HoldfastOk; 3], "{}", message());
        assert_eq!((value, len, count), (33, 8, 1));
        assert_eq!(holdfast_map_close(map), holdfast_code::HoldfastOk);
    }
    assert_eq!(holdfast_pool_close(pool), holdfast_code::HoldfastOk);
}
