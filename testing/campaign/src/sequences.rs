//! All short sequences over an alphabet of steps: which of them a case plays, and whether in the
//! end none was left out.
//!
//! A sequence has a number: first those of one step, then those of two, both in the order of the
//! alphabet, then a sample of three. The long tier plays each in every setting (a world, what is
//! there at first). The CI tier plays all of one step, and of the pairs so many that each step
//! comes first and each comes last; another seed takes others, in other settings.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_workloads::sequences::{Sequences, sample};

use crate::runner::{Case, Tier};
use crate::tally::{Fault, Tally, Violation};

/// Figure: sequences of one step that were played, each setting counted.
pub const ONES: &str = "sequences of one step";
/// Figure: the same of two.
pub const TWOS: &str = "sequences of two steps";
/// Figure: the same of three.
const THREES: &str = "sequences of three steps";

/// What a case leaves in its tally for [`finish`]: the word before tier, subject and numbers.
const PLAYED: &str = "played";

/// How much there is to be played of one subject.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// What is played upon, in one word.
    pub subject: &'static str,
    /// Steps of the alphabet.
    pub letters: u64,
    /// Ways to play a sequence.
    pub settings: u64,
    /// Sequences of three in each setting, in the long tier.
    pub threes: u64,
    /// The CI tier plays one pair in so many.
    pub share: u64,
}

/// A sequence in a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Which setting.
    pub setting: u64,
    /// Which sequence.
    pub number: u64,
}

impl Extent {
    /// Sequences of one or two steps.
    #[must_use]
    pub const fn short(&self) -> u64 {
        self.letters + self.letters * self.letters
    }

    /// Cases of a tier.
    #[must_use]
    pub const fn cases(&self, tier: Tier) -> u64 {
        match tier {
            Tier::Ci => self.letters + self.letters * self.letters / self.share,
            Tier::Long => self.settings * (self.short() + self.threes),
        }
    }

    /// What the case numbered `at` of this subject plays.
    #[must_use]
    pub const fn pick(&self, tier: Tier, seed: u64, at: u64) -> Pick {
        let Self { letters, settings, share, .. } = *self;
        match tier {
            Tier::Long => Pick { setting: at % settings, number: at / settings },
            Tier::Ci => {
                let setting = seed.wrapping_add(at) % settings;
                if at < letters {
                    return Pick { setting, number: at };
                }
                let pair = (at - letters) * share;
                // Another part of the second steps for each first step, so that all have a turn.
                let part = seed.wrapping_add(pair / letters) % share;
                Pick { setting, number: letters + pair + part }
            }
        }
    }

    /// The steps of a sequence.
    #[must_use]
    pub fn steps<T: Clone>(&self, alphabet: &[T], number: u64, seed: u64) -> Vec<T> {
        let all = |length, number: u64| Sequences::new(alphabet, length).nth(number as usize);
        let short = self.short();
        let steps = if number < self.letters {
            all(1, number)
        } else if number < short {
            all(2, number - self.letters)
        } else {
            let drawn = sample(alphabet, 3, self.threes as usize, seed);
            drawn.get((number - short) as usize).cloned()
        };
        steps.unwrap_or_default()
    }

    /// Takes down that a case has played a sequence to its end.
    pub fn note(&self, case: &Case, pick: Pick, tally: &mut Tally) {
        let tier = if matches!(case.tier, Tier::Ci) { "ci" } else { "long" };
        let Pick { setting, number } = pick;
        tally.add(format!("{PLAYED} {tier} {} {setting} {number}", self.subject), 1);
    }
}

/// The subject whose case has this number, and the number among its own.
#[must_use]
pub fn locate(all: &[Extent], tier: Tier, mut number: u64) -> (usize, u64) {
    for (index, extent) in all.iter().enumerate() {
        let cases = extent.cases(tier);
        if number < cases {
            return (index, number);
        }
        number -= cases;
    }
    (0, number % all.first().map_or(1, |extent| extent.cases(tier)).max(1))
}

/// Counts what was played, and convicts a run that left out a sequence it should have played.
pub fn finish(all: &[Extent], tally: &mut Tally) {
    let mut played: BTreeMap<String, BTreeSet<(u64, u64)>> = BTreeMap::new();
    let mut tier = None;
    for figure in tally.figures.keys() {
        let Some((how, subject, pick)) = parse(figure) else { continue };
        tier = Some(how);
        played.entry(subject).or_default().insert(pick);
    }
    tally.figures.retain(|figure, _| parse(figure).is_none());
    let Some(tier) = tier else {
        tally.convict(Violation::new(Fault::Unnoticed, "no sequence was played"));
        return;
    };
    for extent in all {
        let done = played.remove(extent.subject).unwrap_or_default();
        count(extent, tier, &done, tally);
    }
}

fn count(extent: &Extent, tier: Tier, done: &BTreeSet<(u64, u64)>, tally: &mut Tally) {
    let Extent { subject, letters, settings, .. } = *extent;
    let of =
        |from: u64, to: u64| done.iter().filter(|(_, n)| (from..to).contains(n)).count() as u64;
    let (ones, twos) = (of(0, letters), of(letters, extent.short()));
    let threes = of(extent.short(), u64::MAX);
    tally.add(ONES, ones);
    tally.add(TWOS, twos);
    tally.add(THREES, threes);
    let (all_ones, all_twos, wanted_threes) = match tier {
        Tier::Ci => (letters, extent.cases(tier) - letters, 0),
        Tier::Long => (letters * settings, letters * letters * settings, extent.threes * settings),
    };
    let how = if matches!(tier, Tier::Ci) {
        format!("of {}", letters * letters)
    } else {
        format!("in {settings} settings each")
    };
    tally
        .lines
        .push(format!("{subject}: {ones} of one step, {twos} of two {how}, {threes} of three"));
    if (ones, twos, threes) != (all_ones, all_twos, wanted_threes) {
        let wanted = format!("{all_ones}, {all_twos} and {wanted_threes}");
        let story = format!("{subject}: {ones}, {twos} and {threes} sequences of {wanted}");
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
}

/// What [`Extent::note`] took down.
fn parse(figure: &str) -> Option<(Tier, String, (u64, u64))> {
    let words: Vec<&str> = figure.split(' ').collect();
    let [PLAYED, tier, subject, setting, number] = words[..] else { return None };
    let tier = if tier == "ci" { Tier::Ci } else { Tier::Long };
    Some((tier, subject.to_owned(), (setting.parse().ok()?, number.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Extent; 2] = [
        Extent { subject: "many", letters: 16, settings: 8, threes: 5, share: 8 },
        Extent { subject: "few", letters: 3, settings: 2, threes: 1, share: 3 },
    ];

    /// A run of all cases, but for one.
    fn run(tier: Tier, seed: u64, without: Option<u64>) -> Tally {
        let mut tally = Tally::default();
        let cases: u64 = TWO.iter().map(|extent| extent.cases(tier)).sum();
        for number in (0..cases).filter(|number| Some(*number) != without) {
            let (index, at) = locate(&TWO, tier, number);
            let case = Case { seed, number, tier };
            TWO[index].note(&case, TWO[index].pick(tier, seed, at), &mut tally);
        }
        finish(&TWO, &mut tally);
        tally
    }

    #[test]
    fn the_long_tier_plays_each_in_every_setting() {
        let tally = run(Tier::Long, 1, None);
        assert_eq!(tally.violated(), 0, "{:?}", tally.violations);
        assert_eq!(tally.figures[ONES], 16 * 8 + 3 * 2);
        assert_eq!(tally.figures[TWOS], 256 * 8 + 9 * 2);
        assert_eq!(tally.figures[THREES], 5 * 8 + 2);
    }

    #[test]
    fn one_that_is_left_out_is_missed() {
        for tier in [Tier::Ci, Tier::Long] {
            for without in [0, 20, TWO[0].cases(tier)] {
                assert_eq!(run(tier, 3, Some(without)).violated(), 1, "{tier:?} {without}");
            }
        }
        let mut none = Tally::default();
        finish(&TWO, &mut none);
        assert_eq!(none.violated(), 1);
    }

    #[test]
    fn seeds_of_the_ci_tier_come_by_all_pairs_and_each_by_all_steps() {
        let extent = TWO[0];
        let mut all = BTreeSet::new();
        for seed in 0..8 {
            assert_eq!(run(Tier::Ci, seed, None).violated(), 0);
            let pairs: Vec<u64> = (16..extent.cases(Tier::Ci))
                .map(|at| extent.pick(Tier::Ci, seed, at).number - 16)
                .collect();
            let firsts: BTreeSet<u64> = pairs.iter().map(|pair| pair / 16).collect();
            let seconds: BTreeSet<u64> = pairs.iter().map(|pair| pair % 16).collect();
            assert_eq!((firsts.len(), seconds.len()), (16, 16), "seed {seed}");
            all.extend(pairs);
        }
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn numbers_name_sequences_of_one_two_and_three() {
        let extent = Extent { threes: 4, ..TWO[1] };
        let steps = |number| extent.steps(&['a', 'b', 'c'], number, 1);
        assert_eq!((steps(0), steps(2)), (vec!['a'], vec!['c']));
        assert_eq!((steps(3), steps(11)), (vec!['a', 'a'], vec!['c', 'c']));
        let threes: BTreeSet<Vec<char>> = (12..16).map(steps).collect();
        assert!(threes.len() == 4 && threes.iter().all(|steps| steps.len() == 3));
    }
}
