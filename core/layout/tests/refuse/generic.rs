//! Whether there is padding depends on the parameter.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Pair<T> {
    key: u64,
    value: T,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Bytes<const N: usize> {
    bytes: [u8; N],
}

fn main() {}
