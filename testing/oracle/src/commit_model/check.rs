//! The judge: compares a recovered image with what was acknowledged.
//!
//! It knows nothing of records, watermarks or generations. An acknowledged commit must be there
//! whole; one under way at the crash must be there whole or not at all; every column must be
//! right; and a unit may be named lost only if damage met a column whose parity was in flux.

use super::geometry::UNITS;
use super::record::Meta;
use super::repair::wrong_columns;
use super::state::{World, column_sum, meta_of, read_table};
use super::{ViolationKind, geometry::Copy};

/// The image at the moment of the first crash, for judging whether a loss was avoidable.
pub(super) struct Crash<'a> {
    /// As the crash left it, with the damage in it.
    pub(super) found: &'a [u64],
    /// The same with the replayed words applied.
    pub(super) replayed: &'a [u64],
    /// The damaged word, if any.
    pub(super) rotten: Option<usize>,
}

/// What is wrong, and a sentence with the place.
pub(super) type Wrong = (ViolationKind, String);

/// Judges a recovered image. Returns the content that is now certain.
pub(super) fn judge(
    world: &World,
    crash: &Crash<'_>,
    recovered: &[u64],
    lost: &[usize],
) -> Result<Vec<u64>, Wrong> {
    let geometry = world.geometry;
    let tables =
        Copy::BOTH.iter().filter_map(|&c| read_table(&recovered[geometry.table(c)..][..2]));
    let zones = tables.max().unwrap_or(0);
    if zones < world.zones {
        return Err((ViolationKind::Unreadable, format!("{zones} of {} zones", world.zones)));
    }
    let expected = settle(world, recovered, lost);
    for unit in 0..zones * UNITS {
        if lost.contains(&unit) {
            let avoidable = avoidable(world, crash, &expected, unit);
            avoidable.map_or(Ok(()), |why| Err((ViolationKind::NeedlessLoss, why)))?;
            continue;
        }
        let meta = geometry.meta(unit);
        let live = meta_of(geometry, &expected, unit) == Meta::Live;
        let content = geometry.content(unit).filter(|_| live);
        for word in std::iter::once(meta).chain(content) {
            if recovered[word] != expected[word] {
                let place = if word == meta { "certifying word" } else { "content" };
                let detail = format!("{place} of unit {unit}, word {word}");
                return Err((ViolationKind::WrongContent, detail));
            }
        }
    }
    match wrong_columns(geometry, recovered, zones)[..] {
        [] => Ok(expected),
        [column, ..] => Err((ViolationKind::WrongParity, format!("column {column}"))),
    }
}

/// The acknowledged content, with each commit under way taken as the image shows it: its
/// certifying words tell whether it happened, and everything else must then agree.
fn settle(world: &World, recovered: &[u64], lost: &[usize]) -> Vec<u64> {
    let geometry = world.geometry;
    let mut expected = world.expected.clone();
    let units = || (0..world.units()).filter(|unit| !lost.contains(unit));
    for writes in world.pending.iter().flatten() {
        let metas = |word: usize| units().any(|unit| geometry.meta(unit) == word);
        let witness = writes.iter().find(|&&(word, _)| metas(word));
        if witness.is_some_and(|&(word, value)| recovered[word] == value) {
            writes.iter().for_each(|&(word, value)| expected[word] = value);
        }
    }
    expected
}

/// Why a unit named lost should have been repaired: nothing in it was damaged, or parity as found
/// described its column before or after the replay.
fn avoidable(world: &World, crash: &Crash<'_>, expected: &[u64], unit: usize) -> Option<String> {
    let geometry = world.geometry;
    let rotten = crash.rotten.filter(|&rot| geometry.unit_words(unit).any(|word| word == rot));
    let Some(word) = rotten else { return Some(format!("unit {unit} was not damaged")) };
    let column = geometry.column(word);
    let parity = crash.found[geometry.parity(column)];
    let describes = |image: &[u64]| {
        let mut rows = image.to_vec();
        rows[word] = expected[word];
        column_sum(geometry, &rows, column, None) == parity
    };
    let known = crash.replayed[word] == expected[word]
        || describes(crash.found)
        || describes(crash.replayed);
    known.then(|| format!("word {word} of unit {unit} follows from column {column}"))
}
