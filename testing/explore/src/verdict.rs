//! What the user's closures answer, and what is left of one that panics.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Why a closure of the user failed. Made from anything that can be shown, so that `?` takes any
/// error.
#[derive(PartialEq, Eq)]
pub struct Failed(String);

/// What the user's closures answer.
pub type Verdict<T = ()> = Result<T, Failed>;

impl Failed {
    /// The reason, for people.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl<E: fmt::Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

thread_local! {
    /// How many calls of `guarded` this thread is in.
    static GUARDED: Cell<u32> = const { Cell::new(0) };
    /// Where it panicked last in one of them.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs what the user wrote. A panic in it is an answer like any other: a recovery that dies of
/// what it finds has failed. It is not printed, for reducing a failure repeats it many times.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDED.get() == 0 {
                others(info);
            } else {
                PLACE.set(info.location().map_or_else(String::new, ToString::to_string));
            }
        }));
    });
    GUARDED.set(GUARDED.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(body));
    GUARDED.set(GUARDED.get() - 1);
    done.unwrap_or_else(|panic| Err(Failed(words_of(&*panic))))
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = literal.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic at {}: {}", PLACE.take(), text.as_deref().unwrap_or("without words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_with_its_place() {
        let text = guarded::<()>(|| panic!("no {}", "way")).unwrap_err();
        assert!(text.text().contains("verdict.rs:"), "{text:?}");
        assert!(text.text().ends_with("no way"), "{text:?}");
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }

    #[test]
    fn a_caught_panic_in_a_guarded_call_leaves_the_outer_one_guarded() {
        let outer = guarded::<()>(|| {
            assert!(guarded::<()>(|| panic!("inner")).is_err());
            panic!("outer")
        });
        assert!(outer.unwrap_err().text().ends_with("outer"));
    }
}
