//! Shorthands of the tests: media, words, sets of images.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;

use holdfast_faultmem::{Budget, Config, FaultMedium, Image, Mode};
use holdfast_pmem::{Medium, MediumKind, Site};

pub(crate) const S: Site = Site::new("test.store");
pub(crate) const D: Site = Site::new("test.drain");

pub(crate) fn dax() -> FaultMedium {
    FaultMedium::new(2 * 4096, MediumKind::Dax, &Config::default())
}

pub(crate) fn file() -> FaultMedium {
    FaultMedium::new(2 * 4096, MediumKind::File, &Config::default())
}

pub(crate) fn in_mode(kind: MediumKind, mode: Mode) -> FaultMedium {
    FaultMedium::new(2 * 4096, kind, &Config { mode: Some(mode), ..Config::default() })
}

/// Stores a word and flushes it.
pub(crate) fn put(m: &FaultMedium, at: u64, value: u64) {
    m.put(S, at, &value.to_le_bytes()).expect("a good word");
}

/// Stores a word without a flush.
pub(crate) fn put_unflushed(m: &FaultMedium, at: u64, value: u64) {
    let site = Site::new("test.unflushed");
    m.elide(site);
    m.put(site, at, &value.to_le_bytes()).expect("a good word");
}

/// A word as the program sees it.
pub(crate) fn get(m: &FaultMedium, at: u64) -> u64 {
    let mut le = [0; 8];
    m.read(at, &mut le).expect("a good word");
    u64::from_le_bytes(le)
}

pub(crate) fn word(bytes: &[u8], at: u64) -> u64 {
    let at = at as usize;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A word of the persisted image.
pub(crate) fn persisted(m: &FaultMedium, at: u64) -> u64 {
    word(m.crash_point().persisted().bytes(), at)
}

/// Every image of the present instant.
pub(crate) fn images(m: &FaultMedium) -> Vec<Image> {
    m.images(&Budget::default()).collect()
}

/// What a crash now may leave in the given words.
pub(crate) fn outcomes<const N: usize>(m: &FaultMedium, at: [u64; N]) -> BTreeSet<[u64; N]> {
    images(m).iter().map(|image| at.map(|at| word(image.bytes(), at))).collect()
}

/// Runs on a thread of its own, to its end.
pub(crate) fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(run).join().expect("it does not panic"))
}
