//! A second reader of pools: from the format pages, not from the engine.
//!
//! It takes the bytes of a whole pool, believes nothing, and says which objects are there and what
//! does not verify. It knows fields by the names that the format lists give them, and shares with
//! the engine only those lists and the table of size classes; sums and parity are its own.

pub mod log;
mod parity;
mod read;
pub mod sums;
mod zone;

pub use read::{Bytes, Mirrored};
pub use zone::{Chunk, ChunkKind, Place, Slot, ZoneMap};

use std::fmt;

use holdfast_layout::Field;
use holdfast_layout::format::{
    FIELDS_SUPERBLOCK, INTENT_PAGE, KIND_INTENT, KIND_PROGRESS, KIND_REGIONS, KIND_REMAP,
    PROGRESS_PAGE, REGIONS_PAGE, REMAP_PAGE,
};

use super::model::Objects;

/// Flaws listed at most: the first ones tell.
const LISTED: usize = 6;

/// Something in a pool that should not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Whether only redundancy is missing: everything can still be read.
    pub exposed: bool,
    /// What and where.
    pub what: String,
}

/// What a pool was found to hold.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// All live objects.
    pub objects: Objects,
    /// What does not verify.
    pub flaws: Vec<Flaw>,
    /// Chunks in use as log space.
    pub log_chunks: u64,
    /// Chunks nothing uses.
    pub free_chunks: u64,
    /// Pointer to the anchor object.
    pub anchor: u64,
    /// The zones, as their directories describe them.
    pub zones: Vec<ZoneMap>,
}

impl Survey {
    fn flaw(&mut self, what: String) {
        self.flaws.push(Flaw { exposed: false, what });
    }

    fn exposed(&mut self, what: String) {
        self.flaws.push(Flaw { exposed: true, what });
    }

    /// The first flaws in words, or nothing.
    #[must_use]
    pub fn complaint(&self) -> Option<(bool, String)> {
        if self.flaws.is_empty() {
            return None;
        }
        let exposed = self.flaws.iter().all(|flaw| flaw.exposed);
        let first: Vec<&str> = self.flaws.iter().take(LISTED).map(|f| f.what.as_str()).collect();
        let more = self.flaws.len().saturating_sub(LISTED);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some((exposed, first.join("; ") + &tail))
    }
}

/// What is to be checked besides objects and their sums.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Parity of every column.
    pub parity: bool,
    /// Both copies of every mirrored page are the same.
    pub mirrors: bool,
}

impl Scope {
    /// Everything.
    pub const ALL: Self = Self { parity: true, mirrors: true };
    /// Objects and their sums.
    pub const OBJECTS: Self = Self { parity: false, mirrors: false };
}

/// Reads a whole pool. `None` if no superblock verifies.
#[must_use]
pub fn survey(pool: &Bytes, scope: Scope) -> Option<Survey> {
    let (superblock, seed) = pool.superblock()?;
    let mut survey =
        Survey { anchor: number(FIELDS_SUPERBLOCK, "anchor", superblock), ..Survey::default() };
    if scope.mirrors {
        check_mirrors(pool, superblock, seed, &mut survey);
    }
    for zone in pool.zones(superblock, seed) {
        let map = ZoneMap::read(pool, zone, seed, superblock, &mut survey);
        map.objects(pool, &mut survey);
        if scope.parity {
            parity::check(pool, &map, &mut survey);
        }
        survey.zones.push(map);
    }
    Some(survey)
}

/// Looks at the mirrored pages alone. `None` if no superblock verifies.
#[must_use]
pub fn mirrors(pool: &Bytes) -> Option<Survey> {
    let (superblock, seed) = pool.superblock()?;
    let mut survey = Survey::default();
    check_mirrors(pool, superblock, seed, &mut survey);
    Some(survey)
}

/// Both copies of the superblock and of each table verify and are the same.
fn check_mirrors(pool: &Bytes, superblock: &[u8], seed: u32, survey: &mut Survey) {
    let side = number(FIELDS_SUPERBLOCK, "side_len", superblock);
    if number(FIELDS_SUPERBLOCK, "copies", superblock) < 2 {
        return;
    }
    match (pool.superblock_at(0), pool.superblock_at(side)) {
        (Some(a), Some(b)) if a == b => {}
        (Some(_), Some(_)) => survey.exposed("superblock: the copies differ".to_owned()),
        (a, _) => {
            let bad = if a.is_some() { "B" } else { "A" };
            survey.exposed(format!("superblock: copy {bad} does not verify"));
        }
    }
    for (name, place, kind) in [
        ("regions", REGIONS_PAGE, KIND_REGIONS),
        ("remap", REMAP_PAGE, KIND_REMAP),
        ("intent", INTENT_PAGE, KIND_INTENT),
        ("progress", PROGRESS_PAGE, KIND_PROGRESS),
    ] {
        let a = pool.mirrored(0, place, kind, seed);
        let b = pool.mirrored(side, place, kind, seed);
        match (a, b) {
            (Some(a), Some(b)) if a.bytes == b.bytes => {}
            (Some(a), Some(b)) => survey.exposed(format!(
                "{name}: the copies differ (sequence {} and {})",
                a.sequence, b.sequence
            )),
            (Some(_), None) => survey.exposed(format!("{name}: copy B does not verify")),
            (None, Some(_)) => survey.exposed(format!("{name}: copy A does not verify")),
            (None, None) => survey.flaw(format!("{name}: neither copy verifies")),
        }
    }
}

/// The field of this name, as a number.
///
/// # Panics
/// If the list has no such field, or the record is too short: a mistake of this program.
#[must_use]
pub fn number(fields: &[Field], name: &str, record: &[u8]) -> u64 {
    let field = fields.iter().find(|field| field.name == name);
    let bytes = field.and_then(|field| field.of(record)).expect("a listed field of a whole record");
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
