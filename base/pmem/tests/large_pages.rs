//! Files in memory lie on large pages where the kernel has them, from the start and as they grow.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::path::Path;

use common::HERE;
use holdfast_pmem::{Mapped, Medium, Options};

const MIB: u64 = 1 << 20;

/// Bytes of the mappings of `path` that lie on large pages.
fn on_large_pages(path: &Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    let mut sum = 0;
    for line in maps.lines() {
        if line.split_whitespace().next().is_some_and(|word| !word.ends_with(':')) {
            inside = line.ends_with(path.to_str().unwrap());
        } else if inside && let Some(kib) = line.strip_prefix("ShmemPmdMapped:") {
            sum += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
        }
    }
    sum
}

/// Whether this kernel moves shared memory to large pages when asked to.
fn kernel_has_them(folder: &Path) -> bool {
    const COLLAPSE: libc::c_int = 25;
    let len = 4 * MIB as usize;
    let file = std::fs::File::create_new(folder.join("tried")).unwrap();
    file.set_len(len as u64).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(folder.join("tried")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file of this test, used below and unmapped.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the range is the mapping made above; nobody else knows of it.
    unsafe {
        at.write_bytes(1, len);
        let moved = libc::madvise(at, len, COLLAPSE) == 0;
        libc::munmap(at, len);
        moved
    }
}

#[test]
fn files_in_memory_lie_on_large_pages() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    if !kernel_has_them(folder.path()) {
        println!("skipped: the kernel gives shared memory no large pages (Linux 6.1 does)");
        return;
    }
    let path = folder.path().join("large");
    let medium = Mapped::create(&path, 8 * MIB, &Options::default()).unwrap();
    let first = on_large_pages(&path);
    assert!(first >= 8 * MIB, "{first} bytes, of what is stored to at least");
    medium.put(HERE, 3 * MIB, &[7; 5000]).unwrap();
    medium.grow(16 * MIB).unwrap();
    assert!(on_large_pages(&path) >= first + 8 * MIB);
    let mut found = [0; 5000];
    medium.read(3 * MIB, &mut found).unwrap();
    assert_eq!(found, [7; 5000]);
}

#[test]
fn a_length_that_is_no_multiple_of_them_is_no_error() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for len in [4096, MIB, 3 * MIB + 4096] {
        let path = folder.path().join(len.to_string());
        let medium = Mapped::create(&path, len, &Options::default()).unwrap();
        medium.put(HERE, len - 5, b"bytes").unwrap();
        let mut found = [0; 5];
        medium.read(len - 5, &mut found).unwrap();
        assert_eq!(&found, b"bytes");
    }
}
