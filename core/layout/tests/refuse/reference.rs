//! Addresses end with the process.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Name {
    name: &'static str,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Borrowed<'a> {
    word: &'a u64,
}

fn main() {}
