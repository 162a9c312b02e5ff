//! Size classes and the inside of a run: where slots, sums and objects lie.

use crate::format::{GRANULE, OBJECT_ALIGN, SLOT_LEN, SUM_LEN};

/// Bytes of each size class, ascending. A quarter step between powers of two bounds the waste of
/// rounding at 25 %, 12 % on average.
const CLASSES: [u32; 32] = [
    64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072,
    3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768,
];

/// Number of size classes.
pub const CLASS_COUNT: usize = CLASSES.len();

/// A run holds at least this many objects; larger ones get chunks of their own.
const PER_RUN_MIN: u64 = 6;

/// The inside of a run: `slots | sums | objects`, all from the chunk's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunShape {
    /// Bytes of each object's place.
    pub size: u32,
    /// Places in the run.
    pub places: u32,
    /// Where the sums of granules after the first start.
    pub sums: u32,
    /// Sums kept there for each object.
    pub sums_each: u32,
    /// Where the objects start.
    pub objects: u32,
}

/// The smallest class that holds `len` bytes in chunks of `chunk` bytes, or `None` if the object
/// needs chunks of its own.
#[must_use]
pub fn class_of(len: u64, chunk: u64) -> Option<u8> {
    let class = CLASSES.partition_point(|size| u64::from(*size) < len);
    run_shape(u8::try_from(class).ok()?, chunk).map(|_| class as u8)
}

/// The inside of a run of `class`, or `None` if there is no such class for chunks of this length.
#[must_use]
pub fn run_shape(class: u8, chunk: u64) -> Option<RunShape> {
    let size = *CLASSES.get(usize::from(class))?;
    let sums_each = u64::from(size).div_ceil(GRANULE) - 1;
    let head_each = SLOT_LEN as u64 + sums_each * SUM_LEN;
    let places = (chunk - OBJECT_ALIGN) / (u64::from(size) + head_each);
    if places < PER_RUN_MIN {
        return None;
    }
    let sums = places * SLOT_LEN as u64;
    let objects = (sums + places * sums_each * SUM_LEN).next_multiple_of(OBJECT_ALIGN);
    debug_assert!(objects + places * u64::from(size) <= chunk);
    Some(RunShape {
        size,
        places: places as u32,
        sums: sums as u32,
        sums_each: sums_each as u32,
        objects: objects as u32,
    })
}

/// Bytes before the data of a large object of `count` chunks: its slot and its sums.
#[must_use]
pub fn large_head(count: u64, chunk: u64) -> u64 {
    (SLOT_LEN as u64 + count * chunk / GRANULE * SUM_LEN).next_multiple_of(OBJECT_ALIGN)
}

/// Chunks a large object of `len` bytes needs.
#[must_use]
pub fn large_chunks(len: u64, chunk: u64) -> u64 {
    let mut count = len.div_ceil(chunk).max(1);
    while large_head(count, chunk) + len > count * chunk {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_fits_its_run() {
        for chunk in [4096_u64, 8192, 65536, 262_144] {
            for class in 0..CLASS_COUNT as u8 {
                let Some(s) = run_shape(class, chunk) else { continue };
                assert!(u64::from(s.objects) + u64::from(s.places * s.size) <= chunk);
                assert_eq!(s.objects % 64, 0);
                assert!(s.sums >= s.places * 16);
            }
        }
    }

    #[test]
    fn classes_hold_what_they_are_asked_for() {
        for len in 1..=8192_u64 {
            let class = class_of(len, 262_144).expect("small objects have a class");
            let size = u64::from(run_shape(class, 262_144).expect("shape").size);
            assert!(size >= len && (len <= 64 || size <= len + len / 4 + 64), "{len} -> {size}");
        }
        assert_eq!(class_of(1 << 20, 262_144), None);
    }

    #[test]
    fn large_objects_fit_their_chunks() {
        for len in [40_000_u64, 262_144, 1 << 20, (1 << 20) + 1, 50_000_000] {
            let n = large_chunks(len, 262_144);
            assert!(large_head(n, 262_144) + len <= n * 262_144);
            assert!(n == 1 || large_head(n - 1, 262_144) + len > (n - 1) * 262_144);
        }
    }
}
