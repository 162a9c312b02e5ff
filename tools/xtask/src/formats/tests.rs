//! What the comparison accepts and what it names.

use super::*;
use crate::source::Source;

const CODE: &str = "//! x\nconst LEN: u64 = 8;\nconst CRC_AT: usize = (LEN as usize) * 1;\n\
    pub const FIELDS_HEAD: &[Field] = &[\n    Field::new(\"magic\", 0, LEN),\n    \
    Field::new(\"crc\", CRC_AT as u64, 0x4),\n    Field::new(\"reserved\", LEN + 4, 1 << 2),\n];\n";

const PAGE: &str = "# Head\n\n<!-- format: logs HEAD -->\n\
    | offset | size | name | meaning | fault it answers |\n|---|---|---|---|---|\n\
    | 0 | 8 | magic | what this is | misdirected write |\n\
    | 0x8 | 4 | `crc` | over the rest | torn write |\n\
    | 12 | 4 | reserved | zero | - |\n\nText.\n";

fn findings(code: &str, page: &str) -> Vec<String> {
    let source = Source::parse("core/logs/src/format.rs", code.to_owned()).unwrap();
    let mut findings = Vec::new();
    let code = code::structures(&[source], &mut findings);
    let pages = pages::tables("docs/formats/logs.md", page, &mut findings);
    let sides = Sides { code, pages, findings: Vec::new() };
    findings.extend(compare(&sides));
    findings.iter().map(ToString::to_string).collect()
}

fn refused(code: &str, page: &str, part: &str) {
    let found = findings(code, page);
    assert!(found.iter().any(|text| text.contains(part)), "{part}: {found:#?}");
}

#[test]
fn two_sides_that_agree_pass() {
    assert_eq!(findings(CODE, PAGE), [""; 0]);
}

#[test]
fn each_cell_that_differs_is_named_with_its_line() {
    for (from, to) in [
        ("| 0x8 | 4 | `crc`", "| 0x9 | 4 | `crc`"),
        ("| 0x8 | 4 | `crc`", "| 8 | 5 | `crc`"),
        ("| 0x8 | 4 | `crc`", "| 8 | 4 | `sum`"),
    ] {
        let found = findings(CODE, &PAGE.replace(from, to));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/formats/logs.md:7:"), "{found:?}");
        assert!(found[0].contains("the code `crc` at 8 of 4 bytes"), "{found:?}");
    }
}

#[test]
fn a_row_too_few_too_many_or_out_of_order_is_named() {
    let row = "| 0x8 | 4 | `crc` | over the rest | torn write |\n";
    let reserved = "| 12 | 4 | reserved | zero | - |\n";
    refused(CODE, &PAGE.replace(reserved, ""), "`reserved` at 12 of 4 bytes is missing");
    let more = format!("{reserved}| 16 | 4 | more | x | y |\n");
    refused(CODE, &PAGE.replace(reserved, &more), "`more` at 16 of 4 bytes is not in the code");
    let swapped = PAGE.replace(row, "").replace(reserved, &format!("{reserved}{row}"));
    refused(CODE, &swapped, "the page has `reserved` at 12");
}

#[test]
fn cells_must_say_something_except_for_reserved_bytes() {
    refused(CODE, &PAGE.replace("what this is", ""), "magic: meaning is empty");
    refused(CODE, &PAGE.replace("torn write", "-"), "crc: fault it answers is empty");
}

#[test]
fn each_side_needs_the_other() {
    refused(CODE, "# Head\n", "no table `<!-- format: logs HEAD -->`");
    let other = PAGE.replace("logs HEAD", "logs TAIL");
    refused(CODE, &other, "no FIELDS_TAIL in a format.rs of crate logs");
    refused(CODE, &format!("{PAGE}\n{PAGE}"), "has a table at");
    refused("//! x\n", "", "list the fields of each structure");
}

#[test]
fn malformed_tables_are_named() {
    refused(CODE, &PAGE.replace("| offset |", "| at |"), "no table headed");
    refused(CODE, &PAGE.replace("logs HEAD", "logs"), "write `<!-- format: CRATE NAME -->`");
    refused(CODE, &PAGE.replace("| 12 |", "| twelve |"), "offset \"twelve\" is not a number");
    refused(CODE, &PAGE.replace(" | - |", " |"), "4 cells");
}

#[test]
fn overlaps_gaps_empty_fields_and_repeated_names_are_named() {
    let with = |fields: &str| format!("//! x\npub const FIELDS_HEAD: &[Field] = &[{fields}];\n");
    for (fields, part) in [
        ("Field::new(\"a\", 0, 8), Field::new(\"b\", 4, 4)", "b at 4 overlaps what ends at 8"),
        ("Field::new(\"a\", 0, 8), Field::new(\"b\", 12, 4)", "bytes 8..12 have no name"),
        ("Field::new(\"a\", 4, 8)", "bytes 0..4 have no name"),
        ("Field::new(\"a\", 0, 0)", "a has no bytes"),
        ("Field::new(\"a\", 0, 4), Field::new(\"a\", 4, 4)", "two fields are called a"),
    ] {
        refused(&with(fields), PAGE, part);
    }
}

#[test]
fn expressions_that_are_not_read_are_named() {
    let with = |at: &str| {
        format!(
            "//! x\nconst A: u64 = B;\nconst B: u64 = A;\n\
                 pub const FIELDS_HEAD: &[Field] = &[Field::new(\"a\", {at}, 8)];\n"
        )
    };
    for (at, part) in [
        ("OTHER", "only constants of this file"),
        ("A", "in a circle"),
        ("1 - 2", "does not fit"),
        ("0xffff_ffff_ffff_ffff + 1", "does not fit"),
        ("1 % 2", "only + - * / <<"),
        ("f()", "write a number"),
    ] {
        refused(&with(at), PAGE, part);
    }
}

#[test]
fn a_printed_table_is_one_that_passes() {
    let source = Source::parse("core/logs/src/format.rs", CODE.to_owned()).unwrap();
    let mut none = Vec::new();
    let code = code::structures(&[source], &mut none);
    let pages = pages::tables("docs/formats/logs.md", PAGE, &mut none);
    let printed = markdown(&code[0], pages.first());
    assert_eq!(findings(CODE, &printed), [""; 0]);
    assert!(printed.contains("| 8 | 4 | `crc` | over the rest | torn write |"), "{printed}");
}
