//! Every field of every table, damaged in eight ways: without a fitting checksum the damage is
//! detected; with one (a buggy or hostile writer) the result is refused or bounded.

mod support;

use holdfast_layout::format::{self, PAGE_LEN};
use holdfast_layout::mirrored::{self, MirroredPage};
use holdfast_layout::{
    Certify, Field, Region, RegionKind, Superblock, SuperblockError, region, remap,
};
use support::{FRAME, Rng, SIZE, VERBS, Verb};

const SEED: u32 = 0x5eed;

/// Calls `test` with each field damaged by each verb, unless the verb left the bytes as they were.
/// Returns how many damages were tried.
fn each_damage(
    page: &[u8],
    at: usize,
    fields: &[Field],
    mut test: impl FnMut(&Field, Verb, Vec<u8>),
) -> usize {
    let mut tried = 0;
    for field in fields {
        for verb in VERBS {
            let mut bad = page.to_vec();
            let start = at + field.at as usize;
            verb.apply(&mut bad[start..start + field.len as usize], field.at + 1);
            if bad != page {
                tried += 1;
                test(field, verb, bad);
            }
        }
    }
    tried
}

/// What must hold of any superblock that was accepted.
fn assert_bounded(s: &Superblock) {
    assert!(s.size <= 1 << 47 && s.size >= 2 * s.side_len);
    assert!(s.frame.is_power_of_two() && s.frame >= 4096 && s.chunk.is_power_of_two());
    assert!(format::EVENTS_START + s.events_len <= s.log_start);
    assert!((2..=1024).contains(&s.lanes));
    assert!(s.log_start + u64::from(s.lanes) * s.ring_len <= s.side_len);
    assert!(s.parity <= 2 && (1..=2).contains(&s.copies) && (2..=254).contains(&s.rows));
    assert!(s.label.chars().count() <= 64);
    assert_eq!(s.incompatible & !format::INCOMPATIBLE_KNOWN, 0);
}

/// What must hold of any region table that was accepted.
fn assert_regions_bounded(regions: &[Region], size: u64) {
    let mut next = 0;
    for r in regions {
        assert!(r.start >= next && r.len > 0);
        next = r.start.checked_add(r.len).expect("bounded");
        assert!(next <= size);
        if r.kind == RegionKind::Zone {
            let rows = u64::from(r.data_rows) + u64::from(r.parity_rows);
            assert!(r.data_rows > 0 && r.parity_rows <= 2);
            assert!(r.row_len.checked_mul(rows).expect("bounded") <= r.len);
            assert!(r.chunk.is_power_of_two());
        }
    }
}

#[test]
fn fields_follow_each_other_and_fill_their_structure() {
    let tables: [(&[Field], usize); 4] = [
        (format::FIELDS_SUPERBLOCK, PAGE_LEN),
        (format::FIELDS_MIRRORED, format::MIRRORED_LEN),
        (format::FIELDS_REGION, format::REGION_LEN),
        (format::FIELDS_REMAP, format::REMAP_LEN),
    ];
    for (fields, len) in tables {
        let end = fields.iter().fold(0, |at, f| {
            assert_eq!(f.at, at, "{} starts where the field before it ends", f.name);
            f.at + f.len
        });
        assert_eq!(end, len as u64);
    }
}

#[test]
fn a_damaged_superblock_is_detected() {
    let page = support::superblock().encode();
    let tried = each_damage(&page, 0, format::FIELDS_SUPERBLOCK, |field, verb, bad| {
        let found = Superblock::decode(&bad, Certify::when(true));
        match field.name {
            "magic" => assert_eq!(found, Err(SuperblockError::NotAPool), "{verb:?}"),
            name => assert!(
                matches!(found, Err(SuperblockError::Corrupt { .. })),
                "{name} {verb:?}: {found:?}"
            ),
        }
    });
    assert!(tried > 6 * format::FIELDS_SUPERBLOCK.len());
}

#[test]
fn a_damaged_superblock_with_a_fitting_sum_is_refused_or_bounded() {
    let page = support::superblock().encode();
    let mut refused = 0;
    let tried = each_damage(&page, 0, format::FIELDS_SUPERBLOCK, |_, _, mut bad| {
        support::seal_superblock(&mut bad);
        match Superblock::decode(&bad, Certify::when(true)) {
            Ok(s) => assert_bounded(&s),
            Err(_) => refused += 1,
        }
    });
    assert!(refused > tried / 3, "{refused} of {tried} refused: the bounds do not bite");
}

#[test]
fn a_damaged_mirrored_page_is_detected() {
    let body = region::encode(&support::regions());
    let page = mirrored::encode(SEED, format::REGIONS_PAGE, format::KIND_REGIONS, 9, 5, &body);
    let decode = |bytes: &[u8]| {
        mirrored::decode(
            SEED,
            format::REGIONS_PAGE,
            format::KIND_REGIONS,
            bytes,
            Certify::when(true),
        )
    };
    assert!(decode(&page).is_some());
    each_damage(&page, 0, format::FIELDS_MIRRORED, |field, verb, bad| {
        assert_eq!(decode(&bad), None, "{} {verb:?}", field.name);
    });
    for entry in 0..5 {
        let at = format::MIRRORED_LEN + entry * format::REGION_LEN;
        each_damage(&page, at, format::FIELDS_REGION, |field, verb, bad| {
            assert_eq!(decode(&bad), None, "entry {entry} {} {verb:?}", field.name);
        });
    }
}

#[test]
fn a_page_at_the_wrong_place_or_of_another_pool_is_detected() {
    let page = mirrored::encode(SEED, format::REMAP_PAGE, format::KIND_REMAP, 1, 0, &[]);
    let decode =
        |seed, place, kind| mirrored::decode(seed, place, kind, &page, Certify::when(true));
    assert!(decode(SEED, format::REMAP_PAGE, format::KIND_REMAP).is_some());
    assert_eq!(decode(SEED + 1, format::REMAP_PAGE, format::KIND_REMAP), None);
    assert_eq!(decode(SEED, format::REGIONS_PAGE, format::KIND_REMAP), None);
    assert_eq!(decode(SEED, format::REMAP_PAGE, format::KIND_REGIONS), None);
}

#[test]
fn a_damaged_region_entry_is_refused_or_bounded() {
    let regions = support::regions();
    let body = region::encode(&regions);
    let mut refused = 0;
    for entry in 0..regions.len() {
        each_damage(&body, entry * format::REGION_LEN, format::FIELDS_REGION, |_, _, bad| {
            match region::decode(&bad, regions.len() as u32, SIZE) {
                Ok(found) => assert_regions_bounded(&found, SIZE),
                Err(_) => refused += 1,
            }
        });
    }
    assert!(refused > 50, "only {refused} refused");
}

#[test]
fn chunks_are_at_least_a_page_and_at_most_all_rows() {
    let decoded = |chunk: u64| {
        let zones = support::regions().into_iter();
        let regions: Vec<Region> = zones.map(|region| Region { chunk, ..region }).collect();
        region::decode(&region::encode(&regions), regions.len() as u32, SIZE)
    };
    let rows = 102 * FRAME;
    assert!(decoded(PAGE_LEN as u64).is_ok() && decoded(FRAME).is_ok());
    for chunk in [0, PAGE_LEN as u64 / 2, 3 * PAGE_LEN as u64, rows.next_power_of_two()] {
        let error = decoded(chunk).expect_err("impossible");
        assert_eq!(error.what, "impossible chunk length", "{chunk}");
    }
}

#[test]
fn a_damaged_remap_entry_is_refused_or_bounded() {
    let remaps = support::remaps();
    let body = remap::encode(&remaps);
    for entry in 0..remaps.len() {
        each_damage(&body, entry * format::REMAP_LEN, format::FIELDS_REMAP, |_, _, bad| {
            for r in remap::decode(&bad, remaps.len() as u32, FRAME, SIZE).unwrap_or_default() {
                assert!(r.frame + FRAME <= SIZE && r.physical + FRAME <= SIZE);
                assert!(r.frame % FRAME == 0 && r.physical % FRAME == 0 && r.frame != r.physical);
            }
        });
    }
}

#[test]
fn anything_may_be_decoded() {
    let mut rng = Rng(1);
    for round in 0..4000_usize {
        let len = if round % 4 == 0 { rng.next() as usize % 5000 } else { PAGE_LEN };
        let mut page: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let count = rng.next() as u32 >> (rng.next() % 32);
        let _ = Superblock::decode(&page, Certify::when(true));
        assert_eq!(
            mirrored::decode(SEED, 0, format::KIND_INTENT, &page, Certify::when(true)),
            None
        );
        if let Ok(regions) = region::decode(&page, count, SIZE) {
            assert_regions_bounded(&regions, SIZE);
        }
        let _ = remap::decode(&page, count, 1 << (rng.next() % 64), rng.next());
        let _ = remap::decode(&page, count, 0, SIZE);
        if len == PAGE_LEN {
            // Past the gate of magic, version and sum, with everything after them random.
            page[..8].copy_from_slice(&format::MAGIC);
            page[12..16].copy_from_slice(&format::VERSION.to_le_bytes());
            page[56..64].fill(0);
            support::seal_superblock(&mut page);
            if let Ok(s) = Superblock::decode(&page, Certify::when(true)) {
                assert_bounded(&s);
            }
        }
    }
}

#[test]
fn a_page_of_a_future_version_says_so() {
    let mut page = support::superblock().encode();
    page[12] = 9;
    support::seal_superblock(&mut page);
    assert_eq!(
        Superblock::decode(&page, Certify::when(true)),
        Err(SuperblockError::NewerVersion(9))
    );
    let mut page = support::superblock().encode();
    page[63] = 0x80;
    support::seal_superblock(&mut page);
    assert_eq!(
        Superblock::decode(&page, Certify::when(true)),
        Err(SuperblockError::UnknownFeatures(1 << 63))
    );
    assert_eq!(
        Superblock::decode(&page[..4095], Certify::when(true)),
        Err(SuperblockError::NotAPool),
        "a short page is no superblock"
    );
}

#[test]
fn mirrored_pages_cut_what_does_not_fit() {
    let body = vec![1; PAGE_LEN];
    let page = mirrored::encode(SEED, 0, format::KIND_INTENT, 1, 2, &body);
    assert_eq!(page.len(), PAGE_LEN);
    let MirroredPage { body, .. } =
        mirrored::decode(SEED, 0, format::KIND_INTENT, &page, Certify::when(true)).expect("valid");
    assert_eq!(body.len(), PAGE_LEN - format::MIRRORED_LEN);
}

/// One lane is the engine's own: in a pool with no other every transaction would wait for ever.
#[test]
fn a_pool_without_lanes_for_users_is_refused() {
    for lanes in [0, 1] {
        let page = Superblock { lanes, ..support::superblock() }.encode();
        let refused = Superblock::decode(&page, Certify::when(true));
        let value = lanes.into();
        assert_eq!(refused, Err(SuperblockError::BadField { field: "lanes", value }));
    }
}
