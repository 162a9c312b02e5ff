//! One Rust file, read once for all checks: tokens, comments, tree, and which lines are tests.
//!
//! Comments are what lies between tokens, so a word in a string is never taken for a comment, nor
//! a word in a comment for code. Macro bodies are tokens like the rest: what is hidden in a
//! `macro_rules!` is checked too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::finding::Finding;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    /// One punctuation character, or one bracket.
    Mark,
    /// A literal, as written.
    Literal,
}

/// One token outside comments.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its text; brackets are single characters.
    pub(crate) text: String,
    /// Line, from 1.
    pub(crate) line: usize,
}

/// Which part of a crate a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// `src/`: what users of the crate get.
    Source,
    /// `tests/` or `benches/`.
    Test,
    /// `examples/`: shown to users, so held to the rules of `src/`.
    Example,
    /// Anything else, such as a build script.
    Other,
}

/// A parsed file.
pub(crate) struct Source {
    /// Path relative to the root of the workspace.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// Every token outside comments, in order.
    pub(crate) tokens: Vec<Token>,
    /// Line to the text of the comments on it.
    pub(crate) comments: BTreeMap<usize, String>,
    /// The syntax tree.
    pub(crate) tree: syn::File,
    tests: Vec<RangeInclusive<usize>>,
    all_test: bool,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The tree would be pages; the path says which file is meant.
        f.debug_tuple("Source").field(&self.path).finish()
    }
}

impl Source {
    /// Parses `text`.
    pub(crate) fn parse(path: &str, text: String) -> Result<Self, Finding> {
        let refuse = |span: Span, error: &dyn fmt::Display| {
            Finding::new(path, span.start().line, "parse", format!("not Rust: {error}"))
        };
        let stream: TokenStream =
            text.parse().map_err(|error: LexError| refuse(error.span(), &error))?;
        let tree: syn::File =
            syn::parse2(stream.clone()).map_err(|error| refuse(error.span(), &error))?;
        let mut reader = Reader::new(&text);
        reader.stream(stream);
        reader.gap(text.len());
        let Reader { tokens, comments, .. } = reader;
        let mut finder = TestFinder::default();
        finder.visit_file(&tree);
        let all_test = part(path) == Part::Test || is_test(&tree.attrs);
        Ok(Self {
            path: path.to_owned(),
            text,
            tokens,
            comments,
            tree,
            tests: finder.lines,
            all_test,
        })
    }

    /// The group of the file (`core`) and its crate's folder name (`heap`), if it is in a room.
    pub(crate) fn room(&self) -> Option<(&str, &str)> {
        let mut parts = self.path.split('/');
        let (group, room) = (parts.next()?, parts.next()?);
        parts.next().map(|_| (group, room))
    }

    /// Which part of its crate the file belongs to.
    pub(crate) fn part(&self) -> Part {
        part(&self.path)
    }

    /// Whether the line is compiled for tests only.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.all_test || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Whether the file is in the `src/` of a room of one of these groups.
    pub(crate) fn is_source_of(&self, groups: &[&str]) -> bool {
        self.part() == Part::Source && self.room().is_some_and(|(group, _)| groups.contains(&group))
    }

    /// Whether the tokens from `at` on have these texts (one punctuation character each).
    pub(crate) fn starts(&self, at: usize, texts: &[&str]) -> bool {
        self.tokens
            .get(at..at + texts.len())
            .is_some_and(|tokens| tokens.iter().zip(texts).all(|(token, text)| token.text == *text))
    }

    /// Whether a comment on `line`, or in the block of comments right above it, has the word.
    pub(crate) fn has_comment(&self, line: usize, word: &str) -> bool {
        let has = |line: usize| self.comments.get(&line).is_some_and(|text| text.contains(word));
        let mut above = line.saturating_sub(1);
        while self.comments.contains_key(&above) {
            if has(above) {
                return true;
            }
            above -= 1;
        }
        has(line)
    }
}

/// Reads and parses every Rust file of the list; those that do not parse are findings.
pub(crate) fn read_all(root: &Path, files: &[String]) -> Result<(Vec<Source>, Vec<Finding>)> {
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        let text = std::fs::read_to_string(root.join(path))
            .with_context(|| format!("{path}: cannot be read as UTF-8 text"))?;
        match Source::parse(path, text) {
            Ok(source) => sources.push(source),
            Err(error) => errors.push(error),
        }
    }
    let tests = test_modules(&sources);
    for source in &mut sources {
        source.all_test |= tests.iter().any(|stem| {
            source
                .path
                .strip_prefix(stem.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }
    Ok((sources, errors))
}

/// Paths, without `.rs`, of the modules declared by `#[cfg(test)] mod name;`.
fn test_modules(sources: &[Source]) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    for source in sources {
        let Some((folder, file)) = source.path.rsplit_once('/') else { continue };
        let home = match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
            _ => source.path.trim_end_matches(".rs").to_owned(),
        };
        for item in &source.tree.items {
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
                && is_test(&module.attrs)
            {
                stems.insert(format!("{home}/{}", module.ident));
            }
        }
    }
    stems
}

/// Which part of its crate a path belongs to: `group/room/part/...`.
fn part(path: &str) -> Part {
    let mut parts = path.split('/').skip(2);
    match (parts.next(), parts.next()) {
        (Some("src"), Some(_)) => Part::Source,
        (Some("tests" | "benches"), Some(_)) => Part::Test,
        (Some("examples"), Some(_)) => Part::Example,
        _ => Part::Other,
    }
}

/// Whether these attributes make an item part of tests only: `#[test]` or `#[cfg(... test ...)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let last = path.segments.last().map(|segment| segment.ident.to_string());
        match (last.as_deref(), &attribute.meta) {
            (Some("test"), _) => true,
            (Some("cfg"), syn::Meta::List(list)) => names_test(list.tokens.clone()),
            _ => false,
        }
    })
}

/// Whether a `cfg` predicate needs `test`. `any` with something else, and `not`, do not.
fn names_test(predicate: TokenStream) -> bool {
    let mut word = String::new();
    for tree in predicate {
        match tree {
            TokenTree::Ident(ident) if ident == "test" => return true,
            TokenTree::Ident(ident) => word = ident.to_string(),
            TokenTree::Group(group) if word == "all" && names_test(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

/// Collects the lines of items that exist for tests only.
#[derive(Debug, Default)]
struct TestFinder {
    lines: Vec<RangeInclusive<usize>>,
}

impl TestFinder {
    fn note(&mut self, attributes: &[syn::Attribute], span: Span) {
        if is_test(attributes) {
            self.lines.push(span.start().line..=span.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for TestFinder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.note(&item.attrs, item.span());
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.attrs, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.note(&item.attrs, item.span());
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.attrs, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note(&item.attrs, item.span());
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.attrs, item.span());
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.note(&item.attrs, item.span());
        visit::visit_item_const(self, item);
    }
}

/// Walks the tokens in order and keeps what lies between them as comments.
#[derive(Debug)]
struct Reader<'a> {
    text: &'a str,
    starts: Vec<usize>,
    end: usize,
    tokens: Vec<Token>,
    comments: BTreeMap<usize, String>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, starts, end: 0, tokens: Vec::new(), comments: BTreeMap::new() }
    }

    /// Takes everything from the end of the last token to `to` as comments and blanks.
    fn gap(&mut self, to: usize) {
        if to > self.end {
            self.comment(self.end, to);
            self.end = to;
        }
    }

    /// Files the non-blank lines of `[from, to)` under their line numbers.
    fn comment(&mut self, from: usize, to: usize) {
        let first = self.starts.partition_point(|start| *start <= from);
        let Some(piece) = self.text.get(from..to) else { return };
        for (line, text) in (first..).zip(piece.split('\n')) {
            if !text.trim().is_empty() {
                let kept = self.comments.entry(line).or_default();
                kept.push_str(text.trim());
                kept.push(' ');
            }
        }
    }

    /// Whether a token's source is a doc comment, which the tokenizer gives as an attribute.
    fn doc(&self, span: Span) -> bool {
        self.text.get(span.byte_range()).is_some_and(|text| text.starts_with('/'))
    }

    fn push(&mut self, kind: Kind, text: String, span: Span) {
        let range = span.byte_range();
        self.gap(range.start);
        self.end = self.end.max(range.end);
        self.tokens.push(Token { kind, text, line: span.start().line });
    }

    fn stream(&mut self, stream: TokenStream) {
        for tree in stream {
            if self.doc(tree.span())
                && !matches!(&tree, TokenTree::Punct(mark) if mark.as_char() == '/')
            {
                self.doc_comment(tree.span());
                continue;
            }
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.push(Kind::Mark, open.to_owned(), group.span_open());
                    self.stream(group.stream());
                    self.push(Kind::Mark, close.to_owned(), group.span_close());
                }
                TokenTree::Ident(ident) => {
                    let text = ident.to_string();
                    let text = text.strip_prefix("r#").unwrap_or(&text).to_owned();
                    self.push(Kind::Word, text, ident.span());
                }
                TokenTree::Punct(mark) => {
                    self.push(Kind::Mark, mark.as_char().to_string(), mark.span());
                }
                TokenTree::Literal(literal) => {
                    self.push(Kind::Literal, literal.to_string(), literal.span());
                }
            }
        }
    }

    /// Keeps a doc comment as a comment; its later tokens lie inside it and add nothing.
    fn doc_comment(&mut self, span: Span) {
        let range = span.byte_range();
        self.gap(range.start);
        if range.end > self.end {
            self.comment(range.start, range.end);
            self.end = range.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse("core/heap/src/x.rs", text.to_owned()).unwrap()
    }

    #[test]
    fn strings_are_not_comments_and_comments_are_not_code() {
        let source = parse(
            "//! top\nfn f() { let s = \"// no\"; /* a\n b */ g(s / 2); } // end\n\
             /// doc\nfn g() {}\n",
        );
        let lines: Vec<_> =
            source.comments.iter().map(|(line, text)| (*line, text.trim())).collect();
        assert_eq!(lines, [(1, "//! top"), (2, "/* a"), (3, "b */ // end"), (4, "/// doc")],);
        assert!(source.tokens.iter().any(|token| token.text == "/" && token.line == 3));
        assert!(source.tokens.iter().all(|token| token.text != "doc"));
    }

    #[test]
    fn test_lines_are_those_of_test_items() {
        let source = parse(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\n#[cfg(not(test))]\nfn c() {}\n\
             #[test]\nfn d() {}\n#[cfg(all(unix, test))]\nfn e() {}\n\
             #[cfg(any(test, unix))]\nfn f() {}\n",
        );
        let tests: Vec<_> = (1..=13).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(tests, [2, 3, 4, 5, 8, 9, 10, 11]);
    }

    #[test]
    fn a_module_file_declared_for_tests_is_a_test_file() {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("core/heap/src");
        std::fs::create_dir_all(src.join("run/tests")).unwrap();
        std::fs::write(src.join("run.rs"), "#[cfg(test)]\nmod tests;\nmod other;\n").unwrap();
        std::fs::write(src.join("run/tests.rs"), "fn a() {}\n").unwrap();
        std::fs::write(src.join("run/tests/deep.rs"), "fn a() {}\n").unwrap();
        std::fs::write(src.join("run/other.rs"), "fn a() {}\n").unwrap();
        let files = ["run.rs", "run/other.rs", "run/tests.rs", "run/tests/deep.rs"]
            .map(|file| format!("core/heap/src/{file}"));
        let (sources, errors) = read_all(dir.path(), &files).unwrap();
        assert!(errors.is_empty());
        let tests: Vec<_> = sources.iter().map(|source| source.is_test_line(3)).collect();
        assert_eq!(tests, [false, false, true, true]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_an_error_with_its_line() {
        for text in ["fn f() {}\nfn 1;\n", "fn f() {}\n}\n"] {
            let error = Source::parse("x.rs", text.to_owned()).unwrap_err();
            assert_eq!((error.path.as_str(), error.line, error.rule), ("x.rs", 2, "parse"));
        }
    }
}
