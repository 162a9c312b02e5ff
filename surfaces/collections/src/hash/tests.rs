//! What only chosen hashes bring about: buckets deep under directories, and keys with equal hashes.

use std::collections::BTreeMap;

use holdfast_layout::bytemuck;
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Store};

use super::*;
use crate::format::BUCKET_NEXT;

type Tx = <ToyStore as Store>::Tx<'static>;

/// Too long for a number, so that its item keeps the hash it was given.
fn key(n: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&n.to_le_bytes());
    key
}

fn get(tx: &Tx, table: Table, sought: &Sought<'_>) -> Result<Option<Vec<u8>>> {
    let (mut spot, mut hit, mut value) = (Spot::new(), Hit::new(), Vec::new());
    table.look(tx, sought, &mut spot)?;
    if !hit.find(tx, sought, &spot.bucket.items, 0)? {
        return Ok(None);
    }
    hit.copy_to(tx, &mut value)?;
    Ok(Some(value))
}

/// Puts and removes `count` keys under the hashes `hash` gives them, and compares all along.
fn fill_and_empty(count: u64, hash: impl Fn(u64) -> u64) {
    let store = ToyStore::new();
    let table = store.run(Isolation::Serializable, |tx| Table::create(tx, [1, 2])).unwrap();
    let empty = store.live().len();
    store
        .run(Isolation::Serializable, |tx| {
            let mut model = BTreeMap::new();
            for n in 0..count {
                let (key, value) = (key(n), vec![n as u8; n as usize % 5]);
                let sought = Sought::hashed(&key, hash(n));
                assert!(!table.put_sought(tx, &sought, &value, None)?);
                assert!(table.put_sought(tx, &sought, &value, None)?);
                model.insert(n, value);
                assert_eq!(table.count(tx)?, n + 1);
            }
            for n in (0..count).filter(|n| n % 3 > 0).chain((0..count).filter(|n| n % 3 == 0)) {
                for (n, value) in &model {
                    let key = key(*n);
                    let found = get(tx, table, &Sought::hashed(&key, hash(*n)))?;
                    assert_eq!(found.as_ref(), Some(value), "{n}");
                }
                let (key, mut old) = (key(n), Vec::new());
                let sought = Sought::hashed(&key, hash(n));
                assert!(table.remove_sought(tx, &sought, Some(&mut old))?);
                assert_eq!(Some(old), model.remove(&n));
                assert!(!table.remove_sought(tx, &sought, None)?);
            }
            assert!(table.has_none(tx)?);
            Ok(())
        })
        .unwrap();
    // One bucket and the header, as at the start: what has grown has shrunk again.
    assert_eq!(store.live().len(), empty);
}

#[test]
fn equal_hashes_are_chained_and_the_chain_goes_away() {
    fill_and_empty(200, |_| 0x0123_4567_89ab_cdef);
    fill_and_empty(200, |n| if n % 2 == 0 { u64::MAX } else { 0 });
}

#[test]
fn hashes_that_differ_in_their_last_bits_only_go_through_all_directories() {
    fill_and_empty(200, |n| 0xffff_ffff_ffff_ff00 | (n % 128));
    fill_and_empty(140, |n| n % 64);
}

#[test]
fn hashes_that_differ_in_their_first_bits_only_stay_near_the_root() {
    fill_and_empty(300, |n| n << 56);
    fill_and_empty(100, |n| (n % 2) << 63);
}

#[test]
fn first_bits_and_places_in_directories() {
    let hash = 0xabcd_0000_0000_0012;
    assert_eq!(first_bits(hash, 0), 0);
    assert_eq!(first_bits(hash, 8), 0xab << 56);
    assert_eq!(first_bits(hash, 64), hash);
    let words = |base, bits| Words { object: RawPtr::NULL, first: 0, base, bits };
    assert_eq!(words(0, 8).index(hash), 0xab);
    assert_eq!(words(8, 8).index(hash), 0xcd);
    assert_eq!(words(60, 4).index(hash), 2);
}

fn filled(tx: &Tx, count: u64) -> Result<Table> {
    let table = Table::create(tx, [3, 4])?;
    for n in 0..count {
        table.put_and_keep(tx, &n.to_le_bytes(), b"value", None)?;
    }
    Ok(table)
}

#[test]
fn a_bucket_where_it_does_not_belong_is_found_out() {
    let store = ToyStore::new();
    store
        .run(Isolation::Serializable, |tx| {
            let table = filled(tx, 40_000)?;
            let top = table.top();
            let directory = directory_of(top.read(tx, 3)?, 8)?.expect("more than 256 buckets");
            let first = directory.read(tx, 0)?;
            directory.fill(tx, u64::MAX, directory.end(), first)?;
            assert!(!table.check_all(tx)?.is_sound());
            assert!(matches!(table.count(tx), Err(TxError::Inconsistent(_))));
            // A directory that leads to itself uses up bits until there are none.
            let own = top.read(tx, 3)?;
            for index in 0..directory.count() as u64 {
                tx.write_bytes(directory.object, 8 * index, &own.to_le_bytes())?;
            }
            let lost = (0..).find(|n: &u64| top.index(table.hash(&n.to_le_bytes())) == 3);
            let lost = lost.expect("there are infinitely many").to_le_bytes();
            let refused = table.find(tx, &lost, &mut Hit::new());
            assert!(matches!(refused, Err(TxError::Inconsistent(_))), "{refused:?}");
            assert!(!table.check_all(tx)?.is_sound());
            assert!(table.count(tx).is_err());
            Ok(())
        })
        .unwrap();
}

#[test]
fn chains_that_lead_back_are_found_out() {
    let store = ToyStore::new();
    store
        .run(Isolation::Serializable, |tx| {
            let table = Table::create(tx, [3, 4])?;
            for n in 0..100 {
                table.put_sought(tx, &Sought::hashed(&key(n), 7), b"", None)?;
            }
            let way = table.way(tx, 7)?;
            let back = bytemuck::bytes_of(&way.at).to_vec();
            tx.write_bytes(way.bucket.next.raw(), BUCKET_NEXT, &back)?;
            let other = key(1000);
            let refused = get(tx, table, &Sought::hashed(&other, 7));
            assert!(matches!(refused, Err(TxError::Inconsistent(_))), "{refused:?}");
            assert!(!table.check_all(tx)?.is_sound());
            assert!(table.count(tx).is_err());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_key_that_is_there_twice_is_found_out() {
    let store = ToyStore::new();
    store
        .run(Isolation::Serializable, |tx| {
            let table = Table::create(tx, [3, 4])?;
            table.put_and_keep(tx, b"key", b"value", None)?;
            assert!(table.check_all(tx)?.is_sound());
            let way = table.way(tx, table.hash(b"key"))?;
            let twin = Item::inline(&table.sought(b"key"), b"other").expect("short");
            let slot = way.bucket.free_slot(twin.key).expect("one entry does not fill a bucket");
            crate::bucket::write_item(tx, way.at, slot, twin)?;
            let findings = table.check_all(tx)?.findings;
            assert!(findings[0].contains("have the same key"), "{findings:?}");
            Ok(())
        })
        .unwrap();
}
