//! Lost, misdirected and torn writes; bit flips and stray writes.

use crate::common::*;
use holdfast_faultmem::{Config, Damage, Fallen, FaultKind, FaultMedium, Torn, When};
use holdfast_pmem::{Medium, MediumKind, Site};

#[test]
fn a_lost_write_is_acknowledged_and_the_old_bytes_stay() {
    let m = dax();
    put(&m, 0, 1);
    m.drain(D);
    m.arm(FaultKind::Lost, When::touching(0, 8));
    put(&m, 0, 2);
    assert_eq!(get(&m, 0), 2, "the cache still has it");
    assert_eq!(outcomes(&m, [0]), [[1]].into(), "no crash finds it on the medium");
    assert!(!m.injected()[0].settled);
    m.drain(D);
    assert_eq!((get(&m, 0), persisted(&m, 0)), (1, 1));
    let entry = &m.injected()[0];
    assert!(entry.settled);
    assert_eq!(entry.fell, [Fallen { at: 0, stores: 2 }], "2 became 1 in one byte");
    assert!(entry.landed.is_empty());
    assert_eq!((entry.at, entry.len, entry.site), (0, 8, Some(S)));
    assert_eq!(entry.before, 1_u64.to_le_bytes());
    assert_eq!(entry.intended, 2_u64.to_le_bytes());
    assert_eq!(entry.after, entry.before);
    put(&m, 0, 3);
    m.drain(D);
    assert_eq!(persisted(&m, 0), 3, "used up");
}

#[test]
fn a_newer_store_saves_a_lost_one() {
    let m = dax();
    m.arm(FaultKind::Lost, When::next());
    put(&m, 0, 2);
    put(&m, 0, 3);
    // Two flushes, two write-backs: the first is dropped, the second arrives.
    m.drain(D);
    assert_eq!((get(&m, 0), persisted(&m, 0)), (3, 3));
    assert!(m.injected()[0].fell.is_empty(), "nobody sees that it was dropped");
}

#[test]
fn a_store_beside_a_torn_one_takes_the_rest_of_its_word_along() {
    let m = FaultMedium::new(4096, MediumKind::File, &Config::default());
    m.arm(FaultKind::Torn(Torn::Prefix(0)), When::next());
    m.put(S, 0, &[2; 16]).unwrap();
    m.put(S, 4, &[3; 4]).unwrap();
    m.sync(D).unwrap();
    assert_eq!((get(&m, 0), get(&m, 8)), (0x0303_0303_0202_0202, 0));
    let entry = &m.injected()[0];
    assert!(entry.settled);
    assert_eq!(places(&entry.fell), Vec::from_iter(8..16));
}

#[test]
fn what_others_stored_to_a_word_falls_with_the_write_that_is_dropped() {
    let m = FaultMedium::new(4096, MediumKind::File, &Config::default());
    m.put(S, 2, &[3]).unwrap();
    m.arm(FaultKind::Lost, When::next());
    m.put(S, 4, &[2, 2]).unwrap();
    m.sync(D).unwrap();
    assert_eq!(get(&m, 0), 0);
    assert_eq!(places(&m.injected()[0].fell), [2, 4, 5]);
}

/// Where bytes went wrong.
fn places(fallen: &[Fallen]) -> Vec<u64> {
    fallen.iter().map(|fallen| fallen.at).collect()
}

#[test]
fn what_went_wrong_after_a_store_and_what_before_it_can_be_told() {
    let m = FaultMedium::new(4096, MediumKind::File, &Config::default());
    m.arm(FaultKind::Misdirected { to: 256 }, When::next());
    m.put(S, 0, &[7; 8]).unwrap();
    m.put(S, 256, &[3; 8]).unwrap();
    let before = m.stores();
    m.sync(D).unwrap();
    assert_eq!((m.injected()[0].stores, before), (1, 2));
    assert_eq!(get(&m, 256), u64::from_le_bytes([7; 8]));
    let landed = &m.injected()[0].landed;
    assert_eq!(places(landed), Vec::from_iter(256..264));
    assert!(landed.iter().all(|landed| landed.stores == before));
    m.put(S, 256, &[3; 8]).unwrap();
    assert_eq!(m.stores(), 3);
}

#[test]
fn what_is_dropped_under_a_frame_that_was_moved_falls_nowhere() {
    let m = FaultMedium::new(3 * 4096, MediumKind::File, &Config::default());
    for fault in [FaultKind::Lost, FaultKind::Misdirected { to: 8 }] {
        m.arm(fault, When::next());
        m.put(S, 4096, &[7; 8]).unwrap();
        m.remap(4096, 8192, 4096).unwrap();
        m.sync(D).unwrap();
        m.remap(4096, 4096, 4096).unwrap();
        let entry = m.injected().pop().unwrap();
        assert!(entry.settled && entry.fell.is_empty() && entry.landed.is_empty(), "{entry:?}");
    }
    assert_eq!(get(&m, 8), 0);
}

#[test]
fn only_the_words_of_the_write_are_lost() {
    let m = dax();
    m.arm(FaultKind::Lost, When::touching(8, 8));
    put(&m, 0, 1);
    put(&m, 8, 2);
    put(&m, 16, 3);
    m.drain(D);
    assert_eq!([0, 8, 16].map(|at| get(&m, at)), [1, 0, 3]);
    assert_eq!(m.armed(), 0);
}

#[test]
fn a_lost_write_of_odd_bytes_keeps_its_neighbours() {
    let m = dax();
    m.put(S, 0, &[1; 24]).unwrap();
    m.drain(D);
    m.arm(FaultKind::Lost, When::next());
    m.put(S, 5, &[2; 9]).unwrap();
    m.drain(D);
    let mut bytes = [0; 24];
    m.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 24]);
    assert_eq!(&m.crash_point().persisted().bytes()[..24], &[1; 24]);
}

#[test]
fn the_nth_write_is_hit() {
    let m = dax();
    m.arm(FaultKind::Lost, When::touching(0, 64).nth(3));
    for (at, value) in [(0, 1), (64, 9), (8, 2), (0, 1), (16, 3), (24, 4)] {
        put(&m, at, value);
    }
    m.drain(D);
    let kept = [0, 64, 8, 16, 24].map(|at| get(&m, at));
    assert_eq!(kept, [1, 9, 2, 0, 4], "not counted: outside, and changing nothing");
}

#[test]
fn a_misdirected_write_lands_whole_also_where_it_would_have_changed_nothing() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let m = FaultMedium::new(1 << 16, kind, &Config::default());
        m.stray(4096, &[5; 24]).unwrap();
        m.arm(FaultKind::Misdirected { to: 4096 }, When::next());
        let mut intended = [0; 24];
        intended[0] = 9;
        m.put(S, 0, &intended).unwrap();
        m.drain(D);
        m.sync(D).unwrap();
        let mut bytes = [1; 24];
        m.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, intended, "{kind:?}");
    }
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    let m = dax();
    put(&m, 0, 1);
    put(&m, 4096 + 16, 7);
    m.drain(D);
    m.arm(FaultKind::Misdirected { to: 4096 + 13 }, When::next());
    m.put(S, 3, &[0xaa; 10]).unwrap();
    assert_eq!(get(&m, 4096 + 16), 7, "not before the barrier");
    m.drain(D);
    assert_eq!((get(&m, 0), get(&m, 8)), (1, 0), "the place meant keeps the old bytes");
    let mut bytes = [0; 16];
    m.read(4096 + 10, &mut bytes).unwrap();
    assert_eq!(bytes[..3], [0; 3]);
    assert_eq!(bytes[3..13], [0xaa; 10]);
    assert_eq!(bytes[13..], [0; 3]);
    assert_eq!(m.crash_point().persisted().bytes()[4096 + 10..][..16], bytes);
    let entry = &m.injected()[0];
    assert_eq!(entry.target_before, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0]);
    assert_eq!(entry.damage, Damage::Write(FaultKind::Misdirected { to: 4096 + 13 }));
}

#[test]
fn a_torn_write_lands_in_part() {
    let m = dax();
    m.arm(FaultKind::Torn(Torn::Prefix(2)), When::next());
    m.put(S, 0, &[9; 32]).unwrap();
    m.drain(D);
    let n = 0x0909_0909_0909_0909;
    assert_eq!([0, 8, 16, 24].map(|at| get(&m, at)), [n, n, 0, 0]);
    assert_eq!([0, 8, 16, 24].map(|at| persisted(&m, at)), [n, n, 0, 0]);
    let after = &m.injected()[0].after;
    assert_eq!((&after[..16], &after[16..]), (&[9; 16][..], &[0; 16][..]));
}

#[test]
fn a_torn_subset_is_what_its_seed_says() {
    let m = dax();
    m.arm(FaultKind::Torn(Torn::Subset(5)), When::next());
    m.put(S, 0, &[9; 512]).unwrap();
    m.drain(D);
    let image = m.crash_point().persisted();
    assert_eq!(image.bytes()[..512], m.injected()[0].after[..]);
    let landed = image.bytes()[..512].chunks(8).filter(|word| word == &[9; 8]).count();
    assert!((16..48).contains(&landed), "{landed} of 64");
}

#[test]
fn a_file_loses_and_tears_writes_too() {
    let m = file();
    m.arm(FaultKind::Lost, When::next());
    m.append(S, 0, &[9; 1024]).unwrap();
    assert_eq!((get(&m, 0), persisted(&m, 0)), (0, 0));
    m.arm(FaultKind::Torn(Torn::Prefix(1)), When::next());
    m.put(S, 0, &[9; 16]).unwrap();
    m.sync(D).unwrap();
    assert_eq!((get(&m, 0), get(&m, 8)), (0x0909_0909_0909_0909, 0));
}

#[test]
fn faults_can_be_disarmed() {
    let m = dax();
    m.arm(FaultKind::Lost, When::next());
    m.disarm();
    put(&m, 0, 1);
    m.drain(D);
    assert_eq!(persisted(&m, 0), 1);
    assert!(m.injected().is_empty());
}

#[test]
fn a_stray_write_is_in_every_image() {
    let m = dax();
    put(&m, 0, 0x1111_1111_1111_1111);
    m.stray(6, &[0xee; 4]).unwrap();
    let expected = [[0xeeee_0000_0000_0000, 0xeeee], [0xeeee_1111_1111_1111, 0xeeee]];
    assert_eq!(outcomes(&m, [0, 8]), expected.into());
    assert_eq!(get(&m, 0), 0xeeee_1111_1111_1111);
    m.drain(D);
    assert_eq!(persisted(&m, 0), 0xeeee_1111_1111_1111);
}

#[test]
fn a_flipped_bit_is_in_every_image() {
    let m = dax();
    put(&m, 8, 1);
    m.flip_bit(9, 7).unwrap();
    assert_eq!(outcomes(&m, [8]), [[0x8000], [0x8001]].into());
    assert_eq!(get(&m, 8), 0x8001);
    let entry = &m.injected()[0];
    assert_eq!((&entry.before[..], &entry.after[..]), (&[0][..], &[0x80][..]));
    assert!(entry.settled && entry.site.is_none());
}

#[test]
fn heals_can_be_lost_too() {
    let m = dax();
    let heal = Site::new("test.heal");
    m.poison(0, 1, holdfast_faultmem::Clear::Able).unwrap();
    m.arm(FaultKind::Lost, When::next());
    m.heal(heal, 0, &[5; 4096]).unwrap();
    assert_ne!(get(&m, 0), 0x0505_0505_0505_0505);
}

#[test]
fn a_lost_write_that_is_covered_piece_by_piece_settles_with_its_last_piece() {
    let m = FaultMedium::new(4096, MediumKind::File, &Config::default());
    m.arm(FaultKind::Lost, When::next());
    m.put(S, 0, &[7; 16]).unwrap();
    // The same bytes again: nothing new to write, but the append's words go to the medium now.
    m.append(S, 0, &[7; 8]).unwrap();
    assert_eq!((get(&m, 0), get(&m, 8)), (0, u64::from_le_bytes([7; 8])));
    assert!(!m.injected()[0].settled, "the second word is still on its way");
    assert_eq!(m.on_their_way(), 1);
    m.sync(D).unwrap();
    assert_eq!(get(&m, 8), 0);
    assert!(m.injected()[0].settled);
    assert_eq!(m.on_their_way(), 0);
}
