//! Handing out the lanes of the log.

use holdfast_layout::{LogPlacement, SumKind, Superblock};
use holdfast_logs::Log;
use holdfast_sync::Access;
use loom::sync::Arc;

use super::{LAW, Model, Own, Wrong, explore, threads};
use crate::nothing::Nothing;

/// The models of this core.
pub(super) const MODELS: &[Model] = &[Model {
    name: "lanes",
    run: one_holder,
    wrong: &[
        Wrong::Weak("spin_lock.rs", Access::Change),
        Wrong::Weak("spin_lock.rs", Access::Store),
        Wrong::Off("two holders"),
        Wrong::Off("released before it is moved"),
        Wrong::Off("never given back"),
    ],
}];

struct World {
    m: Nothing,
    log: Log,
    /// What the holder of each lane alone touches.
    own: [Own; 2],
}

/// A pool of two lanes, as small as it gets.
fn superblock() -> Superblock {
    const PAGE: u64 = 4096;
    let lanes = 2;
    Superblock {
        sequence: 1,
        uuid: [0; 16],
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        log_generation: 1,
        clean: false,
        size: 64 * PAGE,
        frame: PAGE,
        chunk: PAGE,
        side_len: 16 * PAGE,
        events_len: PAGE,
        log_start: 8 * PAGE,
        ring_len: 4 * PAGE,
        lanes,
        log_placement: LogPlacement::Apart,
        sum_kind: SumKind::Crc32c,
        parity: 0,
        copies: 2,
        allow_inject: false,
        anchor: 0,
        rows: 2,
        label: String::new(),
    }
}

/// A thread wants one of two lanes, another wants both, to move the log. Each lane has one holder,
/// who sees what the one before did.
fn one_holder(off: &'static str) {
    explore(3, move || {
        let m = Nothing { off };
        let log = Log::open(&m, &superblock()).expect("the geometry is good");
        let world = Arc::new(World { m, log, own: [Own::default(), Own::default()] });
        let (one, both) = (Arc::clone(&world), Arc::clone(&world));
        let take = move || {
            let held = one.log.acquire(&one.m, 1);
            let lane = held.as_ref().map(holdfast_logs::Lane::id);
            match one.m.off {
                "two holders" => {
                    drop(held);
                    touch(&one, lane);
                }
                "never given back" => core::mem::forget(held),
                _ => {
                    touch(&one, lane);
                    drop(held);
                }
            }
        };
        let hold = move || {
            let still = both.log.hold_still(&both.m, 0, both.m_len());
            let all = still.is_some();
            let kept = still.filter(|_| both.m.off != "released before it is moved");
            if all {
                (0..2).for_each(|lane| touch(&both, Some(lane)));
            }
            drop(kept);
        };
        threads([Box::new(take), Box::new(hold)]);
        let free = (0..2).all(|lane| world.log.acquire_exact(&world.m, lane).is_some());
        assert!(free, "{LAW}: a lane that nobody holds is free");
    });
}

impl World {
    fn m_len(&self) -> u64 {
        holdfast_pmem::Medium::len(&self.m)
    }
}

/// What a holder does: the checker finds two who do it at once.
fn touch(world: &World, lane: Option<usize>) {
    if let Some(lane) = lane {
        world.own[lane].touch();
    }
}
