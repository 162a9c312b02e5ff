//! What a check has to say: one broken rule, where, and what to do about it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Whether checks say what they found as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on they do, if `yes`.
pub(crate) fn as_json(yes: bool) {
    JSON.store(yes, Ordering::Relaxed);
}

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// Prints the findings in order of place, then one line of summary, or all of it as one object;
/// `true` if there were none.
pub(crate) fn report(check: &str, mut findings: Vec<Finding>, summary: &str) -> bool {
    findings.sort();
    findings.dedup();
    if JSON.load(Ordering::Relaxed) {
        println!("{}", object(check, &findings, summary));
        return findings.is_empty();
    }
    for finding in &findings {
        println!("{finding}");
    }
    let verdict = if findings.is_empty() { "ok" } else { "FAILED" };
    println!("{check}: {verdict}, {} findings; {summary}", findings.len());
    findings.is_empty()
}

fn object(check: &str, findings: &[Finding], summary: &str) -> serde_json::Value {
    serde_json::json!({
        "check": check,
        "ok": findings.is_empty(),
        "findings": findings,
        "summary": summary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_what_is_printed_otherwise() {
        let found = [Finding::new("a.rs", 7, "columns", "102 columns")];
        let told = object("tidy", &found, "3 files");
        assert_eq!(told["ok"], false);
        assert_eq!(told["findings"][0]["line"], 7);
        assert_eq!(told["findings"][0]["rule"], "columns");
        assert_eq!(object("tidy", &[], "3 files")["ok"], true);
    }
}
