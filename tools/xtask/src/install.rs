//! The C interface put where compilers look: headers, libraries and the file for pkg-config.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::cargo;

/// The package.
const PACKAGE: &str = "holdfast-capi";

/// Builds the library in release and copies everything below `prefix`.
pub(crate) fn run(root: &Path, prefix: &Path) -> Result<bool> {
    let prefix = std::path::absolute(prefix).context("the prefix is no path")?;
    let room = root.join("surfaces/capi");
    let (libraries, version) = build(root)?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    for header in ["holdfast.h", "holdfast.hpp"] {
        copy(&room.join("include").join(header), &include)?;
    }
    for library in &libraries {
        copy(library, &lib)?;
    }
    let template = fs::read_to_string(room.join("holdfast.pc.in"))?;
    let text = fill(&template, &prefix, &version)?;
    let place = lib.join("pkgconfig");
    fs::create_dir_all(&place)?;
    fs::write(place.join("holdfast.pc"), text)?;
    println!("capi: installed below {}", prefix.display());
    Ok(true)
}

/// Builds the package; its libraries for C, and its version.
fn build(root: &Path) -> Result<(Vec<PathBuf>, String)> {
    let output = Command::new(cargo())
        .current_dir(root)
        .args(["build", "--release", "-p", PACKAGE, "--message-format", "json"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{PACKAGE} cannot be built");
    }
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        if message["target"]["name"] != "holdfast_capi" {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        let libraries = files
            .filter_map(|file| file.as_str().map(PathBuf::from))
            .filter(|file| file.extension().is_some_and(|e| e == "a" || e == "so"))
            .collect();
        let id = message["package_id"].as_str().unwrap_or_default();
        let version = id.rsplit(['@', '#']).next().unwrap_or_default();
        return Ok((libraries, version.to_owned()));
    }
    bail!("cargo did not say where the libraries of {PACKAGE} are")
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::copy(file, folder.join(name))
        .with_context(|| format!("cannot copy {} to {}", file.display(), folder.display()))?;
    Ok(())
}

/// The file for pkg-config; every name in it has to have a value.
fn fill(template: &str, prefix: &Path, version: &str) -> Result<String> {
    let prefix = prefix.to_str().context("the prefix is not UTF-8")?;
    let text = template
        .replace("@PREFIX@", prefix)
        .replace("@LIBDIR@", "lib")
        .replace("@VERSION@", version);
    if text.contains('@') {
        bail!("holdfast.pc.in has a name without a value, or the prefix an `@`");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_gets_its_value() {
        let template = "prefix=@PREFIX@\nlibdir=${prefix}/@LIBDIR@\nVersion: @VERSION@\n";
        let text = fill(template, Path::new("/opt/h"), "1.2.3").unwrap();
        assert_eq!(text, "prefix=/opt/h\nlibdir=${prefix}/lib\nVersion: 1.2.3\n");
        assert!(fill("@OTHER@", Path::new("/opt/h"), "1.2.3").is_err());
    }
}
