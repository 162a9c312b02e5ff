//! Objects start at multiples of 64 bytes.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C, align(128))]
struct Wide {
    words: [u64; 16],
}

fn main() {}
