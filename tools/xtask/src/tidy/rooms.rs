//! What each crate has to show: a purpose in its manifest, the house's lints, a doc to start from.

use anyhow::{Context, Result};

use super::BUDGETS;
use crate::finding::Finding;
use crate::source::Source;
use crate::workspace::Workspace;

/// Every crate without a description, without the workspace's lints, or with a doc too short.
pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for member in &workspace.members {
        let manifest = format!("{}/Cargo.toml", member.room);
        if member.description.as_deref().unwrap_or_default().trim().is_empty() {
            let text = format!("{} has no description: say its purpose in one line", member.name);
            findings.push(Finding::new(&manifest, 0, "manifest", text));
        }
        let text = std::fs::read_to_string(workspace.root.join(&manifest))
            .with_context(|| format!("cannot read {manifest}"))?;
        if !inherits_lints(&text) {
            let text = "add `[lints]` with `workspace = true`: the house's lints hold everywhere";
            findings.push(Finding::new(&manifest, 0, "manifest", text));
        }
        findings.extend(crate_doc(&member.room, sources));
    }
    Ok(findings)
}

/// Whether a manifest takes its lints from the workspace.
fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.any(|line| line == "lints.workspace = true")
        || manifest
            .split("[lints]")
            .nth(1)
            .is_some_and(|rest| rest.trim_start().replace(' ', "").starts_with("workspace=true"))
}

/// What is wrong with the doc a crate opens with: that of `lib.rs`, or of `main.rs` without one.
fn crate_doc(room: &str, sources: &[Source]) -> Option<Finding> {
    let find = |name: &str| {
        let path = format!("{room}/src/{name}");
        sources.iter().find(|source| source.path == path)
    };
    let Some(source) = find("lib.rs").or_else(|| find("main.rs")) else {
        let text = "a crate has src/lib.rs or src/main.rs that parses";
        return Some(Finding::new(room, 0, "crate-doc", text));
    };
    let lines = source.text.lines().take_while(|line| line.starts_with("//!")).count();
    (lines < BUDGETS.crate_doc_lines).then(|| {
        let text = format!(
            "crate doc of {lines} lines; at least {}: purpose, guarantee and what is not covered, \
             picture, vocabulary, life of one operation, tour",
            BUDGETS.crate_doc_lines
        );
        Finding::new(&source.path, 1, "crate-doc", text)
    })
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::*;

    #[test]
    fn lints_are_inherited_or_missed() {
        assert!(inherits_lints("[package]\n[lints]\nworkspace = true\n"));
        assert!(inherits_lints("lints.workspace = true\n"));
        assert!(!inherits_lints("[package]\nversion.workspace = true\n"));
        assert!(!inherits_lints("[lints]\n[dependencies]\nx.workspace = true\n"));
    }

    #[test]
    fn a_crate_doc_has_fifteen_lines() {
        let doc = |lines: usize| vec![at("core/heap/src/lib.rs", &"//! x\n".repeat(lines))];
        assert_eq!(crate_doc("core/heap", &doc(15)), None);
        assert!(crate_doc("core/heap", &doc(14)).is_some());
        assert!(crate_doc("core/logs", &doc(15)).is_some());
    }
}
