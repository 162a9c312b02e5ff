//! The fuzzer itself is tried: targets with a planted fault. A storm that does not convict them, or
//! that needs a sum to be guessed, is no evidence for the others.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_fuzz::drive::{Broken, Finding, SLOW, input, play};
use holdfast_fuzz::storm::{self, Plan, Storm, Until};
use holdfast_fuzz::{Target, memory, script};

#[global_allocator]
static MEMORY: memory::Counting = memory::Counting;

const SOUND: Target = Target {
    name: "canary",
    story: "a planted fault",
    run: |_| {},
    mutate: script::mutate,
    seeds: || vec![Vec::new()],
    longest: 100,
    bound: 1 << 20,
    slow: SLOW,
};
/// Dies of a step with an edge in it.
static PANICS: Target = Target {
    run: |input| {
        let edge = |step: &script::Step| step.value == 1 << 47 && step.flags & 1 == 1;
        assert!(!script::Script::read(input).steps.iter().any(edge), "planted");
    },
    ..SOUND
};
/// Believes a length.
static GREEDY: Target = Target {
    run: |input| {
        let longest = script::Script::read(input).steps.iter().map(|step| step.value).max();
        let believed = longest.unwrap_or(0).min(1 << 26) as usize;
        assert_eq!(std::hint::black_box(vec![1_u8; believed]).len(), believed);
    },
    ..SOUND
};
/// Takes long for an edge, though not for ever.
static SLOTHFUL: Target = Target {
    run: |input| {
        if script::Script::read(input).steps.iter().any(|step| step.value == 0xfff) {
            std::thread::sleep(Duration::from_millis(300));
        }
    },
    slow: Duration::from_millis(200),
    ..SOUND
};
/// Does not end for an edge.
static HANGS: Target = Target {
    run: |input| {
        while script::Script::read(input).steps.iter().any(|step| step.value == 0x1000) {
            std::thread::sleep(Duration::from_millis(1));
        }
    },
    ..SOUND
};
static ALRIGHT: Target = SOUND;

const SOON: Duration = Duration::from_secs(20);

fn plan(targets: &[&'static Target], until: Until) -> Plan {
    let targets = targets.iter().map(|target| (*target, vec![Vec::new()])).collect();
    Plan { targets, until, seed: 1, from: 0, jobs: 1, hang: Duration::from_secs(5), stop: || false }
}

fn stormed(plan: Plan) -> Vec<Storm> {
    storm::run(plan).expect("threads")
}

fn found(target: &'static Target) -> Finding {
    let done = stormed(plan(&[target], Until::Time(SOON)));
    done[0].finding.clone().expect("a finding")
}

#[test]
fn a_planted_panic_is_found_and_repeated() {
    let finding = found(&PANICS);
    assert_eq!(finding.broken, Broken::Panicked("planted".to_owned()));
    assert!(finding.to_string().contains("cargo xtask fuzz --target canary --input "));
    assert_eq!(play(&PANICS, &finding.input), Err(finding));
}

#[test]
fn a_planted_allocation_is_found() {
    let finding = found(&GREEDY);
    assert!(matches!(finding.broken, Broken::Greedy(bytes) if bytes > 1 << 20), "{finding}");
}

#[test]
fn a_planted_slow_run_is_found() {
    let finding = found(&SLOTHFUL);
    assert!(matches!(finding.broken, Broken::Slow(_)), "{finding}");
}

#[test]
fn a_run_that_does_not_end_is_found_and_the_others_go_on() {
    let hang = Duration::from_secs(5);
    let two = plan(&[&HANGS, &ALRIGHT], Until::Runs(20_000));
    let done = stormed(Plan { jobs: 2, hang, ..two });
    let finding = done[0].finding.as_ref().expect("a finding");
    assert!(matches!(finding.broken, Broken::Hung(time) if time >= hang), "{finding}");
    let edge = |step: &script::Step| step.value == 0x1000;
    assert!(script::Script::read(&finding.input).steps.iter().any(edge), "the input that hangs");
    assert_eq!((done[1].runs, &done[1].finding), (20_000, &None));
    // Nor is it forgotten where it keeps the others from their turns.
    let hang = Duration::from_secs(1);
    let alone = stormed(Plan { hang, ..plan(&[&HANGS, &ALRIGHT], Until::Runs(20_000)) });
    assert!(alone[0].finding.is_some());
    // The row of such a storm would be refused if it had fewer inputs than runs.
    assert!(
        alone[0].runs > 0 && alone[0].next >= alone[0].runs,
        "{} to {}",
        alone[0].runs,
        alone[0].next
    );
}

#[test]
fn what_is_sound_is_not_convicted() {
    let done = stormed(plan(&[&ALRIGHT], Until::Time(Duration::from_millis(200))));
    assert_eq!(done[0].finding, None);
    assert!(done[0].runs > 100, "{}", done[0].runs);
}

#[test]
fn a_storm_goes_on_where_it_ended_with_any_number_of_threads() {
    static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    fn note(number: usize, input: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(input);
        SEEN[number].fetch_add(hasher.finish(), Ordering::Relaxed);
    }
    static WHOLE: Target = Target { run: |input| note(0, input), ..SOUND };
    static PARTS: Target = Target { run: |input| note(1, input), ..SOUND };
    let whole = stormed(plan(&[&WHOLE], Until::Runs(3000)));
    let half = plan(&[&PARTS], Until::Runs(1500));
    let first = stormed(Plan { jobs: 2, ..half.clone() });
    let second = stormed(Plan { from: first[0].next, jobs: 3, ..half });
    assert_eq!((whole[0].next, second[0].next), (3000, 3000));
    let seen = SEEN.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    assert_eq!(seen[0], seen[1], "the same inputs");
    assert_ne!(input(&WHOLE, &[Vec::new()], 1, 9), input(&WHOLE, &[Vec::new()], 2, 9));
}
