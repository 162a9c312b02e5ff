//! A file is protected, its side file is opened again, and what every page is can be told; bad side
//! files are refused or cost coverage, never a page.

use crate::common::{Machine, boot, content, tiny};
use holdfast_faultmem::Clear;
use holdfast_mapped::{
    AtRest, Durability, Error, Force, Mended, OpenOptions, ProtectOptions, State, When, Writing,
};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

const SIZE: u64 = 19 * PAGE + 100;

fn quick() -> OpenOptions {
    boot(1, Durability::Process)
}

#[test]
fn a_scrub_of_the_whole_file_takes_no_turn_from_steps_under_way() {
    let machine = Machine::new(MediumKind::Shm, 19 * PAGE);
    let engine = machine.protect(&tiny(1));
    for _ in 0..2 {
        assert_eq!(engine.scrub_step(None).unwrap().report.pages, 8);
    }
    assert_eq!(engine.scrub(None).unwrap().report.pages, 19);
    let last = engine.scrub_step(None).unwrap();
    assert_eq!((last.report.pages, last.finished), (3, true));
    assert_eq!(engine.scrub_step(None).unwrap().report.pages, 8, "from the start again");
}

#[test]
fn a_protected_file_is_good_and_every_rotten_page_is_found_and_given_back() {
    for parity in [1, 2] {
        for kind in [MediumKind::Shm, MediumKind::File, MediumKind::Dax] {
            let machine = Machine::new(kind, SIZE);
            machine.protect(&tiny(parity)).close().unwrap();
            for page in 0..20 {
                let (engine, opened) = machine.open(quick());
                assert_eq!(
                    (opened.state, opened.changed, opened.doubtful),
                    (State::Clean, false, 0)
                );
                assert!(engine.verify_all().unwrap().is_clean());
                machine.rot(page, if page == 19 { 99 } else { page * 200 + 3 });
                assert_eq!(engine.verify(page).unwrap().verdict, PageVerdict::Corrupt);
                assert_eq!(engine.verify_all().unwrap().corrupt, [page]);
                assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
                let len = (SIZE - page * PAGE).min(PAGE) as usize;
                assert_eq!(machine.page(page)[..len], content(page, 0)[..len]);
                engine.close().unwrap();
            }
        }
    }
}

#[test]
fn so_many_pages_of_a_stripe_come_back_as_it_has_parity_pages() {
    for parity in [0, 1, 2] {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let engine = machine.protect(&tiny(parity));
        machine.rot(4, 0);
        machine.rot(6, 1);
        machine.medium.poison(10 * PAGE, 1, Clear::Able).unwrap();
        let mended = |page| engine.repair(page, &AtRest, Force::No).unwrap();
        let both = if parity == 2 { Mended::Repaired } else { Mended::Lost };
        assert_eq!([mended(4), mended(6)], [both; 2], "{parity}");
        let one = if parity > 0 { Mended::Repaired } else { Mended::Lost };
        assert_eq!(mended(10), one, "{parity}");
        assert_eq!(engine.verify_all().unwrap().corrupt.is_empty(), parity == 2);
    }
}

#[test]
fn what_was_written_at_rest_is_undecided_and_never_repaired_away() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.data.window().put(Site::new("test.foreign"), 5 * PAGE, &[1; 64]).unwrap();
    machine.world.mtime.store(8, std::sync::atomic::Ordering::SeqCst);
    let looking = OpenOptions { read_only: true, ..quick() };
    let (engine, opened) = machine.open(looking);
    assert!(opened.changed);
    let changed = PageVerdict::Undecided(Unsure::ChangedWhileUnprotected);
    assert_eq!(engine.verify(5).unwrap().verdict, changed);
    assert!(engine.repair(5, &AtRest, Force::No).is_err());
    drop(engine);
    // Also after it was opened and closed, when length and time agree again.
    for _ in 0..3 {
        let (engine, _) = machine.open(quick());
        assert!(matches!(engine.verify(5).unwrap().verdict, PageVerdict::Undecided(_)));
        let kept = engine.repair(5, &AtRest, Force::No).unwrap();
        assert!(matches!(kept, Mended::Undecided(_)), "{kept:?}");
        assert_eq!(machine.page(5)[..64], [1; 64]);
        assert_eq!(engine.before_image(5).unwrap().unwrap(), content(5, 0));
        engine.close().unwrap();
    }
    let (engine, _) = machine.open(quick());
    engine.accept(5 * PAGE, PAGE).unwrap();
    assert!(engine.verify_all().unwrap().is_clean());
    machine.rot(5, 9);
    assert_eq!(engine.repair(5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(5)[..64], [1; 64], "what was accepted is what comes back");
}

#[test]
fn an_undecided_page_is_put_back_only_by_force() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    machine.data.window().put(Site::new("test.foreign"), 5 * PAGE, &[1; 64]).unwrap();
    machine.world.mtime.store(8, std::sync::atomic::Ordering::SeqCst);
    let (engine, _) = machine.open(quick());
    assert_eq!(engine.repair(5, &AtRest, Force::Undecided).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(5), content(5, 0));
    engine.close().unwrap();
    let (engine, _) = machine.open(quick());
    assert!(engine.verify_all().unwrap().is_clean());
}

#[test]
fn a_machine_that_stopped_with_nothing_synced_leaves_no_certainty() {
    for (durability, believed) in [(Durability::Process, false), (Durability::Power, true)] {
        let machine = Machine::new(MediumKind::File, SIZE);
        let options = ProtectOptions { open: boot(1, durability), ..tiny(1) };
        machine.protect(&options).close().unwrap();
        machine.rot(3, 3);
        let (engine, _) = machine.open(boot(2, durability));
        let verdict = engine.verify(3).unwrap().verdict;
        assert_eq!(verdict == PageVerdict::Corrupt, believed);
        if !believed {
            assert_eq!(verdict, PageVerdict::Undecided(Unsure::TrackingLost));
        }
    }
}

#[test]
fn headers_of_every_kind_are_refused_or_healed() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    assert!(matches!(machine.try_open(quick()), Err(Error::NotASideFile)));
    machine.protect(&tiny(1)).close().unwrap();
    let side = |at| machine.side.place(at);
    machine.medium.stray(side(100), &[0xff; 8]).unwrap();
    let (engine, _) = machine.open(quick());
    engine.close().unwrap();
    machine.medium.poison(side(64 << 10), 1, Clear::Able).unwrap();
    machine.open(quick()).0.close().unwrap();
    assert_eq!(machine.medium.bad_ranges(), [], "healed from the other copy");
    machine.medium.stray(side(100), &[0xff; 8]).unwrap();
    machine.medium.stray(side((64 << 10) + 100), &[0xff; 8]).unwrap();
    assert!(matches!(machine.try_open(quick()), Err(Error::Damaged)));
    assert!(machine.try_open(quick()).unwrap_err().to_string().contains("protect it anew"));
    let ended = Machine::new(MediumKind::Shm, SIZE);
    ended.protect(&tiny(1)).unprotect().unwrap();
    assert!(matches!(ended.try_open(quick()), Err(Error::Ended)));
}

#[test]
fn a_header_that_verifies_and_could_never_be_raised_again_is_refused() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    let mut page = [0; PAGE as usize];
    machine.side.read(0, &mut page).unwrap();
    // The generation, all ones.
    page[32 + 104..32 + 112].fill(0xff);
    let sum = holdfast_codes::crc32c(holdfast_codes::crc32c(0, &[0; 8]), &page[4..]);
    page[..4].copy_from_slice(&sum.to_le_bytes());
    for side in [0, 64 << 10] {
        machine.medium.stray(machine.side.place(side), &page).unwrap();
    }
    let refused = machine.try_open(quick());
    assert!(matches!(refused, Err(Error::Header { what: "generation", .. })), "{refused:?}");
}

#[test]
fn any_one_damage_of_the_side_file_costs_no_page_and_reports_none() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    let image = machine.medium.crash_point().newest();
    let len = machine.side.len();
    for at in (0..len).step_by(61) {
        let other = Machine::after(image.clone(), MediumKind::Shm, SIZE, None);
        other.medium.flip_bit(other.side.place(at), (at % 8) as u8).unwrap();
        let (engine, _) = other.open(quick());
        let report = engine.verify_all().unwrap();
        assert!(report.corrupt.is_empty(), "{at:#x}: {report:?}");
        assert!(report.undecided.len() <= 1, "{at:#x}: {report:?}");
        let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
        assert_eq!(scrubbed.repaired + scrubbed.lost, 0, "{at:#x}");
        for page in 0..20 {
            assert_eq!(other.page(page), machine.page(page), "{at:#x}");
        }
        engine.close().unwrap();
    }
}

#[test]
fn bad_pages_of_the_side_file_cost_no_page_and_are_rewritten() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(1)).close().unwrap();
    let image = machine.medium.crash_point().newest();
    for page in 0..machine.side.len() / PAGE {
        let other = Machine::after(image.clone(), MediumKind::Shm, SIZE, None);
        other.medium.poison(other.side.place(page * PAGE), 1, Clear::Able).unwrap();
        let (engine, _) = match other.try_open(quick()) {
            Ok(opened) => opened,
            Err(error) => panic!("page {page} of the side file: {error}"),
        };
        let report = engine.verify_all().unwrap();
        assert!(report.corrupt.is_empty(), "{page}: {report:?}");
        engine.scrub(Some(&AtRest)).unwrap();
        for page in 0..20 {
            assert_eq!(other.page(page), machine.page(page));
        }
    }
}

#[test]
fn whatever_a_side_file_holds_is_read_without_harm() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    machine.protect(&tiny(2)).close().unwrap();
    let image = machine.medium.crash_point().newest();
    for seed in 0..120_u64 {
        let other = Machine::after(image.clone(), MediumKind::Shm, SIZE, None);
        // The header verifies; everything behind it is garbage, or what a switched-off sum lets in.
        let garbage = content(seed, 5);
        for at in (24..64).map(|page| page * PAGE + (seed % 7) * 512) {
            let end = (at + 4096).min(other.side.len());
            let len = end.saturating_sub(at + 8192 * (seed % 2)) as usize;
            other.medium.stray(other.side.place(at), &garbage[..len.min(4096)]).unwrap();
        }
        other.medium.elide_name("mapped.side.verify-record");
        other.medium.elide_name("redundancy.mirror.verify");
        let header = content(seed, 6);
        other.medium.stray(other.side.place(32 + seed % 150), &header[..6]).unwrap();
        if let Ok((engine, _)) = other.try_open(quick()) {
            let _ = engine.verify_all();
            let _ = engine.coverage();
            let _ = engine.scrub(None);
        }
    }
}

#[test]
fn policies_are_values() {
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let mut options = tiny(1);
    options.keep.sums = false;
    let engine = machine.protect(&options);
    machine.rot(3, 3);
    let unkept = PageVerdict::Undecided(Unsure::NoSums);
    assert_eq!(engine.verify(3).unwrap().verdict, unkept, "damage is not found");
    let machine = Machine::new(MediumKind::Shm, SIZE);
    let mut options = tiny(1);
    options.open.when = When::AtCommit;
    let engine = machine.protect(&options);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(2, 1);
    assert_eq!(engine.pass().unwrap().pages, 0);
    assert_eq!(engine.cover(2 * PAGE, PAGE).unwrap().pages, 1);
    for (data, stripes, group, side_len) in
        [(0, 0, 0, 0), (65, 0, 0, 0), (4, 65, 0, 0), (4, 2, 65, 0), (4, 2, 2, 4096)]
    {
        let machine = Machine::new(MediumKind::Shm, SIZE);
        let options = ProtectOptions { data, stripes, group, side_len, ..tiny(1) };
        assert!(matches!(machine.try_protect(&options), Err(Error::Options { .. })));
    }
}
