//! A crash at any barrier of a file's life: nothing is called corrupt that was not damaged, nothing
//! that was stored is taken back, damage is not made to look right, and what is covered comes back.
//! Bits that live or die, page cache that lives or dies, with and without a page that rots.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::explore::{Scene, play};
use crate::common::{Machine, boot, content, on_direct_access, tiny};
use holdfast_faultmem::Budget;
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, ProtectOptions, Writing};
use holdfast_pmem::{MediumKind, PAGE};
use holdfast_redundancy::PageVerdict;
use holdfast_redundancy::events::{Event, Finder};

/// Every combination that means something, and whether files have direct access.
fn scenes() -> Vec<(Scene, bool)> {
    let mut scenes = Vec::new();
    for (kind, durability, power, direct) in [
        (MediumKind::Shm, Durability::Process, false, false),
        (MediumKind::File, Durability::Process, false, false),
        (MediumKind::File, Durability::Process, true, false),
        (MediumKind::File, Durability::Power, true, false),
        (MediumKind::File, Durability::Power, true, true),
        (MediumKind::Dax, Durability::Power, true, false),
    ] {
        for (bits, recorded) in [(true, false), (false, false), (false, true)] {
            // Where nothing is believed after a power cut, records are not either.
            if recorded && power && (kind, durability) != (MediumKind::File, Durability::Power) {
                continue;
            }
            for rot in [false, true] {
                let parity = if rot { 2 } else { 1 };
                let scene = Scene { kind, durability, bits, power, rot, parity, recorded };
                scenes.push((scene, direct));
            }
        }
    }
    scenes
}

#[test]
fn no_crash_makes_the_engine_lie() {
    let images = AtomicU64::new(0);
    let scenes = Mutex::new(scenes());
    // What takes longest of all tests, on two processors.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((scene, direct)) = scenes.lock().unwrap().pop() else { return };
                    let wrong = on_direct_access(direct, || play(scene, None, 12));
                    assert!(wrong.is_none(), "{scene:?}, direct {direct}: {wrong:?}");
                    images.fetch_add(wrong.images, Ordering::Relaxed);
                }
            });
        }
    });
    let images = images.into_inner();
    assert!(images > 2000, "{images} images only");
}

/// A crash at any barrier of a repair, of a file at rest and of one with writers: the page is good
/// only if it is right, before and after the next pass, what was to be is offered, and an
/// interrupted repair is told.
#[test]
fn a_crash_in_a_repair_leaves_nothing_worse() {
    for (writers, bits) in [(false, false), (true, false), (true, true)] {
        let size = 19 * PAGE;
        let machine = Machine::new(MediumKind::File, size);
        let options = ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) };
        let engine = machine.protect(&options);
        if writers {
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        }
        machine.rot(5, 100);
        let seen = Arc::new(Mutex::new((0_u64, 0_u64)));
        let (twin, count) = (machine.clone(), Arc::clone(&seen));
        machine.medium.on_barrier(Box::new(move |_, _, point| {
            let budget = Budget { exhaustive: 64, singles: 12, pairs: 4, samples: 12, seed: 3 };
            for image in point.images(&budget) {
                let marks = bits.then(|| twin.data.marks());
                let next = Machine::after(image, MediumKind::File, size, marks);
                let (engine, opened) = next.open(boot(2, Durability::Power));
                let right = next.page(5) == content(5, 0);
                assert!(opened.interrupted.is_none_or(|page| page == 5));
                let of_repair = |e: &Event| e.at == 5 * PAGE && e.finder == Finder::Repair;
                let told = engine.events().iter().any(of_repair);
                assert!(told || !right, "it came back, and nobody tells");
                for _ in 0..2 {
                    let verdict = engine.verify(5).unwrap().verdict;
                    assert_eq!(verdict == PageVerdict::Good, right, "{verdict:?}");
                    if !right {
                        assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 0));
                    }
                    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
                    engine.pass().unwrap();
                }
                for page in (0..19).filter(|page| *page != 5) {
                    assert_eq!(next.page(page), content(page, 0));
                    assert_eq!(engine.verify(page).unwrap().verdict, PageVerdict::Good);
                }
                drop(engine);
                let options = OpenOptions { read_only: true, ..boot(2, Durability::Power) };
                assert_eq!(next.open(options).1.interrupted, None, "told once");
                let mut count = count.lock().unwrap();
                *count = (count.0 + 1, count.1 + u64::from(opened.interrupted.is_some()));
            }
        }));
        assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
        machine.medium.clear_on_barrier();
        let (images, interrupted) = *seen.lock().unwrap();
        assert!(images > 10 && interrupted > 2, "{images} {interrupted}");
    }
}
