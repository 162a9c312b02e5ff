//! Random mixes of stores, faults, relocation and healing: after everything is drained, what the
//! program sees is what the medium holds, byte for byte, and the log of faults explains the rest.

use crate::common::*;
use holdfast_faultmem::{Clear, Config, FaultKind, FaultMedium, Torn, When};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use proptest::prelude::*;

const PAGES: u64 = 4;
const LEN: u64 = PAGES * PAGE;

#[derive(Debug, Clone)]
enum Step {
    Put { at: u64, bytes: Vec<u8> },
    Xor { at: u64, bytes: Vec<u8> },
    Zero { at: u64, len: u64 },
    Append { at: u64, bytes: Vec<u8> },
    Drain,
    Flip { at: u64, bit: u8 },
    Stray { at: u64, bytes: Vec<u8> },
    Poison { at: u64, able: bool },
    Heal { page: u64, byte: u8 },
    Remap { page: u64, physical: u64 },
    Arm(FaultKind),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || prop_oneof![0..200_u64, 0..LEN + 20];
    let bytes = || prop::collection::vec(any::<u8>(), 0..150);
    let kind = prop_oneof![
        Just(FaultKind::Lost),
        at().prop_map(|to| FaultKind::Misdirected { to }),
        (0..10_u64).prop_map(|words| FaultKind::Torn(Torn::Prefix(words))),
        any::<u64>().prop_map(|seed| FaultKind::Torn(Torn::Subset(seed))),
    ];
    prop_oneof![
        6 => (at(), bytes()).prop_map(|(at, bytes)| Step::Put { at, bytes }),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Step::Xor { at, bytes }),
        1 => (at(), 0..200_u64).prop_map(|(at, len)| Step::Zero { at, len }),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Step::Append { at, bytes }),
        2 => Just(Step::Drain),
        1 => (at(), 0..9_u8).prop_map(|(at, bit)| Step::Flip { at, bit }),
        1 => (at(), bytes()).prop_map(|(at, bytes)| Step::Stray { at, bytes }),
        1 => (at(), any::<bool>()).prop_map(|(at, able)| Step::Poison { at, able }),
        2 => (0..PAGES + 1, any::<u8>()).prop_map(|(page, byte)| Step::Heal { page, byte }),
        1 => (0..PAGES + 1, 0..PAGES).prop_map(|(page, physical)| Step::Remap { page, physical }),
        2 => kind.prop_map(Step::Arm),
    ]
}

/// Performs a step; every refusal is allowed, panics and inconsistencies are not. Answers whether
/// the step left stores in doubt for good.
fn perform(m: &FaultMedium, home: &mut [u64], step: &Step) -> bool {
    let mut in_doubt = false;
    match step {
        Step::Put { at, bytes } => _ = m.put(S, *at, bytes),
        Step::Xor { at, bytes } => _ = m.xor(S, *at, bytes),
        Step::Zero { at, len } => _ = m.zero(S, *at, *len),
        Step::Append { at, bytes } => {
            in_doubt = m.append(S, *at, bytes).is_err() && m.kind() == MediumKind::File;
        }
        Step::Drain => m.drain(D),
        Step::Flip { at, bit } => _ = m.flip_bit(*at, *bit),
        Step::Stray { at, bytes } => _ = m.stray(*at, bytes),
        Step::Poison { at, able } => {
            _ = m.poison(*at, 1, if *able { Clear::Able } else { Clear::Unable });
        }
        Step::Heal { page, byte } => _ = m.heal(S, page * PAGE, &[*byte; PAGE as usize]),
        Step::Remap { page, physical } => {
            if m.remap(page * PAGE, physical * PAGE, PAGE).is_ok() {
                home[*page as usize] = *physical;
            }
        }
        Step::Arm(kind) => m.arm(*kind, When::next()),
    }
    in_doubt
}

/// The pages as the program sees them, bad ones included.
fn seen(m: &FaultMedium, page: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE as usize];
    m.read(page * PAGE, &mut bytes).is_ok().then_some(bytes)
}

fn check(kind: MediumKind, steps: &[Step]) {
    let m = FaultMedium::new(LEN, kind, &Config { seed: 5, ..Config::default() });
    let mut home: Vec<u64> = (0..PAGES).collect();
    let mut in_doubt = false;
    for step in steps {
        in_doubt |= perform(&m, &mut home, step);
        if m.injected().iter().any(|fault| !fault.settled) {
            continue;
        }
        // No write is about to be dropped: the newest image is what the program sees.
        compare(&m, &home, m.crash_point().newest().bytes());
    }
    m.disarm();
    m.sync(D).expect("nothing is made to fail");
    if in_doubt {
        return;
    }
    let point = m.crash_point();
    assert_eq!(point.units(), 0, "all is drained");
    compare(&m, &home, point.persisted().bytes());
}

fn compare(m: &FaultMedium, home: &[u64], image: &[u8]) {
    for (page, physical) in home.iter().enumerate() {
        let bad =
            m.bad_ranges().iter().any(|&(at, len)| (at..at + len).contains(&(page as u64 * PAGE)));
        let seen = seen(m, page as u64);
        assert_eq!(seen.is_none(), bad, "page {page} is listed exactly if it cannot be read");
        if let Some(seen) = seen {
            let start = (physical * PAGE) as usize;
            assert!(seen == image[start..start + PAGE as usize], "page {page} at {physical}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn memory(steps in prop::collection::vec(step(), 1..40)) {
        check(MediumKind::Dax, &steps);
    }

    #[test]
    fn file(steps in prop::collection::vec(step(), 1..40)) {
        check(MediumKind::File, &steps);
    }
}
