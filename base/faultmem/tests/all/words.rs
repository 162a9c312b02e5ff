//! What a crash may leave under the contract: any subset of words, any value since persisted.

use crate::common::*;
use holdfast_pmem::{Medium, Site};
use std::collections::BTreeSet;

#[test]
fn nothing_stored_leaves_one_image() {
    let m = dax();
    assert_eq!(images(&m).len(), 1);
}

#[test]
fn unfenced_words_arrive_in_any_subset() {
    let m = dax();
    m.put(S, 0, &[[1_u8; 8], [2; 8]].concat()).unwrap();
    let (one, two) = (0x0101_0101_0101_0101, 0x0202_0202_0202_0202);
    assert_eq!(outcomes(&m, [0, 8]), BTreeSet::from([[0, 0], [0, two], [one, 0], [one, two]]));
}

#[test]
fn a_flush_alone_persists_nothing_and_a_drain_persists_what_was_flushed() {
    let m = dax();
    put(&m, 0, 1);
    assert_eq!(persisted(&m, 0), 0);
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[1]]));
}

#[test]
fn an_unflushed_store_stays_open_across_drains() {
    let m = dax();
    put_unflushed(&m, 0, 1);
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0], [1]]), "it may have leaked, no more");
}

#[test]
fn a_store_between_flush_and_drain_is_not_covered() {
    let m = dax();
    put(&m, 0, 1);
    put_unflushed(&m, 0, 2);
    put_unflushed(&m, 8, 3);
    m.drain(D);
    let expected = [[1, 0], [1, 3], [2, 0], [2, 3]];
    assert_eq!(outcomes(&m, [0, 8]), BTreeSet::from(expected), "the flush saw 1 and nothing at 8");
}

#[test]
fn a_flush_covers_the_whole_line_as_it_is() {
    let m = dax();
    put_unflushed(&m, 8, 3);
    put(&m, 0, 1);
    m.drain(D);
    assert_eq!(outcomes(&m, [0, 8]), BTreeSet::from([[1, 3]]));
    put_unflushed(&m, 64, 4);
    put(&m, 0, 2);
    m.drain(D);
    assert_eq!(outcomes(&m, [64]), BTreeSet::from([[0], [4]]), "another line is not covered");
}

#[test]
fn a_drain_is_the_business_of_its_own_thread() {
    let m = dax();
    elsewhere(|| put(&m, 0, 1));
    m.drain(D);
    assert_eq!(persisted(&m, 0), 0, "this thread flushed nothing");
}

#[test]
fn a_late_drain_never_moves_a_line_back() {
    let m = dax();
    put(&m, 0, 1);
    elsewhere(|| {
        put(&m, 0, 2);
        m.drain(D);
    });
    assert_eq!(persisted(&m, 0), 2);
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[2]]), "the newest store drained wins");
}

#[test]
fn a_late_drain_never_moves_a_word_back_when_a_store_followed() {
    let m = dax();
    put(&m, 0, 1);
    elsewhere(|| {
        put(&m, 0, 2);
        m.drain(D);
    });
    put_unflushed(&m, 0, 3);
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[2], [3]]));
}

#[test]
fn a_word_may_hold_any_value_since_it_was_persisted() {
    let m = dax();
    put(&m, 0, 9);
    m.drain(D);
    for value in 1..=3 {
        put(&m, 0, value);
    }
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[9], [1], [2], [3]]));
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[3]]), "older values are gone for good");
}

#[test]
fn a_value_between_two_equal_ones_may_remain() {
    let m = dax();
    put(&m, 0, 5);
    put(&m, 0, 0);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0], [5]]));
    assert_eq!(get(&m, 0), 0);
    assert_eq!(word(m.crash_point().newest().bytes(), 0), 0);
}

#[test]
fn xor_and_zero_are_stores_like_any_other() {
    let m = dax();
    put(&m, 0, 0b1100);
    m.drain(D);
    m.xor(S, 0, &[0b0101]).unwrap();
    assert_eq!(get(&m, 0), 0b1001);
    m.zero(S, 0, 8).unwrap();
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0b1100], [0b1001], [0]]));
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0]]));
}

#[test]
fn less_than_a_word_arrives_byte_by_byte() {
    let m = dax();
    m.put(S, 7, &[0xff; 12]).unwrap();
    let expected = [[0], [0xff], [0xffff], [0x00ff_ffff]];
    assert_eq!(outcomes(&m, [16]), BTreeSet::from(expected), "in the order of addresses");
    assert_eq!(outcomes(&m, [8]).len(), 2, "the word between is whole");
    assert_eq!(outcomes(&m, [0]).len(), 2);
}

#[test]
fn a_switched_off_drain_leaves_its_flushes_to_the_next() {
    let m = dax();
    let off = Site::new("test.off");
    m.elide(off);
    put(&m, 0, 1);
    m.drain(off);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[0], [1]]));
    assert!(m.has_outstanding());
    m.drain(D);
    assert_eq!(outcomes(&m, [0]), BTreeSet::from([[1]]));
    assert!(!m.has_outstanding());
}
