//! A struct inside has to be plain data itself.
use holdfast_layout::Persist;

#[derive(Clone, Copy)]
#[repr(C)]
struct Inner {
    word: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Outer {
    inner: Inner,
    list: [Inner; 2],
}

fn main() {}
