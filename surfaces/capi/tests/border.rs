//! A function that C calls and that forgets the border would let a panic out: each one is found in
//! the source, and goes through it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::Path;

/// What only looks something up in constants or in the thread's own text, and cannot panic.
const BARE: [&str; 3] = ["holdfast_kind_name", "holdfast_message", "holdfast_version"];

/// Names and bodies of the functions that C calls.
fn functions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in source.split("#[unsafe(no_mangle)]\n").skip(1) {
            let name = part.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            found.push((name.to_owned(), part.split("\n}\n").next().unwrap().to_owned()));
        }
    }
    found
}

#[test]
fn every_call_goes_through_the_border() {
    let functions = functions();
    for (name, body) in &functions {
        // The ways to open a pool share a function that does.
        let goes = body.contains("border(|| ") || body.contains("{ open_by(");
        assert_ne!(goes, BARE.contains(&name.as_str()), "{name}:\n{body}");
    }
    let header = include_str!("../include/holdfast.h");
    assert!(functions.iter().all(|(name, _)| header.contains(&format!("{name}("))));
    assert!(functions.len() > 40, "{} functions were found", functions.len());
}
