//! Who may depend on whom: one table, and the check of the workspace against it.
//!
//! Dependencies only point down. A crate that the table does not know is refused, so that every
//! new room is placed on purpose. Engines never depend on each other; nothing that ships depends on
//! testing or tools, except tests on the three crates made for tests.

use anyhow::Result;

use crate::finding::{Finding, report};
use crate::workspace::{Kind, Member, Workspace};

/// The groups, bottom first.
const GROUPS: &[&str] = &["base", "core", "engines", "sim", "surfaces", "testing", "tools"];

/// Stands for every crate of a lower group.
const BELOW: &str = "*";

/// What the tests of any crate may use besides what the crate itself may.
const FOR_TESTS: &[&str] = &["faultmem", "oracle", "workloads"];

/// Groups whose tests may use anything below them: they are where whole systems are tested.
const WHOLE_SYSTEM: &[&str] = &["surfaces", "testing", "tools"];

/// One crate: its room, and the crates it may use, each by the last part of its room.
#[derive(Debug, Clone, Copy)]
struct Row {
    room: &'static str,
    uses: &'static [&'static str],
}

const fn row(room: &'static str, uses: &'static [&'static str]) -> Row {
    Row { room, uses }
}

/// Every crate the design places, those not built yet included. Bottom first: a row uses only
/// rows above it.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    row("base/codes",           &[]),
    row("base/sync",            &[]),
    row("base/pmem",            &["codes", "sync"]),
    row("base/faultmem",        &["pmem", "sync"]),

    row("core/derive",          &[]),
    row("core/layout",          &["codes", "derive"]),
    row("core/redundancy",      &["layout", "codes", "pmem", "sync"]),
    row("core/logs",            &["redundancy", "layout", "codes", "pmem", "sync"]),
    row("core/heap",            &["logs", "redundancy", "layout", "codes", "pmem", "sync"]),
    row("core/reclaim",         &["sync"]),
    row("core/txn",             &["layout"]),

    row("engines/mapped",       &["redundancy", "layout", "codes", "pmem", "sync"]),
    row("engines/object",       &["heap", "logs", "redundancy", "layout", "codes", "pmem", "txn",
                                  "sync"]),
    row("engines/mvcc",         &["heap", "logs", "redundancy", "layout", "codes", "pmem", "txn",
                                  "reclaim", "sync"]),
    row("engines/fs",           &["logs", "redundancy", "layout", "codes", "pmem", "sync"]),

    row("sim/trace",            &["pmem"]),
    row("sim/hierarchy",        &["trace", "codes"]),

    row("surfaces/collections", &["txn", "layout"]),
    row("surfaces/facade",      &["object", "mapped", "heap", "logs", "collections", "txn",
                                    "layout", "pmem",
                                  "derive",
                                  "redundancy"]),
    row("surfaces/guard-wire",  &["pmem"]),
    row("surfaces/preload",     &["guard-wire", "pmem"]),
    row("surfaces/guard",       &["guard-wire", "preload", "mapped", "redundancy", "pmem"]),
    row("surfaces/fuse",        &["fs"]),
    row("surfaces/capi",        &["facade"]),
    row("surfaces/python",      &["facade"]),
    row("surfaces/cli",         &["facade", "guard", "preload", "pmem"]),

    row("testing/oracle",       &[BELOW]),
    row("testing/workloads",    &[BELOW]),
    row("testing/evidence",     &[]),
    row("testing/campaign",     &[BELOW, "oracle", "workloads", "evidence"]),
    row("testing/models",       &[BELOW, "evidence"]),
    row("testing/explore",      &[BELOW, "workloads"]),
    row("testing/bench",        &[BELOW, "oracle", "workloads", "evidence"]),
    row("testing/fuzz",         &[BELOW, "oracle", "workloads", "campaign", "evidence"]),

    row("tools/lab",            &["workloads", "evidence"]),
    row("tools/xtask",          &["evidence"]),
];

impl Row {
    /// The last part of the room, which is how the table calls the crate.
    fn short(&self) -> &'static str {
        self.room.rsplit('/').next().unwrap_or(self.room)
    }

    /// The name of the package: users add `holdfast`, and tools are not for them.
    fn package(&self) -> String {
        match self.short() {
            "facade" => "holdfast".to_owned(),
            tool if self.room.starts_with("tools/") => tool.to_owned(),
            short => format!("holdfast-{short}"),
        }
    }
}

/// Checks every member of the workspace; `true` if all edges are allowed.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let findings = check(&workspace.members);
    let edges: usize = workspace.members.iter().map(|member| member.dependencies.len()).sum();
    let summary = format!("{} crates, {edges} edges between them", workspace.members.len());
    Ok(report("layers", findings, &summary))
}

/// Every edge that the table does not allow, and every crate it does not know.
fn check(members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let manifest = format!("{}/Cargo.toml", member.room);
        let mut refuse = |text: String| findings.push(Finding::new(&manifest, 0, "layers", text));
        let Some(row) = find(&member.name) else {
            refuse(format!(
                "crate {} has no row in the table of tools/xtask/src/layers.rs: add it, in room \
                 {}, with what it may use",
                member.name, member.room
            ));
            continue;
        };
        if row.room != member.room {
            refuse(format!("crate {} belongs in {}, not here", member.name, row.room));
        }
        for dependency in &member.dependencies {
            if !allowed(row, &dependency.name, dependency.kind) {
                refuse(refusal(row, &dependency.name, dependency.kind));
            }
        }
    }
    findings
}

/// Says why an edge is refused and what is allowed instead.
fn refusal(row: &Row, name: &str, kind: Kind) -> String {
    let what = match kind {
        Kind::Normal => "may not depend on",
        Kind::Dev => "may not use in tests",
    };
    let why = match find(name) {
        None => "which is not a crate of this workspace's table".to_owned(),
        Some(to) if group(to) > group(row) => {
            format!("which is above it ({} over {})", GROUPS[group(to)], GROUPS[group(row)])
        }
        Some(to) if group(to) == group(row) && row.room.starts_with("engines/") => {
            "its sibling: engines never import each other".to_owned()
        }
        Some(_) => "which its row does not list".to_owned(),
    };
    let may = if row.uses.is_empty() { "nothing".to_owned() } else { row.uses.join(", ") };
    format!("{} {what} {name}, {why}; its row allows: {may}", row.package())
}

/// Whether the row may use the package `name` for this purpose.
fn allowed(row: &Row, name: &str, kind: Kind) -> bool {
    let Some(to) = find(name) else { return false };
    let listed = row.uses.contains(&to.short());
    let below = group(to) < group(row);
    match kind {
        Kind::Normal => listed || below && row.uses.contains(&BELOW),
        Kind::Dev => {
            let whole = WHOLE_SYSTEM.contains(&GROUPS[group(row)]);
            listed || FOR_TESTS.contains(&to.short()) || below && whole
        }
    }
}

/// The row of a package.
fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.package() == name)
}

/// Height of a row's group.
fn group(row: &Row) -> usize {
    GROUPS
        .iter()
        .position(|group| row.room.strip_prefix(group).is_some_and(|rest| rest.starts_with('/')))
        .expect("every room of the table lies in a group (tested)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn member(name: &str, room: &str, uses: &[(&str, Kind)]) -> Member {
        let dependencies = uses
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: *kind })
            .collect();
        let (name, room) = (name.to_owned(), room.to_owned());
        Member { name, room, description: None, dependencies }
    }

    fn refused(name: &str, room: &str, on: &str, kind: Kind) -> Option<String> {
        let findings = check(&[member(name, room, &[(on, kind)])]);
        findings.first().map(|finding| finding.text.clone())
    }

    #[test]
    fn the_table_itself_only_points_down() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(group(row) < GROUPS.len());
            let short = row.short();
            assert!(TABLE[..at].iter().all(|other| other.short() != short), "{short} twice");
            for name in row.uses.iter().filter(|name| **name != BELOW) {
                let to = TABLE[..at].iter().find(|other| other.short() == *name);
                let to = to.unwrap_or_else(|| panic!("{short} uses {name}, not above it"));
                assert!(group(to) <= group(row), "{short} -> {name}");
                assert!(group(row) != 2 || group(to) != 2, "engine {short} -> engine {name}");
                assert!(group(to) != 5 || group(row) >= 5, "{short} -> testing");
            }
        }
        assert!(TABLE.iter().map(group).is_sorted());
    }

    #[test]
    fn an_edge_up_is_refused() {
        let text = refused("holdfast-pmem", "base/pmem", "holdfast-heap", Kind::Normal).unwrap();
        assert!(text.contains("above it (core over base)"), "{text}");
        let text =
            refused("holdfast-cli", "surfaces/cli", "holdfast-oracle", Kind::Normal).unwrap();
        assert!(text.contains("testing over surfaces"), "{text}");
    }

    #[test]
    fn an_unlisted_edge_down_is_refused() {
        let text = refused("holdfast-txn", "core/txn", "holdfast-pmem", Kind::Normal).unwrap();
        assert!(text.contains("its row allows: layout"), "{text}");
        assert!(refused("holdfast-codes", "base/codes", "holdfast-pmem", Kind::Normal).is_some());
        assert!(refused("xtask", "tools/xtask", "holdfast-layout", Kind::Normal).is_some());
    }

    #[test]
    fn engines_never_use_each_other() {
        for kind in [Kind::Normal, Kind::Dev] {
            let text = refused("holdfast-mvcc", "engines/mvcc", "holdfast-object", kind).unwrap();
            assert!(text.contains("never import each other"), "{text}");
        }
    }

    #[test]
    fn unknown_and_misplaced_crates_are_refused() {
        let findings = check(&[member("holdfast-utils", "core/utils", &[])]);
        assert!(findings[0].text.contains("no row in the table"), "{findings:?}");
        let findings = check(&[member("holdfast-txn", "engines/txn", &[])]);
        assert!(findings[0].text.contains("belongs in core/txn"), "{findings:?}");
        let text = refused("holdfast-txn", "core/txn", "elsewhere", Kind::Normal).unwrap();
        assert!(text.contains("not a crate of this workspace"), "{text}");
    }

    #[test]
    fn tests_may_use_the_faulty_medium_and_the_oracles_and_no_more() {
        for name in FOR_TESTS {
            let name = format!("holdfast-{name}");
            assert_eq!(refused("holdfast-heap", "core/heap", &name, Kind::Dev), None);
            assert!(refused("holdfast-heap", "core/heap", &name, Kind::Normal).is_some());
        }
        assert!(refused("holdfast-heap", "core/heap", "holdfast-object", Kind::Dev).is_some());
        assert!(refused("holdfast-heap", "core/heap", "holdfast-txn", Kind::Dev).is_some());
        let cli = |name| refused("holdfast-cli", "surfaces/cli", name, Kind::Dev);
        assert_eq!(cli("holdfast-heap"), None);
        assert!(cli("holdfast-campaign").is_some());
    }

    #[test]
    fn testing_may_use_everything_below() {
        for name in ["holdfast-codes", "holdfast-object", "holdfast", "holdfast-oracle"] {
            let text = refused("holdfast-campaign", "testing/campaign", name, Kind::Normal);
            assert_eq!(text, None);
        }
        let up = refused("holdfast-oracle", "testing/oracle", "holdfast-bench", Kind::Normal);
        assert!(up.is_some());
    }
}
