//! File: sectors, appends, syncs, and syncs that fail.

use crate::common::*;
use holdfast_faultmem::{FailMode, Mode};
use holdfast_pmem::{Medium, MediumKind, Site};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

#[test]
fn a_sector_may_hold_any_state_since_the_last_barrier() {
    let m = file();
    put(&m, 0, 1);
    put(&m, 504, 2);
    put(&m, 0, 3);
    put(&m, 512, 4);
    let first = [[0, 0], [1, 0], [1, 2], [3, 2]];
    let all = first.iter().flat_map(|&[a, b]| [[a, b, 0], [a, b, 4]]).collect();
    assert_eq!(outcomes(&m, [0, 504, 512]), all);
}

#[test]
fn a_drain_orders_nothing() {
    let m = file();
    put(&m, 0, 1);
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0], [1]]));
}

#[test]
fn a_sync_persists_everything_of_every_thread() {
    let m = file();
    put(&m, 0, 1);
    elsewhere(|| put(&m, 4096, 2));
    m.sync(D).unwrap();
    assert_eq!(outcomes(&m, [0, 4096]), BTreeSet::from([[1, 2]]));
}

#[test]
fn an_append_persists_its_range_and_nothing_else() {
    let m = file();
    put(&m, 0, 1);
    put(&m, 1024, 2);
    put(&m, 1600, 3);
    m.append(S, 512, &[0xee; 1024]).unwrap();
    let e = 0xeeee_eeee_eeee_eeee;
    let expected = [[0, e, e, 0], [1, e, e, 0], [0, e, e, 3], [1, e, e, 3]];
    assert_eq!(outcomes(&m, [0, 512, 1024, 1600]), BTreeSet::from(expected));
}

#[test]
fn an_append_is_torn_between_sectors_until_it_returns() {
    let m = file();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let sink = Arc::clone(&seen);
    m.on_barrier(Box::new(move |_, _, point| {
        for image in point.images(&holdfast_faultmem::Budget::default()) {
            let sectors = [0, 1].map(|sector| {
                let bytes = &image.bytes()[512 * sector..512 * (sector + 1)];
                assert!(bytes.iter().all(|&b| b == bytes[0]), "a sector is never torn");
                bytes[0]
            });
            sink.lock().unwrap().insert(sectors);
        }
    }));
    m.append(S, 0, &[7; 1024]).unwrap();
    assert_eq!(*seen.lock().unwrap(), BTreeSet::from([[0, 0], [0, 7], [7, 0], [7, 7]]));
}

#[test]
fn a_failed_sync_leaves_its_stores_in_doubt_for_good() {
    let m = file();
    put(&m, 0, 1);
    m.fail_nth(m.calls() + 1, FailMode::Once);
    let error = m.sync(D).unwrap_err();
    assert_eq!(error.call, "fdatasync");
    m.sync(D).unwrap();
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0], [1]]), "the second sync proves nothing");
    assert_eq!(get(&m, 0), 1, "the page cache shows it all the same");
    put(&m, 0, 1);
    m.sync(D).unwrap();
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[1]]), "a new store makes the sector dirty");
}

#[test]
fn a_failed_append_may_be_there_in_part() {
    let m = file();
    m.fail_nth(1, FailMode::Once);
    let error = m.append(S, 0, &[7; 2048]).unwrap_err();
    assert_eq!(error.call, "pwritev2");
    m.sync(D).unwrap();
    assert_eq!(persisted(&m, 0), 0, "a later sync does not repair it");
    assert_eq!(outcomes(&m, [0, 512]).len(), 4);
    assert_eq!(outcomes(&m, [1024]), BTreeSet::from([[0]]), "the second half was never written");
}

#[test]
fn switched_off_appends_and_syncs_persist_nothing() {
    let m = file();
    let (append, sync) = (Site::new("test.append"), Site::new("test.sync"));
    m.elide(append);
    m.elide(sync);
    m.append(append, 0, &[7; 8]).unwrap();
    m.sync(sync).unwrap();
    assert_eq!(outcomes(&m, [0]).len(), 2);
    m.restore_sites();
    m.sync(sync).unwrap();
    assert_eq!(outcomes(&m, [0]).len(), 1);
}

#[test]
fn words_mode_tears_a_file_more_finely() {
    let m = in_mode(MediumKind::File, Mode::Words);
    put(&m, 0, 1);
    put(&m, 8, 2);
    assert_eq!(outcomes(&m, [0, 8]).len(), 4);
    m.sync(D).unwrap();
    assert_eq!(outcomes(&m, [0, 8]).len(), 1);
}

#[test]
fn appends_and_syncs_of_memory_are_drains() {
    let m = dax();
    m.append(S, 0, &1_u64.to_le_bytes()).unwrap();
    assert_eq!(persisted(&m, 0), 1);
    put(&m, 0, 2);
    m.sync(D).unwrap();
    assert_eq!(persisted(&m, 0), 2);
    m.elide(S);
    m.append(S, 0, &3_u64.to_le_bytes()).unwrap();
    assert_eq!(persisted(&m, 0), 2);
}
