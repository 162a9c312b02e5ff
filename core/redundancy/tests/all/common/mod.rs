//! A small pool for the tests: every part is there, every length is a few pages.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use holdfast_faultmem::{Budget, Config, FaultMedium};
use holdfast_layout::{LogPlacement, Region, RegionKind, SumKind, Superblock};
use holdfast_pmem::{Medium, MediumKind};
use holdfast_redundancy::{Mirror, Zone};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const SIDE: u64 = 10 * PAGE;
pub(crate) const SPARES: u64 = 2 * SIDE;
pub(crate) const SPARE_FRAMES: u64 = 3;
pub(crate) const ZONE: u64 = SPARES + SPARE_FRAMES * PAGE;
pub(crate) const ROWS: u32 = 5;
pub(crate) const ROW_LEN: u64 = 2 * PAGE;

pub(crate) fn superblock(parity: u32) -> Superblock {
    Superblock {
        sequence: 1,
        uuid: *b"pool of the test",
        compatible: 0,
        read_only_compatible: 0,
        incompatible: 0,
        log_generation: 1,
        clean: true,
        size: ZONE + ROW_LEN * u64::from(ROWS + parity),
        frame: PAGE,
        chunk: PAGE,
        side_len: SIDE,
        events_len: 2 * PAGE,
        log_start: 8 * PAGE,
        ring_len: PAGE,
        lanes: 2,
        log_placement: LogPlacement::Apart,
        sum_kind: SumKind::Crc32c,
        parity,
        copies: 2,
        allow_inject: false,
        anchor: 0,
        rows: ROWS + parity,
        label: String::new(),
    }
}

pub(crate) fn regions(parity: u32) -> Vec<Region> {
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
        plain(0, SIDE, RegionKind::SideA),
        plain(SIDE, SIDE, RegionKind::SideB),
        plain(SPARES, SPARE_FRAMES * PAGE, RegionKind::Spare),
        Region {
            data_rows: ROWS,
            parity_rows: parity,
            row_len: ROW_LEN,
            chunk: PAGE,
            ..plain(ZONE, ROW_LEN * u64::from(ROWS + parity), RegionKind::Zone)
        },
    ]
}

pub(crate) fn zone(parity: u32) -> Zone {
    Zone::new(&regions(parity)[3], 0).unwrap()
}

pub(crate) fn mirror() -> Mirror {
    Mirror::of(&superblock(2))
}

pub(crate) fn medium(kind: MediumKind) -> FaultMedium {
    FaultMedium::new(superblock(2).size, kind, &Config::default())
}

pub(crate) fn dax() -> FaultMedium {
    medium(MediumKind::Dax)
}

/// Few images per instant, of every sort.
pub(crate) fn budget() -> Budget {
    Budget { exhaustive: 128, singles: 60, pairs: 40, samples: 40, seed: 7 }
}

pub(crate) fn bytes(m: &FaultMedium, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    m.read(at, &mut bytes).unwrap();
    bytes
}

/// The same where the range may be bad; then other bytes than any in use.
pub(crate) fn try_bytes(m: &FaultMedium, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    m.read(at, &mut bytes).map(|()| bytes).unwrap_or_default()
}

/// Runs `step` 1, 2, 3 on a fresh medium with a place switched off; counts the crash images in
/// which `find` sees neither the last state acknowledged nor the next one.
pub(crate) fn wrong(
    kind: MediumKind,
    off: &str,
    prepare: impl Fn(&FaultMedium),
    step: impl Fn(&FaultMedium, u64),
    find: impl Fn(&FaultMedium) -> Option<u64> + Send + 'static,
) -> u64 {
    let (acked, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let m = medium(kind);
    prepare(&m);
    m.elide_name(off);
    let (a, w) = (acked.clone(), wrong.clone());
    m.on_barrier(Box::new(move |_, _, point| {
        for image in point.images(&budget()) {
            let found = find(&FaultMedium::from_crash(image, kind, &Config::default()));
            let last = a.load(SeqCst);
            w.fetch_add(u64::from(found != Some(last) && found != Some(last + 1)), SeqCst);
        }
    }));
    for n in 1..=3 {
        step(&m, n);
        acked.store(n, SeqCst);
    }
    wrong.load(SeqCst)
}

/// Numbers from a seed, for tests that need many without a strategy.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
