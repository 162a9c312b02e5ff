//! Figures: medians over rounds, goals, JSON.

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
    missed: u32,
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
        println!("{name:<44} {:>10.1} {unit:<6} ({:.1} to {:.1})", s.median, s.low, s.high);
        self.figures.insert(
            name.to_owned(),
            json!({ "median": s.median, "low": s.low, "high": s.high, "unit": unit }),
        );
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

    /// Writes everything to a file.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let all = json!({ "schema": 1, "figures": self.figures });
        Ok(std::fs::write(path, serde_json::to_string_pretty(&all)?)?)
    }
}
