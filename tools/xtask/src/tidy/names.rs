//! Names of papers and of other systems stay in the pages made for them.
//!
//! The code has words of its own (`docs/glossary.md`): one meaning each, whoever thought of the
//! mechanism first. The names below are spelt in halves, so that this file passes itself.

use std::path::Path;

use anyhow::{Context, Result};

use crate::finding::Finding;

/// The one page for names of papers and of the systems they describe.
const PAPERS: &str = "docs/papers.md";

/// Where the store we race against may be named too: in the race, in its report, and in the list
/// of what was run.
const RACE: &[&str] = &["docs/performance.md", "docs/evidence.md", "testing/bench"];

/// A name, whether its case matters (it is an ordinary word otherwise), and where else it may be.
#[derive(Debug, Clone, Copy)]
struct Name {
    text: &'static str,
    exact_case: bool,
    also_in: &'static [&'static str],
}

const fn name(text: &'static str, exact_case: bool) -> Name {
    Name { text, exact_case, also_in: &[] }
}

const NAMES: &[Name] = &[
    name(concat!("Pango", "lin"), false),
    name(concat!("Vil", "amb"), false),
    name(concat!("Time", "Stone"), false),
    name(concat!("TEN", "ET"), true),
    name(concat!("TI", "PS"), true),
    name(concat!("RET", "INA"), true),
    name(concat!("TVA", "RAK"), false),
    name(concat!("NOVA-", "Fortis"), false),
    Name { text: concat!("libpmem", "obj"), exact_case: false, also_in: RACE },
];

/// Every name in code, docs and manifests outside its place.
pub(super) fn check(root: &Path, files: &[String]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let read = |path: &&String| {
        [".rs", ".md", ".toml", ".ci/run"].iter().any(|ending| path.ends_with(ending))
    };
    for path in files.iter().filter(read).filter(|path| *path != PAPERS) {
        let text = std::fs::read_to_string(root.join(path))
            .with_context(|| format!("{path}: cannot be read as UTF-8 text"))?;
        findings.extend(scan(path, &text));
    }
    Ok(findings)
}

/// Every name in one file.
fn scan(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let refused = NAMES.iter().filter(|name| !name.also_in.iter().any(|at| path.starts_with(at)));
    for name in refused {
        for (number, line) in (1..).zip(text.lines()) {
            if has(line, name) {
                let text = format!("{} belongs in {PAPERS} only; use our own word", name.text);
                findings.push(Finding::new(path, number, "names", text));
            }
        }
    }
    findings
}

/// Whether the line has the name as a whole word.
fn has(line: &str, name: &Name) -> bool {
    let (line, word) = match name.exact_case {
        true => (line.to_owned(), name.text.to_owned()),
        false => (line.to_lowercase(), name.text.to_lowercase()),
    };
    line.match_indices(&word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_refused_in_code_and_docs() {
        for name in NAMES {
            let text = format!("//! x\n// as in {}, say\n", name.text);
            for path in ["core/heap/src/x.rs", "README.md", "docs/design/object.md"] {
                let findings = scan(path, &text);
                assert_eq!(findings.len(), 1, "{} in {path}", name.text);
                assert_eq!(findings[0].line, 2);
            }
        }
    }

    #[test]
    fn only_whole_words_in_their_case_count() {
        assert_eq!(scan("a.md", "tips, a retina, the tenets, TIPSY"), []);
        assert_eq!(scan("a.md", &NAMES[0].text.to_uppercase()).len(), 1);
    }

    #[test]
    fn the_race_may_name_its_rival() {
        let rival = NAMES.last().unwrap().text;
        assert_eq!(scan("docs/performance.md", rival), []);
        assert_eq!(scan("testing/bench-foreign/src/main.rs", rival), []);
        assert_eq!(scan("testing/campaign/src/main.rs", rival).len(), 1);
        assert_eq!(scan("docs/performance.md", NAMES[0].text).len(), 1);
    }
}
