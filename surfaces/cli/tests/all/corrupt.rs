//! Randomly corrupted pools, some hundred of them: whatever is in the file, every command ends in
//! time with a code that fits, commands that only look leave the file as it is, and no value is
//! ever told wrong.

use std::fs;
use std::path::Path;

use crate::common::{Done, Here, crc32c};
use holdfast::layout::format::EVENTS_START;
use holdfast::{Options, Parity, Pool, SumKind};

/// Keys in each pool.
const KEYS: u64 = 60;
/// Corrupted files made of each pool.
const SEEDS: u64 = 20;
/// Bytes of the journal in each pool.
const EVENTS: u64 = 8192;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Codes of a command that ended: what fsck has, added up.
const CODES: [i32; 6] = [0, 1, 4, 8, 12, 16];

/// A generator (xorshift), so that a seed tells all.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// A small pool: pages as frames.
fn small() -> Options {
    let options = Pool::options().size(1 << 20).frame(4096).chunk(8192).rows(8).lanes(4);
    options.log(64 << 10).events(EVENTS).allow_inject(true)
}

fn value_of(key: u64) -> String {
    format!("value {key} {}", "v".repeat(key as usize * 7 % 500))
}

/// The bytes of a pool with entries in it: closed, or as a crash of its process leaves it.
fn pool(here: &Here, options: &Options, crash: bool) -> Vec<u8> {
    let path = here.path("made.pool");
    let pool = options.create(&path).unwrap();
    let words = pool.map::<str, [u8]>("words").unwrap();
    for key in 0..KEYS {
        words.put(&format!("key{key:03}"), value_of(key).as_bytes()).unwrap();
    }
    let open = fs::read(&path).unwrap();
    drop((words, pool));
    let closed = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    if crash { open } else { closed }
}

/// Corrupts bytes in one of many ways.
fn corrupt(bytes: &mut [u8], seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (way, len) = (seed % 8, bytes.len());
    let pages = len / PAGE;
    // Half of the damage goes where the tables are.
    let within = if rng.below(2) == 0 { len } else { len / 4 };
    match way {
        0 => bytes[rng.below(within)] ^= 1 << rng.below(8),
        1..4 => {
            for _ in 0..10_usize.pow(way as u32) {
                bytes[rng.below(within)] = rng.below(256) as u8;
            }
        }
        4 => {
            let fill = [0, 0xff, 0xdb][rng.below(3)];
            for _ in 0..=rng.below(8) {
                let at = rng.below(within / PAGE) * PAGE;
                bytes[at..at + PAGE].fill(fill);
            }
        }
        5 => {
            for _ in 0..=rng.below(8) {
                let (from, to) = (rng.below(pages) * PAGE, rng.below(within / PAGE) * PAGE);
                bytes.copy_within(from..from + PAGE, to);
            }
        }
        6 => {
            for _ in 0..=rng.below(16) {
                let (at, long) = (rng.below(within), 1 + rng.below(2000));
                for byte in bytes.iter_mut().skip(at).take(long) {
                    *byte = rng.below(256) as u8;
                }
            }
        }
        _ => {
            let (at, long) = (rng.below(pages) * PAGE, rng.below(len / 2));
            bytes.iter_mut().skip(at).take(long).for_each(|byte| *byte = 0);
        }
    }
}

/// What a value printed by `get` or `scan` may be: the one that was put.
fn no_value_is_wrong(done: &Done, key: Option<u64>, context: &str) {
    for line in done.out.lines() {
        let (key, value) = match key {
            Some(key) => (key, line),
            None => {
                let (name, value) = line.split_once('\t').unwrap();
                (name.strip_prefix("key").unwrap().parse().unwrap(), value)
            }
        };
        assert!(key < KEYS && value == value_of(key), "{context}: {key} is told as {value}");
    }
    if done.code == 0 {
        let told = done.out.lines().count() as u64;
        assert_eq!(told, if key.is_some() { 1 } else { KEYS }, "{context}: entries are missing");
    }
}

/// Runs the commands that only look; answers the code of a repair's dry run.
fn look(here: &Here, bytes: &[u8], context: &str) -> i32 {
    let path = here.path("a.pool");
    fs::write(&path, bytes).unwrap();
    let looks: [&[&str]; 7] = [
        &["pool", "info", "a.pool"],
        &["check", "a.pool"],
        &["check", "a.pool", "--repair", "--dry-run"],
        &["map", "get", "a.pool", "words", "key007"],
        &["map", "scan", "a.pool", "words"],
        &["events", "a.pool"],
        &["scrub", "status", "a.pool"],
    ];
    let mut dry = 0;
    for words in looks {
        let context = format!("{context}: {words:?}");
        let done = run(here, words, &context);
        assert!(fs::read(&path).unwrap() == bytes, "{context}: the file was changed");
        match words[1] {
            "get" => no_value_is_wrong(&done, Some(7), &context),
            "scan" => no_value_is_wrong(&done, None, &context),
            _ => {}
        }
        if words.contains(&"--repair") {
            dry = done.code;
        }
    }
    dry
}

/// Looks at one corrupted file and repairs it. Answers whether it could still be opened.
fn endure(here: &Here, bytes: &[u8], context: &str) -> bool {
    let dry = look(here, bytes, context);
    let done = run(here, &["check", "a.pool", "--repair"], context);
    assert_eq!(dry == 0, done.code == 0, "{context}: dry {dry}, then {}", done.code);
    if done.code & 8 != 0 {
        assert_unchanged(&here.path("a.pool"), bytes, context);
        return false;
    }
    // What was repaired is whole; what is left is told again.
    let again = run(here, &["check", "a.pool"], context);
    assert_eq!(again.code & 4, done.code & 4, "{context}: {}{}", done.out, again.out);
    let scan = run(here, &["map", "scan", "a.pool", "words"], context);
    no_value_is_wrong(&scan, None, context);
    if done.code & 4 == 0 {
        assert_eq!(scan.code, 0, "{context}: {}{}", scan.out, scan.err);
    }
    true
}

/// Runs the commands that change a pool, without a repair before them.
fn change(here: &Here, bytes: &[u8], context: &str) {
    fs::write(here.path("a.pool"), bytes).unwrap();
    let put = run(here, &["map", "put", "a.pool", "words", "key007", &value_of(7)], context);
    if put.code & 8 == 0 {
        let got = run(here, &["map", "get", "a.pool", "words", "key007"], context);
        assert_eq!((got.code & 8, got.out.trim_end()), (0, &*value_of(7)), "{context}");
    }
    for words in [&["inject", "stray", "a.pool"][..], &["scrub", "start", "a.pool"]] {
        run(here, words, context);
    }
    no_value_is_wrong(&run(here, &["map", "scan", "a.pool", "words"], context), None, context);
}

fn run(here: &Here, words: &[&str], context: &str) -> Done {
    let done = here.run(words);
    assert!(CODES.contains(&done.code), "{context}: {} {}", done.code, done.err);
    if done.code & 8 != 0 {
        let told = done.err.starts_with("holdfast: ") && done.err.contains("; ");
        assert!(told, "{context}: no cause or remedy: {}", done.err);
    }
    done
}

/// What is damaged beyond redundancy is left as it is, but for the journal: it tells of the damage.
fn assert_unchanged(path: &Path, bytes: &[u8], context: &str) {
    let now = fs::read(path).unwrap();
    let journal = EVENTS_START as usize..(EVENTS_START + EVENTS) as usize;
    let same = now.len() == bytes.len()
        && now[..journal.start] == bytes[..journal.start]
        && now[journal.end..] == bytes[journal.end..];
    assert!(same, "{context}: changed although it was refused");
}

/// Corrupts a pool in all ways; most of the files can still be opened.
fn corrupt_all(options: &Options, crash: bool, first: u64) {
    let here = Here::new();
    let whole = pool(&here, options, crash);
    assert!(endure(&here, &whole, "whole"));
    let mut opened = 0;
    for seed in first..first + SEEDS {
        let mut bytes = whole.clone();
        corrupt(&mut bytes, seed);
        opened += u64::from(endure(&here, &bytes, &format!("seed {seed}")));
        if seed % 4 == 0 {
            change(&here, &bytes, &format!("seed {seed}"));
        }
    }
    assert!(opened > SEEDS / 3, "only {opened} of {SEEDS} could be opened");
}

#[test]
fn closed_pools_with_two_parities() {
    corrupt_all(&small().parity(Parity::PQ), false, 1000);
}

#[test]
fn closed_pools_with_one_parity() {
    corrupt_all(&small().parity(Parity::P), false, 2000);
}

#[test]
fn pools_without_parity_and_with_one_copy() {
    corrupt_all(&small().parity(Parity::None).metadata_copies(false), false, 3000);
}

#[test]
fn crashed_pools_with_two_parities() {
    corrupt_all(&small().parity(Parity::PQ), true, 4000);
}

#[test]
fn crashed_pools_with_one_parity_and_other_sums() {
    corrupt_all(&small().parity(Parity::P).sums(SumKind::Adler32), true, 5000);
}

/// Not damage but forgery: every field of the superblock is anything, and its sum is right.
#[test]
fn superblocks_with_impossible_fields() {
    let here = Here::new();
    let whole = pool(&here, &small().parity(Parity::PQ), false);
    let side = u64::from_le_bytes(whole[104..112].try_into().unwrap()) as usize;
    let forge = |at: usize, len: usize, value: u64| {
        let mut bytes = whole.clone();
        for page in [0, side] {
            let page = &mut bytes[page..page + PAGE];
            page[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            page[8..12].fill(0);
            let sum = crc32c(page);
            page[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    };
    let wide = (40..136).step_by(8).map(|at| (at, 8)).chain([(160, 8)]);
    let narrow = (136..160).step_by(4).map(|at| (at, 4)).chain([(168, 4)]);
    for (at, len) in wide.chain(narrow) {
        // The log's generation at 64 rises with each opening; it cannot be near its end.
        let last = if at == 64 { 1 << 62 } else { u64::MAX };
        for value in [0, 1, 3, 4096, 1 << 20, (1 << 47) - 4096, last] {
            let context = format!("{value:#x} at {at}");
            let bytes = forge(at, len, value);
            look(&here, &bytes, &context);
            run(&here, &["check", "a.pool", "--repair"], &context);
        }
    }
}
