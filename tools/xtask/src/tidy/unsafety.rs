//! Every `unsafe` argues: a comment with `SAFETY` close above it, or as the first line inside.

use super::BUDGETS;
use crate::finding::Finding;
use crate::source::Source;

/// Spelt once: what the argument starts with.
const MARK: &str = "SAFETY";

/// Every `unsafe` block or `unsafe impl` of the file without an argument.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in 0..source.tokens.len() {
        let block = source.starts(at, &["unsafe", "{"]);
        if !block && !source.starts(at, &["unsafe", "impl"]) {
            continue;
        }
        let line = source.tokens[at].line;
        let inside = if block { line + 1 } else { line };
        let mut near = source.comments.range(line.saturating_sub(BUDGETS.safety_reach)..=inside);
        if !near.any(|(_, text)| text.contains(MARK)) {
            let text = format!(
                "no `// {MARK}:` within {} lines above or on the first line inside; argue from a \
                 named check",
                BUDGETS.safety_reach
            );
            findings.push(Finding::new(&source.path, line, "safety", text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&at("base/pmem/src/x.rs", text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_argument_above_or_inside_is_enough() {
        assert_eq!(lines("fn f() {\n // SAFETY: checked by g.\n unsafe { g() }\n}"), [0usize; 0]);
        assert_eq!(lines("fn f() {\n unsafe {\n // SAFETY: checked.\n g() }\n}"), [0usize; 0]);
        assert_eq!(lines("// SAFETY: plain data.\nunsafe impl Send for S {}"), [0usize; 0]);
    }

    #[test]
    fn none_or_a_distant_one_is_refused() {
        assert_eq!(lines("fn f() { unsafe { g() } }"), [1]);
        assert_eq!(lines("unsafe impl Send for S {}"), [1]);
        let far = format!("// SAFETY: x\n{}fn f() {{ unsafe {{ g() }} }}", "\n".repeat(6));
        assert_eq!(lines(&far), [8]);
        let near = format!("// SAFETY: x\n{}fn f() {{ unsafe {{ g() }} }}", "\n".repeat(5));
        assert_eq!(lines(&near), [0usize; 0]);
    }

    #[test]
    fn a_string_is_no_argument_and_macros_are_not_exempt() {
        assert_eq!(lines("fn f() { let s = \"SAFETY\"; unsafe { g() } }"), [1]);
        assert_eq!(lines("macro_rules! m { () => { unsafe { g() } } }"), [1]);
    }

    #[test]
    fn unsafe_functions_are_left_to_clippy() {
        assert_eq!(lines("unsafe fn f() {}"), [0usize; 0]);
    }
}
