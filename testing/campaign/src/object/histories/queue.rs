//! A queue as programs write one: a header with both ends, and objects linked in order.

use std::collections::VecDeque;

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber};
use holdfast_object::{Error, Pool, Tx};
use holdfast_oracle::linear::Spec;
use holdfast_oracle::linear::specs::{Queue, QueueAnswer, QueueOp};
use holdfast_txn::Transaction;

use super::shake;
use super::subject::{Caller, Subject};
use super::wrong::Wrong;
use crate::object::handle::Handle;
use crate::tally::{Fault, Judged, Violation};

/// Lengths of items, link included: within a record and, once, too long for one.
const LENGTHS: [u64; 4] = [32, 96, 1_600, 4_800];
/// Items at the end that are asked for at most: more than there can be.
const MOST: usize = 200;

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Persist)]
#[repr(C)]
#[persist(name = "campaign.queue", version = 1)]
pub struct Ends {
    front: RawPtr,
    back: RawPtr,
    count: u64,
}

/// A queue of a pool.
#[derive(Debug, Clone)]
pub struct Line {
    ends: Ptr<Ends>,
}

impl Line {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Of the engine.
    pub fn make(pool: &Pool<Handle>) -> Result<Self, Error> {
        let empty = Ends { front: RawPtr::NULL, back: RawPtr::NULL, count: 0 };
        Ok(Self { ends: pool.run(|tx| tx.alloc(empty))? })
    }

    fn push(&self, tx: &Tx<'_, Handle>, item: u64) -> holdfast_txn::Result<QueueAnswer> {
        let mut ends = tx.read(self.ends)?;
        shake::here();
        let len = LENGTHS[(item % 11 % 4) as usize];
        let mut bytes = item.to_le_bytes().repeat(len as usize / 8);
        bytes[..8].fill(0);
        let new = tx.alloc_from(TypeNumber::BYTES, &bytes)?;
        if ends.front.is_null() {
            ends.front = new;
        } else {
            tx.write_bytes(ends.back, 0, &new.word().to_le_bytes())?;
        }
        ends.back = new;
        ends.count += 1;
        shake::here();
        tx.update(self.ends, |stored| *stored = ends)?;
        Ok(QueueAnswer::Count(ends.count))
    }

    fn pop(&self, tx: &Tx<'_, Handle>, keep: bool) -> holdfast_txn::Result<QueueAnswer> {
        let mut ends = tx.read(self.ends)?;
        if ends.front.is_null() {
            let torn = ends.count > 0 || !ends.back.is_null();
            return Ok(if torn { QueueAnswer::Torn } else { QueueAnswer::Item(None) });
        }
        shake::here();
        let mut bytes = vec![0; tx.len_of(ends.front)? as usize];
        tx.read_bytes(ends.front, 0, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let [link, item, ..] = *words else { return Ok(QueueAnswer::Torn) };
        if words[1..].iter().any(|word| *word != item) {
            return Ok(QueueAnswer::Torn);
        }
        if !keep {
            let front =
                std::mem::replace(&mut ends.front, RawPtr::from_word(u64::from_le_bytes(link)));
            if ends.front.is_null() {
                ends.back = RawPtr::NULL;
            }
            ends.count = ends.count.wrapping_sub(1);
            tx.update(self.ends, |stored| *stored = ends)?;
            shake::here();
            tx.free(front)?;
        }
        Ok(QueueAnswer::Item(Some(u64::from_le_bytes(item))))
    }
}

impl Subject for Line {
    type Spec = Queue;
    const CALLS: u64 = 9;

    fn start(&self) -> <Queue as Spec>::State {
        VecDeque::new()
    }

    fn next(&self, caller: &mut Caller, unique: u64) -> QueueOp {
        match caller.rng.below(9) {
            0..4 => QueueOp::Push(unique),
            4..8 => QueueOp::Pop,
            _ => QueueOp::Front,
        }
    }

    fn call(
        &self,
        pool: &Pool<Handle>,
        op: &QueueOp,
        caller: &mut Caller,
    ) -> Result<QueueAnswer, Error> {
        if caller.is(Wrong::Unlocked) && *op == QueueOp::Pop {
            let front = pool.run(|tx| self.pop(tx, true))?;
            shake::here();
            return pool.run(|tx| self.pop(tx, false)).map(|_| front);
        }
        pool.run(|tx| match *op {
            QueueOp::Push(item) => self.push(tx, item),
            QueueOp::Pop => self.pop(tx, false),
            QueueOp::Front => self.pop(tx, true),
        })
    }

    fn foreseen(_: &QueueOp) -> Option<QueueAnswer> {
        None
    }

    fn audit(&self, last: bool, ask: &mut dyn FnMut(QueueOp) -> Judged<QueueAnswer>) -> Judged<()> {
        if !last {
            return ask(QueueOp::Front).map(drop);
        }
        for _ in 0..MOST {
            if ask(QueueOp::Pop)? == QueueAnswer::Item(None) {
                return Ok(());
            }
        }
        Err(Violation::new(Fault::Wrong, "the queue has no end"))
    }

    fn sound(&self, _: &Pool<Handle>) -> Judged<()> {
        Ok(())
    }
}
