//! A fault that meets what an earlier one left: a second crash before the first pass, damage where
//! a crash, a growth or a doubt came before. Found by the campaign.

use std::sync::{Arc, Mutex};

use crate::common::{Engine, Machine, boot, content, killed, tiny, verdict};
use crate::stories::parity_page;
use holdfast_faultmem::{FaultKind, When};
use holdfast_mapped::{AtRest, Durability, Force, Mended, OpenOptions, ProtectOptions, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

const FOREIGN: Site = Site::new("test.foreign");
/// Where the entries of the first regions are.
const ENTRIES: u64 = (128 << 10) + PAGE;

fn admitted(machine: &Machine, durability: Durability) -> Engine {
    let options = ProtectOptions { open: boot(1, durability), ..tiny(1) };
    let engine = machine.protect(&options);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine
}

#[test]
fn bits_that_outlived_one_crash_outlive_the_next() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.store(5, 1);
    drop(engine);
    let mut machine = killed(&machine, true);
    for _ in 0..2 {
        // Writers are let in, and the end comes before the first pass.
        let (engine, _) = machine.open(boot(1, Durability::Process));
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::Uncovered));
        drop(engine);
        machine = killed(&machine, true);
    }
    let (engine, _) = machine.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    assert_eq!(engine.pass().unwrap().pages, 1);
    assert!(engine.verify_all().unwrap().is_clean());
    assert_eq!(machine.page(5), content(5, 1));
}

#[test]
fn what_a_file_grew_by_and_was_covered_is_not_new_after_a_crash() {
    let machine = Machine::new(MediumKind::Shm, 10 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.world.set_size(24 * PAGE);
    machine.store(12, 1);
    machine.store(20, 1);
    engine.pass().unwrap();
    drop(engine);
    for page in [12, 20] {
        let next = killed(&machine, true);
        next.rot(page, 9);
        let (engine, _) = next.open(boot(1, Durability::Process));
        assert_eq!(verdict(&engine, page), PageVerdict::Corrupt);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(next.page(page), content(page, 1));
    }
}

#[test]
fn growth_seen_by_an_opening_that_was_cut_short_is_covered_by_the_next() {
    let machine = Machine::new(MediumKind::Shm, 10 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    engine.close().unwrap();
    machine.world.set_size(15 * PAGE);
    machine.data.window().put(FOREIGN, 13 * PAGE, &content(13, 4)).unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Process));
    drop(engine);
    let machine = killed(&machine, false);
    let (engine, _) = machine.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    let coverage = engine.coverage().unwrap();
    assert_eq!((coverage.pages, coverage.without_sum, coverage.without_parity), (15, 0, 0));
    machine.rot(13, 1);
    assert_eq!(engine.repair(13, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(13), content(13, 4));
}

#[test]
fn bits_outlive_a_crash_beside_pages_that_the_file_grew_by_in_its_last_moment() {
    let machine = Machine::new(MediumKind::Shm, 18 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.store(17, 1);
    machine.world.set_size(24 * PAGE);
    drop(engine);
    let machine = killed(&machine, true);
    let (engine, _) = machine.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    assert_eq!(verdict(&engine, 17), PageVerdict::Undecided(Unsure::Uncovered));
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    assert_eq!(machine.page(17), content(17, 1));
}

#[test]
fn sums_that_outlived_a_crash_without_their_parity_get_it() {
    let machine = Machine::new(MediumKind::Shm, 10 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.world.set_size(24 * PAGE);
    for page in 16..24 {
        machine.store(page, 1);
    }
    // The end comes among sums and parity of a part that the file has just grown by.
    machine.medium.elide_name("mapped.commit.parity");
    let (twin, left) = (machine.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&left);
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.C" {
            *kept.lock().unwrap() = Some(killed(&twin, true));
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    let next = left.lock().unwrap().take().unwrap();
    let (engine, _) = next.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    for page in [17, 22] {
        next.rot(page, 3);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(next.page(page), content(page, 1));
    }
}

#[test]
fn who_only_looks_after_a_crash_sees_the_last_page_as_long_as_it_is() {
    let machine = Machine::new(MediumKind::Shm, 10 * PAGE + 100);
    let engine = admitted(&machine, Durability::Process);
    machine.world.set_size(19 * PAGE);
    machine.store(10, 1);
    let (twin, left) = (machine.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&left);
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.E" {
            *kept.lock().unwrap() = Some(killed(&twin, true));
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    let next = left.lock().unwrap().take().unwrap();
    let looking = OpenOptions { read_only: true, ..boot(1, Durability::Process) };
    let (engine, _) = next.open(looking);
    assert_eq!(verdict(&engine, 10), PageVerdict::Good);
    let report = engine.verify_all().unwrap();
    assert_eq!((report.pages, report.corrupt), (11, Vec::new()));
}

#[test]
fn sums_of_a_longer_file_that_was_cut_off_are_never_taken_for_those_of_a_new_one() {
    let machine = Machine::new(MediumKind::Shm, 24 * PAGE);
    let options = ProtectOptions { open: boot(1, Durability::Process), ..tiny(1) };
    machine.protect(&options).close().unwrap();
    // Somebody cuts it off, it is opened and closed; somebody makes it longer, with new content.
    machine.world.set_size(10 * PAGE);
    machine.medium.stray(10 * PAGE, &[0; 14 * PAGE as usize]).unwrap();
    machine.open(boot(1, Durability::Process)).0.close().unwrap();
    machine.world.set_size(24 * PAGE);
    for page in 10..24 {
        machine.data.window().put(FOREIGN, page * PAGE, &content(page, 7)).unwrap();
    }
    // The opening that sees it is cut short.
    drop(machine.open(boot(1, Durability::Process)));
    let machine = killed(&machine, false);
    let (engine, _) = machine.open(boot(1, Durability::Process));
    let report = engine.verify_all().unwrap();
    assert_eq!(report.corrupt, [0_u64; 0]);
    engine.scrub(Some(&AtRest)).unwrap();
    engine.close().unwrap();
    for page in 10..24 {
        assert_eq!(machine.page(page), content(page, 7), "taken back");
    }
}

#[test]
fn an_entry_that_was_wiped_out_is_no_page_that_was_never_covered() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.medium.stray(machine.side.place(ENTRIES + 5 * 8), &[0; 8]).unwrap();
    assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::SumsDamaged));
    assert!(!engine.verify_all().unwrap().is_clean());
}

#[test]
fn a_damaged_entry_beside_an_undecided_page_is_no_damage_of_its_page() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.rot(2, 100);
    machine.data.lose(0, 8 * PAGE);
    engine.pass().unwrap();
    assert!(matches!(verdict(&engine, 2), PageVerdict::Undecided(why) if why.is_doubt()));
    machine.medium.flip_bit(machine.side.place(ENTRIES + 5 * 8), 3).unwrap();
    assert_eq!(verdict(&engine, 5), PageVerdict::Undecided(Unsure::SumsDamaged));
    // The same after a pass over the stripe beside it.
    machine.store(4, 1);
    let done = engine.pass().unwrap();
    assert_eq!(done.corrupt, 0);
}

#[test]
fn entries_that_rot_beside_a_page_that_was_put_off_make_no_page_new_and_none_corrupt() {
    for (at, rotten) in [(1, [0; 8]), (5, [0x5a; 8])] {
        let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
        let open = boot(1, Durability::Process);
        let engine = machine.protect(&ProtectOptions { open, ..tiny(2) });
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.rot(3, 100);
        machine.store(2, 1);
        assert_eq!(engine.pass().unwrap().deferred, 1, "page 3 comes first");
        machine.medium.stray(machine.side.place(ENTRIES + at * 8), &rotten).unwrap();
        drop(engine);
        let machine = killed(&machine, true);
        machine.rot(1, 50);
        let (engine, _) = machine.open(boot(1, Durability::Process));
        for admitted in [false, true] {
            if admitted {
                engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
                engine.pass().unwrap();
            }
            for page in [1, at] {
                let said = verdict(&engine, page);
                let unsure = matches!(said, PageVerdict::Undecided(why) if why.is_doubt());
                assert!(unsure || page == 5, "page {page}: {said:?}");
                assert_ne!(said, PageVerdict::Corrupt);
            }
        }
    }
}

#[test]
fn a_lost_write_is_not_a_page_that_a_kill_threw_back() {
    let machine = Machine::new(MediumKind::File, 19 * PAGE);
    let engine = admitted(&machine, Durability::Power);
    machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
    machine.store(5, 1);
    engine.pass().unwrap();
    assert_eq!(machine.page(5), content(5, 0), "the device dropped it");
    assert_eq!(verdict(&engine, 5), PageVerdict::Corrupt);
    drop(engine);
    let machine = killed(&machine, false);
    for _ in 0..2 {
        let (engine, _) = machine.open(boot(1, Durability::Power));
        let said = verdict(&engine, 5);
        assert!(matches!(said, PageVerdict::Undecided(why) if why.is_doubt()), "{said:?}");
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.pass().unwrap();
        assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 1));
    }
}

/// Sums and data of a pass may have reached the disk, and its parity not.
#[test]
fn parity_that_a_stop_of_the_machine_left_behind_is_made_anew() {
    let machine = Machine::new(MediumKind::File, 19 * PAGE);
    let engine = admitted(&machine, Durability::Process);
    machine.store(5, 1);
    engine.pass().unwrap();
    drop(engine);
    let machine = killed(&machine, false);
    machine.medium.flip_bit(machine.side.place(parity_page(1)) + 100, 3).unwrap();
    let (engine, _) = machine.open(boot(2, Durability::Process));
    machine.rot(6, 100);
    assert_eq!(engine.repair(6, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(6), content(6, 0));
}

#[test]
fn two_pages_of_a_stripe_rot_and_two_of_parity_give_both_back() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let options = ProtectOptions { open: boot(1, Durability::Process), ..tiny(2) };
    let engine = machine.protect(&options);
    machine.rot(5, 100);
    machine.rot(6, 7);
    for page in [5, 6] {
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(page), content(page, 0));
    }
}

/// Parity of a stripe is of before a page of it was covered anew. With two parity pages another
/// page is given back nevertheless, whichever the two are.
#[test]
fn a_page_is_given_back_beside_one_that_parity_was_not_made_of() {
    for (stored, hurt) in [(5, 6), (7, 4), (4, 5)] {
        let machine = Machine::new(MediumKind::File, 19 * PAGE);
        let options = ProtectOptions { open: boot(1, Durability::Process), ..tiny(2) };
        let engine = machine.protect(&options);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        let at = (128 << 10) + (3 + 2) * PAGE;
        let mut parity = vec![0; 2 * PAGE as usize];
        machine.side.read(at, &mut parity).unwrap();
        machine.store(stored, 1);
        engine.pass().unwrap();
        let mut made = parity.clone();
        machine.side.read(at, &mut made).unwrap();
        assert_ne!(made, parity, "it is parity of this stripe");
        machine.medium.stray(machine.side.place(at), &parity).unwrap();
        machine.rot(hurt, 100);
        assert_eq!(engine.repair(hurt, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(hurt), content(hurt, 0));
        assert_eq!(machine.page(stored), content(stored, 1));
        engine.scrub(Some(&AtRest)).unwrap();
        machine.rot(stored, 100);
        assert_eq!(engine.repair(stored, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(stored), content(stored, 1));
    }
}

#[test]
fn a_repair_that_was_cut_off_in_a_part_just_grown_by_is_not_taken_for_content() {
    for bits in [true, false] {
        let machine = Machine::new(MediumKind::Shm, 10 * PAGE);
        let engine = admitted(&machine, Durability::Process);
        machine.world.set_size(24 * PAGE);
        for page in 10..24 {
            machine.store(page, 1);
        }
        // Some of it is covered, as a program asks for that syncs a part.
        engine.cover(16 * PAGE, 4 * PAGE).unwrap();
        machine.rot(17, 100);
        machine.rot(17, 3000);
        let (twin, left) = (machine.clone(), Arc::new(Mutex::new(None)));
        let kept = Arc::clone(&left);
        machine.medium.on_barrier(Box::new(move |_, site, _| {
            if site.name() == "mapped.repair.store-drain" {
                *kept.lock().unwrap() = Some(killed(&twin, bits));
            }
        }));
        assert_eq!(engine.repair(17, &AtRest, Force::No).unwrap(), Mended::Repaired);
        machine.medium.clear_on_barrier();
        let next = left.lock().unwrap().take().unwrap();
        // It came as far as the first of the two places.
        next.rot(17, 3000);
        let mix = next.page(17);
        let looking = OpenOptions { read_only: true, ..boot(1, Durability::Process) };
        assert_eq!(next.open(looking).1.interrupted, Some(17), "{bits}");
        let (engine, opened) = next.open(boot(1, Durability::Process));
        assert_eq!(opened.interrupted, Some(17), "{bits}");
        // That is over, and the next opening knows of it all the same.
        drop(engine);
        let next = killed(&next, bits);
        let (engine, opened) = next.open(boot(1, Durability::Process));
        assert_eq!(opened.interrupted, None, "{bits}");
        for _ in 0..2 {
            let said = verdict(&engine, 17);
            assert!(matches!(said, PageVerdict::Undecided(why) if why.is_doubt()), "{said:?}");
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            engine.pass().unwrap();
        }
        assert_eq!(next.page(17), mix, "nobody asked for it");
        // What it was to be is beside it.
        assert_eq!(engine.before_image(17).unwrap().unwrap(), content(17, 1), "{bits}");
        assert_eq!(engine.repair(17, &AtRest, Force::Undecided).unwrap(), Mended::Repaired);
        assert_eq!(next.page(17), content(17, 1));
    }
}

#[test]
fn a_scrub_makes_parity_anew_that_is_of_bytes_that_are_gone() {
    for parity in 1..=2 {
        let machine = Machine::new(MediumKind::Shm, 16 * PAGE);
        let options = ProtectOptions { open: boot(1, Durability::Process), ..tiny(parity) };
        let engine = machine.protect(&options);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        // More is missing of a stripe than parity makes up for: two rows that changed and one that
        // rots, and does so no more afterwards.
        machine.store(4, 1);
        machine.store(5, 1);
        machine.rot(6, 100);
        engine.pass().unwrap();
        assert_eq!(verdict(&engine, 6), PageVerdict::Corrupt);
        assert_eq!(engine.coverage().unwrap().without_parity, 4, "{parity}");
        // As long as the page is damaged, nothing vouches for what would be made.
        let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
        assert_eq!((scrubbed.parity, scrubbed.lost), (0, 1), "{parity}");
        machine.rot(6, 100);
        assert_eq!(engine.coverage().unwrap().without_parity, 4, "{parity}");
        assert_eq!(engine.scrub(Some(&AtRest)).unwrap().parity, u64::from(parity));
        assert_eq!(engine.coverage().unwrap().without_parity, 0, "{parity}");
        assert_eq!(engine.scrub(Some(&AtRest)).unwrap().parity, 0, "{parity}");
        // It is on record for those who come after, and it is the right one.
        engine.close().unwrap();
        let machine = killed(&machine, false);
        let (engine, _) = machine.open(boot(1, Durability::Process));
        assert_eq!(engine.coverage().unwrap().without_parity, 0, "{parity}");
        for page in 6..6 + u64::from(parity) {
            machine.rot(page, 9);
        }
        assert_eq!(engine.scrub(Some(&AtRest)).unwrap().repaired, u64::from(parity));
        assert_eq!(machine.page(6), content(6, 0));
    }
}
