//! The date of the data file in the side file, by which an opening knows that nobody changed it: it
//! is on the disk before it is noted. A sync of data leaves it to the system's leisure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Machine, boot, content, tiny, verdict};
use holdfast_mapped::{AtRest, Durability, Force, Mended, ProtectOptions, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::PageVerdict;

const SIZE: u64 = 19 * PAGE;
const FOREIGN: Site = Site::new("test.foreign");

fn machine(off: &str) -> Machine {
    let machine = Machine::new(MediumKind::File, SIZE);
    machine.medium.elide_name(off);
    machine
}

fn lasting() -> ProtectOptions {
    ProtectOptions { open: boot(1, Durability::Power), ..tiny(1) }
}

/// The machine after a power cut: bytes and date that the disk has.
fn after_power_cut(machine: &Machine) -> Machine {
    let image = machine.medium.crash_point().persisted();
    let next = Machine::after(image, MediumKind::File, SIZE, None);
    let kept = machine.world.kept.load(Ordering::SeqCst);
    next.world.mtime.store(kept, Ordering::SeqCst);
    next.world.kept.store(kept, Ordering::SeqCst);
    next
}

/// Whether the side file on the disk has a date that the file there has not got yet.
fn is_early(machine: &Machine) -> bool {
    let next = after_power_cut(machine);
    let noted = holdfast_mapped::left(&next.side).map(|left| left.identity.mtime_ns);
    noted.is_ok_and(|noted| noted > next.world.kept.load(Ordering::SeqCst))
}

/// The same at each barrier of something that is done, and at its end.
fn is_ever_early(machine: &Machine, act: impl FnOnce()) -> bool {
    let early = Arc::new(AtomicBool::new(false));
    let (seen, twin) = (Arc::clone(&early), machine.clone());
    machine.medium.on_barrier(Box::new(move |_, _, _| {
        seen.fetch_or(is_early(&twin), Ordering::SeqCst);
    }));
    act();
    machine.medium.clear_on_barrier();
    early.load(Ordering::SeqCst) || is_early(machine)
}

/// Somebody changes the file, which gives it another date.
fn change(machine: &Machine, page: u64) {
    machine.data.window().put(FOREIGN, page * PAGE, &content(page, 7)).unwrap();
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn a_file_is_protected_with_its_date(off: &str) -> bool {
    let machine = machine(off);
    change(&machine, 3);
    is_ever_early(&machine, || drop(machine.protect(&lasting())))
}

pub(crate) fn a_file_is_closed_with_its_date(off: &str) -> bool {
    let machine = machine(off);
    let engine = machine.protect(&lasting());
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(3, 1);
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    is_ever_early(&machine, || engine.close().unwrap())
}

pub(crate) fn a_file_is_opened_with_its_date(off: &str) -> bool {
    let changed = machine(off);
    changed.protect(&lasting()).close().unwrap();
    change(&changed, 3);
    let early = is_ever_early(&changed, || drop(changed.open(boot(1, Durability::Power))));
    // What was promised for less is promised for more.
    let raised = machine(off);
    let quick = ProtectOptions { open: boot(1, Durability::Process), ..tiny(1) };
    change(&raised, 3);
    raised.protect(&quick).close().unwrap();
    raised.open(boot(1, Durability::Power));
    early | is_early(&raised)
}

/// Damage beside a page that was repaired is no doubt after a power cut.
pub(crate) fn a_repair_leaves_its_date(off: &str) -> bool {
    let machine = machine(off);
    machine.protect(&lasting()).close().unwrap();
    machine.rot(1, 9);
    machine.rot(9, 9);
    let (engine, _) = machine.open(boot(1, Durability::Power));
    let (twin, early) = (machine.clone(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&early);
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.repair.store-sync" {
            twin.world.mtime.fetch_add(1, Ordering::SeqCst);
        }
        seen.fetch_or(is_early(&twin), Ordering::SeqCst);
    }));
    assert_eq!(engine.repair(1, &AtRest, Force::No).unwrap(), Mended::Repaired);
    machine.medium.clear_on_barrier();
    let next = after_power_cut(&machine);
    let (engine, opened) = next.open(boot(2, Durability::Power));
    let certain = !opened.changed && verdict(&engine, 9) == PageVerdict::Corrupt;
    let _ = engine.scrub(Some(&AtRest)).unwrap();
    early.load(Ordering::SeqCst) || !certain || next.page(9) != content(9, 0)
}

/// Where the date cannot be made durable, the one before stays.
#[test]
fn a_date_that_cannot_be_kept_is_not_noted() {
    let machine = machine("nothing");
    let engine = machine.protect(&lasting());
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(3, 1);
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    let before = holdfast_mapped::left(&machine.side).unwrap();
    let twin = machine.clone();
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        // After it was asked what it is.
        if site.name() == "mapped.admit.clean-drain" {
            twin.world.silent.store(true, Ordering::SeqCst);
        }
    }));
    engine.close().unwrap_err();
    machine.medium.clear_on_barrier();
    assert_eq!(holdfast_mapped::left(&machine.side).unwrap(), before);
}
