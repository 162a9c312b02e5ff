//! Gets Debian's packages and builds the shim, once; later runs find everything in place.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::say::say;

/// The shim, as checked in; it is built again whenever it changed.
const SHIM: &str = include_str!("../../foreign/pmemobj.c");
/// A header the examples ask for and Debian does not ship.
const HEADER: &str = include_str!("../../foreign/ex_common.h");

/// What libpmemobj needs to be linked against and to run.
const PMEMOBJ: [&str; 6] =
    ["libpmemobj1", "libpmem1", "libndctl6", "libdaxctl1", "libpmemobj-dev", "libpmem-dev"];

/// The examples the shim is built with, below their folder.
const EXAMPLES: [&str; 13] = [
    "map/map.c",
    "map/map_ctree.c",
    "map/map_btree.c",
    "map/map_rbtree.c",
    "map/map_rtree.c",
    "map/map_skiplist.c",
    "map/map_hashmap_tx.c",
    "tree_map/ctree_map.c",
    "tree_map/btree_map.c",
    "tree_map/rbtree_map.c",
    "tree_map/rtree_map.c",
    "list_map/skiplist_map.c",
    "hashmap/hashmap_tx.c",
];

/// Where the examples lie in the unpacked packages.
const EXAMPLES_DIR: &str = "usr/share/doc/libpmemobj-dev/examples";

/// Where everything is kept: `foreign` in the target folder this program was built into.
fn folder() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let target = program.ancestors().nth(2).context("this program is not in a target folder")?;
    let folder = target.join("foreign");
    std::fs::create_dir_all(folder.join("root"))?;
    Ok(folder)
}

/// The shim over libpmemobj.
pub(crate) fn pmemobj() -> anyhow::Result<PathBuf> {
    let folder = folder()?;
    for package in PMEMOBJ {
        unpack(&folder, package)?;
    }
    let library = folder.join("peer.so");
    let source = folder.join("peer.c");
    let wanted = format!("{HEADER}{SHIM}");
    let built = std::fs::read_to_string(&source).is_ok_and(|text| text == wanted);
    if !built || !library.exists() {
        let _ = std::fs::remove_file(&source);
        build(&folder, &library)?;
        // Only now, so that a build that failed is tried again.
        std::fs::write(&source, wanted)?;
    }
    Ok(library)
}

/// The library that looks after pools while they are closed. Those it needs come with the shim.
pub(crate) fn pmempool() -> anyhow::Result<PathBuf> {
    one_library("libpmempool1", "libpmempool.so.1")
}

/// LMDB's library.
pub(crate) fn lmdb() -> anyhow::Result<PathBuf> {
    one_library("liblmdb0", "liblmdb.so.0")
}

/// SQLite's library.
pub(crate) fn sqlite() -> anyhow::Result<PathBuf> {
    one_library("libsqlite3-0", "libsqlite3.so.0")
}

/// Name and version of every package unpacked, as their files are called.
pub(crate) fn versions() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()?)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".deb") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn one_library(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let folder = folder()?;
    unpack(&folder, package)?;
    let path = libraries(&folder)?.join(name);
    ensure!(path.exists(), "package {package} does not hold {name}");
    Ok(path)
}

/// The folder of the unpacked libraries: `usr/lib/` and the machine's name.
fn libraries(folder: &Path) -> anyhow::Result<PathBuf> {
    let name = format!("{}-linux-gnu", std::env::consts::ARCH);
    let path = folder.join("root/usr/lib").join(name);
    ensure!(path.is_dir(), "the packages hold no {}", path.display());
    Ok(path)
}

/// Downloads and unpacks a package that is not there yet.
fn unpack(folder: &Path, package: &str) -> anyhow::Result<()> {
    if folder.join(format!("{package}.unpacked")).exists() {
        return Ok(());
    }
    say!("fetching {package} into {}", folder.display());
    let mut apt = Command::new("apt-get");
    apt.args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "download", package]);
    run(apt.current_dir(folder)).with_context(|| {
        format!("package {package} cannot be fetched: this needs Debian and a network")
    })?;
    let file = downloaded(folder, package)?;
    run(Command::new("dpkg").arg("-x").arg(&file).arg(folder.join("root")))?;
    std::fs::write(folder.join(format!("{package}.unpacked")), "")?;
    Ok(())
}

/// The file of a package: its name, `_`, its version.
fn downloaded(folder: &Path, package: &str) -> anyhow::Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("{package}_")) && name.ends_with(".deb") {
            return Ok(path);
        }
    }
    bail!("apt-get left no file of {package} in {}", folder.display())
}

/// Builds the shim as a shared library that finds the unpacked ones by itself.
fn build(folder: &Path, library: &Path) -> anyhow::Result<()> {
    let source = folder.join("shim");
    std::fs::create_dir_all(&source)?;
    std::fs::write(source.join("pmemobj.c"), SHIM)?;
    std::fs::write(source.join("ex_common.h"), HEADER)?;
    let examples = folder.join("root").join(EXAMPLES_DIR);
    let libraries = libraries(folder)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", "-o"]).arg(library);
    gcc.arg("-I").arg(&source).arg("-I").arg(folder.join("root/usr/include"));
    for part in ["", "map", "hashmap", "tree_map", "list_map"] {
        gcc.arg("-I").arg(examples.join(part));
    }
    gcc.arg(source.join("pmemobj.c"));
    gcc.args(EXAMPLES.iter().map(|example| examples.join(example)));
    gcc.arg("-L").arg(&libraries).arg(format!("-Wl,-rpath,{}", libraries.display()));
    // The old kind of rpath also holds for the libraries that the libraries need.
    gcc.args(["-Wl,--disable-new-dtags", "-Wl,--allow-shlib-undefined", "-lpmemobj", "-lpmem"]);
    run(&mut gcc).context("the shim over libpmemobj cannot be built: this needs gcc")
}

/// Runs a program to its end; what it wrote is shown only if it failed.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed: {}", text.trim());
    }
    Ok(())
}
