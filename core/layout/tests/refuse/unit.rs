//! Nothing to store.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Nothing;

fn main() {}
