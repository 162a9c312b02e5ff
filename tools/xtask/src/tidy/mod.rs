//! Style as a test: what `STYLE.md` asks for and a program can see.
//!
//! Each file below holds one kind of rule. All of them see the same parsed sources, so a word in
//! a string never counts as code and a macro body never hides from a rule.

mod modelled;
mod names;
mod pages;
mod rooms;
mod sites;
mod sizes;
mod sums;
mod unsafety;
mod words;

use std::path::Path;

use anyhow::Result;

use crate::finding::report;
use crate::source::{Source, read_all};
use crate::workspace::{Workspace, files};

/// The numbers of the house. A limit is raised here or not at all.
const BUDGETS: Budgets = Budgets {
    file_lines: 800,
    function_lines: 70,
    columns: 100,
    crate_doc_lines: 15,
    safety_reach: 6,
};

/// What a file, a function, a line and a crate may use up.
#[derive(Debug, Clone, Copy)]
struct Budgets {
    /// Lines of a file, comments and tests included.
    file_lines: usize,
    /// Lines of a function, from its signature to its closing brace.
    function_lines: usize,
    /// Characters of a line.
    columns: usize,
    /// Least number of lines of the doc a crate opens with.
    crate_doc_lines: usize,
    /// How many lines above an `unsafe` its argument may start.
    safety_reach: usize,
}

/// Runs every rule; `true` if none is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let files = files(&workspace.root)?;
    let (sources, mut findings) = read_all(&workspace.root, &files)?;
    for source in &sources {
        findings.extend(sizes::check(source));
        findings.extend(words::check(source));
        findings.extend(unsafety::check(source));
        findings.extend(modelled::check(source));
    }
    findings.extend(sites::check(&sources));
    findings.extend(sums::check(&sources));
    findings.extend(names::check(&workspace.root, &files)?);
    findings.extend(pages::check(&workspace.root, &files)?);
    findings.extend(rooms::check(workspace, &sources)?);
    let summary = summary(&sources);
    Ok(report("tidy", findings, &summary))
}

/// Prints the name, the place and the use of every site, in order of name.
pub(crate) fn print_sites(root: &Path) -> Result<bool> {
    let (sources, errors) = read_all(root, &files(root)?)?;
    for error in &errors {
        eprintln!("{error}");
    }
    print!("{}", sites::list(&sources));
    Ok(errors.is_empty())
}

/// Sizes in one line: what the tree is like, beside what it may not be.
fn summary(sources: &[Source]) -> String {
    let files = sources.iter().map(|source| source.text.lines().count()).collect();
    let functions = sources.iter().flat_map(sizes::functions).map(|function| function.2).collect();
    let ((file_median, file_max), (function_median, function_max)) =
        (median_and_max(files), median_and_max(functions));
    format!(
        "{} Rust files, lines per file: median {file_median}, longest {file_max}; per function: \
         median {function_median}, longest {function_max}; {} sites",
        sources.len(),
        sites::count(sources),
    )
}

/// The middle and the largest of the numbers; zeros if there are none.
fn median_and_max(mut numbers: Vec<usize>) -> (usize, usize) {
    numbers.sort_unstable();
    let median = numbers.get(numbers.len() / 2).copied().unwrap_or(0);
    (median, numbers.last().copied().unwrap_or(0))
}

/// A source at a path, for the tests of the rules.
#[cfg(test)]
fn at(path: &str, text: &str) -> Source {
    Source::parse(path, text.to_owned()).unwrap()
}
