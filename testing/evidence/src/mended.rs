//! What was wrong and has not been shown to be mended.
//!
//! Where a seed decides everything, one run of the same seed meets what the older one met; of a
//! fuzz target, as long as its corpus is the same, of which inputs are made. Where threads, signals
//! or a machine decide, a run that finds nothing proves little: what showed once in so many times
//! may well hide that often. There clean runs are asked for that did three times as much, since the
//! method last found something.

use std::collections::BTreeSet;

use crate::goals::once;
use crate::{ASKED, Row, is_meant};

/// Methods whose schedule is left to chance: threads, signals, a machine. Their seed says what is
/// done, and not when.
const CHANCE: &[&str] = &[
    "lab *",
    "mapped sigkill",
    "mapped writers",
    "object histories",
    "object large",
    "object media",
    "object sigkill",
    "object storm",
    "sanitize *",
];
/// Methods that are so where no seed is named.
const UNSEEDED: &str = "fuzz *";

/// How much more has to be clean than was done when something was found, where chance decides: of
/// what shows once in so many times, one in twenty hides that long.
const TIMES: u64 = 3;

/// Rows with something wrong that no later run of the same method on another commit has shown to be
/// mended: one of the same seed or, where chance decides, several that did more.
#[must_use]
pub fn open(rows: &[Row]) -> Vec<&Row> {
    let bad = rows.iter().enumerate().filter(|(_, row)| !row.is_clean());
    let open = bad.filter(|(at, row)| !is_mended(row, &rows[at + 1..]));
    open.map(|(_, row)| row).collect()
}

/// Whether later rows show that what was wrong in one is mended.
fn is_mended(bad: &Row, later: &[Row]) -> bool {
    if !is_chance(bad) {
        if later.iter().any(|row| row.is_clean() && repeats(row, bad)) {
            return true;
        }
        // Other files make other inputs of the same numbers: then chance decides.
        if part(&bad.how, "corpus ").is_none() {
            return false;
        }
    }
    // As long as the method finds something, what was clean in between shows nothing.
    let found = |row: &Row| row.method == bad.method && !row.is_clean();
    let since = later.iter().rposition(found).map_or(0, |at| at + 1);
    let clean = later[since..].iter().filter(|row| row.is_clean() && stands_for(row, bad));
    // The same inputs again show nothing new; the same threads may meet at another instant.
    let clean: u64 = match inputs(&bad.how) {
        Some(_) => once(clean).iter().map(|row| row.count).sum(),
        None => clean.map(|row| row.count).sum(),
    };
    clean >= (TIMES * bad.count).max(1)
}

fn is_chance(row: &Row) -> bool {
    let is_one = |pattern: &&str| is_meant(pattern, &row.method);
    CHANCE.iter().any(is_one) || is_meant(UNSEEDED, &row.method) && !row.how.contains("seed ")
}

/// Whether a row is of the same method as an older one, on another commit: a long run is not
/// repeated by a short one, a single case by none but itself or a run of all, and neither is what
/// was told to do a part of it.
fn stands_for(row: &Row, older: &Row) -> bool {
    row.method == older.method
        && row.is_known()
        && row.short_source() != older.short_source()
        && is_all_of(&what(&row.how), &what(&older.how))
        && (row.is_long() || !older.is_long())
        && row.case().is_none_or(|case| older.case() == Some(case))
        && told(&row.how).is_none_or(|told_to| told(&older.how) == Some(told_to))
}

/// The same of the same seed, where no less was done: half as often at the least, since what there
/// is to be done changes with the source, and all inputs that have numbers.
fn repeats(row: &Row, older: &Row) -> bool {
    let covers = match (inputs(&row.how), inputs(&older.how)) {
        (Some((from, to)), Some((older_from, older_to))) => from <= older_from && to >= older_to,
        _ => true,
    };
    // Of which files inputs were made; before that was noted, nobody knows.
    let corpus = |how| part(how, "corpus ");
    // What stopped where it found something was to do this much.
    let asked = older.figures.get(ASKED).copied().unwrap_or(older.count / 2);
    stands_for(row, older)
        && seed(&row.how) == seed(&older.how)
        && corpus(&row.how) == corpus(&older.how)
        && covers
        && row.count >= asked
}

/// Parts of how a row was run that name nothing it was run on.
const OTHERS: [&str; 8] =
    ["seed ", "tier ", "case ", "inputs ", "corpus ", "told ", "stopped ", "peer "];

/// Of how a row was run, what it was run on or of: file systems, crates; none if of all.
fn what(how: &str) -> BTreeSet<&str> {
    let plain = |part: &&str| OTHERS.iter().all(|word| !part.starts_with(word));
    let names = how.split(", ").filter(plain).flat_map(str::split_whitespace);
    names.filter(|name| *name != "and").collect()
}

/// Whether what was run later is all that was run before: all there is, or what has its names.
fn is_all_of(later: &BTreeSet<&str>, before: &BTreeSet<&str>) -> bool {
    later.is_empty() || !before.is_empty() && later.is_superset(before)
}

/// Of how a row was run, the part that begins so.
pub(crate) fn part<'a>(how: &'a str, word: &str) -> Option<&'a str> {
    how.split(", ").find(|part| part.starts_with(word))
}

/// What it was told besides, such as which tests to leave out.
pub(crate) fn told(how: &str) -> Option<&str> {
    part(how, "told ")
}

/// The seed that a row was run with; all that is said of how, where none is named.
fn seed(how: &str) -> &str {
    part(how, "seed ").unwrap_or(how)
}

/// Of `inputs 5 to 9`, the numbers.
pub(crate) fn inputs(how: &str) -> Option<(u64, u64)> {
    let (from, to) = part(how, "inputs ")?.strip_prefix("inputs ")?.split_once(" to ")?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(commit: &str, how: &str, violations: u64) -> Row {
        Row {
            commit: commit.to_owned(),
            method: "m".to_owned(),
            how: how.to_owned(),
            count: 3,
            violations,
            ..Row::default()
        }
    }

    fn cuts(commit: &str, seed: u64, count: u64, violations: u64) -> Row {
        let method = "lab cuts".to_owned();
        Row { method, count, ..of(commit, &format!("seed {seed}"), violations) }
    }

    fn count(rows: &[Row]) -> usize {
        open(rows).len()
    }

    #[test]
    fn what_was_wrong_is_open_until_the_same_is_clean_on_another_commit() {
        let bad = of("abc tree 1", "seed 1, tier long", 2);
        assert_eq!(count(&[bad.clone(), of("def", "seed 1, tier long", 0)]), 0);
        assert_eq!(count(&[bad.clone(), of("def", "seed 1, tier ci", 0)]), 1, "a short run");
        let less = Row { count: 1, ..of("def", "seed 1, tier long", 0) };
        assert_eq!(count(&[Row { count: 4, ..bad.clone() }, less]), 1, "far less was done");
        assert_eq!(count(std::slice::from_ref(&bad)), 1);
        assert_eq!(count(&[of("def", "seed 1", 0), bad.clone()]), 1, "it was clean before");
        let long = |commit, seed, found| of(commit, &format!("seed {seed}, tier long"), found);
        assert_eq!(count(&[bad.clone(), long("def", 2, 0)]), 1, "another seed");
        assert_eq!(count(&[bad.clone(), long("abc", 1, 0)]), 1, "the same commit");
        assert_eq!(count(&[bad.clone(), long("abc+ tree 1", 1, 0)]), 1, "it was not committed");
        assert_eq!(count(&[bad.clone(), long("def", 1, 1)]), 2, "it is not clean");
        let other = Row { method: "n".to_owned(), ..long("def", 1, 0) };
        assert_eq!(count(&[bad.clone(), other]), 1, "another method");
        assert_eq!(count(&[bad.clone(), long("def+ tree 1", 1, 0)]), 1, "nor was this");
        let on = |commit, how: &str, found| of(commit, &format!("seed 1, {how}"), found);
        let bad = on("abc", "xfs", 1);
        assert_eq!(count(&[bad.clone(), on("def", "ext4", 0)]), 1, "on another thing");
        assert_eq!(count(&[bad.clone(), on("def", "ext4 and xfs", 0)]), 0);
        assert_eq!(count(&[of("abc", "seed 1", 1), on("def", "xfs", 0)]), 1, "on a part of it");
        let one = |false_reports, reverted| Row { false_reports, reverted, ..of("abc", "", 0) };
        assert_eq!(count(&[one(Some(0), None), one(Some(1), None), one(None, Some(1))]), 2);
    }

    /// How each sort of program writes a row in which something was wrong, and one of the same on a
    /// later commit.
    const SORTS: &[(&str, &str, &str)] = &[
        ("object damage", "seed 1, tier long", "seed 1, tier long"),
        ("object storm", "seed 1, tier ci, case 5", "seed 1, tier ci"),
        ("mapped fields", "seed 1, tier ci, case 5", "seed 1, tier ci, case 5"),
        ("fuzz open", "seed 7, inputs 0 to 56", "seed 7, inputs 0 to 70"),
        ("fuzz open", "libFuzzer, AddressSanitizer", "libFuzzer, AddressSanitizer"),
        ("lab keys", "", ""),
        ("lab cuts", "seed 1", "seed 2"),
        ("lab blocklog", "seed 1, xfs", "seed 1, ext4 and xfs"),
        ("models loom lanes", "seed 1", "seed 1"),
        ("models shuttle rings", "seed 1", "seed 1"),
        ("coverage open", "tests, storms, campaigns", "tests, storms, campaigns"),
        ("sanitize thread", "x-object x-pmem, told one", "x-pmem x-codes x-object"),
        ("bench damage", "seed 1", "seed 1"),
    ];

    #[test]
    fn of_each_sort_of_program_a_bad_row_is_closed_by_a_good_one() {
        for (method, bad, good) in SORTS {
            let of = |commit, how, count, violations| Row {
                method: (*method).to_owned(),
                count,
                ..of(commit, how, violations)
            };
            let rows = [of("abc", bad, 3, 1), of("def", good, 9, 0)];
            assert_eq!((count(&rows[..1]), count(&rows)), (1, 0), "{method}: {bad}");
        }
    }

    #[test]
    fn crates_are_told_apart_by_their_whole_names_whatever_their_order() {
        let of = |commit, how: &str, count, violations| Row {
            method: "sanitize address".to_owned(),
            count,
            ..of(commit, how, violations)
        };
        let then = |bad, good| count(&[of("abc", bad, 3, 1), of("def", good, 9, 0)]);
        assert_eq!(then("b a", "a c b"), 0);
        assert_eq!(then("a", "a-more"), 1, "another crate");
        assert_eq!(then("a", "a, told one"), 1, "one test of it");
        assert_eq!(then("a, told two", "a, told one"), 1, "another test");
        assert_eq!(then("a, told one", "a, told one"), 0);
    }

    #[test]
    fn a_case_is_repeated_by_itself_or_by_all_of_them() {
        let bad = of("abc", "seed 1, tier long, case 5", 1);
        let then = |how| count(&[bad.clone(), of("def", how, 0)]);
        assert_eq!(then("seed 1, tier long, case 5"), 0);
        assert_eq!(then("seed 1, tier long"), 0);
        assert_eq!(then("seed 1, tier long, case 6"), 1, "another case");
        assert_eq!(then("seed 1, tier ci, case 5"), 1, "the case of a short run");
        let all = of("abc", "seed 1, tier ci", 1);
        assert_eq!(count(&[all, of("def", "seed 1, tier ci, case 5", 0)]), 1, "one of many");
    }

    #[test]
    fn inputs_that_have_numbers_are_all_run_again() {
        let fuzz = |commit: &str, inputs: &str, violations| Row {
            method: "fuzz open".to_owned(),
            ..of(commit, &format!("seed 2, inputs {inputs}"), violations)
        };
        let then = |inputs| count(&[fuzz("abc", "5 to 9", 1), fuzz("def", inputs, 0)]);
        assert_eq!(then("0 to 9"), 0);
        assert_eq!((then("0 to 8"), then("6 to 90")), (1, 1));
    }

    #[test]
    fn inputs_of_another_corpus_are_other_inputs() {
        let fuzz = |commit: &str, corpus: &str, count, violations| Row {
            method: "fuzz open".to_owned(),
            count,
            ..of(commit, &format!("seed 2, corpus {corpus}, inputs 0 to {count}"), violations)
        };
        let then =
            |corpus, count| open(&[fuzz("abc", "1a", 90, 1), fuzz("def", corpus, count, 0)]).len();
        assert_eq!(then("1a", 90), 0, "the same inputs");
        assert_eq!((then("2b", 90), then("2b", 270)), (1, 0), "others: thrice as many");
        let again = fuzz("def", "2b", 90, 0);
        let rows = [fuzz("abc", "1a", 90, 1), again.clone(), again.clone(), again];
        assert_eq!(open(&rows).len(), 1, "the same ones, three times");
    }

    #[test]
    fn what_stopped_where_it_found_something_is_done_to_its_end() {
        let row = |commit: &str, count, violations| Row {
            method: "models shuttle rings".to_owned(),
            count,
            ..of(commit, "seed 1", violations)
        };
        let mut bad = row("abc", 70, 1);
        bad.figures.insert(ASKED.to_owned(), 500);
        assert_eq!(count(&[bad.clone(), row("def", 50, 0)]), 1, "it did not get there");
        assert_eq!(count(&[bad, row("def", 500, 0)]), 0);
    }

    #[test]
    fn the_same_commit_with_a_digit_more_is_no_other() {
        let bad = of("abcdef7 tree 1", "seed 1", 1);
        assert_eq!(count(&[bad, of("abcdef78 tree 1", "seed 1", 0)]), 1);
    }

    #[test]
    fn where_chance_decides_thrice_as_much_has_to_be_clean() {
        let bad = cuts("abc", 3, 70, 1);
        let clean = |count| cuts("def", 3, count, 0);
        assert_eq!(count(&[bad.clone(), clean(70)]), 1, "one clean run of the same seed");
        assert_eq!(count(&[bad.clone(), clean(209)]), 1);
        assert_eq!(count(&[bad.clone(), clean(210)]), 0);
        // The seed does not say when: any will do, and runs add up.
        assert_eq!(count(&[bad.clone(), clean(70), cuts("ee", 4, 140, 0)]), 0);
        assert_eq!(count(&[bad.clone(), clean(140), cuts("abc", 4, 70, 0)]), 1, "its own commit");
        assert_eq!(count(&[bad.clone(), cuts("ee", 4, 0, 0)]), 1, "nothing was done");
        let died = Row { count: 0, ..bad };
        assert_eq!(count(std::slice::from_ref(&died)), 1, "it found something before it counted");
        assert_eq!(count(&[died, clean(1)]), 0);
    }

    #[test]
    fn where_chance_decides_clean_runs_count_since_the_last_that_was_not() {
        let (one, two) = (cuts("abc", 3, 70, 1), cuts("abd", 3, 10, 1));
        let clean = |count| cuts("def", 3, count, 0);
        assert_eq!(count(&[one.clone(), clean(200), two.clone(), clean(30)]), 1);
        assert_eq!(count(&[one, clean(200), two, clean(210)]), 0);
    }

    #[test]
    fn a_fuzzer_without_seed_is_left_to_chance() {
        let fuzz = |commit: &str, count, violations| Row {
            method: "fuzz open".to_owned(),
            count,
            ..of(commit, "libFuzzer, AddressSanitizer", violations)
        };
        assert_eq!(count(&[fuzz("abc", 100, 1), fuzz("def", 299, 0)]), 1);
        assert_eq!(count(&[fuzz("abc", 100, 1), fuzz("def", 299, 0), fuzz("def", 1, 0)]), 0);
    }
}
