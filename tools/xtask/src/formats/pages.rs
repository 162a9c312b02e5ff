//! Reads the offset tables of `docs/formats/*.md`.

use super::{Field, Key, RULE, Row, Table};
use crate::finding::Finding;
use crate::markdown::{Line, cells, is_rule, prose};

/// The heading every table has.
pub(super) const HEAD: &str = "| offset | size | name | meaning | fault it answers |";

/// Every table behind a `<!-- format: CRATE NAME -->` line; what is malformed becomes a finding.
pub(super) fn tables(path: &str, page: &str, findings: &mut Vec<Finding>) -> Vec<Table> {
    let lines = prose(page);
    let mut tables = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(marker) = line.text.trim().strip_prefix("<!-- format:") else { continue };
        let mut refuse = |line: usize, text: String| {
            findings.push(Finding::new(path, line, RULE, text));
        };
        let Some(key) = key(marker) else {
            refuse(line.number, "write `<!-- format: CRATE NAME -->`".to_owned());
            continue;
        };
        let mut rest = lines[at + 1..].iter().skip_while(|line| line.text.trim().is_empty());
        let head = rest.next().and_then(|line| cells(line.text));
        let rule = rest.next().and_then(|line| cells(line.text));
        if head != cells(HEAD) || !rule.is_some_and(|rule| is_rule(&rule)) {
            refuse(line.number, format!("no table headed `{HEAD}` follows"));
            continue;
        }
        let mut rows = Vec::new();
        for line in rest {
            match cells(line.text).map(|cells| row(line, &cells)) {
                Some(Ok(row)) => rows.push(row),
                Some(Err(text)) => refuse(line.number, text),
                None => break,
            }
        }
        tables.push(Table { key, path: path.to_owned(), line: line.number, rows });
    }
    tables
}

/// Crate and structure of a marker.
fn key(marker: &str) -> Option<Key> {
    let mut words = marker.trim().strip_suffix("-->")?.split_whitespace();
    let (krate, name) = (words.next()?, words.next()?);
    let krate = krate.strip_prefix("holdfast-").unwrap_or(krate);
    words.next().is_none().then(|| (krate.to_owned(), name.to_owned()))
}

/// A row from its cells.
fn row(line: &Line<'_>, cells: &[String]) -> Result<Row, String> {
    let [at, len, name, meaning, fault] = cells else {
        return Err(format!("{} cells; the table has 5 columns", cells.len()));
    };
    let field = Field {
        name: name.trim_matches('`').to_owned(),
        at: number(at).ok_or_else(|| format!("offset {at:?} is not a number"))?,
        len: number(len).ok_or_else(|| format!("size {len:?} is not a number"))?,
    };
    Ok(Row { line: line.number, field, meaning: meaning.clone(), fault: fault.clone() })
}

/// A number as the pages write it: decimal or hex, with or without backticks and underscores.
fn number(cell: &str) -> Option<u64> {
    let digits = cell.trim_matches('`').replace('_', "");
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}
