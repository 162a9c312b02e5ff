//! Registers: objects of a few granules, all words of which hold the same number.

use std::collections::BTreeMap;

use holdfast_layout::{Persist, Ptr};
use holdfast_object::{Error, Pool, Tx};
use holdfast_oracle::linear::Spec;
use holdfast_oracle::linear::specs::{CellAnswer, CellOp, Cells};
use holdfast_txn::Transaction;

use super::shake;
use super::subject::{Caller, Subject};
use super::wrong::Wrong;
use crate::object::handle::Handle;
use crate::tally::Judged;

/// Words of a register: more than a granule, so that it has two sums.
const WORDS: usize = 160;
/// Registers.
const COUNT: u64 = 4;
/// What each holds at first.
const FIRST: u64 = 100;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "campaign.register", version = 1)]
pub struct Register {
    words: [u64; WORDS],
}

impl Register {
    const fn of(value: u64) -> Self {
        Self { words: [value; WORDS] }
    }

    /// The number it holds; `None` if it is parts of two.
    fn value(&self) -> Option<u64> {
        let [first, ..] = self.words;
        self.words.iter().all(|&word| word == first).then_some(first)
    }
}

/// Some registers of a pool.
#[derive(Debug, Clone)]
pub struct Registers {
    all: Vec<Ptr<Register>>,
    /// Whether calls concern one register each, so that each can be judged apart.
    apart: bool,
}

impl Registers {
    /// Makes them.
    ///
    /// # Errors
    /// Of the engine.
    pub fn make(pool: &Pool<Handle>, apart: bool) -> Result<Self, Error> {
        let all = (0..COUNT).map(|_| pool.run(|tx| tx.alloc(Register::of(FIRST))));
        Ok(Self { all: all.collect::<Result<_, _>>()?, apart })
    }

    fn at(&self, of: u64) -> Ptr<Register> {
        self.all[of as usize]
    }

    /// Reads one, in one of the ways there are.
    fn read(&self, pool: &Pool<Handle>, of: u64, caller: &mut Caller) -> Result<Looked, Error> {
        let of = self.at(of);
        Ok(Looked(match caller.rng.below(4) {
            0 => pool.read(of)?.value(),
            1 if caller.views => {
                let view = pool.view(of)?;
                let first = view.words[0];
                shake::here();
                view.value().filter(|&value| value == first)
            }
            2 => pool.run(|tx| {
                let mut bytes = [[0; 8]; 2];
                tx.read_bytes(of.raw(), 0, &mut bytes[0])?;
                shake::here();
                tx.read_bytes(of.raw(), 8 * (WORDS as u64 - 1), &mut bytes[1])?;
                let [first, last] = bytes.map(u64::from_le_bytes);
                Ok((first == last).then_some(first))
            })?,
            _ => begun(pool, |tx| tx.read(of))?.value(),
        }))
    }
}

/// A number that was read; `None` if it was parts of two.
struct Looked(Option<u64>);

impl Looked {
    fn answer(self) -> CellAnswer {
        self.0.map_or(CellAnswer::Torn, CellAnswer::Is)
    }
}

/// One transaction as a value, done again as long as that is what it answers.
fn begun<R>(
    pool: &Pool<Handle>,
    part: impl Fn(&Tx<'_, Handle>) -> holdfast_txn::Result<R>,
) -> Result<R, Error> {
    let mut work = pool.begin()?;
    loop {
        let done = work.step(&part);
        shake::here();
        match (work.commit()?, done) {
            (None, Ok(value)) => return Ok(value),
            // What a part failed with, its commit says too.
            (None, Err(error)) => return Err(error.into()),
            (Some(again), _) => work = again,
        }
    }
}

/// One transaction, by a closure or as a value.
fn run<R>(
    pool: &Pool<Handle>,
    caller: &mut Caller,
    part: impl Fn(&Tx<'_, Handle>) -> holdfast_txn::Result<R>,
) -> Result<R, Error> {
    if caller.rng.below(3) == 0 { begun(pool, part) } else { pool.run(part) }
}

/// Reads a register within a transaction.
fn get(tx: &Tx<'_, Handle>, of: Ptr<Register>) -> holdfast_txn::Result<Option<u64>> {
    let value = tx.read(of)?.value();
    shake::here();
    Ok(value)
}

/// Writes a register within a transaction: as a whole, or in two parts.
fn set(tx: &Tx<'_, Handle>, of: Ptr<Register>, value: u64) -> holdfast_txn::Result<()> {
    if value.is_multiple_of(2) {
        return tx.update(of, |register| *register = Register::of(value));
    }
    let half: Vec<u8> = value.to_le_bytes().repeat(WORDS / 2);
    tx.write_bytes(of.raw(), 0, &half)?;
    shake::here();
    tx.write_bytes(of.raw(), half.len() as u64, &half)
}

impl Registers {
    /// Compare and set, and additions, the wrong way: nothing holds between look and change.
    fn unlocked(
        &self,
        pool: &Pool<Handle>,
        op: &CellOp,
        caller: &mut Caller,
    ) -> Result<CellAnswer, Error> {
        let (CellOp::Cas(of, ..) | CellOp::Add(of, _)) = *op else {
            return Ok(CellAnswer::Torn);
        };
        let Some(found) = self.read(pool, of, caller)?.0 else { return Ok(CellAnswer::Torn) };
        shake::here();
        let (value, answer) = match *op {
            CellOp::Cas(_, from, _) if found != from => return Ok(CellAnswer::If(false)),
            CellOp::Cas(_, _, to) => (to, CellAnswer::If(true)),
            CellOp::Add(_, by) => (found + by, CellAnswer::Is(found + by)),
            _ => return Ok(CellAnswer::Torn),
        };
        pool.run(|tx| set(tx, self.at(of), value))?;
        Ok(answer)
    }

    fn transfer(
        &self,
        pool: &Pool<Handle>,
        (from, to, amount): (u64, u64, u64),
        caller: &mut Caller,
    ) -> Result<CellAnswer, Error> {
        let take = |tx: &Tx<'_, Handle>| {
            let Some(held) = get(tx, self.at(from))? else { return Ok(CellAnswer::Torn) };
            let Some(left) = held.checked_sub(amount) else { return Ok(CellAnswer::If(false)) };
            set(tx, self.at(from), left)?;
            Ok(CellAnswer::If(true))
        };
        let give = |tx: &Tx<'_, Handle>| {
            let Some(held) = get(tx, self.at(to))? else { return Ok(CellAnswer::Torn) };
            set(tx, self.at(to), held.wrapping_add(amount))?;
            Ok(CellAnswer::If(true))
        };
        if caller.is(Wrong::Halves) {
            let taken = pool.run(take)?;
            shake::here();
            return if taken == CellAnswer::If(true) { pool.run(give) } else { Ok(taken) };
        }
        run(pool, caller, |tx| {
            let taken = take(tx)?;
            if taken == CellAnswer::If(true) { give(tx) } else { Ok(taken) }
        })
    }

    fn both(
        &self,
        pool: &Pool<Handle>,
        (one, other): (u64, u64),
        caller: &mut Caller,
    ) -> Result<CellAnswer, Error> {
        let seen = if caller.is(Wrong::TornLook) {
            let one = self.read(pool, one, caller)?.0;
            shake::here();
            (one, self.read(pool, other, caller)?.0)
        } else {
            run(pool, caller, |tx| Ok((get(tx, self.at(one))?, get(tx, self.at(other))?)))?
        };
        Ok(match seen {
            (Some(one), Some(other)) => CellAnswer::Are(one, other),
            _ => CellAnswer::Torn,
        })
    }
}

impl Subject for Registers {
    type Spec = Cells;
    const CALLS: u64 = 12;

    fn start(&self) -> <Cells as Spec>::State {
        (0..COUNT).map(|of| (of, FIRST)).collect::<BTreeMap<_, _>>()
    }

    fn next(&self, caller: &mut Caller, unique: u64) -> CellOp {
        let rng = &mut caller.rng;
        // Two of them are asked for most, so that calls meet.
        let of = if rng.below(3) > 0 { rng.below(2) } else { rng.below(COUNT) };
        let other = (of + 1 + rng.below(COUNT - 1)) % COUNT;
        let transfers = if self.apart { 0 } else { 6 };
        match rng.below(10 + transfers) {
            0..4 => CellOp::Read(of),
            4 | 5 => CellOp::Write(of, FIRST + unique),
            6 => {
                let known = caller.seen.get(&of).copied();
                CellOp::Cas(of, known.unwrap_or(FIRST), FIRST + unique)
            }
            7..10 => CellOp::Add(of, 1 + rng.below(2)),
            10 => CellOp::Both(of, other),
            11 | 12 => CellOp::Copy(of, other),
            _ => CellOp::Move { from: of, to: other, amount: 1 + rng.below(FIRST) },
        }
    }

    fn call(
        &self,
        pool: &Pool<Handle>,
        op: &CellOp,
        caller: &mut Caller,
    ) -> Result<CellAnswer, Error> {
        match *op {
            CellOp::Read(of) => {
                let known = caller.seen.get(&of);
                if let (true, Some(&value)) = (caller.is(Wrong::Remembers), known) {
                    return Ok(CellAnswer::Is(value));
                }
                let looked = self.read(pool, of, caller)?;
                caller.seen.extend(looked.0.map(|value| (of, value)));
                Ok(looked.answer())
            }
            CellOp::Cas(..) | CellOp::Add(..) if caller.is(Wrong::Unlocked) => {
                self.unlocked(pool, op, caller)
            }
            CellOp::Write(of, value) => {
                run(pool, caller, |tx| set(tx, self.at(of), value))?;
                Ok(CellAnswer::Done)
            }
            CellOp::Cas(of, from, to) => run(pool, caller, |tx| {
                let Some(held) = get(tx, self.at(of))? else { return Ok(CellAnswer::Torn) };
                if held == from {
                    set(tx, self.at(of), to)?;
                }
                Ok(CellAnswer::If(held == from))
            }),
            CellOp::Add(of, by) => run(pool, caller, |tx| {
                let Some(held) = get(tx, self.at(of))? else { return Ok(CellAnswer::Torn) };
                set(tx, self.at(of), held.wrapping_add(by))?;
                Ok(CellAnswer::Is(held.wrapping_add(by)))
            }),
            CellOp::Copy(from, to) => run(pool, caller, |tx| {
                let Some(held) = get(tx, self.at(from))? else { return Ok(CellAnswer::Torn) };
                set(tx, self.at(to), held)?;
                Ok(CellAnswer::Is(held))
            }),
            CellOp::Both(one, other) => self.both(pool, (one, other), caller),
            CellOp::Move { from, to, amount } => self.transfer(pool, (from, to, amount), caller),
        }
    }

    fn foreseen(op: &CellOp) -> Option<CellAnswer> {
        matches!(op, CellOp::Write(..)).then_some(CellAnswer::Done)
    }

    fn audit(&self, _: bool, ask: &mut dyn FnMut(CellOp) -> Judged<CellAnswer>) -> Judged<()> {
        (0..COUNT).try_for_each(|of| ask(CellOp::Read(of)).map(drop))
    }

    fn sound(&self, _: &Pool<Handle>) -> Judged<()> {
        Ok(())
    }
}
