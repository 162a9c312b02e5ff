//! What cargo and git know about the tree: crates, rooms, dependencies, files.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Why a crate depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Linked into the crate (build scripts count as this: they decide what is linked).
    Normal,
    /// Only for tests, examples and benches.
    Dev,
}

/// A dependency on a crate of this tree.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    /// Package name of the crate depended on.
    pub(crate) name: String,
    /// Why.
    pub(crate) kind: Kind,
}

/// One crate of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Package name.
    pub(crate) name: String,
    /// Folder relative to the root, such as `core/heap`.
    pub(crate) room: String,
    /// The one-line purpose, if the manifest has one.
    pub(crate) description: Option<String>,
    /// Dependencies by path, in the order of the manifest.
    pub(crate) dependencies: Vec<Dependency>,
}

/// The workspace as cargo sees it.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    /// Absolute path of the root.
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// Every member, in order of room.
    pub(crate) members: Vec<Member>,
}

/// The cargo that started this program, or the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The folder given, or the nearest one above the current folder that has a workspace manifest.
pub(crate) fn root(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("no folder {}", path.display()));
    }
    let here = std::env::current_dir().context("cannot read the current folder")?;
    for folder in here.ancestors() {
        let manifest = folder.join("Cargo.toml");
        if std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("[workspace]")) {
            return Ok(folder.to_path_buf());
        }
    }
    bail!("no workspace manifest in {} or above; pass --root DIR", here.display())
}

impl Workspace {
    /// Asks `cargo metadata` for the members of the workspace at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let output = Command::new(cargo())
            .current_dir(root)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .context("cannot start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        let value: Value =
            serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
        let packages = value["packages"].as_array().context("cargo metadata lists no packages")?;
        let root = root.canonicalize().context("the root of the workspace vanished")?;
        let mut members =
            packages.iter().map(|package| member(&root, package)).collect::<Result<Vec<_>>>()?;
        members.sort_by(|a, b| a.room.cmp(&b.room));
        let target =
            value["target_directory"].as_str().map_or_else(|| root.join("target"), Into::into);
        Ok(Self { root, target, members })
    }

    /// Whether a crate of this package name is built yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name)
    }
}

/// Reads one entry of `packages`.
fn member(root: &Path, package: &Value) -> Result<Member> {
    let name = package["name"].as_str().context("a package has no name")?.to_owned();
    let manifest = package["manifest_path"].as_str().context("a package has no manifest")?;
    let folder = Path::new(manifest).parent().context("a manifest has no folder")?;
    let folder = folder.canonicalize().with_context(|| format!("no folder of {name}"))?;
    let room = folder.strip_prefix(root).unwrap_or(&folder).to_string_lossy().replace('\\', "/");
    let listed = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A dependency with a path is one of this tree, whether or not the manifest also has a version.
    let dependencies = listed
        .iter()
        .filter(|dependency| dependency["path"].is_string())
        .filter_map(|dependency| {
            let kind = if dependency["kind"] == "dev" { Kind::Dev } else { Kind::Normal };
            Some(Dependency { name: dependency["name"].as_str()?.to_owned(), kind })
        })
        .collect();
    let description = package["description"].as_str().map(str::to_owned);
    Ok(Member { name, room, description, dependencies })
}

/// Every file that git tracks or would track, relative to `root`, in order of path.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "-co", "--exclude-standard"])
        .output()
        .context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    // A tracked file that was deleted but not yet committed is listed too.
    let mut files: Vec<String> = text
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Starts a command and passes on what it says, line by line. Answers whether it succeeded.
///
/// # Errors
/// It cannot be started or read.
pub(crate) fn listened(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let said = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(said).lines() {
        let line = line.context("cargo's output cannot be read")?;
        println!("{line}");
        each(&line);
    }
    Ok(child.wait().context("cargo is gone")?.success())
}

/// Writes what `--json FILE` asks for, if it does; nothing yet, where a run begins: what an earlier
/// one came to is not to be taken for it, and whether it can be written is known before hours.
///
/// # Errors
/// It cannot be written.
pub(crate) fn keep_json(path: Option<&Path>, text: &str) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
