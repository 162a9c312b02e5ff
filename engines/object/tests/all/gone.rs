//! Pointers read before others freed what they lead to: a conflict, and no verdict.

use std::cell::Cell;

use crate::common::{create, pattern, put};
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

#[test]
fn an_object_that_is_gone_since_its_pointer_was_read_is_a_conflict() {
    // In a place among others, and in chunks of its own, which are free again at once.
    for len in [100, 9000, 40_000] {
        let pool = create(MediumKind::Shm);
        let first = put(&pool, &pattern(3, len));
        let link = pool.run(|tx| tx.alloc(first)).unwrap();
        let times = Cell::new(0);
        let seen = pool
            .run(|tx| {
                times.set(times.get() + 1);
                let object = tx.read(link)?;
                if times.get() == 1 {
                    std::thread::scope(|scope| {
                        let replace = || {
                            pool.run(|tx| {
                                let fresh =
                                    tx.alloc_bytes(holdfast_layout::TypeNumber::BYTES, 8)?;
                                tx.update(link, |link| *link = fresh)?;
                                tx.free(object)
                            })
                        };
                        scope.spawn(replace).join().unwrap()
                    })
                    .unwrap();
                }
                let mut bytes = [7; 8];
                tx.read_start(object, &mut bytes)?;
                Ok(bytes)
            })
            .unwrap();
        assert_eq!((seen, times.get()), ([0; 8], 2), "{len}");
    }
}
