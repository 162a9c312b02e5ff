//! What runs in model checkers takes atomics, locks and threads from `base/sync` alone: a word that
//! the checker does not see has no place in a schedule.

use crate::finding::Finding;
use crate::source::{Kind, Source};

/// Rooms whose code runs in the models.
const ROOMS: &[(&str, &str)] = &[
    ("core", "redundancy"),
    ("core", "logs"),
    ("core", "heap"),
    ("engines", "object"),
    ("engines", "mapped"),
];
/// Of `std::sync`, what is the same in every model.
const SAME: &[&str] = &["Arc", "Weak"];
/// What is refused from its first word on.
const REFUSED: &[&[&str]] = &[
    &["std", ":", ":", "thread"],
    &["core", ":", ":", "hint"],
    &["std", ":", ":", "hint"],
    &["std", ":", ":", "time", ":", ":", "Instant"],
    &["spin", ":", ":", "mutex"],
];

/// Every way around `base/sync` in a file of those rooms; tests run without a checker.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let room = source.room();
    if !source.is_source_of(&["core", "engines"])
        || !room.is_some_and(|room| ROOMS.contains(&(room.0, room.1)))
    {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        if source.is_test_line(token.line) {
            continue;
        }
        if let Some(what) = around(source, at) {
            let text = format!("{what}: take it from holdfast_sync, so that models see it");
            findings.push(Finding::new(&source.path, token.line, "modelled", text));
        }
    }
    findings
}

/// What starts at this token and does not come from `base/sync`.
fn around(source: &Source, at: usize) -> Option<String> {
    for crate_ in ["std", "core"] {
        if source.starts(at, &[crate_, ":", ":", "sync", ":", ":"]) {
            let other = imported(source, at + 6).into_iter().find(|name| !SAME.contains(name));
            return other.map(|name| format!("{crate_}::sync::{name}"));
        }
    }
    if source.starts(at, &["thread_local", "!"]) {
        let ours = at >= 3 && source.starts(at - 3, &["holdfast_sync", ":", ":"]);
        return (!ours).then(|| "thread_local!".to_owned());
    }
    REFUSED.iter().find(|words| source.starts(at, words)).map(|words| words.concat())
}

/// The names at this token: one, or those of a group in braces.
fn imported(source: &Source, at: usize) -> Vec<&str> {
    let tokens = source.tokens.get(at..).unwrap_or_default();
    match tokens.first() {
        Some(first) if first.text == "{" => tokens
            .iter()
            .take_while(|token| token.text != ";")
            .filter(|token| token.kind == Kind::Word && token.text != "as")
            .map(|token| token.text.as_str())
            .collect(),
        Some(first) => vec![first.text.as_str()],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::*;

    const HEAP: &str = "core/heap/src/x.rs";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&at(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn ways_around_are_refused_in_modelled_rooms() {
        for text in [
            "use std::sync::atomic::AtomicU64;",
            "use core::sync::atomic::{AtomicU64, Ordering};",
            "use std::sync::{Arc, Mutex};",
            "fn f() { std::thread::yield_now(); }",
            "fn f() { core::hint::spin_loop(); }",
            "use std::time::Instant;",
            "use spin::mutex::SpinMutex;",
            "thread_local! { static A: u8 = const { 0 }; }",
        ] {
            assert_eq!(lines(HEAP, text), [1], "{text}");
            assert!(lines("base/pmem/src/x.rs", text).is_empty(), "{text}");
            assert!(lines("core/heap/tests/x.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn the_shim_and_counted_pointers_are_not() {
        for text in [
            "use std::sync::{Arc, Weak};",
            "use std::sync::Arc;",
            "use holdfast_sync::{Mutex, atomic::AtomicU64};",
            "fn f() { holdfast_sync::thread::yield_now(); }",
            "holdfast_sync::thread_local! { static A: u8 = const { 0 }; }",
            "#[cfg(test)]\nmod t { use std::sync::Mutex; }",
        ] {
            assert!(lines(HEAP, text).is_empty(), "{text}");
        }
    }
}
