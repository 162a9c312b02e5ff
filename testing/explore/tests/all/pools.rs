//! A closure over a pool, explored: two transactions where there should be one are seen.

use holdfast_explore::{Budget, Explorer, Hinge, PoolInUse, Shared, Verdict, pool};
use holdfast_layout::Ptr;
use holdfast_object::{CreateOptions, Pool};
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

/// Two accounts, objects of their own.
type Accounts = [Ptr<u64>; 2];
/// The smallest pool there is: so many pages.
const PAGES: u64 = 81;

fn balances(pool: &Pool<Shared>) -> Verdict<[u64; 2]> {
    let accounts = pool.read::<Accounts>(pool.root()?)?;
    Ok([pool.read(accounts[0])?, pool.read(accounts[1])?])
}

fn add(pool: &Pool<Shared>, changes: &[(usize, u64)]) -> Verdict {
    let accounts = pool.read::<Accounts>(pool.root()?)?;
    Ok(pool.run(|tx| {
        for &(which, amount) in changes {
            let mut balance = tx.open_mut(accounts[which])?;
            *balance = balance.wrapping_add(amount);
        }
        Ok(())
    })?)
}

fn bank(kind: MediumKind) -> Explorer<PoolInUse, [u64; 2]> {
    let log = if kind == MediumKind::File { 5 * 12_288 } else { 5 * 8_192 };
    let options = CreateOptions { log, ..CreateOptions::tiny(PAGES * 4096) };
    let setup = |pool: &Pool<Shared>| {
        Ok(pool.run(|tx| {
            let accounts: Accounts = [tx.alloc(100)?, tx.alloc(100)?];
            tx.set_root(tx.alloc(accounts)?)
        })?)
    };
    let little = Budget { exhaustive: 32, singles: 16, pairs: 8, samples: 8, seed: 5 };
    let name = format!("bank-{kind}").to_lowercase();
    pool(&name, &options, kind, setup, |pool, seen| seen.agree(&balances(pool)?))
        .start([100, 100])
        .budget(little)
        .nested(1, Budget { exhaustive: 4, singles: 2, pairs: 0, samples: 2, seed: 5 })
}

#[test]
fn one_transaction_is_all_or_nothing_on_every_medium() {
    for kind in [MediumKind::Dax, MediumKind::File] {
        let report = bank(kind)
            .op(
                "transfer",
                |pool| add(pool, &[(0, 30_u64.wrapping_neg()), (1, 30)]),
                |model| *model = [model[0] - 30, model[1] + 30],
            )
            .run();
        report.assert_clean();
        assert!(report.images > 20 && report.nested[0] > 20, "{report}");
    }
}

#[test]
fn two_transactions_are_not_one() {
    let report = bank(MediumKind::Dax)
        .op(
            "transfer in two parts",
            |pool| {
                add(pool, &[(0, 30_u64.wrapping_neg())])?;
                add(pool, &[(1, 30)])
            },
            |model| *model = [model[0] - 30, model[1] + 30],
        )
        .run();
    let failure = report.failure.expect("money is lost in between");
    assert_eq!(failure.why, "recovered [70, 100], acknowledged [100, 100] or [70, 130]");
    // The record of the first part is all there by its fence, and the second is not begun.
    let Hinge::TooEarly { store, fence: Some(fence) } = failure.hinge else { panic!("{failure}") };
    for spot in [store, fence] {
        assert!(spot.place.file().ends_with("core/logs/src/ring.rs"), "{failure}");
    }
}
