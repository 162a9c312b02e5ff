//! The list of what was run against the product: how often, from which seeds, on which commit, and
//! how often something was wrong.
//!
//! # Guarantee
//!
//! A run that was told to be noted is a row of the list before its program ends, with its
//! violations; what was there before stays as it was, to the byte. The sums above the rows are
//! those of the rows. A list that is not as this crate writes it is refused, and left alone.
//!
//! Not covered: whether a run happened. Rows are added by programs and never by hand; that is a
//! rule for people, and each row names the command and the commit it can be repeated with.
//!
//! # Picture
//!
//! ```text
//!   cargo xtask campaign .. --ledger docs/evidence.md --+
//!   cargo xtask lab .. --ledger docs/evidence.md -------+--> rows --> sums by method and figure
//! ```
//!
//! # Vocabulary
//!
//! *method*: what was done, such as a row of a campaign. *figure*: a count of something that came
//! of it, by name. *violation*: something a checker convicted. Two of its sorts have columns of
//! their own, which must stay zero everywhere: *false reports* (pages called corrupt that nothing
//! had damaged) and *reverted bytes* (legitimate bytes that a repair changed).
//!
//! # Life of one row
//!
//! [`append`] reads the list, checks that it is one, adds the rows, reckons the sums again, writes
//! everything to a file beside it, and renames that over it.
//!
//! # Tour
//!
//! `page.rs` is the format: reading, writing, sums.

mod page;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use page::Page;

/// One thing that was run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Commit of the source, short; with a `+` if the source was changed since.
    pub commit: String,
    /// What was done, such as `mapped writers`.
    pub method: String,
    /// With which seeds and sizes.
    pub how: String,
    /// How often.
    pub count: u64,
    /// What was convicted, the two below included.
    pub violations: u64,
    /// Of these, pages that were called corrupt and were not damaged.
    pub false_reports: u64,
    /// Legitimate bytes that a repair changed.
    pub reverted: u64,
    /// Seconds it took.
    pub seconds: u64,
    /// What else was counted.
    pub figures: BTreeMap<String, u64>,
}

/// Adds rows to the list in a file, which is made if it is not there.
///
/// # Errors
/// The file cannot be read or written, or is no such list: it is left as it was.
pub fn append(path: &Path, rows: &[Row]) -> Result<()> {
    let mut page = match std::fs::read_to_string(path) {
        Ok(text) => Page::parse(&text)
            .with_context(|| format!("{} is no list of what was run", path.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => Page::default(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    page.rows.extend_from_slice(rows);
    let part = path.with_extension("part");
    std::fs::write(&part, page.text())
        .and_then(|()| std::fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The commit of the source in the folder this program was started in; `unknown` without git.
#[must_use]
pub fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // The list itself is changed by being added to.
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs/evidence.md"]);
    if changed.is_some_and(|changed| changed.is_empty()) { commit } else { format!("{commit}+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64) -> Row {
        Row { commit: "abc".to_owned(), method: "m".to_owned(), count, ..Row::default() }
    }

    #[test]
    fn rows_are_added_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        append(&path, &[row(3)]).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        append(&path, &[row(4)]).unwrap();
        let after = std::fs::read_to_string(&path).unwrap();
        let line = |text: &str| text.lines().rfind(|it| it.contains("| 3 |")).unwrap().to_owned();
        assert_eq!(line(&before), line(&after));
        assert!(after.contains("| m | 2 | 7 |"), "{after}");
    }

    #[test]
    fn rows_with_marks_in_their_names_are_added_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        let figures = || BTreeMap::from([("object: signals".to_owned(), 2)]);
        for count in 1..=3 {
            append(&path, &[Row { figures: figures(), ..row(count) }]).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| m | 3 | 6 |") && text.contains("| object signals: 6 |"), "{text}");
    }

    #[test]
    fn what_is_no_list_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        std::fs::write(&path, "# Notes\n").unwrap();
        assert!(append(&path, &[row(3)]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "# Notes\n");
    }
}
