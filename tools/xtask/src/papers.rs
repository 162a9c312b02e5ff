//! Mechanisms of the papers against the code: each has a module that exists and a test that exists.
//!
//! `docs/papers.md` holds one row per mechanism: `| id | ... | module | test |`. A module is a path
//! in the tree (`engines/object/src/commit.rs`) or a path in Rust (`object::commit`); a test is the
//! name of a function marked as one, with or without the file it is in
//! (`engines/object/tests/x.rs::name`). A cell may hold several, each between backticks. A
//! mechanism that a later version brings says `planned` in both cells.
//!
//! Two series have rows of their own: what a sheet asks to be tested, `| id | what | test |`, and
//! how a gap of a paper was decided, `| id | gap | decision |`, which the page of the design has in
//! full.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::{Finding, report};
use crate::markdown::{cells, code_spans, prose};
use crate::source::{Kind, Source, Token, read_all};
use crate::workspace::files;

/// The page.
const PAGE: &str = "docs/papers.md";

/// Where the decisions of a series are given in full: an item, a row or a heading for each, that
/// starts with its id.
const DECISIONS: &[(&str, &str)] =
    &[("OG", "docs/design/object.md"), ("LG", "docs/design/mapped.md")];

/// What a row of a series says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `| id | ... | module | test |`
    Built,
    /// `| id | what | test |`
    Asked,
    /// `| id | gap | decision |`
    Decided,
}

/// Rows that there must be: the letters of their ids, how many there are, and what they say.
const SERIES: &[(&str, u32, Shape)] = &[
    ("O", 40, Shape::Built),
    ("OB", 10, Shape::Built),
    ("OG", 16, Shape::Decided),
    ("OT", 16, Shape::Asked),
    ("L", 34, Shape::Built),
    ("LB", 12, Shape::Built),
    ("LG", 15, Shape::Decided),
    ("LT", 14, Shape::Asked),
];

/// What a cell says of a mechanism that is not built yet.
const PLANNED: &str = "planned";

/// What the rows are checked against.
#[derive(Debug)]
struct Tree {
    files: Vec<String>,
    /// Name of a test to the files that have one.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// The pages with the decisions, as in [`DECISIONS`].
    decisions: Vec<String>,
}

/// Rows by what they say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    built: usize,
    planned: usize,
    decided: usize,
}

/// Checks the page; `true` if every mechanism has what its row names.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("no {PAGE}"))?;
    let files = files(root)?;
    let (sources, errors) = read_all(root, &files)?;
    // Without a page, no decision is found in it.
    let read = |(_, page): &(&str, &str)| std::fs::read_to_string(root.join(page));
    let decisions = DECISIONS.iter().map(|page| read(page).unwrap_or_default()).collect();
    let tree = Tree { files, tests: tests(&sources), decisions };
    let (mut findings, counts) = check(&page, &tree);
    findings.extend(errors);
    let Counts { built, planned, decided } = counts;
    let summary = format!("{built} rows built, {planned} planned, {decided} decided");
    Ok(report("papers", findings, &summary))
}

/// Every test of the tree, those in macros included.
fn tests(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        for (at, pair) in source.tokens.windows(2).enumerate() {
            let named = pair[0].text == "fn" && pair[1].kind == Kind::Word;
            if named && is_marked(&source.tokens[..at]) {
                tests.entry(pair[1].text.clone()).or_default().insert(source.path.clone());
            }
        }
    }
    tests
}

/// Whether the tokens end with attributes, one of which is `#[test]`.
fn is_marked(mut before: &[Token]) -> bool {
    while before.last().is_some_and(|token| token.text == "]") {
        let Some(open) = opening(before) else { return false };
        let inside = &before[open + 1..before.len() - 1];
        if matches!(inside, [only] if only.text == "test") {
            return true;
        }
        before = &before[..open.saturating_sub(1)];
    }
    false
}

/// Place of the bracket that the last token closes.
fn opening(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().rposition(|token| {
        match token.text.as_str() {
            "]" => depth += 1,
            "[" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// Everything wrong with the page, and what its rows say.
fn check(page: &str, tree: &Tree) -> (Vec<Finding>, Counts) {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut counts = Counts::default();
    for line in prose(page) {
        let mut refuse = |text: String| {
            findings.push(Finding::new(PAGE, line.number, "papers", text));
        };
        let Some(cells) = cells(line.text) else { continue };
        let Some((id, shape)) = cells.first().and_then(|id| Some((id, shape_of(id)?))) else {
            continue;
        };
        if let Some(first) = seen.insert(id.clone(), line.number) {
            refuse(format!("{id} has a row at line {first} too"));
        }
        let wrong = match shape {
            Shape::Built => wrong_built(&cells, tree, &mut counts),
            Shape::Asked => wrong_asked(&cells, tree, &mut counts),
            Shape::Decided => wrong_decided(&cells, tree, &mut counts),
        };
        wrong.into_iter().for_each(|wrong| refuse(format!("{id}: {wrong}")));
    }
    for (letters, last, _) in SERIES {
        for id in (1..=*last).map(|number| format!("{letters}{number}")) {
            if !seen.contains_key(&id) {
                findings.push(Finding::new(PAGE, 0, "papers", format!("{id} has no row")));
            }
        }
    }
    (findings, counts)
}

/// What a row with this id says, if it is the id of a series.
fn shape_of(cell: &str) -> Option<Shape> {
    let is_of = |letters: &str| {
        cell.strip_prefix(letters)
            .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    SERIES.iter().find(|(letters, ..)| is_of(letters)).map(|(.., shape)| *shape)
}

/// What is wrong with the row of a mechanism.
fn wrong_built(cells: &[String], tree: &Tree, counts: &mut Counts) -> Vec<String> {
    let [_, what, .., module, test] = cells else {
        return vec!["the row ends with `| module | test |`".to_owned()];
    };
    if what.is_empty() {
        return vec!["the row does not say what it is about".to_owned()];
    }
    if module == PLANNED && test == PLANNED {
        counts.planned += 1;
        return Vec::new();
    }
    counts.built += 1;
    wrong_modules(module, tree).into_iter().chain(wrong_tests(test, tree)).collect()
}

/// What is wrong with the row of a test that a sheet asks for.
fn wrong_asked(cells: &[String], tree: &Tree, counts: &mut Counts) -> Vec<String> {
    let [_, what, test] = cells else {
        return vec!["the row is `| id | what | test |`".to_owned()];
    };
    if what.is_empty() {
        return vec!["the row does not say what is tested".to_owned()];
    }
    if test == PLANNED {
        counts.planned += 1;
        return Vec::new();
    }
    counts.built += 1;
    wrong_tests(test, tree)
}

/// What is wrong with the row of a gap.
fn wrong_decided(cells: &[String], tree: &Tree, counts: &mut Counts) -> Vec<String> {
    let [id, gap, decision] = cells else {
        return vec!["the row is `| id | gap | decision |`".to_owned()];
    };
    counts.decided += 1;
    let mut wrong = Vec::new();
    if gap.is_empty() {
        wrong.push("the row does not say what the gap is".to_owned());
    }
    if decision.is_empty() || decision == PLANNED {
        wrong.push("nothing is decided".to_owned());
    }
    let of =
        DECISIONS.iter().zip(&tree.decisions).find(|((letters, _), _)| id.starts_with(letters));
    match of {
        Some((_, text)) if is_given_in_full(id, text) => {}
        Some(((_, page), _)) => {
            wrong.push(format!("{page} has no item, row or heading that starts with {id}"));
        }
        None => wrong.push("no page gives decisions of this series in full".to_owned()),
    }
    wrong
}

/// Whether an item, a row or a heading of a page starts with an id and says something of it.
fn is_given_in_full(id: &str, page: &str) -> bool {
    prose(page).into_iter().any(|line| {
        let start = line.text.trim_start();
        if !start.starts_with(['-', '*', '|', '#']) {
            return false;
        }
        let text = start.trim_start_matches(['-', '*', '|', '#', ' ', '`']);
        let rest = text.strip_prefix(id);
        rest.is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric()) && rest.contains(char::is_alphabetic)
        })
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
    missing.map(|name| format!("there is no test fn {name}, marked as one")).collect()
}

/// Whether a test of this name exists, in this file if the name says one.
fn has_test(name: &str, tree: &Tree) -> bool {
    let (place, function) = name.rsplit_once("::").unwrap_or(("", name));
    let Some(found) = tree.tests.get(function) else { return false };
    let file = place.split("::").next().filter(|file| file.ends_with(".rs"));
    file.is_none_or(|file| found.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let text = "#[test]\n#[ignore = \"x\"]\nfn one() { fn inner() {} }\nfn helper() {}\n\
                    proptest! { /// Two.\n #[test] fn two(x: [u8; 2]) {} }\n// fn three()\n";
        let path = "engines/object/tests/repair.rs";
        let source = Source::parse(path, text.to_owned()).unwrap();
        let files = ["engines/object/src/commit.rs", "surfaces/facade/src/map/mod.rs", path];
        let given = |letters: &str| {
            (1..=15).map(|n| format!("- **{letters}{n}** Decided.\n")).collect::<String>()
        };
        let decisions = DECISIONS.iter().map(|(letters, _)| given(letters)).collect();
        Tree { files: files.map(str::to_owned).to_vec(), tests: tests(&[source]), decisions }
    }

    /// A page on which all rows are in order, but for those with the same id as `row`.
    fn page(row: &str) -> String {
        let mut page = "| id | what | module | test |\n|---|---|---|---|\n".to_owned();
        let id = cells(row.lines().next().unwrap_or_default()).map(|cells| cells[0].clone());
        for (letters, last, shape) in SERIES {
            for number in 1..=*last {
                let this = format!("{letters}{number}");
                let rest = match shape {
                    Shape::Built => "| x | engines/object | one |",
                    Shape::Asked => "| x | one |",
                    Shape::Decided => "| x | y |",
                };
                if id.as_ref() != Some(&this) && !["O1", "OG16"].contains(&this.as_str()) {
                    page += &format!("| {this} {rest}\n");
                }
            }
        }
        page + row + "\n"
    }

    /// Texts of the findings, but for the rows that no test's page has.
    fn texts(row: &str) -> Vec<String> {
        let left_out = |text: &String| !["O1 has no row", "OG16 has no row"].contains(&&**text);
        let found = check(&page(row), &tree()).0.into_iter().map(|finding| finding.text);
        found.filter(left_out).collect()
    }

    #[test]
    fn rows_that_name_what_exists_pass() {
        for row in [
            "| O1 | x | engines/object/src/commit.rs | one |",
            "| O1 | x | `object::commit`, `holdfast::map` | `one`, `two` |",
            "| O1 | x | `holdfast_object::commit` | `engines/object/tests/repair.rs::one` |",
            "| O1 | more | columns | engines/object/ | one, two |",
            "| O1 | x | planned | planned |",
            "| OB7 | x | planned | planned |",
            "| OT3 | x | `one`, `two` |",
            "| OT16 | x | planned |",
            "| OG3 | x | this way |",
        ] {
            assert_eq!(texts(row), [""; 0], "{row}");
        }
    }

    #[test]
    fn rows_are_counted_by_what_they_say() {
        let counts = |row| check(&page(row), &tree()).1;
        let all = Counts { built: 39 + 10 + 16 + 34 + 12 + 14, planned: 1, decided: 15 + 15 };
        assert_eq!(counts("| O1 | x | planned | planned |"), all);
        assert_eq!(counts("| OT9 | x | planned |"), Counts { built: all.built - 1, ..all });
    }

    #[test]
    fn rows_that_must_be_there_are_missed() {
        let empty = check("", &tree()).0;
        assert_eq!(empty.len(), 40 + 10 + 16 + 16 + 34 + 12 + 15 + 14);
        for id in ["O1", "O40", "OB10", "OG16", "OT1", "OT16"] {
            assert!(empty.iter().any(|finding| finding.text == format!("{id} has no row")), "{id}");
        }
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
            ("| O1 | x | engines/object | helper |", "no test fn helper"),
            ("| O1 | x | engines/object | inner |", "no test fn inner"),
            ("| O1 | x | engines/object | `core/heap/tests/x.rs::one` |", "no test fn core"),
            ("| O1 | x | engines/object | |", "no test named"),
            ("| O1 | x | | one |", "no module named"),
            ("| O1 | x | planned | one |", "no module planned"),
            ("| O1 | | engines/object | one |", "what it is about"),
            (
                "| O1 | x | engines/object | one |\n| O2 | x | engines/object | one |",
                "O2 has a row",
            ),
            ("| O1 | x |", "the row ends with"),
            ("| OB3 | x | engines/object | three |", "OB3: there is no test fn three"),
            ("| OT4 | x | three |", "OT4: there is no test fn three"),
            ("| OT4 | x | |", "no test named"),
            ("| OT4 | | one |", "what is tested"),
            ("| OT4 | x | engines/object | one |", "the row is `| id | what | test |`"),
        ] {
            let found = texts(row);
            assert!(found.iter().any(|text| text.contains(part)), "{row}: {found:?}");
        }
    }

    #[test]
    fn gaps_without_a_decision_are_refused() {
        for (row, part) in [
            ("| OG3 | x | |", "nothing is decided"),
            ("| OG3 | x | planned |", "nothing is decided"),
            ("| OG3 | | y |", "what the gap is"),
            ("| OG3 | x |", "the row is `| id | gap | decision |`"),
            // The page of decisions of these tests ends with OG15.
            ("| OG16 | x | y |", "no item, row or heading that starts with OG16"),
        ] {
            let found = texts(row);
            assert!(found.iter().any(|text| text.contains(part)), "{row}: {found:?}");
        }
    }

    #[test]
    fn a_decision_is_an_item_a_row_or_a_heading() {
        for page in ["- **OG1** So.", "| OG1 | so |", "### OG1: so", "* `OG1` so"] {
            assert!(is_given_in_full("OG1", page), "{page}");
        }
        for page in ["", "OG1 so", "- see OG1", "- **OG1**", "- **OG11** So.", "```\n- OG1 so\n```"]
        {
            assert!(!is_given_in_full("OG1", page), "{page}");
        }
    }
}
