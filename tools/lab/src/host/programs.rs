//! Programs for the guest: built here, and put into the archive with the libraries they name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Builds everything as the tests of the workspace are; what cargo says of it.
pub(crate) fn workspace() -> Result<Vec<u8>> {
    cargo(&["test", "--workspace", "--no-run"])
}

/// Builds the test program `test` of a package; where it is. With what was said of the workspace,
/// nothing is built.
pub(crate) fn test(said: Option<&[u8]>, (package, test): (&str, &str)) -> Result<PathBuf> {
    let build = || cargo(&["test", "--package", package, "--test", test, "--no-run"]);
    let said = said.map_or_else(build, |said| Ok(said.to_vec()))?;
    built(&said, test, true).with_context(|| format!("cargo did not say where {test} is"))
}

/// Builds a program of a package as the tests do, which look for overflows; where it is.
pub(crate) fn program(said: Option<&[u8]>, (package, name): (&str, &str)) -> Result<PathBuf> {
    let words = ["build", "--profile", "test", "--package", package, "--bin", name];
    let said = said.map_or_else(|| cargo(&words), |said| Ok(said.to_vec()))?;
    built(&said, name, false).with_context(|| format!("cargo did not say where {name} is"))
}

/// What cargo says of what it builds.
fn cargo(words: &[&str]) -> Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(words)
        .args(["--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo {} failed", words.join(" "));
    Ok(output.stdout)
}

/// What cargo says it has built under this name, as a test or not.
fn built(said: &[u8], name: &str, test: bool) -> Option<PathBuf> {
    said.split(|byte| *byte == b'\n').find_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let is_it = message["target"]["name"] == name && message["profile"]["test"] == test;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    })
}

/// The libraries that these programs name, and what loads them.
pub(crate) fn libraries(programs: &[&Path]) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").args(programs).output().context("cannot start ldd")?;
    ensure!(output.status.success(), "ldd cannot read the programs for the guest");
    Ok(named(&String::from_utf8_lossy(&output.stdout)))
}

/// Of `libc.so.6 => /lib/libc.so.6 (0x7f...)` and `/lib64/ld-linux.so.2 (0x7f...)`, the paths.
fn named(said: &str) -> BTreeSet<PathBuf> {
    let words = said.lines().filter_map(|line| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path).trim();
        path.split_once(" (").map(|(path, _)| path)
    });
    words.filter(|path| path.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_test_and_not_the_library_of_that_name() {
        let said = br#"{"target":{"name":"t"},"profile":{"test":false},"executable":"/no"}
not json
{"target":{"name":"t"},"profile":{"test":true},"executable":"/t-1"}
"#;
        assert_eq!(built(said, "t", true), Some(PathBuf::from("/t-1")));
        assert_eq!(built(said, "t", false), Some(PathBuf::from("/no")));
        assert_eq!(built(said, "u", true), None);
    }

    #[test]
    fn libraries_are_found_where_they_are_said_to_be() {
        let said = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let found: Vec<_> = named(said).into_iter().collect();
        assert_eq!(found, ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
    }
}
