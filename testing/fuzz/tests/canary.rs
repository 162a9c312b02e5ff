//! The fuzzer itself is tried: targets with a planted fault. A storm that does not convict them, or
//! that needs a sum to be guessed, is no evidence for the others.

use std::time::Duration;

use holdfast_fuzz::drive::{Broken, play, storm};
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

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_planted_panic_is_found_and_repeated() {
    let finding = storm(&PANICS, &[Vec::new()], SOON, 1).finding.expect("a finding");
    assert_eq!(finding.broken, Broken::Panicked("planted".to_owned()));
    assert!(finding.to_string().contains("cargo xtask fuzz --target canary --input "));
    assert_eq!(play(&PANICS, &finding.input), Err(finding));
}

#[test]
fn a_planted_allocation_is_found() {
    let finding = storm(&GREEDY, &[Vec::new()], SOON, 1).finding.expect("a finding");
    assert!(matches!(finding.broken, Broken::Greedy(bytes) if bytes > 1 << 20), "{finding}");
}

#[test]
fn what_is_sound_is_not_convicted() {
    static ALRIGHT: Target = SOUND;
    let done = storm(&ALRIGHT, &[Vec::new()], Duration::from_millis(200), 1);
    assert_eq!(done.finding, None);
    assert!(done.runs > 100, "{}", done.runs);
}
