//! Pauses at places where another thread may come between.

use std::cell::RefCell;
use std::time::Duration;

use holdfast_workloads::Rng;

/// One in so many places is a pause; of these, one in so many is a long one.
const PAUSE: u64 = 4;
const LONG: u64 = 8;
/// Longest one, in microseconds.
const LONGEST: u64 = 40;

thread_local! {
    /// Pauses of this thread; none outside of histories.
    static PAUSES: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// From now on this thread pauses.
pub fn begin(rng: Rng) {
    PAUSES.set(Some(rng));
}

/// It does no more.
pub fn end() {
    PAUSES.set(None);
}

/// A place where this thread may pause.
pub fn here() {
    let pause = PAUSES.with_borrow_mut(|rng| {
        let rng = rng.as_mut()?;
        if rng.below(PAUSE) > 0 {
            return None;
        }
        Some(if rng.below(LONG) > 0 { 0 } else { 1 + rng.below(LONGEST) })
    });
    match pause {
        None => {}
        Some(0) => std::thread::yield_now(),
        Some(micros) => std::thread::sleep(Duration::from_micros(micros)),
    }
}
