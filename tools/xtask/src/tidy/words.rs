//! Words that may not stand in code or comments, as one table: what, where, and what to do instead.
//!
//! Words are matched as tokens, never as text, so a string or a comment that mentions one is left
//! alone. The marks looked for in comments are spelt in halves, so that this file passes itself.

use crate::finding::Finding;
use crate::source::{Kind, Part, Source};

/// Where a word is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// In every file, tests included.
    Everywhere,
    /// In everything that is not compiled for tests only.
    OutsideTests,
    /// In the `src/` of base, core and engines, tests excluded.
    BelowSurfaces,
    /// In the `src/` of core and engines, tests excluded: where runs must repeat from a seed.
    CoreAndEngines,
}

/// A row of the table: a rule, the token sequences it refuses, where, and the advice.
#[derive(Debug, Clone, Copy)]
struct Ban {
    rule: &'static str,
    words: &'static [&'static [&'static str]],
    scope: Scope,
    advice: &'static str,
}

const fn ban(
    rule: &'static str,
    scope: Scope,
    words: &'static [&'static [&'static str]],
    advice: &'static str,
) -> Ban {
    Ban { rule, words, scope, advice }
}

/// Every refused token sequence.
#[rustfmt::skip]
const BANS: &[Ban] = &[
    ban("stub", Scope::Everywhere, &[&["todo", "!"], &["unimplemented", "!"], &["dbg", "!"]],
        "finish it or leave it out"),
    ban("ignored-test", Scope::Everywhere, &[&["#", "[", "ignore"], &[",", "ignore", ")", "]"]],
        "a test runs or does not exist; shorten it, or make it a campaign"),
    ban("unwrap", Scope::OutsideTests, &[&[".", "unwrap", "("]],
        "return the error, or `expect` the invariant by name"),
    ban("output", Scope::BelowSurfaces,
        &[&["println", "!"], &["print", "!"], &["eprintln", "!"], &["eprint", "!"]],
        "nothing below surfaces/ prints; return it, or make it an event"),
    ban("environment", Scope::BelowSurfaces, &[&["std", ":", ":", "env"], &["env", ":", ":"]],
        "nothing below surfaces/ reads the environment; take it as an option"),
    ban("clock", Scope::CoreAndEngines, &[&["Instant", ":", ":", "now"], &["SystemTime"]],
        "time comes in through an injected clock, or no run repeats from its seed"),
    ban("chance", Scope::CoreAndEngines, &[&["RandomState"], &["ThreadId"], &["DefaultHasher"]],
        "neither chance nor a thread's identity may reach a decision"),
    ban("machine", Scope::CoreAndEngines,
        &[&["libc", ":", ":"], &["rustix", ":", ":"], &["core", ":", ":", "arch"],
          &["std", ":", ":", "arch"], &["asm", "!"]],
        "only base/ knows the machine; go through its crates"),
];

/// Marks of unfinished work, refused in comments.
const MARKS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

/// Endings of constants that are offsets into something on the medium.
const OFFSETS: &[&str] = &["_AT", "_OFFSET"];

/// Every refused word of the file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in 0..source.tokens.len() {
        for ban in BANS {
            let line = source.tokens[at].line;
            let found = ban.words.iter().filter(|words| stands(source, at, words));
            // The longest match is the one to show: `std::env`, not its tail.
            let found = found.max_by_key(|words| words.len());
            if let Some(words) = found.filter(|_| applies(ban.scope, source, line)) {
                let text = format!("{} (line has `{}`)", ban.advice, words.concat());
                findings.push(Finding::new(&source.path, line, ban.rule, text));
            }
        }
    }
    findings.extend(marks(source));
    findings.extend(hash_order(source));
    findings.extend(offsets(source));
    findings
}

/// Whether a refused sequence starts at this token; the name of a macro counts where it is called.
fn stands(source: &Source, at: usize, words: &[&str]) -> bool {
    let next = source.tokens.get(at + words.len()).map(|token| token.text.as_str());
    let called = words.last() != Some(&"!") || matches!(next, Some("(" | "[" | "{"));
    called && source.starts(at, words)
}

/// Whether a rule of this scope holds on this line.
fn applies(scope: Scope, source: &Source, line: usize) -> bool {
    let test = source.is_test_line(line);
    match scope {
        Scope::Everywhere => true,
        Scope::OutsideTests => !test,
        Scope::BelowSurfaces => !test && source.is_source_of(&["base", "core", "engines"]),
        Scope::CoreAndEngines => !test && source.is_source_of(&["core", "engines"]),
    }
}

/// Marks of unfinished work, and doc examples that are not run.
fn marks(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in &source.comments {
        for mark in MARKS {
            if text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == *mark) {
                let text = format!("{mark} in a comment; do it, or open an issue");
                findings.push(Finding::new(&source.path, *line, "stub", text));
            }
        }
        let fence = text.split("```").nth(1).unwrap_or_default();
        if fence.split([',', ' ']).any(|word| word == "ignore") {
            let text = "an example that is not run; use `no_run`, `text`, or make it run";
            findings.push(Finding::new(&source.path, *line, "ignored-test", text));
        }
    }
    findings
}

/// Hash tables whose comment does not say why their order cannot reach a decision.
fn hash_order(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut importing = false;
    for (at, token) in source.tokens.iter().enumerate() {
        match token.text.as_str() {
            // `use<...>` in a type imports nothing.
            "use" if token.kind == Kind::Word => importing = !source.starts(at, &["use", "<"]),
            ";" => importing = false,
            "HashMap" | "HashSet"
                if !importing
                    && applies(Scope::CoreAndEngines, source, token.line)
                    && !source.has_comment(token.line, "order:") =>
            {
                let text = format!(
                    "{}: say in `// order:` on this line or above why its order cannot reach a \
                     decision, or use an ordered table",
                    token.text
                );
                findings.push(Finding::new(&source.path, token.line, "hash-order", text));
            }
            _ => {}
        }
    }
    findings
}

/// Constants that are offsets, outside the files where offsets belong.
fn offsets(source: &Source) -> Vec<Finding> {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    if name == "format.rs" || source.part() != Part::Source {
        return Vec::new();
    }
    let pairs = source.tokens.iter().zip(source.tokens.iter().skip(1));
    pairs
        .filter(|(first, _)| matches!(first.text.as_str(), "const" | "static"))
        .map(|(_, second)| second)
        .filter(|token| token.kind == Kind::Word)
        .filter(|token| OFFSETS.iter().any(|ending| token.text.ends_with(ending)))
        .filter(|token| applies(Scope::CoreAndEngines, source, token.line))
        .map(|token| {
            let text = format!("{} is an offset: it belongs in format.rs", token.text);
            Finding::new(&source.path, token.line, "offsets", text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let mut rules: Vec<_> =
            check(&at(path, text)).iter().map(|finding| (finding.line, finding.rule)).collect();
        rules.dedup();
        rules
    }

    const HEAP: &str = "core/heap/src/x.rs";

    #[test]
    fn stubs_and_ignored_tests_are_refused_even_in_tests() {
        let path = "core/heap/tests/x.rs";
        for stub in ["todo", "unimplemented", "dbg"] {
            assert_eq!(rules(path, &format!("fn f() {{ {stub}!(1) }}")), [(1, "stub")]);
        }
        assert_eq!(rules(path, "#[test]\n#[ignore]\nfn f() {}"), [(2, "ignored-test")]);
        assert_eq!(rules(path, "#[ignore = \"slow\"]\nfn f() {}"), [(1, "ignored-test")]);
        assert_eq!(rules(path, "#[cfg_attr(x, ignore)]\nfn f() {}"), [(1, "ignored-test")]);
        assert_eq!(rules(path, "/// ```ignore\n/// x\n/// ```\nfn f() {}"), [(1, "ignored-test")]);
        for mark in MARKS {
            assert_eq!(rules(path, &format!("fn f() {{}} // {mark}: later")), [(1, "stub")]);
        }
    }

    #[test]
    fn words_in_strings_and_other_words_are_left_alone() {
        let path = "core/heap/src/x.rs";
        assert_eq!(rules(path, "fn f() { g(\"dbg!() .unwrap() SystemTime\"); }"), []);
        assert_eq!(rules(path, "fn f(todo: u8) { g(x.unwrap_or(todo)) } // METHODS"), []);
        assert_eq!(rules(path, "fn f() { todo != print; v[ignore]; g(a, ignore) }"), []);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let text = "fn f() { g().unwrap() }\n#[cfg(test)]\nmod t { fn h() { g().unwrap() } }";
        assert_eq!(rules(HEAP, text), [(1, "unwrap")]);
        assert_eq!(
            rules("surfaces/facade/examples/x.rs", "fn f() { g().unwrap() }"),
            [(1, "unwrap")]
        );
        assert_eq!(rules("core/heap/tests/x.rs", "fn f() { g().unwrap() }"), []);
        assert_eq!(rules("core/heap/benches/x.rs", "fn f() { g().unwrap() }"), []);
    }

    #[test]
    fn printing_and_environment_stop_below_surfaces() {
        for (text, rule) in [
            ("fn f() { println!(\"\") }", "output"),
            ("fn f() { eprint!(\"\") }", "output"),
            ("fn f() { std::env::var(\"X\"); }", "environment"),
            ("use std::{env, fs};\nfn f() { env::args(); }", "environment"),
        ] {
            for path in ["base/pmem/src/x.rs", HEAP, "engines/object/src/x.rs"] {
                assert_eq!(
                    rules(path, text).iter().map(|r| r.1).collect::<Vec<_>>(),
                    [rule],
                    "{path}"
                );
            }
            for path in ["surfaces/cli/src/x.rs", "tools/xtask/src/x.rs", "core/heap/tests/x.rs"] {
                assert_eq!(rules(path, text), [], "{path}");
            }
        }
        assert_eq!(rules(HEAP, "const A: &str = env!(\"CARGO_PKG_NAME\");"), []);
    }

    #[test]
    fn clocks_chance_and_the_machine_stop_at_core_and_engines() {
        for (text, rule) in [
            ("fn f() { Instant::now(); }", "clock"),
            ("fn f(t: std::time::SystemTime) {}", "clock"),
            ("fn f(t: ThreadId) {}", "chance"),
            ("fn f() { libc::mmap(); }", "machine"),
            ("use core::arch::x86_64::_mm_sfence;", "machine"),
        ] {
            assert_eq!(rules(HEAP, text), [(1, rule)]);
            assert_eq!(rules("base/pmem/src/x.rs", text), []);
            assert_eq!(rules("core/heap/tests/x.rs", text), []);
        }
    }

    #[test]
    fn hash_tables_say_why_their_order_does_not_matter() {
        let bare = "use std::collections::HashMap;\nstruct S { m: HashMap<u8, u8> }";
        assert_eq!(rules(HEAP, bare), [(2, "hash-order")]);
        let said =
            "struct S {\n // order: looked up by key,\n // never walked.\n m: HashMap<u8, u8>,\n}";
        assert_eq!(rules(HEAP, said), []);
        let same = "struct S { m: HashSet<u8> } // order: counted only";
        assert_eq!(rules(HEAP, same), []);
        let far = "// order: x\n\nstruct S { m: HashSet<u8> }";
        assert_eq!(rules(HEAP, far), [(3, "hash-order")]);
        assert_eq!(rules("surfaces/cli/src/x.rs", bare), []);
    }

    #[test]
    fn offsets_live_in_format_files() {
        let text = "const CRC_AT: u64 = 8;\nstruct S;\nimpl S { const LEN_OFFSET: usize = 4; }";
        assert_eq!(rules(HEAP, text), [(1, "offsets"), (3, "offsets")]);
        assert_eq!(rules("core/heap/src/format.rs", text), []);
        assert_eq!(rules("base/pmem/src/x.rs", text), []);
        assert_eq!(rules(HEAP, "const FLAT: u8 = 1; const AT: u8 = 2;"), []);
    }
}
