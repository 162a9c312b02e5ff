//! Who asks for what is lost, and asks again, keeps nobody else from anything: all that lies over
//! its columns is tried once.

use crate::common::{TestPool, create_with, get, pattern, put};
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{CreateOptions, Parity, ScrubControl, ScrubOptions, VerifyReads};
use holdfast_pmem::MediumKind;
use holdfast_redundancy::Zone;

const LEN: u64 = 3_000;
/// Where one is damaged: behind its first granule, whose sum lies elsewhere.
const HURT: u64 = 1_500;

/// Two objects over one column of bytes.
fn pair(zone: &Zone, objects: &[(RawPtr, Vec<u8>)]) -> (usize, usize, u64) {
    let holds = |at: u64| {
        objects.iter().position(|(p, _)| (p.offset()..p.offset() + LEN - 16).contains(&at))
    };
    for (one, (p, _)) in objects.iter().enumerate() {
        let place = zone.place(p.offset() + HURT).unwrap();
        let others = (0..zone.data_rows()).filter(|row| *row != place.row);
        let found = others.map(|row| zone.at(row, place.col)).find_map(|at| Some((holds(at)?, at)));
        if let Some((other, at)) = found {
            return (one, other, at);
        }
    }
    panic!("no two of them");
}

/// Calls of the medium while an object is read that is lost.
fn calls(pool: &TestPool, of: RawPtr) -> u64 {
    let before = pool.medium().calls();
    get(pool, of).unwrap_err();
    pool.medium().calls() - before
}

#[test]
fn asking_again_for_what_is_lost_costs_next_to_nothing() {
    let options = CreateOptions { parity: Parity::P, rows: 40, ..CreateOptions::tiny(2 << 20) };
    let pool = create_with(MediumKind::Shm, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let bytes = (1..=200).map(|seed| pattern(seed, LEN as usize));
    let objects: Vec<(RawPtr, Vec<u8>)> = bytes.map(|bytes| (put(&pool, &bytes), bytes)).collect();
    let region = *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap();
    let zone = Zone::new(&region, 0).unwrap();
    let (one, other, at) = pair(&zone, &objects);
    let (of, bytes) = &objects[one];
    pool.medium().stray(of.offset() + HURT, &[0xa5; 16]).unwrap();
    pool.medium().stray(at, &[0x5a; 16]).unwrap();
    let (first, second) = (calls(&pool, *of), calls(&pool, *of));
    assert!(second * 3 < first, "{first} calls, and {second} the second time");
    // All else is there.
    for (p, bytes) in objects.iter().filter(|(p, _)| ![*of, objects[other].0].contains(p)) {
        assert_eq!(get(&pool, *p).as_ref().ok(), Some(bytes));
    }
    // Once the other is what it was, this one can be made good, by whoever asks.
    let inside = (at - objects[other].0.offset()) as usize;
    pool.medium().stray(at, &objects[other].1[inside..inside + 16]).unwrap();
    assert_eq!(get(&pool, *of).as_ref().ok(), Some(bytes));
    let control = ScrubControl::default();
    let done = pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap();
    assert_eq!((done.lost, done.undecided), (0, 0), "{:?}", done.report.findings);
}
