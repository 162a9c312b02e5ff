//! Addresses end with the process.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Node {
    next: *const Node,
}

fn main() {}
