//! Scenes in which the machine's own memory or device fails under files, until so many failures
//! were met. The system's list of bad sectors has an end and nothing is taken off it, so each start
//! of the machine sees a share of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use holdfast_workloads::Rng;
use serde_json::{Value, json};

use super::files::Files;
use super::machine::Ran;
use super::say::say;
use super::{CONTROLS, Lab, Played, TRIED};
use crate::guest::{CONSOLE, ENDED};
use crate::scenes::{Part, Scene, Sick};

/// Package of the program that is run, and its name.
const PROGRAM: (&str, &str) = ("holdfast-campaign", "holdfast-campaign");

/// Lives of files in one start.
const SHARE: u64 = 120;

/// What the program says before its counts, and of each control that was convicted.
const CAME_TO: &str = "sick: came to ";
const CONVICTED: &str = "sick: convicted without ";
/// What it says of a violation.
const VIOLATION: &str = "sick: Violation";

/// Starts the machine until so many files have lived on it.
pub(super) fn play(lab: &Lab, scene: &Scene<'_>, sick: &Sick<'_>, asked: Asked) -> Result<Played> {
    let program = lab.program(PROGRAM)?;
    let files = lab.files(&program)?;
    let mut played = Played { how: format!("seed {}", asked.seed), ..Played::default() };
    // Less would have been refused: nothing would have been played, and so nothing found.
    ensure!(asked.lives >= sick.fewest(), "{} lives are too few", asked.lives);
    for part in sick.parts {
        if asked.lives < part.each {
            say!("  {}: none of so few lives", told(part));
            continue;
        }
        let came = in_one_place(lab, scene, part, (&files, asked), &mut played)?;
        if let Err(wrong) = came {
            played.wrong = Some(format!("{}{wrong}", told(part)));
            return Ok(played);
        }
    }
    for (name, value) in &played.figures {
        say!("  {name}: {value}");
    }
    Ok(played)
}

/// What a part is called.
fn told(part: &Part<'_>) -> String {
    format!("{} {} in {}", part.campaign, part.how, part.folder)
}

/// The starts of one part; what is wrong, if anything.
fn in_one_place(
    lab: &Lab,
    scene: &Scene<'_>,
    part: &Part<'_>,
    (files, asked): (&Files, Asked),
    played: &mut Played,
) -> Result<Result<(), String>> {
    let mut all = BTreeMap::<String, u64>::new();
    for (number, lives) in (0..).zip(shares(asked.lives.div_ceil(part.each))) {
        // Once is enough: a control costs as much as what it is a control of.
        let controls = if number == 0 { part.controls } else { &[] };
        // Of its own in each start: runs from neighbouring seeds have none in common.
        let seed = Rng::part(asked.seed, number).next_u64() >> 1;
        let orders = json!({
            "folder": part.folder, "how": part.how, "lives": lives,
            "seed": seed, "controls": controls,
        });
        let mut files = files.clone();
        let words = [part.campaign, "--sick", &orders.to_string()];
        files.scene(scene.on.folder(), CONSOLE, &words);
        lab.forget();
        let ran = lab.start(&files, scene.patience, &mut |_| None)?;
        let (count, figures) = match judge(&ran, controls) {
            Ok(came) => came,
            Err(wrong) => {
                lab.show(&ran);
                return Ok(Err(format!(", start {number}: {wrong}")));
            }
        };
        say!("  {}, start {number}: {count} failures met", told(part));
        for line in ran.said.iter().filter(|line| line.contains(CONVICTED)) {
            let line: String = line.chars().take(140).collect();
            say!("  {}", line.trim_start_matches("sick: "));
        }
        played.count += count;
        for figure in [TRIED, CONTROLS] {
            *played.figures.entry(figure.to_owned()).or_default() += controls.len() as u64;
        }
        for (name, value) in figures {
            *all.entry(name).or_default() += value;
        }
    }
    let came = shown(part.shows, &all);
    for (name, value) in all {
        *played.figures.entry(format!("{}: {name}", part.campaign)).or_default() += value;
    }
    Ok(came)
}

/// Whether the machine did what a part is about. If not, nothing was wrong, and nothing shown.
fn shown(figure: Option<&str>, all: &BTreeMap<String, u64>) -> Result<(), String> {
    match figure.filter(|figure| all.get(*figure).copied().unwrap_or(0) == 0) {
        Some(figure) => Err(format!(": not shown: none was `{figure}`")),
        None => Ok(()),
    }
}

/// How much of it, from which seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) lives: u64,
    pub(super) seed: u64,
}

/// Lives of each start, for so many in all.
fn shares(lives: u64) -> impl Iterator<Item = u64> {
    let lives = lives.max(1);
    (0..lives.div_ceil(SHARE)).map(move |number| SHARE.min(lives - number * SHARE))
}

/// What was done, or what is wrong.
fn judge(ran: &Ran, controls: &[&str]) -> Result<(u64, BTreeMap<String, u64>), String> {
    let says = |part: &str| ran.said.iter().find(|line| line.contains(part));
    if ran.late {
        return Err("it took too long".to_owned());
    }
    // What a control was convicted by is none.
    let violation = |line: &&String| line.contains(VIOLATION) && !line.contains(CONVICTED);
    if let Some(line) = ran.said.iter().find(violation) {
        return Err(line.clone());
    }
    let ended = says(ENDED).ok_or("the machine went off before the scene had ended")?;
    if !ended.ends_with(&format!("{ENDED} 0")) {
        return Err(ended.clone());
    }
    for control in controls {
        says(&format!("{CONVICTED}{control}")).ok_or_else(|| format!("no word of {control}"))?;
    }
    let line = says(CAME_TO).ok_or("it did not say what it came to")?;
    counts(line).map_err(|error| format!("{error:#}: {line}"))
}

/// The counts in what it came to.
fn counts(line: &str) -> Result<(u64, BTreeMap<String, u64>)> {
    let (_, text) = line.split_once(CAME_TO).context("no counts")?;
    let value: Value = serde_json::from_str(text).context("not as it writes them")?;
    let count = value["count"].as_u64().context("no count")?;
    let figures = value["figures"].as_object().context("no figures")?;
    let number = |(name, value): (&String, &Value)| Some((name.clone(), value.as_u64()?));
    Ok((count, figures.iter().filter_map(number).filter(|(_, value)| *value > 0).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "sick: came to {\"count\":4,\"figures\":{\"healed\":3,\"lost\":0}}";

    fn judged(lines: &[&str], controls: &[&str]) -> Result<(u64, BTreeMap<String, u64>), String> {
        let said = lines.iter().map(|&line| line.to_owned()).collect();
        judge(&Ran { said, late: false }, controls)
    }

    #[test]
    fn a_scene_says_what_it_came_to_and_that_its_controls_failed() {
        let convicted = "sick: convicted without heal: sick: Violation { .. }";
        let fine = [SAID, convicted, "lab: ended 0"];
        let (count, figures) = judged(&fine, &["heal"]).unwrap();
        assert_eq!((count, figures), (4, BTreeMap::from([("healed".to_owned(), 3)])));
        assert!(judged(&fine[..2], &["heal"]).is_err());
        assert!(judged(&fine[1..], &["heal"]).is_err());
        assert!(judged(&[fine[0], fine[2]], &["heal"]).is_err(), "the control was not run");
        assert!(judged(&[SAID, "sick: Violation { .. }", "lab: ended 0"], &[]).is_err());
        assert!(judged(&[SAID, "lab: ended 1"], &[]).is_err());
    }

    #[test]
    fn a_part_in_which_the_machine_did_nothing_has_shown_nothing() {
        let figures = BTreeMap::from([("refused".to_owned(), 2), ("closed".to_owned(), 0)]);
        assert_eq!(shown(Some("refused"), &figures), Ok(()));
        assert_eq!(shown(None, &BTreeMap::new()), Ok(()));
        for missing in ["closed", "healed"] {
            assert!(shown(Some(missing), &figures).unwrap_err().contains("not shown"), "{missing}");
        }
    }

    #[test]
    fn as_many_as_were_asked_for_are_shared_out() {
        let all = |lives| shares(lives).collect::<Vec<_>>();
        assert_eq!(all(8), [8]);
        assert_eq!(all(SHARE + 10), [SHARE, 10]);
        assert_eq!(all(0), [1]);
    }
}
