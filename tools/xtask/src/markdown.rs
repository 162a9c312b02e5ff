//! As much of Markdown as the checks need: lines outside code, tables, links, headings.

/// A line of a page that is not inside a fenced block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Number, from 1.
    pub(crate) number: usize,
    /// The text, without the line break.
    pub(crate) text: &'a str,
}

/// The lines of a page outside fenced blocks.
pub(crate) fn prose(page: &str) -> Vec<Line<'_>> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (number, text) in (1..).zip(page.lines()) {
        let start = text.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push(Line { number, text }),
            (Some(_), _) => {}
        }
    }
    lines
}

/// The cells of a table row, trimmed; `None` if the line is not one. `\|` does not end a cell.
pub(crate) fn cells(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for c in inner.chars() {
        match (c, cells.last_mut()) {
            ('|', _) if !escaped => cells.push(String::new()),
            (_, Some(cell)) => cell.push(c),
            (_, None) => {}
        }
        escaped = c == '\\';
    }
    Some(cells.into_iter().map(|cell| cell.trim().to_owned()).collect())
}

/// Whether a table row is the rule between heading and body.
pub(crate) fn is_rule(cells: &[String]) -> bool {
    cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')))
}

/// The text between each pair of backticks.
pub(crate) fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// `text` with the inside of code spans blanked, so that brackets in code are not links.
pub(crate) fn without_code(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    pieces.filter(|(at, _)| at % 2 == 0).map(|(_, piece)| piece).collect::<Vec<_>>().join("`")
}

/// Targets of the links on a line: `[text](target)`, titled or not, and `[label]: target`.
pub(crate) fn links(text: &str) -> Vec<String> {
    let text = without_code(text);
    let mut targets: Vec<String> = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .map(|target| target.trim_matches(['<', '>']).to_owned())
        .collect();
    if let Some((label, target)) = text.trim_start().split_once("]: ")
        && label.starts_with('[')
    {
        targets.extend(
            target
                .split_whitespace()
                .next()
                .map(|target| target.trim_matches(['<', '>']).to_owned()),
        );
    }
    targets
}

/// The anchors a page offers: one per heading, made as the usual viewers make them.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for line in prose(page) {
        let title = line.text.trim_start_matches('#');
        if title.len() == line.text.len() || !title.starts_with(' ') {
            continue;
        }
        let base: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let repeats = anchors.iter().filter(|anchor| is_repeat(anchor, &base)).count();
        anchors.push(if repeats == 0 { base } else { format!("{base}-{repeats}") });
    }
    anchors
}

/// Whether `anchor` is `base` or `base` with a number behind it.
fn is_repeat(anchor: &str, base: &str) -> bool {
    anchor.strip_prefix(base).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_blocks_are_not_prose() {
        let page = "a\n```text\n| x |\n~~~\n```\nb\n";
        let texts: Vec<_> = prose(page).iter().map(|line| (line.number, line.text)).collect();
        assert_eq!(texts, [(1, "a"), (6, "b")]);
    }

    #[test]
    fn rows_split_at_bare_bars_only() {
        assert_eq!(cells("| a | b \\| c |"), Some(vec!["a".to_owned(), "b \\| c".to_owned()]));
        assert_eq!(cells("no table"), None);
        assert!(is_rule(&cells("|---|:-:|").unwrap()));
        assert!(!is_rule(&cells("| - x | |").unwrap()));
    }

    #[test]
    fn links_are_found_and_code_is_not() {
        assert_eq!(links("[a](b.md) `[c](d.md)` [e](<f.md> \"t\")"), ["b.md", "f.md"]);
        assert_eq!(links("[label]: docs/x.md"), ["docs/x.md"]);
    }

    #[test]
    fn anchors_follow_the_headings() {
        let page = "# The pool: one file\n## Size\n## Size\n#no\n";
        assert_eq!(anchors(page), ["the-pool-one-file", "size", "size-1"]);
    }
}
