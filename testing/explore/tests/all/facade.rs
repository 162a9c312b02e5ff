//! A structure that a program keeps in a pool of the facade, explored through `create_on` and
//! `open_on`: a word moved in one transaction is always somewhere, in two it is lost in between.

use holdfast::{NamedMap, Options, Pool, VerifyReads};
use holdfast_explore::{Budget, Explorer, MediumKind, Shared, Verdict};

const PAGES: u64 = 128;

/// Where words are, by their numbers.
type Places = NamedMap<u64, u64, Shared>;

/// The smallest pools are explored soonest.
fn options() -> Options {
    let small = Pool::options().size(PAGES * 4096).rows(8).frame(4096).chunk(8192).lanes(4);
    let small = small.log(5 * 8192).events(4096).uuid(Some([7; 16]));
    small.verify_reads(VerifyReads::Always)
}

/// The structure in use.
struct Words {
    pool: Pool<Shared>,
    places: Places,
}

impl Words {
    fn open(pool: Pool<Shared>) -> Verdict<Self> {
        let places = pool.map("places")?;
        Ok(Self { pool, places })
    }

    /// Moves the word at `from` to `to`.
    fn rename(&self, from: u64, to: u64, at_once: bool) -> Verdict {
        let Some(place) = self.places.get(&from)? else { return Ok(()) };
        if at_once {
            return Ok(self.pool.run(|tx| {
                self.places.map().remove(tx, &from)?;
                self.places.map().put(tx, &to, &place)?;
                Ok(())
            })?);
        }
        self.places.remove(&from)?;
        self.places.put(&to, &place)?;
        Ok(())
    }

    fn held(&self) -> Verdict<Vec<(u64, u64)>> {
        let numbers = 0..4;
        let both = numbers.map(|number| Ok(self.places.get(&number)?.map(|place| (number, place))));
        Ok(both.collect::<Verdict<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

fn explorer(name: &str, at_once: bool) -> Explorer<Words, Vec<(u64, u64)>> {
    let little = Budget { exhaustive: 16, singles: 8, pairs: 4, samples: 4, seed: 5 };
    Explorer::new(
        name,
        PAGES * 4096,
        MediumKind::Dax,
        |medium| Words::open(options().open_on(medium)?),
        |words, seen| seen.agree(&words.held()?),
    )
    .setup(|medium| {
        Words::open(options().create_on(medium)?)?.places.put(&1, &70)?;
        Ok(())
    })
    .start(vec![(1, 70)])
    .op(
        "1 to 2",
        move |words| words.rename(1, 2, at_once),
        |model: &mut Vec<_>| *model = vec![(2, 70)],
    )
    .longest(1)
    .budget(little)
    .nested(1, Budget { exhaustive: 2, singles: 1, pairs: 0, samples: 1, seed: 5 })
}

#[test]
fn one_transaction_is_all_or_nothing() {
    let report = explorer("facade", true).run();
    report.assert_clean();
    assert!(report.images > 20 && report.nested[0] > 20, "{report}");
}

#[test]
fn a_word_that_is_moved_in_two_transactions_is_lost_in_between() {
    let report = explorer("facade-two-transactions", false).run();
    let failure = report.failure.expect("it is nowhere in between");
    assert_eq!(failure.why, "recovered [], acknowledged [(1, 70)] or [(2, 70)]");
}
