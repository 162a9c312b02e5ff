//! Places that come back as they once were, for the row `lost`: a device whose cache forgets, or
//! that maps a block to its old place.
//!
//! A whole page of this kind verifies, and until a scrub has looked at its column reads may serve
//! what lies there: one committed state of an object, older than the last, and never a mixture.
//! After the scrub everything is right, or named as in doubt.

use std::collections::BTreeSet;

use holdfast_faultmem::Injected;
use holdfast_layout::RawPtr;
use holdfast_object::{Error, Finding};
use holdfast_pmem::{Medium, MediumKind, Site};
use holdfast_redundancy::{Verdict, verdict::Reason};
use holdfast_txn::{Transaction, TxError};
use holdfast_workloads::Rng;

use super::damage::settled;
use super::spared::Range;
use crate::object::driver::Driver;
use crate::object::judge::scrub;
use crate::object::model::{Object, Objects, name};
use crate::object::ops::{Job, Op, any_job};
use crate::object::raw::Bytes;
use crate::object::targets::{Targets, parts_at, unit_set_back};
use crate::object::wrong::{Lie, told};
use crate::tally::{Fault, Judged, Violation};

/// Writing back what a file's medium still owes.
const SETTLE: Site = Site::new("campaign.lost.settle");

/// What objects may be as long as nobody has looked at the columns.
pub(super) struct Past {
    states: Vec<Objects>,
    /// Objects with bytes, slot or sums in a place that was set back.
    concerned: BTreeSet<u64>,
    /// Where the objects lie of which a chunk had its entry there.
    in_chunks: BTreeSet<u64>,
}

/// Has the medium written what a file still owes. A file's writes come to it whenever the kernel
/// likes: now, so that the faults of two rounds never come together.
pub(super) fn settle(driver: &Driver) -> Judged<()> {
    if driver.medium.kind() == MediumKind::File {
        let synced = driver.medium.sync(SETTLE);
        synced.map_err(|error| Violation::new(Fault::Refused, format!("sync: {error}")))?;
    }
    Ok(())
}

/// Runs transactions, then gives a place that they changed the bytes it had before them. `None` if
/// they changed nothing.
pub(super) fn set_back(driver: &Driver, rng: &mut Rng) -> Judged<Option<(Injected, Past)>> {
    let before = driver.medium.injected().len();
    let old = content(driver)?;
    let mut states = vec![driver.ledger.objects()];
    for _ in 0..1 + rng.below(4) {
        let job = any_job(rng, &driver.ledger.objects());
        driver.must(&job)?;
        states.push(driver.ledger.objects());
    }
    settle(driver)?;
    let new = content(driver)?;
    let unit = unit_set_back(rng);
    let changed = old.chunks(unit).zip(new.chunks(unit)).enumerate();
    let changed: Vec<usize> = changed.filter(|(_, (a, b))| a != b).map(|(i, _)| i * unit).collect();
    let Some(&at) = rng.pick(&changed) else { return Ok(None) };
    let concerned = concerned(driver, at as u64, unit as u64);
    let in_chunks = Targets::of_entries(&Bytes::of(&driver.medium), at as u64, unit as u64);
    let done = driver.medium.stray(at as u64, &old[at..][..unit]);
    done.map_err(|error| Violation::new(Fault::Refused, format!("injecting: {error}")))?;
    let injected = driver.medium.injected().get(before).cloned();
    Ok(injected.map(|injected| (injected, Past { states, concerned, in_chunks })))
}

/// Every byte of the medium.
fn content(driver: &Driver) -> Judged<Vec<u8>> {
    let mut all = vec![0; driver.medium.len() as usize];
    let read = driver.medium.read(0, &mut all);
    read.map_err(|error| Violation::new(Fault::Refused, format!("reading it all: {error}")))?;
    Ok(all)
}

/// The objects that have a part in a range. Slots are not asked, since one may be damaged just now:
/// lengths are those of the model. Where nothing says where an object's parts are, it may have one.
pub(super) fn concerned(driver: &Driver, at: u64, len: u64) -> BTreeSet<u64> {
    let places = Targets::places(&Bytes::of(&driver.medium));
    let objects = driver.ledger.objects();
    let has_part = |word: u64, bytes: u64| {
        let offset = RawPtr::from_word(word).offset();
        places.get(&offset).is_none_or(|place| {
            let parts = parts_at(offset, *place, bytes);
            parts.iter().any(|(from, n)| *from < at + len && at < from + n)
        })
    };
    let all = objects.iter().filter(|(word, object)| has_part(*word, object.bytes.len() as u64));
    all.map(|(word, _)| word).collect()
}

/// Whether an error says that an object is lost, or in doubt.
pub(super) const fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Tx(TxError::Lost { .. } | TxError::InDoubt { .. }))
}

/// An object is refused, and nothing that was hurt excuses that.
pub(super) fn beside(word: u64, error: &Error) -> Violation {
    let fault = if is_loss(error) { Fault::FalseReport } else { Fault::Refused };
    Violation::new(fault, format!("reading {}, which nothing excuses: {error}", name(word)))
}

/// An object as the engine has it.
fn read(driver: &Driver, word: u64, len: usize) -> Result<Object, Error> {
    let of = RawPtr::from_word(word);
    let mut bytes = vec![0; len];
    let read = driver.pool.run(|tx| {
        let len = (tx.len_of(of)? as usize).min(bytes.len());
        tx.read_bytes(of, 0, &mut bytes[..len])?;
        Ok((len, tx.type_of(of)?))
    });
    let (len, kind) = read?;
    bytes.truncate(len);
    Ok(Object { kind: kind.0, bytes: bytes.into() })
}

impl Past {
    /// Of a write that came to grief in the middle of transactions with these states around them.
    pub(super) fn of_write(states: Vec<Objects>) -> Self {
        Self { states, concerned: BTreeSet::new(), in_chunks: BTreeSet::new() }
    }

    /// Reads everything: as it is, or lost or in doubt where that is `excused`; what is `allowed`
    /// to be may also be as it was.
    fn reads(
        &self,
        driver: &Driver,
        allowed: &BTreeSet<u64>,
        excused: impl Fn(u64) -> bool,
    ) -> Judged<()> {
        for (word, object) in driver.ledger.objects().iter() {
            let mut found = read(driver, word, object.bytes.len());
            if told(Lie::Neighbour) && !excused(word) {
                found = Err(Error::Tx(TxError::Lost { object: RawPtr::from_word(word) }));
            }
            let found = match found {
                Ok(found) => found,
                Err(error) if is_loss(&error) && excused(word) => continue,
                Err(error) => return Err(beside(word, &error)),
            };
            let was = || self.states.iter().any(|state| state.get(word) == Some(&found));
            if found != *object && !(allowed.contains(&word) && was()) {
                let story = format!("reading {} gave what it never was", name(word));
                return Err(Violation::new(Fault::Wrong, story));
            }
        }
        Ok(())
    }

    /// Meets the place before anybody has looked at the columns. What a transaction concludes from
    /// an older state, it commits: so those here leave what is concerned alone.
    pub(super) fn meet(&self, driver: &Driver, rng: &mut Rng, work: bool) -> Judged<()> {
        if !work || self.concerned.contains(&driver.anchor) {
            // Of all else nothing was touched: who cannot read that has lost it without cause.
            let in_chunks = |word| self.in_chunks.contains(&RawPtr::from_word(word).offset());
            let excused = |word| self.concerned.contains(&word) || in_chunks(word);
            return self.reads(driver, &self.concerned, excused);
        }
        for _ in 0..1 + rng.below(3) {
            let mut others = Objects::default();
            for (word, object) in driver.ledger.objects().iter() {
                if !self.concerned.contains(&word) {
                    others.insert(word, object.clone());
                }
            }
            driver.must(&any_job(rng, &others))?;
        }
        Ok(())
    }

    /// After a scrub that left so much undecided: everything is right, or named as in doubt.
    pub(super) fn scrubbed(&self, driver: &Driver, rng: &mut Rng, undecided: u64) -> Judged<()> {
        if undecided == 0 {
            return settled(driver, true);
        }
        let report = driver.pool.check(|_, _| {});
        let report = report.map_err(|e| Violation::new(Fault::Refused, format!("check: {e}")))?;
        let in_doubt = |f: &&Finding| f.verdict == Verdict::Undecided(Reason::Older);
        if let Some(other) = report.findings.iter().find(|f| !in_doubt(f)) {
            let story = format!("after the scrub a check finds {other:?}");
            return Err(Violation::new(Fault::Unnoticed, story));
        }
        let named: BTreeSet<u64> = report.findings.iter().map(|f| f.object.word()).collect();
        // What is free by the older state is no object; what lies in chunks in doubt may be none.
        let places: BTreeSet<u64> =
            named.iter().map(|word| RawPtr::from_word(*word).offset()).collect();
        let chunks = Targets::chunks(&Bytes::of(&driver.medium));
        let objects = driver.ledger.objects();
        let excused = |word: u64| {
            let at = RawPtr::from_word(word).offset();
            let len = objects.get(word).map_or(1, |object| object.bytes.len() as u64);
            let entries = chunks.iter().find_map(|chunks| chunks.entries(at, len));
            let touches = |f: &Finding, (at, len): Range| f.at < at + len && at < f.at + f.len;
            let of_chunk = |f: &Finding| entries.is_some_and(|entries| touches(f, entries));
            places.contains(&at) || report.findings.iter().any(of_chunk)
        };
        self.reads(driver, &named, excused)?;
        self.overwrite(driver, rng, &named)
    }

    /// Settles what is in doubt by writing all of it anew, as a program would. What is free by the
    /// older state cannot be had: it stays in doubt.
    fn overwrite(&self, driver: &Driver, rng: &mut Rng, named: &BTreeSet<u64>) -> Judged<()> {
        let mut all = true;
        for word in named {
            let object = driver.ledger.objects().get(*word).cloned();
            let Some(object) = object.filter(|o| read(driver, *word, o.bytes.len()).is_ok()) else {
                all = false;
                continue;
            };
            let len = object.bytes.len() as u64;
            driver.must(&Job::new(rng, [Op::Write { of: *word, from: 0, len }]))?;
        }
        if all {
            scrub(&driver.pool)?;
            settled(driver, true)?;
        }
        Ok(())
    }
}
