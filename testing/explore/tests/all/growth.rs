//! Media that grow: a structure that publishes what lies beyond the end is convicted, and a pool
//! that grows is whole whenever the power goes.

use holdfast_explore::{Budget, Explorer, Hinge, Mapping, Shared, Verdict, pool};
use holdfast_layout::Ptr;
use holdfast_object::{CreateOptions, Pool};
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

const PAGE: u64 = 4096;
/// Where the items are: one to a page, so that each push needs another one.
const ITEMS: u64 = PAGE;

/// A number of items at 0, each in a page of its own behind it.
struct Pages {
    m: Mapping,
    order: Order,
}

/// When the count is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Once what it counts is there.
    Last,
    /// Before there is room for it.
    BeforeRoom,
    /// The same, and nothing waits for the count before the growth.
    JustBeforeRoom,
}

impl Pages {
    fn push(&self, item: u64) -> Verdict {
        let m = &self.m;
        let count = m.load_u64(0)?;
        match self.order {
            Order::Last => {}
            Order::BeforeRoom => self.count(count + 1)?,
            Order::JustBeforeRoom => m.store_u64(0, count + 1)?,
        }
        // A crash may have left room already.
        m.grow(m.size().max(ITEMS + (count + 1) * PAGE))?;
        m.store_u64(ITEMS + count * PAGE, item)?;
        m.flush(ITEMS + count * PAGE, 8)?;
        m.fence();
        self.count(count + 1)
    }

    fn count(&self, count: u64) -> Verdict {
        self.m.store_u64(0, count)?;
        self.m.flush(0, 8)?;
        self.m.fence();
        Ok(())
    }

    fn items(&self) -> Verdict<Vec<u64>> {
        (0..self.m.load_u64(0)?).map(|nth| Ok(self.m.load_u64(ITEMS + nth * PAGE)?)).collect()
    }
}

fn pages(order: Order) -> Explorer<Pages, Vec<u64>> {
    Explorer::new(
        "pages",
        PAGE,
        MediumKind::Dax,
        move |medium: Shared| Ok(Pages { m: Mapping::new(medium), order }),
        |pages, seen| seen.agree(&pages.items()?),
    )
    .reserve(4 * PAGE)
    .op("push 7", |pages| pages.push(7), |items: &mut Vec<u64>| items.push(7))
    .op("push 9", |pages| pages.push(9), |items| items.push(9))
    .samples(4, 1)
}

#[test]
fn what_counts_pages_that_are_not_there_is_convicted() {
    let report = pages(Order::Last).run();
    report.assert_clean();
    assert_eq!(report.sequences, 2 + 4 + 4, "{report}");
    let failure = pages(Order::BeforeRoom).run().failure.expect("no room for what is counted");
    assert_eq!(failure.sequence.len(), 1, "{failure}");
}

#[test]
fn a_crash_before_growth_is_told_by_the_place_of_the_growth() {
    let failure = pages(Order::JustBeforeRoom).run().failure.expect("no room for what is counted");
    let line = |text: &str| {
        let found = include_str!("growth.rs").lines().position(|line| line.contains(text));
        found.expect("it is above") as u32 + 1
    };
    let [Some(barrier)] = failure.crashes[..] else { panic!("{failure}") };
    assert!(barrier.place.file().ends_with("growth.rs"), "{failure}");
    assert_eq!(barrier.place.line(), line("m.grow(m.size()"), "{failure}");
    let Hinge::TooEarly { store, fence } = failure.hinge else { panic!("{failure}") };
    assert_eq!(store.place.line(), line("Order::JustBeforeRoom => m.store_u64"), "{failure}");
    assert_eq!(fence, Some(barrier), "{failure}");
    let text = failure.to_string();
    assert!(text.contains(&format!("may arrive before the growth at {barrier}")), "{text}");
    assert!(text.contains(&format!("just before {barrier}")), "{text}");
}

#[test]
fn a_medium_grows_as_far_as_was_said() {
    let failure = pages(Order::Last).reserve(2 * PAGE).run().failure.expect("two items do not fit");
    assert_eq!(failure.sequence.len(), 2, "{failure}");
    assert!(failure.why.contains("greater reserve"), "{failure}");
}

#[test]
fn a_pool_that_grows_is_whole_whenever_the_power_goes() {
    let (old, new) = (81 * PAGE, 81 * PAGE + 160 * PAGE);
    let options = CreateOptions { log: 5 * 8_192, ..CreateOptions::tiny(old) };
    let setup = |pool: &Pool<Shared>| {
        Ok(pool.run(|tx| {
            let cell: Ptr<u64> = tx.alloc(7)?;
            tx.set_root(cell)
        })?)
    };
    let check = |pool: &Pool<Shared>, seen: &holdfast_explore::Seen<u64>| {
        seen.agree(&pool.read::<u64>(pool.root()?)?)
    };
    let little = Budget { exhaustive: 4, singles: 2, pairs: 0, samples: 1, seed: 5 };
    let report = pool("growth", &options, MediumKind::Dax, setup, check)
        .reserve(new)
        .start(7)
        .op("grow", move |pool| Ok(pool.grow(new)?), |_: &mut u64| {})
        .longest(1)
        .budget(little)
        .nested(0, little)
        .run();
    report.assert_clean();
    assert!(report.instants > 4 && report.images > 100, "{report}");
}
