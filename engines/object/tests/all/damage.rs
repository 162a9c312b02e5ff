//! Damage of every kind of place is found and repaired while the pool is in use, and what is
//! beyond the redundancy is named and contained.

use crate::common::{clock, crash, create_with, get, pattern, put};
use holdfast_faultmem::Clear;
use holdfast_layout::{RawPtr, RegionKind};
use holdfast_object::{
    CreateOptions, OpenOptions, Parity, Pool, ScrubControl, ScrubOptions, VerifyReads,
};
use holdfast_pmem::{Medium, MediumKind};

struct Filled {
    pool: crate::common::TestPool,
    objects: Vec<(RawPtr, Vec<u8>)>,
}

fn filled(kind: MediumKind, parity: Parity) -> Filled {
    let options = CreateOptions { parity, ..CreateOptions::tiny(2 << 20) };
    let pool = create_with(kind, &options);
    pool.set_verify_reads(VerifyReads::Always);
    let sizes = [48, 64, 200, 512, 1000, 1500, 3000, 5000, 20_000];
    let mut objects = Vec::new();
    for i in 0..90_u64 {
        let bytes = pattern(i + 1, sizes[i as usize % sizes.len()]);
        objects.push((put(&pool, &bytes), bytes));
    }
    Filled { pool, objects }
}

impl Filled {
    fn all_right(&self) {
        for (p, bytes) in &self.objects {
            assert_eq!(&get(&self.pool, *p).unwrap(), bytes, "{p}");
        }
    }

    fn scrub(&self) -> holdfast_object::Scrubbed {
        let control = ScrubControl::default();
        self.pool.scrub(ScrubOptions::default(), &control, |_, _| {}).unwrap()
    }

    fn zone(&self) -> holdfast_layout::Region {
        let zones = self.pool.regions();
        *zones.iter().find(|r| r.kind == RegionKind::Zone).unwrap()
    }
}

#[test]
fn a_clean_pool_has_no_findings() {
    for kind in [MediumKind::Shm, MediumKind::File] {
        for parity in [Parity::None, Parity::P, Parity::PQ] {
            let f = filled(kind, parity);
            let report = f.pool.check(|_, _| {}).unwrap();
            assert!(report.is_clean(), "{kind} {parity:?}: {:?}", report.findings);
            assert_eq!(report.objects, 91, "with the anchor");
            f.all_right();
        }
    }
}

#[test]
fn stray_writes_over_objects_are_repaired_by_the_read_that_meets_them() {
    for parity in [Parity::P, Parity::PQ] {
        let f = filled(MediumKind::Shm, parity);
        for (i, (p, bytes)) in f.objects.iter().enumerate() {
            let at = p.offset() + (i as u64 * 7) % bytes.len() as u64;
            f.pool.medium().stray(at, &[!bytes[(at - p.offset()) as usize]]).unwrap();
            assert_eq!(&get(&f.pool, *p).unwrap(), bytes, "{p}");
        }
        assert_eq!(f.pool.stats().repaired, 90);
        assert!(f.pool.check(|_, _| {}).unwrap().is_clean());
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_zone_is_found_and_repaired_by_scrub() {
    for parity in [Parity::P, Parity::PQ] {
        let f = filled(MediumKind::Shm, parity);
        let zone = f.zone();
        let mut at = zone.start + 5;
        let mut flips = 0;
        while at < zone.start + zone.row_len * u64::from(zone.data_rows + zone.parity_rows) {
            f.pool.medium().flip_bit(at, (at % 8) as u8).unwrap();
            let done = f.scrub();
            assert_eq!((done.lost, done.repaired > 0), (0, true), "{at:#x}");
            at += 30_011;
            flips += 1;
        }
        assert!(flips > 30);
        f.all_right();
        assert!(f.pool.check(|_, _| {}).unwrap().is_clean());
    }
}

#[test]
fn wiped_slots_and_directory_entries_are_damage_and_not_free_space() {
    let f = filled(MediumKind::Shm, Parity::P);
    let zone = f.zone();
    f.pool.medium().stray(zone.start, &[0; 256]).unwrap();
    let first_chunk = holdfast_heap::ZoneTable::new(0, &zone).chunks_at();
    f.pool.medium().stray(first_chunk, &[0; 512]).unwrap();
    assert_eq!(f.scrub().lost, 0);
    f.all_right();
    assert!(f.pool.check(|_, _| {}).unwrap().is_clean());
}

#[test]
fn bytes_that_no_sum_covers_are_left_to_their_columns() {
    for parity in [Parity::P, Parity::PQ] {
        let pool = filled(MediumKind::Shm, parity).pool;
        let bytes = pattern(7, 1300);
        let of = put(&pool, &bytes);
        // The place is longer than the object: what is behind it may be another row's fault.
        let behind = of.offset() + 1304;
        pool.medium().stray(behind, &[0x5a; 8]).unwrap();
        pool.medium().flip_bit(of.offset() + 1100, 2).unwrap();
        assert_eq!(get(&pool, of).unwrap(), bytes);
        let mut found = [0; 8];
        pool.medium().read(behind, &mut found).unwrap();
        // P alone cannot tell whose fault it is, and everything verifies.
        assert_eq!(found == [0x5a; 8], parity == Parity::P);
        assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{parity:?}");
    }
}

#[test]
fn a_stray_write_beyond_the_end_of_an_object_leaves_nothing_behind() {
    for parity in [Parity::P, Parity::PQ] {
        let pool =
            create_with(MediumKind::Shm, &CreateOptions { parity, ..CreateOptions::tiny(1 << 20) });
        let objects: Vec<(RawPtr, Vec<u8>)> =
            (0..100).map(|i| pattern(i, 1100)).map(|bytes| (put(&pool, &bytes), bytes)).collect();
        let regions = pool.regions();
        let zone = regions.iter().find(|r| r.kind == RegionKind::Zone).unwrap();
        let col = |at: u64| (at - zone.start) % zone.row_len;
        // One object, and another that lies over the columns of what is behind it.
        let behind = |a: RawPtr| col(a.offset() + 1112);
        let over = |a: RawPtr, b: RawPtr| {
            behind(a) >= col(b.offset()) && behind(a) < col(b.offset()) + 900
        };
        let pairs = objects.iter().flat_map(|a| objects.iter().map(move |b| (a, b)));
        let (a, b) = { pairs }.find(|(a, b)| a.0 != b.0 && over(a.0, b.0)).unwrap();
        pool.medium().stray(a.0.offset() + 1060, &[0xaa; 100]).unwrap();
        assert_eq!(get(&pool, a.0).unwrap(), a.1);
        assert!(pool.check(|_, _| {}).unwrap().is_clean(), "{parity:?}");
        let second = b.0.offset() + behind(a.0) - col(b.0.offset());
        pool.medium().stray(second, &[0x55; 8]).unwrap();
        assert_eq!(get(&pool, b.0).unwrap(), b.1, "{parity:?}");
    }
}

#[test]
fn bad_pages_are_healed_or_relocated() {
    for (clear, parity) in [
        (Clear::Able, Parity::P),
        (Clear::Unable, Parity::P),
        (Clear::Able, Parity::PQ),
        (Clear::Unable, Parity::PQ),
    ] {
        let f = filled(MediumKind::Shm, parity);
        // One frame is all a tiny pool can move; heal as many as we like.
        let count = if clear == Clear::Able { 40 } else { 1 };
        for i in 0..count {
            let (p, bytes) = &f.objects[i * 2];
            f.pool.medium().poison(p.offset() / 4096 * 4096, 4096, clear).unwrap();
            assert_eq!(&get(&f.pool, *p).unwrap(), bytes, "{p} {clear:?}");
        }
        f.all_right();
        let report = f.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{clear:?} {:?}", report.findings);
        let (pool, _) = crash(f.pool);
        for (p, bytes) in &f.objects {
            assert_eq!(&get(&pool, *p).unwrap(), bytes, "{p}");
        }
    }
}

#[test]
fn any_page_of_the_pool_may_go_bad() {
    let f = filled(MediumKind::Shm, Parity::P);
    let len = f.pool.medium().len();
    for page in (0..len).step_by(4096 * 3) {
        f.pool.medium().poison(page, 4096, Clear::Able).unwrap();
        let done = f.scrub();
        assert_eq!(done.lost, 0, "page {page:#x}: {:?}", done.report.findings);
    }
    f.all_right();
    let report = f.pool.check(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn two_rows_of_a_column_are_rebuilt_with_q_and_named_without() {
    for parity in [Parity::P, Parity::PQ] {
        let f = filled(MediumKind::Shm, parity);
        let zone = f.zone();
        let col = 4096 * 3;
        for row in [0, 1] {
            f.pool
                .medium()
                .poison(zone.start + row * zone.row_len + col, 4096, Clear::Able)
                .unwrap();
        }
        let done = f.scrub();
        let wrong = f.objects.iter().filter(|(p, bytes)| match get(&f.pool, *p) {
            Ok(found) => {
                assert_eq!(&found, bytes, "never silently wrong");
                false
            }
            Err(_) => true,
        });
        let lost = wrong.count();
        if parity == Parity::PQ {
            assert_eq!((done.lost, lost), (0, 0));
        } else {
            assert!(done.lost > 0 && lost > 0 && lost < 30, "{} {lost}", done.lost);
        }
    }
}

#[test]
fn damage_met_at_open_is_repaired_too() {
    let f = filled(MediumKind::Shm, Parity::P);
    let (p, bytes) = f.objects[10].clone();
    let image = f.pool.medium().crash_point().persisted();
    drop(f.pool);
    let m = holdfast_faultmem::FaultMedium::from_crash(
        image,
        MediumKind::Shm,
        &holdfast_faultmem::Config::default(),
    );
    m.poison(0, 4096, Clear::Able).unwrap();
    m.poison(p.offset() / 4096 * 4096, 4096, Clear::Able).unwrap();
    let (pool, opened) = Pool::open(m, OpenOptions::default(), clock()).unwrap();
    // The object's page may be repaired by the replay of what lies on it.
    assert!(opened.mended + opened.recovered.cured >= 2, "{opened:?}");
    assert_eq!(get(&pool, p).unwrap(), bytes);
}

#[test]
fn damage_in_two_columns_of_one_object_is_repaired_in_each() {
    for parity in [Parity::P, Parity::PQ] {
        let f = filled(MediumKind::Shm, parity);
        // The slots of a run lie on the first page of its chunk; its objects mostly on others.
        let zone = f.zone();
        let chunk = f.pool.superblock().chunk;
        let chunks_at = holdfast_heap::ZoneTable::new(0, &zone).chunks_at();
        let (p, bytes) = f
            .objects
            .iter()
            .find(|(p, b)| b.len() < 2000 && (p.offset() - chunks_at) % chunk > 4096)
            .unwrap();
        let slots = chunks_at + (p.offset() - chunks_at) / chunk * chunk;
        f.pool.medium().stray(p.offset() + 3, &[!bytes[3]]).unwrap();
        f.pool.medium().poison(slots / 4096 * 4096, 4096, Clear::Able).unwrap();
        assert_eq!(&get(&f.pool, *p).unwrap(), bytes);
        assert_eq!(f.pool.stats().lost, 0);
        f.all_right();
        let report = f.pool.check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{parity:?} {p} {slots:#x} {:?}", report.findings);
    }
}

#[test]
fn a_lost_write_of_a_slot_is_undone_where_q_locates_it() {
    use holdfast_faultmem::{FaultKind, When};
    let f = filled(MediumKind::Shm, Parity::PQ);
    let (p, _) = f.objects[2].clone();
    let zone = f.zone();
    let table = holdfast_heap::ZoneTable::new(0, &zone);
    let chunk = table.chunk_of(p.offset()).unwrap();
    // The write that makes the next object of this size live is lost: its slot stays free.
    let slots = table.chunk_at(chunk);
    f.pool.medium().arm(FaultKind::Lost, When::touching(slots, 512));
    let bytes = pattern(77, 200);
    let q = put(&f.pool, &bytes);
    assert!(f.pool.medium().injected().len() <= 1);
    let done = f.scrub();
    assert_eq!(done.lost, 0);
    assert_eq!(get(&f.pool, q).unwrap(), bytes);
    f.all_right();
    assert!(f.pool.check(|_, _| {}).unwrap().is_clean());
}
