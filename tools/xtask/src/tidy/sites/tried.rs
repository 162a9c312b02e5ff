//! Who switches a site off: the campaign goes through those of core and engines by itself (its row
//! `mutants` fails if one has no killer). Those below and above are switched off by tests, which
//! have to name them. And no sync of the system is without a name.

use std::collections::BTreeSet;

use super::Definition;
use crate::finding::Finding;
use crate::source::{Kind, Source};

/// Sites that no test can miss, and why they are there all the same.
const MISSED_BY_NOBODY: [(&str, &str); 4] = [
    ("faultmem.medium.grow", "a name for lists: the sync of a growth is pmem.file.grown"),
    ("pmem.serve.prepared", "for speed: what it leaves is synced by the next sync"),
    ("facade.live.store", "a program's store: what is to be durable is synced"),
    ("facade.live.store-behind", "the same, behind the mapping"),
];

/// Files that may sync without a name, and why.
const UNNAMED: [(&str, &str); 5] = [
    ("base/pmem/src/call.rs", "the names are asked for there"),
    ("surfaces/cli/src/commands/export.rs", "text for the user, no redundancy hangs on it"),
    ("surfaces/guard/src/covers.rs", "for speed: the pass syncs what it covers"),
    ("surfaces/guard/src/drill.rs", "plays the program that is guarded"),
    ("surfaces/guard/src/file/rest.rs", "for speed: the close syncs what it covers"),
];

/// Sites outside core and engines that no test names, and syncs without a name.
pub(super) fn check(definitions: &[Definition<'_>], sources: &[Source]) -> Vec<Finding> {
    let tried = named_in_tests(sources);
    let mut findings = Vec::new();
    for definition in definitions {
        let Some(name) = definition.name.as_deref() else { continue };
        if !definition.source.is_source_of(&["base", "surfaces"]) {
            continue;
        }
        if !is_excused(name) && !tried.contains(name) {
            let text = format!("{name} is switched off by no test");
            findings.push(Finding::new(&definition.source.path, definition.line, "sites", text));
        }
    }
    findings.extend(sources.iter().flat_map(unnamed));
    findings
}

/// Whether it is on the list of what no test can miss.
pub(super) fn is_excused(name: &str) -> bool {
    MISSED_BY_NOBODY.iter().any(|(excused, _)| *excused == name)
}

/// Every text that stands in a test.
fn named_in_tests(sources: &[Source]) -> BTreeSet<&str> {
    let tokens = sources.iter().flat_map(|source| {
        let literals = source.tokens.iter().filter(|token| token.kind == Kind::Literal);
        literals.filter(|token| source.is_test_line(token.line))
    });
    let wrong = sources.iter().filter(|source| source.path.starts_with("testing/campaign/"));
    let wrong = wrong.flat_map(|source| source.tokens.iter());
    tokens.chain(wrong).map(|token| token.text.trim_matches('"')).collect()
}

/// Syncs of the system in the product that no test can leave out.
fn unnamed(source: &Source) -> Vec<Finding> {
    let product = source.is_source_of(&["base", "core", "engines", "surfaces"]);
    if !product || UNNAMED.iter().any(|(path, _)| *path == source.path) {
        return Vec::new();
    }
    let calls: [&[&str]; 3] = [
        &[".", "sync_all", "(", ")"],
        &[".", "sync_data", "(", ")"],
        &["fs", ":", ":", "fdatasync"],
    ];
    let at =
        (0..source.tokens.len()).filter(|&at| calls.iter().any(|call| source.starts(at, call)));
    let lines = at.map(|at| source.tokens[at].line).filter(|&line| !source.is_test_line(line));
    let text = "a sync without a name: write call::sync_all(SITE, file) of holdfast-pmem";
    lines.map(|line| Finding::new(&source.path, line, "sites", text.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::at;
    use super::super::check;

    fn texts(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<_> = files.iter().map(|(path, text)| at(path, text)).collect();
        check(&sources).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_site_of_the_base_is_named_by_a_test() {
        let site = "fn f(m: &M) { m.drain(Site::new(\"pmem.file.F1\")); }";
        let product = ("base/pmem/src/file.rs", site);
        let found = texts(&[product]);
        assert!(found.len() == 1 && found[0].contains("by no test"), "{found:?}");
        let test = ("base/pmem/tests/file.rs", "fn f() { off(\"pmem.file.F1\"); }");
        assert_eq!(texts(&[product, test]), [""; 0]);
    }

    #[test]
    fn a_sync_has_a_name() {
        for call in ["file.sync_all()", "file.sync_data()", "rustix::fs::fdatasync(&file)"] {
            let text = format!("fn f() {{ {call}; }}");
            let found = texts(&[("base/pmem/src/file.rs", &text)]);
            assert!(found.len() == 1 && found[0].contains("without a name"), "{found:?}");
            assert_eq!(texts(&[("base/pmem/tests/file.rs", &text)]), [""; 0]);
        }
    }
}
