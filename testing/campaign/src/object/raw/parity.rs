//! Parity of a zone, computed again from its rows and compared byte by byte.

use super::sums::{add, double};
use super::{Bytes, Survey, ZoneMap};

/// Compares P and Q of every column with what the rows give.
pub(super) fn check(pool: &Bytes, map: &ZoneMap, survey: &mut Survey) {
    if map.parity_rows == 0 {
        return;
    }
    let len = map.row_len as usize;
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    // Q is the sum of g^row * row: highest row first, doubling in between.
    for row in (0..map.data_rows).rev() {
        let Some(bytes) = row_of(pool, map, row) else {
            survey.exposed(format!("row {row} of the zone at {:#x} cannot be read", map.start));
            return;
        };
        add(&mut p, &bytes);
        if map.parity_rows > 1 {
            double(&mut q);
            add(&mut q, &bytes);
        }
    }
    compare(pool, map, "P", map.data_rows, &p, survey);
    if map.parity_rows > 1 {
        compare(pool, map, "Q", map.data_rows + 1, &q, survey);
    }
}

/// A row with zeros for log chunks.
fn row_of(pool: &Bytes, map: &ZoneMap, row: u64) -> Option<Vec<u8>> {
    let start = map.start + row * map.row_len;
    let end = start + map.row_len;
    let mut bytes = pool.get(start, map.row_len)?.to_vec();
    for (at, len) in map.exempt() {
        let (from, to) = (at.max(start), (at + len).min(end));
        if from < to {
            bytes[(from - start) as usize..(to - start) as usize].fill(0);
        }
    }
    Some(bytes)
}

fn compare(
    pool: &Bytes,
    map: &ZoneMap,
    name: &str,
    row: u64,
    computed: &[u8],
    survey: &mut Survey,
) {
    let at = map.start + row * map.row_len;
    let Some(stored) = pool.get(at, map.row_len) else {
        survey.exposed(format!("{name} of the zone at {:#x} cannot be read", map.start));
        return;
    };
    if stored == computed {
        return;
    }
    let differs = |i: &usize| stored[*i] != computed[*i];
    let first = (0..stored.len()).find(differs).unwrap_or(0);
    let last = (0..stored.len()).rfind(differs).unwrap_or(0);
    let count = (0..stored.len()).filter(differs).count();
    survey.exposed(format!(
        "{name} of the zone at {:#x} is wrong in {count} columns from {first:#x} to {last:#x}",
        map.start
    ));
}
