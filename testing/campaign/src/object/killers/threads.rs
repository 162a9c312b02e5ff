//! Transactions that meet others, and programs that write where they should not.

use std::os::unix::fs::FileExt;

use holdfast_layout::RawPtr;
use holdfast_object::Error;
use holdfast_txn::{Transaction, TxError};

use super::Mutant;
use super::jury::{abandon, wrong};
use crate::object::ops::{Choice, Job, Op};
use crate::object::scenes::{refused, stage};
use crate::tally::{Fault, Judged, Tally, Violation};

/// Two transactions read two objects; each changes one of them, unless the other was changed. In
/// no order one after the other do both change something.
pub fn skew(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (mutant.world(world), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let mut pair = [0; 2];
    for of in &mut pair {
        let made = driver.pool.run(|tx| {
            let of = tx.alloc_bytes(holdfast_layout::TypeNumber::BYTES, 8)?;
            tx.write_bytes(of, 0, &[0; 8])?;
            Ok(of.word())
        });
        *of = made.map_err(|error| refused("alloc", &error))?;
    }
    let [first, second] = pair.map(RawPtr::from_word);
    let take = |tx: &holdfast_object::Tx<'_, _>, mine, other| {
        let mut seen = [0; 8];
        tx.read_bytes(other, 0, &mut seen)?;
        if seen == [0; 8] { tx.write_bytes(mine, 0, &[1; 8]) } else { Ok(()) }
    };
    let mut met = false;
    let done = driver.pool.run(|tx| {
        take(tx, first, second)?;
        if !std::mem::replace(&mut met, true) {
            // The other one, from its beginning to its end.
            let other = || driver.pool.run(|tx| take(tx, second, first)).is_ok();
            let done = std::thread::scope(|scope| scope.spawn(other).join().unwrap_or(false));
            if !done {
                return Err(TxError::Inconsistent("the other transaction failed"));
            }
        }
        Ok(())
    });
    done.map_err(|error| refused("the transaction", &error))?;
    let both = driver.pool.run(|tx| {
        let mut bytes = [[0; 8]; 2];
        tx.read_bytes(first, 0, &mut bytes[0])?;
        tx.read_bytes(second, 0, &mut bytes[1])?;
        Ok(bytes == [[1; 8]; 2])
    });
    abandon(driver);
    match both {
        Ok(false) => Ok(Tally { count: 1, ..Tally::default() }),
        Ok(true) => Err(wrong("both transactions went through as if they were alone")),
        Err(error) => Err(refused("reading", &error)),
    }
}

/// A transaction's code writes beyond the private copy of its object: it must not be committed.
pub fn overrun(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    let (world, mut rng) = (mutant.world(world), mutant.rng(1));
    let driver = stage(&world, &mut rng)?;
    let choice = Choice::of(&driver.ledger.objects());
    let (of, len) = choice.small[0];
    let done = driver.pool.run(|tx| {
        let (copy, _) = tx.open_raw(RawPtr::from_word(of))?;
        // As a stray pointer would, and nothing that this language would let us write.
        let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem");
        let wrote = memory.and_then(|m| m.write_all_at(&[0x5a; 3], (copy.addr() as u64) + len));
        wrote.map_err(|_| TxError::Inconsistent("this process cannot write its own memory"))
    });
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len: 8 }]))?;
    let tally = Tally { count: 1, ..Tally::default() };
    abandon(driver);
    match done {
        Err(Error::Tx(TxError::Overrun { .. })) => Ok(tally),
        Err(error) => Err(refused("the overrun", &error)),
        Ok(()) => Err(Violation::new(Fault::Unnoticed, "an overrun was committed")),
    }
}
