//! More of what the programs do with mappings: one thread stores all the time, another maps.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Map, PAGE, PAGES, beside};

/// Pages that are stored to.
const SOME: usize = 40;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

pub(super) fn tell(story: &str, file: &File, path: &Path) -> bool {
    match story {
        "cannot grow" => cannot_grow(file),
        "stays for others" => stays_for_others(file),
        "replaced for others" => replaced_for_others(file),
        "moved onto others" => moved_onto_others(file),
        "exchanged" => exchanged(file, path),
        _ => return false,
    }
    true
}

/// Addresses that nobody else has, for so many pages.
fn reserve(pages: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let nowhere = core::ptr::null_mut();
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(nowhere, pages * PAGE, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Runs something while another thread stores the same bytes to each page of a place.
fn beside_stores(at: *mut u8, run: impl FnOnce()) {
    let (place, over) = (at as usize, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let storing = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                store_all(place);
            }
        });
        std::thread::sleep(Duration::from_millis(5));
        run();
        over.store(true, Ordering::Relaxed);
        storing.join().unwrap();
    });
    store_all(place);
}

fn store_all(place: usize) {
    for page in 0..SOME {
        let at = (place + page * PAGE + 77) as *mut u8;
        // SAFETY: inside a mapping that is always there and may be stored to.
        unsafe { at.write_volatile(0x77) };
    }
}

/// Asks for more room where there is none, without leave to move.
fn cannot_grow(file: &File) {
    let at = reserve(3 * SOME);
    let map = Map::with(file, 0, SOME, BOTH, Some(at));
    beside_stores(at, || {
        for _ in 0..200 {
            let (old, new) = (map.len, 2 * map.len);
            // SAFETY: the mapping stays as it is.
            let found = unsafe { libc::mremap(map.place(0), old, new, 0) };
            let error = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((found, error), (libc::MAP_FAILED, Some(libc::ENOMEM)));
        }
    });
}

/// Has pages shown elsewhere, and here all the same.
fn stays_for_others(file: &File) {
    let map = Map::new(file, 0, SOME);
    beside_stores(map.at, || {
        for _ in 0..60 {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
            let nowhere = core::ptr::null_mut::<libc::c_void>();
            // SAFETY: the mapping stays where it is; what is made is given up again.
            unsafe {
                let moved = libc::mremap(map.place(0), map.len, map.len, flags, nowhere);
                assert_ne!(moved, libc::MAP_FAILED);
                assert_eq!(libc::munmap(moved, map.len), 0);
            }
        }
    });
}

/// Maps memory of nobody over the file, and the file over that.
fn replaced_for_others(file: &File) {
    let at = reserve(SOME);
    Map::with(file, 0, SOME, BOTH, Some(at));
    beside_stores(at, || {
        for _ in 0..60 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: over a mapping of this function's, which others may store to all the time.
            let over = unsafe { libc::mmap(at.cast(), SOME * PAGE, BOTH, flags, -1, 0) };
            assert_eq!(over, at.cast());
            Map::with(file, 0, SOME, BOTH, Some(at));
        }
    });
}

/// Moves pages of the file to where others of it are.
fn moved_onto_others(file: &File) {
    let map = Map::new(file, 300, SOME);
    beside_stores(map.at, || {
        for _ in 0..60 {
            let from = Map::new(file, 100, SOME);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: over a mapping of this function's, which others may store to all the time.
            let moved =
                unsafe { libc::mremap(from.place(0), map.len, map.len, flags, map.place(0)) };
            assert_eq!(moved, map.place(0));
            Map::with(file, 300, SOME, BOTH, Some(map.at));
        }
    });
    let other = Map::new(file, 100, SOME);
    store_all(other.at as usize);
}

/// Puts one page of the file in place of another, again and again, while a thread stores there.
fn exchanged(file: &File, path: &Path) {
    let at = reserve(1);
    Map::with(file, PAGES - 1, 1, BOTH, Some(at));
    let (place, over) = (at as usize, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0_u64;
            while !over.load(Ordering::Relaxed) {
                count += 1;
                // SAFETY: a mapping that is always there and may be stored to.
                unsafe { (place as *mut u64).write_volatile(count) };
            }
        });
        for round in 0..12 {
            Map::with(file, round * 40, 1, BOTH, Some(at));
            std::thread::sleep(Duration::from_millis(60));
            Map::with(file, PAGES - 1, 1, BOTH, Some(at));
            std::thread::sleep(Duration::from_millis(60));
        }
        over.store(true, Ordering::Relaxed);
    });
    std::fs::copy(path, beside(path, "oracle")).unwrap();
}
