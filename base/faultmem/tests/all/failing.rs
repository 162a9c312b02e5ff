//! Fail-the-nth: each kind of call fails when its turn comes, once or for ever.

use crate::common::*;
use holdfast_faultmem::{FailMode, FaultMedium};
use holdfast_pmem::{MediaCause, Medium, Site};

const H: Site = Site::new("test.heal");

/// One call of each kind; whether each succeeded.
fn one_of_each(m: &FaultMedium) -> Vec<bool> {
    vec![
        m.read(0, &mut [0; 8]).is_ok(),
        m.put(S, 0, &[1; 16]).is_ok(),
        m.xor(S, 0, &[1; 16]).is_ok(),
        m.zero(S, 0, 16).is_ok(),
        m.append(S, 0, &[1; 16]).is_ok(),
        m.sync(D).is_ok(),
        m.grow(2 * 4096).is_ok(),
        m.heal(H, 0, &[0; 4096]).is_ok(),
        m.remap(0, 4096, 4096).is_ok(),
    ]
}

#[test]
fn every_call_can_be_the_one_that_fails() {
    for medium in [dax, file] {
        let m = medium();
        assert!(one_of_each(&m).iter().all(|&ok| ok));
        let calls = m.calls();
        assert_eq!(calls, 9);
        for nth in 1..=calls {
            let expect = |mode| {
                let m = medium();
                m.fail_nth(nth, mode);
                one_of_each(&m)
            };
            let once: Vec<bool> = (1..=calls).map(|call| call != nth).collect();
            assert_eq!(expect(FailMode::Once), once);
            let forever: Vec<bool> = (1..=calls).map(|call| call < nth).collect();
            assert_eq!(expect(FailMode::Forever), forever);
        }
    }
}

#[test]
fn failures_end_when_told() {
    let m = dax();
    m.fail_nth(1, FailMode::Forever);
    assert!(m.read(0, &mut [0]).is_err());
    m.fail_none();
    assert!(m.read(0, &mut [0]).is_ok());
    assert_eq!(m.calls(), 2, "failed calls count");
}

#[test]
fn a_failed_store_has_stored_a_part() {
    let m = dax();
    m.fail_nth(1, FailMode::Once);
    let error = m.put(S, 8, &[7; 16]).unwrap_err();
    assert_eq!((error.at, error.len, error.cause), (8, 16, MediaCause::Poison));
    assert_eq!((get(&m, 8), get(&m, 16)), (0x0707_0707_0707_0707, 0));
}

#[test]
fn a_failed_heal_stays_unclearable_and_changes_nothing() {
    let m = dax();
    m.fail_nth(1, FailMode::Once);
    assert_eq!(m.heal(H, 0, &[7; 4096]).unwrap_err().cause, MediaCause::Unclearable);
    assert_eq!(get(&m, 0), 0);
}

#[test]
fn a_failed_sync_of_memory_drains_nothing() {
    let m = dax();
    put(&m, 0, 1);
    m.fail_nth(2, FailMode::Once);
    assert!(m.sync(D).is_err());
    assert_eq!(persisted(&m, 0), 0);
    assert!(m.has_outstanding());
}
