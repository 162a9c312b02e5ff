//! An attribute the derive does not know, and one with an impossible value.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
#[persist(rename = "Account")]
struct Account {
    balance: i64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
#[persist(version = 4294967296)]
struct Newest {
    balance: i64,
}

fn main() {}
