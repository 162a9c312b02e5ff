//! The chunk words of the heap: reserved once, published after what they say is true.

use holdfast_heap::{ChunkEntry, ChunkKind, ZoneTable};
use holdfast_layout::{Region, RegionKind};
use holdfast_sync::Access;
use loom::sync::Arc;

use super::{LAW, Model, Own, Wrong, explore, threads};

/// The models of this core.
pub(super) const MODELS: &[Model] = &[
    Model {
        name: "chunks",
        run: reserved_once,
        wrong: &[
            Wrong::Weak("table.rs", Access::Store),
            Wrong::Weak("table.rs", Access::Change),
            Wrong::Off("taken as found"),
        ],
    },
    Model {
        name: "publish",
        run: published_last,
        wrong: &[
            Wrong::Weak("table.rs", Access::Store),
            Wrong::Weak("table.rs", Access::Load),
            Wrong::Off("published first"),
        ],
    },
];

const PAGE: u64 = 4096;

/// A zone of two chunks.
fn region(start: u64) -> Region {
    let (row_len, kind) = (3 * PAGE, RegionKind::Zone);
    Region { start, len: row_len, kind, data_rows: 1, parity_rows: 0, row_len, chunk: PAGE }
}

struct World {
    table: ZoneTable,
    /// The bytes of each chunk.
    chunks: [Own; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let table = ZoneTable::new(0, &region(PAGE));
        assert_eq!(table.chunks(), 2, "the zone has two chunks");
        Arc::new(Self { table, chunks: [Own::default(), Own::default()] })
    }

    /// What the owner of a chunk does: the checker finds two who do it at once.
    fn store(&self, chunk: u32) {
        self.chunks[chunk as usize].touch();
    }

    fn free(&self, chunk: u32) -> bool {
        self.table.entry(chunk).is_some_and(|entry| entry.kind == ChunkKind::Free)
    }
}

/// A transaction takes a chunk and gives it back; another one takes both.
fn reserved_once(off: &'static str) {
    explore(3, move || {
        let world = World::new();
        let (one, both) = (Arc::clone(&world), Arc::clone(&world));
        let small = move || {
            let found = (0..2).find(|chunk| one.free(*chunk));
            let got = if off == "taken as found" { found } else { one.table.claim(1) };
            if let Some(chunk) = got {
                one.store(chunk);
                one.table.unreserve(chunk, ChunkKind::Free);
            }
        };
        let large = move || {
            if let Some(first) = both.table.claim(2) {
                (first..first + 2).for_each(|chunk| both.store(chunk));
                (first..first + 2).for_each(|chunk| both.table.unreserve(chunk, ChunkKind::Free));
            }
        };
        threads([Box::new(small), Box::new(large)]);
        assert!((0..2).all(|chunk| world.free(chunk)), "{LAW}: all was given back");
    });
}

/// Who sees that a chunk is a run sees what made it one.
fn published_last(off: &'static str) {
    explore(3, move || {
        let world = World::new();
        let (maker, user) = (Arc::clone(&world), world);
        let make = move || {
            let Some(chunk) = maker.table.claim(1) else { return };
            let before = maker.table.reserved(chunk, ChunkKind::Free).unwrap_or(ChunkEntry::VIRGIN);
            let run = before.next(ChunkKind::Run, 0, 0);
            if off == "published first" {
                maker.table.set(chunk, &run);
                maker.store(chunk);
            } else {
                maker.store(chunk);
                maker.table.set(chunk, &run);
            }
        };
        let meet = move || {
            if user.table.entry(0).is_some_and(|entry| entry.kind == ChunkKind::Run) {
                let bytes = user.chunks[0].look();
                assert_eq!(bytes, 1, "{LAW}: a run is known once it is formatted");
            }
        };
        threads([Box::new(make), Box::new(meet)]);
    });
}
