//! Branches and regions of files, as the tools tell them.
//!
//! A *region* is code without a way out of it in its middle. An arm of a `match` and the way a `?`
//! takes with an error are regions, and no branches: this compiler counts conditions only.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// First line and column, last line and column.
type Place = (u64, u64, u64, u64);

/// The conditions of a file: how often each was so, and how often not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Count(BTreeMap<Place, [u64; 2]>);

impl Count {
    /// Adds what one instance of the code counted.
    pub(super) fn add(&mut self, place: Place, ways: [u64; 2]) {
        let sum = self.0.entry(place).or_default();
        sum.iter_mut().zip(ways).for_each(|(sum, way)| *sum = sum.saturating_add(way));
    }

    /// Ways that were taken, and all.
    pub(super) fn sum(&self) -> (u64, u64) {
        let taken = self.0.values().flatten().filter(|times| **times > 0).count();
        (taken as u64, 2 * self.0.len() as u64)
    }

    /// Ways that were not taken: line, and whether the condition was never so or never not so.
    pub(super) fn missing(&self) -> impl Iterator<Item = (u64, &'static str)> + use<'_> {
        let ways = |(place, ways): (&Place, &[u64; 2])| {
            let line = place.0;
            let names = ["true", "false"].into_iter().zip(*ways);
            names.filter(|(_, times)| *times == 0).map(move |(name, _)| (line, name))
        };
        self.0.iter().flat_map(ways)
    }
}

/// What was counted in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) branches: Count,
    /// How often each region was entered, by the line and column it begins at.
    regions: BTreeMap<(u64, u64), u64>,
}

impl File {
    /// Regions that were entered, and all.
    pub(super) fn regions(&self) -> (u64, u64) {
        let entered = self.regions.values().filter(|times| **times > 0).count();
        (entered as u64, self.regions.len() as u64)
    }

    /// Where regions begin that were never entered: line and column.
    pub(super) fn never(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        self.regions.iter().filter(|(_, times)| **times == 0).map(|(place, _)| *place)
    }

    /// Adds what one instance of the code counted of a region.
    pub(super) fn enter(&mut self, place: (u64, u64), times: u64) {
        let sum = self.regions.entry(place).or_default();
        *sum = sum.saturating_add(times);
    }
}

/// What was counted in each file, by its path in the workspace, without the tests in it.
pub(super) fn counts(root: &Path, report: &Value) -> Result<BTreeMap<String, File>> {
    let mut all = BTreeMap::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let root = fs::canonicalize(root).context("the workspace is gone")?;
    for file in
        report["data"].as_array().into_iter().flatten().flat_map(|data| list(&data["files"]))
    {
        let name = file["filename"].as_str().unwrap_or_default();
        let text = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        let end = tests_from(&text);
        let name = Path::new(name).strip_prefix(&root).unwrap_or(Path::new(name));
        let count: &mut File = all.entry(name.display().to_string()).or_default();
        for branch in list(&file["branches"]) {
            let word = |at: usize| branch[at].as_u64().unwrap_or(0);
            if word(0) < end {
                let place = (word(0), word(1), word(2), word(3));
                count.branches.add(place, [word(4), word(5)]);
            }
        }
        for segment in list(&file["segments"]) {
            // Line, column, count; whether it is counted, begins a region, and is a gap.
            let [line, column, times] = [0, 1, 2].map(|at| segment[at].as_u64().unwrap_or(0));
            let [counted, begins, gap] = [3, 4, 5].map(|at| segment[at].as_bool() == Some(true));
            if line < end && counted && begins && !gap {
                count.enter((line, column), times);
            }
        }
    }
    Ok(all)
}

/// The line at which the tests of a file begin.
fn tests_from(text: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|two| {
        let test = two[0] == "#[cfg(test)]" || two[0].starts_with("#[cfg(all(test,");
        test && two[1].starts_with("mod ") && two[1].ends_with('{')
    });
    tests.map_or(u64::MAX, |line| line as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_begin_where_their_module_does() {
        for (given, line) in [("test", 2), ("all(test, not(loom))", 2), ("loom", u64::MAX)] {
            let text = format!("fn f() {{}}\n#[cfg({given})]\nmod tests {{\n}}\n");
            assert_eq!(tests_from(&text), line, "{given}");
        }
    }

    #[test]
    fn instances_are_put_together_and_tests_left_out() {
        let folder = std::env::temp_dir().join(format!("holdfast-coverage-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = fs::canonicalize(&folder).unwrap().join("one.rs");
        fs::write(&file, "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n").unwrap();
        let branches = serde_json::json!([
            [1, 4, 1, 9, 3, 0, 0, 0, 4],
            [1, 4, 1, 9, 0, 2, 0, 0, 4],
            [2, 4, 2, 9, 0, 0, 0, 0, 4],
            [5, 4, 5, 9, 0, 0, 0, 0, 4],
        ]);
        let segments = serde_json::json!([
            [1, 1, 3, true, true, false],
            [1, 9, 7, true, false, false],
            [2, 1, 0, true, true, true],
            [2, 4, 0, true, true, false],
            [2, 9, 0, false, true, false],
            [5, 4, 2, true, true, false],
        ]);
        let report = serde_json::json!({
            "data": [{ "files": [
                { "filename": file.to_str(), "branches": branches, "segments": segments }
            ] }]
        });
        let counts = counts(&folder, &report).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let count = &counts["one.rs"];
        assert_eq!(count.branches.sum(), (2, 4));
        assert_eq!(count.branches.missing().collect::<Vec<_>>(), [(2, "true"), (2, "false")]);
        assert_eq!(count.regions(), (1, 2));
        assert_eq!(count.never().collect::<Vec<_>>(), [(2, 4)]);
    }
}
