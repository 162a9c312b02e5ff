//! Most words are no `char`.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Letter {
    letter: char,
}

fn main() {}
