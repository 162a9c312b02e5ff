//! Power cuts at every barrier: what was committed is there, what was not is not, and the pool is
//! clean; also when the power goes again during recovery.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{TestPool, clock, create, create_with, get, pattern, put, quick};
use crate::returning::cut;
use holdfast_faultmem::{Budget, Config, CrashPoint, FaultMedium};
use holdfast_layout::{RawPtr, TypeNumber};
use holdfast_object::{CreateOptions, Parity, Pool};
use holdfast_pmem::MediumKind;
use holdfast_txn::Transaction;

type State = BTreeMap<u64, (RawPtr, Vec<u8>)>;

/// What a crash may find: the state before the operation under way, or after it.
#[derive(Default)]
struct Expected {
    before: State,
    after: State,
    images: u64,
    nested: u64,
}

fn matches(pool: &TestPool, state: &State) -> Result<(), String> {
    for (p, bytes) in state.values() {
        match get(pool, *p) {
            Ok(found) if found == *bytes => {}
            Ok(_) => return Err(format!("{p} has other bytes")),
            Err(e) => return Err(format!("{p}: {e}")),
        }
    }
    let live = pool.space().objects;
    if live != state.len() as u64 + 1 {
        return Err(format!("{live} objects are live, {} expected", state.len() + 1));
    }
    Ok(())
}

fn verify(pool: &TestPool, before: &State, after: &State) {
    let report = pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    if let Err(not_after) = matches(pool, after) {
        let not_before = matches(pool, before);
        assert!(not_before.is_ok(), "neither after ({not_after}) nor before ({not_before:?})");
    }
}

fn budget(seed: u64, size: u64) -> Budget {
    let n = size as usize;
    Budget { exhaustive: size, singles: n, pairs: n / 4, samples: n, seed }
}

fn open_image(image: holdfast_faultmem::Image, kind: MediumKind) -> TestPool {
    let m = FaultMedium::from_crash(image, kind, &Config::default());
    Pool::open(m, quick(), clock()).unwrap().0
}

/// Opens every image of a point; now and then, crashes the recovery as well.
fn explore(point: &CrashPoint, kind: MediumKind, e: &mut Expected) {
    let some = if kind == MediumKind::File { 1 } else { 3 };
    for image in point.images(&budget(e.images, some)).take(some as usize * 12) {
        e.images += 1;
        if e.images.is_multiple_of(40) {
            let m = FaultMedium::from_crash(image, kind, &Config::default());
            let inner: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
            let points = Arc::clone(&inner);
            m.on_barrier(Box::new(move |_, _, point| points.lock().unwrap().push(point.clone())));
            let pool = Pool::open(m, quick(), clock()).unwrap().0;
            pool.medium().clear_on_barrier();
            verify(&pool, &e.before, &e.after);
            let points = core::mem::take(&mut *inner.lock().unwrap());
            for point in points.iter().step_by(4) {
                for image in point.images(&budget(e.nested, 2)).take(4) {
                    e.nested += 1;
                    verify(&open_image(image, kind), &e.before, &e.after);
                }
            }
        } else {
            verify(&open_image(image, kind), &e.before, &e.after);
        }
    }
}

enum Op {
    Put(u64, usize),
    Change(u64, u64, usize),
    Free(u64),
    Many(Vec<(u64, usize)>),
}

fn after(state: &State, op: &Op, made: &BTreeMap<u64, RawPtr>) -> State {
    let mut next = state.clone();
    let mut put = |k: u64, len| {
        let p = made.get(&k).copied().unwrap_or(RawPtr::NULL);
        next.insert(k, (p, pattern(k, len)));
    };
    match op {
        Op::Put(k, len) => put(*k, *len),
        Op::Many(all) => all.iter().for_each(|(k, len)| put(*k, *len)),
        Op::Change(k, at, len) => {
            if let Some((_, bytes)) = next.get_mut(k) {
                bytes[*at as usize..*at as usize + len].copy_from_slice(&pattern(at + 99, *len));
            }
        }
        Op::Free(k) => {
            next.remove(k);
        }
    }
    next
}

fn apply(pool: &TestPool, state: &State, op: &Op) -> BTreeMap<u64, RawPtr> {
    pool.run(|tx| {
        let mut made = BTreeMap::new();
        let mut put = |k: u64, len: usize| {
            let p = tx.alloc_bytes(TypeNumber::BYTES, len as u64)?;
            tx.write_bytes(p, 0, &pattern(k, len))?;
            made.insert(k, p);
            Ok(())
        };
        match op {
            Op::Put(k, len) => put(*k, *len)?,
            Op::Many(all) => all.iter().try_for_each(|(k, len)| put(*k, *len))?,
            Op::Change(k, at, len) => {
                tx.write_bytes(state[k].0, *at, &pattern(at + 99, *len))?;
            }
            Op::Free(k) => tx.free(state[k].0)?,
        }
        Ok(made)
    })
    .unwrap()
}

fn story(kind: MediumKind, ops: &[Op]) -> (u64, u64) {
    let pool = create(kind);
    let expected: Arc<Mutex<Expected>> = Arc::default();
    let mut state = State::new();
    for op in ops {
        {
            let mut e = expected.lock().unwrap();
            e.before = state.clone();
            e.after = state.clone();
        }
        let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&points);
        pool.medium()
            .on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
        let made = apply(&pool, &state, op);
        pool.medium().clear_on_barrier();
        let next = after(&state, op, &made);
        let mut e = expected.lock().unwrap();
        e.after = next.clone();
        // On a file every commit has sectors of all earlier ones in doubt: fewer points do.
        let step = if kind == MediumKind::File { 2 } else { 1 };
        for point in core::mem::take(&mut *points.lock().unwrap()).iter().step_by(step) {
            explore(point, kind, &mut e);
        }
        // Acknowledged: from now on nothing but the new state will do.
        e.before = next.clone();
        explore(&pool.medium().crash_point(), kind, &mut e);
        state = next;
    }
    let e = expected.lock().unwrap();
    (e.images, e.nested)
}

fn operations() -> [Op; 13] {
    [
        Op::Put(1, 100),
        Op::Put(2, 900),
        Op::Change(1, 8, 8),
        Op::Change(2, 0, 900),
        Op::Put(3, 3000),
        Op::Change(3, 1000, 1500),
        Op::Many(vec![(4, 64), (5, 200), (6, 2000)]),
        Op::Free(2),
        Op::Put(7, 20_000),
        Op::Change(7, 5000, 9000),
        Op::Free(3),
        Op::Free(7),
        Op::Put(8, 18_000),
    ]
}

#[test]
fn every_operation_is_all_or_nothing_at_every_drain() {
    let (images, nested) = story(MediumKind::Shm, &operations());
    println!("{images} images, {nested} nested");
    assert!(images > 500 && nested > 50, "{images} {nested}");
}

#[test]
fn every_operation_is_all_or_nothing_at_every_sync() {
    let (images, nested) = story(MediumKind::File, &operations());
    println!("{images} images, {nested} nested");
    assert!(images > 200 && nested > 0, "{images} {nested}");
}

/// Without parity nothing comes after the stores of a replay but the death of its records: they
/// have to be durable by then.
#[test]
fn a_replay_in_a_pool_without_parity_is_durable_before_its_records_are_dead() {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        let options = CreateOptions { parity: Parity::None, ..CreateOptions::tiny(1 << 20) };
        let pool = create_with(kind, &options);
        let (p, new) = (put(&pool, &pattern(1, 3_000)), pattern(2, 700));
        let image = cut(&pool, || pool.run(|tx| tx.write_bytes(p, 100, &new)).unwrap());
        let m = FaultMedium::from_crash(image, kind, &Config::default());
        let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&points);
        m.on_barrier(Box::new(move |_, _, point| sink.lock().unwrap().push(point.clone())));
        let (opened, open) = Pool::open(m, quick(), clock()).unwrap();
        opened.medium().clear_on_barrier();
        assert!(open.recovered.replayed > 0, "{kind}");
        let mut images = 0;
        for point in core::mem::take(&mut *points.lock().unwrap()) {
            for image in point.images(&budget(1, 12)).take(60) {
                let pool = open_image(image, kind);
                let found = get(&pool, p).unwrap();
                assert!(found[100..800] == new, "{kind} {:?}", point.barrier());
                images += 1;
            }
        }
        assert!(images > 20, "{kind}: {images} images");
    }
}
