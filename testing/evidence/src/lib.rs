//! The list of what was run against the product: how often, from which seeds, on which commit, and
//! how often something was wrong.
//!
//! # Guarantee
//!
//! A run that was told to be noted is a row of the list before its program ends, with its
//! violations. If somebody stops it, it may be none: `stop.rs`. What was there before stays as it
//! was, to the byte. The sums above the rows are those of the rows. A list that is not as this
//! crate writes it is refused, and left alone.
//!
//! Not covered: whether a run happened. Rows are added by programs and never by hand; that is a
//! rule for people, and each row names what was run, its seed and the commit.
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
//! their own, which must be zero in all that is open: *false reports* (what was called damaged and
//! nothing had damaged) and *reverted bytes* (legitimate bytes that a repair changed). A method
//! that cannot see such a thing has no number there. *open*: a row with any of them, as long as no
//! later run of the same method and seed on another commit, in which no less was done, was clean;
//! where chance decides what a method meets, as long as what was clean since is less than thrice as
//! much. *known*: of a source that can be looked at again. *goal*: what all known runs together
//! should come to.
//!
//! # Life of one row
//!
//! Whoever runs something makes a [`Begun`] first, since rows carry the commit of the beginning.
//! [`append`] reads the list, checks that it is one, adds the rows, reckons goals and sums again,
//! writes everything to a file beside it, and renames that over it.
//!
//! # Tour
//!
//! `page.rs` is the format: reading, writing, sums. `goals.rs` is the table of goals. `mended.rs`
//! tells which rows are open, `begun.rs` of which commit a run is, `known.rs` whether that can be
//! looked at again. `stop.rs` is Ctrl-C, of all programs that add rows.

mod begun;
mod goals;
mod known;
mod least;
mod mended;
mod page;
pub mod stop;

pub use begun::Begun;
pub use goals::{LOOM_MODELS, unlisted};
pub use least::{least, variants};
pub use mended::open;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context, Result};

use page::Page;

/// One thing that was run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// Commit of the source when the run began, short, with a `+` if the source was changed since;
    /// then its tree.
    pub commit: String,
    /// What was done, such as `mapped writers`.
    pub method: String,
    /// With which seeds and sizes.
    pub how: String,
    /// How often.
    pub count: u64,
    /// What was convicted, the two below included.
    pub violations: u64,
    /// Of these, reports of damage where nothing was damaged; nothing if the method cannot see any.
    pub false_reports: Option<u64>,
    /// Legitimate bytes that a repair changed; nothing if the method cannot see any.
    pub reverted: Option<u64>,
    /// Seconds it took.
    pub seconds: u64,
    /// What else was counted; by a name that ends with [`SHARE`], a share.
    pub figures: BTreeMap<String, u64>,
}

/// Ends the name of a figure that is a share. Those of several runs do not add up, so sums are
/// without them.
pub const SHARE: &str = " in 1000";

/// Figure: how many were asked for, of a run that ended with what it found.
pub const ASKED: &str = "asked for";

impl Row {
    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let none = |column: Option<u64>| column.unwrap_or(0) == 0;
        self.violations == 0 && none(self.false_reports) && none(self.reverted)
    }

    /// The same for programs, as one line, with what was found in words.
    #[must_use]
    pub fn json(&self, findings: &[String]) -> String {
        let row = serde_json::json!({
            "commit": self.commit,
            "method": self.method,
            "how": self.how,
            "count": self.count,
            "violations": self.violations,
            "false_reports": self.false_reports,
            "reverted": self.reverted,
            "seconds": self.seconds,
            "figures": self.figures,
            "findings": findings,
        });
        row.to_string()
    }

    pub(crate) fn is_long(&self) -> bool {
        mended::part(&self.how, "tier long").is_some()
    }

    /// The one case that was run, if it was not all.
    pub(crate) fn case(&self) -> Option<&str> {
        mended::part(&self.how, "case ")?.strip_prefix("case ")
    }

    /// Whether somebody stopped it.
    pub(crate) fn was_stopped(&self) -> bool {
        mended::part(&self.how, "stopped ").is_some()
    }

    /// Whether nothing was left out, or drawn that could be gone through.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_long() && self.case().is_none()
    }
}

/// Whether a method is meant by a name, or by what stands before a `*`.
fn is_meant(pattern: &str, method: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => method.starts_with(begin),
        None => method == pattern,
    }
}

/// The rows of the list in a text.
///
/// # Errors
/// It is no such list.
pub fn rows(text: &str) -> Result<Vec<Row>> {
    Ok(Page::parse(text)?.rows)
}

/// The list of these rows, as the programs write it.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    Page { rows: rows.to_vec() }.text()
}

/// Adds rows to the list in a file, which is made if it is not there. Without any it finds out
/// whether there can be some, before hours are spent on them.
///
/// # Errors
/// The file cannot be read or written, or is no such list: it is left as it was.
pub fn append(path: &Path, rows: &[Row]) -> Result<()> {
    // Programs that end at the same time add their rows one after the other.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let turn = File::open(folder).and_then(|turn| turn.lock().map(|()| turn));
    let _turn = turn.with_context(|| format!("cannot lock {}", folder.display()))?;
    let mut page = match std::fs::read_to_string(path) {
        Ok(text) => Page::parse(&text)
            .with_context(|| format!("{} is no list of what was run", path.display()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => Page::default(),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    page.rows.extend(rows.iter().map(page::plain));
    let text = page.text();
    // What could not be read again would be lost with all that is there.
    Page::parse(&text).context("a row that is no run was to be added")?;
    replace(path, &text).with_context(|| format!("cannot write {}", path.display()))
}

/// Puts a text in place of a file, also where a link leads to it, with the rights that it has.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let part = path.with_extension("part");
    let mut file = File::create(&part)?;
    if let Ok(about) = std::fs::metadata(&path) {
        file.set_permissions(about.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&part, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64) -> Row {
        Row { commit: "abc".to_owned(), method: "m".to_owned(), count, ..Row::default() }
    }

    #[test]
    fn rows_of_programs_that_end_together_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        std::thread::scope(|scope| {
            for count in 1..=16 {
                let path = &path;
                scope.spawn(move || append(path, &[row(count)]).unwrap());
            }
        });
        let page = Page::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(page.rows.iter().map(|row| row.count).sum::<u64>(), 16 * 17 / 2);
    }

    #[test]
    fn a_row_for_programs_says_all_that_is_in_it() {
        let figures = BTreeMap::from([("healed".to_owned(), 7)]);
        let row = Row { figures, false_reports: Some(0), ..row(3) };
        let said = row.json(&["lost \"a\"".to_owned()]);
        assert!(!said.contains('\n'), "{said}");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&said["method"], &said["count"]), (&"m".into(), &3.into()));
        assert_eq!((&said["false_reports"], &said["reverted"]), (&0.into(), &().into()));
        assert_eq!(
            (&said["figures"]["healed"], &said["findings"][0]),
            (&7.into(), &"lost \"a\"".into())
        );
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
    fn figures_whose_names_are_written_otherwise_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        // By its name as given the first comes last, by that in the list first.
        let figures = [("a: b".to_owned(), 1), ("a c".to_owned(), 2)].into();
        append(&path, &[Row { figures, ..row(3) }]).unwrap();
        append(&path, &[row(4)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| a b: 1; a c: 2 |"), "{text}");
    }

    #[test]
    fn a_file_behind_a_link_keeps_its_rights() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("evidence.md"), folder.path().join("link.md"));
        append(&path, &[row(3)]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        append(&link, &[row(4)]).unwrap();
        assert!(link.is_symlink());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| m | 2 | 7 |"), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_row_that_could_not_be_read_again_is_not_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("evidence.md");
        append(&path, &[row(3)]).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(append(&path, &[row(1 << 50)]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
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
