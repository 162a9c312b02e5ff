//! The figures published for the design this goes back to, beside ours.
//!
//! Theirs are losses of a server's throughput, whose operation takes microseconds; ours are of a
//! loop of plain stores, so each of our operations has ten to a hundred times less to hide behind.

use crate::report::Report;
use crate::say::say;

/// What was measured, what was published, and the figure of ours that is nearest.
const ROWS: [(&str, &str, &str); 8] = [
    ("key-value, zipf, 30 s", "1-5 %", "loss hash zipf 100 %, lazy, 30 s, same core"),
    ("key-value, zipf, 1 s", "4-23 %", "loss hash zipf 100 %, lazy, 1 s, same core"),
    ("key-value, uniform, 30 s", "5-10 %", "loss hash uniform 100 %, lazy, 30 s, same core"),
    (
        "key-value, zipf, at each commit",
        "9-48 %",
        "loss hash zipf 100 %, at each commit, 1 s, same core",
    ),
    ("64 B sequential, 30 s", "from 0.5 %", "loss lines sequential, lazy, 30 s, same core"),
    ("64 B random, worst period", "to 56 %", "loss lines uniform, lazy, 1 s, same core"),
    ("B+tree, updates, 1 s", "at most 4 %", "loss B+tree zipf 100 %, lazy, 1 s, same core"),
    ("reads", "at most 3 %", "loss hash uniform 0 %, lazy, 1 s, same core"),
];

/// Prints every row that was measured.
pub(crate) fn print(report: &Report) {
    for (what, theirs, figure) in ROWS {
        if let Some(ours) = report.median(figure) {
            say!("published: {what}: {theirs}; here {:.2} %", 100.0 * ours);
        }
    }
}
