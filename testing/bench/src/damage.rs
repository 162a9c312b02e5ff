//! The same damage to a pool of libpmemobj and to one of ours, and what a program then gets.
//!
//! Both pools hold the same objects, found by a table of pointers that lies in the pool. Half of
//! the objects were overwritten, so that there is an older state of each page. In each round a
//! seed chooses damage: a bit, a stray write of up to 2 MiB, a page of zeros, a page as it was
//! before, a page that was meant for another place. It is done to both files at rest, at the same
//! place. Each is then opened as its manual says, theirs after asking its own check, and all
//! objects are read. Then both files are made whole again.
//!
//! Counted are bytes of objects that are read and are not what was stored (*wrong*), bytes that
//! the store does not give, and says so (*refused*), and for theirs how often the program itself
//! ended, and what was not read for that. One damage at a time is within what one row of parity
//! promises, so of ours nothing may be wrong, and nothing be refused; that is the goal. Of a page
//! that comes back as it once was that counts once it was scrubbed, and what was read wrong before
//! is told beside it: with whole objects on it, and all that certifies them, it is an earlier state
//! until a scrub compares it with parity. Theirs promises nothing of the sort: sums of what a
//! program stores are not among its features. What comes out is what it is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use holdfast_evidence::{Row, append};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{OpenOptions, Pool, ScrubControl, ScrubOptions};
use holdfast_pmem::{Access, Mapped, PAGE, SystemClock};
use holdfast_txn::Transaction;
use holdfast_workloads::rng::Rng;

use crate::Options;
use crate::foreign::pmemobj::{Ending, Peer, Resting, Shim};
use crate::object::{MODES, Mode, options};
use crate::report::{Limit, Report};
use crate::say::say;

/// What the list of what was run calls it, of all benchmarks.
const NAME: &str = "damage";
/// Bytes of a pool.
const SIZE: u64 = 64 << 20;
/// Bytes of an object, and how many there are.
const LEN: u64 = 1024;
const COUNT: u64 = 32 << 10;
/// Longest stray write: the frame of our pool.
const STRAY_BITS: u64 = 21;
/// Rounds, unless told otherwise.
const ROUNDS: u64 = 1000;
const QUICK: u64 = 50;

/// What is done to a file: `len` bytes at `at` become others.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip { bit: u8 },
    Stray { seed: u64, len: u64 },
    Zeros,
    Stale,
    Misdirected { from: u64 },
}

/// Names of the sorts, in the order they are drawn.
const SORTS: [&str; 5] = ["flip", "stray", "zeros", "stale", "misdirected"];

/// Damage of one round and its place, as far into the pool as into the other's.
fn draw(rng: &mut Rng) -> (usize, u64, Damage) {
    let at = rng.below(SIZE);
    let sort = rng.below(SORTS.len() as u64) as usize;
    let damage = match sort {
        0 => Damage::Flip { bit: rng.below(8) as u8 },
        1 => {
            let longest = 1 << rng.below(STRAY_BITS + 1);
            Damage::Stray { seed: rng.next_u64(), len: 1 + rng.below(longest) }
        }
        2 => Damage::Zeros,
        3 => Damage::Stale,
        _ => Damage::Misdirected { from: rng.below(SIZE / PAGE) * PAGE },
    };
    (sort, at, damage)
}

/// A pool's file as it was at two times, to be damaged again and again.
struct Specimen {
    path: PathBuf,
    before: Vec<u8>,
    whole: Vec<u8>,
}

impl Specimen {
    /// Writes the file with this damage in it. Whether anything differs from before.
    fn damage(&self, at: u64, damage: Damage) -> anyhow::Result<bool> {
        let page = at / PAGE * PAGE;
        let of = |bytes: &[u8], from: u64| bytes[from as usize..][..PAGE as usize].to_vec();
        let (at, bytes) = match damage {
            Damage::Flip { bit } => (at, vec![self.whole[at as usize] ^ (1 << bit)]),
            Damage::Stray { seed, len } => {
                let mut bytes = vec![0; len.min(SIZE - at) as usize];
                Rng::new(seed).fill(&mut bytes);
                (at, bytes)
            }
            Damage::Zeros => (page, vec![0; PAGE as usize]),
            Damage::Stale => (page, of(&self.before, page)),
            Damage::Misdirected { from } => (page, of(&self.whole, from)),
        };
        let file = File::options().write(true).open(&self.path)?;
        file.write_all_at(&self.whole, 0)?;
        file.write_all_at(&bytes, at)?;
        Ok(self.whole[at as usize..][..bytes.len()] != bytes)
    }
}

/// What a program got after one damage.
#[derive(Debug, Clone, Copy, Default)]
struct Got {
    wrong: u64,
    refused: u64,
    /// Bytes that nobody came to: the program had ended.
    unread: u64,
    /// The whole pool was refused.
    closed: bool,
    died: bool,
    hung: bool,
}

impl Got {
    /// Of nothing but a refusal, or worse.
    fn none() -> Self {
        Self { refused: COUNT * LEN, ..Self::default() }
    }

    /// Takes one object: its bytes, if they were given.
    fn take(&mut self, object: u64, bytes: Option<&[u8]>) {
        match bytes {
            None => self.refused += LEN,
            Some(bytes) => {
                let right = content(object, 1);
                self.wrong += right.iter().zip(bytes).filter(|(a, b)| a != b).count() as u64;
            }
        }
    }
}

/// All rounds of one side.
#[derive(Debug, Default)]
struct Sum {
    wrong: u64,
    refused: u64,
    unread: u64,
    /// Rounds in which something was wrong.
    silent: u64,
    /// Rounds in which something was wrong, or not given.
    failed: u64,
    /// Of ours, those in which something was wrong before it was scrubbed.
    unscrubbed: u64,
    closed: u64,
    died: u64,
    hung: u64,
    /// Wrong bytes of each sort of damage.
    sorts: [u64; SORTS.len()],
}

impl Sum {
    fn add(&mut self, sort: usize, got: Got) {
        self.wrong += got.wrong;
        self.refused += got.refused;
        self.unread += got.unread;
        self.silent += u64::from(got.wrong > 0);
        self.failed += u64::from(got.wrong + got.refused + got.unread > 0);
        self.closed += u64::from(got.closed);
        self.died += u64::from(got.died);
        self.hung += u64::from(got.hung);
        self.sorts[sort] += got.wrong;
    }

    /// What is counted of either side.
    fn figures(&self) -> [(&'static str, u64); 4] {
        [
            ("wrong bytes read", self.wrong),
            ("damages with wrong bytes read", self.silent),
            ("bytes refused by the store", self.refused),
            ("pools refused", self.closed),
        ]
    }

    /// What is counted of who is read in a process of its own.
    fn endings(&self) -> [(&'static str, u64); 3] {
        [
            ("programs ended by a signal", self.died),
            ("programs that did not end", self.hung),
            ("bytes not read after such an end", self.unread),
        ]
    }
}

/// The bytes of an object: half of them are overwritten once.
fn content(object: u64, time: u64) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    let later = if object.is_multiple_of(2) { time } else { 0 };
    Rng::new(2 * object + later + 1).fill(&mut bytes);
    bytes
}

/// Shows it; see the top of the file.
pub(crate) fn damage(o: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rounds = o.rounds.unwrap_or(if o.quick { QUICK } else { ROUNDS });
    say!("-- the same damage to both, {rounds} times, {COUNT} objects of {LEN} bytes");
    let start = Instant::now();
    let ours = Ours::make(&o.dir, MODES[3])?;
    let mut theirs = o.shim.map(|shim| Theirs::make(shim, &o.dir)).transpose()?;
    let (mut of_ours, mut of_theirs) = (Sum::default(), Sum::default());
    let (mut rng, mut done) = (Rng::new(o.seed), [0; SORTS.len()]);
    for round in 0..rounds {
        let (sort, at, kind) = draw(&mut rng);
        done[sort] += 1;
        let got = ours.round(at, kind)?;
        if got.wrong + got.refused > 0 {
            say!("damage: round {round} of seed {}, {kind:?} at {at:#x}: {got:?}", o.seed);
        }
        // A pool that cannot be opened cannot be scrubbed.
        let scrub = got.wrong + got.refused > 0 && !got.closed;
        let settled = if scrub { ours.scrubbed()? } else { got };
        // Of what has been so, nothing but a scrub can tell.
        let settled = match kind {
            Damage::Stale => settled,
            _ => Got { wrong: got.wrong, refused: settled.refused.max(got.refused), ..settled },
        };
        of_ours.unscrubbed += u64::from(got.wrong > 0);
        of_ours.add(sort, settled);
        if let Some(theirs) = &mut theirs {
            of_theirs.add(sort, theirs.round(at, kind)?);
        }
    }
    tell(report, "full", &of_ours.figures());
    report.count("damage: with wrong bytes read before a scrub, full", "", of_ours.unscrubbed);
    if theirs.is_some() {
        tell(report, "libpmemobj", &of_theirs.figures());
        tell(report, "libpmemobj", &of_theirs.endings());
        for (sort, wrong) in SORTS.iter().zip(of_theirs.sorts) {
            report.count(&format!("damage: wrong bytes of {sort}, libpmemobj"), "bytes", wrong);
        }
    } else {
        say!("damage: without libpmemobj only our side was run");
    }
    let missed = of_ours.wrong + of_ours.refused + of_ours.closed;
    report.goal("damage_served_wrong_or_refused", missed as f64, Limit::AtMost(0.0));
    let theirs = theirs.is_some().then_some(&of_theirs);
    note(o, (rounds, start.elapsed().as_secs()), (&of_ours, theirs), &done)
}

/// Adds a row to the list of what was run, if that is wished.
fn note(
    o: &Options,
    (rounds, seconds): (u64, u64),
    (of_ours, theirs): (&Sum, Option<&Sum>),
    done: &[u64; SORTS.len()],
) -> anyhow::Result<()> {
    if let (Some(path), Some(begun)) = (&o.ledger, &o.begun) {
        let named = |whose: &str, figures: &[(&str, u64)]| {
            let name = |(what, count): &(&str, u64)| (format!("{whose}: {what}"), *count);
            figures.iter().map(name).collect::<Vec<_>>()
        };
        let mut all = named("ours", &of_ours.figures());
        all.push(("ours: with wrong bytes read before a scrub".to_owned(), of_ours.unscrubbed));
        if let Some(of_theirs) = theirs {
            all.extend(named("libpmemobj", &of_theirs.figures()));
            all.extend(named("libpmemobj", &of_theirs.endings()));
        }
        all.extend(SORTS.iter().zip(done).map(|(sort, count)| (format!("damage: {sort}"), *count)));
        let row = Row {
            commit: begun.commit(),
            // Without the other side it is another thing, and no goal counts it.
            method: format!("bench {NAME}{}", if theirs.is_some() { "" } else { " alone" }),
            how: format!("seed {}{}", o.seed, theirs.map_or_else(String::new, |_| of_theirs_is())),
            count: rounds,
            violations: of_ours.failed,
            seconds,
            figures: all.into_iter().collect(),
            ..Row::default()
        };
        append(path, &[row])?;
    }
    Ok(())
}

/// Which library it is, as its package says.
fn of_theirs_is() -> String {
    let names = crate::foreign::fetch::versions().unwrap_or_default();
    let version =
        |name: &String| Some(name.strip_prefix("libpmemobj1_")?.split('_').next()?.into());
    let version: String = names.iter().find_map(version).unwrap_or_else(|| "unknown".to_owned());
    format!(", peer libpmemobj {version}")
}

fn tell(report: &mut Report, whose: &str, figures: &[(&str, u64)]) {
    for (what, count) in figures {
        report.count(&format!("damage: {what}, {whose}"), "", *count);
    }
}

/// Our side: a pool with parity and sums, all protections as they are by default.
struct Ours {
    specimen: Specimen,
    table: RawPtr,
}

impl Ours {
    fn make(dir: &Path, mode: Mode) -> anyhow::Result<Self> {
        let path = dir.join("damaged.pool");
        let m = Mapped::create(&path, SIZE, &holdfast_pmem::Options::default())?;
        let clock = Arc::new(SystemClock::new());
        let pool = Pool::create(m, &options(SIZE, mode), OpenOptions::default(), clock)?;
        let mut pointers = Vec::new();
        for object in 0..COUNT {
            let made = pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &content(object, 0)))?;
            pointers.extend(made.word().to_le_bytes());
        }
        let table = pool.run(|tx| tx.alloc_from(TypeNumber::BYTES, &pointers))?;
        drop(pool);
        let before = std::fs::read(&path)?;
        let pool = open(&path)?;
        for object in (0..COUNT).step_by(2) {
            let at = pointer(&pool, table, object).context("a pool that is whole")?;
            pool.run(|tx| tx.write_bytes(at, 0, &content(object, 1)))?;
        }
        drop(pool);
        let whole = std::fs::read(&path)?;
        let this = Self { specimen: Specimen { path, before, whole }, table };
        let got = this.survey();
        ensure!(got.wrong + got.refused == 0, "our pool is not whole to begin with: {got:?}");
        Ok(this)
    }

    fn round(&self, at: u64, damage: Damage) -> anyhow::Result<Got> {
        self.specimen.damage(at, damage)?;
        Ok(self.survey())
    }

    /// What is got once the pool, damaged as it is, was scrubbed.
    fn scrubbed(&self) -> anyhow::Result<Got> {
        let pool = open(&self.specimen.path)?;
        pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {})?;
        Ok(self.read(&pool))
    }

    fn survey(&self) -> Got {
        match open(&self.specimen.path) {
            Ok(pool) => self.read(&pool),
            Err(_) => Got { closed: true, ..Got::none() },
        }
    }

    fn read(&self, pool: &Pool<Mapped>) -> Got {
        let mut got = Got::default();
        let mut bytes = vec![0; LEN as usize];
        for object in 0..COUNT {
            let read = pointer(pool, self.table, object).and_then(|at| {
                pool.run(|tx| tx.read_bytes(at, 0, &mut bytes)).map_err(anyhow::Error::from)
            });
            got.take(object, read.is_ok().then_some(&bytes));
        }
        got
    }
}

fn open(path: &Path) -> anyhow::Result<Pool<Mapped>> {
    let m = Mapped::open(path, Access::Write, &holdfast_pmem::Options::default())?;
    let opened = Pool::open(m, OpenOptions::default(), Arc::new(SystemClock::new()))?;
    Ok(opened.0)
}

/// Where the table in the pool says that an object is.
fn pointer(pool: &Pool<Mapped>, table: RawPtr, object: u64) -> anyhow::Result<RawPtr> {
    let mut word = [0; 8];
    pool.run(|tx| tx.read_bytes(table, object * 8, &mut word))?;
    Ok(RawPtr::from_word(u64::from_le_bytes(word)))
}

/// What is said of an object whose bytes were given, and of one before anything is.
const GIVEN: u8 = 1;
const NOT_COME_TO: u8 = 0;

/// The other side.
struct Theirs {
    specimen: Specimen,
    pool: Resting,
}

impl Theirs {
    fn make(shim: Shim, dir: &Path) -> anyhow::Result<Self> {
        let mut peer = Peer::create(shim, dir, SIZE, false)?;
        let path = peer.files()[0].clone();
        peer.table(0, COUNT, LEN)?;
        let mut tables = peer.tables();
        for object in 0..COUNT {
            tables[0].alloc(object, &content(object, 0))?;
        }
        drop(tables);
        let mut pool = peer.close();
        let before = std::fs::read(&path)?;
        pool.opened(|peer| {
            let mut tables = peer.tables();
            let slots: Vec<u64> = (0..COUNT).step_by(2).collect();
            tables[0].line_up(&slots)?;
            for (place, object) in slots.iter().enumerate() {
                tables[0].overwrite(place, &content(*object, 1))?;
            }
            Ok(())
        })?;
        let whole = std::fs::read(&path)?;
        let mut this = Self { specimen: Specimen { path, before, whole }, pool };
        let got = this.survey()?;
        let missed = got.wrong + got.refused + got.unread;
        ensure!(missed == 0, "their pool is not whole to begin with: {got:?}");
        Ok(this)
    }

    fn round(&mut self, at: u64, damage: Damage) -> anyhow::Result<Got> {
        self.specimen.damage(at, damage)?;
        self.survey()
    }

    fn survey(&mut self) -> anyhow::Result<Got> {
        let (ending, bytes, told) = self.pool.survey(0)?;
        if ending == Ending::Refused {
            return Ok(Got { closed: true, ..Got::none() });
        }
        let (died, hung) = (ending == Ending::Died, ending == Ending::Hung);
        let mut got = Got { died, hung, ..Got::default() };
        for (object, bytes) in (0..COUNT).zip(bytes.chunks(LEN as usize)) {
            match told[object as usize] {
                NOT_COME_TO => got.unread += LEN,
                said => got.take(object, (said == GIVEN).then_some(bytes)),
            }
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of objects that were got wrong, and not got, after the same twenty damages.
    fn got(mode: Mode) -> (u64, u64) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let ours = Ours::make(folder.path(), mode).unwrap();
        let mut rng = Rng::new(3);
        let mut sum = Sum::default();
        for _ in 0..20 {
            let (sort, at, damage) = draw(&mut rng);
            sum.add(sort, ours.round(at, damage).unwrap());
        }
        (sum.wrong, sum.refused)
    }

    #[test]
    fn it_is_in_the_list_of_what_is_run() {
        assert_eq!(holdfast_evidence::unlisted("bench", [NAME]), Vec::<String>::new());
    }

    #[test]
    fn damage_is_served_without_sums_refused_without_parity_and_neither_with_both() {
        let [bare, .., whole, _] = MODES;
        assert_eq!(got(whole), (0, 0));
        let (wrong, _) = got(bare);
        assert!(wrong > 0, "the rounds damage nothing that is read");
        let sums_alone = ("sums alone", bare.1, whole.2, true);
        let (wrong, refused) = got(sums_alone);
        assert_eq!(wrong, 0);
        assert!(refused > 0);
    }
    #[test]
    fn a_round_in_which_anything_is_missed_counts_once() {
        let mut sum = Sum::default();
        let gots = [
            Got::default(),
            Got { wrong: 3, refused: LEN, ..Got::default() },
            Got { refused: LEN, ..Got::default() },
            Got { closed: true, ..Got::none() },
            Got { unread: LEN, died: true, ..Got::default() },
        ];
        gots.into_iter().for_each(|got| sum.add(0, got));
        assert_eq!((sum.silent, sum.failed, sum.closed), (1, 4, 1));
    }

    #[test]
    fn a_pool_that_is_refused_is_counted_and_ends_nothing() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let ours = Ours::make(folder.path(), MODES[3]).unwrap();
        // Both copies of the superblock.
        let got = ours.round(0, Damage::Stray { seed: 1, len: SIZE }).unwrap();
        assert!(got.closed && got.refused == COUNT * LEN, "{got:?}");
    }
}
