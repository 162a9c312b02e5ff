//! Lines mode: what today's x86 processors can leave behind.

use crate::common::*;
use holdfast_faultmem::Mode;
use holdfast_pmem::{Medium, MediumKind};
use std::collections::BTreeSet;

#[test]
fn stores_to_one_line_arrive_in_order() {
    let m = in_mode(MediumKind::Dax, Mode::Lines);
    put(&m, 8, 1);
    put(&m, 0, 2);
    put(&m, 8, 3);
    let expected = [[0, 0], [0, 1], [2, 1], [2, 3]];
    assert_eq!(outcomes(&m, [0, 8]), BTreeSet::from(expected));
}

#[test]
fn stores_to_different_lines_are_independent() {
    let m = in_mode(MediumKind::Dax, Mode::Lines);
    put(&m, 0, 1);
    put(&m, 64, 2);
    assert_eq!(outcomes(&m, [0, 64]).len(), 4);
}

#[test]
fn a_drain_moves_the_start_of_the_prefix() {
    let m = in_mode(MediumKind::Dax, Mode::Lines);
    put(&m, 0, 1);
    put_unflushed(&m, 8, 2);
    put_unflushed(&m, 16, 3);
    m.drain(D);
    let expected = [[1, 0, 0], [1, 2, 0], [1, 2, 3]];
    assert_eq!(outcomes(&m, [0, 8, 16]), BTreeSet::from(expected));
}

#[test]
fn every_image_is_also_one_of_the_contract() {
    let run = |mode| {
        let m = in_mode(MediumKind::Dax, mode);
        for (at, value) in [(0, 1), (64, 2), (8, 3), (0, 4), (64, 2), (72, 5)] {
            put(&m, at, value);
        }
        images(&m).iter().map(|image| image.fingerprint()).collect::<BTreeSet<u64>>()
    };
    let (lines, words) = (run(Mode::Lines), run(Mode::Words));
    assert!(lines.is_subset(&words));
    assert_eq!((lines.len(), words.len()), (4 * 3, 3 * 2 * 2 * 2));
}
