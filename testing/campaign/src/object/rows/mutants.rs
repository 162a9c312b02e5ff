//! Row `mutants`: the engine with one named place switched off at a time; a checker must see it.
//!
//! Each place of the engine path where something is flushed, drained, synced, summed, verified or
//! patched into parity is tried with killers: stories in which leaving it out shows. It is killed
//! if a checker saw a wrong state, not if something merely gave up, and if the story came by the
//! place at all: what is wrong without that is not for want of it. First come the controls: every
//! killer, with nothing switched off, must see nothing wrong, and come by the places it is for.
//! Which places there are is read from the sources; one without a killer is a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use holdfast_faultmem::told_apart;

use crate::object::handle::Visited;
use crate::object::killers::table::{STEPS, Trial, trials};
use crate::object::killers::{Killer, Mutant};
use crate::runner::{Case, Row, Tier, panic_text};
use crate::tally::{Fault, Tally, Violation};

/// The row.
pub const ROW: Row = Row {
    name: "mutants",
    story: "each named place of the engine switched off in turn: a checker must see it",
    cases: |tier| (controls().len() + trials().count()) as u64 * rounds(tier),
    run,
    finish,
    patience: Duration::from_secs(600),
    threads: 2,
};

/// Longest time a killer may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where the crates lie of which a pool is made, and who brings them together.
const CRATES: &str = "core";
const ENGINE: &str = "engines/object/src";

const fn rounds(tier: Tier) -> u64 {
    match tier {
        Tier::Ci => 1,
        Tier::Long => 10,
    }
}

/// Every killer once, by name.
pub fn controls() -> Vec<Killer> {
    let all = trials().flat_map(|(_, killers)| killers.iter().copied());
    let named: BTreeMap<String, Killer> = all.map(|killer| (killer.name(), killer)).collect();
    named.into_values().collect()
}

fn run(case: &Case) -> Tally {
    let controls = controls();
    let trials: Vec<Trial> = trials().collect();
    let each = (controls.len() + trials.len()) as u64;
    let (round, number) = (case.number / each, (case.number % each) as usize);
    // Trials and controls of a round share their seed: the control plays the very stories in
    // which the mutants die.
    let seed = Case { number: round, ..*case }.rng(1).next_u64();
    match controls.get(number) {
        Some(killer) => {
            let mut tally = control(killer, &places_of(killer), seed);
            if number == 0 && round == 0 {
                sources(&mut tally);
            }
            tally
        }
        None => tried(&trials[number - controls.len()], seed),
    }
}

/// Plays a killer on a thread of its own: one that hangs cannot be stopped, only left behind.
fn played(killer: &Killer, mutant: &Mutant) -> Tally {
    let (killer, mutant) = (*killer, mutant.clone());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let played = catch_unwind(AssertUnwindSafe(|| killer.play(&mutant)));
        let played = played.map_err(|panic| panic_text(&*panic));
        // Nobody listens any more if this took too long.
        let _ = tell.send(played);
    });
    let failed = match told.recv_timeout(PATIENCE) {
        Ok(Ok(tally)) => return tally,
        Ok(Err(panic)) => Violation::new(Fault::Panicked, panic),
        Err(_) => Violation::new(Fault::Hung, format!("no end after {PATIENCE:?}")),
    };
    let mut tally = Tally::default();
    tally.convict(failed);
    tally
}

/// The places that a killer is tried with.
fn places_of(killer: &Killer) -> BTreeSet<&'static str> {
    let name = killer.name();
    let those = trials().filter(|(_, killers)| killers.iter().any(|k| k.name() == name));
    those.map(|(site, _)| site).collect()
}

/// With nothing switched off, a killer must see nothing wrong; and it names the places it passes,
/// those among them that it is `meant` for.
pub fn control(killer: &Killer, meant: &BTreeSet<&'static str>, seed: u64) -> Tally {
    let visited = Visited::default();
    let mutant = Mutant { off: None, seed, visited: visited.clone() };
    let mut tally = played(killer, &mutant);
    for violation in &mut tally.violations {
        violation.story = format!("control, {}: {}", killer.name(), violation.story);
    }
    let mut tally = Tally { figures: BTreeMap::new(), lines: Vec::new(), ..tally };
    // Those that the sources name are told once: see `sources`.
    let named = named();
    for site in unknown(visited.names()).into_iter().filter(|site| !named.contains_key(*site)) {
        let story = format!("{}: passed {site}, which has no killer", killer.name());
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
    for site in meant.iter().filter(|site| !visited.has(site)) {
        let story = format!("control, {}: {site} was not passed", killer.name());
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
    for (site, kind, at) in visited.passed().into_iter().filter(|(site, ..)| is_ours(site.name())) {
        tally.add(format!("{PASSED}{} {at}", kind.at(site)), 1);
    }
    tally.add("controls", 1);
    tally.add("images of controls", tally.count);
    tally
}

/// Those of the names that are neither tried nor mere steps. Others than the engine's are left
/// out: the medium's growth, and what killers do themselves.
fn unknown(names: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
    let known = known();
    let new = |name: &&str| !known.contains(name) && !STEPS.contains(name);
    names.into_iter().filter(|name| is_ours(name) && new(name)).collect()
}

/// Whether it is a place of the engine path.
fn is_ours(name: &str) -> bool {
    let room = name.split('.').next().unwrap_or("");
    ["heap", "logs", "redundancy", "object"].contains(&room)
}

/// Names of the places that are tried, without what of them is switched off.
fn known() -> BTreeSet<&'static str> {
    trials().map(|(place, _)| name_of(place)).collect()
}

/// Switches a place off and tries its killers in turn.
pub fn tried((site, killers): &Trial, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut images = 0;
    let mut gave_up = None;
    tally.add("mutants", 1);
    for killer in *killers {
        let visited = Visited::default();
        let off = Some((*site).to_owned());
        let seen = played(killer, &Mutant { off, seed, visited: visited.clone() });
        images += seen.count;
        if !visited.has(site) {
            let why = format!("{} did not pass it", killer.name());
            gave_up = gave_up.or(Some(Violation::new(Fault::Refused, why)));
            continue;
        }
        let wrong = seen.violations.iter().find(|violation| violation.fault.is_wrong_state());
        if let Some(wrong) = wrong {
            let what: String = wrong.story.chars().take(100).collect();
            let name = killer.name();
            tally.lines.push(format!("{site:<34} {name:<42} {images:>6} images: {what}"));
            tally.add("mutants killed", 1);
            tally.add(format!("{KILLED}{site}"), 1);
            tally.count = images;
            return tally;
        }
        gave_up = gave_up.or_else(|| seen.violations.into_iter().next());
    }
    let why = gave_up.map_or_else(
        || "nothing was seen".to_owned(),
        |violation| format!("something gave up, which does not count: {}", violation.story),
    );
    let names: Vec<String> = killers.iter().map(Killer::name).collect();
    let story = format!("{site} survives {} ({images} images): {why}", names.join(" and "));
    tally.lines.push(format!("{site:<34} SURVIVES {}", names.join(" and ")));
    tally.convict(Violation::new(Fault::Unnoticed, story));
    tally.count = images;
    tally
}

/// Before the name of a place in the figures of a trial; taken out again at the end.
const KILLED: &str = "killed: ";

/// Before what a control passed, in its figures; taken out again at the end.
pub const PASSED: &str = "passed: ";

/// Convicts names that stand for several lines of the source, and those under which several things
/// are done of which one is not tried by itself.
pub fn convict_names(tally: &mut Tally) {
    let keys = tally.figures.keys().filter_map(|key| key.strip_prefix(PASSED));
    let passed: Vec<String> = keys.map(str::to_owned).collect();
    tally.figures.retain(|key, _| !key.starts_with(PASSED));
    let deeds = passed.iter().filter_map(|told| told.split_once(' '));
    let deeds = deeds.filter(|(deed, _)| !STEPS.contains(&name_of(deed)));
    for story in told_apart(deeds, |deed| trials().any(|(place, _)| place == deed)) {
        tally.convict(Violation::new(Fault::Unnoticed, story));
    }
}

/// The name of a place, without what of it is switched off.
fn name_of(place: &str) -> &str {
    place.split(':').next().unwrap_or(place)
}

/// A place is killed if it was in each of its trials.
fn finish(tally: &mut Tally) {
    convict_names(tally);
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (site, _) in trials() {
        *expected.entry(site).or_default() += 1;
    }
    let mut killed = 0;
    let rounds = tally.figures.get("mutants").copied().unwrap_or(0) / trials().count() as u64;
    for (site, trials) in &expected {
        let seen = tally.figures.remove(&format!("{KILLED}{site}")).unwrap_or(0);
        killed += u64::from(seen == trials * rounds);
    }
    // Trials are more: some places are tried by several stories.
    tally.add("sites", expected.len() as u64);
    tally.add("sites killed", killed);
}

/// Compares the table with the names in the sources, where there are any.
pub fn sources(tally: &mut Tally) {
    let names = named();
    if names.is_empty() {
        tally.lines.push("no sources here: the list of places is that of the table".to_owned());
        return;
    }
    let mut convict = |story| tally.convict(Violation::new(Fault::Unnoticed, story));
    let known = known();
    for (name, step) in &names {
        if *step != STEPS.contains(&name.as_str()) {
            convict(format!("{name} is listed as a step only tests see, or should be"));
        } else if !step && !known.contains(name.as_str()) {
            convict(format!("{name} is named in the sources and has no killer"));
        }
    }
    for name in known.iter().chain(STEPS).filter(|name| !names.contains_key(**name)) {
        convict(format!("{name} is in the table of killers and not in the sources"));
    }
}

/// The names in the sources, if they are there.
fn named() -> BTreeMap<String, bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeMap::new();
    let crates = std::fs::read_dir(root.join(CRATES)).into_iter().flatten().flatten();
    for sources in crates.map(|found| found.path().join("src")).chain([root.join(ENGINE)]) {
        collect(&sources, &mut names);
    }
    names
}

/// Adds the names of all sites in the files of a folder and of those in it, and whether each is a
/// step, at which nothing is done.
fn collect(folder: &Path, names: &mut BTreeMap<String, bool>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, names);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let code = text.split("#[cfg(test)]").next().unwrap_or("");
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let constant = line.trim_start().strip_prefix("const ");
                let constant = constant.and_then(|rest| rest.split(':').next());
                let step = constant.is_some_and(|name| code.contains(&format!("step({name})")));
                let parts = line.split("Site::new(\"").skip(1);
                let named = parts.filter_map(|part| part.split('"').next());
                names.extend(named.map(|name| (name.to_owned(), step)));
            }
        }
    }
}
