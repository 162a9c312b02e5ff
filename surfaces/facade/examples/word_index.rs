//! Word index: which files have a word, kept in a durable map.
//!
//!     cargo run --release --example word_index -- POOL add FILE...
//!     cargo run --release --example word_index -- POOL find WORD
//!
//! Shows named maps, operations that are transactions of their own, several operations in one
//! transaction, ranges of an ordered map, and a scrub.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use holdfast::{ErrorKind, NamedMap, Parity, Pool, ScrubOptions, VerifyReads};

/// Words put in one transaction.
const BATCH: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [pool, "add", files @ ..] => {
            let pool = open(Path::new(pool))?;
            for file in files {
                println!("{file}: {} words", add(&pool, file, &std::fs::read_to_string(file)?)?);
            }
            let done = pool.scrub(ScrubOptions::default(), |_, _| {})?;
            println!("{} objects scrubbed, {} damaged", done.report.objects, done.report.found);
        }
        [pool, "find", word] => {
            for (file, count) in find(&open(Path::new(pool))?, word)? {
                println!("{file}: {count} times");
            }
        }
        _ => return Err("word_index POOL add FILE... | find WORD".into()),
    }
    Ok(())
}

/// Opens the pool, or makes one; every read of it verifies.
pub(crate) fn open(path: &Path) -> Result<Pool, holdfast::Error> {
    let options = Pool::options().size(64 << 20).parity(Parity::PQ);
    let options = options.verify_reads(VerifyReads::Always);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => options.create(path),
        opened => opened,
    }
}

/// The map from `word`, a space and the file's name to the number of times.
fn counts(pool: &Pool) -> Result<NamedMap<str, u64>, holdfast::Error> {
    pool.map("counts")
}

/// Puts the words of a text into the index; how many different ones there are.
pub(crate) fn add(pool: &Pool, name: &str, text: &str) -> Result<usize, holdfast::Error> {
    let counts = counts(pool)?;
    let all: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let distinct: Vec<&String> = all.iter().collect::<BTreeSet<_>>().into_iter().collect();
    for batch in distinct.chunks(BATCH) {
        pool.run(|tx| {
            for word in batch {
                let times = all.iter().filter(|other| other == word).count() as u64;
                counts.map().put(tx, &format!("{word} {name}"), &times)?;
            }
            Ok(())
        })?;
    }
    Ok(distinct.len())
}

/// Files that have a word, and how often.
pub(crate) fn find(pool: &Pool, word: &str) -> Result<Vec<(String, u64)>, holdfast::Error> {
    let word = word.to_lowercase();
    // A space is the least character a key goes on with, `!` the next.
    let (from, to) = (format!("{word} "), format!("{word}!"));
    let range = (std::ops::Bound::Included(from.as_str()), std::ops::Bound::Excluded(to.as_str()));
    let found = counts(pool)?.scan(range, usize::MAX)?;
    let file = |key: String| key.split_once(' ').map(|(_, file)| file.to_owned()).unwrap_or(key);
    Ok(found.into_iter().map(|(key, times)| (file(key), times)).collect())
}
