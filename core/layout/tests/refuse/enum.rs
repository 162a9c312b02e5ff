//! Damaged bytes may hold none of the variants.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(u8)]
enum State {
    Free,
    Live,
}

fn main() {}
