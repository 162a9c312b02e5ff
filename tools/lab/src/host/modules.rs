//! Which modules of the kernel the guest needs, in the order in which they can be loaded.
//!
//! The package holds them compressed, and no list of who needs whom: that is made when it is
//! installed, which it is not. Each module says it itself, in a section of `name=value` pairs that
//! end with a zero byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What is wanted: the persistent memory, and the driver of disks.
const WANTED: &[&str] = &["nfit", "nd_pmem", "virtio_blk"];

/// Those modules, `more` that a scene wants, and all that they need, each after what it needs: name
/// and content.
pub(crate) fn load(tree: &Path, more: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = BTreeMap::new();
    find(tree, &mut files)?;
    let mut loaded = Vec::new();
    for name in WANTED.iter().chain(more) {
        add(name, &files, &mut loaded, 0)?;
    }
    Ok(loaded)
}

/// Notes every module below a folder under its name.
fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && let Some((name, _)) = name.split_once(".ko")
        {
            files.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// More than any chain of needs is long; a circle of them is longer.
const DEEPEST: usize = 32;

fn add(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    loaded: &mut Vec<(String, Vec<u8>)>,
    depth: usize,
) -> Result<()> {
    if loaded.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    ensure!(depth < DEEPEST, "the modules of this kernel need each other in a circle");
    let path = files.get(name).with_context(|| format!("this kernel has no module {name}"))?;
    let content = content(path)?;
    for needed in needs(&content) {
        add(&needed, files, loaded, depth + 1)?;
    }
    loaded.push((name.to_owned(), content));
    Ok(())
}

fn content(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|end| end == "xz") {
        let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(path).output();
        let output = output.context("cannot start xz")?;
        ensure!(output.status.success(), "{} cannot be decompressed", path.display());
        return Ok(output.stdout);
    }
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The modules that one says it needs.
fn needs(content: &[u8]) -> Vec<String> {
    let value = content.split(|byte| *byte == 0).find_map(|it| it.strip_prefix(b"depends="));
    let text = value.map(String::from_utf8_lossy).unwrap_or_default();
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(folder: &Path, name: &str, needs: &str) {
        let content = format!("ELF\0license=GPL\0depends={needs}\0name={name}\0");
        std::fs::write(folder.join(format!("{name}.ko")), content).unwrap();
    }

    #[test]
    fn each_comes_after_what_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        module(folder.path(), "nfit", "libnvdimm");
        module(folder.path(), "nd_pmem", "libnvdimm,nd_btt");
        module(folder.path(), "nd-btt", "libnvdimm");
        module(folder.path(), "libnvdimm", "");
        module(folder.path(), "virtio_blk", "");
        let loaded = load(folder.path(), &[]).unwrap();
        let names: Vec<_> = loaded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["libnvdimm", "nfit", "nd_btt", "nd_pmem", "virtio_blk"]);
    }

    #[test]
    fn what_is_missing_or_goes_in_a_circle_is_told() {
        let folder = tempfile::tempdir().unwrap();
        module(folder.path(), "nfit", "nfit2");
        assert!(load(folder.path(), &[]).unwrap_err().to_string().contains("no module nfit2"));
        module(folder.path(), "nfit2", "nfit");
        assert!(load(folder.path(), &[]).unwrap_err().to_string().contains("circle"));
    }
}
