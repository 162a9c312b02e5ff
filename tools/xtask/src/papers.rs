//! Mechanisms of the papers against the code: each has a module that exists and a test that exists.
//!
//! `docs/papers.md` holds one row per mechanism: `| id | ... | module | test |`. A module is a path
//! in the tree (`engines/object/src/commit.rs`) or a path in Rust (`object::commit`); a test is the
//! name of a function, with or without the file it is in (`engines/object/tests/x.rs::name`). A
//! cell may hold several, each between backticks. A mechanism that a later version brings says
//! `planned` in both cells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{Finding, report};
use crate::markdown::{cells, code_spans, prose};
use crate::source::{Kind, Source, read_all};
use crate::workspace::files;

/// The page.
const PAGE: &str = "docs/papers.md";

/// Mechanisms that must each have a row: the letters of their ids, and how many there are.
const SERIES: &[(&str, u32)] = &[("O", 40)];

/// What a cell says of a mechanism that is not built yet.
const PLANNED: &str = "planned";

/// What the rows are checked against.
#[derive(Debug)]
struct Tree {
    files: Vec<String>,
    /// Name of a function to the files that have one.
    functions: BTreeMap<String, BTreeSet<String>>,
}

/// Checks the page; `true` if every mechanism has what its row names.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("no {PAGE}"))?;
    let files = files(root)?;
    let (sources, errors) = read_all(root, &files)?;
    let tree = Tree { files, functions: functions(&sources) };
    let (mut findings, counts) = check(&page, &tree);
    findings.extend(errors);
    let summary = format!("{} mechanisms built, {} planned", counts.0, counts.1);
    Ok(report("papers", findings, &summary))
}

/// Every function of the tree, those in macros included.
fn functions(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut functions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        for pair in source.tokens.windows(2) {
            if pair[0].text == "fn" && pair[1].kind == Kind::Word {
                functions.entry(pair[1].text.clone()).or_default().insert(source.path.clone());
            }
        }
    }
    functions
}

/// Everything wrong with the page, and how many mechanisms are built and planned.
fn check(page: &str, tree: &Tree) -> (Vec<Finding>, (usize, usize)) {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut planned = 0;
    for line in prose(page) {
        let mut refuse = |text: String| {
            findings.push(Finding::new(PAGE, line.number, "papers", text));
        };
        let Some(cells) = cells(line.text) else { continue };
        let Some(id) = cells.first().filter(|id| is_id(id)) else { continue };
        if let Some(first) = seen.insert(id.clone(), line.number) {
            refuse(format!("{id} has a row at line {first} too"));
        }
        let [_, .., module, test] = cells.as_slice() else {
            refuse(format!("{id}: the row ends with `| module | test |`"));
            continue;
        };
        if module == PLANNED && test == PLANNED {
            planned += 1;
            continue;
        }
        for wrong in wrong_modules(module, tree).into_iter().chain(wrong_tests(test, tree)) {
            refuse(format!("{id}: {wrong}"));
        }
    }
    for (letters, last) in SERIES {
        for id in (1..=*last).map(|number| format!("{letters}{number}")) {
            if !seen.contains_key(&id) {
                findings.push(Finding::new(PAGE, 0, "papers", format!("{id} has no row")));
            }
        }
    }
    (findings, (seen.len() - planned, planned))
}

/// Whether a cell is the id of a series.
fn is_id(cell: &str) -> bool {
    SERIES.iter().any(|(letters, _)| {
        cell.strip_prefix(letters)
            .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    })
}

/// The names in a cell: what is between backticks, or what commas part.
fn names(cell: &str) -> Vec<&str> {
    let spans = code_spans(cell);
    let names = if spans.is_empty() { cell.split(',').collect() } else { spans };
    names.into_iter().map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// What is wrong with a cell of modules.
fn wrong_modules(cell: &str, tree: &Tree) -> Vec<String> {
    let names = names(cell);
    if names.is_empty() {
        return vec!["no module named".to_owned()];
    }
    let missing = names.into_iter().filter(|name| !has_module(name, tree));
    missing.map(|name| format!("there is no module {name}")).collect()
}

/// Whether a path of the tree or of Rust leads to a module.
fn has_module(name: &str, tree: &Tree) -> bool {
    if !name.contains("::") {
        let folder = format!("{}/", name.trim_end_matches('/'));
        return tree.files.iter().any(|file| file == name || file.starts_with(&folder));
    }
    let mut parts = name.split("::");
    let krate = parts.next().unwrap_or_default();
    let krate = krate.strip_prefix("holdfast_").unwrap_or(krate);
    let krate = if krate == "holdfast" { "facade" } else { krate };
    let modules = parts.collect::<Vec<_>>().join("/");
    let inside = [format!("/src/{modules}.rs"), format!("/src/{modules}/mod.rs")];
    tree.files.iter().any(|file| {
        let room = file.split('/').nth(1).unwrap_or_default();
        room == krate && inside.iter().any(|end| file.ends_with(end.as_str()))
    })
}

/// What is wrong with a cell of tests.
fn wrong_tests(cell: &str, tree: &Tree) -> Vec<String> {
    let names = names(cell);
    if names.is_empty() {
        return vec!["no test named".to_owned()];
    }
    let missing = names.into_iter().filter(|name| !has_test(name, tree));
    missing.map(|name| format!("there is no test fn {name}")).collect()
}

/// Whether a function of this name exists, in this file if the name says one.
fn has_test(name: &str, tree: &Tree) -> bool {
    let (place, function) = name.rsplit_once("::").unwrap_or(("", name));
    let Some(found) = tree.functions.get(function) else { return false };
    let file = place.split("::").next().filter(|file| file.ends_with(".rs"));
    file.is_none_or(|file| found.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let text = "fn one() {}\nproptest! { #[test] fn two(x: u8) {} }\n// fn three()\n";
        let path = "engines/object/tests/repair.rs";
        let source = Source::parse(path, text.to_owned()).unwrap();
        let files = ["engines/object/src/commit.rs", "surfaces/facade/src/map/mod.rs", path];
        Tree { files: files.map(str::to_owned).to_vec(), functions: functions(&[source]) }
    }

    fn page(row: &str) -> String {
        let mut page = "| id | what | module | test |\n|---|---|---|---|\n".to_owned();
        for number in 2..=40 {
            page += &format!("| O{number} | x | engines/object | one |\n");
        }
        page + row
    }

    fn texts(row: &str) -> Vec<String> {
        check(&page(row), &tree()).0.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn rows_that_name_what_exists_pass() {
        for row in [
            "| O1 | x | engines/object/src/commit.rs | one |",
            "| O1 | x | `object::commit`, `holdfast::map` | `one`, `two` |",
            "| O1 | x | `holdfast_object::commit` | `engines/object/tests/repair.rs::one` |",
            "| O1 | more | columns | engines/object/ | one, two |",
            "| O1 | x | planned | planned |",
        ] {
            assert_eq!(texts(row), [""; 0], "{row}");
        }
        assert_eq!(check(&page("| O1 | x | planned | planned |"), &tree()).1, (39, 1));
    }

    #[test]
    fn rows_that_name_nothing_are_refused() {
        for (row, part) in [
            (
                "| O1 | x | engines/object/src/none.rs | one |",
                "no module engines/object/src/none.rs",
            ),
            ("| O1 | x | `object::none` | one |", "no module object::none"),
            ("| O1 | x | `heap::commit` | one |", "no module heap::commit"),
            ("| O1 | x | engines/obj | one |", "no module engines/obj"),
            ("| O1 | x | engines/object | three |", "no test fn three"),
            ("| O1 | x | engines/object | `core/heap/tests/x.rs::one` |", "no test fn core"),
            ("| O1 | x | engines/object | |", "no test named"),
            ("| O1 | x | | one |", "no module named"),
            ("| O1 | x | planned | one |", "no module planned"),
            ("", "O1 has no row"),
            (
                "| O1 | x | engines/object | one |\n| O2 | x | engines/object | one |",
                "O2 has a row",
            ),
            ("| O1 | x |", "the row ends with"),
        ] {
            let found = texts(row);
            assert!(found.iter().any(|text| text.contains(part)), "{row}: {found:?}");
        }
    }
}
