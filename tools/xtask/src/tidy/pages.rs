//! Links between pages: every relative link names a file that is there, and a heading in it.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::finding::Finding;
use crate::markdown::{anchors, links, prose};

/// Every relative link of every Markdown page that leads nowhere.
pub(super) fn check(root: &Path, files: &[String]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let page = read(root, path)?;
        for line in prose(&page) {
            for target in links(line.text) {
                if let Some(text) = broken(root, path, &page, &target)? {
                    findings.push(Finding::new(path, line.number, "links", text));
                }
            }
        }
    }
    Ok(findings)
}

/// What is wrong with a link, if it is relative and something is.
fn broken(root: &Path, path: &str, page: &str, target: &str) -> Result<Option<String>> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let (file, other) = if file.is_empty() {
        (path.to_owned(), page.to_owned())
    } else {
        let Some(file) = resolve(path, file) else {
            return Ok(Some(format!("{target} leads out of the repository")));
        };
        if !root.join(&file).exists() {
            return Ok(Some(format!("{target} leads nowhere: there is no {file}")));
        }
        let text = if file.ends_with(".md") { read(root, &file)? } else { String::new() };
        (file, text)
    };
    let found =
        anchor.is_empty() || !file.ends_with(".md") || anchors(&other).iter().any(|a| a == anchor);
    Ok((!found).then(|| format!("{target}: {file} has no heading #{anchor}")))
}

/// The target relative to the root of the workspace; `None` if it climbs out of it.
fn resolve(from: &str, target: &str) -> Option<String> {
    let start = match target.strip_prefix('/') {
        Some(_) => PathBuf::new(),
        None => Path::new(from).parent()?.to_path_buf(),
    };
    let mut at = PathBuf::new();
    for part in start.join(target.trim_start_matches('/')).components() {
        match part {
            Component::ParentDir => {
                if !at.pop() {
                    return None;
                }
            }
            Component::Normal(name) => at.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(at.to_string_lossy().into_owned())
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path))
        .with_context(|| format!("{path}: cannot be read as UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("docs/formats")).unwrap();
        std::fs::write(dir.path().join("docs/formats/pool.md"), "# The pool\n").unwrap();
        dir
    }

    fn findings(dir: &Path, page: &str) -> Vec<String> {
        std::fs::write(dir.join("docs/a.md"), page).unwrap();
        let files = ["docs/a.md".to_owned()];
        check(dir, &files).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn good_links_pass() {
        let dir = tree();
        let page = "# Top\n[a](formats/pool.md) [b](formats/pool.md#the-pool) [c](#top) \
                    [d](../docs) [e](/docs/formats/pool.md) [f](https://x.y/z)\n";
        assert_eq!(findings(dir.path(), page), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let dir = tree();
        for (page, part) in [
            ("[a](formats/none.md)", "there is no docs/formats/none.md"),
            ("[a](formats/pool.md#size)", "no heading #size"),
            ("[a](#none)", "no heading #none"),
            ("[a](../../etc/passwd)", "out of the repository"),
            ("[a]: gone.md", "there is no docs/gone.md"),
        ] {
            let found = findings(dir.path(), page);
            assert!(found.len() == 1 && found[0].contains(part), "{page}: {found:?}");
        }
    }
}
