//! Figures: medians over rounds, ratios within rounds, percentiles, goals, JSON.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

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
    missed: u32,
    unmeasured: u32,
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
    /// Prints and keeps a figure.
    pub(crate) fn figure(&mut self, name: &str, unit: &str, s: Spread) {
        // Ratios and other small numbers need their decimals.
        let digits = if s.median < 10.0 { 3 } else { 1 };
        let (median, low, high) = (s.median, s.low, s.high);
        println!("{name:<44} {median:>10.digits$} {unit:<6} ({low:.digits$} to {high:.digits$})");
        self.figures.insert(
            name.to_owned(),
            json!({ "median": s.median, "low": s.low, "high": s.high, "unit": unit }),
        );
    }

    /// Prints and keeps a figure, and each round of it for ratios.
    pub(crate) fn rounds(&mut self, name: &str, unit: &str, values: Vec<f64>) {
        self.figure(name, unit, Spread::of(values.clone()));
        self.rounds.insert(name.to_owned(), values);
    }

    /// One figure over another, round by round; nothing if one of them was not measured.
    pub(crate) fn ratio(&self, over: &str, under: &str) -> Option<Spread> {
        let (over, under) = (self.rounds.get(over)?, self.rounds.get(under)?);
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
            None => self.unmeasured(name, &format!("{over} / {under}")),
        }
    }

    /// A goal of which a part is missing; a check does not pass then.
    pub(crate) fn unmeasured(&mut self, name: &str, what: &str) {
        println!("not measured: {name} ({what})");
        self.unmeasured += 1;
    }

    /// Keeps what single operations took, in nanoseconds: the median, and how long the slow ones
    /// were.
    pub(crate) fn percentiles(&mut self, name: &str, mut times: Vec<u32>) {
        times.sort_unstable();
        let Some(max) = times.last().copied() else { return };
        // The smallest time that this many of a thousand operations did not exceed.
        let at = |of: usize| times[(times.len() * of).div_ceil(1000).saturating_sub(1)];
        let (p50, p99, p999) = (at(500), at(990), at(999));
        println!("{name:<44} p50 {p50}  p99 {p99}  p99.9 {p999}  max {max} ns");
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

    /// Prints and keeps a figure that has to keep a limit.
    pub(crate) fn goal(&mut self, name: &str, value: f64, limit: Limit) {
        let (met, sign, bound) = match limit {
            Limit::AtMost(bound) => (value <= bound, "<=", bound),
            Limit::AtLeast(bound) => (value >= bound, ">=", bound),
        };
        let verdict = if met { "met" } else { "missed" };
        self.missed += u32::from(!met);
        println!("goal {name} {value:.3} {sign}{bound} {verdict}");
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
        let all = json!({ "schema": 1, "figures": self.figures });
        Ok(std::fs::write(path, serde_json::to_string_pretty(&all)?)?)
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
