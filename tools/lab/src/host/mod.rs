//! This machine's side: what the guest is made of, its starts for each scene, and the verdict.

mod apt;
mod archive;
mod blocklog;
mod files;
mod lives;
mod machine;
mod modules;
mod packages;
mod programs;
mod say;
mod sick;
mod test;
mod turns;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_evidence::{Begun, Row};

use crate::Cli;
use crate::scenes::{ALL, LEFT_OUT, Scene, Show, Test};
use files::Files;
use machine::{Ran, See, Start};
pub(crate) use packages::Impossible;
use packages::Kernel;
use say::say;
pub(crate) use turns::CameTo;
use turns::Deadline;

/// Seconds that any test may take, under emulation.
const LONGEST: u64 = 1800;

/// How many files live on a machine that fails, in a brief run.
const SMOKE_LIVES: u64 = 6;
/// Scenes of a brief run at once: each machine is emulated by one thread.
const MACHINES: usize = 2;

/// The figure of what was left out, done wrong or made up on purpose, and was noticed.
const CONTROLS: &str = "wrong variants convicted";
/// The figure of what was, whether it was noticed or not.
const TRIED: &str = "wrong variants";

/// What all scenes need.
#[derive(Debug, Clone)]
struct Lab {
    emulator: PathBuf,
    kernel: Kernel,
    /// Where the parts of a machine are kept; of each machine, if there are several at once.
    room: PathBuf,
    verbose: bool,
    /// What the source was before anything was built.
    begun: Begun,
    /// What cargo says of the workspace, if all of it was built at once.
    built: Option<Vec<u8>>,
    /// Why logs of writes cannot be replayed here, if so.
    no_logs: Option<NoLogs>,
    deadline: Deadline,
    /// Which of several machines at once this is.
    lane: usize,
}

/// Why logs of writes cannot be replayed.
#[derive(Debug, Clone)]
struct NoLogs {
    why: String,
    /// Nothing could be done about it here.
    impossible: bool,
}

impl NoLogs {
    fn of(error: &anyhow::Error) -> Self {
        Self { why: format!("{error:#}"), impossible: error.is::<Impossible>() }
    }

    /// What the scenes break off with, or are left out for.
    fn error(&self) -> anyhow::Error {
        match self.impossible {
            true => packages::impossible(self.why.clone()),
            false => anyhow::anyhow!("{}", self.why),
        }
    }
}

/// What came of a scene.
#[derive(Debug, Default)]
struct Played {
    /// What is wrong, if anything.
    wrong: Option<String>,
    how: String,
    count: u64,
    figures: BTreeMap<String, u64>,
}

/// Where the answers for programs go, if there are to be any: the standard output, which from then
/// on is the standard error for everybody else, also for the programs that are started.
#[derive(Debug)]
pub(crate) struct Answers(Option<fs::File>);

impl Answers {
    /// Takes the standard output, if it is wished.
    pub(crate) fn new(json: bool) -> std::io::Result<Self> {
        if !json {
            return Ok(Self(None));
        }
        let out = std::io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(std::io::stderr())?;
        Ok(Self(Some(out.into())))
    }

    fn print(&self, line: &str) -> Result<()> {
        let Some(mut out) = self.0.as_ref() else { return Ok(()) };
        writeln!(out, "{line}").context("cannot write to the standard output")
    }
}

/// Refuses names that no scene has, and fewer lives than a scene takes: none of it would be played.
pub(crate) fn known(cli: &Cli) -> Result<()> {
    let Cli { only, lives, smoke, test, .. } = cli;
    if let Some(name) = only.iter().find(|name| ALL.iter().all(|scene| scene.name != *name)) {
        let names: Vec<_> = ALL.iter().map(|scene| scene.name).collect();
        bail!("no scene {name}; the scenes are: {}", names.join(", "));
    }
    let plays = !smoke && test.is_none();
    for scene in ALL.iter().filter(|scene| plays && is_wished(cli, scene)) {
        if let Show::Sick(sick) = &scene.show {
            let fewest = sick.fewest();
            ensure!(*lives >= fewest, "--lives {lives}: scene {} takes {fewest}", scene.name);
        }
    }
    Ok(())
}

/// Whether a scene is to be played.
fn is_wished(cli: &Cli, scene: &Scene<'_>) -> bool {
    let left_out = cli.smoke && LEFT_OUT.contains(&scene.name);
    cli.only.is_empty() && !left_out || cli.only.iter().any(|name| name == scene.name)
}

/// Refuses what names no test of a package.
pub(crate) fn is_test(test: Option<&str>) -> Result<()> {
    let named = |test: &str| test.split_once(':').is_some();
    match test.filter(|test| !named(test)) {
        Some(test) => bail!("`{test}` names no test: say PACKAGE:TEST"),
        None => Ok(()),
    }
}

/// Runs the scenes that are wished. An error is one of what all of them need: no scene was played.
pub(crate) fn run(cli: &Cli, answers: &Answers) -> Result<CameTo> {
    let begun = Begun::now();
    if let Some(path) = &cli.ledger {
        holdfast_evidence::append(path, &[])?;
    }
    let own = std::env::current_exe().context("cannot find this program again")?;
    // Beside what cargo builds: `target/lab` for `target/release/lab`.
    let room = own.ancestors().nth(2).context("this program is not where cargo builds")?;
    let room = room.join("lab");
    fs::create_dir_all(&room).with_context(|| format!("cannot make {}", room.display()))?;
    packages::room(&room)?;
    packages::tools()?;
    let scenes = || ALL.iter().filter(|s| is_wished(cli, s)).filter(|_| cli.test.is_none());
    // Before the first scene, so that none is played in vain.
    let logs = scenes().any(|scene| matches!(scene.show, Show::BlockLog(_)));
    let no_logs = if logs { packages::need(blocklog::TOOLS).err() } else { None };
    let no_logs = no_logs.as_ref().map(NoLogs::of);
    let kernel = packages::kernel(&room)?;
    let emulator = packages::find("qemu-system-x86_64").context("no emulator")?;
    let all = cli.smoke && cli.only.is_empty();
    let built = if all { Some(programs::workspace()?) } else { None };
    // From here on: nothing of it is for what was fetched or built, once, on a machine that is new.
    let limit = Deadline::new(cli.smoke.then(|| Duration::from_secs(cli.within)));
    let (verbose, deadline) = (cli.verbose, limit.clone());
    let lab = Lab { emulator, kernel, room, verbose, begun, built, no_logs, deadline, lane: 0 };
    let Some(test) = &cli.test else {
        let jobs = cli.jobs.map_or(if cli.smoke { MACHINES } else { 1 }, usize::from);
        let labs = (0..jobs).map(|number| lab.beside(number)).collect::<Result<Vec<Lab>>>()?;
        let play = |number: usize, scene: &Scene<'_>| labs[number].play(scene, cli, answers);
        return Ok(turns::each(scenes(), &limit, jobs, &play));
    };
    let program = test.split_once(':').context("name a test as PACKAGE:TEST")?;
    let words: Vec<&str> = cli.words.iter().map(String::as_str).collect();
    let show = Test { program, arguments: &words, says: &[], never: &[], lesser: &[] };
    let (what, patience) = ("a test as it is", LONGEST);
    let scene = Scene { name: test, what, on: cli.on, patience, show: Show::Test(show) };
    let play = |_, scene: &Scene<'_>| lab.play(scene, cli, answers);
    Ok(turns::each(std::iter::once(&scene), &limit, 1, &play))
}

impl Lab {
    /// The same for the machine of this number, which has its parts for itself.
    fn beside(&self, number: usize) -> Result<Self> {
        let room = match number {
            0 => self.room.clone(),
            _ => self.room.join(format!("beside-{number}")),
        };
        fs::create_dir_all(&room).with_context(|| format!("cannot make {}", room.display()))?;
        Ok(Self { room, lane: number, ..self.clone() })
    }

    /// Runs one scene, and keeps what came of it; whether it passed.
    fn play(&self, scene: &Scene<'_>, cli: &Cli, answers: &Answers) -> Result<bool> {
        say!("\n==> {}: {} (at {})", scene.name, scene.what, self.deadline);
        let (commit, started) = (self.commit(), Instant::now());
        let played = self.run(scene, cli);
        let seconds = started.elapsed().as_secs();
        if let Ok(played) = &played {
            match &played.wrong {
                None => say!("lab: {} passed in {seconds} s", scene.name),
                Some(wrong) => say!("lab: {} FAILED in {seconds} s: {wrong}", scene.name),
            }
        }
        if let Some((row, findings)) = row(scene, how(scene, cli), &played, (commit, seconds)) {
            answers.print(&row.json(&findings))?;
            let noted =
                cli.ledger.as_ref().map_or(Ok(()), |p| holdfast_evidence::append(p, &[row]));
            match (noted, &played) {
                // What was wrong counts for more than that it could not be noted.
                (Err(error), Ok(Played { wrong: Some(_), .. }) | Err(_)) => {
                    say!("lab: not noted: {error:#}");
                }
                (noted, _) => noted?,
            }
        }
        Ok(played?.wrong.is_none())
    }

    /// Runs one scene.
    fn run(&self, scene: &Scene<'_>, cli: &Cli) -> Result<Played> {
        self.forget();
        match &scene.show {
            Show::Test(test) => test::play(self, scene, test),
            Show::Lives(lives) => {
                let cuts = if cli.smoke { lives.brief } else { cli.cuts };
                lives::play(self, (scene, lives), (cuts, cli.seed))
            }
            Show::Sick(sick) => {
                let lives = if cli.smoke { SMOKE_LIVES } else { cli.lives };
                sick::play(self, scene, sick, sick::Asked { lives, seed: cli.seed })
            }
            Show::BlockLog(load) => blocklog::play(self, scene, *load, cli),
        }
    }

    /// The source that a scene is of which begins now: its program is built by it, if not all was
    /// at once.
    fn commit(&self) -> String {
        if self.built.is_some() { self.begun.commit() } else { self.begun.commit_now() }
    }

    fn memory(&self) -> PathBuf {
        self.room.join("memory")
    }

    fn disk(&self) -> PathBuf {
        self.room.join("disk")
    }

    /// Each scene begins with memory and a disk that nobody has used.
    fn forget(&self) {
        for old in [self.memory(), self.disk()] {
            let _ = fs::remove_file(old);
        }
    }

    /// One start of the guest, with these files.
    fn start(&self, files: &Files, patience: u64, see: See<'_>) -> Result<Ran> {
        self.start_with(&[], files, patience, see)
    }

    /// The same, of a machine of which the emulator is told more.
    fn start_with(
        &self,
        more: &[String],
        files: &Files,
        patience: u64,
        see: See<'_>,
    ) -> Result<Ran> {
        let archive = self.room.join("archive");
        files.write(&archive)?;
        let start = Start {
            image: &self.kernel.image,
            archive: &archive,
            memory: &self.memory(),
            disk: &self.disk(),
            patience: self.deadline.left(Duration::from_secs(patience)),
            more,
        };
        let (ran, busy) = machine::run(&self.emulator, &start, &mut |line| {
            if self.verbose {
                say!("  | {line}");
            }
            see(line)
        })?;
        self.deadline.took(self.lane, busy);
        Ok(ran)
    }

    /// Shows what the guest said, if that has not been done.
    fn show(&self, ran: &Ran) {
        if !self.verbose {
            for line in &ran.said {
                say!("  | {line}");
            }
        }
    }

    /// Where a test program is, by package and name.
    fn test(&self, of: (&str, &str)) -> Result<PathBuf> {
        programs::test(self.built.as_deref(), of)
    }

    /// Where a program is, by package and name.
    fn program(&self, of: (&str, &str)) -> Result<PathBuf> {
        programs::program(self.built.as_deref(), of)
    }

    /// The files of a guest that starts this program.
    fn files(&self, program: &Path) -> Result<Files> {
        Files::new(program, &self.kernel.modules, &[], &[])
    }
}

/// What the campaigns say of a report of damage where there is none.
const ACCUSED: [&str; 2] = ["FalseReport", "nothing is damaged, and "];

/// How a scene is run, as it is told of one that comes to its end, which so can make up for one
/// that does not.
fn how(scene: &Scene<'_>, cli: &Cli) -> String {
    match scene.show {
        Show::Test(_) => String::new(),
        Show::Lives(_) | Show::Sick(_) => format!("seed {}", cli.seed),
        Show::BlockLog(load) => blocklog::how(cli.seed, &blocklog::asked(load, cli)),
    }
}

/// What the list of evidence keeps of a scene, and what is wrong with it. One that broke off has a
/// violation: its row would otherwise be missing, as if it had not been played. Nothing is kept
/// only of what cannot be played here.
fn row(
    scene: &Scene<'_>,
    how: String,
    played: &Result<Played>,
    (commit, seconds): (String, u64),
) -> Option<(Row, Vec<String>)> {
    let told;
    let played = match played {
        Ok(played) => played,
        Err(error) if error.is::<Impossible>() => return None,
        Err(error) => {
            let wrong = Some(format!("it broke off: {error:#}"));
            told = Played { wrong, how, ..Played::default() };
            &told
        }
    };
    // Those who judge files convict what is called damaged and is not; a test says what it says.
    let wrong = played.wrong.as_deref().unwrap_or_default();
    let is_accused = ACCUSED.iter().any(|accused| wrong.contains(accused));
    let row = Row {
        commit,
        method: format!("lab {}", scene.name),
        how: played.how.clone(),
        count: played.count,
        violations: u64::from(played.wrong.is_some()),
        false_reports: (!matches!(scene.show, Show::Test(_))).then_some(is_accused.into()),
        seconds,
        figures: played.figures.clone(),
        ..Row::default()
    };
    Some((row, played.wrong.iter().cloned().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(name: &str) -> &'static Scene<'static> {
        ALL.iter().find(|scene| scene.name == name).unwrap()
    }

    fn cli(words: &[&str]) -> Cli {
        use clap::Parser;
        Cli::parse_from(["lab", "--seed", "7"].iter().chain(words))
    }

    #[test]
    fn the_list_of_what_is_run_knows_how_much_of_each_scene_is_wrong_on_purpose() {
        let told = |scene: &Scene<'_>| {
            let there_are = match scene.show {
                Show::Test(test) => test::tried(&test),
                Show::Lives(lives) => lives.lies.len(),
                Show::Sick(sick) => sick.parts.iter().map(|part| part.controls.len()).sum(),
                Show::BlockLog(load) => blocklog::tried(load),
            };
            let known = holdfast_evidence::variants(&format!("lab {}", scene.name));
            (there_are as u64 != known).then(|| format!("{}: set LEAST to {there_are}", scene.name))
        };
        let wrong: Vec<String> = ALL.iter().filter_map(told).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn what_names_no_scene_or_has_nothing_of_one_played_is_misuse() {
        let refused = |words: &[&str]| known(&cli(words)).map_err(|error| error.to_string());
        refused(&[]).unwrap();
        refused(&["--only", "strays", "--lives", "40"]).unwrap();
        refused(&["--only", "cuts", "--lives", "1"]).unwrap();
        let few = refused(&["--only", "strays", "--lives", "1"]).unwrap_err();
        assert!(few.starts_with("--lives 1: scene strays takes "), "{few}");
        assert!(refused(&["--lives", "1"]).is_err(), "strays is one of all");
        let none = refused(&["--only", "nope"]).unwrap_err();
        assert!(none.starts_with("no scene nope; the scenes are: cuts, "), "{none}");
    }

    #[test]
    fn a_scene_that_broke_off_leaves_a_row_with_a_violation() {
        let row = |scene, played: &Result<Played>| {
            row(scene, how(scene, &cli(&[])), played, (String::new(), 3))
        };
        for (name, how) in [("cuts", "seed 7"), ("keys", "")] {
            let broken = Err(anyhow::anyhow!("cannot start the emulator"));
            let (row, findings) = row(scene(name), &broken).unwrap();
            assert_eq!((row.violations, row.count, row.seconds), (1, 0, 3));
            assert_eq!((row.method, row.how), (format!("lab {name}"), how.to_owned()));
            assert!(findings[0].contains("broke off: cannot start"), "{findings:?}");
        }
        let wrong = Ok(Played { wrong: Some("a word is missing".to_owned()), ..Played::default() });
        assert_eq!(row(scene("keys"), &wrong).unwrap().0.violations, 1);
        let accused = |wrong: &str| {
            let played = Ok(Played { wrong: Some(wrong.to_owned()), ..Played::default() });
            ["keys", "cuts"].map(|name| row(scene(name), &played).unwrap().0.false_reports)
        };
        assert_eq!(accused("the judge says: FalseReport: page 3"), [None, Some(1)]);
        assert_eq!(accused("nothing is damaged, and page 3 is named"), [None, Some(1)]);
        assert_eq!(accused("a word is lost"), [None, Some(0)]);
        let fine = Ok(Played { count: 4, ..Played::default() });
        let (passed, findings) = row(scene("keys"), &fine).unwrap();
        assert!(passed.is_clean() && passed.count == 4 && findings.is_empty());
        let none = Err(packages::impossible("no loop devices").context("of images"));
        assert!(row(scene("blocklog"), &none).is_none(), "nothing was played");
    }

    /// What the list says of a scene that broke off, and what it says then of one that did not.
    #[test]
    fn a_scene_that_broke_off_is_made_up_for_by_one_that_came_to_its_end() {
        let open = |scene: &Scene<'_>, words: &[&str], passed: &str| {
            let commit = |commit: &str| (commit.to_owned(), 3);
            let broken = Err(anyhow::anyhow!("the disk is full"));
            let (bad, _) = row(scene, how(scene, &cli(words)), &broken, commit("abc")).unwrap();
            let fine = Ok(Played { how: passed.to_owned(), count: 1, ..Played::default() });
            let (good, _) = row(scene, String::new(), &fine, commit("def")).unwrap();
            holdfast_evidence::open(&[bad, good]).len()
        };
        for scene in ALL {
            let passed = match scene.show {
                Show::Test(_) => "",
                Show::Lives(_) | Show::Sick(_) => "seed 8",
                Show::BlockLog(_) => "seed 8, ext4 and xfs",
            };
            assert_eq!(open(scene, &[], passed), 0, "{}", scene.name);
        }
        for name in ["blocklog", "blocklog-mapped"] {
            assert_eq!(open(scene(name), &["--fs", "xfs"], "seed 8, xfs"), 0);
            assert_eq!(open(scene(name), &["--fs", "xfs"], "seed 8, ext4"), 1, "another one");
            assert_eq!(open(scene(name), &[], "seed 8, ext4"), 1, "one of two");
        }
        assert_eq!(open(scene("blocklog-mapped"), &["--smoke"], "seed 8, ext4"), 0, "it has one");
    }
}
