//! Padding between and after fields.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Inside {
    small: u8,
    large: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct After {
    large: u64,
    small: u8,
}

#[derive(Clone, Copy, Persist)]
#[repr(C, align(16))]
struct Aligned {
    large: u64,
}

fn main() {}
