//! No leak after any crash, as a program sees it: everything hangs on the root by pointers, and
//! whatever a power cut leaves, what is allocated is what the root leads to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, create, pattern, quick};
use holdfast_faultmem::{Budget, Config, CrashPoint, FaultMedium};
use holdfast_heap::Heap;
use holdfast_heap::verify::Direct;
use holdfast_layout::{Persist, Ptr, RawPtr, RegionKind, TypeNumber};
use holdfast_object::{Pool, Tx};
use holdfast_oracle::reach::{Leaks, leaks, reachable};
use holdfast_pmem::MediumKind;
use holdfast_txn::{Result, Transaction};

/// A link of the chain that begins at the root.
#[derive(Debug, Clone, Copy, Persist)]
#[repr(C)]
#[persist(name = "leaks.link", version = 1)]
struct Link {
    next: RawPtr,
    payload: RawPtr,
    words: [u64; 4],
}

/// Hangs a new link with a payload of `len` bytes before all others.
fn push(tx: &Tx<'_, FaultMedium>, seed: u64, len: usize) -> Result<()> {
    let payload = tx.alloc_bytes(TypeNumber::BYTES, len as u64)?;
    tx.write_bytes(payload, 0, &pattern(seed, len))?;
    let next = tx.root::<Link>()?.raw();
    let link = tx.alloc(Link { next, payload, words: [seed; 4] })?;
    tx.set_root(link)
}

/// Takes the first link down and frees it and its payload.
fn pop(tx: &Tx<'_, FaultMedium>) -> Result<()> {
    let first = tx.root::<Link>()?;
    let link = tx.read(first)?;
    tx.free(link.payload)?;
    tx.free(first.raw())?;
    tx.set_root(link.next.typed::<Link>())
}

/// Gives the second link another payload.
fn replace(tx: &Tx<'_, FaultMedium>, seed: u64, len: usize) -> Result<()> {
    let second: Ptr<Link> = tx.read(tx.root::<Link>()?)?.next.typed();
    let old = tx.read(second)?.payload;
    let payload = tx.alloc_bytes(TypeNumber::BYTES, len as u64)?;
    tx.write_bytes(payload, 0, &pattern(seed, len))?;
    tx.open_mut(second)?.payload = payload;
    tx.free(old)
}

type Step = fn(&Tx<'_, FaultMedium>) -> Result<()>;

/// Small and large ones, in runs and in chunks of their own, come, go and come again.
const STEPS: &[Step] = &[
    |tx| push(tx, 1, 64),
    |tx| push(tx, 2, 3_000),
    |tx| push(tx, 3, 20_000),
    |tx| replace(tx, 4, 9_000),
    pop,
    |tx| replace(tx, 5, 40),
    |tx| push(tx, 6, 20_000),
    pop,
    |tx| push(tx, 7, 700),
];

/// Every live object, by the slots on the medium as a heap that knows nothing reads them.
fn allocated(pool: &TestPool) -> BTreeSet<RawPtr> {
    let (m, superblock) = (pool.medium(), pool.superblock());
    let heap = Heap::new(superblock.seed(), superblock.sum_kind);
    for region in pool.regions().iter().filter(|r| r.kind == RegionKind::Zone) {
        let zone = heap.add_zone(region).unwrap();
        assert!(heap.load_zone(&Direct(m), zone).is_empty());
    }
    let mut live = BTreeSet::new();
    heap.for_each_live(
        m,
        &mut |spot, slot| {
            live.insert(RawPtr::new(spot.object, slot.generation));
        },
        &mut |spot, error| panic!("slot {:#x}: {error}", spot.slot),
    );
    live
}

/// What is allocated and not led to by the root, and the other way round.
fn lost_and_dangling(pool: &TestPool) -> Leaks<RawPtr> {
    let allocated = allocated(pool);
    let anchor = RawPtr::from_word(pool.superblock().anchor);
    let root = pool.root::<Link>().unwrap().raw();
    let reached = reachable([anchor, root], 1_000, |of| {
        let known = allocated.contains(of) && *of != anchor;
        if !known || pool.run(|tx| tx.type_of(*of)).unwrap() != Link::TYPE {
            return Ok::<_, String>(Vec::new());
        }
        let link = pool.read(of.typed::<Link>()).map_err(|error| error.to_string())?;
        Ok(vec![link.next, link.payload])
    });
    let mut reached = reached.unwrap();
    reached.remove(&RawPtr::NULL);
    leaks(&allocated, &reached)
}

#[test]
fn whatever_a_crash_leaves_is_what_the_root_leads_to() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        let pool = create(kind);
        let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&points);
        pool.medium()
            .on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
        for step in STEPS {
            pool.run(step).unwrap();
            assert!(lost_and_dangling(&pool).none());
        }
        pool.medium().clear_on_barrier();
        let points = std::mem::take(&mut *points.lock().unwrap());
        let budget = Budget { exhaustive: 4, singles: 6, pairs: 2, samples: 6, seed: 1 };
        let mut images = 0;
        for point in &points {
            for image in point.images(&budget).take(16) {
                let m = FaultMedium::from_crash(image, kind, &Config::default());
                let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
                let found = lost_and_dangling(&pool);
                assert!(found.none(), "{kind} {:?}: {found:?}", point.barrier());
                images += 1;
            }
        }
        assert!(images > 200, "{kind}: {images} images");
    }
}

#[test]
fn what_nothing_leads_to_is_seen() {
    let pool = create(MediumKind::Shm);
    pool.run(STEPS[0]).unwrap();
    let orphan = pool.run(|tx| tx.alloc_bytes(TypeNumber::BYTES, 500)).unwrap();
    assert_eq!(lost_and_dangling(&pool), Leaks { leaked: vec![orphan], dangling: vec![] });
    pool.run(|tx| tx.free(orphan)).unwrap();
    let payload = pool.read(pool.root::<Link>().unwrap()).unwrap().payload;
    pool.run(|tx| tx.free(payload)).unwrap();
    assert_eq!(lost_and_dangling(&pool), Leaks { leaked: vec![], dangling: vec![payload] });
}
