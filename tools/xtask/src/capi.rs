//! The C interface: its header is made from the crate's source and compared with the one checked
//! in, and the programs in C and C++ are built against it and run.
//!
//! The header is made here and not by a build script, so that building the crate needs nothing more
//! and what C programs include is seen in reviews.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::finding::{Finding, report};
use crate::workspace::cargo;

/// The room of the interface.
const ROOM: &str = "surfaces/capi";
/// The header, in the room.
const HEADER: &str = "include/holdfast.h";
/// Longest line of the header.
const COLUMNS: usize = 100;

/// Makes the header anew if `write`; else compares it, and runs the programs. `true` if the header
/// is up to date, every function in it has a text, and no program failed.
pub(crate) fn run(root: &Path, write: bool) -> Result<bool> {
    let is_good = header(root, write)?;
    Ok((write || programs(root)?) && is_good)
}

/// Builds and runs the tests and examples in C and C++. They are a test of the crate, which passes
/// where there is no compiler: what it says of that is shown here, and hidden otherwise.
fn programs(root: &Path) -> Result<bool> {
    let status = Command::new(cargo())
        .current_dir(root)
        .args(["test", "--quiet", "-p", "holdfast-capi", "--test", "programs", "--", "--nocapture"])
        .status()
        .context("cannot start cargo to run the programs in C and C++")?;
    Ok(status.success())
}

/// Makes the header anew if `write`; else compares it. `true` if it is up to date and every
/// function in it has a text.
pub(crate) fn header(root: &Path, write: bool) -> Result<bool> {
    let room = root.join(ROOM);
    let made = make(&room)?;
    let path = room.join(HEADER);
    if write {
        std::fs::write(&path, &made).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let functions = made.lines().filter(|line| is_function(line)).count();
    let summary = format!("{functions} functions in {HEADER}");
    Ok(report("capi", check(&made, &there), &summary))
}

/// The header as the source has it.
fn make(room: &Path) -> Result<String> {
    let file = room.join("cbindgen.toml");
    let config = cbindgen::Config::from_file(&file)
        .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(room.join("src/lib.rs"))
        .generate()
        .context("cannot make the header")?;
    let mut made = Vec::new();
    bindings.write(&mut made);
    let text = String::from_utf8(made).context("the header is not UTF-8")?;
    Ok(for_c(&text))
}

/// Says to C programmers what the source says to Rust programmers.
fn for_c(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.replace("# Safety", "The caller vouches:").replace('`', "");
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n") + "\n"
}

fn is_function(line: &str) -> bool {
    line.contains(" holdfast_")
        && line.contains('(')
        && !line.starts_with([' ', '/', '#'])
        && !line.starts_with("typedef")
        || line.starts_with("const char *holdfast_")
}

/// What is wrong with the header that is there.
fn check(made: &str, there: &str) -> Vec<Finding> {
    let path = format!("{ROOM}/{HEADER}");
    let mut findings = Vec::new();
    let mut refuse = |line: usize, text: &str| {
        findings.push(Finding::new(&path, line, "capi", text.to_owned()));
    };
    if made != there {
        let same = made.lines().zip(there.lines()).take_while(|(a, b)| a == b).count();
        refuse(same + 1, "not what the source makes; run `cargo xtask capi --write`");
    }
    let mut before = "";
    for (at, line) in made.lines().enumerate() {
        if is_function(line) && !before.ends_with("*/") {
            refuse(at + 1, "a function without a text: document it in the source");
        }
        if line.chars().count() > COLUMNS && !line.contains('(') {
            refuse(at + 1, "a line of more than 100 columns: break it in the source");
        }
        before = line;
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "/**\n * Closes it.\n */\nholdfast_code holdfast_close(int pool);\n";

    #[test]
    fn a_header_that_is_up_to_date_passes() {
        assert!(check(GOOD, GOOD).is_empty());
    }

    #[test]
    fn an_old_header_and_a_function_without_text_are_refused() {
        let old = check(GOOD, "/**\n * Closes it.\n */\n");
        assert_eq!(old.len(), 1);
        assert!(old[0].text.contains("--write"), "{old:?}");
        let bare = "const char *holdfast_message(void);\n";
        assert!(check(bare, bare)[0].text.contains("without a text"));
    }
}
