//! Whether a store through a mapping changes the date of its file, so that a file whose date is
//! still the same was not stored to. File systems in memory do not do that: they map a page for
//! writing as soon as it is read, and see nothing of the stores that follow.
//!
//! Of the common file systems it is known; of others it is tried, on a file without a name beside
//! the one that is asked about.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::mm::{MapFlags, ProtFlags};

use crate::file::{BTRFS, EXT4, F2FS, IN_MEMORY, XFS};
use crate::medium::PAGE;

/// Those that learn of the first store to a page since it was last written back.
const DATED: [i64; 4] = [EXT4, XFS, BTRFS, F2FS];

/// Whether stores to a file are dated. Where it cannot be found out, they are not.
pub(crate) fn dates_stores(file: &File) -> bool {
    match rustix::fs::fstatfs(file).map(|stat| stat.f_type) {
        Ok(kind) if DATED.contains(&kind) => true,
        Ok(kind) if IN_MEMORY.contains(&kind) => false,
        Ok(_) => beside(file).is_ok_and(|probe| tried(&probe).unwrap_or(false)),
        Err(_) => false,
    }
}

/// A file without a name in the folder of `file`.
fn beside(file: &File) -> std::io::Result<File> {
    let path: PathBuf = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let folder = path.parent().unwrap_or(&path);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Loads from a page of `probe`, stores to it, and looks at its date.
fn tried(probe: &File) -> std::io::Result<bool> {
    rustix::io::pwrite(probe, &[1; PAGE as usize], 0)?;
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let long_ago = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: omit, last_modification: long_ago };
    rustix::fs::futimens(probe, &times)?;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping wherever there is room, of a file that nobody else knows of and that
    // has this page.
    let page =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE as usize, prot, flags, probe, 0)? };
    let byte = page.cast::<u8>();
    // SAFETY: the page was just mapped, for loads and stores.
    unsafe {
        // Both in one instruction would fault for the store only.
        let was = core::hint::black_box(byte.read_volatile());
        byte.write_volatile(was.wrapping_add(1));
    }
    // SAFETY: the mapping made above, which nobody else has.
    unsafe { rustix::mm::munmap(page, PAGE as usize)? };
    let found = rustix::fs::statat(probe, "", AtFlags::EMPTY_PATH)?;
    Ok(found.st_mtime != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_file_systems_is_what_they_do() {
        let folders = [std::env::temp_dir(), "/dev/shm".into()];
        let mut tried_some = false;
        for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
            let file = tempfile::NamedTempFile::new_in(&folder).expect("a file");
            let Ok(probe) = beside(file.as_file()) else {
                println!("skipped: {} has no files without names", folder.display());
                continue;
            };
            let found = tried(&probe).expect("it can be tried");
            assert_eq!(dates_stores(file.as_file()), found, "{}", folder.display());
            tried_some = true;
        }
        assert!(tried_some, "neither folder can be asked");
    }
}
