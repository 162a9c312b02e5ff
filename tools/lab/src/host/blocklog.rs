//! A file on an ordinary file system, under load on a disk whose writes the emulator logs: a pool,
//! or a protected file that is mapped. Of the log, images are made: what the disk may hold if the
//! power goes at each flush, or between two of them. Each is mounted here, so that the file system
//! replays its journal, and its file judged.
//!
//! Not covered: orders that the emulator never had. It completes writes nearly in the order it gets
//! them. Disks that lie about a flush, and crashes while such an image is recovered.
//!
//! The scene must be able to fail. Before anything else, places at which the engine waits for the
//! disk are switched off, and flushes come too late; what is wrong with those images must be found.

mod crew;
mod disk;
mod judge;
mod log;
mod mounts;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_workloads::Rng;
use serde_json::json;

use super::files::Files;
use super::{Lab, Played, packages};
use crate::Cli;
use crate::guest::blocklog::{ASKED, DISK, LEN, SERIAL, SYSTEM_LEN};
use crate::guest::{ENDED, PORT};
use crate::scenes::{FileSystem, Load, Scene};
use crew::Crew;
use disk::Disk;
use log::Log;
use mounts::Room;
use walk::{Plan, Shown};

/// Package of the program that works and judges, and its name.
const PROGRAM: (&str, &str) = ("holdfast-campaign", "holdfast-campaign");
/// Threads of its that mark.
const THREADS: usize = 3;
/// The pool, or whatever file is judged, on the disk.
const POOL: &str = "pool";

/// What is needed besides.
const TOOLS: &[(&str, &str)] =
    &[("mkfs.xfs", "xfsprogs"), ("filefrag", "e2fsprogs"), ("mount", "mount")];

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
const SMOKE: u64 = 60;
/// Images judged at once.
const ABREAST: usize = 6;
/// How often it is told how far it has come.
const TOLD: Duration = Duration::from_secs(20);

/// What came of all images.
#[derive(Debug, Default)]
struct Count {
    flushes: u64,
    between: u64,
    violations: u64,
    /// The first of them.
    wrong: Option<String>,
    figures: BTreeMap<String, u64>,
    judging: Duration,
}

/// One file system.
struct Stage<'a> {
    lab: &'a Lab,
    scene: &'a Scene<'a>,
    load: Load,
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
    packages::need(TOOLS)?;
    let program = lab.program(PROGRAM)?;
    let all = [FileSystem::Ext4, FileSystem::Xfs];
    let asked = |system: &FileSystem| cli.fs.is_empty() || cli.fs.contains(system);
    let systems: Vec<FileSystem> = all.into_iter().filter(asked).collect();
    let images = if cli.smoke { SMOKE } else { cli.images };
    let mut count = Count::default();
    for (part, system) in (0..).zip(&systems) {
        let share = images / systems.len() as u64 + u64::from(part < images % systems.len() as u64);
        let room = |number| Room::new(*system, SYSTEM_LEN, &lab.room, number);
        let rooms = (0..ABREAST).map(room).collect::<Result<Vec<_>>>()?;
        rooms[0].probe()?;
        let stage = Stage { lab, scene, load, program: &program, system: *system, rooms };
        let mut rng = Rng::part(cli.seed, part);
        if let Some(wrong) = stage.play(share, &mut rng, &mut count)? {
            count.wrong.get_or_insert(format!("{system}: {wrong}"));
            break;
        }
    }
    Ok(count.played(cli, &systems))
}

impl Count {
    fn played(self, cli: &Cli, systems: &[FileSystem]) -> Played {
        let count = self.flushes + self.between;
        let rate = count as f64 / self.judging.as_secs_f64().max(0.001);
        println!(
            "  {} images at flushes, {} between; {rate:.1} a second; {} violations",
            self.flushes, self.between, self.violations
        );
        let mut figures = self.figures;
        figures.insert("images at flushes".to_owned(), self.flushes);
        figures.insert("images between flushes".to_owned(), self.between);
        let names: Vec<&str> = systems.iter().map(|system| system.name()).collect();
        let how = format!("seed {}, {}", cli.seed, names.join(" and "));
        Played { wrong: self.wrong, how, count, figures }
    }
}

impl Stage<'_> {
    /// What is wrong, if anything.
    fn play(&self, images: u64, rng: &mut Rng, count: &mut Count) -> Result<Option<String>> {
        for off in self.load.controls {
            let recorded = match self.record(rng, Some(off))? {
                Ok(recorded) => recorded,
                Err(wrong) => return Ok(Some(format!("{off} switched off: {wrong}"))),
            };
            let found = self.control(&recorded, 0, rng)?;
            if let Some(wrong) = self.tell(off, found) {
                return Ok(Some(wrong));
            }
        }
        let mut left = images;
        while left > 0 {
            let recorded = match self.record(rng, None)? {
                Ok(recorded) => recorded,
                Err(wrong) => return Ok(Some(wrong)),
            };
            if left == images {
                let found = self.control(&recorded, self.load.late, rng)?;
                if let Some(wrong) = self.tell("flushes that come late", found) {
                    return Ok(Some(wrong));
                }
            }
            println!(
                "  {}: a log of {} entries, {} flushes since the pool was made",
                self.system,
                recorded.log.entries.len(),
                plan(&recorded.log, &recorded.pool, 0).flushes()?
            );
            let mut share = left.min(MOST_OF_ONE);
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
    fn tell(&self, what: &str, found: Option<(u64, String)>) -> Option<String> {
        match found {
            Some((images, story)) => {
                let story: String = story.chars().take(100).collect();
                println!("  {}, {what}: found in image {images}: {story}", self.system);
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
            "seed": rng.next_u64() >> 1, "jobs": JOBS, "off": off,
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
    fn control(&self, of: &Recorded, late: usize, rng: &mut Rng) -> Result<Option<(u64, String)>> {
        let plan = Plan { late, ..plan(&of.log, &of.pool, CONTROL_IMAGES) };
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
        let drawn = if shown.is_empty() { images } else { 2 * images + MORE };
        let plan = plan(&of.log, &of.pool, drawn);
        let (seed, before) = (rng.next_u64(), shown.clone());
        let judged = count.flushes + count.between;
        let (started, mut told) = (Instant::now(), Instant::now());
        let mut wrong = Vec::new();
        let figures =
            self.crew(of).judge((&plan, images), Rng::new(seed), shown, &mut |verdict| {
                *if verdict.flushed { &mut count.flushes } else { &mut count.between } += 1;
                if let Some(story) = verdict.story {
                    println!("  {}: VIOLATION, {}: {story}", self.system, verdict.place);
                    wrong.push((verdict.number, story));
                }
                if told.elapsed() > TOLD {
                    told = Instant::now();
                    println!("  {}: {} images", self.system, verdict.number);
                }
                wrong.len() < ENOUGH
            })?;
        count.judging += started.elapsed();
        for (name, by) in figures {
            *count.figures.entry(name).or_default() += by;
        }
        for (number, story) in wrong {
            count.violations += 1;
            println!("  {}", self.keep(of, &plan, (seed, before.clone()), number)?);
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
    Plan { log, marks: SYSTEM_LEN, file, threads: THREADS, images, late: 0 }
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
