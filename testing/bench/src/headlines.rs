//! The ratios published for the design this engine goes back to, from our own figures.
//!
//! The numbers are those of the table in `docs/performance.md`, which says beside each what was
//! published. All are ratios within rounds: over 1 means that the first took longer.

use crate::foreign::pmemobj::MAPS;
use crate::report::{Report, Spread};

/// A row: its number, what is done, and whose latency is divided by whose.
const ROWS: [(u32, &str, &str, &str); 16] = [
    (1, "alloc 64 1t", "unprotected", "libpmemobj"),
    (1, "alloc 4096 1t", "unprotected", "libpmemobj"),
    (2, "alloc 64 1t", "copies", "unprotected"),
    (3, "alloc 64 1t", "libpmemobj-replica", "parity"),
    (4, "alloc 64 1t", "full", "parity"),
    (5, "alloc 4096 1t", "full", "parity"),
    (6, "overwrite 256 hot 1t", "copies", "unprotected"),
    (7, "overwrite 256 hot 1t", "parity", "copies"),
    (8, "overwrite 256 hot 1t", "full", "parity"),
    (9, "overwrite 256 hot 1t", "libpmemobj-replica", "parity"),
    (11, "free 64 1t", "full", "unprotected"),
    (11, "free 4096 1t", "full", "unprotected"),
    (12, "overwrite 256 hot 2t", "libpmemobj", "unprotected"),
    (13, "overwrite 256 hot 2t", "libpmemobj-replica", "parity"),
    (14, "overwrite 4096 hot 2t", "libpmemobj", "unprotected"),
    (14, "overwrite 4096 hot 2t", "libpmemobj-replica", "full"),
];

/// Rows that compare one racer with itself: the row's number, who, what is divided by what, and a
/// factor.
const ALONE: [(u32, &str, &str, &str, f64); 8] = [
    (11, "unprotected", "free 4096 1t", "free 64 1t", 1.0),
    (11, "full", "free 4096 1t", "free 64 1t", 1.0),
    (11, "libpmemobj", "free 4096 1t", "free 64 1t", 1.0),
    // What two threads do together, over what one does alone.
    (15, "unprotected", "overwrite 64 hot 1t", "overwrite 64 hot 2t", 2.0),
    (15, "unprotected", "overwrite 4096 hot 1t", "overwrite 4096 hot 2t", 2.0),
    (15, "full", "overwrite 64 hot 1t", "overwrite 64 hot 2t", 2.0),
    (15, "full", "overwrite 4096 hot 1t", "overwrite 4096 hot 2t", 2.0),
    (15, "libpmemobj", "overwrite 4096 hot 1t", "overwrite 4096 hot 2t", 2.0),
];

/// Rows that are means over the six collections, insert and remove.
const MEANS: [(u32, &str, &str); 3] = [
    (17, "libpmemobj", "unprotected"),
    (18, "libpmemobj-replica", "parity"),
    (19, "full", "parity"),
];

/// Prints and keeps every row that was measured.
pub(crate) fn print(report: &mut Report) {
    for (number, what, over, under) in ROWS {
        let figure = |racer: &str| format!("{what}, {racer}");
        if let Some(ratio) = report.ratio(&figure(over), &figure(under)) {
            report.figure(&format!("headline {number}: {what}, {over} / {under}"), "x", ratio);
        }
    }
    for (number, racer, over, under, times) in ALONE {
        let figure = |what: &str| format!("{what}, {racer}");
        if let Some(ratio) = report.ratio(&figure(over), &figure(under)) {
            let Spread { median, low, high } = ratio;
            let ratio = Spread { median: median * times, low: low * times, high: high * times };
            let by = if times > 1.0 { format!("{times} x ") } else { String::new() };
            let name = format!("headline {number}: {racer}, {by}{over} / {under}");
            report.figure(&name, "x", ratio);
        }
    }
    for (number, over, under) in MEANS {
        if let Some(mean) = mean(report, &["insert", "remove"], over, under) {
            let name = format!("headline {number}: collections, {over} / {under}");
            report.figure(&name, "x", Spread::of(vec![mean]));
        }
    }
    if let Some(mean) = mean(report, &["get"], "full", "unprotected") {
        let name = "headline 20: collections, get, full / unprotected";
        report.figure(name, "x", Spread::of(vec![mean]));
    }
}

/// Geometric mean over those collections that both sides ran, without values.
fn mean(report: &Report, ops: &[&str], over: &str, under: &str) -> Option<f64> {
    let mut logs = Vec::new();
    for map in MAPS {
        for op in ops {
            let figure = |racer: &str| format!("{map} {op} v0, {racer}");
            let ratio = report.ratio(&figure(over), &figure(under));
            logs.extend(ratio.map(|ratio| ratio.median.ln()));
        }
    }
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}
