//! Figures: medians over rounds, ratios within rounds, percentiles, goals, JSON.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::mapped::latency::Latency;
use crate::say::say;

/// Which side of its limit a goal has to be on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Map<String, Value>,
    rounds: BTreeMap<String, Vec<f64>>,
    /// Other people's libraries were left out on purpose.
    alone: bool,
    met: u32,
    missed: u32,
    unmeasured: u32,
    left_out: u32,
}

/// Median, lowest and highest of some rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self { median: at(values.len() / 2), low: at(0), high: at(values.len().wrapping_sub(1)) }
    }
}

impl Report {
    /// An empty one. Goals that need other people's libraries count as left out if those take no
    /// part by choice.
    pub(crate) fn of(alone: bool) -> Self {
        Self { alone, ..Self::default() }
    }

    /// Prints and keeps a figure.
    pub(crate) fn figure(&mut self, name: &str, unit: &str, s: Spread) {
        // Ratios and other small numbers need their decimals.
        let digits = if s.median < 10.0 { 3 } else { 1 };
        let (median, low, high) = (s.median, s.low, s.high);
        say!("{name:<44} {median:>10.digits$} {unit:<6} ({low:.digits$} to {high:.digits$})");
        self.figures.insert(
            name.to_owned(),
            json!({ "median": s.median, "low": s.low, "high": s.high, "unit": unit }),
        );
    }

    /// Prints and keeps a figure that was counted once.
    pub(crate) fn count(&mut self, name: &str, unit: &str, count: u64) {
        say!("{name:<44} {count:>10} {unit}");
        let figure = json!({ "median": count, "low": count, "high": count, "unit": unit });
        self.figures.insert(name.to_owned(), figure);
    }

    /// Prints and keeps a figure, and each round of it for ratios.
    pub(crate) fn rounds(&mut self, name: &str, unit: &str, values: Vec<f64>) {
        self.figure(name, unit, Spread::of(values.clone()));
        self.rounds.insert(name.to_owned(), values);
    }

    /// One figure over another, round by round; nothing if one of them was not measured, or not in
    /// every round.
    pub(crate) fn ratio(&self, over: &str, under: &str) -> Option<Spread> {
        let (over, under) = (self.rounds.get(over)?, self.rounds.get(under)?);
        if over.is_empty() || over.len() != under.len() {
            return None;
        }
        Some(Spread::of(over.iter().zip(under).map(|(a, b)| a / b).collect()))
    }

    /// A goal on the median of such ratios; says so if it could not be measured.
    pub(crate) fn ratio_goal(&mut self, name: &str, over: &str, under: &str, limit: Limit) {
        match self.ratio(over, under) {
            Some(ratio) => {
                self.figures.insert(
                    format!("ratio.{name}"),
                    json!({ "median": ratio.median, "low": ratio.low, "high": ratio.high }),
                );
                self.goal(name, ratio.median, limit);
            }
            None => self.absent(name, &format!("{over} / {under}")),
        }
    }

    /// A goal of which a part is missing, because somebody takes no part.
    pub(crate) fn absent(&mut self, name: &str, what: &str) {
        if self.alone {
            self.left_out(name, &format!("--alone: {what}"));
        } else {
            self.unmeasured(name, what);
        }
    }

    /// A goal that could not be judged; a check does not pass then.
    pub(crate) fn unmeasured(&mut self, name: &str, why: &str) {
        self.unmeasured += 1;
        self.without_value(name, "not measured", why);
    }

    /// A goal that is not judged because of what was asked for.
    pub(crate) fn left_out(&mut self, name: &str, why: &str) {
        self.left_out += 1;
        self.without_value(name, "left out", why);
    }

    fn without_value(&mut self, name: &str, how: &str, why: &str) {
        say!("{how}: {name} ({why})");
        let why = format!("{how}: {why}");
        self.figures
            .insert(format!("goal.{name}"), json!({ "value": null, "met": null, "why": why }));
    }

    /// Prints how many goals there were.
    pub(crate) fn summary(&self) {
        let Self { met, missed, unmeasured, left_out, .. } = self;
        say!("goals: {met} met, {missed} missed, {unmeasured} not measured, {left_out} left out");
    }

    /// Keeps what single operations took, in nanoseconds: the median, and how long the slow ones
    /// were.
    pub(crate) fn percentiles(&mut self, name: &str, mut times: Vec<u32>) {
        times.sort_unstable();
        let Some(max) = times.last().copied() else { return };
        // The smallest time that this many of a thousand operations did not exceed.
        let at = |of: usize| times[(times.len() * of).div_ceil(1000).saturating_sub(1)];
        let (p50, p99, p999) = (at(500), at(990), at(999));
        self.keep_latency(name, [p50, p99, p999, max].map(u64::from));
    }

    /// The same of operations that were only counted by their length.
    pub(crate) fn latency(&mut self, name: &str, latency: &Latency) {
        if !latency.is_empty() {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| latency.at(share));
            self.keep_latency(name, [p50, p99, p999, latency.longest()]);
        }
    }

    fn keep_latency(&mut self, name: &str, [p50, p99, p999, max]: [u64; 4]) {
        say!("{name:<44} p50 {p50}  p99 {p99}  p99.9 {p999}  max {max} ns");
        self.figures.insert(
            format!("latency.{name}"),
            json!({ "p50": p50, "p99": p99, "p99.9": p999, "max": max, "unit": "ns" }),
        );
    }

    /// Keeps a remark for whoever reads the file.
    pub(crate) fn remark(&mut self, name: &str, text: Value) {
        self.figures.insert(format!("remark.{name}"), text);
    }

    /// The median of a figure, if it was measured.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.figures.get(name)?.get("median")?.as_f64()
    }

    /// How far the rounds of a figure are apart.
    pub(crate) fn apart(&self, name: &str) -> Option<f64> {
        let figure = self.figures.get(name)?;
        Some(figure.get("high")?.as_f64()? - figure.get("low")?.as_f64()?)
    }

    /// Prints and keeps a figure that has to keep a limit.
    pub(crate) fn goal(&mut self, name: &str, value: f64, limit: Limit) {
        if !value.is_finite() {
            return self.unmeasured(name, "not a number");
        }
        let (met, sign, bound) = match limit {
            Limit::AtMost(bound) => (value <= bound, "<=", bound),
            Limit::AtLeast(bound) => (value >= bound, ">=", bound),
        };
        let verdict = if met { "met" } else { "missed" };
        self.met += u32::from(met);
        self.missed += u32::from(!met);
        say!("goal {name} {value:.3} {sign}{bound} {verdict}");
        self.figures.insert(
            format!("goal.{name}"),
            json!({ "value": value, "limit": format!("{sign}{bound}"), "met": met }),
        );
    }

    /// Goals missed so far.
    pub(crate) fn missed(&self) -> u32 {
        self.missed
    }

    /// Goals that could not be judged so far.
    pub(crate) fn not_judged(&self) -> u32 {
        self.unmeasured
    }

    /// Writes everything to a file.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let Self { met, missed, unmeasured, left_out, .. } = self;
        let goals = json!({
            "met": met, "missed": missed, "not measured": unmeasured, "left out": left_out,
        });
        let all = json!({ "schema": 1, "goals": goals, "figures": self.figures });
        let text = serde_json::to_string_pretty(&all)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut report = Report::default();
        // The third round was slow for both: the ratio of the medians would be 1.
        report.rounds("a", "ns", vec![1.0, 2.0, 40.0]);
        report.rounds("b", "ns", vec![4.0, 2.0, 80.0]);
        let ratio = report.ratio("a", "b").unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.25, 0.5, 1.0));
    }

    #[test]
    fn a_goal_that_lacks_a_figure_is_neither_met_nor_forgotten() {
        let mut report = Report::default();
        report.rounds("a", "ns", vec![1.0]);
        report.ratio_goal("x", "a", "b", Limit::AtMost(1.0));
        assert_eq!((report.missed(), report.not_judged()), (0, 1));
        report.rounds("b", "ns", vec![0.5]);
        report.ratio_goal("x", "a", "b", Limit::AtMost(1.0));
        assert_eq!((report.missed(), report.not_judged()), (1, 1));
    }

    #[test]
    fn what_is_no_number_is_no_goal_met() {
        let mut report = Report::default();
        report.goal("nan", f64::NAN, Limit::AtMost(1.0));
        report.goal("infinite", f64::INFINITY, Limit::AtLeast(1.0));
        assert_eq!((report.met, report.missed(), report.not_judged()), (0, 0, 2));
        assert!(report.figures["goal.nan"]["met"].is_null());
    }

    #[test]
    fn rounds_that_one_side_missed_are_not_paired_with_others() {
        let mut report = Report::default();
        report.rounds("a", "ns", vec![1.0, 2.0]);
        report.rounds("b", "ns", vec![1.0]);
        report.rounds("c", "ns", Vec::new());
        assert!(report.ratio("a", "b").is_none() && report.ratio("c", "c").is_none());
    }

    #[test]
    fn who_leaves_the_others_out_misses_nothing() {
        let mut report = Report::of(true);
        report.rounds("a", "ns", vec![1.0]);
        report.ratio_goal("x", "a", "b", Limit::AtMost(1.0));
        assert_eq!((report.missed(), report.not_judged(), report.left_out), (0, 0, 1));
        report.unmeasured("y", "for another reason");
        assert_eq!(report.not_judged(), 1);
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut report = Report::default();
        report.percentiles("x", (1..=1000).rev().collect());
        let kept = &report.figures["latency.x"];
        assert_eq!(kept["p50"], 500);
        assert_eq!(kept["p99"], 990);
        assert_eq!(kept["p99.9"], 999);
        assert_eq!(kept["max"], 1000);
        report.percentiles("none", Vec::new());
        assert!(!report.figures.contains_key("latency.none"));
    }
}
