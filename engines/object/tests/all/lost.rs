//! Who asks for what is lost, and asks again, keeps nobody else from anything: all that lies over
//! its columns is tried once.

use crate::common::{Filled, TestPool, filled, get};
use holdfast_faultmem::{Clear, FailMode};
use holdfast_layout::RawPtr;
use holdfast_object::{CreateOptions, Error, Parity, ScrubControl, ScrubOptions};
use holdfast_pmem::{Medium, PAGE};
use holdfast_txn::{Transaction, TxError};

const LEN: u64 = 3_000;
/// Where one is damaged: behind its first granule, whose sum lies elsewhere.
const HURT: u64 = 1_500;

/// Calls of the medium while an object is read that is lost.
fn calls(pool: &TestPool, of: RawPtr) -> u64 {
    let before = pool.medium().calls();
    get(pool, of).unwrap_err();
    pool.medium().calls() - before
}

#[test]
fn asking_again_for_what_is_lost_costs_next_to_nothing() {
    let options = CreateOptions { parity: Parity::P, rows: 40, ..CreateOptions::tiny(2 << 20) };
    let f = filled(&options, LEN);
    let (one, other, at) = f.pair(HURT);
    let Filled { pool, objects, .. } = f;
    let (of, bytes) = &objects[one];
    pool.medium().stray(of.offset() + HURT, &[0xa5; 16]).unwrap();
    pool.medium().stray(at, &[0x5a; 16]).unwrap();
    let (first, second) = (calls(&pool, *of), calls(&pool, *of));
    assert!(second * 6 < first, "{first} calls, and {second} the second time");
    // All else is there.
    for (p, bytes) in objects.iter().filter(|(p, _)| ![*of, objects[other].0].contains(p)) {
        assert_eq!(get(&pool, *p).as_ref().ok(), Some(bytes));
    }
    // Once the other is what it was, this one can be made good, by whoever asks.
    let inside = (at - objects[other].0.offset()) as usize;
    pool.medium().stray(at, &objects[other].1[inside..inside + 16]).unwrap();
    assert_eq!(get(&pool, *of).as_ref().ok(), Some(bytes));
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
}

/// A page cannot be read. An object that goes on in the next one is lost, since too much of that is
/// gone; whoever asks for another one on the first page is served at once.
#[test]
fn what_lies_beside_something_lost_is_served_at_once() {
    let options = CreateOptions { rows: 10, ..CreateOptions::tiny(1 << 20) };
    let f = filled(&options, 700);
    let crosses = |of: &RawPtr| of.offset() / PAGE != (of.offset() + 699) / PAGE;
    let (lost, _) = f.objects.iter().skip(30).find(|(of, _)| crosses(of)).unwrap();
    let next = f.zone.place((lost.offset() / PAGE + 1) * PAGE).unwrap();
    let medium = f.pool.medium();
    for row in [next.row, next.row + 1] {
        medium.poison(f.zone.at(row, next.col), PAGE, Clear::Able).unwrap();
    }
    medium.poison(lost.offset() / PAGE * PAGE, PAGE, Clear::Able).unwrap();
    let beside = |of: &RawPtr| of.offset() / PAGE == lost.offset() / PAGE && of != lost;
    let (of, bytes) = f.objects.iter().find(|(of, _)| beside(of)).unwrap();
    assert_eq!(get(&f.pool, *of).unwrap(), *bytes);
    let refused = get(&f.pool, *lost);
    assert!(matches!(refused, Err(Error::Tx(TxError::Lost { .. }))), "{refused:?}");
}

/// A page is read that cannot be read. What lies beside somebody's object there is lost with
/// another row, which is found while the page is mended: that is no answer about the object.
#[test]
fn a_neighbour_that_is_lost_is_no_answer_about_who_is_asked_for() {
    let options = CreateOptions { rows: 10, ..CreateOptions::tiny(1 << 20) };
    let f = filled(&options, 700);
    let page_of = |of: &RawPtr| of.offset() / PAGE;
    let inside = |of: &RawPtr| page_of(of) == (of.offset() + 699) / PAGE;
    let pairs = f.objects.windows(2);
    let mut pairs = pairs.filter(|pair| pair.iter().all(|(of, _)| inside(of)));
    let pair = pairs.find(|pair| page_of(&pair[0].0) == page_of(&pair[1].0)).unwrap();
    let [(of, bytes), (neighbour, _)] = pair else { unreachable!("windows of two") };
    let place = f.zone.place(neighbour.offset() + 300).unwrap();
    let (_, at) = f.beside(place.row, place.col, 16).unwrap();
    f.pool.medium().stray(at, &[0x5a; 16]).unwrap();
    f.pool.medium().poison(page_of(of) * PAGE, PAGE, Clear::Able).unwrap();
    assert_eq!(&get(&f.pool, *of).unwrap(), bytes);
    let refused = get(&f.pool, *neighbour);
    assert!(matches!(refused, Err(Error::Tx(TxError::Lost { .. }))), "{refused:?}");
}

/// While a damaged object is read, one call of the medium fails, whichever: it is served all the
/// same.
#[test]
fn a_call_that_fails_once_keeps_nobody_from_what_can_be_made_good() {
    let options = CreateOptions { rows: 10, ..CreateOptions::tiny(1 << 20) };
    let read = |nth: Option<u64>| {
        let f = filled(&options, 700);
        let (of, bytes) = &f.objects[20];
        let medium = f.pool.medium();
        medium.stray(of.offset() + 300, &[0xa5; 16]).unwrap();
        let before = medium.calls();
        if let Some(nth) = nth {
            medium.fail_nth(before + nth, FailMode::Once);
        }
        assert_eq!(&get(&f.pool, *of).unwrap(), bytes, "call {nth:?}");
        medium.calls() - before
    };
    let calls = read(None);
    assert!(calls > 100, "{calls} calls");
    for nth in 0..calls {
        read(Some(nth));
    }
}

/// With P and Q: the last write of either was lost, and then the page that it was for.
#[test]
fn a_page_is_not_made_up_from_parity_that_is_older_where_the_other_knows_better() {
    let options = CreateOptions { rows: 10, parity: Parity::PQ, ..CreateOptions::tiny(1 << 20) };
    for (q, number) in [(false, 3), (true, 3), (false, 57), (true, 57)] {
        let f = filled(&options, 100);
        let (of, bytes) = &f.objects[number];
        let page = f.zone.place(of.offset()).unwrap().col / PAGE * PAGE;
        let parity = if q { f.zone.q_at(page) } else { f.zone.p_at(page) };
        let (medium, mut before) = (f.pool.medium(), vec![0; PAGE as usize]);
        medium.read(parity, &mut before).unwrap();
        f.pool.run(|tx| tx.write_bytes(*of, 8, &[7; 8])).unwrap();
        medium.stray(parity, &before).unwrap();
        medium.poison(of.offset() / PAGE * PAGE, PAGE, Clear::Able).unwrap();
        let mut right = bytes.clone();
        right[8..16].fill(7);
        assert_eq!(get(&f.pool, *of).unwrap(), right, "Q is older: {q}");
        // The parity that was older is made anew.
        let control = ScrubControl::default();
        let scrub = || f.pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
        let done = scrub();
        assert_eq!((done.lost, done.undecided), (0, 0), "Q is older: {q}");
        assert!(scrub().report.is_clean(), "Q is older: {q}");
        assert_eq!(get(&f.pool, *of).unwrap(), right);
    }
}
