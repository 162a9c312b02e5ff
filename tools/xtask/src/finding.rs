//! What a check has to say: one broken rule, where, and what to do about it.

use std::fmt;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, relative to the root of the workspace.
    pub(crate) path: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub(crate) line: usize,
    /// Name of the rule, as `STYLE.md` cites it.
    pub(crate) rule: &'static str,
    /// What is wrong and what to do.
    pub(crate) text: String,
}

impl Finding {
    /// Names a broken rule.
    pub(crate) fn new(
        path: impl Into<String>,
        line: usize,
        rule: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, rule, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}: {}", self.path, self.rule, self.text),
            line => write!(f, "{}:{line}: {}: {}", self.path, self.rule, self.text),
        }
    }
}

/// Prints the findings in order of place, then one line of summary; `true` if there were none.
pub(crate) fn report(check: &str, mut findings: Vec<Finding>, summary: &str) -> bool {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    let verdict = if findings.is_empty() { "ok" } else { "FAILED" };
    println!("{check}: {verdict}, {} findings; {summary}", findings.len());
    findings.is_empty()
}
