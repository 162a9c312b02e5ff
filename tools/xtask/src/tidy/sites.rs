//! Names of the places that persistence hangs on: each has one, each name has one place.
//!
//! The campaign switches sites off one at a time, by name, and a checker must notice. A name used
//! twice would switch off two places at once, and one of them could be superfluous unseen.

mod tried;

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::source::{Kind, Source, Token};

/// Methods of a medium that take a site.
const CALLS: &[&str] =
    &["put", "put_aside", "xor", "zero", "drain", "append", "sync", "heal", "enabled", "step"];

/// What a medium is called where one is used.
const MEDIA: &[&str] = &["medium", "media", "mem", "m", "pmem"];

/// One `Site::new(...)` outside tests.
#[derive(Debug)]
struct Definition<'a> {
    source: &'a Source,
    line: usize,
    /// The name, if it is a literal.
    name: Option<String>,
    /// The constant it defines, if it does.
    constant: Option<&'a str>,
}

/// One call of a medium's method with a site.
#[derive(Debug)]
struct Call<'a> {
    source: &'a Source,
    line: usize,
    method: &'a str,
    argument: &'a [Token],
}

/// Every unnamed, doubly named, misnamed or unused site.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let definitions = definitions(sources);
    let mut findings = Vec::new();
    let mut places: BTreeMap<&str, &Definition<'_>> = BTreeMap::new();
    for definition in &definitions {
        let path = &definition.source.path;
        let mut refuse =
            |text: String| findings.push(Finding::new(path, definition.line, "sites", text));
        let Some(name) = definition.name.as_deref() else {
            refuse("a site is named by a literal, so that it can be found".to_owned());
            continue;
        };
        if let Some(wrong) = misnamed(name, definition.source) {
            refuse(format!("{name}: {wrong}"));
        }
        if let Some(first) = places.insert(name, definition) {
            refuse(format!("{name} names {}:{} too", first.source.path, first.line));
        }
        if let Some(constant) = definition.constant
            && !is_used(definition, constant, sources)
        {
            refuse(format!("{constant} ({name}) is used nowhere: nothing hangs on it"));
        }
        findings.extend(twice(definition, name, sources));
    }
    findings.extend(check_calls(&calls(sources)));
    findings.extend(tried::check(&definitions, sources));
    findings
}

/// One line per site: name, place, what is done there.
pub(super) fn list(sources: &[Source]) -> String {
    let calls = calls(sources);
    let mut lines: Vec<String> = definitions(sources)
        .iter()
        .filter_map(|definition| {
            let name = definition.name.as_deref()?;
            let mut methods: Vec<&str> = calls
                .iter()
                .filter(|call| names(call, definition))
                .map(|call| call.method)
                .collect();
            methods.sort_unstable();
            methods.dedup();
            let place = format!("{}:{}", definition.source.path, definition.line);
            Some(format!("{name}\t{place}\t{}\n", methods.join(",")))
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// How many sites have a name.
pub(super) fn count(sources: &[Source]) -> usize {
    definitions(sources).iter().filter(|definition| definition.name.is_some()).count()
}

/// Whether the call's argument is this definition: in place, or by its constant.
fn names(call: &Call<'_>, definition: &Definition<'_>) -> bool {
    let home = call.source.room() == definition.source.room();
    match definition.constant {
        Some(constant) => {
            let here = call.source.path == definition.source.path;
            let seen = here || !defines(call.source, constant);
            home && seen && constant_of(call.argument) == Some(constant)
        }
        None => {
            let literal = call.argument.iter().find(|token| token.kind == Kind::Literal);
            home && literal.map(|token| token.text.trim_matches('"')) == definition.name.as_deref()
        }
    }
}

/// Where sites are written: the sources of the product, outside tests.
fn places(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.is_source_of(&["base", "core", "engines", "surfaces"]))
}

/// Every `Site::new(...)` that is not in a test.
fn definitions(sources: &[Source]) -> Vec<Definition<'_>> {
    let mut found = Vec::new();
    for source in places(sources) {
        for at in 0..source.tokens.len() {
            let line = source.tokens[at].line;
            if !source.starts(at, &["Site", ":", ":", "new", "("]) || source.is_test_line(line) {
                continue;
            }
            let argument = first_argument(&source.tokens, at + 5);
            let name = match argument {
                [token] if token.text.starts_with('"') => {
                    Some(token.text.trim_matches('"').to_owned())
                }
                _ => None,
            };
            let constant = constant_before(&source.tokens[..at]);
            found.push(Definition { source, line, name, constant });
        }
    }
    found
}

/// The constant that the tokens before an expression are the head of: `const NAME: TYPE =`.
fn constant_before(head: &[Token]) -> Option<&str> {
    // The path in front of `Site`, as in `holdfast_pmem::Site`, belongs to the expression.
    let end = head.iter().rposition(|token| token.text != ":" && token.kind == Kind::Mark)?;
    let start = head[..end].iter().rposition(|token| token.text == "const")?;
    let [name, colon, kind @ ..] = head.get(start + 1..end)? else { return None };
    let plain = kind.iter().all(|token| token.kind == Kind::Word || token.text == ":");
    (head[end].text == "=" && colon.text == ":" && plain).then_some(name.text.as_str())
}

/// What is wrong with the form of a name: it is `crate.file.Name`.
fn misnamed(name: &str, source: &Source) -> Option<String> {
    let (_, room) = source.room()?;
    let parts: Vec<&str> = name.split('.').collect();
    let [first, file, rest @ ..] = parts.as_slice() else {
        return Some("write crate.file.Name".to_owned());
    };
    let word = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let lower = |part: &str| !part.contains(|c: char| c.is_ascii_uppercase());
    if rest.is_empty() || !parts.iter().all(word) || !lower(first) || !lower(file) {
        return Some("write crate.file.Name, crate and file in lower case".to_owned());
    }
    let modules = source.path.split_once("/src/").map_or("", |(_, path)| path);
    let in_file = modules.trim_end_matches(".rs").split('/').any(|module| module == *file);
    if *first != room || !in_file {
        let stem = modules.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let stem = stem.rsplit('/').next().unwrap_or(stem);
        return Some(format!("it is in {}: start it with {room}.{stem}", source.path));
    }
    None
}

/// A site's constant that is asked about, stepped on, or handed to anything that may do something
/// there, at more than one place: all would be switched off with it, though a helper has one line
/// for all of them.
fn twice(definition: &Definition<'_>, name: &str, sources: &[Source]) -> Vec<Finding> {
    let Some(constant) = definition.constant.filter(|_| !tried::is_excused(name)) else {
        return Vec::new();
    };
    let mut first: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut findings = Vec::new();
    let home = |source: &&Source| source.room() == definition.source.room();
    let seen =
        |source: &&Source| source.path == definition.source.path || !defines(source, constant);
    for source in places(sources).filter(home).filter(seen) {
        for (how, line) in mentions(source, constant) {
            let Some((path, at)) = first.insert(how, (&source.path, line)) else { continue };
            let here = &source.path;
            let text =
                format!("{name}: {how} at {path}:{at} and {here}:{line}: one site, one place");
            findings.push(Finding::new(here, line, "sites", text));
        }
    }
    findings
}

/// Where a constant is used in a file, and how.
fn mentions(source: &Source, constant: &str) -> Vec<(&'static str, usize)> {
    let (mut found, mut imports) = (Vec::new(), false);
    for (at, token) in source.tokens.iter().enumerate() {
        imports = token.text == "use" || imports && token.text != ";";
        let here = token.kind == Kind::Word && token.text == constant;
        let defined = at > 0 && source.tokens[at - 1].text == "const";
        if !here || imports || defined || source.is_test_line(token.line) {
            continue;
        }
        let path = |token: &Token| token.kind == Kind::Word || token.text == ":";
        let open = source.tokens[..at].iter().rposition(|token| !path(token));
        let open = open.filter(|open| *open > 0 && source.tokens[*open].text == "(");
        let how = match open.map(|open| source.tokens[open - 1].text.as_str()) {
            Some("enabled") => "asked about",
            Some("step") => "stepped on",
            _ => "handed on",
        };
        found.push((how, token.line));
    }
    found
}

/// Whether the constant occurs anywhere in its crate besides its definition.
fn is_used(definition: &Definition<'_>, constant: &str, sources: &[Source]) -> bool {
    let home = |source: &&Source| source.room() == definition.source.room();
    places(sources).filter(home).any(|source| {
        let pairs = source.tokens.windows(2);
        pairs.into_iter().any(|pair| pair[0].text != "const" && pair[1].text == constant)
    })
}

/// Whether the file defines a constant of this name.
fn defines(source: &Source, constant: &str) -> bool {
    source.tokens.windows(2).any(|pair| pair[0].text == "const" && pair[1].text == constant)
}

/// Every call of a medium's method that has an argument, outside tests.
fn calls(sources: &[Source]) -> Vec<Call<'_>> {
    let mut found = Vec::new();
    for source in places(sources) {
        for at in 1..source.tokens.len() {
            let Some(method) = CALLS.iter().find(|call| source.starts(at, &[".", call, "("]))
            else {
                continue;
            };
            let line = source.tokens[at].line;
            let argument = first_argument(&source.tokens, at + 3);
            let receiver = receiver(&source.tokens[..at]);
            let medium = MEDIA.contains(&receiver) && !is_collection_argument(argument);
            let sited = is_site(source, argument);
            if !source.is_test_line(line) && !argument.is_empty() && (medium || sited) {
                found.push(Call { source, line, method, argument });
            }
        }
    }
    found
}

/// Calls without a site.
fn check_calls(calls: &[Call<'_>]) -> Vec<Finding> {
    let unnamed = calls.iter().filter(|call| !is_site(call.source, call.argument));
    let refuse = |call: &Call<'_>| {
        let text = format!(
            ".{}(...) carries no site: name the place with Site::new, or pass on an argument \
             declared as a Site",
            call.method
        );
        Finding::new(&call.source.path, call.line, "sites", text)
    };
    unnamed.map(refuse).collect()
}

/// The tokens of the first argument, given the index after the opening bracket.
fn first_argument(tokens: &[Token], start: usize) -> &[Token] {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "(" | "[" | "{" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Mark => {
                if depth == 0 {
                    return &tokens[start..at];
                }
                depth -= 1;
            }
            "," if depth == 0 => return &tokens[start..at],
            _ => {}
        }
    }
    &tokens[start.min(tokens.len())..]
}

/// The last word of the expression a method is called on: a variable, a field, or a method.
fn receiver(head: &[Token]) -> &str {
    let mut depth = 0usize;
    for token in head.iter().rev() {
        match token.text.as_str() {
            ")" => depth += 1,
            "(" => depth = depth.saturating_sub(1),
            text if depth == 0 => return text,
            _ => {}
        }
    }
    ""
}

/// Whether an argument is one that only a collection takes: a range, or `&mut other`.
fn is_collection_argument(argument: &[Token]) -> bool {
    let range = argument.windows(2).any(|pair| pair[0].text == "." && pair[1].text == ".");
    let other = matches!(argument, [and, word, ..] if and.text == "&" && word.text == "mut");
    range || other
}

/// Whether an argument is a site: named here, a constant, or passed on: under that word, or under
/// one that the file declares to be of that type.
pub(super) fn is_site(source: &Source, argument: &[Token]) -> bool {
    let mut words = argument.iter().filter(|token| token.kind == Kind::Word);
    constant_of(argument).is_some()
        || words.clone().any(|token| token.text.to_ascii_lowercase().contains("site"))
        || words.next_back().is_some_and(|last| {
            source.tokens.windows(3).any(|tokens| {
                tokens[0].text == last.text && tokens[1].text == ":" && tokens[2].text == "Site"
            })
        })
}

/// The constant an argument is, if it is a path that ends in one.
fn constant_of(argument: &[Token]) -> Option<&str> {
    let path = argument.iter().all(|token| token.kind == Kind::Word || token.text == ":");
    let last = argument.last()?;
    let loud = last.text.starts_with(|c: char| c.is_ascii_uppercase())
        && last.text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (path && loud).then_some(last.text.as_str())
}

#[cfg(test)]
mod tests;
