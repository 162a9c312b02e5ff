//! What is told of a scene while others may be under way: its lines have its name.

use std::cell::RefCell;
use std::fmt::Arguments;

thread_local! {
    /// The scene that this thread plays beside others.
    static WHOSE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on, what this thread tells is of this scene.
pub(super) fn of(scene: Option<&str>) {
    WHOSE.set(scene.map(str::to_owned));
}

/// Prints a line as a whole. Those within a scene begin with two blanks; others name it already.
pub(super) fn line(what: Arguments<'_>) {
    let line = WHOSE.with_borrow(|scene| named(scene.as_deref(), &what.to_string()));
    // What unit tests play are no scenes, and nothing is left out where one of them is skipped.
    let line = if cfg!(test) { line.replace("skipped:", "would be left out:") } else { line };
    println!("{line}");
}

fn named(scene: Option<&str>, what: &str) -> String {
    match (scene, what.strip_prefix("  ")) {
        (Some(scene), Some(rest)) => format!("  {scene}: {rest}"),
        _ => what.to_owned(),
    }
}

/// `println!`, for what is told of scenes.
macro_rules! say {
    ($($what:tt)*) => { $crate::host::say::line(format_args!($($what)*)) };
}
pub(super) use say;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_within_a_scene_have_its_name_when_others_are_played_too() {
        assert_eq!(named(Some("cuts"), "  life 1 of 2"), "  cuts: life 1 of 2");
        assert_eq!(named(None, "  life 1 of 2"), "  life 1 of 2");
        // What counts what was left out looks for this word at the beginning of a line.
        assert_eq!(named(Some("cuts"), "skipped: no loop devices"), "skipped: no loop devices");
    }
}
