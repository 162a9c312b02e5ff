//! Reckons goals and sums of the list anew, after the table of goals has changed:
//! `cargo run -p holdfast-evidence -- docs/evidence.md`. No row is changed. Rows of other lists, of
//! runs that were noted elsewhere, are added if these are named behind it and the list lacks them.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Wrong words on the command line.
const USAGE: u8 = 16;
/// It could not be done.
const CANNOT: u8 = 8;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((list, others)) = words.split_first() else {
        eprintln!("evidence: which list? such as docs/evidence.md");
        return ExitCode::from(USAGE);
    };
    if list == "--help" || list == "-h" {
        println!(
            "Usage: holdfast-evidence <LIST> [OTHER]...\n\n\
             Reckons goals and sums of the list anew, after it was given the rows of others that \
             it lacks."
        );
        return ExitCode::SUCCESS;
    }
    if let Some(option) = words.iter().find(|word| word.as_encoded_bytes().starts_with(b"-")) {
        eprintln!("evidence: there is no option {}: see --help", option.display());
        return ExitCode::from(USAGE);
    }
    let others: Vec<&Path> = others.iter().map(Path::new).collect();
    match gather(Path::new(list), &others) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evidence: {error:#}");
            ExitCode::from(CANNOT)
        }
    }
}

/// Adds to a list what it lacks of others, all of which have to be as the programs wrote them.
fn gather(list: &Path, others: &[&Path]) -> Result<()> {
    let known = |path: &Path| {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        holdfast_evidence::rows(&text)
            .with_context(|| format!("{} is no list of what was run", path.display()))
    };
    let mut all = known(list)?;
    let mut new = Vec::new();
    for other in others {
        for row in known(other)? {
            if !all.contains(&row) {
                all.push(row.clone());
                new.push(row);
            }
        }
    }
    holdfast_evidence::append(list, &new)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use holdfast_evidence::{Row, append, rows};

    use super::*;

    fn row(method: &str, count: u64) -> Row {
        Row { commit: "abc".to_owned(), method: method.to_owned(), count, ..Row::default() }
    }

    #[test]
    fn a_list_is_given_what_it_lacks_and_nothing_that_was_changed_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let (list, other) = (folder.path().join("list.md"), folder.path().join("other.md"));
        append(&list, &[row("a", 1)]).unwrap();
        append(&other, &[row("a", 1), row("b", 2)]).unwrap();
        for _ in 0..2 {
            gather(&list, &[&other]).unwrap();
            let found = rows(&std::fs::read_to_string(&list).unwrap()).unwrap();
            assert_eq!(found, [row("a", 1), row("b", 2)]);
        }
        let text = std::fs::read_to_string(&other).unwrap();
        std::fs::write(&other, text.replace("| b |", "| c |").replacen("| 2 |", "| 3 |", 1))
            .unwrap();
        assert!(gather(&list, &[&other]).is_err());
        assert!(gather(&folder.path().join("none.md"), &[]).is_err());
    }
}
