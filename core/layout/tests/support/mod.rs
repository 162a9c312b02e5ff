//! What the tests of the tables share: a valid example of each, and the eight ways to damage a
//! field.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use holdfast_layout::{
    LogPlacement, Region, RegionKind, Remap, SumKind, Superblock, bytes, format,
};

/// Bytes of the example pool.
pub(crate) const SIZE: u64 = 1 << 30;
/// Bytes of its frames.
pub(crate) const FRAME: u64 = 2 << 20;

/// A superblock as a pool of 1 GiB has it.
pub(crate) fn superblock() -> Superblock {
    Superblock {
        sequence: 7,
        uuid: *b"0123456789abcdef",
        compatible: 1 << 40,
        read_only_compatible: 0,
        incompatible: format::INCOMPATIBLE_Q,
        log_generation: 3,
        clean: true,
        size: SIZE,
        frame: FRAME,
        chunk: 256 << 10,
        side_len: 2 * FRAME,
        events_len: 64 << 10,
        log_start: 1 << 20,
        ring_len: 64 << 10,
        lanes: 32,
        log_placement: LogPlacement::Apart,
        sum_kind: SumKind::Crc32c,
        parity: 2,
        copies: 2,
        allow_inject: true,
        anchor: 0x0003_0000_0123_4000,
        rows: 100,
        label: "bank".to_owned(),
    }
}

/// A region table as that pool has it.
pub(crate) fn regions() -> Vec<Region> {
    let plain = |start, len, kind| Region {
        start,
        len,
        kind,
        data_rows: 0,
        parity_rows: 0,
        row_len: 0,
        chunk: 0,
    };
    vec![
        plain(0, 2 * FRAME, RegionKind::SideA),
        plain(2 * FRAME, 2 * FRAME, RegionKind::SideB),
        plain(4 * FRAME, FRAME, RegionKind::Spare),
        Region {
            start: 5 * FRAME,
            len: 102 * FRAME,
            kind: RegionKind::Zone,
            data_rows: 100,
            parity_rows: 2,
            row_len: FRAME,
            chunk: 256 << 10,
        },
        plain(107 * FRAME, FRAME, RegionKind::Unknown(77)),
    ]
}

/// A remap table as that pool may have it.
pub(crate) fn remaps() -> Vec<Remap> {
    vec![
        Remap { frame: 7 * FRAME, physical: 4 * FRAME },
        Remap { frame: 90 * FRAME, physical: 5 * FRAME },
    ]
}

/// Puts the right checksum on a superblock page, as an attacker or a buggy writer would.
pub(crate) fn seal_superblock(page: &mut [u8]) {
    bytes::put_u32(page, 8, 0);
    let sum = holdfast_codes::crc32c(0, page);
    bytes::put_u32(page, 8, sum);
}

/// The eight ways to damage a field, after the ones file systems are tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Clear,
    Set,
    ToggleTop,
    ToggleMiddle,
    ToggleBottom,
    Add,
    Subtract,
    Randomize,
}

/// All of them.
pub(crate) const VERBS: [Verb; 8] = [
    Verb::Clear,
    Verb::Set,
    Verb::ToggleTop,
    Verb::ToggleMiddle,
    Verb::ToggleBottom,
    Verb::Add,
    Verb::Subtract,
    Verb::Randomize,
];

impl Verb {
    /// Damages `field`, taken as one little-endian number; `seed` picks the random bytes.
    pub(crate) fn apply(self, field: &mut [u8], seed: u64) {
        let last = field.len() - 1;
        match self {
            Self::Clear => field.fill(0),
            Self::Set => field.fill(0xff),
            Self::ToggleTop => field[last] ^= 0x80,
            Self::ToggleMiddle => field[last / 2] ^= 0x10,
            Self::ToggleBottom => field[0] ^= 1,
            Self::Add => carry(field, 17),
            Self::Subtract => {
                field.iter_mut().for_each(|b| *b = !*b);
                carry(field, 17);
                field.iter_mut().for_each(|b| *b = !*b);
            }
            Self::Randomize => {
                let mut rng = Rng(seed);
                field.iter_mut().for_each(|b| *b = rng.next() as u8);
            }
        }
    }
}

fn carry(field: &mut [u8], add: u8) {
    let mut carry = u16::from(add);
    for b in field {
        carry += u16::from(*b);
        *b = carry as u8;
        carry >>= 8;
    }
}

/// A small generator with a fixed sequence for each seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
