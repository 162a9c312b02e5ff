//! A scene that is one test program: it has to end well, and to have said what it must.

use anyhow::Result;

use super::machine::Ran;
use super::say::say;
use super::{CONTROLS, Lab, Played, TRIED};
use crate::guest::{CONSOLE, ENDED};
use crate::scenes::{Lesser, Scene, Test};

/// Runs the program, once more on each lesser machine, and has lies told of what it said.
pub(super) fn play(lab: &Lab, scene: &Scene<'_>, test: &Test<'_>) -> Result<Played> {
    let program = lab.test(test.program)?;
    let mut files = lab.files(&program)?;
    files.scene(scene.on.folder(), CONSOLE, test.arguments);
    let ran = lab.start(&files, scene.patience, &mut |_| None)?;
    let mut played = Played { wrong: judge(test, &ran), count: 1, ..Played::default() };
    if played.wrong.is_some() {
        lab.show(&ran);
        return Ok(played);
    }
    // Of a test as it is, nothing is known that it must say.
    let mut found = Vec::new();
    if !test.says.is_empty() {
        let of = |(name, told): (String, Ran)| (name, judge(test, &told));
        found.extend(lies(test, &ran).into_iter().map(of));
    }
    for lesser in test.lesser {
        let more: Vec<String> = lesser.told.iter().map(|&word| word.to_owned()).collect();
        lab.forget();
        let ran = lab.start_with(&more, &files, scene.patience, &mut |_| None)?;
        found.push((lesser.name.to_owned(), lacking(test, lesser, &ran)));
    }
    for (name, why) in &found {
        match why {
            Some(why) => say!("  convicted {name}: {why}"),
            None => played.wrong = Some(format!("nothing was found to be wrong: {name}")),
        }
    }
    let convicted = found.iter().filter(|(_, why)| why.is_some()).count() as u64;
    let figures = [(TRIED, found.len() as u64), (CONTROLS, convicted)];
    played.figures.extend(figures.map(|(name, count)| (name.to_owned(), count)));
    Ok(played)
}

/// What is wrong with what the guest said on a machine that lacks something. That it came to no end
/// there, for whatever reason, tells nothing of what it lacks.
fn lacking(test: &Test<'_>, lesser: &Lesser<'_>, ran: &Ran) -> Option<String> {
    let says = |part: &str| ran.said.iter().any(|line| line.contains(part));
    judge(test, ran).filter(|_| !ran.late && says(ENDED) && says(lesser.instead))
}

/// How many lies are told of it, and lesser machines tried.
#[cfg(test)]
pub(super) fn tried(test: &Test<'_>) -> usize {
    lies(test, &Ran { said: Vec::new(), late: false }).len() + test.lesser.len()
}

/// What a program may say that is not as it should be, made of what it did say; each with its name.
fn lies(test: &Test<'_>, ran: &Ran) -> Vec<(String, Ran)> {
    let told = |said: Vec<String>| Ran { said, late: false };
    let without =
        |part: &str| told(ran.said.iter().filter(|line| !line.contains(part)).cloned().collect());
    let ended = |code: &str| {
        let mut said = without(ENDED).said;
        said.push(format!("{ENDED} {code}"));
        told(said)
    };
    let with =
        |part: &str| told(std::iter::once(part.to_owned()).chain(ran.said.clone()).collect());
    let mut all = vec![
        ("no word of its end".to_owned(), without(ENDED)),
        ("it failed".to_owned(), ended("1")),
        ("it was killed".to_owned(), ended("4")),
        ("it took too long".to_owned(), Ran { late: true, ..told(ran.said.clone()) }),
    ];
    all.extend(test.says.iter().map(|part| (format!("no word of `{part}`"), without(part))));
    all.extend(test.never.iter().map(|part| (format!("a word of `{part}`"), with(part))));
    all
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
        let test = Test { program: ("p", "t"), arguments: &[], says, never, lesser: &[] };
        let fine = ["all is well", "lab: ended 0"];
        assert_eq!(judge(&test, &ran(&fine, false)), None);
        assert!(judge(&test, &ran(&fine, true)).is_some());
        assert!(judge(&test, &ran(&fine[..1], false)).is_some());
        assert!(judge(&test, &ran(&fine[1..], false)).is_some());
        assert!(judge(&test, &ran(&["all is well", "lab: ended 1"], false)).is_some());
        assert!(judge(&test, &ran(&["it lacks that", fine[0], fine[1]], false)).is_some());
    }

    #[test]
    fn each_lie_about_what_a_program_said_is_convicted() {
        let (says, never) = (&["all is well", "keys"], &["lacks"]);
        let test = Test { program: ("p", "t"), arguments: &[], says, never, lesser: &[] };
        let fine = ran(&["by keys", "all is well", "lab: ended 0"], false);
        let all = lies(&test, &fine);
        assert_eq!(all.len(), 7);
        for (name, told) in &all {
            assert!(judge(&test, told).is_some(), "{name}");
        }
    }

    #[test]
    fn a_lesser_machine_is_convicted_by_what_it_has_instead() {
        let says = &["by keys"];
        let test = Test { program: ("p", "t"), arguments: &[], says, never: &[], lesser: &[] };
        let lesser = Lesser { name: "no keys", told: &[], instead: "by alias" };
        let judged = |lines: &[&str]| lacking(&test, &lesser, &ran(lines, false));
        assert!(judged(&["by alias", "lab: ended 0"]).is_some());
        assert!(judged(&["by keys", "by alias", "lab: ended 0"]).is_none(), "it has them");
        assert!(judged(&["lab: ended 8"]).is_none(), "it did not come to it");
        assert!(judged(&["by alias"]).is_none(), "it went off");
    }
}
