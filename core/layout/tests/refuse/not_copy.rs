//! Stored data is copied bit by bit.
use holdfast_layout::Persist;

#[derive(Persist)]
#[repr(C)]
struct Account {
    balance: i64,
}

fn main() {}
