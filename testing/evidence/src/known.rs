//! Which rows are of a source that can be looked at again.
//!
//! The others stay in the list and in its sums, as all rows do, and what they found is open like
//! anything else. But they count towards no goal, and show nothing to be mended.

use crate::Row;

/// Commits that are not in the history, and why. A row is never removed, so what is left of it is
/// said here; `tests/committed.rs` asks for a line of each commit that the history lacks.
const GONE: &[(&str, &str)] =
    &[("6d66ca4", "was in no branch any more when the list was committed first, with 90d58f0")];

/// Digits of a commit that each row has.
const SHORT: usize = 7;

impl Row {
    /// Whether its source is a commit, as it ran, and was not lost since.
    #[must_use]
    pub fn is_known(&self) -> bool {
        // What was changed and not committed is nothing that could be looked at again.
        let commit = self.source();
        let gone = GONE.iter().any(|(gone, _)| commit.starts_with(gone));
        !self.commit.contains('+') && self.commit != "unknown" && !gone
    }

    /// The commit alone, as short as it was noted: without a mark, and without its tree.
    #[must_use]
    pub fn source(&self) -> &str {
        self.commit.split([' ', '+']).next().unwrap_or_default()
    }

    /// As much of the commit as all rows have: how short it is noted differs from clone to clone.
    pub(crate) fn short_source(&self) -> &str {
        let source = self.source();
        source.get(..SHORT).unwrap_or(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(commit: &str) -> Row {
        Row { commit: commit.to_owned(), ..Row::default() }
    }

    #[test]
    fn what_was_not_committed_or_is_gone_is_not_known() {
        assert!(of("abc tree 1").is_known());
        let unknown = ["abc+ tree 1", "abc+", "unknown", GONE[0].0];
        for commit in unknown {
            assert!(!of(commit).is_known(), "{commit}");
        }
        assert!(!of(&format!("{}0 tree 1", GONE[0].0)).is_known(), "the same, one digit longer");
    }

    #[test]
    fn a_source_is_told_without_its_mark_and_tree() {
        assert_eq!(["abc", "abc tree 1", "abc+ tree 1"].map(|it| of(it).source().len()), [3; 3]);
    }

    #[test]
    fn a_source_is_the_same_however_short_it_is_noted() {
        let short = |commit| of(commit).short_source().len();
        assert_eq!(["abcdef7 tree 1", "abcdef78+ tree 1", "abc"].map(short), [7, 7, 3]);
    }

    #[test]
    fn whoever_is_gone_has_a_reason() {
        assert!(GONE.iter().all(|(commit, why)| commit.len() >= 7 && !why.is_empty()));
    }
}
