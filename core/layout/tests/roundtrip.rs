//! Encoding and decoding are inverses on valid values, for all tables, numbers and pointers.

mod support;

use holdfast_layout::{
    Certify, LogPlacement, Ptr, RawPtr, Region, RegionKind, Remap, SumKind, Superblock, bytes,
    format, mirrored, region, remap,
};
use proptest::prelude::*;

prop_compose! {
    fn geometry()(
        frame_bits in 12_u32..=30,
        frames in 1_u64..8,
        events in 1_u64..16,
        lanes in 2_u32..=64,
        ring in 1_u64..16,
        extra in 0_u64..1000,
    ) -> Superblock {
        let frame = 1 << frame_bits;
        let log_start = format::EVENTS_START + events * 4096;
        let ring_len = ring * 4096;
        let least = log_start + u64::from(lanes) * ring_len;
        let side_len = least.next_multiple_of(frame) + (frames - 1) * frame;
        Superblock {
            size: 2 * side_len + extra * 4096,
            frame,
            side_len,
            events_len: events * 4096,
            log_start,
            ring_len,
            lanes,
            ..support::superblock()
        }
    }
}

prop_compose! {
    fn any_superblock()(
        base in geometry(),
        words in any::<[u64; 5]>(),
        uuid in any::<[u8; 16]>(),
        chunk_bits in 12_u32..=30,
        parity in 0_u32..=2,
        copies in 1_u32..=2,
        flags in any::<[bool; 3]>(),
        sum in 0_u32..3,
        rows in 2_u32..=254,
        label in "[a-z\u{e4}]{0,32}",
    ) -> Superblock {
        Superblock {
            sequence: words[0] >> 2,
            compatible: words[1],
            read_only_compatible: words[2],
            log_generation: words[3] >> 2,
            anchor: words[4],
            incompatible: words[0] & format::INCOMPATIBLE_KNOWN,
            uuid,
            chunk: 1 << chunk_bits,
            parity,
            copies,
            clean: flags[0],
            allow_inject: flags[1],
            log_placement: if flags[2] { LogPlacement::Apart } else { LogPlacement::Adjacent },
            sum_kind: SumKind::from_code(sum).expect("a known code"),
            rows,
            label,
            ..base
        }
    }
}

prop_compose! {
    /// A gap before the region, in pages, and the region without its start.
    fn any_region()(
        gap in 0_u64..3,
        pages in 1_u64..100,
        kind in 1_u32..=5,
        rows in 1_u32..=254,
        parity in 0_u32..=2,
    ) -> (u64, Region) {
        let zone = kind == 4;
        let row_len = pages * 4096;
        let region = Region {
            start: 0,
            len: if zone { row_len * u64::from(rows + parity) } else { row_len },
            kind: match kind {
                1 => RegionKind::SideA,
                2 => RegionKind::SideB,
                3 => RegionKind::Spare,
                4 => RegionKind::Zone,
                _ => RegionKind::Unknown(99),
            },
            data_rows: if zone { rows } else { 0 },
            parity_rows: if zone { parity } else { 0 },
            row_len: if zone { row_len } else { 0 },
            chunk: if zone { 4096 } else { 0 },
        };
        (gap, region)
    }
}

proptest! {
    #[test]
    fn superblocks_come_back(s in any_superblock()) {
        let page = s.encode();
        prop_assert_eq!(page.len(), format::PAGE_LEN);
        prop_assert_eq!(s.writable(), s.read_only_compatible == 0);
        prop_assert_eq!(Superblock::decode(&page, Certify::when(true)), Ok(s));
    }

    #[test]
    fn region_tables_come_back(list in proptest::collection::vec(any_region(), 0..=63)) {
        let mut end = 0;
        let regions: Vec<Region> = list
            .into_iter()
            .map(|(gap, r)| {
                let start = end + gap * 4096;
                end = start + r.len;
                Region { start, ..r }
            })
            .collect();
        let body = region::encode(&regions);
        prop_assert_eq!(region::decode(&body, regions.len() as u32, end), Ok(regions.clone()));
        if !regions.is_empty() {
            prop_assert!(region::decode(&body, regions.len() as u32, end - 1).is_err());
            prop_assert!(region::decode(&body, regions.len() as u32 + 1, end).is_err());
        }
    }

    #[test]
    fn remap_tables_come_back(
        places in proptest::collection::btree_set(0_u64..500, 0..100),
        bits in 12_u32..=21,
    ) {
        let frame = 1 << bits;
        let places: Vec<u64> = places.into_iter().collect();
        let remaps: Vec<Remap> = places
            .chunks_exact(2)
            .map(|p| Remap { frame: p[0] * frame, physical: p[1] * frame })
            .collect();
        let body = remap::encode(&remaps);
        let count = remaps.len() as u32;
        prop_assert_eq!(remap::decode(&body, count, frame, 500 * frame), Some(remaps));
        prop_assert_eq!(remap::decode(&body, count + 1, frame, 500 * frame), None);
    }

    #[test]
    fn mirrored_pages_come_back(
        seed: u32, place: u64, kind: u32, sequence in 0..1_u64 << 62, count: u32,
        body in proptest::collection::vec(any::<u8>(), 0..=format::PAGE_LEN - format::MIRRORED_LEN),
    ) {
        let page = mirrored::encode(seed, place, kind, sequence, count, &body);
        let found = mirrored::decode(seed, place, kind, &page, Certify::when(true));
        let found = found.expect("just written");
        prop_assert_eq!((found.sequence, found.count), (sequence, count));
        prop_assert_eq!(&found.body[..body.len()], &body[..]);
        prop_assert!(found.body[body.len()..].iter().all(|b| *b == 0));
    }

    #[test]
    fn numbers_come_back_and_bounds_hold(value: u64, at in 0_usize..40) {
        let mut buf = [0xaa; 32];
        bytes::put_u64(&mut buf, at, value);
        bytes::put_u32(&mut buf, at + 8, value as u32);
        bytes::put_u16(&mut buf, at + 12, value as u16);
        let fits = |len: usize| at + len <= 32;
        prop_assert_eq!(bytes::get_u64(&buf, at), if fits(8) { value } else { 0 });
        prop_assert_eq!(bytes::get_u32(&buf, at + 8), if fits(12) { value as u32 } else { 0 });
        prop_assert_eq!(bytes::get_u16(&buf, at + 12), if fits(14) { value as u16 } else { 0 });
    }

    #[test]
    fn pointers_are_words(word: u64, offset in 0_u64..1 << 48, generation: u16) {
        prop_assert_eq!(RawPtr::from_word(word).word(), word);
        let p = RawPtr::new(offset, generation);
        prop_assert_eq!((p.offset(), p.generation()), (offset, generation));
        prop_assert_eq!(RawPtr::from_word(p.word()), p);
        let typed: Ptr<u64> = p.typed();
        prop_assert_eq!(typed.raw(), p);
        prop_assert_eq!(typed.is_null(), p.is_null());
    }
}

#[test]
fn a_field_knows_its_bytes() {
    let page = support::superblock().encode();
    let field = format::FIELDS_SUPERBLOCK[0];
    assert_eq!(field.of(&page), Some(&format::MAGIC[..]));
    assert_eq!(field.of(&page[..7]), None);
    assert_eq!(holdfast_layout::Field::new("far", u64::MAX, 8).of(&page), None);
}

#[test]
fn pointers_print_as_people_read_them() {
    assert_eq!(RawPtr::NULL.to_string(), "null");
    assert_eq!(RawPtr::new(0x40, 3).to_string(), "0x40@3");
    assert!(Ptr::<u8>::default().is_null());
}

#[test]
fn tables_longer_than_their_page_are_cut() {
    let many = vec![support::regions()[0]; format::REGIONS_MAX + 1];
    assert_eq!(region::encode(&many).len(), format::REGIONS_MAX * format::REGION_LEN);
    assert!(region::decode(&[0; 8192], format::REGIONS_MAX as u32 + 1, 1 << 30).is_err());
    let many = vec![Remap { frame: 0, physical: 4096 }; format::REMAPS_MAX + 1];
    assert_eq!(remap::encode(&many).len(), format::REMAPS_MAX * format::REMAP_LEN);
    assert_eq!(remap::decode(&remap::encode(&many), 2, 4096, 1 << 30), None, "named twice");
}
