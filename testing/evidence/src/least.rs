//! How many of what they try each method has, in the source as it is.

/// How many there are of what is tried whole each time, in the source as it is: a run of an earlier
/// one may have had fewer. Whoever runs them holds these numbers against what was tried.
pub(crate) const LEAST: &[(&str, &str, u64)] = &[
    ("lab badblocks", WRONG, 11),
    ("lab blocklog", WRONG, 7),
    ("lab blocklog-mapped", WRONG, 7),
    ("lab cuts", WRONG, 7),
    ("lab cuts-mapped", WRONG, 6),
    ("lab hwpoison", WRONG, 21),
    ("lab keys", WRONG, 8),
    ("lab stray", WRONG, 7),
    ("lab strays", WRONG, 5),
    ("lab track", WRONG, 9),
    ("lab track-dax", WRONG, 11),
    ("mapped fail-nth", WRONG, 7),
    ("mapped fields", WRONG, 8),
    ("mapped mutants", WRONG, 26),
    ("mapped pointers", WRONG, 7),
    ("mapped sigkill", WRONG, 8),
    ("mapped writers", WRONG, 8),
    ("models loom answers", WRONG, 2),
    ("models loom board", WRONG, 6),
    ("models loom chunks", WRONG, 3),
    ("models loom columns", WRONG, 3),
    ("models loom columns-grow", WRONG, 2),
    ("models loom columns-try", WRONG, 2),
    ("models loom durable", WRONG, 2),
    ("models loom faults", WRONG, 4),
    ("models loom freed", WRONG, 1),
    ("models loom lanes", WRONG, 5),
    ("models loom ledger", WRONG, 6),
    ("models loom ledger-announced", WRONG, 4),
    ("models loom ledger-counts", WRONG, 4),
    ("models loom numbers", WRONG, 4),
    ("models loom per-thread", WRONG, 3),
    ("models loom per-thread-kept", WRONG, 2),
    ("models loom pins", WRONG, 2),
    ("models loom publish", WRONG, 3),
    ("models loom redoing", WRONG, 2),
    ("models loom redoing-chunks", WRONG, 3),
    ("models loom registry", WRONG, 6),
    ("models loom remade", WRONG, 3),
    ("models loom seats", WRONG, 13),
    ("models loom skew", WRONG, 2),
    ("models loom suspects", WRONG, 1),
    ("models loom versions", WRONG, 5),
    ("models loom writers", WRONG, 2),
    ("models shuttle columns", WRONG, 5),
    ("models shuttle engine", WRONG, 7),
    ("models shuttle engine-file", WRONG, 5),
    ("models shuttle group", WRONG, 5),
    ("models shuttle group-reclaim", WRONG, 5),
    ("models shuttle mapped", WRONG, 11),
    ("models shuttle numbers", WRONG, 5),
    ("models shuttle rings", WRONG, 5),
    ("models shuttle rings-wrap", WRONG, 5),
    ("object beyond", WRONG, 8),
    ("object damage", WRONG, 9),
    ("object fail-nth", WRONG, 8),
    ("object fields", WRONG, 7),
    ("object histories", "wrong ones", 22),
    ("object large", WRONG, 6),
    ("object lost", WRONG, 13),
    ("object media", WRONG, 7),
    ("object mutants", "sites", 193),
    ("object nested", WRONG, 13),
    ("object sigkill", WRONG, 7),
    ("object storm", WRONG, 12),
    ("sanitize address", WRONG, 6),
    ("sanitize thread", WRONG, 5),
    ("system calls", WRONG, 8),
];
pub(crate) const WRONG: &str = "wrong variants";

/// Of what a method tries whole each time, by figure, how many there are by the list.
pub fn least(method: &str) -> impl Iterator<Item = (&'static str, u64)> {
    let of = LEAST.iter().filter(move |(known, ..)| *known == method);
    of.map(|(_, figure, count)| (*figure, *count))
}

/// Of wrong variants of what a method tries whole, how many there are by the list.
#[must_use]
pub fn variants(method: &str) -> u64 {
    least(method).find(|(figure, _)| *figure == WRONG).map_or(0, |(_, count)| count)
}
