//! What a sum is bound to. A sum that does not notice a field changed, or bytes at another place,
//! would let a lost or misdirected write pass.

use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN, STATE_FREE, STATE_LIVE};
use holdfast_heap::sums::{WRITES, granule_range, granules};
use holdfast_heap::{ChunkEntry, ChunkKind, Slot, Sums};
use holdfast_layout::{Certify, SumKind};
use proptest::collection::vec;
use proptest::prelude::*;

const KINDS: [SumKind; 2] = [SumKind::Crc32c, SumKind::Adler32];

fn a_slot() -> impl Strategy<Value = Slot> {
    (any::<(u16, u32)>(), 1..4096_u32).prop_map(|((generation, type_number), len)| Slot {
        sum: 0,
        generation,
        state: STATE_LIVE,
        writes: 0,
        type_number,
        len,
    })
}

/// The slot with one field changed, for every field that the sum covers.
fn changed(slot: &Slot, by: u32) -> [Slot; 5] {
    [
        Slot { generation: slot.generation ^ (by as u16 | 1), ..*slot },
        Slot { state: STATE_FREE, ..*slot },
        Slot { writes: (by as u16 | 1) % WRITES, ..*slot },
        Slot { type_number: slot.type_number ^ (by | 1), ..*slot },
        Slot { len: slot.len ^ (by | 1), ..*slot },
    ]
}

proptest! {
    #[test]
    fn every_field_every_byte_and_the_place_matter(
        slot in a_slot(),
        line in 1..1_u64 << 41,
        granule in 0..5_u64,
        bytes in vec(any::<u8>(), 1..1024),
        (at, by) in (any::<prop::sample::Index>(), any::<u32>()),
    ) {
        let object = line * 64;
        for kind in KINDS {
            let sums = Sums::new(3, kind);
            let sum = sums.granule(object, &slot, granule, &bytes);
            for other in changed(&slot, by) {
                if granule > 0 && other.writes != slot.writes {
                    // Further granules are not written with the slot.
                    prop_assert_eq!(sums.granule(object, &other, granule, &bytes), sum);
                    continue;
                }
                prop_assert_ne!(sums.granule(object, &other, granule, &bytes), sum, "{:?}", other);
            }
            prop_assert_ne!(sums.granule(object ^ 64, &slot, granule, &bytes), sum, "address");
            prop_assert_ne!(sums.granule(object, &slot, granule ^ 1, &bytes), sum, "granule");
            let elsewhere = Sums::new(4, kind);
            prop_assert_ne!(elsewhere.granule(object, &slot, granule, &bytes), sum, "pool");
            let mut bytes = bytes.clone();
            let at = at.index(bytes.len());
            bytes[at] ^= by as u8 | 1;
            prop_assert_ne!(sums.granule(object, &slot, granule, &bytes), sum, "bytes");
        }
    }

    #[test]
    fn the_stored_sum_itself_is_not_covered(slot in a_slot(), sum in any::<u32>()) {
        // Else no sum could be stored beside what it covers.
        for kind in KINDS {
            let sums = Sums::new(3, kind);
            let with = Slot { sum, ..slot };
            prop_assert_eq!(sums.granule(64, &with, 0, b"x"), sums.granule(64, &slot, 0, b"x"));
        }
    }

    #[test]
    fn patched_sums_equal_sums_made_anew(
        slot in a_slot(),
        old in vec(any::<u8>(), 1..=1024),
        new in vec(any::<u8>(), 1024),
        (a, b) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        granule in 0..3_u64,
    ) {
        let (a, b) = (a.index(old.len() + 1), b.index(old.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        let mut after = old.clone();
        after[from..to].copy_from_slice(&new[from..to]);
        let pairs = old[from..to].iter().zip(&after[from..to]);
        let delta: Vec<u8> = pairs.map(|(o, n)| o ^ n).collect();
        for kind in KINDS {
            let sums = Sums::new(9, kind);
            let before = sums.granule(640, &slot, granule, &old);
            let tail = old.len() - to;
            let plain = sums.plain(before, &slot, granule);
            let patched = sums.patch(plain, &old[from..to], &after[from..to], &delta, tail);
            let then = slot.written();
            let patched = sums.stored(patched, &then, granule);
            prop_assert_eq!(patched, sums.granule(640, &then, granule, &after), "{:?}", kind);
        }
    }

    #[test]
    fn a_patch_of_a_wrong_sum_stays_wrong(
        slot in a_slot(),
        old in vec(any::<u8>(), 8..=1024),
        wrong in 1..=u32::MAX,
        new in any::<[u8; 8]>(),
    ) {
        // Damage must not be blessed by a change beside it.
        let sums = Sums::new(9, SumKind::Crc32c);
        let mut after = old.clone();
        after[..8].copy_from_slice(&new);
        let delta: Vec<u8> = old[..8].iter().zip(&new).map(|(o, n)| o ^ n).collect();
        let stored = sums.granule(640, &slot, 0, &old) ^ wrong;
        let plain = sums.plain(stored, &slot, 0);
        let patched = sums.patch(plain, &old[..8], &new, &delta, old.len() - 8);
        let patched = sums.stored(patched, &slot, 0);
        prop_assert_ne!(patched, sums.granule(640, &slot, 0, &after));
    }

    #[test]
    fn what_changes_one_object_makes_no_other_state_of_another(
        (one, other) in (a_slot(), a_slot()),
        (old, new) in (vec(any::<u8>(), 64), vec(any::<u8>(), 64)),
        there in vec(any::<u8>(), 64),
    ) {
        // Were sums linear, parity that misses a change of one object would be parity under which
        // the other one has a second state that verifies. Once in 2^20 it may be so by chance.
        for kind in KINDS {
            let sums = Sums::new(9, kind);
            let (one, other) = (Slot { len: 64, ..one }, Slot { len: 64, ..other });
            let delta = sums.granule(640, &one, 0, &old) ^ sums.granule(640, &one, 0, &new);
            let change = old.iter().zip(&new).map(|(o, n)| o ^ n);
            let then: Vec<u8> = there.iter().zip(change).map(|(byte, by)| byte ^ by).collect();
            let verifies = sums.granule(1280, &other, 0, &there) ^ delta;
            prop_assert_ne!(verifies, sums.granule(1280, &other, 0, &then), "{:?}", kind);
        }
    }

    #[test]
    fn slots_come_back_from_their_bytes(
        slot in a_slot(),
        sum in any::<u32>(),
        writes in 0..WRITES,
    ) {
        let slot = Slot { sum, writes, ..slot };
        prop_assert_eq!(Slot::decode(&slot.encode()), slot);
    }

    #[test]
    fn any_sixteen_bytes_are_some_slot_and_stay_themselves(bytes in any::<[u8; SLOT_LEN]>()) {
        prop_assert_eq!(Slot::decode(&bytes).encode(), bytes);
    }

    #[test]
    fn directory_entries_are_bound_to_place_and_contents(
        at in (1..1_u64 << 42).prop_map(|n| n * 32),
        (class, generation, count, kind) in any::<(u8, u16, u32, u8)>(),
        bit in 0..8 * CHUNK_LEN,
    ) {
        let kinds =
            [ChunkKind::Free, ChunkKind::Run, ChunkKind::Large, ChunkKind::Tail, ChunkKind::Log];
        let entry = ChunkEntry { kind: kinds[usize::from(kind) % 5], class, generation, count };
        // Always CRC-32C, whatever protects objects: entries decide what bytes mean.
        for kind in [SumKind::None, SumKind::Crc32c, SumKind::Adler32] {
            let sums = Sums::new(5, kind);
            let bytes = entry.encode(&sums, at);
            let certify = Certify::when(true);
            let read = |bytes, sums: &Sums, at| ChunkEntry::decode(bytes, sums, at, certify);
            prop_assert_eq!(read(&bytes, &sums, at), Some(entry));
            prop_assert_eq!(read(&bytes, &sums, at ^ 32), None, "another place");
            prop_assert_eq!(read(&bytes, &Sums::new(6, kind), at), None, "pool");
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read(&damaged, &sums, at), None, "bit {}", bit);
        }
    }
}

#[test]
fn wiped_slots_and_entries_do_not_verify() {
    for kind in KINDS {
        let sums = Sums::new(0x1234_5678, kind);
        for line in 1..5000 {
            let object = line * 64;
            assert!(
                !sums.free_slot_good(object, &Slot::default(), Certify::when(true)),
                "{kind:?} {object:#x}"
            );
            assert_eq!(
                ChunkEntry::decode(&[0; CHUNK_LEN], &sums, object, Certify::when(true)),
                None
            );
            assert_eq!(
                ChunkEntry::decode(&[0xff; CHUNK_LEN], &sums, object, Certify::when(true)),
                None
            );
        }
    }
}

#[test]
fn a_first_slot_is_free_and_its_generation_is_new_for_each_life_of_the_chunk() {
    let sums = Sums::new(7, SumKind::Crc32c);
    let mut seen = vec![false; 1 << 16];
    for life in 0..=u16::MAX {
        let slot = sums.first_slot(4096, life);
        assert!(!slot.is_live() && sums.free_slot_good(4096, &slot, Certify::when(true)));
        assert!(!sums.free_slot_good(4096 + 64, &slot, Certify::when(true)), "bound to its place");
        assert!(!core::mem::replace(&mut seen[usize::from(slot.generation)], true));
    }
}

#[test]
fn a_freed_slot_keeps_its_generation_and_nothing_else() {
    let slot =
        Slot { sum: 1, generation: 77, state: STATE_LIVE, writes: 3, type_number: 4, len: 5 };
    let freed = slot.freed();
    assert_eq!(freed, Slot { generation: 77, state: STATE_FREE, ..Slot::default() });
}

#[test]
fn without_sums_nothing_is_claimed() {
    let sums = Sums::new(7, SumKind::None);
    assert!(!sums.active());
    assert_eq!(sums.granule(64, &Slot::default(), 0, b"abc"), 0);
    assert_eq!(sums.patch(0, b"a", b"b", &[3], 0), 0);
    assert!(sums.free_slot_good(64, &Slot { sum: 99, ..Slot::default() }, Certify::when(true)));
}

#[test]
fn granules_cover_an_object_once() {
    assert_eq!((granules(0), granules(1), granules(1024), granules(1025)), (1, 1, 1, 2));
    for len in [0, 1, 1023, 1024, 1025, 5000] {
        let mut next = 0;
        for granule in 0..granules(len) {
            let (start, count) = granule_range(granule, len);
            assert_eq!(start, next);
            assert!(count <= 1024 && (count > 0 || len == 0));
            next = start + count;
        }
        assert_eq!(next, len);
        assert_eq!(granule_range(granules(len) + 3, len).1, 0, "nothing lies beyond");
    }
}
