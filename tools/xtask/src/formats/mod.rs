//! Offset tables in code against offset tables in the docs: they say the same, or one is wrong.
//!
//! In code, each structure is a `FIELDS_NAME` list in a `format.rs` of core, engines or the
//! library. In the docs, each is a table in `docs/formats/*.md` behind a line
//! `<!-- format: CRATE NAME -->`. Both sides must be there, agree on offset, size, name and order,
//! and leave no byte unnamed.

mod code;
mod pages;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::finding::{Finding, report};
use crate::source::read_all;
use crate::workspace::files;

/// Name of the rule in findings.
const RULE: &str = "formats";

/// Which structure: the crate's folder name and the structure's name.
type Key = (String, String);

/// One field as the code has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    at: u64,
    len: u64,
}

impl Field {
    /// Whether the field only says that its bytes mean nothing yet.
    fn is_reserved(&self) -> bool {
        self.name.starts_with("reserved")
    }
}

/// One structure as the code has it.
#[derive(Debug)]
struct Structure {
    key: Key,
    path: String,
    line: usize,
    fields: Vec<Field>,
}

/// One row of a table in the docs.
#[derive(Debug, Clone)]
struct Row {
    line: usize,
    field: Field,
    meaning: String,
    fault: String,
}

/// One table in the docs.
#[derive(Debug)]
struct Table {
    key: Key,
    path: String,
    line: usize,
    rows: Vec<Row>,
}

/// Both sides, and what was wrong with reading them.
#[derive(Debug)]
struct Sides {
    code: Vec<Structure>,
    pages: Vec<Table>,
    findings: Vec<Finding>,
}

/// Compares the two sides; `true` if they agree.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut sides = read(root)?;
    let findings = compare(&sides);
    sides.findings.extend(findings);
    let fields: usize = sides.code.iter().map(|structure| structure.fields.len()).sum();
    let summary = format!("{} structures, {fields} fields", sides.code.len());
    Ok(report("formats", sides.findings, &summary))
}

/// Prints every structure of the code as a table for the docs, with the words the docs have.
pub(crate) fn print(root: &Path) -> Result<bool> {
    let sides = read(root)?;
    for structure in &sides.code {
        let table = sides.pages.iter().find(|table| table.key == structure.key);
        println!("{}", markdown(structure, table));
    }
    for finding in &sides.findings {
        eprintln!("{finding}");
    }
    Ok(sides.findings.is_empty())
}

/// Reads the `format.rs` files of core, engines and the library, and the pages.
fn read(root: &Path) -> Result<Sides> {
    let files = files(root)?;
    let wanted = |path: &&String| {
        let rooms = ["core/", "engines/", "surfaces/facade/"];
        rooms.iter().any(|room| path.starts_with(room)) && path.ends_with("/format.rs")
    };
    let formats: Vec<String> = files.iter().filter(wanted).cloned().collect();
    let (sources, mut findings) = read_all(root, &formats)?;
    let code = code::structures(&sources, &mut findings);
    let mut pages = Vec::new();
    let wanted = |path: &&String| path.starts_with("docs/formats/") && path.ends_with(".md");
    for path in files.iter().filter(wanted) {
        let page = std::fs::read_to_string(root.join(path))?;
        pages.extend(pages::tables(path, &page, &mut findings));
    }
    Ok(Sides { code, pages, findings })
}

/// Everything the two sides disagree about, and what each has wrong by itself.
fn compare(sides: &Sides) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tables: BTreeMap<&Key, &Table> = BTreeMap::new();
    for table in &sides.pages {
        if let Some(first) = tables.insert(&table.key, table) {
            let text =
                format!("{} has a table at {}:{} too", show(&table.key), first.path, first.line);
            findings.push(Finding::new(&table.path, table.line, RULE, text));
        }
        if !sides.code.iter().any(|structure| structure.key == table.key) {
            let text = format!(
                "no FIELDS_{} in a format.rs of crate {}: add it, or drop the table",
                table.key.1, table.key.0
            );
            findings.push(Finding::new(&table.path, table.line, RULE, text));
        }
    }
    for structure in &sides.code {
        findings.extend(holes(structure));
        match tables.get(&structure.key) {
            Some(table) => findings.extend(differences(structure, table)),
            None => {
                let text = format!(
                    "no table `<!-- format: {} {} -->` in docs/formats: `cargo xtask formats \
                     --print` drafts one",
                    structure.key.0, structure.key.1
                );
                findings.push(Finding::new(&structure.path, structure.line, RULE, text));
            }
        }
    }
    findings
}

/// Overlaps, unnamed bytes and repeated names of one structure.
fn holes(structure: &Structure) -> Vec<Finding> {
    let mut texts = Vec::new();
    let mut end = 0;
    for (at, field) in structure.fields.iter().enumerate() {
        if field.at < end {
            texts.push(format!("{} at {} overlaps what ends at {end}", field.name, field.at));
        } else if field.at > end {
            texts.push(format!("bytes {end}..{} have no name: add a field `reserved`", field.at));
        }
        if field.len == 0 {
            texts.push(format!("{} has no bytes", field.name));
        }
        end = field.at.saturating_add(field.len);
        let repeated = structure.fields[..at].iter().any(|other| other.name == field.name);
        if repeated && !field.is_reserved() {
            texts.push(format!("two fields are called {}", field.name));
        }
    }
    texts
        .into_iter()
        .map(|text| {
            let text = format!("FIELDS_{}: {text}", structure.key.1);
            Finding::new(&structure.path, structure.line, RULE, text)
        })
        .collect()
}

/// Where the table says something else than the code, and cells that say nothing.
fn differences(structure: &Structure, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut refuse = |line: usize, text: String| {
        findings.push(Finding::new(&table.path, line, RULE, text));
    };
    let mut fields = structure.fields.iter();
    for row in &table.rows {
        match fields.next() {
            Some(field) if *field == row.field => {}
            Some(field) => refuse(
                row.line,
                format!(
                    "{}: the page has {}, the code {}",
                    show(&table.key),
                    describe(&row.field),
                    describe(field)
                ),
            ),
            None => refuse(row.line, format!("{} is not in the code", describe(&row.field))),
        }
        for (cell, column) in [(&row.meaning, "meaning"), (&row.fault, "fault it answers")] {
            if says_nothing(cell) && !row.field.is_reserved() {
                refuse(row.line, format!("{}: {column} is empty: say it", row.field.name));
            }
        }
    }
    for field in fields {
        refuse(table.line, format!("{}: {} is missing", show(&table.key), describe(field)));
    }
    findings
}

/// Whether a cell is empty or only a dash.
fn says_nothing(cell: &str) -> bool {
    cell.chars().all(|c| !c.is_alphanumeric())
}

/// A field in words.
fn describe(field: &Field) -> String {
    format!("`{}` at {} of {} bytes", field.name, field.at, field.len)
}

/// A structure's name in words.
fn show(key: &Key) -> String {
    format!("{} {}", key.0, key.1)
}

/// The table of a structure, with meaning and fault from the page where names agree.
fn markdown(structure: &Structure, table: Option<&Table>) -> String {
    let mut lines = vec![
        format!("<!-- format: {} {} -->", structure.key.0, structure.key.1),
        pages::HEAD.to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    let mut rows: Vec<&Row> = table.map(|table| table.rows.iter().collect()).unwrap_or_default();
    for Field { name, at, len } in &structure.fields {
        // Taken out once used, so that repeated `reserved` rows keep their own words.
        let row = rows.iter().position(|row| row.field.name == *name).map(|at| rows.remove(at));
        let (meaning, fault) =
            row.map_or(("", ""), |row| (row.meaning.as_str(), row.fault.as_str()));
        lines.push(format!("| {at} | {len} | `{name}` | {meaning} | {fault} |"));
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests;
