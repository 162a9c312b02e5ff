//! A transparent struct is storable only around what is storable.
use holdfast_layout::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(transparent)]
struct Wrapped<T>(T);

fn stored<T: Persist>(_: T) {}

fn main() {
    stored(Wrapped(7_u32));
    stored(Wrapped(true));
}
