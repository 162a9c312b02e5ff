//! Who explores nothing has proven nothing, and is told what to do.

use holdfast_explore::{Explorer, Mapping, Replay, Report, Seen, Shared};
use holdfast_pmem::MediumKind;

fn explorer() -> Explorer<Mapping, u64> {
    let open = |medium: Shared| Ok(Mapping::new(medium));
    Explorer::new("nothing", 4096, MediumKind::Dax, open, |_, _| Ok(()))
}

/// One that stores, and never flushes.
fn storing() -> Explorer<Mapping, u64> {
    explorer().op("store", |m| Ok(m.store_u64(0, 1)?), |model| *model = 1)
}

/// What a test that asserts this much says.
fn said(assert: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(assert).expect_err("nothing was explored");
    *panic.downcast::<String>().expect("it says why")
}

#[test]
fn an_exploration_of_nothing_is_not_clean() {
    let all: [(Report, &str); 3] = [
        (explorer().run(), "no operation"),
        (storing().modes(&[]).run(), "no mode"),
        (storing().longest(0).run(), "no sequence"),
    ];
    for (report, why) in all {
        assert!(report.failure.is_none() && report.images == 0, "{report}");
        assert!(!report.is_clean(), "{report}");
        let said = said(|| report.assert_clean());
        assert!(said.contains("NOTHING was explored") && said.contains(why), "{said}");
    }
    storing().run().assert_clean();
    // Drawn sequences are some as well.
    storing().longest(0).samples(1, 7).run().assert_clean();
}

#[test]
fn a_place_that_nobody_comes_by_is_not_left_out() {
    let report = storing().without("typo").run();
    assert!(report.failure.is_none() && report.images > 0 && !report.is_clean(), "{report}");
    assert!(said(|| report.assert_clean()).contains("no place called `typo`"));
}

#[test]
fn a_name_that_a_replay_line_cannot_hold_becomes_one_that_it_can() {
    let of = |name: &str| {
        let open = |medium: Shared| Ok(Mapping::new(medium));
        let bad =
            Explorer::new(name, 4096, MediumKind::Dax, open, |_, seen: &Seen<u64>| seen.agree(&0));
        bad.op("store", |m| Ok(m.store_u64(0, 1)?), |model| *model = 1).run()
    };
    for name in ["", " in blanks ", "a;b'c"] {
        let failure = of(name).failure.expect("what was acknowledged is not there");
        let line = failure.replay.to_string();
        assert_eq!(line.parse::<Replay>().map(|replay| replay.to_string()), Ok(line));
    }
}

#[test]
fn nothing_that_could_be_switched_off_is_not_all_needed() {
    let elisions = storing().elisions();
    elisions.whole.assert_clean();
    assert!(elisions.tried.is_empty(), "{elisions}");
    let said = said(|| elisions.assert_all_needed());
    assert!(said.contains("NOTHING was tried"), "{said}");
    let said = self::said(|| explorer().elisions().assert_all_needed());
    assert!(said.contains("no operation"), "{said}");
}
