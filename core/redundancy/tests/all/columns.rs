//! Column locks: exclusive, one per page column, and growing without a stop.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Numbers, PAGE, dax};
use holdfast_layout::{Region, RegionKind};
use holdfast_pmem::{Medium, Site};
use holdfast_redundancy::{ColumnId, Columns, Zone};

fn zone(index: u32, pages: u64) -> Zone {
    let row_len = pages * PAGE;
    let region = Region {
        start: 0,
        len: 3 * row_len,
        kind: RegionKind::Zone,
        data_rows: 2,
        parity_rows: 1,
        row_len,
        chunk: PAGE,
    };
    Zone::new(&region, index).unwrap()
}

#[test]
fn every_column_has_a_lock_of_its_own() {
    let (m, columns) = (dax(), Columns::new());
    for (index, pages) in [1, 15, 16, 17, 100, 1000].into_iter().enumerate() {
        let zone = zone(index as u32, pages);
        columns.add_zone(&zone);
        let all: Vec<_> = (0..pages)
            .map(|page| columns.try_lock(&m, columns.id(&zone, page * PAGE + 17)).unwrap())
            .collect();
        assert!(
            (0..pages).all(|page| columns.try_lock(&m, columns.id(&zone, page * PAGE)).is_none())
        );
        drop(all);
        assert!(
            (0..pages).all(|page| columns.try_lock(&m, columns.id(&zone, page * PAGE)).is_some())
        );
    }
    assert_eq!(columns.zones(), 6);
}

#[test]
fn ids_follow_zone_and_page() {
    let id = ColumnId::new(7, 3 * PAGE + 4095);
    assert_eq!((id.zone(), id.page()), (7, 3));
    assert!(ColumnId::new(1, 0) < ColumnId::new(1, PAGE));
    assert!(ColumnId::new(1, u64::from(u32::MAX) * PAGE) < ColumnId::new(2, 0));
}

#[test]
fn a_range_names_every_column_it_touches() {
    let (columns, zone) = (Columns::new(), zone(0, 3));
    let mut ids = Vec::new();
    columns.ids_of(&zone, 2 * PAGE - 1, 2 * PAGE + 2, &mut ids);
    let pages: Vec<u32> = ids.iter().map(|id| id.page()).collect();
    assert_eq!(pages, [1, 2, 0, 1], "the last byte lies in the second page of the next row");
    ids.clear();
    columns.ids_of(&zone, 5, 0, &mut ids);
    assert!(ids.is_empty());
}

#[test]
fn holders_exclude_each_other() {
    let (m, columns, zone) = (dax(), Columns::new(), zone(0, 8));
    columns.add_zone(&zone);
    let cells: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (m, columns, cells) = (&m, &columns, &cells);
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                for _ in 0..2000 {
                    let ids: BTreeSet<ColumnId> =
                        (0..3).map(|_| columns.id(&zone, numbers.below(8) * PAGE)).collect();
                    let ids: Vec<ColumnId> = ids.into_iter().collect();
                    columns.lock_all(m, &ids);
                    for id in &ids {
                        // Not atomic as a whole: two holders would lose counts.
                        let cell = &cells[id.page() as usize];
                        let value = cell.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        cell.store(value + 1, Ordering::Relaxed);
                    }
                    columns.unlock_all(&ids);
                }
            });
        }
    });
    let mut expected = 0;
    for seed in 0..3 {
        let mut numbers = Numbers(seed);
        for _ in 0..2000 {
            expected += (0..3).map(|_| numbers.below(8)).collect::<BTreeSet<_>>().len() as u64;
        }
    }
    assert_eq!(cells.iter().map(|c| c.load(Ordering::Relaxed)).sum::<u64>(), expected);
}

#[test]
fn trying_many_takes_all_or_none() {
    let (m, columns, zone) = (dax(), Columns::new(), zone(0, 4));
    columns.add_zone(&zone);
    let ids: Vec<ColumnId> = (0..4).map(|page| columns.id(&zone, page * PAGE)).collect();
    let held = columns.lock_one(&m, ids[2]);
    assert_eq!(held.id(), ids[2]);
    assert!(!columns.try_lock_all(&m, &ids));
    assert!(columns.try_lock(&m, ids[0]).is_some(), "nothing stays locked after a failed try");
    drop(held);
    assert!(columns.try_lock_all(&m, &ids));
    columns.unlock_all(&ids);
}

#[test]
fn one_column_held_lets_the_others_through() {
    let (m, columns, zone) = (dax(), Columns::new(), zone(0, 4));
    columns.add_zone(&zone);
    let held = columns.lock_one(&m, columns.id(&zone, 0));
    let passed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let others: Vec<ColumnId> = (1..4).map(|p| columns.id(&zone, p * PAGE)).collect();
            columns.lock_all(&m, &others);
            columns.unlock_all(&others);
            passed.store(true, Ordering::Release);
            drop(columns.lock_one(&m, columns.id(&zone, 0)));
        });
        while !passed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished(), "the held column was passed");
        drop(held);
    });
}

#[test]
fn zones_are_added_while_others_work() {
    let (m, columns, first) = (dax(), Columns::new(), zone(0, 4));
    columns.add_zone(&first);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for page in (0..4).cycle().take(5000) {
                drop(columns.lock_one(&m, columns.id(&first, page * PAGE)));
            }
        });
        for index in 1..40 {
            let next = zone(index, u64::from(index));
            columns.add_zone(&next);
            columns.add_zone(&next);
            drop(columns.lock_one(&m, columns.id(&next, 0)));
        }
    });
    assert_eq!(columns.zones(), 40);
}

#[test]
fn a_lock_taken_after_a_flush_is_seen_as_a_drain() {
    let (m, columns, zone) = (dax(), Columns::new(), zone(0, 4));
    columns.add_zone(&zone);
    drop(columns.lock_one(&m, columns.id(&zone, 0)));
    assert_eq!(m.thread_counters().hidden_drains, 0);
    m.put(Site::new("test.put"), 0, &[1]).unwrap();
    drop(columns.lock_one(&m, columns.id(&zone, 0)));
    assert_eq!(m.thread_counters().hidden_drains, 1);
}
