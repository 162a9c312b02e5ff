//! Which files count, and the branches of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Modules by what they do, each with its files.
pub(super) const MODULES: &[(&str, &[&str])] = &[
    (
        "recovery",
        &[
            "core/logs/src/scan.rs",
            "core/logs/src/numbers.rs",
            "engines/object/src/recover.rs",
            "engines/object/src/redo.rs",
            "engines/object/src/settle.rs",
            "engines/object/src/overflow.rs",
            "engines/mapped/src/recover.rs",
            "engines/mapped/src/take.rs",
        ],
    ),
    (
        "repair",
        &[
            "core/redundancy/src/columns.rs",
            "core/redundancy/src/copies.rs",
            "core/redundancy/src/intent.rs",
            "core/redundancy/src/pages.rs",
            "core/redundancy/src/pages/verdict.rs",
            "core/redundancy/src/parity.rs",
            "core/redundancy/src/progress.rs",
            "engines/object/src/bring_back.rs",
            "engines/object/src/copies.rs",
            "engines/object/src/halves.rs",
            "engines/object/src/mend_unit.rs",
            "engines/object/src/newer.rs",
            "engines/object/src/repair.rs",
            "engines/object/src/scrub.rs",
            "engines/object/src/sweep.rs",
            "engines/mapped/src/heal.rs",
            "engines/mapped/src/repair.rs",
            "engines/mapped/src/scrub.rs",
        ],
    ),
    (
        "open",
        &[
            "core/heap/src/directory.rs",
            "core/heap/src/table.rs",
            "core/heap/src/verify.rs",
            "core/redundancy/src/mirror.rs",
            "core/redundancy/src/record.rs",
            "core/redundancy/src/remap.rs",
            "core/redundancy/src/superblock.rs",
            "core/redundancy/src/zone.rs",
            "engines/object/src/geometry.rs",
            "engines/object/src/log.rs",
            "engines/object/src/open.rs",
            "engines/mapped/src/check.rs",
            "engines/mapped/src/look.rs",
            "engines/mapped/src/side.rs",
            "surfaces/facade/src/protect/area.rs",
        ],
    ),
    (
        "parse",
        &[
            "core/layout/src/bytes.rs",
            "core/layout/src/mirrored.rs",
            "core/layout/src/ptr.rs",
            "core/layout/src/region.rs",
            "core/layout/src/remap.rs",
            "core/layout/src/superblock.rs",
            "core/logs/src/entry.rs",
            "core/logs/src/record.rs",
            "core/redundancy/src/event.rs",
            "core/redundancy/src/events.rs",
            "engines/mapped/src/header.rs",
            "engines/mapped/src/live.rs",
            "engines/mapped/src/region.rs",
            "surfaces/facade/src/protect/extent.rs",
            "surfaces/facade/src/protect/pointer.rs",
            "surfaces/guard-wire/src/message.rs",
        ],
    ),
];

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

/// Branches of each file, by its path in the workspace, without those of the tests in it.
pub(super) fn counts(root: &Path, report: &Value) -> Result<BTreeMap<String, Count>> {
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
        let count: &mut Count = all.entry(name.display().to_string()).or_default();
        for branch in list(&file["branches"]) {
            let word = |at: usize| branch[at].as_u64().unwrap_or(0);
            if word(0) < end {
                count.add((word(0), word(1), word(2), word(3)), [word(4), word(5)]);
            }
        }
    }
    Ok(all)
}

/// The line at which the tests of a file begin.
fn tests_from(text: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|two| {
        two[0] == "#[cfg(test)]" && two[1].starts_with("mod ") && two[1].ends_with('{')
    });
    tests.map_or(u64::MAX, |line| line as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let report = serde_json::json!({
            "data": [{ "files": [{ "filename": file.to_str(), "branches": branches }] }]
        });
        let counts = counts(&folder, &report).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let count = &counts["one.rs"];
        assert_eq!(count.sum(), (2, 4));
        assert_eq!(count.missing().collect::<Vec<_>>(), [(2, "true"), (2, "false")]);
    }
}
