//! A drill: pages are damaged on purpose and have to come back, on the user's own files and while
//! the program lives. What is tested is the whole way, so nothing of it is shortened here: the
//! damage is found by the scrub and undone by the repair that would meet rot.
//!
//! | step, everybody standing | death of the supervisor after it leaves |
//! |---|---|
//! | 1 pages are chosen whose damage is certain to be found and undone | nothing |
//! | 2 a copy of each is written beside the file | copies that nobody needs |
//! | 3 bytes of it are changed, the time of change put back | damage, the copy, sums, parity |
//! | 4 scrub and repair | the page |
//! | 5 it is compared; copies of pages that are back are removed | the page |
//!
//! A page that does not come back is put back from memory if nobody wrote to it since; its copy
//! stays beside, whatever becomes of it.

use std::cell::Cell;
use std::fs::{File, FileTimes, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_mapped::{Mapped, Scrubbed, Writers};
use holdfast_pmem::track::DirtySource;
use holdfast_pmem::{Medium, PAGE};

/// Pages looked at for each that is wanted.
const TRIES: u32 = 64;

/// What is done once a period to each guarded file that is not contested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drill {
    /// Pages damaged at a time, at most.
    pub pages: u32,
    /// What the choice of pages and bytes follows from.
    pub seed: u64,
}

/// What drills of one file came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drilled {
    /// Times the program was stopped for it.
    pub rounds: u64,
    /// Times it was not, since it was not certain that nobody else may write.
    pub put_off: u64,
    /// Pages damaged.
    pub pages: u64,
    /// Of those, pages that scrub and repair brought back.
    pub given_back: u64,
    /// Pages put back at once, and counted nowhere, since somebody came in between.
    pub called_off: u64,
    /// Copies of pages that were not brought back.
    pub kept: Vec<PathBuf>,
}

impl Drilled {
    /// Whether a page did not come back.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.given_back < self.pages
    }

    pub(crate) fn add(&mut self, round: Self) {
        self.rounds += round.rounds;
        self.put_off += round.put_off;
        self.pages += round.pages;
        self.given_back += round.given_back;
        self.called_off += round.called_off;
        self.kept.extend(round.kept);
    }
}

/// A file, as a drill needs it.
pub(crate) struct Ground<'a> {
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
    /// Whether copies are to outlive a power cut.
    pub(crate) durable: bool,
    /// Announces a write of ours that is over.
    pub(crate) announce: &'a dyn Fn(),
}

/// A page that was damaged.
struct Victim {
    number: u64,
    before: Vec<u8>,
    damaged: Vec<u8>,
    copy: PathBuf,
}

/// Remembers whether the repair was refused to go on.
struct Asked<'a> {
    writers: &'a dyn Writers,
    refused: Cell<bool>,
}

impl Writers for Asked<'_> {
    fn freeze(&self) -> bool {
        let done = self.writers.freeze();
        self.refused.set(self.refused.get() || !done);
        done
    }

    fn thaw(&self) {
        self.writers.thaw();
    }
}

/// One round: what it came to, and what went wrong. Everybody who may store has to stand until it
/// is over. `round` makes it another one than those before. Without `writers` nothing is repaired.
pub(crate) fn run<F: Medium, S: Medium, D: DirtySource>(
    engine: &Mapped<F, S, D>,
    ground: &Ground<'_>,
    (drill, round): (Drill, u64),
    writers: Option<&dyn Writers>,
) -> (Drilled, Vec<String>) {
    let mut done = Drilled { rounds: 1, ..Drilled::default() };
    let mut wrong = Vec::new();
    let times = match times(ground.file) {
        Ok(times) => times,
        Err(error) => return (done, vec![format!("drill: {error}")]),
    };
    let mut dice = Dice::new(drill.seed, round);
    let mut victims = Vec::new();
    while (victims.len() as u64) < u64::from(drill.pages) {
        match damage(engine, ground, &mut dice, &mut victims) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                wrong.push(format!("drill: {error}"));
                break;
            }
        }
    }
    // Rot changes no time. Without the right to, this one does.
    let _ = ground.file.set_times(times);
    (ground.announce)();
    let asked = writers.map(|writers| Asked { writers, refused: Cell::new(false) });
    for victim in &victims {
        let writers = asked.as_ref().map(|asked| asked as &dyn Writers);
        if let Err(error) = engine.scrub_page(victim.number, writers, &mut Scrubbed::default()) {
            wrong.push(error.to_string());
        }
        (ground.announce)();
    }
    let refused = asked.is_some_and(|asked| asked.refused.get());
    for victim in victims {
        if let Err(why) = compare(ground, &victim, refused, &mut done) {
            done.pages += 1;
            wrong.push(why);
            done.kept.push(victim.copy);
        }
    }
    // It is what it was, so it changed when it had changed.
    let _ = ground.file.set_times(times);
    (ground.announce)();
    (done, wrong)
}

fn times(file: &File) -> io::Result<FileTimes> {
    let found = file.metadata()?;
    Ok(FileTimes::new().set_accessed(found.accessed()?).set_modified(found.modified()?))
}

/// Damages one more page; false if none was found that may be.
fn damage<F: Medium, S: Medium, D: DirtySource>(
    engine: &Mapped<F, S, D>,
    ground: &Ground<'_>,
    dice: &mut Dice,
    victims: &mut Vec<Victim>,
) -> Result<bool, String> {
    for _ in 0..TRIES {
        let number = dice.below(engine.pages());
        // Those that are damaged already are certain no more, nor are those that would be too many.
        let Some(before) = engine.certain(number).map_err(|error| error.to_string())? else {
            continue;
        };
        let copy = beside(ground.path, number);
        match keep(&copy, &before, ground) {
            // From a drill that came to no end: perhaps it is the only one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            kept => kept.map_err(|error| format!("{}: {error}", copy.display()))?,
        }
        let damaged = dice.change(&before);
        let written = ground.file.write_all_at(&damaged, number * PAGE);
        victims.push(Victim { number, before, damaged, copy });
        return written.map(|()| true).map_err(|error| error.to_string());
    }
    Ok(false)
}

fn beside(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".drill-{number}"));
    PathBuf::from(name)
}

/// Who may not read the file may not read its pages: the owner alone, and no more than the file
/// lets it.
fn keep(copy: &Path, bytes: &[u8], ground: &Ground<'_>) -> io::Result<()> {
    let mode = ground.file.metadata()?.mode() & 0o600;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(copy)?;
    file.write_all(bytes)?;
    if ground.durable { file.sync_all() } else { Ok(()) }
}

/// Looks what became of a page. An error is a page that did not come back.
fn compare(
    ground: &Ground<'_>,
    victim: &Victim,
    refused: bool,
    done: &mut Drilled,
) -> Result<(), String> {
    let at = victim.number * PAGE;
    let mut now = vec![0; victim.before.len()];
    let read = ground.file.read_exact_at(&mut now, at);
    let name = format!("drill: page {}", victim.number);
    let copy = victim.copy.display();
    read.map_err(|error| format!("{name} cannot be read again: {error}; it is kept in {copy}"))?;
    if now == victim.before {
        done.pages += 1;
        done.given_back += 1;
        // One that stays hurts nobody.
        let _ = std::fs::remove_file(&victim.copy);
        return Ok(());
    }
    if now != victim.damaged {
        return Err(format!("{name} was not given back, and holds other bytes; kept in {copy}"));
    }
    let put = ground.file.write_all_at(&victim.before, at);
    (ground.announce)();
    put.map_err(|error| format!("{name} cannot be put back: {error}; it is kept in {copy}"))?;
    if refused {
        done.called_off += 1;
        let _ = std::fs::remove_file(&victim.copy);
        return Ok(());
    }
    Err(format!("{name} was not given back; it was put back from memory, and is kept in {copy}"))
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, round: u64) -> Self {
        let mut this = Self(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        this.next();
        this
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Other bytes: one bit, some bytes in a row, or all of them.
    fn change(&mut self, before: &[u8]) -> Vec<u8> {
        let mut bytes = before.to_vec();
        let len = bytes.len() as u64;
        let (from, run) = match self.below(3) {
            0 => (self.below(len), 0),
            1 => (self.below(len), 1 + self.below(64)),
            _ => (0, len),
        };
        let bit = 1 << self.below(8);
        for byte in bytes.iter_mut().skip(from as usize).take(run.max(1) as usize) {
            *byte ^= if run == 0 { bit } else { 1 + self.below(255) as u8 };
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_differs_and_follows_from_the_seed() {
        for round in 0..1000 {
            let before = vec![round as u8; 1 + round as usize % 4096];
            let damaged = Dice::new(3, round).change(&before);
            assert!(damaged != before && damaged.len() == before.len(), "{round}");
            assert_eq!(damaged, Dice::new(3, round).change(&before));
        }
        let few = (0..100).map(|round| Dice::new(3, round).below(10));
        assert_eq!(few.collect::<std::collections::BTreeSet<_>>().len(), 10);
        assert_eq!(Dice::new(0, 0).below(0), 0);
    }
}
