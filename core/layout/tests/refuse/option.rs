//! An enum in disguise.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Maybe {
    value: Option<u64>,
}

fn main() {}
