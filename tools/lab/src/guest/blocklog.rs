//! The disk whose writes the host logs: a file system that leaves room for marks behind it.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{mount_at, run};
use crate::scenes::{FileSystem, Place};

/// Where the archive says that there is such a disk, and which file system it is to have.
pub(crate) const ASKED: &str = "/logged-disk";

/// The disk, as the guest's kernel names the second one.
pub(crate) const DISK: &str = "/dev/vdb";

/// Bytes of the disk, and of its file system: marks begin behind that.
pub(crate) const LEN: u64 = 512 << 20;
pub(crate) const SYSTEM_LEN: u64 = 400 << 20;

impl FileSystem {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// How an image of one is mounted, of which there may be several.
    pub(crate) fn mounted_by(self) -> &'static str {
        match self {
            Self::Ext4 => "loop",
            Self::Xfs => "loop,nouuid",
        }
    }

    /// The tool that makes one of [`SYSTEM_LEN`] bytes, and what it is told before the disk. Small
    /// journals, so that they go around; no writes in the background but the journal's own.
    pub(crate) fn make(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => (
                "mkfs.ext4",
                &[
                    "-q",
                    "-F",
                    "-b4096",
                    "-Jsize=4",
                    "-N1024",
                    "-Enodiscard,lazy_itable_init=0,lazy_journal_init=0",
                ],
            ),
            Self::Xfs => {
                ("mkfs.xfs", &["-q", "-f", "-K", "-s", "size=4096", "-d", "size=419430400"])
            }
        }
    }
}

impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes that file system and mounts it, if it is asked for.
pub(super) fn logged_disk() -> Result<()> {
    let Ok(asked) = fs::read_to_string(ASKED) else { return Ok(()) };
    let all = [FileSystem::Ext4, FileSystem::Xfs];
    let system = all.into_iter().find(|system| system.name() == asked);
    let system = system.with_context(|| format!("no file system {asked}"))?;
    let serial = fs::read_to_string("/sys/block/vdb/serial").unwrap_or_default();
    ensure!(serial.trim() == SERIAL, "{DISK} is another disk: {serial}");
    // Pages are written back when they are hardly dirty: much is under way between two flushes.
    for name in ["dirty_writeback_centisecs", "dirty_expire_centisecs"] {
        let path = format!("/proc/sys/vm/{name}");
        fs::write(&path, WRITE_BACK).with_context(|| format!("cannot write {path}"))?;
    }
    let (tool, words) = system.make();
    let mut words = words.to_vec();
    words.push(DISK);
    let blocks = (SYSTEM_LEN / 4096).to_string();
    if system == FileSystem::Ext4 {
        words.push(&blocks);
    }
    run(tool, &words)?;
    mount_at(DISK, system.name(), Place::Logged.folder(), "")
}

/// How old dirty pages get, and how often they are looked for, in hundredths of a second.
const WRITE_BACK: &str = "5";

/// What the disk says its number is.
pub(crate) const SERIAL: &str = "logged";
