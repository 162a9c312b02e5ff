//! A structure with a log and a recovery, and every way to get it wrong that the tests need.
//!
//! Two numbers in lines of their own, of which a transfer changes both. It writes a record with
//! both new values and a check, fences, writes the values, fences. Recovery does again what a valid
//! record says, which may be done any number of times.

use holdfast_explore::{Explorer, Mapping, Verdict};
use holdfast_pmem::MediumKind;

const LEFT: u64 = 0;
const RIGHT: u64 = 64;
/// Both new values and their check.
const RECORD: u64 = 128;
/// Set while a recovery is under way; only [`Wrong::SecondRecovery`] looks at it.
const MARK: u64 = 192;

/// What is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Nothing,
    /// The values are written before the record is known to be there.
    NoFence,
    /// The record is not flushed.
    NoFlush,
    /// The values are written and fenced before the record.
    DataFirst,
    /// The record has no check but a word that says it is valid, which is published with it.
    PublishBeforePersist,
    /// Recovery takes a record whose check is wrong for damaged, and computes its check anew.
    CheckAfterDamage,
    /// Recovery clears the record before the values are there: a second one does nothing.
    NotIdempotent,
    /// As before, but only in a recovery that follows a recovery.
    SecondRecovery,
    /// A fence and a flush that nothing needs.
    TooMuch,
}

/// The two numbers.
#[derive(Debug)]
pub(crate) struct Pair {
    m: Mapping,
    wrong: Wrong,
}

fn check(left: u64, right: u64) -> u64 {
    (left ^ right.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

impl Pair {
    fn open(m: Mapping, wrong: Wrong) -> Verdict<Self> {
        let pair = Self { m, wrong };
        pair.recover()?;
        Ok(pair)
    }

    fn get(&self) -> Verdict<(u64, u64)> {
        Ok((self.m.load_u64(LEFT)?, self.m.load_u64(RIGHT)?))
    }

    fn transfer(&self, amount: u64) -> Verdict {
        let (left, right) = self.get()?;
        let (left, right) = (left + amount, right.wrapping_sub(amount));
        if self.wrong == Wrong::DataFirst {
            self.apply(left, right)?;
        }
        self.record(left, right)?;
        self.apply(left, right)
    }

    fn record(&self, left: u64, right: u64) -> Verdict {
        let m = &self.m;
        let unchecked = self.wrong == Wrong::PublishBeforePersist;
        m.store_u64(RECORD, left)?;
        m.store_u64(RECORD + 8, right)?;
        m.store_u64(RECORD + 16, if unchecked { 1 } else { check(left, right) })?;
        if self.wrong != Wrong::NoFlush {
            m.flush(RECORD, 24)?;
        }
        if self.wrong != Wrong::NoFence {
            m.fence();
        }
        if self.wrong == Wrong::TooMuch {
            m.flush(RECORD, 24)?;
            m.fence();
        }
        Ok(())
    }

    fn apply(&self, left: u64, right: u64) -> Verdict {
        self.m.store_u64(LEFT, left)?;
        self.m.store_u64(RIGHT, right)?;
        self.m.flush(LEFT, 8)?;
        self.m.flush(RIGHT, 8)?;
        self.m.fence();
        Ok(())
    }

    fn clear(&self) -> Verdict {
        self.m.store_u64(RECORD + 16, 0)?;
        self.m.flush(RECORD + 16, 8)?;
        self.m.fence();
        Ok(())
    }

    fn recover(&self) -> Verdict {
        let m = &self.m;
        let (left, right) = (m.load_u64(RECORD)?, m.load_u64(RECORD + 8)?);
        let word = m.load_u64(RECORD + 16)?;
        let valid = match self.wrong {
            Wrong::PublishBeforePersist => word == 1,
            Wrong::CheckAfterDamage => (left, right, word) != (0, 0, 0) && word != 0,
            _ => word == check(left, right),
        };
        if !valid {
            return Ok(());
        }
        let mut hasty = self.wrong == Wrong::NotIdempotent;
        if self.wrong == Wrong::SecondRecovery {
            hasty = m.load_u64(MARK)? == 1;
            m.store_u64(MARK, 1)?;
            m.flush(MARK, 8)?;
            m.fence();
        }
        if hasty {
            self.clear()?;
        }
        self.apply(left, right)
    }
}

/// Transfers of two amounts, done wrong in one way.
pub(crate) fn explorer(wrong: Wrong) -> Explorer<Pair, (u64, u64)> {
    Explorer::new(
        "transfer",
        4096,
        MediumKind::Dax,
        move |medium| Pair::open(Mapping::new(medium), wrong),
        |pair, seen| seen.agree(&pair.get()?),
    )
    .setup(|medium| {
        let m = Mapping::new(medium);
        m.store_u64(LEFT, 100)?;
        Ok(m.store_u64(RIGHT, 100)?)
    })
    .start((100, 100))
    .op("1", |pair| pair.transfer(1), |model: &mut (u64, u64)| step(model, 1))
    .op("30", |pair| pair.transfer(30), |model| step(model, 30))
}

fn step((left, right): &mut (u64, u64), amount: u64) {
    *left += amount;
    *right = right.wrapping_sub(amount);
}
