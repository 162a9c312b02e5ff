//! The account book whose transactions are killed: what each does follows from the seed and its
//! number, so the state after any of them can be worked out without the pool.

use std::collections::BTreeMap;

use holdfast::pmem::Medium;
use holdfast::{NamedMap, Pool, Transaction, Tx, TxResult};

use crate::failure::{Failure, Outcome};
use crate::rng::Rng;

/// Accounts there are.
const ACCOUNTS: u64 = 32;
/// Key of the number of the last transaction.
const LAST: u32 = u32::MAX;
/// Keys of notes of all lengths; the long one; many short ones.
const NOTES: u64 = 16;
const LONG: u32 = 100;
const SHORT: u32 = 1000;
/// Keys of notes that stay, how many each transaction adds, and their shortest and longest length.
/// All are of one size class, and a victim's fill the longest run of it there is: each victim makes
/// another run, whatever was done before it, and can die while it does.
const KEPT: u32 = 1 << 20;
const KEPT_EACH: u64 = 2;
const KEPT_LEN: (u64, u64) = (8_500, 10_000);

/// The book in a pool.
pub(crate) struct Book<M: Medium> {
    accounts: NamedMap<u32, i64, M>,
    notes: NamedMap<u32, [u8], M>,
}

/// The book in plain memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    /// Number of the last transaction.
    pub(crate) last: u64,
    accounts: BTreeMap<u32, i64>,
    notes: BTreeMap<u32, Vec<u8>>,
}

/// One change.
enum Change {
    Add(u32, i64),
    Note(u32, Vec<u8>),
    Drop(u32),
}

/// What transaction `number` does: a transfer and notes that stay, always; others at times.
fn changes(seed: u64, number: u64) -> Vec<Change> {
    let mut rng = Rng::new(seed, number);
    let amount = 1 + rng.below(1000) as i64;
    let from = rng.below(ACCOUNTS) as u32;
    let to = rng.below(ACCOUNTS) as u32;
    let mut changes = vec![Change::Add(from, -amount), Change::Add(to, amount)];
    for key in KEPT_EACH * number..KEPT_EACH * (number + 1) {
        changes.push(note(&mut rng, KEPT + key as u32, KEPT_LEN));
    }
    if number.is_multiple_of(2) {
        let key = rng.below(NOTES) as u32;
        changes.push(note(&mut rng, key, (1, 3000)));
    }
    if number % 8 == 3 {
        changes.push(note(&mut rng, LONG, (1, 400_000)));
    }
    if number % 8 == 5 {
        changes.push(Change::Drop(LONG));
    }
    if number % 12 == 7 {
        changes.extend((0..300).map(|key| note(&mut rng, SHORT + key, (1, 8000))));
    }
    changes
}

/// A note of at least so many bytes, and at most so many.
fn note(rng: &mut Rng, key: u32, (least, most): (u64, u64)) -> Change {
    let mut bytes = vec![0; (least + rng.below(most - least + 1)) as usize];
    rng.fill(&mut bytes);
    Change::Note(key, bytes)
}

impl Model {
    /// Does the next transaction.
    pub(crate) fn step(&mut self, seed: u64) {
        self.last += 1;
        for change in changes(seed, self.last) {
            match change {
                Change::Add(account, amount) => {
                    *self.accounts.entry(account).or_default() += amount;
                }
                Change::Note(key, bytes) => {
                    self.notes.insert(key, bytes);
                }
                Change::Drop(key) => {
                    self.notes.remove(&key);
                }
            }
        }
    }
}

impl<M: Medium> Book<M> {
    /// The book of a pool; a new one if it has none.
    pub(crate) fn of(pool: &Pool<M>) -> Outcome<Self> {
        Ok(Self { accounts: pool.map("accounts")?, notes: pool.map("notes")? })
    }

    /// Number of the last transaction committed.
    pub(crate) fn last(&self) -> Outcome<u64> {
        let last = self.accounts.get(&LAST)?.unwrap_or(0);
        u64::try_from(last).map_err(|_| {
            Failure::new("damaged", format!("the book ends with transaction {last}"), "report it")
        })
    }

    /// Does transaction `number`.
    pub(crate) fn step(&self, seed: u64, number: u64) -> Outcome<()> {
        let changes = changes(seed, number);
        self.accounts.pool().run(|tx| {
            self.apply(tx, &changes)?;
            self.accounts.map().put(tx, &LAST, &(number as i64)).map(drop)
        })?;
        Ok(())
    }

    fn apply(&self, tx: &Tx<'_, M>, changes: &[Change]) -> TxResult<()> {
        let (accounts, notes) = (self.accounts.map(), self.notes.map());
        for change in changes {
            match change {
                Change::Add(account, amount) => {
                    let balance = accounts.get(tx, account)?.unwrap_or(0);
                    accounts.put(tx, account, &(balance + amount))?;
                }
                Change::Note(key, bytes) => {
                    notes.put(tx, key, bytes)?;
                }
                Change::Drop(key) => {
                    notes.remove(tx, key)?;
                }
            }
        }
        Ok(())
    }

    /// Everything in the book, read in one transaction.
    pub(crate) fn read(&self) -> Outcome<Model> {
        let read = self.accounts.pool().run(|tx| self.read_in(tx));
        let mut model = read?;
        model.last = model.accounts.remove(&LAST).map_or(0, |last| last as u64);
        Ok(model)
    }

    fn read_in<T: Transaction>(&self, tx: &T) -> TxResult<Model> {
        let mut model = Model::default();
        self.accounts.map().for_each(tx, |account, balance| {
            model.accounts.insert(*account, *balance);
            Ok(())
        })?;
        self.notes.map().for_each(tx, |key, bytes| {
            model.notes.insert(*key, bytes.to_vec());
            Ok(())
        })?;
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_and_the_model_agree() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::options().size(32 << 20).create(folder.path().join("book.pool")).unwrap();
        let book = Book::of(&pool).unwrap();
        let mut model = Model::default();
        assert_eq!(book.read().unwrap(), model);
        for number in 1..=30 {
            book.step(5, number).unwrap();
            model.step(5);
            assert_eq!((book.last().unwrap(), model.last), (number, number));
            assert_eq!(book.read().unwrap(), model, "after {number}");
        }
        model.step(5);
        assert_ne!(book.read().unwrap(), model);
    }
}
