//! What the tests share: a generator, keys of several shapes, and the check for leaks.

pub(crate) mod counting;
pub(crate) mod failing;
pub(crate) mod pool;

use holdfast_collections::{CheckReport, Kind, Map};
use holdfast_txn::toy::ToyStore;
use holdfast_txn::{Isolation, Result, Store};
pub(crate) use holdfast_workloads::Rng;

/// A transaction of the store under the tests.
pub(crate) type Tx = <ToyStore as Store>::Tx<'static>;
/// The map under test: all others are this one with other types.
pub(crate) type Bytes = Map<[u8], [u8]>;

/// All structures.
pub(crate) const KINDS: [Kind; 6] = Kind::ALL;

/// Runs a transaction that has to commit.
pub(crate) fn run<R>(store: &ToyStore, body: impl FnMut(&Tx) -> Result<R>) -> R {
    store.run(Isolation::Serializable, body).expect("committed")
}

/// What keys look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Eight random bytes.
    Words,
    /// Decimal numbers after a word: eight bytes in common and more.
    Names,
    /// Few letters, zeros among them, of any short length: many starts of each other.
    Starts,
    /// Paths with hundreds of bytes in common, some longer than an entry read in one piece.
    Long,
    /// Numbers in ascending order.
    Ascending,
}

/// All of them.
pub(crate) const SHAPES: [Shape; 5] =
    [Shape::Words, Shape::Names, Shape::Starts, Shape::Long, Shape::Ascending];

impl Shape {
    /// Key number `n` of this shape: always the same.
    #[expect(clippy::big_endian_bytes, reason = "ascending keys have to be in ascending order")]
    pub(crate) fn key(self, n: u64) -> Vec<u8> {
        let mut rng = Rng::new(n);
        match self {
            Self::Words => rng.next_u64().to_le_bytes().to_vec(),
            Self::Names => format!("user:{n:010}").into_bytes(),
            Self::Starts => {
                (0..rng.below(14)).map(|_| [0, b'a', b'b'][rng.below(3) as usize]).collect()
            }
            Self::Long => {
                let mut key = vec![b'/'; [20, 23, 24, 40, 490, 700][n as usize % 6]];
                key.extend_from_slice(format!("{:04}/", n / 50).as_bytes());
                key.extend_from_slice(format!("{n}").as_bytes());
                key
            }
            Self::Ascending => n.to_be_bytes().to_vec(),
        }
    }
}

/// The sound report of a check whose objects are all that is live in the store.
pub(crate) fn check_no_leak(store: &ToyStore, map: Bytes) -> CheckReport {
    let report = run(store, |tx| map.check(tx));
    assert_eq!(report.findings, Vec::<String>::new());
    let mut reached: Vec<u64> = report.objects.iter().map(|object| object.offset()).collect();
    reached.sort_unstable();
    assert_eq!(reached, store.live(), "objects leaked or shared");
    report
}
