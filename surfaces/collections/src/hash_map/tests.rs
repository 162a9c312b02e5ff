//! What only chosen hashes bring about: leaves deep under directories, and keys with equal hashes.

use std::collections::BTreeMap;

use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Store};

use super::*;
use crate::format::LEAF_NEXT;

type Tx = <ToyStore as Store>::Tx<'static>;

fn key(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

fn root(tx: &Tx, table: HashTable) -> u64 {
    tx.read(table.header).expect("header").root
}

/// Puts and removes `count` keys under the hashes `hash` gives them, and compares all along.
fn fill_and_empty(count: u64, hash: impl Fn(u64) -> u64) {
    let store = ToyStore::new();
    let table = store.run(Isolation::Serializable, |tx| HashTable::create(tx, [1, 2])).unwrap();
    let empty = store.live();
    store
        .run(Isolation::Serializable, |tx| {
            let mut model = BTreeMap::new();
            for n in 0..count {
                let value = vec![n as u8; n as usize % 5];
                let pair = (&key(n)[..], &value[..]);
                assert!(!table.put_hashed(tx, root(tx, table), hash(n), pair, None)?);
                assert!(table.put_hashed(tx, root(tx, table), hash(n), pair, None)?);
                model.insert(n, value);
                assert_eq!(table.len(tx)?, n + 1);
            }
            for n in (0..count).filter(|n| n % 3 > 0).chain((0..count).filter(|n| n % 3 == 0)) {
                let mut old = Vec::new();
                for (n, value) in &model {
                    let mut buf = EntryBuf::new();
                    let seek = table.seek(tx, root(tx, table), hash(*n), &key(*n), &mut buf)?;
                    assert!(seek.found.is_some(), "{n}");
                    buf.value_into(tx, &mut old)?;
                    assert_eq!(&old, value);
                }
                let root = root(tx, table);
                assert!(table.remove_hashed(tx, root, hash(n), &key(n), Some(&mut old))?);
                assert_eq!(Some(old), model.remove(&n));
                assert!(!table.remove_hashed(tx, self::root(tx, table), hash(n), &key(n), None)?);
            }
            assert!(table.is_empty(tx)?);
            Ok(())
        })
        .unwrap();
    // One leaf and the header, as at the start: what has grown has shrunk again.
    assert_eq!(store.live().len(), empty.len());
}

#[test]
fn equal_hashes_are_chained_and_the_chain_goes_away() {
    fill_and_empty(100, |_| 0x0123_4567_89ab_cdef);
    fill_and_empty(100, |n| if n % 2 == 0 { u64::MAX } else { 0 });
}

#[test]
fn hashes_that_differ_in_their_last_bits_only_go_through_all_directories() {
    fill_and_empty(100, |n| 0xffff_ffff_ffff_ff00 | (n % 128));
    fill_and_empty(70, |n| n % 64);
}

#[test]
fn hashes_that_differ_in_their_first_bits_only_stay_near_the_root() {
    fill_and_empty(200, |n| n << 56);
    fill_and_empty(100, |n| (n % 2) << 63);
}

#[test]
fn first_bits_and_places_in_directories() {
    let hash = 0xabcd_0000_0000_0012;
    assert_eq!(first_bits(hash, 0), 0);
    assert_eq!(first_bits(hash, 8), 0xab << 56);
    assert_eq!(first_bits(hash, 64), hash);
    assert_eq!(index_of(hash, 8), 0xab);
    assert_eq!(index_of(hash, 16), 0xcd);
    assert_eq!(index_of(hash, 64), 0x12);
}

#[test]
fn a_leaf_where_it_does_not_belong_is_an_error() {
    let store = ToyStore::new();
    let refused = store.run(Isolation::Serializable, |tx| {
        let table = HashTable::create(tx, [3, 4])?;
        for n in 0..200 {
            table.put(tx, &key(n), b"value")?;
        }
        // The first word of the directory leads to the leaf of the last one.
        let directory = as_directory(root(tx, table)).expect("200 entries do not fit one leaf");
        let last = read_word(tx, Word { object: directory, at: directory_word(255) })?;
        write_word(tx, Word { object: directory, at: directory_word(0) }, last)?;
        assert!(!table.check(tx)?.is_sound());
        table.len(tx)
    });
    assert!(matches!(refused, Err(TxError::Inconsistent(_))), "{refused:?}");
}

#[test]
fn chains_and_directories_that_lead_back_are_found_out() {
    let store = ToyStore::new();
    store
        .run(Isolation::Serializable, |tx| {
            let table = HashTable::create(tx, [3, 4])?;
            for n in 0..100 {
                table.put_hashed(tx, root(tx, table), 7, (&key(n), b""), None)?;
            }
            let mut buf = EntryBuf::new();
            let seek = table.seek(tx, root(tx, table), 7, b"no such key", &mut buf)?;
            let back = bytemuck::bytes_of(&seek.spot.leaf).to_vec();
            tx.write_bytes(seek.end.raw(), LEAF_NEXT, &back)?;
            let refused = table.seek(tx, root(tx, table), 7, b"no such key", &mut buf).err();
            assert!(matches!(refused, Some(TxError::Inconsistent(_))), "{refused:?}");
            assert!(!table.check(tx)?.is_sound());
            // A directory that leads to itself uses up bits until there are none.
            let directory = as_directory(root(tx, table)).expect("deep");
            for index in 0..256 {
                let word = Word { object: directory, at: directory_word(index) };
                write_word(tx, word, directory_word_of(directory)?)?;
            }
            assert!(matches!(table.get(tx, b"x"), Err(TxError::Inconsistent(_))));
            assert!(!table.check(tx)?.is_sound());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_key_that_is_there_twice_is_found_out() {
    let store = ToyStore::new();
    store
        .run(Isolation::Serializable, |tx| {
            let table = HashTable::create(tx, [3, 4])?;
            table.put(tx, b"key", b"value")?;
            assert!(table.check(tx)?.is_sound());
            let header = tx.read(table.header)?;
            let hash = sip::hash(header.seed, b"key");
            let seek = table.seek(tx, header.root, hash, b"other", &mut EntryBuf::new())?;
            let twin = HashSlot { hash, entry: entry::create(tx, b"key", b"other")? };
            let free = seek.free.expect("one entry does not fill a leaf");
            tx.write_bytes(free.object, free.at, bytemuck::bytes_of(&twin))?;
            let findings = table.check(tx)?.findings;
            assert!(findings[0].contains("have the same key"), "{findings:?}");
            Ok(())
        })
        .unwrap();
}
