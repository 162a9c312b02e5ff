//! A replay line that fits nobody: explorers of other names look at nothing and stop no test, so
//! somebody has to say in the end that nothing was looked at.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::replay::REPLAY;

/// Whether any explorer of this process has the name of the line.
static FOUND: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OWED: RefCell<Option<Owed>> = const { RefCell::new(None) };
}

/// The name that the line is about. Each test has a thread of its own, which ends with it.
struct Owed(String);

impl Drop for Owed {
    fn drop(&mut self) {
        if !FOUND.load(Ordering::Relaxed) {
            eprintln!(
                "NOTHING was explored: {REPLAY} is about `{}`, and no explorer here is called so; \
                 run the test of that one alone, or unset the variable",
                self.0
            );
            // A test that passed already cannot fail any more.
            std::process::abort();
        }
    }
}

/// It is there.
pub(crate) fn found() {
    FOUND.store(true, Ordering::Relaxed);
}

/// One of another name was met; this one has to be met before the thread ends.
pub(crate) fn look_for(name: &str) {
    OWED.with_borrow_mut(|owed| {
        owed.get_or_insert_with(|| Owed(name.to_owned()));
    });
}
