//! A scene that is one test program: it has to end well, and to have said what it must.

use anyhow::Result;

use super::machine::Ran;
use super::{Lab, Played};
use crate::guest::{CONSOLE, ENDED};
use crate::scenes::{Scene, Test};

/// Runs the program.
pub(super) fn play(lab: &Lab, scene: &Scene<'_>, test: &Test<'_>) -> Result<Played> {
    let program = lab.test(test.program)?;
    let mut files = lab.files(&program)?;
    files.scene(scene.on.folder(), CONSOLE, test.arguments);
    let ran = lab.start(&files, scene.patience, &mut |_| None)?;
    let wrong = judge(test, &ran);
    if wrong.is_some() {
        lab.show(&ran);
    }
    Ok(Played { wrong, count: 1, ..Played::default() })
}

/// What is wrong with what the guest said.
fn judge(test: &Test<'_>, ran: &Ran) -> Option<String> {
    let says = |part: &str| ran.said.iter().find(|line| line.contains(part));
    if ran.late {
        return Some("it took too long".to_owned());
    }
    let Some(ended) = says(ENDED) else {
        return Some("the machine went off before the scene had ended".to_owned());
    };
    if !ended.ends_with(&format!("{ENDED} 0")) {
        return Some(ended.clone());
    }
    if let Some(line) = test.never.iter().find_map(|part| says(part)) {
        return Some(format!("it said: {line}"));
    }
    let part = test.says.iter().find(|part| says(part).is_none())?;
    Some(format!("it did not say `{part}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(lines: &[&str], late: bool) -> Ran {
        Ran { said: lines.iter().map(|&line| line.to_owned()).collect(), late }
    }

    #[test]
    fn only_a_scene_that_came_to_its_end_and_said_what_it_must_has_passed() {
        let (says, never) = (&["all is well"], &["lacks"]);
        let test = Test { program: ("p", "t"), arguments: &[], says, never };
        let fine = ["all is well", "lab: ended 0"];
        assert_eq!(judge(&test, &ran(&fine, false)), None);
        assert!(judge(&test, &ran(&fine, true)).is_some());
        assert!(judge(&test, &ran(&fine[..1], false)).is_some());
        assert!(judge(&test, &ran(&fine[1..], false)).is_some());
        assert!(judge(&test, &ran(&["all is well", "lab: ended 1"], false)).is_some());
        assert!(judge(&test, &ran(&["it lacks that", fine[0], fine[1]], false)).is_some());
    }
}
