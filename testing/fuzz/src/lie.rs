//! False answers: for a test, what a target's subject answers can be falsified on its way to the
//! oracle, so that it is seen that each question of the oracle convicts. Without that every answer
//! passes as it is.

use std::cell::Cell;

thread_local! {
    /// The question that is answered falsely, and whether it was.
    static FALSE: Cell<(&'static str, bool)> = const { Cell::new(("", false)) };
}

/// The answer to a question of this name, or what `falsify` makes of it if that is asked for.
pub(crate) fn lie<T>(name: &'static str, told: T, falsify: impl FnOnce(T) -> T) -> T {
    if FALSE.get().0 != name {
        return told;
    }
    FALSE.set((name, true));
    falsify(told)
}

/// Does something while the question of this name is answered falsely by this thread; says whether
/// it was asked. A panic on the way leaves the lie in place.
pub fn telling<R>(name: &'static str, act: impl FnOnce() -> R) -> (R, bool) {
    FALSE.set((name, false));
    let done = act();
    (done, FALSE.replace(("", false)).1)
}
