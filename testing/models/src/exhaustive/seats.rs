//! Seats of sources of first stores (`base/pmem`): no handler looks at what was freed, and whoever
//! faults on a page that a source protects finds the source, or that it left.
//!
//! A source that finds the seat taken is freed at once; one that gets it protects its pages, stops,
//! notes that it leaves, gives the seat back, and is freed.

use core::ptr;

use holdfast_pmem::modelled::free_seat;
use holdfast_pmem::modelled::seats::Seat;
use holdfast_sync::Access;
use holdfast_sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;

use super::{LAW, Model, Own, Wrong, explore, threads};

/// The models of this core.
pub(super) const MODELS: &[Model] = &[Model {
    name: "seats",
    run: seated,
    wrong: &[
        Wrong::Weak("first_store/seats.rs", Access::Load),
        Wrong::Weak("first_store/seats.rs", Access::Store),
        Wrong::Weak("first_store/seats.rs", Access::Change),
        Wrong::Weak("first_store/seats.rs", Access::Total),
        Wrong::Off("freed before it waits"),
        Wrong::Off("waits before it is hidden"),
        Wrong::Off("hidden while it protects"),
        Wrong::Off("noted when it is hidden"),
        Wrong::Off("protects before it sits"),
        Wrong::Off("taken in two steps"),
        Wrong::Off("found before counted"),
        Wrong::Off("left before it looks"),
        Wrong::Off("a flag for a count"),
    ],
}];

/// What a source does with its pages, once it does anything.
const PROTECTS: u32 = 1;
const STOPPED: u32 = 2;

/// A source.
#[derive(Default)]
struct Source {
    pages: AtomicU32,
    /// Whether its span is among those that were left.
    left: AtomicU32,
    /// Its memory: how often it was freed.
    freed: Own,
}

struct World {
    seat: Seat<Source>,
    sources: [Source; 2],
}

/// A source takes the seat if it is free, and protects its pages; else it is freed at once.
fn sit(world: &World, number: usize, off: &str) -> bool {
    let source = &world.sources[number];
    let protect = || source.pages.store(PROTECTS, Ordering::Release);
    if off == "protects before it sits" {
        protect();
    }
    let sits = take(&world.seat, source, off);
    if sits {
        protect();
    } else {
        source.pages.store(STOPPED, Ordering::Release);
        source.freed.touch();
    }
    sits
}

/// It stops, gives the seat back, and is freed.
fn go(world: &World, number: usize, off: &str) {
    let (seat, source) = (&world.seat, &world.sources[number]);
    let stop = || source.pages.store(STOPPED, Ordering::Release);
    let note = || source.left.store(1, Ordering::Release);
    let free = || source.freed.touch();
    match off {
        "hidden while it protects" => {
            seat.hide();
            stop();
            note();
            seat.wait();
            free();
        }
        "noted when it is hidden" => {
            stop();
            seat.hide();
            note();
            seat.wait();
            free();
        }
        "freed before it waits" => {
            stop();
            note();
            seat.hide();
            free();
            seat.wait();
        }
        "waits before it is hidden" => {
            stop();
            note();
            seat.wait();
            seat.hide();
            free();
        }
        _ => {
            stop();
            note();
            seat.give_back();
            free();
        }
    }
}

fn take(seat: &Seat<Source>, source: &Source, off: &str) -> bool {
    let source = ptr::from_ref(source).cast_mut();
    if off == "taken in two steps" {
        let is_free = seat.found().is_null();
        if is_free {
            seat.source.store(source, Ordering::SeqCst);
        }
        return is_free;
    }
    // SAFETY: what is modelled as freed stays where it is, and is used by shared references only.
    unsafe { seat.take(source) }
}

/// A thread stores to a page of a source; its handler looks for the source, and then whether it
/// left.
fn fault(world: &World, number: usize, off: &str) {
    let source = &world.sources[number];
    let protects = || source.pages.load(Ordering::Acquire) == PROTECTS;
    if !protects() || pass(world, number, off) {
        return;
    }
    // Only one that stopped meanwhile need not be found. The note is all by which it is known then.
    assert!(!protects(), "{LAW}: who faults on what a source protects finds the source");
    let left = source.left.load(Ordering::Acquire) == 1;
    assert!(left, "{LAW}: who does not find it any more finds that it left");
}

/// A handler passes the seat; whether it found that source.
fn pass(world: &World, number: usize, off: &str) -> bool {
    let is_it = |found: &Source| {
        assert_eq!(found.freed.look(), 0, "{LAW}: no handler looks at what was freed");
        ptr::eq(found, &world.sources[number])
    };
    look(&world.seat, is_it, off).unwrap_or(false)
}

fn look(seat: &Seat<Source>, is_it: impl Fn(&Source) -> bool, off: &str) -> Option<bool> {
    // SAFETY: as in `take`.
    let at = |found: *mut Source| unsafe { found.as_ref() };
    match off {
        "found before counted" => {
            let found = seat.found();
            seat.enter();
            let found = at(found).map(is_it);
            seat.leave();
            found
        }
        "left before it looks" => {
            seat.enter();
            let found = seat.found();
            seat.leave();
            at(found).map(is_it)
        }
        "a flag for a count" => {
            seat.inside.swap(1, Ordering::SeqCst);
            let found = at(seat.found()).map(is_it);
            seat.inside.swap(0, Ordering::SeqCst);
            found
        }
        _ => seat.look(is_it),
    }
}

/// A thread of a model.
type Body = fn(&World, &'static str);

/// Three threads meet at a seat.
fn meet(off: &'static str, bodies: [Body; 3]) {
    explore(3, move || {
        let world = Arc::new(World { seat: free_seat(), sources: Default::default() });
        threads(bodies.map(|body| -> Box<dyn FnOnce() + Send> {
            let world = Arc::clone(&world);
            Box::new(move || body(&world, off))
        }));
        for source in &world.sources {
            let sits = ptr::eq(world.seat.found(), source);
            let pages = source.pages.load(Ordering::Acquire);
            assert_eq!(sits, pages == PROTECTS, "{LAW}: who protects pages sits there");
            let freed = u32::from(pages == STOPPED);
            assert_eq!(source.freed.look(), freed, "{LAW}: who is gone was freed once");
        }
    });
}

/// A source comes and goes; another comes to the same seat, to stay, and a handler looks for that.
/// Then one comes and goes, a handler looks for it, and one for what is not there.
fn seated(off: &'static str) {
    let passes: Body = |world, off| {
        if sit(world, 0, off) {
            go(world, 0, off);
        }
    };
    let stays: Body = |world, off| {
        sit(world, 1, off);
    };
    // One of them at most waits: two would let each other go on, again and again.
    meet(off, [|world, off| fault(world, 1, off), passes, stays]);
    let looks: Body = |world, off| {
        pass(world, 1, off);
    };
    meet(off, [|world, off| fault(world, 0, off), looks, passes]);
}
