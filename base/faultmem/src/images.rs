//! Which crash images to look at: all of them where that is possible, else a chosen few.

use std::collections::HashSet;
use std::sync::Arc;

use crate::crash::Image;
use crate::durable::Durable;
use crate::rng::Rng;
use crate::units::Units;

/// Units up to which every subset is taken.
const SUBSET_UNITS: usize = 12;
/// States looked at per unit where there are too many to take each.
const STATES_PER_UNIT: u32 = 8;
/// Streams of random numbers, one per use.
const STREAM_SINGLES: u64 = 1;
const STREAM_REST: u64 = 2;
const STREAM_PAIRS: u64 = 3;
const STREAM_SAMPLES: u64 = 1 << 32;

/// How many crash images of one instant to build.
///
/// If all combinations of states number at most `exhaustive`, exactly these are built. Otherwise:
/// nothing and everything arrived; every subset if there are at most 12 units; each unit alone in
/// each of its states; everything except one unit; pairs alone; everything except a pair; random
/// picks. Equal images are built once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Combinations up to which all are built.
    pub exhaustive: u64,
    /// Most images in which one unit alone arrived, and most in which one alone did not.
    pub singles: usize,
    /// Most images in which two units alone arrived, and most in which two alone did not.
    pub pairs: usize,
    /// Random images.
    pub samples: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { exhaustive: 1 << SUBSET_UNITS, singles: 4096, pairs: 2016, samples: 400, seed: 0 }
    }
}

/// The kinds of images, in the order they are built.
#[derive(Debug)]
enum Plan {
    /// Every combination; the number of an image in mixed radix is its choice of states.
    All { count: u64 },
    Chosen {
        /// Units whose every subset is taken, or 0.
        subset_units: usize,
        /// A unit and the state it alone is in, all others as persisted.
        singles: Vec<(u32, u32)>,
        /// A unit and the state it alone is in, all others newest.
        rest: Vec<(u32, u32)>,
        /// Two units that alone arrived, or alone did not.
        pairs: Vec<(u32, u32)>,
        samples: usize,
    },
}

/// Iterator over the crash images of one instant.
#[derive(Debug)]
pub struct Images {
    durable: Arc<Durable>,
    units: Units,
    plan: Plan,
    seed: u64,
    next: u64,
    /// Fingerprints of the images built. Only asked, never listed.
    seen: HashSet<u64>,
    choice: Vec<u32>,
}

impl Images {
    pub(crate) fn new(durable: Arc<Durable>, units: Units, budget: Budget) -> Self {
        let choice = vec![0; units.len()];
        let plan = Plan::new(&units, &budget);
        Self { durable, units, plan, seed: budget.seed, next: 0, seen: HashSet::new(), choice }
    }

    /// Fills in the choice of states of the image numbered `index`; false behind the last.
    fn choose(&mut self, index: u64) -> bool {
        let units = &self.units;
        let (subset_units, singles, rest, pairs, samples) = match &self.plan {
            Plan::All { count } => {
                return choose_combination(units, index, *count, &mut self.choice);
            }
            Plan::Chosen { subset_units, singles, rest, pairs, samples } => {
                (*subset_units, singles, rest, pairs, *samples)
            }
        };
        let all_newest = |choice: &mut [u32]| {
            for (unit, state) in choice.iter_mut().enumerate() {
                *state = units.newest(unit);
            }
        };
        let choice = &mut self.choice[..];
        choice.fill(0);
        let mut left = index as usize;
        let mut in_stage = |len: usize| {
            let here = (left < len).then_some(left);
            left = left.saturating_sub(if here.is_some() { 0 } else { len });
            here
        };
        if let Some(which) = in_stage(2) {
            if which == 1 {
                all_newest(choice);
            }
        } else if let Some(subset) = in_stage(if subset_units > 0 { 1 << subset_units } else { 0 })
        {
            for (unit, state) in choice.iter_mut().enumerate() {
                *state = if subset >> unit & 1 == 1 { arrived(units, unit) } else { 0 };
            }
        } else if let Some(single) = in_stage(singles.len()) {
            let (unit, state) = singles[single];
            choice[unit as usize] = state;
        } else if let Some(single) = in_stage(rest.len()) {
            let (unit, state) = rest[single];
            all_newest(choice);
            choice[unit as usize] = state;
        } else if let Some(pair) = in_stage(pairs.len()) {
            for unit in <[u32; 2]>::from(pairs[pair]).map(|unit| unit as usize) {
                choice[unit] = arrived(units, unit);
            }
        } else if let Some(pair) = in_stage(pairs.len()) {
            all_newest(choice);
            for unit in <[u32; 2]>::from(pairs[pair]).map(|unit| unit as usize) {
                choice[unit] = 0;
            }
        } else if let Some(sample) = in_stage(samples) {
            choose_at_random(units, self.seed, sample as u64, choice);
        } else {
            return false;
        }
        true
    }

    /// Goes on to the next image that differs from those before: its number. Its choice of states
    /// is filled in.
    fn advance(&mut self) -> Option<u64> {
        loop {
            let index = self.next;
            if !self.choose(index) {
                return None;
            }
            self.next += 1;
            let change = self.choice.iter().enumerate();
            let change = change.fold(0, |sum, (unit, &state)| sum ^ self.units.change(unit, state));
            if self.seen.insert(change) {
                return Some(index);
            }
        }
    }
}

impl Iterator for Images {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        let index = self.advance()?;
        Some(Image::new(&self.durable, &self.units, &self.choice, index))
    }

    /// What is counted is not built either.
    fn count(mut self) -> usize {
        core::iter::from_fn(|| self.advance()).count()
    }

    /// Those that are passed over are not built: who looks at one in a hundred pays for one.
    fn nth(&mut self, n: usize) -> Option<Image> {
        (0..n).try_for_each(|_| self.advance().map(drop))?;
        self.next()
    }
}

impl Plan {
    fn new(units: &Units, budget: &Budget) -> Self {
        let all = 0..units.len();
        let count = all.clone().try_fold(1_u64, |count, unit| {
            count.checked_mul(units.states(unit).into()).filter(|&count| count <= budget.exhaustive)
        });
        if let Some(count) = count {
            return Self::All { count };
        }
        let mut singles = Vec::new();
        let mut rest = Vec::new();
        for unit in all {
            for state in states_to_try(units.states(unit)) {
                if state > 0 {
                    singles.push((unit as u32, state));
                }
                if state != units.newest(unit) {
                    rest.push((unit as u32, state));
                }
            }
        }
        thin(&mut singles, budget.singles, &mut Rng::new(budget.seed, STREAM_SINGLES));
        thin(&mut rest, budget.singles, &mut Rng::new(budget.seed, STREAM_REST));
        let subset_units = if units.len() <= SUBSET_UNITS { units.len() } else { 0 };
        let pairs = if subset_units > 0 { Vec::new() } else { choose_pairs(units.len(), budget) };
        Self::Chosen { subset_units, singles, rest, pairs, samples: budget.samples }
    }
}

/// The states of a unit to look at one by one: all, or the first, the last and some between.
fn states_to_try(states: u32) -> impl Iterator<Item = u32> {
    let tries = states.min(STATES_PER_UNIT);
    let (last, steps) = (u64::from(states - 1), u64::from(tries - 1).max(1));
    (0..u64::from(tries)).map(move |step| (last * step / steps) as u32)
}

/// The state to show that a unit arrived: the newest, or if that equals the persisted one, the
/// last that differs.
fn arrived(units: &Units, unit: usize) -> u32 {
    match units.newest(unit) {
        0 => units.states(unit) - 1,
        newest => newest,
    }
}

/// Keeps a random `most` of the items, in order.
fn thin<T>(items: &mut Vec<T>, most: usize, rng: &mut Rng) {
    let (mut left, mut wanted) = (items.len(), most);
    items.retain(|_| {
        let keep = rng.below(left as u64) < wanted as u64;
        left -= 1;
        wanted -= usize::from(keep);
        keep
    });
}

/// All pairs, or random ones if there are too many.
fn choose_pairs(units: usize, budget: &Budget) -> Vec<(u32, u32)> {
    if units * (units - 1) / 2 <= budget.pairs {
        let firsts = 0..units as u32;
        return firsts.flat_map(|a| (a + 1..units as u32).map(move |b| (a, b))).collect();
    }
    let mut rng = Rng::new(budget.seed, STREAM_PAIRS);
    (0..budget.pairs)
        .map(|_| {
            let a = rng.below(units as u64);
            let b = (a + 1 + rng.below(units as u64 - 1)) % units as u64;
            (a as u32, b as u32)
        })
        .collect()
}

fn choose_combination(units: &Units, index: u64, count: u64, choice: &mut [u32]) -> bool {
    let mut left = index;
    for (unit, state) in choice.iter_mut().enumerate() {
        let states = u64::from(units.states(unit));
        *state = (left % states) as u32;
        left /= states;
    }
    index < count
}

/// One image of an instant, by chance: by turns any subset, few or most units arrived, one alone,
/// all but one.
pub(crate) fn choose_sample(units: &Units, seed: u64, sample: u64) -> Vec<u32> {
    let mut choice = vec![0; units.len()];
    let one = if units.len() == 0 {
        0
    } else {
        Rng::new(seed, STREAM_SAMPLES + sample).below(units.len() as u64) as usize
    };
    match sample % 6 {
        4 if units.len() > 0 => choice[one] = arrived(units, one),
        5 if units.len() > 0 => {
            (0..units.len()).for_each(|unit| choice[unit] = units.newest(unit));
            choice[one] = 0;
        }
        _ => choose_at_random(units, seed, sample, &mut choice),
    }
    choice
}

/// A random state for every unit; samples differ in how much has arrived.
fn choose_at_random(units: &Units, seed: u64, sample: u64, choice: &mut [u32]) {
    let mut rng = Rng::new(seed, STREAM_SAMPLES + sample);
    // In 8ths: mostly half and half, now and then little or much.
    let arrived = match sample % 4 {
        0 => 1,
        1 => 7,
        _ => 4,
    };
    for (unit, state) in choice.iter_mut().enumerate() {
        let others = u64::from(units.states(unit) - 1);
        *state = if rng.below(8) < arrived { 1 + rng.below(others) as u32 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use holdfast_pmem::{Medium, MediumKind, Site};

    use super::*;
    use crate::{Config, FaultMedium};

    #[test]
    fn images_that_are_passed_over_are_those_that_would_have_come() {
        for words in [3, 5, 40_u64] {
            let medium = FaultMedium::new(8192, MediumKind::Dax, &Config::default());
            for word in 0..words {
                // The first store of each changes nothing: some images are equal.
                medium.put(Site::new("test.same"), 8 * word, &[0; 8]).unwrap();
                medium.put(Site::new("test.put"), 8 * word, &[7; 8]).unwrap();
            }
            let budget = Budget { exhaustive: 100, singles: 9, pairs: 5, samples: 7, seed: 3 };
            let all: Vec<Image> = medium.crash_point().images(&budget).collect();
            assert!(all.len() >= 8);
            for step in 1..5 {
                let some = medium.crash_point().images(&budget).skip(1).step_by(step);
                assert!(some.eq(all[1..].iter().cloned().step_by(step)), "{words} {step}");
            }
        }
    }
}
