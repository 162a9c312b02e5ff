//! Without a representation the compiler may order fields anew in each build.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
struct Account {
    balance: i64,
}

fn main() {}
