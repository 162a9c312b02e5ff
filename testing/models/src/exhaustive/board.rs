//! Announced writes (`base/pmem`): whoever sees what a write did is told of it, or was before.

use holdfast_pmem::modelled::SmallBoard;
use holdfast_sync::Access;
use holdfast_sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;

use super::{LAW, Model, Wrong, explore, threads};

/// The models of this core.
pub(super) const MODELS: &[Model] = &[Model {
    name: "board",
    run: told,
    wrong: &[
        Wrong::Weak("sheet.rs", Access::Change),
        Wrong::Weak("sheet.rs", Access::Store),
        Wrong::Off("slots before bits"),
        Wrong::Off("bits before the slot is free"),
        Wrong::Off("closed before it writes"),
        Wrong::Off("looked at before it is taken"),
    ],
}];

#[derive(Default)]
struct World {
    board: SmallBoard,
    /// What the pages hold: 1 once they were written.
    pages: [AtomicU64; 2],
}

/// A writer writes to both pages, one after the other, with the same slot. Whoever covers looks at
/// them, asks, takes, and looks again.
fn told(off: &'static str) {
    explore(3, move || {
        let world = Arc::new(World::default());
        let (writer, reader, after) = (Arc::clone(&world), Arc::clone(&world), world);
        let seen = std::sync::Arc::new(std::sync::Mutex::new([0; 2]));
        let last = std::sync::Arc::clone(&seen);
        let write = move || {
            for page in 0..2 {
                let open = writer.board.open(7, page);
                let write = || writer.pages[page as usize].store(1, Ordering::Release);
                match off {
                    "bits before the slot is free" => {
                        write();
                        writer.board.close_first(open);
                    }
                    "closed before it writes" => {
                        writer.board.close(open);
                        write();
                    }
                    _ => {
                        write();
                        writer.board.close(open);
                    }
                }
            }
        };
        let cover = move || {
            let look = || [0, 1].map(|page: usize| reader.pages[page].load(Ordering::Acquire));
            let ask = |take: bool| match off {
                "slots before bits" => reader.board.told_late(take),
                _ => reader.board.told(take),
            };
            let before = look();
            let told = ask(false);
            for (is, told) in before.into_iter().zip(told) {
                assert!(is == 0 || told, "{LAW}: whoever sees a write is told of it");
            }
            let early = (off == "looked at before it is taken").then(look);
            ask(true);
            *last.lock().expect("nobody panics with it") = early.unwrap_or_else(look);
        };
        threads([Box::new(write), Box::new(cover)]);
        assert!(!after.board.is_busy() && !after.board.reap(7), "{LAW}: no write is under way");
        let (seen, told) = (*seen.lock().expect("nobody panics with it"), after.board.told(false));
        for (is, told) in seen.into_iter().zip(told) {
            assert!(is == 1 || told, "{LAW}: what was not seen when it was taken is told later");
        }
    });
}
