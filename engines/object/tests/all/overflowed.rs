//! Chunks of the heap that a record overflowed to: they are free again once it is not needed, also
//! if that cannot be done at once.

use crate::common::{create, pattern, put};
use crate::erased::{Filled, overflow};
use holdfast_faultmem::FailMode;
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

/// Calls of the medium that freeing them takes are fewer.
const CALLS: u64 = 40;

#[test]
fn chunks_that_cannot_be_freed_at_once_are_freed_later() {
    let (mut kept, mut stopped) = (0, 0);
    for nth in 1..CALLS {
        let pool = create(MediumKind::Shm);
        let bytes = pattern(1, 20_000);
        let objects = vec![(put(&pool, &bytes), bytes)];
        let mut f = Filled { pool, objects };
        let free = f.pool.space().free_chunks;
        // From then on all is done that the change needs.
        overflow(&mut f, "object.commit.step-done", move |pool| {
            pool.medium().fail_nth(pool.medium().calls() + nth, FailMode::Forever);
        });
        f.pool.medium().fail_none();
        if f.pool.is_read_only() {
            stopped += 1;
            continue;
        }
        kept += u32::from(f.pool.space().free_chunks < free);
        f.pool.run(|tx| tx.write_bytes(f.objects[0].0, 0, &[7; 8])).unwrap();
        assert_eq!(f.pool.space().free_chunks, free, "call {nth}");
    }
    assert!(kept > 0, "none of them was refused; writing ended {stopped} times");
}
