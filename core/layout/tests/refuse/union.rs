//! Bytes of unused variants are not initialised.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
union Word {
    wide: u64,
    narrow: u8,
}

fn main() {}
