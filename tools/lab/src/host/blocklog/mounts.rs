//! Images of disks, mounted on this machine, so that its kernel replays their journals.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::disk::{BLOCK, Disk};
use crate::host::packages::impossible;
use crate::scenes::FileSystem;

/// Memory that can be written to as files, where there is some: images are short-lived.
const FAST: &str = "/dev/shm";

/// What folders for images are called, before the process and a number.
const NAME: &str = "holdfast-lab-";

/// A folder for one image at a time, and where it is mounted. Gone when it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    system: FileSystem,
    len: u64,
}

/// An image that is mounted; not any more when it is dropped.
#[derive(Debug)]
pub(super) struct Mounted(PathBuf);

impl Room {
    /// Room for images of file systems of `len` bytes; one of several, by lane and number.
    pub(super) fn new(
        system: FileSystem,
        len: u64,
        or: &Path,
        (lane, number): (usize, usize),
    ) -> Result<Self> {
        let above = if Path::new(FAST).is_dir() { Path::new(FAST) } else { or };
        if number == 0 {
            sweep(above);
        }
        let folder = above.join(format!("{NAME}{}-{lane}-{number}", std::process::id()));
        let room = Self { folder, system, len };
        let mount = room.folder.join("mounted");
        fs::create_dir_all(&mount).with_context(|| format!("cannot make {}", mount.display()))?;
        Ok(room)
    }

    /// Whether images of this sort can be mounted here at all; if not, nobody could judge any.
    pub(super) fn probe(&self) -> Result<()> {
        let image = self.image();
        let file = fs::File::create(&image).and_then(|file| file.set_len(self.len));
        file.with_context(|| format!("cannot make {}", image.display()))?;
        let (tool, words) = self.system.make();
        run(Command::new(crate::host::packages::find(tool).context("no tool")?)
            .args(words)
            .arg(&image))?;
        match self.mount() {
            Ok(_) => Ok(()),
            Err(error) => Err(impossible(format!(
                "images of {} cannot be mounted here: {error}",
                self.system
            ))),
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Where a judge complains.
    pub(super) fn complaints(&self) -> PathBuf {
        self.folder.join("complaints")
    }

    /// Makes an image of a disk with these changes, in place of the one before.
    pub(super) fn put(&self, disk: &Disk, above: &Disk) -> Result<()> {
        let image = self.image();
        // A new file each time: a loop device may keep the old one for a moment.
        let _ = fs::remove_file(&image);
        disk.save(above, &image, self.len)
    }

    /// Mounts the image, or says why its file system cannot be mounted.
    pub(super) fn mount(&self) -> Result<Mounted, String> {
        let at = self.folder.join("mounted");
        let mut command = Command::new("mount");
        command
            .args(["-t", self.system.name(), "-o", self.system.mounted_by()])
            .arg(self.image())
            .arg(&at);
        match run(&mut command) {
            Ok(_) => Ok(Mounted(at)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Mounted {
    /// A file in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Blocks of the disk that belong to a file.
    pub(super) fn blocks(&self, name: &str) -> Result<Vec<Range<u64>>> {
        let tool = crate::host::packages::find("filefrag").context("no filefrag here")?;
        let mut command = Command::new(tool);
        let said = run(command.args(["-v", &format!("-b{BLOCK}")]).arg(self.path(name)))?;
        let found = extents(&said);
        ensure!(!found.is_empty(), "filefrag does not say where {name} lies: {said}");
        Ok(found)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.0)) {
            eprintln!("lab: {error:#}");
        }
    }
}

/// Removes what processes left that were killed.
fn sweep(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(NAME).and_then(|rest| rest.split_once('-'));
        let Some((owner, _)) = owner.filter(|(owner, _)| owner.parse::<u32>().is_ok()) else {
            continue;
        };
        if !Path::new("/proc").join(owner).exists() {
            // It fails where nothing is mounted.
            let _ = run(Command::new("umount").arg(entry.path().join("mounted")));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Of lines `0: 0.. 9: 100.. 109: 10: flags`, the blocks `100..110`, in order of the disk.
fn extents(said: &str) -> Vec<Range<u64>> {
    let lines = said.lines().filter_map(|line| {
        let mut parts = line.split(':').map(str::trim);
        parts.next()?.parse::<u64>().ok()?;
        let place = parts.nth(1)?;
        let (first, last) = place.split_once("..")?;
        Some(first.trim().parse().ok()?..last.trim().parse::<u64>().ok()?.checked_add(1)?)
    });
    let mut found: Vec<Range<u64>> = lines.collect();
    found.sort_unstable_by_key(|range| range.start);
    found
}

/// Runs a command that must succeed; what it said.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_left_that_is_no_more_is_removed() {
        let above = tempfile::tempdir().unwrap();
        let folder = |owner: u32| above.path().join(format!("{NAME}{owner}-0"));
        // No process has this number: it is above the highest that there can be.
        for owner in [std::process::id(), u32::MAX] {
            fs::create_dir_all(folder(owner).join("mounted")).unwrap();
        }
        fs::create_dir(above.path().join("holdfast-lab-x-0")).unwrap();
        sweep(above.path());
        assert!(folder(std::process::id()).exists() && !folder(u32::MAX).exists());
        assert!(above.path().join("holdfast-lab-x-0").exists());
    }

    #[test]
    fn the_blocks_of_a_file_are_those_that_the_tool_tells() {
        let said = "Filesystem type is: ef53\n\
            File size of pool is 8388608 (2048 blocks of 4096 bytes)\n \
            ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
            0:        0..       9:      34816..     34825:     10:\n   \
            1:       10..      10:       1100..      1100:      1:      34826: last,eof\n\
            pool: 2 extents found\n";
        assert_eq!(extents(said), [1100..1101, 34816..34826]);
    }
}
