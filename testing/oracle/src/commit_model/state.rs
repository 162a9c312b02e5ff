//! Everything the lanes share: the medium, the volatile words of the protocol, the allocator, and
//! what the judge knows.

use super::geometry::{COLUMNS, Copy, Geometry, MAX_ZONES, UNITS};
use super::media::Medium;
use super::mutant::Mutant;
use super::record::{Meta, free_meta, live_meta, read_meta, seal};
use super::{MediumKind, Tally};
use crate::rng::Rng;

/// Purpose of a sealed pair of words, so that one cannot pass for the other.
const SUPERBLOCK: u64 = 0x5355_5045;
const TABLE: u64 = 0x5441_424C;
const HEADER: u64 = 0x4845_4144;

/// A superblock copy of this log generation.
pub(super) fn superblock_words(generation: u64) -> [u64; 2] {
    [generation, seal(SUPERBLOCK, &[generation])]
}

/// A region table copy that lists this many zones.
pub(super) fn table_words(zones: usize) -> [u64; 2] {
    [zones as u64, seal(TABLE, &[zones as u64])]
}

/// A header copy of this zone.
pub(super) fn header_words(zone: usize) -> [u64; 2] {
    let mark = HEADER + zone as u64;
    [mark, seal(HEADER, &[mark])]
}

/// The generation in a superblock copy, if it certifies itself.
pub(super) fn read_superblock(words: &[u64]) -> Option<u64> {
    (words == superblock_words(words[0])).then_some(words[0])
}

/// The number of zones in a table copy, if it certifies itself and is possible.
pub(super) fn read_table(words: &[u64]) -> Option<usize> {
    let zones = usize::try_from(words[0]).ok().filter(|n| (1..=MAX_ZONES).contains(n))?;
    (words == table_words(zones)).then_some(zones)
}

/// Damage in the trial: one word, at most once per run between two recoveries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rot {
    /// The word.
    pub(super) word: usize,
}

/// The state shared by all lanes.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) geometry: Geometry,
    pub(super) kind: MediumKind,
    pub(super) mutant: Option<Mutant>,
    pub(super) medium: Medium,
    /// Log generation: only records of this one are valid.
    pub(super) generation: u64,
    /// Last commit number drawn.
    pub(super) counter: u64,
    /// Per lane: lower bound of the number of its commit under way.
    pub(super) busy: Vec<Option<u64>>,
    /// The largest L known to be durable in a record or mark.
    pub(super) durable_watermark: u64,
    /// File: every commit up to this one has been applied and synced.
    pub(super) synced: u64,
    /// File: the sync with this index fails.
    pub(super) failing_sync: u64,
    /// A sync failed: nothing is committed any more.
    pub(super) read_only: bool,
    /// Per lane and place: number of the record there, 0 if none of this generation.
    pub(super) in_place: Vec<Vec<u64>>,
    /// Zones open for allocation.
    pub(super) zones: usize,
    /// Units at which lanes begin to look for one: few of them make conflicts frequent.
    pub(super) focus: usize,
    /// A lane is adding a zone.
    pub(super) growing: bool,
    /// Per unit: the lane that holds it.
    pub(super) unit_lock: Vec<Option<usize>>,
    /// Per unit: the number of the commit that freed it, 0 if before this generation.
    pub(super) freed_by: Vec<u64>,
    /// Per column: the lane that holds it.
    pub(super) column_lock: Vec<Option<usize>>,
    /// The judge: content of each heap word as acknowledged.
    pub(super) expected: Vec<u64>,
    /// The judge: per lane, what its unacknowledged commit would change.
    pub(super) pending: Vec<Option<Vec<(usize, u64)>>>,
    /// Damage done since the last recovery.
    pub(super) rot: Option<Rot>,
    /// What happened so far.
    pub(super) tally: Tally,
}

impl World {
    /// Opens the pool in `image`, which a recovery or the creation left clean. Volatile state is
    /// rebuilt from the image alone.
    pub(super) fn open(
        geometry: Geometry,
        kind: MediumKind,
        mutant: Option<Mutant>,
        image: Vec<u64>,
    ) -> Self {
        let copy = |copy| &image[geometry.superblock(copy)..][..2];
        let generation = read_superblock(copy(Copy::A)).or_else(|| read_superblock(copy(Copy::B)));
        let table = |copy| read_table(&image[geometry.table(copy)..][..2]);
        let zones = table(Copy::A).or_else(|| table(Copy::B));
        let zones = zones.expect("recovery healed the region table");
        let mut expected = image.clone();
        for unit in zones * UNITS..MAX_ZONES * UNITS {
            expected[geometry.meta(unit)] = free_meta(unit);
        }
        Self {
            geometry,
            kind,
            mutant,
            generation: generation.expect("recovery healed the superblock"),
            counter: 0,
            busy: vec![None; geometry.lanes],
            durable_watermark: 0,
            synced: 0,
            failing_sync: u64::MAX,
            read_only: false,
            in_place: vec![vec![0; geometry.places()]; geometry.lanes],
            zones,
            focus: UNITS * MAX_ZONES,
            growing: false,
            unit_lock: vec![None; MAX_ZONES * UNITS],
            freed_by: vec![0; MAX_ZONES * UNITS],
            column_lock: vec![None; MAX_ZONES * COLUMNS],
            expected,
            medium: Medium::new(image),
            pending: vec![None; geometry.lanes],
            rot: None,
            tally: Tally::default(),
        }
    }

    /// A new pool: one zone, most small objects and one large object live, parity right.
    pub(super) fn create(geometry: Geometry, rng: &mut Rng) -> Vec<u64> {
        let mut image = vec![0; geometry.words()];
        let mut put = |at: usize, words: [u64; 2]| image[at..at + 2].copy_from_slice(&words);
        for copy in Copy::BOTH {
            put(geometry.superblock(copy), superblock_words(1));
            put(geometry.table(copy), table_words(1));
            put(geometry.zone_header(0, copy), header_words(0));
        }
        for (word, value) in empty_zone(geometry, 0) {
            image[word] = value;
        }
        for unit in (0..UNITS).filter(|&unit| unit != 4 && unit < 6) {
            for word in geometry.content(unit) {
                image[word] = rng.next();
            }
            let is_chunk = geometry.is_chunk(unit);
            let meta = live_meta(is_chunk, unit, &image[geometry.content(unit)]);
            image[geometry.meta(unit)] = meta;
        }
        for column in 0..COLUMNS {
            image[geometry.parity(column)] = column_sum(geometry, &image, column, None);
        }
        image
    }

    /// Number of units in open zones.
    pub(super) fn units(&self) -> usize {
        self.zones * UNITS
    }
}

/// What a new zone must hold before it is published, on a medium that reads as zero: certified
/// free units, and the parity of these words.
pub(super) fn empty_zone(geometry: Geometry, zone: usize) -> Vec<(usize, u64)> {
    let units = zone * UNITS..(zone + 1) * UNITS;
    let metas: Vec<_> = units.map(|unit| (geometry.meta(unit), free_meta(unit))).collect();
    let mut parity = vec![0; COLUMNS];
    for &(word, value) in &metas {
        parity[geometry.column(word) % COLUMNS] ^= value;
    }
    let columns = (zone * COLUMNS..(zone + 1) * COLUMNS).map(|column| geometry.parity(column));
    let parity: Vec<_> = columns.zip(parity).collect();
    [metas, parity].concat()
}

/// What a unit's certifying word says in an image.
pub(super) fn meta_of(geometry: Geometry, image: &[u64], unit: usize) -> Meta {
    read_meta(geometry.is_chunk(unit), unit, image[geometry.meta(unit)])
}

/// Whether a unit is what its certifying word says it is. Free space and log space certify
/// nothing about their content.
pub(super) fn verifies(geometry: Geometry, image: &[u64], unit: usize) -> bool {
    match meta_of(geometry, image, unit) {
        Meta::Free | Meta::Log => true,
        Meta::Bad => false,
        Meta::Live => {
            let content = &image[geometry.content(unit)];
            image[geometry.meta(unit)] == live_meta(geometry.is_chunk(unit), unit, content)
        }
    }
}

/// What the parity of a column must be: the sum of its rows, log space counted as zero. `assume`
/// says how to count a chunk whose directory word is in doubt.
pub(super) fn column_sum(
    geometry: Geometry,
    image: &[u64],
    column: usize,
    assume: Option<(usize, bool)>,
) -> u64 {
    let counts = |word: usize| match geometry.chunk_of(word) {
        None => true,
        Some(chunk) => match assume {
            Some((unit, counts)) if unit == chunk => counts,
            _ => meta_of(geometry, image, chunk) != Meta::Log,
        },
    };
    geometry.rows(column).filter(|&word| counts(word)).fold(0, |sum, word| sum ^ image[word])
}
