//! Planted faults: before the tests, each sanitizer has to tell of some that are there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{MACHINE, Sanitizer, command, options, place};

/// The program that makes them.
const PROGRAM: &str = "tools/xtask/planted/Cargo.toml";
/// The word for none of them.
const NOTHING: &str = "nothing";
/// How often a fault is made before it counts as not seen.
const TRIES: u32 = 5;

/// What came of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) planted: u64,
    /// Of these, told of.
    pub(super) seen: u64,
    /// Whether nothing was told where there is nothing.
    quiet: bool,
}

impl Faults {
    pub(super) const fn all_are_seen(self) -> bool {
        self.seen == self.planted && self.quiet
    }
}

/// The faults that a sanitizer is there for, by the words of the program.
const fn faults(sanitizer: Sanitizer) -> &'static [&'static str] {
    match sanitizer {
        Sanitizer::Address => &["freed", "twice", "past", "before", "stack", "global"],
        Sanitizer::Thread => &["writers", "reader", "flag", "pointer", "locks"],
    }
}

/// Builds the program and has it make each fault.
///
/// # Errors
/// It cannot be built or started.
pub(super) fn run(sanitizer: Sanitizer, root: &Path) -> Result<Faults> {
    let program = built(sanitizer, root)?;
    let all = faults(sanitizer);
    let mut faults = Faults { planted: all.len() as u64, seen: 0, quiet: false };
    for word in all.iter().copied().chain([NOTHING]) {
        let again = || {
            let ran = Command::new(&program).arg(word).envs(options()).output();
            let ran = ran.with_context(|| format!("cannot start {}", program.display()))?;
            let told = tells(sanitizer, &String::from_utf8_lossy(&ran.stderr));
            anyhow::Ok((ran, told))
        };
        // Of threads that meet at the very same time, now and then nothing is seen.
        let mut last = again()?;
        for _ in 1..TRIES {
            if last.1 || word == NOTHING {
                break;
            }
            last = again()?;
        }
        let (ran, told) = last;
        if word == NOTHING {
            faults.quiet = ran.status.success() && !told;
        } else {
            faults.seen += u64::from(told && !ran.status.success());
        }
        let so = if told { "told" } else { "not told" };
        println!("sanitize {}: planted: {word}: {so}, {}", sanitizer.name(), ran.status);
    }
    Ok(faults)
}

/// Whether a sanitizer speaks.
fn tells(sanitizer: Sanitizer, said: &str) -> bool {
    said.contains(match sanitizer {
        Sanitizer::Address => "ERROR: AddressSanitizer",
        Sanitizer::Thread => "WARNING: ThreadSanitizer",
    })
}

/// As the tests are built, of which all it shares is the standard library.
fn built(sanitizer: Sanitizer, root: &Path) -> Result<PathBuf> {
    let mut command = command(sanitizer, root, &["build", "--quiet"]);
    command.args(["--manifest-path", PROGRAM]);
    let done = command.status().context("cannot start cargo")?;
    ensure!(done.success(), "{PROGRAM} could not be built");
    Ok(root.join(place(sanitizer)).join(MACHINE).join("debug/planted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_that_is_not_told_or_one_that_is_made_up_is_noticed() {
        let all = Faults { planted: 5, seen: 5, quiet: true };
        assert!(all.all_are_seen());
        assert!(!Faults { seen: 4, ..all }.all_are_seen());
        assert!(!Faults { quiet: false, ..all }.all_are_seen());
        for sanitizer in [Sanitizer::Address, Sanitizer::Thread] {
            let known = holdfast_evidence::variants(&format!("sanitize {}", sanitizer.name()));
            assert_eq!(faults(sanitizer).len() as u64, known, "in the list: set LEAST");
            assert!(known >= 5, "of each checker");
        }
    }
}
