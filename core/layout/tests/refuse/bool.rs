//! Only two of 256 bytes are a `bool`.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Flag {
    set: bool,
}

fn main() {}
