//! Pacing and scheduling, by the numbers.

use holdfast_redundancy::{Pace, Schedule, Scheduler, Trigger};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

proptest! {
    #[test]
    fn a_paced_scrub_keeps_its_rate(
        rate in 1..1u64 << 40, sizes in prop::collection::vec(1..1u64 << 24, 1..50),
    ) {
        let mut pace = Pace::new(Some(rate));
        let (mut now, mut sum) = (SECOND, 0u64);
        for size in sizes {
            now += pace.wait_after(now, size);
            sum += size;
        }
        let paid = u128::from(now - SECOND + SECOND / 10) * u128::from(rate) / u128::from(SECOND);
        prop_assert!(u128::from(sum) <= paid + 50 + u128::from(rate) / u128::from(SECOND) * 50);
    }
}

#[test]
fn waits_are_exact_and_idle_time_is_not_saved_up() {
    let mut pace = Pace::new(Some(1000));
    assert_eq!(pace.wait_after(10 * SECOND, 100), 0, "a tenth of a second is at hand");
    assert_eq!(pace.wait_after(10 * SECOND, 500), SECOND / 2);
    assert_eq!(pace.wait_after(10 * SECOND + SECOND / 4, 0), SECOND / 4);
    assert_eq!(pace.wait_after(100 * SECOND, 1100), SECOND, "90 idle seconds count a tenth");
    assert_eq!(Pace::new(None).wait_after(5, u64::MAX), 0);
    assert!(Pace::new(Some(0)).wait_after(u64::MAX, u64::MAX) == 0, "no overflow");
}

#[test]
fn passes_start_by_demand_time_and_transactions() {
    let schedule = Schedule { every_ns: Some(100), every_transactions: Some(10) };
    let mut scheduler = Scheduler::new(schedule, 1000, 50);
    assert_eq!(scheduler.due(1099, 59), None);
    assert_eq!(scheduler.due(1100, 59), Some(Trigger::Time));
    assert_eq!(scheduler.due(1099, 60), Some(Trigger::Transactions));
    assert_eq!(scheduler.due(0, 0), None, "a clock that went back starts nothing");
    scheduler.demand();
    assert_eq!(scheduler.due(1000, 50), Some(Trigger::Demand));
    scheduler.started(1100, 60);
    assert_eq!(scheduler.due(1199, 69), None);
    assert_eq!(scheduler.due(1200, 69), Some(Trigger::Time));
    scheduler.set_schedule(Schedule::default());
    assert_eq!(scheduler.due(u64::MAX, u64::MAX), None);
}
