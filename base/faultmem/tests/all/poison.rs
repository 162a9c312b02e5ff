//! Media errors: reading, writing, healing, relocating; what a crash keeps of them.

use crate::common::*;
use holdfast_faultmem::{Budget, Clear, Config, Damage, FaultMedium, SiteKind};
use holdfast_pmem::{MediaCause, MediaError, Medium, MediumKind, Site};
use std::sync::{Arc, Mutex};

const H: Site = Site::new("test.heal");
const PAGE: u64 = 4096;

fn pool() -> FaultMedium {
    pool_of(MediumKind::Dax)
}

fn pool_of(kind: MediumKind) -> FaultMedium {
    let bytes = (0..4 * PAGE).map(|at| (at / PAGE) as u8 + 1).collect();
    FaultMedium::from_image(bytes, kind, &Config::default())
}

fn read(m: &FaultMedium, at: u64, len: usize) -> Result<Vec<u8>, MediaError> {
    let mut bytes = vec![0; len];
    m.read(at, &mut bytes).map(|()| bytes)
}

#[test]
fn every_access_that_touches_a_bad_page_fails() {
    let m = pool();
    m.poison(PAGE + 100, 1, Clear::Able).unwrap();
    let bad = MediaError { at: PAGE, len: PAGE, cause: MediaCause::Poison };
    assert_eq!(read(&m, PAGE + 4000, 8), Err(bad));
    assert_eq!(read(&m, PAGE - 1, 2), Err(bad));
    assert_eq!(m.put(S, 2 * PAGE - 1, &[1]), Err(bad));
    assert_eq!(m.xor(S, PAGE, &[1]), Err(bad));
    assert_eq!(m.zero(S, 0, 4 * PAGE), Err(bad));
    assert_eq!(read(&m, PAGE - 8, 8), Ok(vec![0; 8]), "stored up to the bad page");
    assert_eq!(read(&m, 2 * PAGE, 8), Ok(vec![3; 8]), "not stored behind it");
    assert_eq!(m.bad_ranges(), [(PAGE, PAGE)]);
    assert_eq!(m.injected()[0].damage, Damage::Poison(Clear::Able));
}

#[test]
fn the_content_is_lost() {
    let m = pool();
    put(&m, PAGE, 77);
    m.poison(PAGE, 1, Clear::Able).unwrap();
    m.drain(D);
    let lost = persisted(&m, PAGE);
    assert!(lost != 77 && lost != 0x0202_0202_0202_0202);
    assert_eq!(m.crash_point().units(), 0, "what was on its way is gone");
}

#[test]
fn a_rewrite_clears_what_can_be_cleared() {
    let m = pool();
    m.poison(PAGE, PAGE, Clear::Able).unwrap();
    m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
    assert_eq!(read(&m, PAGE, 4096), Ok(vec![9; 4096]));
    assert!(m.bad_ranges().is_empty());
    assert_eq!(&m.crash_point().persisted().bytes()[4096..8192], &[9; 4096], "durable on return");
    assert_eq!(m.crash_point().units(), 0);
}

#[test]
fn a_switched_off_heal_is_not_durable() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let m = pool_of(kind);
        m.poison(PAGE, PAGE, Clear::Able).unwrap();
        m.elide(H);
        m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
        assert_eq!(read(&m, PAGE, 4096), Ok(vec![9; 4096]));
        assert!(m.bad_ranges().is_empty(), "the program sees it whole");
        // Nothing else asks the device to clear the page, however durable it is itself.
        m.append(S, PAGE + 8, &[5; 8]).unwrap();
        m.put(S, PAGE + 16, &[6; 8]).unwrap();
        m.sync(D).unwrap();
        let point = m.crash_point();
        assert_eq!(point.units(), 0, "nothing of a bad page arrives");
        assert_eq!(point.fingerprint(), point.persisted().fingerprint());
        for image in [point.persisted(), point.newest()] {
            assert_eq!(image.bad_pages(), [(1, Clear::Able)], "{kind}");
            assert_ne!(&image.bytes()[4096..4104], &[9; 8], "its content is lost");
        }
        let crashed = FaultMedium::from_crash(point.newest(), kind, &Config::default());
        assert_eq!(read(&crashed, PAGE, 1).unwrap_err().cause, MediaCause::Poison);
        m.restore_sites();
        m.heal(H, PAGE, &[7; PAGE as usize]).unwrap();
        let image = m.crash_point().persisted();
        assert!(image.bad_pages().is_empty() && image.bytes()[4096..8192] == [7; 4096]);
    }
}

#[test]
fn a_switched_off_heal_of_a_page_that_is_not_bad_is_a_store_like_any_other() {
    let m = pool();
    m.elide(H);
    m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
    let point = m.crash_point();
    assert_eq!(point.units(), 512);
    assert!(point.persisted().bad_pages().is_empty());
    assert_eq!(&point.persisted().bytes()[4096..4104], &[2; 8]);
}

#[test]
fn a_page_that_turns_bad_again_is_as_bad_as_any() {
    let m = pool();
    m.poison(PAGE, PAGE, Clear::Able).unwrap();
    m.elide(H);
    m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
    m.poison(PAGE, PAGE, Clear::Unable).unwrap();
    assert_eq!(m.crash_point().newest().bad_pages(), [(1, Clear::Unable)]);
    assert_eq!(m.bad_ranges(), [(PAGE, PAGE)]);
}

#[test]
fn a_crash_in_the_middle_of_a_heal_leaves_the_page_in_part() {
    let m = pool();
    m.poison(PAGE, PAGE, Clear::Able).unwrap();
    let parts = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&parts);
    m.on_barrier(Box::new(move |_, site, point| {
        assert_eq!(point.barrier(), Some((site, SiteKind::Heal)));
        let budget = Budget { singles: 8, pairs: 0, samples: 8, ..Budget::default() };
        for image in point.images(&budget) {
            let healed = image.bytes()[4096..8192].chunks(8).filter(|word| word == &[9; 8]);
            let healed = healed.count();
            let bad: &[_] = if healed == 0 { &[(1, Clear::Able)] } else { &[] };
            assert_eq!(image.bad_pages(), bad, "poison goes first, with {healed} words");
            sink.lock().unwrap().push(healed);
        }
    }));
    m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
    let parts = parts.lock().unwrap();
    for expected in [0, 1, 511, 512] {
        assert!(parts.contains(&expected), "{expected} of 512 words: {parts:?}");
    }
    assert!(parts.iter().any(|part| (10..500).contains(part)));
}

#[test]
fn what_is_durable_before_the_rewrite_is_found_without_poison() {
    let m = Arc::new(pool());
    m.poison(PAGE, PAGE, Clear::Able).unwrap();
    let twin = Arc::clone(&m);
    m.on_barrier(Box::new(move |_, _, point| {
        assert_eq!(point.persisted().bad_pages(), [(1, Clear::Able)]);
        twin.put(S, PAGE + 64, &[5; 8]).unwrap();
        twin.drain(D);
        let image = twin.crash_point().persisted();
        assert!(image.bad_pages().is_empty() && image.bytes()[4096 + 64..][..8] == [5; 8]);
    }));
    m.heal(H, PAGE, &[9; PAGE as usize]).unwrap();
    m.clear_on_barrier();
    assert!(m.crash_point().persisted().bad_pages().is_empty());
}

#[test]
fn an_unclearable_page_must_be_relocated() {
    let m = pool();
    m.poison(PAGE, PAGE, Clear::Unable).unwrap();
    let stays = MediaError { at: PAGE, len: PAGE, cause: MediaCause::Unclearable };
    assert_eq!(m.heal(H, PAGE, &[9; PAGE as usize]), Err(stays));
    assert_eq!(m.bad_ranges(), [(PAGE, PAGE)], "still bad");
    m.remap(PAGE, 3 * PAGE, PAGE).unwrap();
    assert!(m.bad_ranges().is_empty(), "nobody sees the bad page any more");
    assert_eq!(read(&m, PAGE, 8), Ok(vec![4; 8]), "contents are not moved");
    m.put(S, PAGE + 8, &[5; 8]).unwrap();
    assert_eq!(read(&m, 3 * PAGE + 8, 8), Ok(vec![5; 8]), "seen at its own place too");
    m.put(S, 3 * PAGE + 16, &[6; 8]).unwrap();
    assert_eq!(read(&m, PAGE + 16, 8), Ok(vec![6; 8]), "and the other way round");
    m.drain(D);
    let image = m.crash_point().persisted();
    assert_eq!(&image.bytes()[3 * 4096 + 8..3 * 4096 + 24], [[5; 8], [6; 8]].concat());
    assert_eq!(image.bad_pages(), [(1, Clear::Unable)], "the file has it where it lies");
}

#[test]
fn what_stands_in_for_a_page_is_seen_and_never_durable() {
    let m = pool();
    m.poison(PAGE, PAGE, Clear::Unable).unwrap();
    m.stand_in(PAGE, &[7; PAGE as usize]).unwrap();
    m.put(S, PAGE - 4, &[8; 8]).unwrap();
    m.xor(S, 2 * PAGE - 4, &[1; 8]).unwrap();
    m.drain(D);
    m.sync(D).unwrap();
    assert_eq!(read(&m, PAGE - 4, 10), Ok([&[8; 8][..], &[7; 2]].concat()));
    assert_eq!(read(&m, 2 * PAGE - 6, 8), Ok(vec![7, 7, 6, 6, 6, 6, 2, 2]));
    // Damage hits the medium, not the memory.
    m.stray(PAGE + 100, &[1; 8]).unwrap();
    assert_eq!(read(&m, PAGE + 100, 8), Ok(vec![7; 8]));
    let image = m.crash_point().newest();
    assert_eq!(&image.bytes()[4092..4096], [8; 4]);
    assert_eq!(image.bad_pages(), [(1, Clear::Unable)]);
    let crashed = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
    assert!(read(&crashed, PAGE, 1).is_err(), "the page is as bad as it was");
    assert!(m.heal(H, PAGE, &[9; PAGE as usize]).is_err());
    m.remap(PAGE, 3 * PAGE, PAGE).unwrap();
    assert_eq!(read(&m, PAGE, 8), Ok(vec![4; 8]));
    assert!(m.stand_in(PAGE + 8, &[7; PAGE as usize]).is_err());
    assert!(m.stand_in(4 * PAGE, &[7; PAGE as usize]).is_err());
}

#[test]
fn what_is_on_its_way_to_the_spare_is_seen_at_once() {
    let m = pool();
    m.put(S, 2 * PAGE, &[8; 16]).unwrap();
    m.remap(PAGE, 2 * PAGE, PAGE).unwrap();
    assert_eq!(read(&m, PAGE, 16), Ok(vec![8; 16]));
    m.drain(D);
    assert_eq!(&m.crash_point().persisted().bytes()[2 * 4096..][..16], &[8; 16]);
}

#[test]
fn addresses_stay_valid_across_relocation() {
    let m = pool();
    let before = m.view(PAGE, PAGE).unwrap();
    m.remap(PAGE, 3 * PAGE, PAGE).unwrap();
    assert_eq!(m.view(PAGE, PAGE), Some(before));
    assert_eq!(m.view(4 * PAGE, 1), None);
    assert_eq!(m.view(u64::MAX, 2), None);
}

#[test]
fn a_bad_spare_is_bad_under_both_addresses() {
    let m = pool();
    m.remap(PAGE, 3 * PAGE, PAGE).unwrap();
    m.poison(PAGE, 1, Clear::Able).unwrap();
    assert_eq!(m.bad_ranges(), [(PAGE, PAGE), (3 * PAGE, PAGE)]);
    m.heal(H, PAGE, &[1; 4096]).unwrap();
    assert!(m.bad_ranges().is_empty());
}

#[test]
fn neighbours_are_listed_as_one_range() {
    let m = pool();
    m.poison(2 * PAGE, PAGE, Clear::Able).unwrap();
    m.poison(PAGE, 1, Clear::Unable).unwrap();
    assert_eq!(m.bad_ranges(), [(PAGE, 2 * PAGE)]);
}

#[test]
fn poison_outlives_a_crash() {
    let m = pool();
    m.poison(PAGE, 1, Clear::Unable).unwrap();
    m.poison(2 * PAGE, 1, Clear::Able).unwrap();
    let image = m.crash_point().persisted();
    let plain = pool().crash_point().persisted();
    assert_ne!(image.fingerprint(), plain.fingerprint());
    let m = FaultMedium::from_crash(image, MediumKind::Dax, &Config::default());
    assert_eq!(m.bad_ranges(), [(PAGE, 2 * PAGE)]);
    assert!(m.heal(H, 2 * PAGE, &[0; 4096]).is_ok());
    assert!(m.heal(H, PAGE, &[0; 4096]).is_err());
}

#[test]
fn odd_places_are_refused() {
    let m = pool();
    let refused = |result: Result<(), MediaError>| {
        assert_eq!(result.unwrap_err().cause, MediaCause::OutOfRange);
    };
    refused(m.heal(H, 8, &[0; 4096]));
    refused(m.heal(H, 0, &[0; 4095]));
    refused(m.heal(H, 4 * PAGE, &[0; 4096]));
    refused(m.remap(0, 4 * PAGE, PAGE));
    refused(m.remap(1, 0, PAGE));
    refused(m.remap(0, 0, 8));
    refused(m.remap(0, PAGE, u64::MAX - 4095));
    refused(m.put(S, 4 * PAGE, &[1]));
    refused(m.put(S, u64::MAX, &[1, 2]));
    refused(m.zero(S, 0, u64::MAX));
    refused(m.poison(4 * PAGE, 1, Clear::Able));
    refused(m.flip_bit(4 * PAGE, 0));
    refused(m.flip_bit(0, 8));
    refused(m.stray(4 * PAGE - 1, &[1, 2]));
    assert_eq!(m.crash_point().units(), 0, "nothing was changed");
    assert!(m.injected().is_empty());
}
