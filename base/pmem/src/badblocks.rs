//! What the system knows about the block device behind a file: its persistence domain and its
//! list of bad sectors, and the file's extents, which translate one into the other.
//!
//! All of it is text in sysfs plus one `ioctl`; where any of it is missing or forbidden, the
//! answer is "unknown" or an empty list, and the errors come as signals instead.

use core::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::medium::PAGE;

/// Bytes of a sector in sysfs, whatever the device's own block size.
const SECTOR: u64 = 512;
/// Devices stacked on devices are followed this far.
const MOST_LEVELS: u32 = 4;
/// Lines read of one bad-block list; the kernel's own table is smaller.
const MOST_LINES: usize = 65_536;
/// Extents asked for at a time, and in all.
const EXTENTS: usize = 64;
const MOST_EXTENTS: usize = 1 << 20;

/// What of a store survives a power cut without being flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersistenceDomain {
    /// Everything that reached the caches: flushes are not needed, fences are.
    CpuCache,
    /// What reached the memory controller: flushed lines.
    MemoryController,
    /// Not stated by the platform; treated as the memory controller.
    Unknown,
}

impl fmt::Display for PersistenceDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CpuCache => "cpu cache",
            Self::MemoryController => "memory controller",
            Self::Unknown => "unknown",
        })
    }
}

/// A block device in sysfs.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    folder: PathBuf,
}

impl Device {
    /// The device with this number, below `sysfs` (normally `/sys`).
    pub(crate) fn new(sysfs: &Path, number: u64) -> Self {
        let (major, minor) = (libc::major(number), libc::minor(number));
        Self { folder: sysfs.join(format!("dev/block/{major}:{minor}")) }
    }

    /// The persistence domain of the memory region behind the device. A device made of several
    /// has the weakest of theirs.
    pub(crate) fn persistence_domain(&self) -> PersistenceDomain {
        domain_of(&self.folder, MOST_LEVELS)
    }

    /// Bad ranges in bytes from the start of this device (a partition: from its own start).
    pub(crate) fn bad_bytes(&self) -> Vec<(u64, u64)> {
        let Some((list, start)) = self.list() else { return Vec::new() };
        let Ok(text) = fs::read_to_string(list) else { return Vec::new() };
        parse_bad(&text, start)
    }

    /// Adds to the list: `[at, at + len)` in bytes from the start of this device, whole sectors.
    pub(crate) fn lose(&self, at: u64, len: u64) -> io::Result<()> {
        let Some((list, start)) = self.list() else { return Err(io::ErrorKind::NotFound.into()) };
        let words = format!("{} {}\n", start + at / SECTOR, len / SECTOR);
        fs::OpenOptions::new().write(true).open(list)?.write_all(words.as_bytes())
    }

    /// Where the list is, and the sector in it that this device begins with.
    fn list(&self) -> Option<(PathBuf, u64)> {
        let own = self.folder.join("badblocks");
        if own.exists() {
            return Some((own, 0));
        }
        // The list belongs to the disk; the partition knows where on it it begins.
        let start = read_number(&self.folder.join("start")).unwrap_or(0);
        let folder = self.folder.canonicalize().ok()?;
        let list = folder.parent()?.join("badblocks");
        Some((list, start))
    }
}

fn domain_of(folder: &Path, levels: u32) -> PersistenceDomain {
    if let Ok(device) = folder.join("device").canonicalize() {
        // device = .../regionN/namespaceN.M; the attribute is the region's.
        let attribute = device.parent().map(|region| region.join("persistence_domain"));
        if let Some(text) = attribute.and_then(|path| fs::read_to_string(path).ok()) {
            return match text.trim() {
                "cpu_cache" => PersistenceDomain::CpuCache,
                "memory_controller" => PersistenceDomain::MemoryController,
                _ => PersistenceDomain::Unknown,
            };
        }
    }
    if levels == 0 {
        return PersistenceDomain::Unknown;
    }
    if folder.join("partition").exists() {
        let disk = folder.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        return disk.map_or(PersistenceDomain::Unknown, |disk| domain_of(&disk, levels - 1));
    }
    let Ok(parts) = fs::read_dir(folder.join("slaves")) else { return PersistenceDomain::Unknown };
    let mut weakest = None;
    for part in parts.flatten() {
        let domain = domain_of(&part.path(), levels - 1);
        weakest = match weakest {
            None | Some(PersistenceDomain::CpuCache) => Some(domain),
            Some(PersistenceDomain::MemoryController) if domain == PersistenceDomain::Unknown => {
                Some(domain)
            }
            other => other,
        };
    }
    weakest.unwrap_or(PersistenceDomain::Unknown)
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Lines of "sector count", relative to the disk, as byte ranges relative to `start` sectors.
fn parse_bad(text: &str, start: u64) -> Vec<(u64, u64)> {
    text.lines()
        .take(MOST_LINES)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let sector: u64 = words.next()?.parse().ok()?;
            let count: u64 = words.next()?.parse().ok()?;
            let end = sector.checked_add(count)?.checked_sub(start)?;
            let from = sector.saturating_sub(start);
            let (at, len) = (from.checked_mul(SECTOR)?, (end - from).checked_mul(SECTOR)?);
            (len > 0).then_some((at, len))
        })
        .collect()
}

/// A piece of a file on its device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Place in the file.
    pub(crate) logical: u64,
    /// Place on the device.
    pub(crate) physical: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// The bad ranges of a file: whole pages, ascending, merged.
pub(crate) fn bad_file_ranges(extents: &[Extent], bad: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    for extent in extents {
        for &(at, len) in bad {
            let from = at.max(extent.physical);
            let to = at.saturating_add(len).min(extent.physical.saturating_add(extent.len));
            if from < to {
                let first = extent.logical + (from - extent.physical);
                ranges.push((first, to - from));
            }
        }
    }
    whole_pages(ranges)
}

/// Widens ranges to whole pages, sorts and merges them.
pub(crate) fn whole_pages(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    for (at, len) in &mut ranges {
        let end = (*at + *len).next_multiple_of(PAGE);
        *at -= *at % PAGE;
        *len = end - *at;
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (at, len) in ranges {
        match merged.last_mut() {
            Some((start, run)) if at <= *start + *run => *run = (*run).max(at + len - *start),
            _ => merged.push((at, len)),
        }
    }
    merged
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved32: [u32; 3],
}

/// `struct fiemap` with room for [`EXTENTS`].
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS],
}

/// `_IOWR('f', 11, struct fiemap)`; the size in it is that of the 32-byte head.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// The extent is the file's last; its place is not known, or inside another block.
const EXTENT_LAST: u32 = 1;
const EXTENT_UNPLACED: u32 = 0x2 | 0x4 | 0x100 | 0x200;

/// Asks the file system where a file lies on its device.
///
/// # Errors
/// What the system said: many file systems, and tmpfs, do not know.
pub(crate) fn extents(file: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
    let mut found = Vec::new();
    let mut start = 0;
    while found.len() < MOST_EXTENTS {
        let none = RawExtent {
            logical: 0,
            physical: 0,
            length: 0,
            reserved: [0; 2],
            flags: 0,
            reserved32: [0; 3],
        };
        let mut map = RawMap {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            room: EXTENTS as u32,
            reserved: 0,
            extents: [none; EXTENTS],
        };
        // SAFETY: the structure has the kernel's layout and says how many extents fit in it.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let part = &map.extents[..(map.mapped as usize).min(EXTENTS)];
        for raw in part.iter().filter(|raw| raw.flags & EXTENT_UNPLACED == 0) {
            found.push(Extent { logical: raw.logical, physical: raw.physical, len: raw.length });
        }
        match part.last() {
            Some(last) if last.flags & EXTENT_LAST == 0 && last.length > 0 => {
                start = last.logical.saturating_add(last.length);
            }
            _ => break,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    /// A sysfs with one region, its device 259:0 and a partition 259:1 from sector 2048 on.
    fn fake_sysfs(domain: &str, bad: &str) -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        let region = root.join("devices/region0");
        let namespace = region.join("namespace0.0");
        let disk = namespace.join("block/pmem0");
        fs::create_dir_all(disk.join("pmem0p1")).unwrap();
        fs::create_dir_all(root.join("dev/block")).unwrap();
        fs::write(region.join("persistence_domain"), format!("{domain}\n")).unwrap();
        symlink(&namespace, disk.join("device")).unwrap();
        fs::write(disk.join("badblocks"), bad).unwrap();
        fs::write(disk.join("pmem0p1/partition"), "1\n").unwrap();
        fs::write(disk.join("pmem0p1/start"), "2048\n").unwrap();
        symlink(&disk, root.join("dev/block/259:0")).unwrap();
        symlink(disk.join("pmem0p1"), root.join("dev/block/259:1")).unwrap();
        sysfs
    }

    #[test]
    fn reads_the_domain_of_disk_partition_and_stack() {
        let sysfs = fake_sysfs("cpu_cache", "");
        let root = sysfs.path();
        let mapper = root.join("devices/dm-0");
        fs::create_dir_all(mapper.join("slaves")).unwrap();
        symlink(root.join("dev/block/259:0"), mapper.join("slaves/pmem0")).unwrap();
        symlink(&mapper, root.join("dev/block/253:0")).unwrap();
        for (major, minor) in [(259, 0), (259, 1), (253, 0)] {
            let device = Device::new(root, libc::makedev(major, minor));
            assert_eq!(device.persistence_domain(), PersistenceDomain::CpuCache, "{major}:{minor}");
        }
        // A second part that says nothing makes the whole unknown.
        fs::create_dir_all(root.join("devices/vda")).unwrap();
        symlink(root.join("devices/vda"), mapper.join("slaves/vda")).unwrap();
        let device = Device::new(root, libc::makedev(253, 0));
        assert_eq!(device.persistence_domain(), PersistenceDomain::Unknown);
    }

    #[test]
    fn other_words_and_missing_files_are_no_permission_to_skip_flushes() {
        for (word, expected) in [
            ("memory_controller", PersistenceDomain::MemoryController),
            ("none", PersistenceDomain::Unknown),
            ("cpu_cache and more", PersistenceDomain::Unknown),
        ] {
            let sysfs = fake_sysfs(word, "");
            let device = Device::new(sysfs.path(), libc::makedev(259, 0));
            assert_eq!(device.persistence_domain(), expected, "{word}");
        }
        let sysfs = tempfile::tempdir().unwrap();
        let device = Device::new(sysfs.path(), libc::makedev(1, 1));
        assert_eq!(device.persistence_domain(), PersistenceDomain::Unknown);
        assert!(device.bad_bytes().is_empty());
    }

    #[test]
    fn bad_sectors_become_pages_of_the_file() {
        let sysfs = fake_sysfs("none", "2056 1\n4096 16\nrubbish\n18446744073709551615 9\n1 1\n");
        let disk = Device::new(sysfs.path(), libc::makedev(259, 0)).bad_bytes();
        assert_eq!(disk, [(2056 * 512, 512), (4096 * 512, 8192), (512, 512)]);
        let part = Device::new(sysfs.path(), libc::makedev(259, 1)).bad_bytes();
        assert_eq!(part, [(4096, 512), (2048 * 512, 8192)]);
        let extents = [
            Extent { logical: 0, physical: 1 << 20, len: 1 << 20 },
            Extent { logical: 1 << 20, physical: 0, len: 8192 },
        ];
        let bad = bad_file_ranges(&extents, &part);
        assert_eq!(bad, [(0, 8192), ((1 << 20) + 4096, 4096)]);
    }

    #[test]
    fn of_a_stack_the_weakest_part_counts_and_one_without_end_says_nothing() {
        use PersistenceDomain::{CpuCache, MemoryController, Unknown};
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        fs::create_dir_all(root.join("dev/block")).unwrap();
        for (name, domain) in [("a", "cpu_cache"), ("b", "memory_controller"), ("c", "none")] {
            let namespace = root.join(format!("devices/region-{name}/namespace"));
            let disk = namespace.join("block");
            fs::create_dir_all(&disk).unwrap();
            fs::write(namespace.with_file_name("persistence_domain"), domain).unwrap();
            symlink(&namespace, disk.join("device")).unwrap();
        }
        let stacks: [(&[&str], _); 5] = [
            (&["a", "a"], CpuCache),
            (&["a", "b"], MemoryController),
            (&["b", "a"], MemoryController),
            (&["b", "c"], Unknown),
            (&["c", "a"], Unknown),
        ];
        for (minor, (parts, expected)) in (0..).zip(stacks) {
            let stack = root.join(format!("devices/dm-{minor}"));
            fs::create_dir_all(stack.join("slaves")).unwrap();
            for (at, part) in parts.iter().enumerate() {
                let disk = root.join(format!("devices/region-{part}/namespace/block"));
                symlink(disk, stack.join(format!("slaves/{at}"))).unwrap();
            }
            symlink(&stack, root.join(format!("dev/block/253:{minor}"))).unwrap();
            let device = Device::new(root, libc::makedev(253, minor));
            assert_eq!(device.persistence_domain(), expected, "{parts:?}");
        }
        let round = root.join("devices/round");
        fs::create_dir_all(round.join("slaves")).unwrap();
        symlink(&round, round.join("slaves/itself")).unwrap();
        symlink(&round, root.join("dev/block/253:9")).unwrap();
        let device = Device::new(root, libc::makedev(253, 9));
        assert_eq!(device.persistence_domain(), Unknown);
    }

    #[test]
    fn what_is_lost_is_told_to_the_list_of_the_disk() {
        let sysfs = fake_sysfs("none", "");
        let list = sysfs.path().join("devices/region0/namespace0.0/block/pmem0/badblocks");
        for (minor, words) in [(0, "8 16\n"), (1, "2056 16\n")] {
            fs::write(&list, "").unwrap();
            let device = Device::new(sysfs.path(), libc::makedev(259, minor));
            device.lose(4096, 8192).unwrap();
            assert_eq!(fs::read_to_string(&list).unwrap(), words, "259:{minor}");
            assert_eq!(device.bad_bytes(), [(4096, 8192)], "259:{minor}");
        }
        let nowhere = Device::new(sysfs.path(), libc::makedev(8, 0));
        assert_eq!(nowhere.lose(0, 512).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_file(&list).unwrap();
        fs::create_dir(&list).unwrap();
        let disk = Device::new(sysfs.path(), libc::makedev(259, 0));
        assert!(disk.bad_bytes().is_empty() && disk.lose(0, 512).is_err(), "it is no list");
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let ranges = vec![(9000, 10), (0, 1), (4000, 200), (20_480, 4096), (20_481, 1)];
        assert_eq!(whole_pages(ranges), [(0, 12_288), (20_480, 4096)]);
    }

    #[test]
    fn a_real_file_has_extents_or_the_file_system_says_so() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        match extents(file.as_fd()) {
            Ok(found) => {
                assert_eq!(found.iter().map(|extent| extent.len).sum::<u64>(), 1 << 20);
                assert_eq!(found[0].logical, 0);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        }
    }
}
