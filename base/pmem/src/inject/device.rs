//! Media errors of the machine itself: sectors that the system is told are bad, and memory that it
//! is told has failed. Unlike [`poison`](super::poison), nobody's mapping is changed: what an
//! access meets then is what it meets on a device that wears out.
//!
//! Both need root. The sectors stay bad until the device is set up again, whatever is written to
//! them; a file system does not know of them, so the file that has them is better kept than
//! removed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::badblocks::{Device, extents};
use crate::mapped::{Mapped, SYSFS};
use crate::medium::{Medium, PAGE};
use crate::track::maps;

/// Bytes of a page, for calls.
const LEN: usize = PAGE as usize;
/// What is left of a page that nobody can read.
const GONE: [u8; LEN] = [0xdb; LEN];

/// Has the device lose the sectors behind the page at `at` of a file on persistent memory: from
/// its next fault on, each access of this process through a mapping raises `SIGBUS`
/// (`BUS_MCEERR_AR`); `read` answers `EIO`, and `write` `EFAULT`. The bytes are destroyed as well,
/// if the file was opened for writing.
///
/// Other processes meet it only where they have not yet touched the page.
///
/// # Errors
/// The file is on no such device, the page has no storage, or this is not for us to do.
pub fn lose_sectors(file: &File, at: u64) -> io::Result<()> {
    let (device, place) = storage(file, at)?;
    // Mapped and touched while it can be: nobody else gets at the bytes afterwards.
    let held = Page::of(file, at)?;
    held.touch();
    device.lose(place, PAGE)?;
    forget(file, at, held.0 as usize)?;
    held.destroy();
    Ok(())
}

/// Has the kernel give up the memory that holds the page at `at` of a file, as it does when the
/// hardware reports it (`MADV_HWPOISON`). The calling process gets a `SIGBUS` for it: let one do it
/// that is there for nothing else.
///
/// # Errors
/// The kernel was built without `CONFIG_MEMORY_FAILURE`, or this is not for us to do.
pub fn fail_memory(file: &File, at: u64) -> io::Result<()> {
    let held = Page::of(file, at)?;
    held.touch();
    advise(held.0, libc::MADV_HWPOISON)
}

/// Has the machine report that the page at `at` of a mapping on persistent memory has failed, as it
/// does when a load of this thread meets that: its sectors are listed as bad, and the kernel takes
/// it from every mapping and raises `SIGBUS` (`BUS_MCEERR_AR`) in the middle of this call, which
/// comes back when that is dealt with. From then on each access is refused, as behind
/// [`lose_sectors`]. `file` is the one that is mapped.
///
/// `MADV_HWPOISON` alone does half of it: the signal comes, but who asks for the page again is
/// given it, since nothing of the list is known to the driver.
///
/// # Errors
/// The file is on no such device, the page has no storage, or this is not for us to do.
pub fn strike(medium: &Mapped, file: &File, at: u64) -> io::Result<()> {
    let nothing = || io::Error::new(io::ErrorKind::NotFound, "no such page");
    let page = medium.view(at, PAGE).ok_or_else(nothing)?;
    let (device, place) = storage(file, medium.place_in_file(at))?;
    // The kernel must have it at hand: once the sectors are listed, it is given to nobody.
    // SAFETY: one byte of a page of the mapping, which lives as long as the medium.
    unsafe { page.read_volatile() };
    device.lose(place, PAGE)?;
    advise(page.cast_mut().cast(), libc::MADV_HWPOISON)
}

/// The device that a file is on, and where on it a byte of the file is.
fn storage(file: &File, at: u64) -> io::Result<(Device, u64)> {
    let device = Device::new(Path::new(SYSFS), file.metadata()?.dev());
    let pieces = extents(file.as_fd())?;
    let piece = pieces.iter().find(|piece| piece.logical <= at && at - piece.logical < piece.len);
    let Some(piece) = piece else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the page has no storage"));
    };
    Ok((device, piece.physical + (at - piece.logical)))
}

/// A page of a file, mapped.
struct Page(*mut libc::c_void);

impl Page {
    fn of(file: &File, at: u64) -> io::Result<Self> {
        let at = libc::off_t::try_from(at).map_err(io::Error::other)?;
        let (null, file) = (core::ptr::null_mut(), file.as_raw_fd());
        // The second for a file that was opened only to be read.
        for rights in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ] {
            // SAFETY: maps a page of the file where the kernel finds room; nothing is replaced.
            let page = unsafe { libc::mmap(null, LEN, rights, libc::MAP_SHARED, file, at) };
            if page != libc::MAP_FAILED {
                return Ok(Self(page));
            }
        }
        Err(io::Error::last_os_error())
    }

    fn touch(&self) {
        // SAFETY: one byte of the page that this value has mapped.
        unsafe { self.0.cast::<u8>().read_volatile() };
    }

    /// Changes what the page holds, by a call that answers an error where a store would fault: a
    /// failed `write` of somebody else's takes the page from everybody.
    fn destroy(&self) {
        let from = libc::iovec { iov_base: GONE.as_ptr().cast_mut().cast(), iov_len: LEN };
        let to = libc::iovec { iov_base: self.0, iov_len: LEN };
        // SAFETY: reads a constant of `LEN` bytes, and writes the page that this value has mapped.
        unsafe { libc::process_vm_writev(libc::getpid(), &raw const from, 1, &raw const to, 1, 0) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page that this value has mapped, and nobody else knows of.
        unsafe { libc::munmap(self.0, LEN) };
    }
}

/// Has every mapping of this process but the one at `but` ask for a page again.
fn forget(file: &File, at: u64, but: usize) -> io::Result<()> {
    let inode = file.metadata()?.ino();
    let mut places = Vec::new();
    let walked = maps::walk(None, |vma| {
        let len = (vma.end - vma.start) as u64;
        if vma.shared && vma.inode == inode && vma.at <= at && at - vma.at < len {
            places.push(vma.start + (at - vma.at) as usize);
        }
    });
    walked.map_err(io::Error::other)?;
    for place in places.into_iter().filter(|place| *place != but) {
        // Who has unmapped it meanwhile has no page to forget.
        let _ = advise(place as *mut libc::c_void, libc::MADV_DONTNEED);
    }
    Ok(())
}

fn advise(page: *mut libc::c_void, what: libc::c_int) -> io::Result<()> {
    // SAFETY: no byte of a shared mapping of a file changes by it: the page is asked for again, or
    // refused from then on.
    if unsafe { libc::madvise(page, LEN, what) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Durability, Options};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::unix::fs::FileExt;

    #[test]
    fn memory_has_no_sectors_to_lose() {
        // Not on a disk: this might be a machine where it can be done.
        let file = File::from(memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&[7; LEN], 0).unwrap();
        lose_sectors(&file, 0).unwrap_err();
        let mut found = [0; LEN];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [7; LEN]);
    }

    #[test]
    fn what_is_on_no_device_is_struck_by_nothing() {
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() {
            println!("skipped: no shared memory");
            return;
        }
        let folder = tempfile::tempdir_in(shared).unwrap();
        let path = folder.path().join("pool");
        let options = Options { durability: Durability::Process, ..Options::default() };
        let medium = Mapped::create(&path, PAGE, &options).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        strike(&medium, &file, 0).unwrap_err();
        let beyond = strike(&medium, &file, 7 * PAGE).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::NotFound);
        medium.read(0, &mut [1; LEN]).unwrap();
    }
}
