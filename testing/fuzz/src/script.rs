//! Inputs as scripts: a head of two bytes, then steps of twelve.
//!
//! The form is fixed so that a change of one step leaves the others what they were: with lengths
//! inside, one wrong byte would turn everything behind it into something else.

use arbitrary::{Arbitrary, Unstructured};
use holdfast_workloads::Rng;

/// Bytes of the head.
pub const HEAD: usize = 2;
/// Bytes of a step.
pub const STEP: usize = 12;

/// Numbers at which programs go wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x2000,
    0xffff,
    u32::MAX as u64,
    1 << 47,
    (1 << 48) - 1,
    1 << 62,
    u64::MAX,
];

/// One thing to be done; each target says what its numbers mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Arbitrary)]
pub struct Step {
    /// Where: the number of a field, a key.
    pub place: u16,
    /// What.
    pub verb: u8,
    /// How.
    pub flags: u8,
    /// With which number.
    pub value: u64,
}

impl Step {
    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn any(rng: &mut Rng) -> Self {
        let [place, verb, flags] = [0; 3].map(|_| rng.next_u64());
        let value = number(rng, place);
        Self { place: place as u16, verb: verb as u8, flags: flags as u8, value }
    }

    fn change(&mut self, rng: &mut Rng) {
        match rng.below(7) {
            0 => self.place = rng.next_u64() as u16,
            1 => self.place = self.place.wrapping_add(rng.below(9) as u16).wrapping_sub(4),
            2 => self.verb = rng.next_u64() as u8,
            3 => self.flags ^= 1 << rng.below(8),
            4 => self.flags = rng.next_u64() as u8,
            _ => self.value = number(rng, self.value),
        }
    }
}

/// A number near an edge, near what was there, or any.
fn number(rng: &mut Rng, old: u64) -> u64 {
    let near = rng.below(9).wrapping_sub(4);
    match rng.below(4) {
        0 => rng.pick(&EDGES).map_or(0, |edge| edge.wrapping_add(near)),
        1 => old.wrapping_add(near),
        2 => old ^ 1 << rng.below(64),
        _ => rng.next_u64() >> rng.below(64),
    }
}

/// An input, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// What to begin with, and how.
    pub head: [u8; HEAD],
    /// In order.
    pub steps: Vec<Step>,
}

impl Script {
    /// Reads an input. What is missing of the head or of the last step is zeros.
    #[must_use]
    pub fn read(input: &[u8]) -> Self {
        let mut rest = Unstructured::new(input);
        let head = rest.arbitrary().unwrap_or_default();
        let mut steps = Vec::new();
        while !rest.is_empty() {
            steps.push(Step::arbitrary(&mut rest).unwrap_or_default());
        }
        Self { head, steps }
    }

    /// The input that reads as this.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = self.head.to_vec();
        for step in &self.steps {
            bytes.extend(step.place.to_le_bytes());
            bytes.extend([step.verb, step.flags]);
            bytes.extend(step.value.to_le_bytes());
        }
        bytes
    }
}

/// Changes a script and keeps its form.
#[must_use]
pub fn mutate(input: &[u8], most: usize, rng: &mut Rng) -> Vec<u8> {
    let mut script = Script::read(input);
    let room = most.saturating_sub(HEAD) / STEP;
    for _ in 0..=rng.below(3) {
        let steps = &mut script.steps;
        let at = rng.below(steps.len() as u64 + 1) as usize;
        match rng.below(8) {
            0 => script.head[rng.below(HEAD as u64) as usize] = rng.next_u64() as u8,
            1 | 2 => steps.insert(at, Step::any(rng)),
            3 if at < steps.len() => drop(steps.remove(at)),
            4 if at < steps.len() => steps.insert(at, steps[at]),
            5 if at > 0 && at < steps.len() => steps.swap(at, at - 1),
            _ if at < steps.len() => steps[at].change(rng),
            _ => steps.push(Step::any(rng)),
        }
    }
    script.steps.truncate(room);
    script.write()
}

/// Scripts to begin with: for each of so many beds none and one step of every verb, sealed and not.
#[must_use]
pub fn seeds(beds: u8, verbs: u8) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for bed in 0..beds {
        all.push(Script { head: [bed, 0], steps: Vec::new() }.write());
        for verb in 0..verbs {
            // Spread over the fields, by an odd factor.
            let place = (u16::from(bed) * 31 + u16::from(verb)).wrapping_mul(40_503);
            let step = |flags| Step { place, verb, flags, value: u64::from(verb) << 9 | 1 };
            all.push(Script { head: [bed, verb], steps: vec![step(verb % 4)] }.write());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut rng = Rng::new(3);
        let mut input = Vec::new();
        for _ in 0..1000 {
            input = mutate(&input, 200, &mut rng);
            assert!(input.len() <= 200);
            assert_eq!(Script::read(&input).write(), input);
        }
        assert_eq!(Script::read(&[7]).head, [7, 0]);
        assert_eq!(Script::read(&[0, 0, 5]).steps, [Step { place: 5, ..Step::default() }]);
    }

    #[test]
    fn every_part_is_changed_at_some_time() {
        let mut rng = Rng::new(5);
        let old = Script { head: [1, 2], steps: vec![Step { value: 9, ..Step::default() }; 3] };
        let mut seen = [false; 6];
        for _ in 0..2000 {
            let new = Script::read(&mutate(&old.write(), 400, &mut rng));
            seen[0] |= new.head != old.head;
            seen[1] |= new.steps.len() < old.steps.len();
            seen[2] |= new.steps.len() > old.steps.len();
            seen[3] |= new.steps.iter().any(|step| step.value != 9);
            seen[4] |= new.steps.iter().any(|step| step.flags & 1 != 0);
            seen[5] |= new.steps.iter().any(|step| step.verb != 0);
        }
        assert_eq!(seen, [true; 6]);
    }
}
