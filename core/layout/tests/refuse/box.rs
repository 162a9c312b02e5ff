//! Addresses end with the process; and a `Box` cannot be copied.
use holdfast_layout::Persist;

#[derive(Clone, Persist)]
#[repr(C)]
struct Node {
    next: Box<u64>,
}

fn main() {}
