//! Lives of a file on persistent memory, each ended in the middle of something: the emulator is
//! killed while the file is opened or worked on, or the guest's kernel crashes.
//!
//! What a life says, it says to a file on the persistent memory, whose length and places are fixed
//! before, so that each byte is kept whose writing came back. The next life judges by it, and
//! repeats what is there to another file; from then on the first is not needed any more.
//!
//! In the end the truth about what the last life left is judged once more, and then lies about it,
//! each of which must be convicted.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use holdfast_workloads::Rng;
use serde_json::json;

use super::files::Files;
use super::machine::Ran;
use super::say::say;
use super::{CONTROLS, Lab, Played, TRIED};
use crate::guest::{CONSOLE, ENDED, STARTS};
use crate::scenes::{Lives, Place, Scene};

/// Package of the program that lives, and its name.
const PROGRAM: (&str, &str) = ("holdfast-campaign", "holdfast-campaign");

/// What the program says once it has repeated what is there.
const REPEATED: &str = "life: repeated";
/// What it says of anything that is wrong.
const VIOLATION: &str = "life: Violation";
/// What it says of a lie that was convicted.
const CONVICTED: &str = "life: convicted ";
/// How long the last one works before it is ended.
const LAST: Duration = Duration::from_secs(3);
/// What it must say there: on which medium.
const MEDIUM: &str = " on dax:";

/// How a life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The emulator is killed so long after the program was started.
    Early(Duration),
    /// The same, so long after the program began to work.
    Killed(Duration),
    /// The kernel crashes so long after that.
    Crashed(Duration),
}

impl End {
    fn any(rng: &mut Rng) -> Self {
        let within = |rng: &mut Rng, most| Duration::from_millis(rng.below(most));
        match rng.below(4) {
            0 => Self::Early(within(rng, 1500)),
            1 => Self::Crashed(within(rng, 2000)),
            _ => Self::Killed(within(rng, 2000)),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early(after) => write!(f, "killed {after:?} after its start"),
            Self::Killed(after) => write!(f, "killed {after:?} into its work"),
            Self::Crashed(after) => write!(f, "kernel crashed {after:?} into its work"),
        }
    }
}

/// What the lives came to.
#[derive(Debug, Default)]
struct Count {
    early: u64,
    killed: u64,
    crashed: u64,
    acknowledged: u64,
    /// Lies, and those that were convicted.
    told: u64,
    convicted: u64,
}

/// Runs so many lives and one more, which judges the last.
pub(super) fn play(
    lab: &Lab,
    (scene, lives): (&Scene<'_>, &Lives<'_>),
    (cuts, seed): (u64, u64),
) -> Result<Played> {
    let campaign = lives.campaign;
    let program = lab.program(PROGRAM)?;
    let files = lab.files(&program)?;
    // Which of two files has what the last life said that came to say all there is.
    let mut kept: usize = 0;
    let mut rng = Rng::part(seed, 0);
    let mut count = Count::default();
    let mut worked = false;
    for number in 0..=cuts {
        // The last one is there to judge.
        let last = number == cuts;
        let any = End::any(&mut rng);
        // Lies are told of what two lives said, at the least.
        let end = if last || number + 1 == cuts && !worked { End::Killed(LAST) } else { any };
        let life = Life { campaign, end, said: kept, seed: rng.next_u64() >> 1 };
        let ran = life.run(lab, scene, &files)?;
        if let Some(wrong) = judge(end, last, &ran, &mut count) {
            lab.show(&ran);
            let kept = "the parts of the machine are kept";
            let wrong = format!("life {number}, {end}: {wrong} ({kept})");
            return Ok(Played { wrong: Some(wrong), ..count.played(&again(campaign), seed) });
        }
        if ran.said.iter().any(|line| line.contains(REPEATED)) {
            kept = 1 - kept;
            worked = true;
        }
        say!("  life {number} of {cuts}: {end}");
    }
    if cuts > 0 {
        let (ran, wrong) = tell_lies(lab, scene, lives, (&files, kept))?;
        let convicted = ran.said.iter().filter(|line| line.contains(CONVICTED)).count();
        (count.told, count.convicted) = (lives.lies.len() as u64, convicted as u64);
        if wrong.is_some() {
            lab.show(&ran);
            return Ok(Played { wrong, ..count.played(&again(campaign), seed) });
        }
        for line in ran.said.iter().filter(|line| line.contains(CONVICTED)) {
            say!("  {}", line.trim_start_matches("life: "));
        }
    }
    let Count { early, killed, crashed, acknowledged, .. } = &count;
    say!(
        "  {early} killed before they worked, {killed} while they did, {crashed} crashes of the \
         kernel; {acknowledged} {}, 0 missed",
        again(campaign)
    );
    Ok(count.played(&again(campaign), seed))
}

/// One more start, in which lies are told of what the last life left: what came of it, and what is
/// wrong with that.
fn tell_lies(
    lab: &Lab,
    scene: &Scene<'_>,
    lives: &Lives<'_>,
    (files, kept): (&Files, usize),
) -> Result<(Ran, Option<String>)> {
    let folder = scene.on.folder();
    let [said, older] = [kept, 1 - kept].map(said);
    let orders = json!({
        "pool": format!("{folder}/pool"), "said": said, "older": older, "seed": 0,
        "crash": null, "lies": lives.lies,
    });
    let mut files = files.clone();
    files.scene(folder, CONSOLE, &[lives.campaign, "--life", &orders.to_string()]);
    let ran = lab.start(&files, scene.patience, &mut |_| None)?;
    let wrong = convicted(&ran, lives.lies);
    Ok((ran, wrong))
}

/// What is wrong with what came of lies: each must be convicted, and the truth not.
fn convicted(ran: &Ran, lies: &[&str]) -> Option<String> {
    let says = |part: &str| ran.said.iter().find(|line| line.contains(part));
    if let Some(line) = says(VIOLATION) {
        return Some(line.clone());
    }
    let missing = lies.iter().find(|lie| says(&format!("{CONVICTED}{lie}: ")).is_none());
    if let Some(lie) = missing {
        return Some(format!("no word of the lie `{lie}`"));
    }
    let ended = says(ENDED).is_some_and(|line| line.ends_with(&format!("{ENDED} 0")));
    (!ended).then(|| "the start in which lies are told did not come to its end".to_owned())
}

/// Which file a life spoke to.
fn said(file: usize) -> String {
    format!("{}/said-{file}", Place::Dax.folder())
}

/// A life, and how it is to end.
#[derive(Debug)]
struct Life<'a> {
    campaign: &'a str,
    end: End,
    /// Which of the two files it judges by; it speaks to the other.
    said: usize,
    seed: u64,
}

impl Life<'_> {
    fn run(&self, lab: &Lab, scene: &Scene<'_>, files: &Files) -> Result<Ran> {
        let mut files = files.clone();
        let folder = scene.on.folder();
        let [said, says] = [self.said, 1 - self.said].map(said);
        let crash = match self.end {
            End::Crashed(after) => after.as_millis().to_string(),
            _ => "null".to_owned(),
        };
        let seed = self.seed;
        let life =
            format!(r#"{{"pool":"{folder}/pool","said":"{said}","seed":{seed},"crash":{crash}}}"#);
        files.scene(folder, &says, &[self.campaign, "--life", &life]);
        lab.start(&files, scene.patience, &mut |line| match self.end {
            End::Early(after) if line.contains(STARTS) => Some(after),
            End::Killed(after) if line.contains(REPEATED) => Some(after),
            _ => None,
        })
    }
}

impl Count {
    fn played(&self, again: &str, seed: u64) -> Played {
        let figures = [
            ("killed before they worked", self.early),
            ("killed while they worked", self.killed),
            ("crashes of the kernel", self.crashed),
            (again, self.acknowledged),
            (TRIED, self.told),
            (CONTROLS, self.convicted),
        ];
        Played {
            wrong: None,
            how: format!("seed {seed}"),
            count: self.early + self.killed + self.crashed,
            figures: figures.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}

/// What is wrong with a life; else it is counted.
fn judge(end: End, last: bool, ran: &Ran, count: &mut Count) -> Option<String> {
    let says = |part: &str| ran.said.iter().find(|line| line.contains(part));
    if let Some(line) = says(VIOLATION).or_else(|| says(ENDED)) {
        return Some(line.clone());
    }
    let repeated = says(REPEATED);
    if repeated.is_some_and(|line| !line.contains(MEDIUM)) {
        return Some("the file is not on persistent memory mapped directly".to_owned());
    }
    let as_wished = match end {
        End::Early(_) => ran.late && says(STARTS).is_some(),
        End::Killed(_) => ran.late && repeated.is_some(),
        End::Crashed(_) => !ran.late && repeated.is_some() && says("sysrq").is_some(),
    };
    if !as_wished {
        return Some("it did not come to its end like that".to_owned());
    }
    count.acknowledged += repeated.map_or(0, |line| acknowledged(line));
    if !last {
        *match (end, repeated) {
            (End::Crashed(_), _) => &mut count.crashed,
            (_, None) => &mut count.early,
            _ => &mut count.killed,
        } += 1;
    }
    None
}

/// What is found again, in the list of what was run.
fn again(campaign: &str) -> String {
    let what = if campaign == "object" { "acknowledged transactions" } else { "stores" };
    format!("{what} found again")
}

/// How many transactions or stores of the life before were found again.
fn acknowledged(line: &str) -> u64 {
    let after = line.split(" acknowledged ").nth(1).unwrap_or_default();
    let digits = after.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "life: repeated on dax: 12 objects; transactions acknowledged 31, x 4";

    fn judged(end: End, late: bool, lines: &[&str]) -> (bool, Count) {
        let said = lines.iter().map(|&line| line.to_owned()).collect();
        let mut count = Count::default();
        let wrong = judge(end, false, &Ran { said, late }, &mut count);
        (wrong.is_none(), count)
    }

    #[test]
    fn a_life_that_was_ended_as_wished_is_counted() {
        let (fine, count) = judged(End::Killed(Duration::ZERO), true, &[STARTS, TOLD]);
        assert!(fine && (count.killed, count.acknowledged) == (1, 31));
        let (fine, count) = judged(End::Early(Duration::ZERO), true, &[STARTS]);
        assert!(fine && (count.early, count.killed) == (1, 0));
        let (fine, count) =
            judged(End::Crashed(Duration::ZERO), false, &[STARTS, TOLD, "sysrq: Trigger a crash"]);
        assert!(fine && count.crashed == 1);
    }

    #[test]
    fn a_violation_another_medium_and_another_end_are_wrong() {
        let end = End::Killed(Duration::ZERO);
        assert!(!judged(end, true, &[TOLD, "life: Violation { .. }"]).0);
        assert!(!judged(end, true, &[&TOLD.replace("dax", "file")]).0);
        assert!(!judged(end, false, &[TOLD]).0, "it went off by itself");
        assert!(!judged(end, true, &[STARTS]).0, "it never came to work");
        assert!(!judged(end, true, &[TOLD, "lab: ended 1"]).0);
        let crash = End::Crashed(Duration::ZERO);
        assert!(!judged(crash, true, &[TOLD, "sysrq: Trigger a crash"]).0, "it went on");
    }
    #[test]
    fn each_lie_must_be_convicted_and_the_truth_must_not() {
        let told = |lines: &[&str]| {
            let said = lines.iter().map(|&line| line.to_owned()).collect();
            convicted(&Ran { said, late: false }, &["one", "another"])
        };
        let fine = ["life: convicted one: gone", "life: convicted another: odd", "lab: ended 0"];
        assert_eq!(told(&fine), None);
        assert!(told(&fine[1..]).is_some() && told(&fine[..2]).is_some());
        assert!(told(&["life: Violation { .. }", fine[0], fine[1], fine[2]]).is_some());
        assert!(told(&[fine[0], fine[1], "lab: ended 1"]).is_some());
    }
}
