//! Workloads in one closure: what they acknowledge counts at once, and what they do last as well.

use holdfast_explore::{Explorer, Hinge, Mapping, Shared, Verdict};
use holdfast_pmem::MediumKind;

fn set(m: &Mapping, at: u64, value: u64) -> Verdict {
    m.store_u64(at, value)?;
    Ok(m.flush(at, 8)?)
}

fn explorer() -> Explorer<Mapping, (u64, u64)> {
    let found = |m: &Mapping| -> Verdict<_> { Ok((m.load_u64(0)?, m.load_u64(64)?)) };
    let open = |medium: Shared| Ok(Mapping::new(medium));
    let check = move |m: &mut Mapping, seen: &holdfast_explore::Seen<_>| seen.agree(&found(m)?);
    Explorer::new("steps", 4096, MediumKind::Dax, open, check).longest(1)
}

#[test]
fn a_workload_acknowledges_in_its_middle() {
    let work = |early: bool| {
        explorer().step("both", move |m, ledger| {
            ledger.attempt(
                |model| model.0 = 1,
                || {
                    set(m, 0, 1)?;
                    if early {
                        m.fence();
                    }
                    Ok(())
                },
            )?;
            ledger.begin(|model| model.1 = 2);
            set(m, 64, 2)?;
            m.fence();
            ledger.ack();
            Ok(())
        })
    };
    work(true).run().assert_clean();
    let failure = work(false).run().failure.expect("acknowledged before it is durable");
    assert_eq!((failure.crashes.len(), failure.crashes[0]), (1, None), "{failure}");
    assert!(matches!(failure.hinge, Hinge::NotDurable { fence: None, .. }), "{failure}");
}

#[test]
fn what_comes_after_the_last_acknowledgement_is_looked_at() {
    let work = explorer().step("and more", |m, ledger| {
        ledger.attempt(
            |model| model.0 = 1,
            || {
                set(m, 0, 1)?;
                m.fence();
                Ok(())
            },
        )?;
        Ok(m.store_u64(64, 9)?)
    });
    let failure = work.run().failure.expect("nobody announced the last store");
    assert_eq!(failure.why, "recovered (1, 9), acknowledged (1, 0)");
    assert!(matches!(failure.hinge, Hinge::TooEarly { fence: None, .. }), "{failure}");
}

#[test]
fn what_is_wrong_whatever_has_arrived_hangs_on_the_last_fence() {
    let work = |fenced: bool| {
        explorer().step("forgets", move |m, ledger| {
            if fenced {
                ledger.begin(|model| model.0 = 1);
                set(m, 0, 1)?;
                m.fence();
                ledger.ack();
            }
            // Nothing is stored for it.
            ledger.begin(|model| model.1 = 2);
            ledger.ack();
            Ok(())
        })
    };
    let failure = work(true).run().failure.expect("nobody stored it");
    let Hinge::Recovery { fence: Some(fence) } = failure.hinge else { panic!("{failure}") };
    assert_eq!(failure.hinge.spots(), [fence]);
    assert!(fence.place.file().ends_with("steps.rs"), "{failure}");
    assert!(failure.to_string().contains(&format!("has arrived since the fence at {fence}")));
    let failure = work(false).run().failure.expect("nobody stored it");
    assert_eq!(failure.hinge, Hinge::Recovery { fence: None }, "{failure}");
}

#[test]
fn errors_and_panics_of_the_closures_are_failures() {
    let work = explorer().step("panics", |_, _| panic!("no way"));
    let why = work.run().failure.expect("it panicked").why;
    assert!(why.contains("panic at ") && why.ends_with("no way"), "{why}");
    let setup = explorer().setup(|_| Err("no room".into())).step("nothing", |_, _| Ok(()));
    assert_eq!(setup.run().failure.expect("refused").why, "setup: no room");
}
