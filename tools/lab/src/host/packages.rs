//! The kernel of the guest and the emulator, from Debian's packages.
//!
//! The kernel is fetched and unpacked, never installed; both are kept beside what cargo builds.
//! The emulator and the tool for name spaces are installed, if this user may and they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use std::fmt;

use super::apt::{self, Refused, Said};

/// The kernels that do: those from 6.7 on can get and clear dirty bits in one call.
const KERNELS: &str = "^linux-image-6\\.1[2-9][0-9.]*\\+deb[0-9]*-cloud-amd64$";
/// Any at all: who has one of them in the list has a list.
const ANY_KERNEL: &str = "^linux-image-";

/// What has to be installed, and in which package it is.
const TOOLS: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("ndctl", "ndctl"), ("mkfs.ext4", "e2fsprogs")];

/// No machine can be emulated here, and why: nothing that this program could do about it.
#[derive(Debug)]
pub(crate) struct Impossible(String);

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

/// Says that something cannot be had here, whatever is done.
pub(crate) fn impossible(why: impl Into<String>) -> anyhow::Error {
    Impossible(why.into()).into()
}

/// Bytes that the parts of a machine take, at the most.
const ROOM: u64 = 2 << 30;

/// Sees to it that there is room for the parts of a machine.
pub(crate) fn room(folder: &Path) -> Result<()> {
    let found = rustix::fs::statvfs(folder).context("cannot ask for free space")?;
    is_enough(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether a machine has room in so many bytes.
fn is_enough(free: u64) -> Result<()> {
    if free < ROOM {
        let why = format!("{free} bytes of disk are left, and a machine takes {ROOM}: make room");
        return Err(impossible(why));
    }
    Ok(())
}

/// The unpacked kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) modules: PathBuf,
}

/// Sees to it that the tools that each scene needs are there.
pub(crate) fn tools() -> Result<()> {
    need(TOOLS)
}

/// Sees to it that these tools are there, each named with its package.
pub(crate) fn need(tools: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = tools.iter().filter(|(tool, _)| find(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    println!("lab: installing {}", packages.join(" "));
    let arguments = ["install", "--yes", "--quiet", "--no-install-recommends"];
    let install = || apt::ask(Command::new("apt-get").args(arguments).args(&packages));
    if install()?.fine {
        return Ok(());
    }
    let update = apt::update()?.all();
    let Said { fine, error, .. } = install()?;
    if fine {
        return Ok(());
    }
    let what = format!("{} cannot be installed", packages.join(" "));
    Err(Refused { what: &what, error: &error, update: &update, before: false }.means())
}

/// Where a command is; also where those for administrators are, which not everybody's path names.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|it| it.join(tool)).find(|it| it.is_file())
}

/// The kernel, from `cache` if it is there, else fetched.
pub(crate) fn kernel(cache: &Path) -> Result<Kernel> {
    let tree = cache.join("kernel");
    if let Ok(kernel) = unpacked(&tree) {
        return Ok(kernel);
    }
    let fetched = cache.join("fetched");
    // What is left of one that is no good any more: it could be fetched then.
    fetch(&fetched, tree.exists())?;
    let package = fs::read_dir(&fetched)?.next().context("apt-get fetched nothing")??.path();
    // Under its name only once it is whole.
    let part = cache.join("kernel.part");
    for old in [&part, &tree] {
        let _ = fs::remove_dir_all(old);
    }
    run(Command::new("dpkg").arg("--extract").arg(&package).arg(&part))?;
    fs::rename(&part, &tree).context("cannot keep the kernel")?;
    let _ = fs::remove_dir_all(&fetched);
    unpacked(&tree)
}

/// Fetches the newest kernel that does into a folder.
fn fetch(folder: &Path, before: bool) -> Result<()> {
    if let Some(name) = newest()?
        && download(&name, folder)?.fine
    {
        return Ok(());
    }
    // The list of packages may be older than what it names.
    let update = apt::update()?.all();
    let Some(name) = newest()? else {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        return Err(none_listed(&system, &update, before || !listed(ANY_KERNEL)?.is_empty()));
    };
    let said = download(&name, folder)?;
    if said.fine {
        return Ok(());
    }
    let (what, error) = ("no kernel can be fetched", &said.error);
    Err(Refused { what, error, update: &update, before }.means())
}

/// What it means that there is no kernel that does in a list of packages.
fn none_listed(system: &str, update: &str, before: bool) -> anyhow::Error {
    if system.lines().all(|line| line.trim() != "ID=debian") {
        return impossible("no kernel of Debian's among the packages of another system");
    }
    let what = "no kernel from 6.12 on among the packages";
    let error = format!("none is called {KERNELS}; {update}");
    Refused { what, error: &error, update, before }.means()
}

fn download(name: &str, folder: &Path) -> Result<Said> {
    println!("lab: fetching {name}");
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut download = Command::new("apt-get");
    apt::ask(download.args(["download", "--quiet", name]).current_dir(folder))
}

/// The last of the kernels that do, by its version, if there is one.
fn newest() -> Result<Option<String>> {
    Ok(listed(KERNELS)?.into_iter().max_by_key(|name| numbers(name)))
}

/// Names in the list of packages.
fn listed(names: &str) -> Result<Vec<String>> {
    let said = apt::ask(Command::new("apt-cache").args(["search", "--names-only", names]))?;
    let names = said.text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// The numbers in a name, for comparison.
fn numbers(name: &str) -> Vec<u64> {
    let parts = name.split(|it: char| !it.is_ascii_digit());
    parts.filter_map(|digits| digits.parse().ok()).collect()
}

fn unpacked(tree: &Path) -> Result<Kernel> {
    let images = fs::read_dir(tree.join("boot")).context("no kernel")?.flatten();
    let is_image = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    let image = images.map(|entry| entry.path()).find(is_image).context("no image of a kernel")?;
    let places = [tree.join("lib/modules"), tree.join("usr/lib/modules")];
    let modules = places.into_iter().find(|place| place.is_dir()).context("no modules")?;
    Ok(Kernel { image, modules })
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", error.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_so_by_numbers_and_not_by_letters() {
        let old = "linux-image-6.12.9+deb12-cloud-amd64";
        let new = "linux-image-6.12.117+deb12-cloud-amd64";
        assert!(numbers(new) > numbers(old));
    }

    #[test]
    fn a_kernel_that_was_given_another_name_is_missed_where_there_are_packages() {
        let (debian, other) = ("NAME=\"x\"\nID=debian\n", "ID=ubuntu\nID_LIKE=debian\n");
        let silence = "Err:1 http://d x\n  Temporary failure resolving 'd'";
        let rootless = "E: Could not open lock file /var/lib/apt/lists/lock - open (13)";
        let is_skip =
            |system, update, listed| none_listed(system, update, listed).is::<Impossible>();
        assert!(!is_skip(debian, "Hit:1 http://d x", false));
        assert!(!is_skip(debian, silence, true), "others are in the list");
        assert!(!is_skip(debian, rootless, true));
        assert!(is_skip(debian, silence, false));
        assert!(is_skip(debian, rootless, false));
        assert!(is_skip(other, "Hit:1 http://d x", true));
    }

    #[test]
    fn a_disk_without_room_has_no_machine() {
        let error = is_enough(ROOM - 1).unwrap_err();
        assert!(error.is::<Impossible>(), "{error:#}");
        assert!(is_enough(ROOM).is_ok());
        let nowhere = room(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(!nowhere.is::<Impossible>(), "{nowhere:#}");
    }

    #[test]
    fn half_a_kernel_is_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("boot")).unwrap();
        std::fs::write(folder.path().join("boot/vmlinuz-1"), "").unwrap();
        assert!(unpacked(folder.path()).unwrap_err().to_string().contains("no modules"));
        std::fs::create_dir_all(folder.path().join("lib/modules")).unwrap();
        assert!(unpacked(folder.path()).is_ok());
    }
}
