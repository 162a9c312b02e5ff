//! Bank transfer: four threads move money between accounts, and none of it is ever lost.
//!
//!     cargo run --release --example bank_transfer [FILE]
//!
//! Shows objects with pointers to each other, a root, transactions that conflict and are executed
//! again, one that decides not to commit, and a pool that is opened again.

use std::error::Error;
use std::path::Path;
use std::thread;

use holdfast::{ErrorKind, Parity, Persist, Pool, Ptr, Transaction, TxError};

const ACCOUNTS: usize = 16;
const START: i64 = 1_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 250;

/// One account.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    transfers: u64,
}

/// The root: where the accounts are.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Bank {
    accounts: [Ptr<Account>; ACCOUNTS],
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "bank.pool".to_owned());
    run(Path::new(&path))
}

/// Makes the bank if there is none, then lets it work.
pub(crate) fn run(path: &Path) -> Result<(), Box<dyn Error>> {
    let pool = match Pool::open(path) {
        Ok(pool) => pool,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let pool = Pool::options().size(32 << 20).parity(Parity::PQ).create(path)?;
            found(&pool)?;
            pool
        }
        Err(error) => return Err(error.into()),
    };
    let bank = pool.read(pool.root::<Bank>()?)?;

    thread::scope(|scope| {
        for teller in 0..THREADS {
            let (pool, bank) = (&pool, &bank);
            scope.spawn(move || {
                for (from, to, amount) in work(teller) {
                    match transfer(pool, bank.accounts[from], bank.accounts[to], amount) {
                        Ok(()) => {}
                        Err(error) if error.kind() == ErrorKind::Cancelled => {}
                        Err(error) => eprintln!("teller {teller}: {error}"),
                    }
                }
            });
        }
    });

    let total: i64 = pool.run(|tx| {
        bank.accounts.iter().try_fold(0, |sum, account| Ok(sum + tx.read(*account)?.balance))
    })?;
    let stats = pool.stats();
    println!("{} commits, {} executed again, {total} in all", stats.commits, stats.conflicts);
    assert_eq!(total, START * ACCOUNTS as i64, "money was made or lost");
    Ok(())
}

/// Founds the bank: all accounts and the root that leads to them, or nothing.
fn found(pool: &Pool) -> Result<(), holdfast::Error> {
    pool.run(|tx| {
        let mut accounts = [Ptr::null(); ACCOUNTS];
        for account in &mut accounts {
            *account = tx.alloc(Account { balance: START, transfers: 0 })?;
        }
        let bank = tx.alloc(Bank { accounts })?;
        tx.set_root(bank)
    })
}

/// Moves money. If there is not enough, nothing happens.
fn transfer(
    pool: &Pool,
    from: Ptr<Account>,
    to: Ptr<Account>,
    amount: i64,
) -> Result<(), holdfast::Error> {
    if from == to {
        return Ok(());
    }
    pool.run(|tx| {
        let mut from = tx.open_mut(from)?; // a verified private copy
        let mut to = tx.open_mut(to)?;
        if from.balance < amount {
            return Err(TxError::cancel("not enough money"));
        }
        from.balance -= amount;
        to.balance += amount;
        from.transfers += 1;
        to.transfers += 1;
        Ok(())
    }) // durable from here on
}

/// What a teller has to do: from, to, how much.
fn work(teller: u64) -> Vec<(usize, usize, i64)> {
    let mut state = teller + 1;
    let mut next = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let one = |_| {
        let (from, to) = (next(ACCOUNTS as u64) as usize, next(ACCOUNTS as u64) as usize);
        (from, to, next(200) as i64)
    };
    (0..TRANSFERS).map(one).collect()
}
