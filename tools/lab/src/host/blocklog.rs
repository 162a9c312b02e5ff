//! A file on an ordinary file system, under load on a disk whose writes the emulator logs: a pool,
//! or a protected file that is mapped. Of the log, images are made: what the disk may hold if the
//! power goes at each flush, or between two of them. Each is mounted here, so that the file system
//! replays its journal, and its file judged.
//!
//! Not covered: orders that the emulator never had. It completes writes nearly in the order it gets
//! them. Disks that lie about a flush, and crashes while such an image is recovered.
//!
//! Each flush of a log has its image, but in a brief run; what is asked for beyond that is of what
//! may arrive between two.
//!
//! The scene must be able to fail. Before anything else, places at which the engine waits for the
//! disk are switched off, flushes come too late, writes are lost, go astray or are changed on their
//! way, and marks come early; what is wrong with those images must be found.

mod crew;
mod disk;
mod judge;
mod log;
mod mounts;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_workloads::Rng;
use serde_json::json;

use super::files::Files;
use super::say::say;
use super::{CONTROLS, Lab, Played, TRIED, packages};
use crate::Cli;
use crate::guest::blocklog::{ASKED, DISK, LEN, SERIAL, SYSTEM_LEN};
use crate::guest::{ENDED, PORT};
use crate::scenes::{FileSystem, Load, Scene};
use crew::Crew;
use disk::Disk;
use log::Log;
use mounts::Room;
use walk::{Fault, Plan, Shown};

/// Package of the program that works and judges, and its name.
const PROGRAM: (&str, &str) = ("holdfast-campaign", "holdfast-campaign");
/// Threads of its that mark.
const THREADS: usize = 3;
/// The pool, or whatever file is judged, on the disk.
const POOL: &str = "pool";

/// What is needed besides.
pub(super) const TOOLS: &[(&str, &str)] =
    &[("mkfs.xfs", "xfsprogs"), ("filefrag", "e2fsprogs"), ("mount", "mount")];

/// What is wrong with a disk, or what is marked on it, that must be found in images of a log.
const FAULTS: [Fault; 4] = [Fault::Lost(7), Fault::Misplaced(7), Fault::Flipped(7), Fault::Early];

/// Images in which what is switched off must be found.
const CONTROL_IMAGES: u64 = 400;

/// Transactions of each thread between an opening of the pool and a closing; there are four.
const JOBS: u64 = 60;
/// Images of one log, in which there are some hundred flushes.
const MOST_OF_ONE: u64 = 2000;
/// Violations after which nothing more is looked at.
const ENOUGH: usize = 3;
/// A log gives nothing more where less than one of so many images was not seen yet.
const RARE: u64 = 8;
/// Images that are drawn, at least, if few are left to be judged.
const MORE: u64 = 100;
/// Images of a brief run.
const SMOKE: u64 = 40;
/// Images judged at once.
const ABREAST: usize = 6;
/// How often it is told how far it has come.
const TOLD: Duration = Duration::from_secs(20);

/// What came of all images.
#[derive(Debug, Default)]
struct Count {
    /// Flushes in the logs, of which each is to have an image if `every` one is asked for.
    due: u64,
    every: bool,
    flushes: u64,
    /// What was planted, by name, and what was found of it.
    planted: BTreeSet<String>,
    convicted: BTreeSet<String>,
    between: u64,
    violations: u64,
    /// The first of them.
    wrong: Option<String>,
    figures: BTreeMap<String, u64>,
    judging: Duration,
}

/// What is planted to be found.
struct Planted {
    /// Places that are switched off, one at a time.
    off: Vec<&'static str>,
    faults: Vec<Fault>,
}

/// One file system.
struct Stage<'a> {
    lab: &'a Lab,
    scene: &'a Scene<'a>,
    load: Load,
    planted: Planted,
    /// Transactions of each thread.
    jobs: u64,
    program: &'a Path,
    system: FileSystem,
    rooms: Vec<Room>,
}

/// What a guest left.
struct Recorded {
    log: Log,
    /// Blocks of the pool on the disk.
    pool: Vec<Range<u64>>,
    /// What its threads said.
    said: PathBuf,
}

/// Runs the controls and makes so many images, on each file system.
pub(super) fn play(lab: &Lab, scene: &Scene<'_>, load: Load, cli: &Cli) -> Result<Played> {
    if let Some(none) = &lab.no_logs {
        return Err(none.error());
    }
    let mut systems = mountable(lab, cli)?;
    if cli.smoke {
        systems.truncate(load.brief.systems);
    }
    let program = lab.program(PROGRAM)?;
    let images = if cli.smoke { SMOKE } else { cli.images };
    let mut count = Count { every: !cli.smoke, ..Count::default() };
    for (part, system) in (0..).zip(&systems) {
        let share = images / systems.len() as u64 + u64::from(part < images % systems.len() as u64);
        let rooms = (0..ABREAST).map(|number| room(lab, *system, number));
        let rooms = rooms.collect::<Result<Vec<_>>>()?;
        let planted = planted(load, cli.smoke.then_some((part as usize, systems.len())));
        let jobs = if cli.smoke { load.brief.jobs } else { JOBS };
        let system = *system;
        let stage = Stage { lab, scene, load, planted, jobs, program: &program, system, rooms };
        let mut rng = Rng::part(cli.seed, part);
        if let Some(wrong) = stage.play(share, &mut rng, &mut count)? {
            count.wrong.get_or_insert(format!("{system}: {wrong}"));
            break;
        }
    }
    Ok(count.played(cli, &systems))
}

/// What is switched off and what is wrong with the disk, on one file system: all of it, or in a
/// brief run a part, so that the file systems together have it all but some places.
fn planted(load: Load, brief: Option<(usize, usize)>) -> Planted {
    let faults = FAULTS.into_iter().chain([Fault::Late(load.late)]);
    let Some((part, of)) = brief else {
        return Planted { off: load.controls.to_vec(), faults: faults.collect() };
    };
    let off = load.controls.iter().copied().take(load.brief.controls).skip(part).take(1);
    let own = |(number, fault): (usize, Fault)| (number % of == part).then_some(fault);
    Planted { off: off.collect(), faults: faults.enumerate().filter_map(own).collect() }
}

/// How much is planted in all.
#[cfg(test)]
pub(super) fn tried(load: Load) -> usize {
    let Planted { off, faults } = planted(load, None);
    off.len() + faults.len()
}

fn room(lab: &Lab, system: FileSystem, number: usize) -> Result<Room> {
    // Scenes of other lanes are played beside this one, by the same process.
    Room::new(system, SYSTEM_LEN, &lab.room, (lab.lane, number))
}

/// The file systems asked for.
fn chosen(cli: &Cli) -> impl Iterator<Item = FileSystem> {
    let all = [FileSystem::Ext4, FileSystem::Xfs];
    all.into_iter().filter(|it| cli.fs.is_empty() || cli.fs.contains(it))
}

/// Those a run is of where images of all can be mounted: a brief one does with fewer.
pub(super) fn asked(load: Load, cli: &Cli) -> Vec<FileSystem> {
    chosen(cli).take(if cli.smoke { load.brief.systems } else { usize::MAX }).collect()
}

/// How it was run.
pub(super) fn how(seed: u64, systems: &[FileSystem]) -> String {
    let names: Vec<&str> = systems.iter().map(|system| system.name()).collect();
    format!("seed {seed}, {}", names.join(" and "))
}

/// The file systems asked for, of which images can be mounted here. A brief run does with one of
/// them, and says so; a run whose images are counted does not.
fn mountable(lab: &Lab, cli: &Cli) -> Result<Vec<FileSystem>> {
    let tried = chosen(cli).map(|system| {
        room(lab, system, 0)?.probe()?;
        Ok(system)
    });
    select(tried.collect(), cli.smoke)
}

/// Those that can be mounted; an error if there is none, or one that is needed cannot.
fn select(tried: Vec<Result<FileSystem>>, some_will_do: bool) -> Result<Vec<FileSystem>> {
    let mut able = Vec::new();
    let mut unable = Vec::new();
    for one in tried {
        match one {
            Ok(system) => able.push(system),
            Err(error) if error.is::<packages::Impossible>() => unable.push(error),
            Err(error) => return Err(error),
        }
    }
    if !some_will_do || able.is_empty() {
        return unable.into_iter().next().map_or(Ok(able), Err);
    }
    unable.iter().for_each(|error| say!("skipped: {error:#}"));
    Ok(able)
}

impl Count {
    fn played(self, cli: &Cli, systems: &[FileSystem]) -> Played {
        let count = self.flushes + self.between;
        let rate = count as f64 / self.judging.as_secs_f64().max(0.001);
        say!(
            "  {} images at flushes, {} between; {rate:.1} a second; {} violations",
            self.flushes,
            self.between,
            self.violations
        );
        let mut figures = self.figures;
        let missed = format!(
            "{} of {} flushes have no image",
            self.due - self.flushes.min(self.due),
            self.due
        );
        let missed = (self.every && self.due != self.flushes).then_some(missed);
        figures.insert("flushes".to_owned(), self.due);
        figures.insert("flushes replayed".to_owned(), self.flushes);
        figures.insert(TRIED.to_owned(), self.planted.len() as u64);
        figures.insert(CONTROLS.to_owned(), self.convicted.len() as u64);
        figures.insert("images between flushes".to_owned(), self.between);
        let how = how(cli.seed, systems);
        Played { wrong: self.wrong.or(missed), how, count, figures }
    }
}

impl Stage<'_> {
    /// What is wrong, if anything.
    fn play(&self, images: u64, rng: &mut Rng, count: &mut Count) -> Result<Option<String>> {
        // All of it is tried, so that one run shows all that would go unseen.
        let mut unfound = Vec::new();
        for off in &self.planted.off {
            let recorded = match self.record(rng, Some(off))? {
                Ok(recorded) => recorded,
                Err(wrong) => return Ok(Some(format!("{off} switched off: {wrong}"))),
            };
            let found = self.control(&recorded, None, rng)?;
            unfound.extend(self.tell(off, found, count));
        }
        let mut left = images;
        while left > 0 {
            let recorded = match self.record(rng, None)? {
                Ok(recorded) => recorded,
                Err(wrong) => return Ok(Some(wrong)),
            };
            if left == images {
                for fault in &self.planted.faults {
                    let found = self.control(&recorded, Some(*fault), rng)?;
                    unfound.extend(self.tell(&fault.to_string(), found, count));
                }
            }
            if !unfound.is_empty() {
                return Ok(Some(unfound.join("; ")));
            }
            let flushes = plan(&recorded.log, &recorded.pool, 0).flushes()?;
            let entries = recorded.log.entries.len();
            say!(
                "  {}: a log of {entries} entries, {flushes} flushes since the pool was made",
                self.system
            );
            count.due += flushes;
            let mut share = share_of(left, flushes, count.every);
            let mut shown = Shown::new();
            // Not all that are asked for can be had at once; the rest is drawn from the same log,
            // while there is enough in it that was not seen yet.
            loop {
                let judged = self.judge(&recorded, share, rng, (&mut shown, count))?;
                if count.violations > 0 {
                    return Ok(count.wrong.take());
                }
                (left, share) = (left.saturating_sub(judged), share.saturating_sub(judged));
                if share == 0 || judged <= share / RARE {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Tells whether a planted fault was found; what is wrong if it was not.
    fn tell(&self, what: &str, found: Option<(u64, String)>, count: &mut Count) -> Option<String> {
        count.planted.insert(what.to_owned());
        match found {
            Some((images, story)) => {
                count.convicted.insert(what.to_owned());
                let story: String = story.chars().take(100).collect();
                say!("  {}, {what}: found in image {images}: {story}", self.system);
                None
            }
            None => Some(format!("{what}: nothing was found, so nothing would be")),
        }
    }

    /// Has a guest work on a pool, to its end; or says how it did not come to that.
    fn record(&self, rng: &mut Rng, off: Option<&str>) -> Result<Result<Recorded, String>> {
        self.lab.forget();
        let disk = self.lab.room.join("logged-disk");
        let writes = self.lab.room.join("logged-writes");
        for (path, len) in [(&disk, LEN), (&writes, 0)] {
            let _ = fs::remove_file(path);
            let made = fs::File::create(path).and_then(|file| file.set_len(len));
            made.with_context(|| format!("cannot make {}", path.display()))?;
        }
        let (modules, tools): (&[&str], &[&str]) = match self.system {
            FileSystem::Ext4 => (&[], &[]),
            FileSystem::Xfs => (&["xfs"], &["mkfs.xfs"]),
        };
        let mut files = Files::new(self.program, &self.lab.kernel.modules, tools, modules)?;
        files.put(ASKED, self.system.name().as_bytes().to_vec());
        let folder = self.scene.on.folder();
        let orders = json!({
            "pool": format!("{folder}/{POOL}"), "disk": DISK, "marks": SYSTEM_LEN,
            "seed": rng.next_u64() >> 1, "jobs": self.jobs, "off": off,
        });
        files.scene(folder, PORT, &[self.load.campaign, "--logged", &orders.to_string()]);
        let port = self.lab.room.join("port");
        let more = emulated(&disk, &writes, &port);
        let ran = self.lab.start_with(&more, &files, self.scene.patience, &mut |_| None)?;
        let ended = ran.said.iter().find(|line| line.contains(ENDED));
        if ran.late || ended.is_none_or(|line| !line.ends_with(&format!("{ENDED} 0"))) {
            self.lab.show(&ran);
            return Ok(Err("the guest did not come to its end".to_owned()));
        }
        let said = self.lab.room.join("said");
        fs::rename(&port, &said).context("cannot keep what the pool's threads said")?;
        let log = Log::open(&writes, LEN)?;
        let end = plan(&log, &[], 0).end()?;
        self.rooms[0].put(&end, &Disk::default())?;
        match self.rooms[0].mount() {
            Err(error) => Ok(Err(format!("the disk cannot be mounted at the end: {error}"))),
            Ok(mounted) => Ok(Ok(Recorded { log, pool: mounted.blocks(POOL)?, said })),
        }
    }

    fn crew<'a>(&'a self, of: &'a Recorded) -> Crew<'a> {
        Crew {
            program: self.program,
            campaign: self.load.campaign,
            said: &of.said,
            pool: POOL,
            rooms: &self.rooms,
        }
    }

    /// The first image with a planted fault that a judge convicts, and why.
    fn control(
        &self,
        of: &Recorded,
        fault: Option<Fault>,
        rng: &mut Rng,
    ) -> Result<Option<(u64, String)>> {
        let plan = Plan { fault, ..plan(&of.log, &of.pool, CONTROL_IMAGES) };
        let mut found = None;
        let (rng, mut shown) = (Rng::new(rng.next_u64()), Shown::new());
        self.crew(of).judge((&plan, CONTROL_IMAGES), rng, &mut shown, &mut |verdict| {
            // A process that ended, or a file system that is broken, is not what is looked for.
            let sorts = ["Wrong: ", "Exposed: ", "Refused: "];
            let story = verdict.story.filter(|it| sorts.iter().any(|sort| it.starts_with(sort)));
            if let (Some(story), None) = (story, &found) {
                found = Some((verdict.number, story));
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Judges up to so many images that were not seen yet; how many.
    fn judge(
        &self,
        of: &Recorded,
        images: u64,
        rng: &mut Rng,
        (shown, count): (&mut Shown, &mut Count),
    ) -> Result<u64> {
        // What was seen already is met again, and not judged: more has to be drawn.
        let first = shown.is_empty();
        let drawn = if first { images } else { 2 * images + MORE };
        let plan = Plan { every: count.every && first, ..plan(&of.log, &of.pool, drawn) };
        let (seed, before) = (rng.next_u64(), shown.clone());
        let judged = count.flushes + count.between;
        let (started, mut told) = (Instant::now(), Instant::now());
        let mut wrong = Vec::new();
        let figures =
            self.crew(of).judge((&plan, images), Rng::new(seed), shown, &mut |verdict| {
                *if verdict.flushed { &mut count.flushes } else { &mut count.between } += 1;
                if let Some(story) = verdict.story {
                    say!("  {}: VIOLATION, {}: {story}", self.system, verdict.place);
                    wrong.push((verdict.number, story));
                }
                if told.elapsed() > TOLD {
                    told = Instant::now();
                    say!("  {}: {} images", self.system, verdict.number);
                }
                wrong.len() < ENOUGH
            })?;
        count.judging += started.elapsed();
        for (name, by) in figures {
            *count.figures.entry(name).or_default() += by;
        }
        for (number, story) in wrong {
            count.violations += 1;
            say!("  {}", self.keep(of, &plan, (seed, before.clone()), number)?);
            count.wrong.get_or_insert(story);
        }
        Ok(count.flushes + count.between - judged)
    }

    /// Makes an image once more, and keeps it with what it was judged by; where.
    fn keep(
        &self,
        of: &Recorded,
        plan: &Plan<'_>,
        (seed, mut shown): (u64, Shown),
        number: u64,
    ) -> Result<String> {
        let folder = self.lab.room.join(format!("violation-{}-{number}", self.system));
        fs::create_dir_all(&folder).with_context(|| format!("no {}", folder.display()))?;
        fs::copy(&of.said, folder.join("said")).context("cannot keep what was said")?;
        let mut left = number;
        plan.walk(Rng::new(seed), &mut shown, &mut |image| {
            left -= 1;
            if left == 0 {
                image.disk.save(&image.above, &folder.join("image"), SYSTEM_LEN)?;
                let asked =
                    json!({ "pool": POOL, "ended": image.marked.ended, "place": image.place });
                let kept = fs::write(folder.join("asked"), asked.to_string());
                kept.context("cannot keep what was asked")?;
            }
            Ok(left > 0)
        })?;
        Ok(format!("image {number} is kept in {}", folder.display()))
    }
}

fn plan<'a>(log: &'a Log, file: &'a [Range<u64>], images: u64) -> Plan<'a> {
    Plan { log, marks: SYSTEM_LEN, file, threads: THREADS, images, every: false, fault: None }
}

/// Images of one log, of those that are left to be made: where each flush is to have one, so many
/// more that some are of what arrives between two of them.
fn share_of(left: u64, flushes: u64, every: bool) -> u64 {
    let share = left.min(MOST_OF_ONE);
    if every { share.max(flushes + flushes / 3) } else { share }
}

/// What the emulator is told of the disk. A flush takes no time, so that what is under way when it
/// comes is behind it in the log. Zeros are written as what they are: the driver may mix up the
/// order of those it is told of by a command of their own. Requests are not put together: what
/// comes of that can have more parts than the driver can log, and is then lost in the log.
fn emulated(disk: &Path, writes: &Path, port: &Path) -> Vec<String> {
    let file = |name: &str, path: &Path| {
        format!("driver=file,node-name={name},filename={},cache.no-flush=on", path.display())
    };
    let device = format!(
        "virtio-blk-pci,drive=logged,serial={SERIAL},addr=0x10,logical_block_size=512,\
         physical_block_size=4096,discard=off,write-zeroes=off,request-merging=off"
    );
    [
        ("-blockdev", file("logged-disk", disk)),
        ("-blockdev", file("logged-writes", writes)),
        (
            "-blockdev",
            "driver=blklogwrites,node-name=logged,file=logged-disk,log=logged-writes".to_owned(),
        ),
        ("-device", device),
        ("-chardev", format!("file,id=port,path={}", port.display())),
        ("-device", "virtio-serial-pci".to_owned()),
        ("-device", "virtserialport,chardev=port".to_owned()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenes::Brief;

    fn played(every: bool, due: u64, flushes: u64) -> Option<String> {
        use clap::Parser;
        let count = Count { every, due, flushes, between: 5, ..Count::default() };
        let played = count.played(&Cli::parse_from(["lab"]), &[FileSystem::Ext4]);
        assert_eq!((played.figures["flushes"], played.figures["flushes replayed"]), (due, flushes));
        assert_eq!(played.how, "seed 1, ext4");
        played.wrong
    }

    #[test]
    fn a_flush_without_an_image_is_wrong_but_in_a_brief_run() {
        assert_eq!(played(true, 7, 7), None);
        assert!(played(true, 7, 6).is_some_and(|wrong| wrong.starts_with("1 of 7")));
        assert_eq!(played(false, 7, 2), None);
    }

    #[test]
    fn the_file_systems_of_a_brief_run_share_what_is_planted() {
        let brief = Brief { jobs: 9, controls: 2, systems: 2 };
        let load = Load { campaign: "object", controls: &["a", "b", "c"], late: 1, brief };
        let all = planted(load, None);
        assert_eq!((all.off.len(), all.faults.len()), (3, 5));
        let parts = [0, 1].map(|part| planted(load, Some((part, 2))));
        assert_eq!(parts.each_ref().map(|part| part.off.clone()), [["a"], ["b"]]);
        let faults = parts.iter().flat_map(|part| &part.faults);
        assert!(all.faults.iter().all(|fault| faults.clone().any(|other| other == fault)));
        assert_eq!(planted(load, Some((0, 1))).faults.len(), 5);
        let one = Load { brief: Brief { controls: 1, ..brief }, ..load };
        assert!(planted(one, Some((1, 2))).off.is_empty());
    }

    #[test]
    fn each_flush_has_room_and_some_is_left_for_what_is_between() {
        assert_eq!(share_of(500, 600, true), 800);
        assert_eq!(share_of(5000, 600, true), MOST_OF_ONE);
        assert_eq!(share_of(30, 600, false), 30);
    }

    #[test]
    fn a_file_system_that_cannot_be_mounted_is_left_out_only_where_that_may_be() {
        let no = || Err(packages::impossible("no loop devices"));
        let all = || vec![Ok(FileSystem::Ext4), no()];
        assert_eq!(select(all(), true).unwrap(), [FileSystem::Ext4]);
        assert!(select(all(), false).unwrap_err().is::<packages::Impossible>());
        assert!(select(vec![no(), no()], true).unwrap_err().is::<packages::Impossible>());
        let broken = vec![Ok(FileSystem::Ext4), Err(anyhow::anyhow!("the disk is full"))];
        assert!(!select(broken, true).unwrap_err().is::<packages::Impossible>());
    }
}
