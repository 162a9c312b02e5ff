//! Its width depends on the machine.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Count {
    count: usize,
}

fn main() {}
