//! Stories of a side file with direct access, for `mutants.rs`: what a drain orders there. Others
//! come soon behind it, so that it is missed only where what is stored after it arrives first, or
//! where nothing comes.

use std::collections::BTreeSet;

use crate::common::{Chosen, Machine, any_image, boot, verdict};
use crate::stories::machine;
use holdfast_faultmem::{Clear, CrashPoint, Image, Pick, UnitStates};
use holdfast_mapped::{AtRest, Durability, ProtectOptions, Writing, left};
use holdfast_pmem::{Medium as _, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Wrong};

const POWER: Durability = Durability::Power;

/// Of what is on its way: what lies in one page first, or last, and every second word.
fn out_of_order(point: &CrashPoint) -> Chosen {
    let units = point.unit_states();
    let pages: BTreeSet<u64> = units.iter().map(|unit| unit.at / PAGE).collect();
    let arrived = |wanted: &dyn Fn(usize, &UnitStates) -> bool| {
        let picked = units.iter().enumerate().filter(|(i, unit)| wanted(*i, unit));
        let picks = picked.map(|(_, unit)| Pick { at: unit.at, state: unit.newest, of: 0 });
        point.image_of(&picks.collect::<Vec<_>>()).unwrap()
    };
    let mut images: Vec<Image> = Vec::new();
    for page in pages {
        images.push(arrived(&|_, unit| unit.at / PAGE == page));
        images.push(arrived(&|_, unit| unit.at / PAGE != page));
    }
    images.extend([0, 1].map(|odd| arrived(&|i, _| i % 2 == odd)));
    images.push(point.persisted());
    Box::new(images.into_iter())
}

/// The file is cut off within a page, and grows again after the crash: wherever its length has
/// arrived, it is known that its end is not as it was covered.
pub(crate) fn a_cut_is_noted_before_the_length(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, POWER, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.world.set_size(9 * PAGE + 50);
    let wrong = |next: &Machine| {
        if !left(&next.side).is_ok_and(|left| left.identity.size == 9 * PAGE + 50) {
            return false;
        }
        next.world.set_size(12 * PAGE);
        next.medium.stray(9 * PAGE + 50, &vec![0; 3 * PAGE as usize - 50]).unwrap();
        let (engine, _) = next.try_open(boot(1, POWER)).unwrap();
        !engine.verify_all().unwrap().corrupt.is_empty()
    };
    any_image(&machine, (off, "", true), out_of_order, wrong, || {
        engine.pass().unwrap();
    })
}

/// What a file that was cut off says no more is gone before its length reaches there again.
pub(crate) fn what_is_cut_off_is_wiped_before_the_length(off: &str) -> bool {
    let (whole, size) = (32 * PAGE, 8 * PAGE);
    let machine = Machine::new(MediumKind::File, whole);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, POWER), ..crate::common::tiny(1) };
    machine.protect(&options).close().unwrap();
    machine.world.set_size(size);
    machine.open(boot(1, POWER)).0.close().unwrap();
    machine.world.set_size(whole);
    machine.medium.stray(size, &vec![0; (whole - size) as usize]).unwrap();
    *machine.world.holes.lock().unwrap() = vec![(size, whole)];
    let wrong = move |next: &Machine| {
        next.world.holes.lock().unwrap().push((size, whole));
        let (engine, _) = next.try_open(boot(1, POWER)).unwrap();
        !engine.verify_all().unwrap().is_clean()
    };
    any_image(&machine, (off, "", false), out_of_order, wrong, || {
        machine.open(boot(1, POWER)).0.close().unwrap();
    })
}

/// Parity that was of bytes that are gone is made anew before anybody may believe it.
pub(crate) fn parity_is_there_before_it_counts(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, POWER, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    let right = machine.page(5);
    machine.store(6, 1);
    machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
    engine.pass().unwrap();
    machine.medium.heal(Site::new("test.healed"), 5 * PAGE, &right).unwrap();
    let wrong = |next: &Machine| {
        let (engine, _) = next.try_open(boot(1, POWER)).unwrap();
        engine.scrub(Some(&AtRest)).unwrap();
        engine.events().iter().any(|event| event.wrong == Some(Wrong::ParityP))
    };
    any_image(&machine, (off, "", true), out_of_order, wrong, || {
        engine.scrub(Some(&AtRest)).unwrap();
        engine.close().unwrap();
    })
}

/// A close keeps when a scrub verified: of the two copies of a record one is whole at any time.
pub(crate) fn one_copy_of_a_record_is_whole(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, POWER, 1);
    let wrong = |next: &Machine| {
        next.rot(5, 5);
        let (engine, _) = next.try_open(boot(1, POWER)).unwrap();
        verdict(&engine, 5) != PageVerdict::Corrupt
    };
    any_image(&machine, (off, "", false), out_of_order, wrong, || {
        engine.scrub(None).unwrap();
        engine.close().unwrap();
    })
}
