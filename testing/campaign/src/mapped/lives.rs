//! One life of a protected file between two ends of its machine: every store of the life before is
//! there, as it was made or not at all, and nothing of it is called damage. Then threads store by
//! address, and passes and scrubs go on, until the machine is gone.
//!
//! What is said goes to whoever ends the machine, and is heard by the next life: the whole file,
//! then each store before it is made, and each pass that was acknowledged.

mod lies;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdfast::protect::{
    ProtectOptions, ProtectedFile, ProtectedMap, SourceKind, Tracking, Unsure,
};
use holdfast_pmem::{Access, Mapped, Medium, Options, PAGE};
use holdfast_workloads::Rng;
use serde::Deserialize;

use super::hands::{Hands, MOST};
use super::judge::refused;
use super::ward::WORD;
use crate::object::lives::{REPEATED, crash_after};
use crate::tally::{Fault, Judged, Violation};

/// Pages of the file.
const PAGES: u64 = MOST;
/// Words of a page.
const WORDS: u64 = PAGE / WORD;
/// Threads that store, each to pages of its own.
const WORKERS: u64 = 3;
/// Of each four pages one is stored to by nobody.
const LEFT_ALONE: u64 = 4;
/// Bytes of what is said: a word and its value.
const FRAME: usize = 16;
/// Said instead of a word: the file follows; a pass begins; it was acknowledged.
const WHOLE: u64 = u64::MAX;
const PASS: u64 = u64::MAX - 1;
const COVERED: u64 = u64::MAX - 2;
/// Longest time between two passes, in milliseconds.
const PAUSE: u64 = 40;

/// What is to be done in this life.
#[derive(Debug, Clone, Deserialize)]
pub struct Life {
    /// The file; made if it is not there.
    pool: PathBuf,
    /// What the life before said.
    said: PathBuf,
    /// Of everything random.
    seed: u64,
    /// Milliseconds after which the kernel is told to crash.
    crash: Option<u64>,
    /// Instead of living: lies that are told of what is there, each to be convicted.
    #[serde(default)]
    lies: Vec<String>,
    /// What the life before the last one said.
    #[serde(default)]
    older: PathBuf,
}

/// Lives, until the machine is gone; comes back only if something is wrong.
#[must_use]
pub fn run(life: &str) -> ExitCode {
    let Ok(life) = serde_json::from_str::<Life>(life) else { return ExitCode::from(2) };
    if !life.lies.is_empty() {
        return lies::tell(&life.lies, &life.pool, (&life.said, &life.older));
    }
    let done = begin(&life).and_then(|(map, words)| work(&life, &map, &words));
    end(&done.err().unwrap_or_else(|| wrong("it came to an end")))
}

/// Says what is wrong, and ends, whatever other threads do: they would go on for ever.
fn end(violation: &Violation) -> ! {
    eprintln!("life: {violation:?}");
    std::process::exit(1)
}

/// Passes by hand only; what is stored to between two of them is on record in one life of two, so
/// that nothing is in doubt after it.
fn options(recorded: bool) -> ProtectOptions {
    let tracking = if recorded { Tracking::Recorded } else { Tracking::FirstStore };
    ProtectOptions::new().stripe(4, 1).period(Duration::from_secs(3600)).tracking(tracking)
}

/// Judges what is there, says it once more, and opens it.
fn begin(life: &Life) -> Judged<(ProtectedMap, Vec<u64>)> {
    let mut rng = Rng::part(life.seed, 0);
    let mut figures = (0, 0, 0);
    if life.pool.exists() {
        let heard = heard(&life.said)?;
        if let Some(heard) = &heard {
            figures = judge(&life.pool, heard)?;
        }
    } else {
        make(&life.pool, &mut rng)?;
    }
    let bytes = std::fs::read(&life.pool).map_err(|error| refused("the file", &error))?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let kind = kind(&life.pool)?;
    let map = ProtectedMap::open(&life.pool, &options(rng.below(2) == 0));
    let map = map.map_err(|error| refused("open", &error))?;
    map.pause();
    // What is in doubt is taken for right: it was compared with what was stored.
    map.accept().map_err(|error| refused("accept", &error))?;
    say(WHOLE, words.len() as u64)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes).and_then(|()| out.flush()).map_err(|error| refused("said", &error))?;
    drop(out);
    let (stores, doubtful, _) = figures;
    let recorded = map.tracking() == SourceKind::FirstStore;
    eprintln!(
        "{REPEATED} on {kind}: {PAGES} pages, stores noticed: {recorded}; stores acknowledged \
         {stores}, pages in doubt {doubtful}"
    );
    Ok((map, words))
}

/// What the file is on.
fn kind(path: &Path) -> Judged<String> {
    let options = Options { foreign: true, ..Options::default() };
    let mapped = Mapped::open(path, Access::ReadOnly, &options);
    Ok(mapped.map_err(|error| refused("mapping", &error))?.kind().to_string())
}

fn make(path: &Path, rng: &mut Rng) -> Judged<()> {
    let words = (0..PAGES * WORDS).map(|_| rng.next_u64());
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    // Under its name only once it is protected: the machine may end before.
    let part = path.with_extension("part");
    let options = options(true).side(holdfast::protect::side_path(path));
    let _ = std::fs::remove_file(holdfast::protect::side_path(path));
    let written = std::fs::write(&part, bytes).and_then(|()| File::open(&part)?.sync_all());
    written.and_then(|()| std::fs::rename(&part, path)).map_err(|e| refused("the file", &e))?;
    let made = ProtectedFile::protect(path, &options).and_then(ProtectedFile::close);
    made.map_err(|error| refused("protect", &error))
}

/// What the life before said.
#[derive(Debug, Default)]
struct Heard {
    /// What each word was, after the last store but those in `last`.
    words: Vec<u64>,
    /// Of each page, the store that was announced last: it may not have been made.
    last: BTreeMap<u64, (u64, u64)>,
    /// Pages stored to since the last acknowledged pass began, and whether that was before the one
    /// that is under way.
    open: BTreeMap<u64, bool>,
    /// Of each thread, the page it was about to store to.
    latest: BTreeMap<u64, u64>,
    stores: u64,
}

/// What the life before said; nothing if it did not come to say it all.
fn heard(path: &Path) -> Judged<Option<Heard>> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    let mut file = BufReader::new(file);
    let mut frame = [0; FRAME];
    let mut heard = Heard::default();
    while file.read_exact(&mut frame).is_ok() {
        let (words, _) = frame.as_chunks::<8>();
        let (word, value) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
        match word {
            // Behind what was said, in a file that has its length from the beginning.
            0 if value == 0 => break,
            WHOLE => {
                let mut bytes = vec![0; (PAGES * PAGE) as usize];
                if value != PAGES * WORDS || file.read_exact(&mut bytes).is_err() {
                    return Ok(None);
                }
                let words = bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b));
                heard = Heard { words: words.collect(), ..Heard::default() };
            }
            PASS => heard.begin_pass(),
            COVERED => heard.open.retain(|_, older| !*older),
            _ if word < heard.words.len() as u64 => heard.note(word, value),
            _ => return Err(wrong("what the last life said makes no sense")),
        }
    }
    Ok((!heard.words.is_empty()).then_some(heard))
}

/// What the file was when that life began.
fn whole(path: &Path) -> Judged<Vec<u8>> {
    let mut bytes = vec![0; FRAME + (PAGES * PAGE) as usize];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| refused("what the last life said", &error))?;
    Ok(bytes.split_off(FRAME))
}

impl Heard {
    /// What is stored from here on this pass may not cover; nor what was announced last by each
    /// thread, which may be made only now.
    fn begin_pass(&mut self) {
        for (page, older) in &mut self.open {
            *older = self.latest.get(&(page % LEFT_ALONE)) != Some(page);
        }
    }

    fn note(&mut self, word: u64, value: u64) {
        let page = word / WORDS;
        self.latest.insert(page % LEFT_ALONE, page);
        self.open.insert(page, false);
        // One thread stores to a page, and announces the next store when the last is made.
        if let Some((word, value)) = self.last.insert(page, (word, value)) {
            self.words[word as usize] = value;
            self.stores += 1;
        }
    }
}

/// Compares the file with what was stored, and what the engine says of it. How many stores were
/// found again, how many pages are in doubt, and how many pages were stored to.
fn judge(path: &Path, heard: &Heard) -> Judged<(u64, u64, u64)> {
    let bytes = std::fs::read(path).map_err(|error| refused("the file", &error))?;
    let found: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    if found.len() != heard.words.len() {
        return Err(wrong(format!("the file has {} bytes", bytes.len())));
    }
    for (word, (found, right)) in (0..).zip(found.iter().zip(&heard.words)) {
        let last = heard.last.get(&(word / WORDS));
        let under_way = last.is_some_and(|(other, value)| *other == word && value == found);
        if found != right && !under_way {
            let story = format!("word {word} is {found:#x}, and {right:#x} was stored");
            return Err(wrong(story));
        }
    }
    let file = ProtectedFile::open(path, &options(true));
    let file = file.map_err(|error| refused("opening what was left", &error))?;
    let verified = file.verify(|_, _| true).map_err(|error| refused("verify", &error))?;
    if let Some(page) = verified.corrupt.first() {
        let story = format!("page {page} is called damaged, and nothing damaged it");
        return Err(Violation::new(Fault::FalseReport, story));
    }
    for (page, why) in &verified.undecided {
        if !heard.open.contains_key(page) {
            let story = format!("page {page} was covered, not stored to, and is in doubt: {why:?}");
            return Err(wrong(story));
        }
        if matches!(why, Unsure::Media(_) | Unsure::MemoryFailed) {
            return Err(wrong(format!("page {page} is in doubt for what did not happen: {why:?}")));
        }
    }
    let closed = file.close();
    closed.map_err(|error| refused("closing what was looked at", &error))?;
    Ok((heard.stores, verified.undecided.len() as u64, heard.open.len() as u64))
}

/// Says one thing; it has been handed over whole when this comes back.
fn say(word: u64, value: u64) -> Judged<()> {
    static ONE: Mutex<()> = Mutex::new(());
    let mut frame = [0; FRAME];
    frame[..8].copy_from_slice(&word.to_le_bytes());
    frame[8..].copy_from_slice(&value.to_le_bytes());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = std::io::stdout().lock();
    out.write_all(&frame).and_then(|()| out.flush()).map_err(|error| refused("said", &error))
}

/// Threads store, passes cover, now and then all is looked at; until the machine is gone.
fn work(life: &Life, map: &ProtectedMap, words: &[u64]) -> Judged<()> {
    let hands = Hands::on(map.address().ok_or_else(|| wrong("nothing is mapped"))?);
    if let Some(after) = life.crash {
        crash_after(Duration::from_millis(after));
    }
    std::thread::scope(|scope| {
        for thread in 0..WORKERS {
            let mut rng = Rng::part(life.seed, 1 + thread);
            scope.spawn(move || end(&store(hands, words, thread, &mut rng)));
        }
        end(&cover(map, &mut Rng::part(life.seed, 99)))
    })
}

/// Passes and scrubs, until something is wrong.
fn cover(map: &ProtectedMap, rng: &mut Rng) -> Violation {
    loop {
        std::thread::sleep(Duration::from_millis(rng.below(PAUSE)));
        if let Err(violation) = cover_once(map, rng.below(8) == 0) {
            return violation;
        }
    }
}

fn cover_once(map: &ProtectedMap, scrub: bool) -> Judged<()> {
    say(PASS, 0)?;
    map.update_now().map_err(|error| refused("a pass", &error))?;
    say(COVERED, 0)?;
    if scrub {
        let done = map.scrub().map_err(|error| refused("scrub", &error))?;
        if done.repaired + done.lost > 0 || !done.report.corrupt.is_empty() {
            let story = format!("a scrub under load found {done:?}");
            return Err(Violation::new(Fault::FalseReport, story));
        }
    }
    Ok(())
}

/// Stores to pages of its own, and looks at what it stored, until something is wrong.
fn store(hands: Hands, words: &[u64], thread: u64, rng: &mut Rng) -> Violation {
    let mut stored = BTreeMap::new();
    loop {
        let page = rng.below(PAGES);
        if page % LEFT_ALONE != thread {
            continue;
        }
        let word = page * WORDS + rng.below(WORDS);
        let was = stored.get(&word).copied().unwrap_or(words[word as usize]);
        if hands.load(word) != was {
            return wrong(format!("word {word} is not what was stored"));
        }
        let value = rng.next_u64();
        if let Err(violation) = say(word, value) {
            return violation;
        }
        hands.store(word, value);
        stored.insert(word, value);
    }
}

fn wrong(story: impl Into<String>) -> Violation {
    Violation::new(Fault::Wrong, story)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(frames: &[(u64, u64)]) -> Heard {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("said");
        let mut bytes: Vec<u8> =
            [WHOLE, PAGES * WORDS].into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.resize(bytes.len() + (PAGES * PAGE) as usize, 0);
        for (word, value) in frames {
            bytes.extend([*word, *value].into_iter().flat_map(u64::to_le_bytes));
        }
        bytes.resize(bytes.len() + 64, 0);
        std::fs::write(&path, bytes).expect("written");
        heard(&path).expect("it makes sense").expect("all was said")
    }

    #[test]
    fn the_last_store_of_a_page_may_not_have_been_made() {
        let heard = hear(&[(5, 7), (6, 8), (WORDS + 1, 9)]);
        assert_eq!((heard.words[5], heard.words[6], heard.stores), (7, 0, 1));
        assert_eq!(heard.last[&0], (6, 8));
    }

    #[test]
    fn a_pass_covers_what_was_stored_before_it_began() {
        // Pages 0 and 4 are one thread's: the store to 4 may be made after the pass.
        let covered = [(5, 7), (4 * WORDS, 8), (PASS, 0), (WORDS, 9), (COVERED, 0)];
        let open: Vec<u64> = hear(&covered).open.into_keys().collect();
        assert_eq!(open, [1, 4]);
        let open: Vec<u64> = hear(&covered[..4]).open.into_keys().collect();
        assert_eq!(open, [0, 1, 4]);
    }
}
