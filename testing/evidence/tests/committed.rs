//! The list that is committed is one, its goals and sums are those of its rows, what counts in it
//! can be looked at again, and nothing that was wrong in it has been left so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_evidence::{Row, open, rows, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    let path = root().join("docs/evidence.md");
    std::fs::read_to_string(&path).expect("docs/evidence.md is there")
}

fn committed() -> Vec<Row> {
    rows(&page()).expect("docs/evidence.md is as the programs wrote it")
}

/// Goals as well: to be read, a page may have those of an earlier table.
#[test]
fn the_list_is_as_the_programs_wrote_it() {
    let rows = committed();
    assert!(!rows.is_empty());
    let again = "cargo run -p holdfast-evidence -- docs/evidence.md";
    assert!(text(&rows) == page(), "its goals are not those of its rows: {again}");
}

/// All commits that led to this source; why they cannot be told, if so.
fn history(root: &Path) -> Result<Vec<String>, String> {
    let git = |words: &[&str]| {
        let done = Command::new("git").arg("-C").arg(root).args(words).output();
        let done = done.map_err(|error| format!("there is no git: {error}"))?;
        let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        let failed = || format!("no history: {}", String::from_utf8_lossy(&done.stderr).trim());
        done.status.success().then_some(said).ok_or_else(failed)
    };
    // A copy of the source may lie in somebody else's repository.
    let whole = |path: &Path| path.canonicalize().map_err(|error| error.to_string());
    if whole(Path::new(&git(&["rev-parse", "--show-toplevel"])?))? != whole(root)? {
        return Err("the repository around is another's".to_owned());
    }
    if git(&["rev-parse", "--is-shallow-repository"])? != "false" {
        return Err("the clone is shallow".to_owned());
    }
    Ok(git(&["rev-list", "HEAD"])?.lines().map(str::to_owned).collect())
}

/// Of rows, the commits that the history has, and those it lacks.
fn sources<'a>(
    rows: impl Iterator<Item = &'a Row>,
    history: &[String],
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let is_in = |commit: &&str| history.iter().any(|known| known.starts_with(commit));
    rows.map(Row::source).partition(is_in)
}

#[test]
fn what_counts_is_of_commits_that_are_in_the_history() {
    let history = match history(&root()) {
        Ok(history) => history,
        Err(why) => return println!("skipped: {why}"),
    };
    let rows = committed();
    let (there, gone) = sources(rows.iter().filter(|row| row.is_known()), &history);
    assert!(
        gone.is_empty(),
        "not in the history, so nobody can look at them again: {gone:?}; run again what was run \
         of them, and add them to GONE in testing/evidence/src/known.rs, with the reason"
    );
    assert!(!there.is_empty(), "nothing counts");
    // Nor does one not count that could be looked at.
    let as_it_was = |row: &&Row| row.commit != "unknown" && !row.commit.contains('+');
    let lost = rows.iter().filter(as_it_was).filter(|row| !row.is_known());
    assert_eq!(sources(lost, &history).0, BTreeSet::new(), "in the history, and in GONE");
}

/// The test above can fail, and says why where it cannot be asked.
#[test]
fn a_commit_that_is_in_no_history_would_be_noticed() {
    let nowhere = root().join("testing/evidence/src");
    assert!(history(&nowhere).is_err(), "a folder of the source is not all of it");
    let row = |commit: &str| Row { commit: commit.to_owned(), ..Row::default() };
    let rows = [row("abc1234 tree 1"), row("def5678 tree 2")];
    let (there, gone) = sources(rows.iter(), &["abc12340".to_owned()]);
    assert_eq!((there, gone), (BTreeSet::from(["abc1234"]), BTreeSet::from(["def5678"])));
}

#[test]
fn nothing_that_was_wrong_is_open() {
    let rows = committed();
    let open = open(&rows);
    assert!(open.is_empty(), "not shown to be mended by a later run: {open:#?}");
}

/// The test above can fail: the same list with one more row, in which something was wrong.
#[test]
fn a_row_in_which_something_was_wrong_would_be_noticed() {
    let mut rows = committed();
    let before = open(&rows).len();
    let last = rows.last().expect("there are rows").clone();
    rows.push(Row { false_reports: Some(1), ..last });
    assert_eq!(open(&rows).len(), before + 1);
}
