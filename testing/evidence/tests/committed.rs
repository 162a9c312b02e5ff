//! The list that is committed is one, its goals and sums are those of its rows, and nothing that
//! was wrong in it has been left so.

use std::path::Path;

use holdfast_evidence::{Row, open, rows, text};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence.md");
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
