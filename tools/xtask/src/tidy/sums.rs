//! Sums that decide: in core and engines, a sum that was computed is held against a stored one by
//! `Certify` only, and `Certify` is asked for with the site of the place that verifies.
//!
//! A comparison written out anywhere else is a verification without a name: the campaign could not
//! switch it off, and nobody would know whether it is needed. What counts as computing a sum is
//! found out, not listed: every function of one `u32` whose body calls such a function is one too,
//! unless another function of that name and number of arguments answers something else.

use std::collections::BTreeSet;
use std::ops::Range;

use super::sites::is_site;
use crate::finding::Finding;
use crate::source::{Kind, Source, Token};

/// Functions of `base/codes` that compute a sum, and how many arguments they take.
const CODES: &[(&str, usize)] = &[
    ("crc32c", 2),
    ("crc32c_u64", 2),
    ("crc32c_patch", 3),
    ("crc32c_combine", 3),
    ("adler32", 2),
    ("adler32_patch", 4),
];

/// Words that an operand of a comparison cannot contain: it ends before them.
const KEYWORDS: &[&str] = &["if", "while", "return", "let", "match", "else", "in"];

/// A name and its number of arguments, without `self`.
type Name = (String, usize);

/// One function with a body, outside tests.
struct Function {
    name: Name,
    /// Tokens of the answer's type, joined.
    answer: String,
    body: Range<usize>,
}

/// Every comparison of a sum that is not `Certify`'s, and every `Certify` without a site.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let places: Vec<(&Source, Vec<Function>)> = sources
        .iter()
        .filter(|source| source.is_source_of(&["core", "engines"]))
        .map(|source| (source, functions(source)))
        .collect();
    let sums = sum_functions(&places);
    let mut findings = Vec::new();
    for (source, functions) in &places {
        findings.extend(unnamed(source));
        for function in functions {
            findings.extend(compared(source, function, &sums));
        }
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings.dedup_by(|a, b| a.path == b.path && a.line == b.line && a.text == b.text);
    findings
}

/// Every `Certify::when(...)` that neither asks a medium for a site nor says `false`, which
/// verifies nothing.
fn unnamed(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in 0..source.tokens.len() {
        let line = source.tokens[at].line;
        if !source.starts(at, &["Certify", ":", ":", "when", "("]) || source.is_test_line(line) {
            continue;
        }
        let argument = &source.tokens[at + 5..closing(&source.tokens, at + 4)];
        let asked = argument.windows(3).enumerate().any(|(i, tokens)| {
            let call = [".", "enabled", "("];
            let called = tokens.iter().zip(call).all(|(token, text)| token.text == text);
            called && is_site(source, &argument[i + 3..argument.len() - 1])
        });
        let nothing = matches!(argument, [token] if token.text == "false");
        if !asked && !nothing {
            let text = "Certify::when(...) names no site: ask `.enabled(SITE)`, or take a Certify \
                        from the caller, who does";
            findings.push(Finding::new(&source.path, line, "sums", text.to_owned()));
        }
    }
    findings
}

/// Every comparison in a function one side of which is a computed sum.
fn compared(source: &Source, function: &Function, sums: &BTreeSet<Name>) -> Vec<Finding> {
    let tokens = &source.tokens;
    let bound = bound(tokens, function.body.clone(), sums);
    let is_sum = |range: Range<usize>| {
        calls_sum(tokens, range.clone(), sums)
            || range.into_iter().any(|at| {
                let field = at > 0 && tokens[at - 1].text == ".";
                tokens[at].kind == Kind::Word && !field && bound.contains(&tokens[at].text)
            })
    };
    let mut findings = Vec::new();
    for at in function.body.clone() {
        let sides = if source.starts(at, &["=", "="]) || source.starts(at, &["!", "="]) {
            [before(tokens, function.body.start, at), after(tokens, at + 2, function.body.end)]
        } else if source.starts(at, &[".", "eq", "("]) || source.starts(at, &[".", "ne", "("]) {
            let close = closing(tokens, at + 2);
            [before(tokens, function.body.start, at), at + 3..close]
        } else {
            continue;
        };
        if sides.into_iter().any(is_sum) {
            let text = "a sum is compared here, without a site: let `Certify::agrees` do it, with \
                        a Certify that names one";
            findings.push(Finding::new(&source.path, tokens[at].line, "sums", text.to_owned()));
        }
    }
    findings
}

/// All functions that compute a sum: those of `base/codes`, and those made of them.
fn sum_functions(places: &[(&Source, Vec<Function>)]) -> BTreeSet<Name> {
    let all = || places.iter().flat_map(|(source, found)| found.iter().map(move |f| (*source, f)));
    let others: BTreeSet<&Name> =
        all().filter(|(_, f)| f.answer != "u32").map(|(_, f)| &f.name).collect();
    let mut sums: BTreeSet<Name> =
        CODES.iter().map(|(name, arguments)| ((*name).to_owned(), *arguments)).collect();
    loop {
        let more: Vec<Name> = all()
            .filter(|(_, f)| f.answer == "u32" && !others.contains(&f.name))
            .filter(|(_, f)| !sums.contains(&f.name))
            .filter(|(source, f)| calls_sum(&source.tokens, f.body.clone(), &sums))
            .map(|(_, f)| f.name.clone())
            .collect();
        if more.is_empty() {
            return sums;
        }
        sums.extend(more);
    }
}

/// Whether one of the tokens is the name in a call of a function that computes a sum.
fn calls_sum(tokens: &[Token], range: Range<usize>, sums: &BTreeSet<Name>) -> bool {
    range.into_iter().any(|at| {
        let call = tokens.get(at + 1).is_some_and(|next| next.text == "(");
        let definition = at > 0 && tokens[at - 1].text == "fn";
        let word = tokens[at].kind == Kind::Word && call && !definition;
        word && sums.contains(&(tokens[at].text.clone(), arguments(tokens, at + 1)))
    })
}

/// Names that a body gives to sums: `let NAME = ...;` and `NAME = ...;`.
fn bound(tokens: &[Token], body: Range<usize>, sums: &BTreeSet<Name>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for at in body.clone() {
        let sign = tokens[at].text == "=" && tokens[at].kind == Kind::Mark;
        let part = |at: usize| matches!(tokens[at].text.as_str(), "=" | "!" | "<" | ">");
        if !sign || part(at - 1) || part(at + 1) {
            continue;
        }
        let value = at + 1..statement_end(tokens, at + 1, body.end);
        // What `Certify` answers is no sum.
        let answered = tokens[value.clone()].iter().any(|token| token.text == "agrees");
        if answered || !calls_sum(tokens, value, sums) {
            continue;
        }
        let start = (body.start..at)
            .rev()
            .find(|i| matches!(tokens[*i].text.as_str(), "let" | ";" | "{" | "}") && *i != at);
        let pattern = &tokens[start.map_or(body.start, |i| i + 1)..at];
        let kept = pattern.iter().take_while(|token| token.text != ":");
        let words = kept.filter(|token| token.kind == Kind::Word && token.text != "mut");
        names.extend(words.map(|token| token.text.clone()));
    }
    names
}

/// The functions of a file that have a body, outside tests.
fn functions(source: &Source) -> Vec<Function> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let named = tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Word);
        if tokens[at].text != "fn" || !named || source.is_test_line(tokens[at].line) {
            continue;
        }
        let Some(open) = (at..tokens.len()).find(|i| tokens[*i].text == "(") else { continue };
        let close = closing(tokens, open);
        // A type in the signature has no braces and no semicolon, but for that of an array.
        let mut end = close + 1;
        while end < tokens.len() && !matches!(tokens[end].text.as_str(), "{" | ";") {
            end = if tokens[end].text == "[" { closing(tokens, end) } else { end } + 1;
        }
        if tokens.get(end).is_none_or(|token| token.text == ";") {
            continue;
        }
        let answer = tokens[close + 1..end].iter().map(|token| token.text.as_str());
        let answer: String = answer.take_while(|text| *text != "where").collect();
        let own = tokens[open + 1..close].iter().take_while(|t| t.text != ",");
        let this = usize::from(own.into_iter().any(|token| token.text == "self"));
        let name = (tokens[at + 1].text.clone(), arguments(tokens, open).saturating_sub(this));
        let answer = answer.trim_start_matches("->").to_owned();
        found.push(Function { name, answer, body: end + 1..closing(tokens, end) });
    }
    found
}

/// Number of arguments between the bracket at `open` and its partner.
fn arguments(tokens: &[Token], open: usize) -> usize {
    let close = closing(tokens, open);
    let mut count = 0;
    let mut at = open + 1;
    let mut any = false;
    while at < close {
        match tokens[at].text.as_str() {
            "(" | "[" | "{" => at = closing(tokens, at),
            "," => (count, any) = (count + 1, false),
            _ => {}
        }
        any |= tokens[at].text != ",";
        at += 1;
    }
    count + usize::from(any)
}

/// Index of the partner of the bracket at `open`; the end if it has none.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Mark => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Where the statement that `from` is in ends.
fn statement_end(tokens: &[Token], from: usize, end: usize) -> usize {
    let mut at = from;
    while at < end {
        match tokens[at].text.as_str() {
            "(" | "[" | "{" => at = closing(tokens, at),
            ";" | ")" | "]" | "}" | "," => return at,
            _ => {}
        }
        at += 1;
    }
    end
}

/// Whether an operand ends at this token: its neighbour on the side of the operand is `next`.
fn ends(token: &Token, next: Option<&Token>) -> bool {
    let text = token.text.as_str();
    let doubled = matches!(text, "&" | "|") && next.is_some_and(|next| next.text == text);
    let mark = matches!(text, ";" | "," | "{" | "}" | "=") && token.kind == Kind::Mark;
    mark || doubled || KEYWORDS.contains(&text)
}

/// The operand that ends before `at`.
fn before(tokens: &[Token], start: usize, at: usize) -> Range<usize> {
    let mut depth = 0usize;
    for i in (start..at).rev() {
        match tokens[i].text.as_str() {
            ")" | "]" => depth += 1,
            "(" | "[" if depth == 0 => return i + 1..at,
            "(" | "[" => depth -= 1,
            _ if depth == 0 && ends(&tokens[i], i.checked_sub(1).map(|i| &tokens[i])) => {
                return i + 1..at;
            }
            _ => {}
        }
    }
    start..at
}

/// The operand that starts at `at`.
fn after(tokens: &[Token], at: usize, end: usize) -> Range<usize> {
    let mut depth = 0usize;
    for i in at..end {
        match tokens[i].text.as_str() {
            "(" | "[" => depth += 1,
            ")" | "]" if depth == 0 => return at..i,
            ")" | "]" => depth -= 1,
            _ if depth == 0 && ends(&tokens[i], tokens.get(i + 1)) => return at..i,
            _ => {}
        }
    }
    at..end
}

#[cfg(test)]
mod tests;
