//! Places are handed out once: whatever lanes reserve, commit, free, give back or forget, and
//! wherever a crash falls, no place is lent to two holders and none is lost.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::common::{Zone, pattern};
use holdfast_heap::{Cache, ReserveError, Spot};
use holdfast_pmem::Medium;
use proptest::prelude::*;

const LANES: usize = 3;

/// What a lane does next.
#[derive(Debug, Clone, Copy)]
enum Op {
    Reserve(usize, u64),
    /// Publishes a place that a lane reserved.
    Commit(usize),
    /// Gives back a place that was reserved and not published.
    Abort(usize, usize),
    /// Frees a published object; its place goes to the lane that frees.
    Free(usize, usize),
    Flush(usize),
    /// Frees the chunk of an empty run.
    Recycle,
    /// Everything not committed is gone.
    Crash,
}

fn an_op() -> impl Strategy<Value = Op> {
    let lane = 0..LANES;
    let len = prop_oneof![
        6 => 1..200_u64,
        3 => 200..1400_u64,
        1 => 5000..20_000_u64,
    ];
    let any = 0..usize::MAX;
    prop_oneof![
        12 => (lane.clone(), len).prop_map(|(l, n)| Op::Reserve(l, n)),
        7 => any.clone().prop_map(Op::Commit),
        3 => (lane.clone(), any.clone()).prop_map(|(l, i)| Op::Abort(l, i)),
        6 => (lane.clone(), any).prop_map(|(l, i)| Op::Free(l, i)),
        1 => lane.prop_map(Op::Flush),
        1 => Just(Op::Recycle),
        1 => Just(Op::Crash),
    ]
}

/// The heap, and who holds which place according to what it answered.
struct Model {
    zone: Zone,
    caches: [Cache; LANES],
    reserved: Vec<(Spot, u64)>,
    live: Vec<(Spot, Vec<u8>)>,
    drawn: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            zone: Zone::new(40, 8192),
            caches: Default::default(),
            reserved: Vec::new(),
            live: Vec::new(),
            drawn: 0,
        }
    }

    /// First byte to end of everything somebody holds: places with slot and sums, whole chunks.
    fn held(&self) -> BTreeMap<u64, u64> {
        let mut held = BTreeMap::new();
        let spots = self.reserved.iter().map(|(s, _)| s).chain(self.live.iter().map(|(s, _)| s));
        for spot in spots {
            for (from, len) in [(spot.slot, 16), (spot.object, spot.capacity)] {
                assert_eq!(held.insert(from, from + len), None, "{from:#x} is held twice");
            }
        }
        held
    }

    fn check(&self) {
        let held: Vec<(u64, u64)> = self.held().into_iter().collect();
        for pair in held.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{pair:x?} overlap");
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Reserve(lane, len) => {
                if let Some(spot) = self.zone.reserve(&mut self.caches[lane], len) {
                    assert!(spot.capacity >= len);
                    self.reserved.push((spot, len));
                }
            }
            Op::Commit(i) if !self.reserved.is_empty() => {
                let (spot, len) = self.reserved.swap_remove(i % self.reserved.len());
                self.drawn += 1;
                let bytes = pattern(self.drawn, len as usize);
                self.zone.commit(&spot, &bytes);
                self.live.push((spot, bytes));
            }
            Op::Abort(lane, i) if !self.reserved.is_empty() => {
                let (spot, _) = self.reserved.swap_remove(i % self.reserved.len());
                self.zone.heap.release(&mut self.caches[lane], &spot);
            }
            Op::Free(lane, i) if !self.live.is_empty() => {
                let (spot, _) = self.live.swap_remove(i % self.live.len());
                self.zone.free(&mut self.caches[lane], &spot);
            }
            Op::Flush(lane) => self.zone.heap.flush(&mut self.caches[lane]),
            Op::Recycle => {
                self.zone.recycle();
            }
            Op::Crash => self.crash(),
            Op::Commit(_) | Op::Abort(..) | Op::Free(..) => {}
        }
    }

    fn crash(&mut self) {
        let zone = core::mem::replace(&mut self.zone, Zone::new(1, 4096));
        self.zone = zone.reopened();
        self.caches = Default::default();
        self.reserved.clear();
    }

    /// Objects are where they were put, and everything else can be had again.
    fn settle(&mut self) {
        for (spot, bytes) in &self.live {
            assert_eq!(self.zone.heap.locate(spot.object).map(|s| s.slot), Some(spot.slot));
            let mut found = vec![0; bytes.len()];
            self.zone.m.read(spot.object, &mut found).unwrap();
            assert_eq!(&found, bytes);
        }
        for (spot, _) in core::mem::take(&mut self.reserved) {
            self.zone.heap.release(&mut self.caches[0], &spot);
        }
        for cache in &mut self.caches {
            self.zone.heap.flush(cache);
            assert!(cache.is_empty());
        }
        for (spot, _) in core::mem::take(&mut self.live) {
            self.zone.free(&mut self.caches[0], &spot);
        }
        self.zone.heap.flush(&mut self.caches[0]);
        while self.zone.recycle() {}
        let space = self.zone.heap.space(&self.zone.m);
        assert_eq!(space.free_chunks, space.total, "nothing is lost: {space:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_place_is_held_twice_and_none_is_lost(ops in prop::collection::vec(an_op(), 1..250)) {
        let mut model = Model::new();
        for op in ops {
            model.step(op);
            model.check();
        }
        model.settle();
    }
}

#[test]
fn a_full_run_gives_out_each_place_once_over_several_lanes() {
    let zone = Zone::new(8, 8192);
    let mut caches: [Cache; LANES] = Default::default();
    let mut seen = BTreeMap::new();
    let mut count = 0;
    while let Some(spot) = zone.reserve(&mut caches[count % LANES], 64) {
        assert_eq!(seen.insert(spot.object, spot), None);
        count += 1;
    }
    let all = zone.places();
    // What one lane keeps in its cache another cannot have: give it back and take the rest.
    for cache in &mut caches {
        zone.heap.flush(cache);
    }
    while let Some(spot) = zone.reserve(&mut caches[0], 64) {
        assert_eq!(seen.insert(spot.object, spot), None);
    }
    assert_eq!(seen.len(), all.len());
    for spot in all {
        assert_eq!(seen.get(&spot.object), Some(&spot));
    }
}

#[test]
fn a_place_comes_back_only_when_it_is_given_back() {
    let zone = Zone::new(8, 8192);
    let mut cache = Cache::default();
    let first = zone.reserve(&mut cache, 100).unwrap();
    let second = zone.reserve(&mut cache, 100).unwrap();
    assert!(!zone.table().is_place_free(first.chunk, first.place));
    zone.heap.release(&mut cache, &first);
    assert_eq!(zone.reserve(&mut cache, 100), Some(first), "newest first: its lines are warm");
    zone.heap.release(&mut cache, &first);
    zone.heap.release(&mut cache, &second);
    zone.heap.flush(&mut cache);
    for spot in [first, second] {
        assert!(zone.table().is_place_free(spot.chunk, spot.place));
    }
}

#[test]
fn a_lane_that_frees_much_gives_places_to_the_others() {
    let zone = Zone::new(20, 8192);
    let (mut mine, mut others) = (Cache::default(), Cache::default());
    let mut taken = Vec::new();
    while let Some(spot) = zone.reserve(&mut mine, 64) {
        taken.push(spot);
    }
    assert_eq!(
        zone.heap.reserve(&zone.m, &mut others, 64),
        Err(ReserveError::NeedRun { class: 0 })
    );
    assert!(taken.len() > 200);
    for spot in &taken {
        zone.heap.release(&mut mine, spot);
    }
    assert!(mine.len() < 100, "a cache is bounded: {}", mine.len());
    let mut got = 0;
    while zone.heap.reserve(&zone.m, &mut others, 64).is_ok() {
        got += 1;
    }
    assert_eq!(got + mine.len(), taken.len());
}

#[test]
fn objects_no_zone_can_hold_are_refused_with_the_limit() {
    let zone = Zone::new(20, 8192);
    let mut cache = Cache::default();
    let limit = zone.table().object_max();
    assert_eq!(
        zone.heap.reserve(&zone.m, &mut cache, limit + 1),
        Err(ReserveError::TooLarge { limit })
    );
    let spot = zone.heap.reserve(&zone.m, &mut cache, limit).unwrap();
    assert_eq!((spot.capacity, spot.chunks), (limit, zone.table().chunks()));
    assert_eq!(zone.heap.reserve(&zone.m, &mut cache, limit), Err(ReserveError::NoSpace));
    assert_eq!(
        zone.heap.reserve(&zone.m, &mut cache, u64::MAX),
        Err(ReserveError::TooLarge { limit })
    );
    zone.heap.release(&mut cache, &spot);
    assert_eq!(zone.heap.reserve(&zone.m, &mut cache, limit).unwrap(), spot);
}

#[test]
fn damaged_slots_are_never_handed_out() {
    for (damage, what) in [(0, "sum"), (4, "generation"), (6, "state"), (8, "type"), (12, "length")]
    {
        let zone = Zone::new(8, 8192);
        let mut cache = Cache::default();
        let victim = zone.reserve(&mut cache, 64).unwrap();
        zone.heap.release(&mut cache, &victim);
        zone.heap.flush(&mut cache);
        zone.m.flip_bit(victim.slot + damage, 1).unwrap();
        let zone = zone.reopened();
        let mut cache = Cache::default();
        let mut count = 0;
        while let Ok(spot) = zone.heap.reserve(&zone.m, &mut cache, 64) {
            assert_ne!(spot.object, victim.object, "{what}");
            count += 1;
        }
        assert_eq!(count + 1, zone.places().len(), "{what}: the others are");
    }
}

#[test]
fn a_slot_that_cannot_be_read_is_an_error_and_no_place_is_lost() {
    let zone = Zone::new(8, 8192);
    assert!(zone.format_run(0));
    let zone = zone.reopened();
    let slots = zone.table().chunk_at(0);
    zone.m.poison(slots / 4096 * 4096, 4096, holdfast_faultmem::Clear::Able).unwrap();
    let mut cache = Cache::default();
    let refused = zone.heap.reserve(&zone.m, &mut cache, 64);
    assert!(matches!(refused, Err(ReserveError::Damaged(_))), "{refused:?}");
    assert!(cache.is_empty());
}

#[test]
fn threads_never_hold_the_same_place() {
    let zone = Zone::new(400, 8192);
    let held = Mutex::new(BTreeMap::new());
    let formatting = Mutex::new(());
    std::thread::scope(|scope| {
        for lane in 0..4_u64 {
            let (zone, held, formatting) = (&zone, &held, &formatting);
            scope.spawn(move || {
                let mut cache = Cache::default();
                let mut mine: Vec<Spot> = Vec::new();
                for round in 0..2000_u64 {
                    let len = 64 * (1 + (round * 7 + lane) % 5);
                    let reserved = zone.heap.reserve(&zone.m, &mut cache, len);
                    match reserved {
                        Ok(spot) => {
                            let before = held.lock().unwrap().insert(spot.object, lane);
                            assert_eq!(before, None, "{:#x} is held twice", spot.object);
                            mine.push(spot);
                        }
                        Err(ReserveError::NeedRun { class }) => {
                            let _one = formatting.lock().unwrap();
                            zone.format_run(class);
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                    if round % 3 != 0 && !mine.is_empty() {
                        let spot = mine.swap_remove((round as usize * 31) % mine.len());
                        held.lock().unwrap().remove(&spot.object);
                        zone.heap.release(&mut cache, &spot);
                    }
                }
                zone.heap.flush(&mut cache);
            });
        }
    });
    let held = held.into_inner().unwrap();
    let mut free = 0;
    let places = zone.places();
    for spot in &places {
        let is_free = zone.table().is_place_free(spot.chunk, spot.place);
        assert_ne!(is_free, held.contains_key(&spot.object));
        free += usize::from(is_free);
    }
    assert_eq!(free + held.len(), places.len());
}
