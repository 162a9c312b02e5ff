//! Column locks: one holder, who sees the column as the holder before left it.

use holdfast_layout::{Region, RegionKind};
use holdfast_redundancy::{ColumnId, Columns, Zone};
use holdfast_sync::Access;
use loom::sync::Arc;

use super::{LAW, Model, Own, Wrong, explore, threads};
use crate::nothing::Nothing;

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "columns",
        run: one_holder,
        wrong: &[
            Wrong::Weak("columns.rs", Access::Change),
            Wrong::Weak("columns.rs", Access::Store),
            Wrong::Off("released early"),
        ],
    },
    Model {
        name: "columns-try",
        run: all_or_none,
        wrong: &[Wrong::Weak("columns.rs", Access::Store), Wrong::Off("not asked")],
    },
    Model {
        name: "columns-grow",
        run: a_new_zone,
        wrong: &[Wrong::Weak("once.rs", Access::Load), Wrong::Weak("once.rs", Access::Store)],
    },
];

const PAGE: u64 = 4096;

struct World {
    m: Nothing,
    columns: Columns,
    /// The pages of two columns.
    pages: [Own; 2],
}

fn zone(index: u32) -> Zone {
    let kind = RegionKind::Zone;
    let (row_len, start) = (2 * PAGE, 64 * PAGE * u64::from(index + 1));
    let region = Region {
        start,
        len: 3 * row_len,
        kind,
        data_rows: 2,
        parity_rows: 1,
        row_len,
        chunk: PAGE,
    };
    Zone::new(&region, index).expect("the region is a zone")
}

fn ids() -> [ColumnId; 2] {
    [ColumnId::new(0, 0), ColumnId::new(0, PAGE)]
}

fn world(off: &'static str) -> Arc<World> {
    let columns = Columns::new();
    columns.add_zone(&zone(0));
    let pages = [Own::default(), Own::default()];
    Arc::new(World { m: Nothing { off }, columns, pages })
}

impl World {
    /// What a holder of the column does: the checker finds two who do it at once.
    fn store(&self, column: usize) {
        self.pages[column].touch();
    }

    fn off(&self, what: &str) -> bool {
        self.m.off == what
    }
}

/// A commit holds both columns, a repair the second one.
fn one_holder(off: &'static str) {
    explore(3, move || {
        let world = world(off);
        let (both, one) = (Arc::clone(&world), Arc::clone(&world));
        let commit = move || {
            both.columns.lock_all(&both.m, &ids());
            both.store(0);
            if both.off("released early") {
                both.columns.unlock_all(&ids());
                both.store(1);
            } else {
                both.store(1);
                both.columns.unlock_all(&ids());
            }
        };
        let repair = move || {
            let held = one.columns.lock_one(&one.m, ids()[1]);
            one.store(1);
            drop(held);
        };
        threads([Box::new(commit), Box::new(repair)]);
        let free = world.columns.try_lock_all(&world.m, &ids());
        assert!(free, "{LAW}: what nobody holds is free");
    });
}

/// Who tries gets all columns or none, and gives back what it took of them.
fn all_or_none(off: &'static str) {
    explore(3, move || {
        let world = world(off);
        let (one, both) = (Arc::clone(&world), Arc::clone(&world));
        let repair = move || {
            let held = one.columns.lock_one(&one.m, ids()[1]);
            one.store(1);
            drop(held);
        };
        let attempt = move || {
            let got = both.columns.try_lock_all(&both.m, &ids());
            if got || both.off("not asked") {
                (0..2).for_each(|column| both.store(column));
            }
            if got {
                both.columns.unlock_all(&ids());
            }
        };
        threads([Box::new(repair), Box::new(attempt)]);
        let first = world.columns.try_lock(&world.m, ids()[0]);
        assert!(first.is_some(), "{LAW}: what was taken of them is given back");
    });
}

/// Locks of a zone that grew are there whole for whoever learns of the zone.
fn a_new_zone(off: &'static str) {
    explore(3, move || {
        let world = world(off);
        let (grower, user) = (Arc::clone(&world), world);
        let grow = move || {
            grower.store(0);
            grower.columns.add_zone(&zone(1));
        };
        let meet = move || {
            if user.columns.zones() == 2 {
                let page = user.pages[0].look();
                assert_eq!(page, 1, "{LAW}: a zone is known once it is formatted");
            }
        };
        threads([Box::new(grow), Box::new(meet)]);
    });
}
