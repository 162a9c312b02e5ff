//! Goes through a log of writes, and says at each flush what the disk may hold if the power goes.
//!
//! ```text
//!   .. writes .. | flush | marks | write, write, mark, write .. | flush | ..
//!    all durable ^       ^       ^                ^
//!                 the flush's own image           | one of the random ones: what came before the
//!                 is taken here                     flush, and of the writes since any subset
//! ```
//!
//! A write that is no mark may be there or not, or in part: by sectors where it is the file's that
//! is judged, by blocks of the file system elsewhere, which has no other law for its own. A mark is
//! taken down when its write was completed. What it says then binds, whatever becomes of it.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use holdfast_workloads::Rng;

use super::disk::{BLOCK, Disk};
use super::log::{Entry, Log, SECTOR};

/// The first word of a mark (`testing/campaign/src/object/marks.rs`).
const MAGIC: u64 = u64::from_le_bytes(*b"hf.marks");

/// Random images that may be made later, where there were not enough ways to make them.
const MOST_LEFT: f64 = 64.0;

/// What the marks said up to some place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Marked {
    /// The pool is there.
    pub(super) made: bool,
    /// Transactions of each thread that ended.
    pub(super) ended: Vec<u64>,
}

/// An image that may be found after a power cut.
#[derive(Debug)]
pub(super) struct Image<'a> {
    /// What is durable.
    pub(super) disk: &'a Disk,
    /// What arrived besides.
    pub(super) above: Disk,
    /// What binds.
    pub(super) marked: Marked,
    /// Where it was taken, for people.
    pub(super) place: String,
    /// It is a flush's own.
    pub(super) flushed: bool,
}

/// Is given each image; answers whether to go on.
pub(super) type See<'a> = &'a mut dyn FnMut(Image<'_>) -> Result<bool>;

/// Images that were shown in some walk through a log, by what is in them and what binds.
pub(super) type Shown = HashSet<u64>;

/// How a log is gone through.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) log: &'a Log,
    /// First byte of the marks, a block for each thread and one before; the file system ends here.
    pub(super) marks: u64,
    /// Blocks of the file that is judged, ascending.
    pub(super) file: &'a [Range<u64>],
    /// Threads that mark.
    pub(super) threads: usize,
    /// Images to be had in all.
    pub(super) images: u64,
    /// Each flush has its image, whatever is left for others.
    pub(super) every: bool,
    /// What is wrong with the disk, or with what is marked on it, if anything.
    pub(super) fault: Option<Fault>,
}

/// Something that is wrong, for a judge to convict. The file system is spared, so that it is seen
/// in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// What the file's writes bring comes too late, by so many flushes.
    Late(usize),
    /// One of the file's writes in so many is lost.
    Lost(u64),
    /// It goes to the block behind its own, if that is the file's too.
    Misplaced(u64),
    /// A bit of it is another one.
    Flipped(u64),
    /// One more has ended in each thread than its mark says.
    Early,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late(_) => f.write_str("flushes that come late"),
            Self::Lost(_) => f.write_str("writes that are lost"),
            Self::Misplaced(_) => f.write_str("writes that go astray"),
            Self::Flipped(_) => f.write_str("bits that flip on their way"),
            Self::Early => f.write_str("marks that come early"),
        }
    }
}

/// Where a walk is: before the next stretch of entries from one flush to another.
#[derive(Debug)]
struct Walk<'a> {
    plan: &'a Plan<'a>,
    disk: Disk,
    marked: Marked,
    rng: Rng,
    /// The chance of a flush to have an image, and random images for each flush.
    flushed: f64,
    random: f64,
    /// Random images that are due, in parts of a whole one.
    due: f64,
    /// Writes that the last flushes left out.
    late: VecDeque<Vec<usize>>,
    /// Writes of the file so far, once it was there.
    writes: u64,
    shown: &'a mut Shown,
}

impl Plan<'_> {
    /// Shows images in order until enough is seen; none that was shown before.
    pub(super) fn walk(&self, rng: Rng, shown: &mut Shown, see: See<'_>) -> Result<()> {
        let entries = &self.log.entries;
        // A flush that brings bytes of its own is one before them.
        let starts: Vec<usize> =
            (0..entries.len()).filter(|&number| entries[number].flush).collect();
        let judged = self.flushes()?.max(1) as f64;
        // Where there are too few for all flushes, and not all are asked for, half are at flushes.
        let images = self.images as f64;
        let least = if self.every { 0.0 } else { images / 2.0 };
        let random = (images - judged).max(least) / judged;
        let all = self.every || self.fault.is_some();
        let flushed = if all { 1.0 } else { (images - random * judged) / judged };
        let marked = Marked { made: false, ended: vec![0; self.threads] };
        let mut walk = Walk {
            plan: self,
            disk: Disk::default(),
            marked,
            rng,
            flushed,
            random,
            due: 0.0,
            late: VecDeque::new(),
            writes: 0,
            shown,
        };
        let mut from = 0;
        for (number, to) in starts.iter().copied().chain([entries.len()]).enumerate() {
            if !walk.stretch(number, from..to, see)? {
                return Ok(());
            }
            from = to;
        }
        Ok(())
    }

    /// How many flushes there are once the pool is there, that of the last write before the mark
    /// that says so among them: if the power goes then, that mark binds.
    pub(super) fn flushes(&self) -> Result<u64> {
        let (entries, first) = (&self.log.entries, self.first_mark()?);
        let ends = |at: usize| {
            let is_end = |&it: &usize| {
                let entry = &entries[it];
                it > at && entry.flush || entry.len > 0 && !self.is_mark(entry)
            };
            (at..entries.len()).find(is_end).unwrap_or(entries.len())
        };
        let flushes = (0..entries.len()).filter(|&at| entries[at].flush);
        Ok(flushes.filter(|&at| at > first || ends(at) > first).count() as u64)
    }

    /// The disk after everything that was written.
    pub(super) fn end(&self) -> Result<Disk> {
        let mut disk = Disk::default();
        for entry in &self.log.entries {
            if !self.is_mark(entry) && entry.len > 0 {
                disk.write(entry.at, &self.log.data(entry)?, |_| true);
            }
        }
        Ok(disk)
    }

    fn is_mark(&self, entry: &Entry) -> bool {
        // Who makes the file system writes behind that, too: to the end of the disk.
        let blocks = self.threads as u64 + 1;
        entry.len > 0 && (self.marks..self.marks + blocks * BLOCK).contains(&entry.at)
    }

    fn first_mark(&self) -> Result<usize> {
        let mut numbers = (0..self.log.entries.len()).filter(|&it| {
            let entry = &self.log.entries[it];
            self.is_mark(entry) && entry.at == self.marks
        });
        numbers.next().context("the log does not say when the pool was there")
    }

    fn is_of_file(&self, at: u64) -> bool {
        let block = at / BLOCK;
        let place = self.file.partition_point(|range| range.end <= block);
        self.file.get(place).is_some_and(|range| range.start <= block)
    }
}

impl Walk<'_> {
    /// One stretch, whose first entry is the flush that it follows; whether to go on.
    fn stretch(&mut self, number: usize, stretch: Range<usize>, see: See<'_>) -> Result<bool> {
        let entries = &self.plan.log.entries;
        let writes: Vec<usize> = stretch
            .clone()
            .filter(|&it| entries[it].len > 0 && !self.plan.is_mark(&entries[it]))
            .collect();
        let first = writes.first().copied().unwrap_or(stretch.end);
        let start = self.marked.clone();
        self.note(stretch.start..first)?;
        if self.marked.made && self.rng.chance(self.flushed) && self.is_new(number, "all") {
            let image = Image {
                disk: &self.disk,
                above: Disk::default(),
                marked: self.told(),
                place: format!("flush {number}, entry {}", stretch.start),
                flushed: true,
            };
            if !see(image)? {
                return Ok(false);
            }
        }
        let random = self.marked.made && self.plan.fault.is_none();
        if random && !self.random(number, &stretch, &writes, see)? {
            return Ok(false);
        }
        self.marked = start;
        self.note(stretch)?;
        // The fault is about the file's own blocks, so that the file system stays whole.
        let by = if let Some(Fault::Late(by)) = self.plan.fault { by } else { 0 };
        let is_late =
            |it: &usize| by > 0 && self.marked.made && self.plan.is_of_file(entries[*it].at);
        let (late, now): (Vec<usize>, Vec<usize>) = writes.into_iter().partition(is_late);
        self.late.push_back(late);
        let due = if self.late.len() > by { self.late.pop_front() } else { None };
        for it in due.into_iter().flatten().chain(now) {
            self.arrive(&entries[it])?;
        }
        Ok(true)
    }

    /// A write becomes durable, or what a fault leaves of it.
    fn arrive(&mut self, entry: &Entry) -> Result<()> {
        let (mut at, mut bytes) = (entry.at, self.plan.log.data(entry)?);
        if self.marked.made && self.plan.is_of_file(at) {
            self.writes += 1;
            let is_due = |each: u64| self.writes.is_multiple_of(each);
            match self.plan.fault {
                Some(Fault::Lost(each)) if is_due(each) => return Ok(()),
                Some(Fault::Misplaced(each)) if is_due(each) => {
                    let ends = self.plan.is_of_file(at + entry.len - 1 + BLOCK);
                    at += if ends { BLOCK } else { 0 };
                }
                Some(Fault::Flipped(each)) if is_due(each) => {
                    bytes.iter_mut().skip(100).take(1).for_each(|byte| *byte ^= 0x10);
                }
                _ => {}
            }
        }
        self.disk.write(at, &bytes, |_| true);
        Ok(())
    }

    /// What binds, as it is told to the judge.
    fn told(&self) -> Marked {
        let mut marked = self.marked.clone();
        if self.plan.fault == Some(Fault::Early) {
            marked.ended.iter_mut().for_each(|ended| *ended += 1);
        }
        marked
    }

    /// Random images between two flushes; whether to go on.
    fn random(
        &mut self,
        number: usize,
        stretch: &Range<usize>,
        writes: &[usize],
        see: See<'_>,
    ) -> Result<bool> {
        if writes.is_empty() {
            return Ok(true);
        }
        self.due += self.random;
        // Marks that a judge was told of cannot be taken back: later places come later.
        let mut places: Vec<usize> = Vec::new();
        while self.due >= 1.0 {
            self.due -= 1.0;
            places.push(self.rng.below(writes.len() as u64) as usize);
        }
        places.sort_unstable();
        let mut noted = writes[0];
        for last in places {
            let to = writes.get(last + 1).copied().unwrap_or(stretch.end);
            self.note(noted..to)?;
            noted = to;
            let (arrived, above) = self.any_of(&writes[..=last])?;
            if !self.is_new(number, &arrived) {
                self.due += 1.0;
                continue;
            }
            let place = format!("after flush {number}, up to entry {to}: {arrived}");
            let marked = self.marked.clone();
            if !see(Image { disk: &self.disk, above, marked, place, flushed: false })? {
                return Ok(false);
            }
        }
        // Where there are few ways, what is left goes to other flushes, but does not pile up.
        self.due = self.due.min(MOST_LEFT);
        Ok(true)
    }

    /// Whether an image was not shown before. One in which as much arrived, but more binds, is
    /// another one.
    fn is_new(&mut self, flush: usize, arrived: &str) -> bool {
        let mut hash = DefaultHasher::new();
        (flush, arrived, &self.marked).hash(&mut hash);
        self.shown.insert(hash.finish())
    }

    /// Takes down the marks among some entries.
    fn note(&mut self, entries: Range<usize>) -> Result<()> {
        for entry in &self.plan.log.entries[entries] {
            if !self.plan.is_mark(entry) {
                continue;
            }
            let bytes = self.plan.log.data(entry)?;
            for (block, bytes) in (0..).zip(bytes.chunks(BLOCK as usize)) {
                let (words, _) = bytes.as_chunks::<8>();
                let word = |at: usize| words.get(at).map(|word| u64::from_le_bytes(*word));
                let place = (entry.at - self.plan.marks) / BLOCK + block;
                let (Some(MAGIC), Some(who), Some(count)) = (word(0), word(1), word(2)) else {
                    anyhow::bail!("a mark without its magic word, in block {place}");
                };
                ensure!(who == place, "a mark of {who} in block {place}");
                match usize::try_from(place)?.checked_sub(1) {
                    None => self.marked.made = true,
                    Some(thread) => {
                        let ended = self.marked.ended.get_mut(thread);
                        let ended = ended.with_context(|| format!("a mark in block {place}"))?;
                        ensure!(count > *ended, "mark {count} of {who} after {ended}");
                        *ended = count;
                    }
                }
            }
        }
        Ok(())
    }

    /// Some of these writes, in their order, some of them torn; in words, and as they are.
    fn any_of(&mut self, writes: &[usize]) -> Result<(String, Disk)> {
        let entries = &self.plan.log.entries;
        let rng = &mut self.rng;
        let which = rng.below(6);
        let odds = [0.1, 0.5, 0.9][rng.below(3) as usize];
        let one = rng.below(writes.len() as u64) as usize;
        let mut words = Vec::new();
        let mut above = Disk::default();
        for (number, &write) in writes.iter().enumerate() {
            let entry = &entries[write];
            let chosen = match which {
                0 => number == one,
                1 => number != one,
                _ => rng.chance(odds),
            };
            // The last one of all, too, may be torn.
            let torn = rng.chance(0.3);
            if !chosen && !entry.durable {
                continue;
            }
            let unit = if self.plan.is_of_file(entry.at) { SECTOR } else { BLOCK };
            let units = entry.len.div_ceil(unit);
            let bytes = self.plan.log.data(entry)?;
            if entry.durable || !torn || units < 2 {
                above.write_over(&self.disk, entry.at, &bytes, |_| true);
                words.push(write.to_string());
                continue;
            }
            let ahead = rng.below(2) == 0;
            let cut = 1 + rng.below(units - 1);
            let arrived: Vec<bool> =
                (0..units).map(|unit| if ahead { unit < cut } else { rng.chance(0.5) }).collect();
            let sectors = unit / SECTOR;
            above.write_over(&self.disk, entry.at, &bytes, |sector| {
                arrived[(sector / sectors) as usize]
            });
            let units: String = arrived.iter().map(|it| if *it { '1' } else { '0' }).collect();
            words.push(format!("{write}/{units}"));
        }
        Ok((if words.is_empty() { "nothing".to_owned() } else { words.join(" ") }, above))
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::log;
    use super::*;

    const MARKS: u64 = 512 << 10;
    const FIRST: u64 = MARKS / SECTOR;
    const FLUSH: (u64, u64, u64, u8) = (0, 0, 1, 0);

    /// A log of these entries, in which those behind the file system are marks: with their count as
    /// the byte they are said to be filled with.
    fn marked(entries: &[(u64, u64, u64, u8)]) -> Log {
        let mut bytes = super::super::log::tests::written(entries);
        let mut at = 512;
        for (sector, sectors, _, count) in entries {
            if *sector >= FIRST {
                let who = (sector - FIRST) / 8;
                let words = [MAGIC, who, u64::from(*count)];
                let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                bytes[at + 512..at + 512 + words.len()].copy_from_slice(&words);
            }
            at += 512 + (sectors * SECTOR) as usize;
        }
        log(&bytes).unwrap()
    }

    fn images(log: &Log, images: u64, fault: Option<Fault>) -> Vec<(bool, Vec<u64>, Vec<u8>)> {
        // Blocks 2 to 4 are the file's.
        let file = [2..3, 3..5];
        let every = false;
        walked(&Plan { log, marks: MARKS, file: &file, threads: 2, images, every, fault })
    }

    fn walked(plan: &Plan<'_>) -> Vec<(bool, Vec<u64>, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut found = Vec::new();
        plan.walk(Rng::new(1), &mut Shown::new(), &mut |image| {
            image.disk.save(&image.above, &path, 4 * BLOCK).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let sectors = bytes.chunks(512).map(|sector| sector[0]).collect();
            found.push((image.flushed, image.marked.ended, sectors));
            Ok(true)
        })
        .unwrap();
        found
    }

    fn story() -> Log {
        marked(&[
            (0, 8, 0, 1),
            (FIRST, 8, 0, 1),
            FLUSH,
            (16, 16, 0, 2),
            (8, 8, 0, 3),
            FLUSH,
            (FIRST + 8, 8, 0, 1),
            (FIRST + 16, 8, 0, 4),
            (16, 1, 0, 5),
            (FIRST + 8, 8, 0, 2),
            FLUSH,
        ])
    }

    #[test]
    fn at_a_flush_all_before_it_is_there_and_marks_that_follow_bind() {
        let mut found = images(&story(), 4000, None);
        found.retain(|(flushed, ..)| *flushed);
        let ended: Vec<_> = found.iter().map(|(_, ended, _)| ended.clone()).collect();
        assert_eq!(ended, [[0, 0], [1, 4], [2, 4]]);
        let sector = |image: usize, sector: usize| found[image].2[sector];
        assert_eq!([sector(0, 0), sector(0, 16)], [1, 0]);
        assert_eq!([sector(1, 16), sector(1, 31), sector(1, 8)], [2, 2, 3]);
        assert_eq!([sector(2, 16), sector(2, 17)], [5, 2]);
    }

    #[test]
    fn between_flushes_anything_may_have_arrived_but_nothing_durable_is_gone() {
        let found = images(&story(), 4000, None);
        let random: Vec<_> = found.iter().filter(|(flushed, ..)| !flushed).collect();
        assert!(random.iter().all(|(_, _, sectors)| sectors[0] == 1), "what was flushed is there");
        let early: Vec<_> = random.iter().filter(|(_, ended, _)| ended == &[0, 0]).collect();
        // The file's blocks are torn by sectors, the others by blocks.
        assert!(early.iter().any(|(_, _, it)| it[16] != it[23]));
        assert!(early.iter().all(|(_, _, it)| it[8..16].iter().all(|sector| *sector == it[8])));
        let kinds: HashSet<_> = early.iter().map(|(_, _, it)| (it[8], it[16])).collect();
        assert_eq!(kinds.len(), 4);
        // The mark that follows a write binds, whether the write arrived or not.
        let late: HashSet<_> =
            random.iter().filter(|(_, it, _)| it == &[2, 4]).map(|(_, _, it)| it[16]).collect();
        assert_eq!(late, HashSet::from([2, 5]));
        // No image twice.
        let all: HashSet<_> = random.iter().map(|(_, ended, it)| (ended, it)).collect();
        assert_eq!(all.len(), random.len());
    }

    #[test]
    fn a_flush_that_comes_late_concerns_the_file_and_spares_the_rest() {
        let found = images(&story(), 100, Some(Fault::Late(1)));
        let (_, ended, sectors) = &found[1];
        assert_eq!((ended, sectors[16], sectors[8]), (&vec![1, 4], 0, 3));
        assert_eq!((found[2].2[16], found[2].2[31]), (2, 2));
    }

    #[test]
    fn other_faults_are_about_the_file_too_or_about_what_binds() {
        // At the second flush: the file's block 2 and 3 are written at once, block 1 is not its.
        let second = |fault| images(&story(), 100, Some(fault)).swap_remove(1);
        let (_, _, lost) = second(Fault::Lost(1));
        assert_eq!((lost[16], lost[31], lost[8]), (0, 0, 3));
        let (_, _, astray) = second(Fault::Misplaced(1));
        assert_eq!((astray[16], astray[24], astray[8]), (0, 2, 3));
        let (_, ended, early) = second(Fault::Early);
        assert_eq!((ended, early[16]), (vec![2, 5], 2));
        // Now and then, and not always.
        let third = images(&story(), 100, Some(Fault::Lost(2))).swap_remove(2).2;
        assert_eq!((third[16], third[17]), (2, 2));
        let log = story();
        let (fault, every) = (Some(Fault::Flipped(1)), false);
        let file = [2..3, 3..4];
        let plan =
            Plan { log: &log, marks: MARKS, file: &file, threads: 2, images: 9, every, fault };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut flipped = Vec::new();
        plan.walk(Rng::new(1), &mut Shown::new(), &mut |image| {
            image.disk.save(&image.above, &path, 4 * BLOCK).unwrap();
            flipped.push(std::fs::read(&path).unwrap()[2 * BLOCK as usize + 100]);
            Ok(true)
        })
        .unwrap();
        assert_eq!(flipped, [0, 2 ^ 0x10, 5 ^ 0x10]);
    }

    #[test]
    fn where_every_flush_is_asked_for_each_has_its_image_however_few_are_wanted() {
        let log = story();
        for images in [0, 1, 3, 500] {
            let (every, fault) = (true, None);
            let plan =
                Plan { log: &log, marks: MARKS, file: &[], threads: 2, images, every, fault };
            let flushed = walked(&plan).iter().filter(|(flushed, ..)| *flushed).count();
            assert_eq!((flushed as u64, plan.flushes().unwrap()), (3, 3), "of {images}");
            let few = Plan { every: false, ..plan };
            let flushed = walked(&few).iter().filter(|(flushed, ..)| *flushed).count();
            assert!(images > 2 || flushed < 3, "of {images}, not all have one: {flushed}");
        }
        // The mark comes after a write that follows the first flush: it does not bind there.
        let log = marked(&[FLUSH, (0, 8, 0, 1), (FIRST, 8, 0, 1), FLUSH, FLUSH]);
        let (every, fault) = (true, None);
        let plan = Plan { log: &log, marks: MARKS, file: &[], threads: 2, images: 0, every, fault };
        assert_eq!((plan.flushes().unwrap(), walked(&plan).len()), (2, 2));
        // With no write between them it does.
        let log = marked(&[(0, 8, 0, 1), FLUSH, (FIRST, 8, 0, 1), FLUSH]);
        let plan = Plan { log: &log, ..plan };
        assert_eq!((plan.flushes().unwrap(), walked(&plan).len()), (2, 2));
    }

    #[test]
    fn marks_that_make_no_sense_are_told() {
        for wrong in [(FIRST + 8, 8, 0, 0), (FIRST + 8, 16, 0, 1)] {
            let log = marked(&[(FIRST, 8, 0, 1), wrong, FLUSH]);
            let plan = Plan {
                log: &log,
                marks: MARKS,
                file: &[],
                threads: 2,
                images: 0,
                every: false,
                fault: None,
            };
            assert!(
                plan.walk(Rng::new(1), &mut Shown::new(), &mut |_| Ok(true)).is_err(),
                "{wrong:?}"
            );
        }
        let log = marked(&[FLUSH]);
        let plan = Plan {
            log: &log,
            marks: MARKS,
            file: &[],
            threads: 2,
            images: 0,
            every: false,
            fault: None,
        };
        assert!(plan.flushes().is_err(), "the pool was never there");
    }
}
