//! `bench`: how long put, get and del of a map take, one transaction each.

use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast::{Kind, NamedMap, Pool};
use serde_json::{Value, json};

use crate::args::BenchArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, numbers, table};
use crate::progress::Progress;
use crate::rng::Rng;
use crate::session;
use crate::size::show_nanos;

/// The map; one that an interrupted run left behind is emptied and used.
const MAP: &str = "holdfast-bench";
/// Where shared memory is.
const SHM: &str = "/dev/shm";
/// Keys removed in one transaction when a run clears up.
const CLEAR: usize = 1000;
/// Bytes of the largest value; a run makes them all anew.
const VALUE_MAX: u64 = 1 << 20;
/// Percentiles shown.
const PARTS: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0)];

/// How long each of many operations took, in nanoseconds, ascending.
#[derive(Debug, Default)]
struct Took {
    nanos: Vec<u64>,
    all: u64,
}

/// Measures.
pub(crate) fn bench(out: Out, args: &BenchArgs) -> Outcome {
    if args.value > VALUE_MAX {
        let cause = format!("a value of {} bytes is longer than {VALUE_MAX}", args.value);
        return Err(Failure::usage(cause, "choose a shorter one"));
    }
    let (pool, path) = match &args.pool {
        Some(path) => (session::to_use(path)?, path.clone()),
        None => in_memory(args)?,
    };
    let status = pool.status();
    let map = pool.map_as::<[u8], [u8]>(MAP, args.kind.into())?;
    clear(&pool, &map)?;
    let measured = measure(out, args, &map);
    clear(&pool, &map)?;
    drop(map);
    pool.drop_map::<[u8], [u8]>(MAP)?;
    let exit = session::finish(out, pool, true)?;
    let interrupted = crate::interrupt::asked();
    let rows = measured?;
    let all: serde_json::Map<String, Value> =
        rows.iter().map(|(name, took)| ((*name).to_owned(), took.json())).collect();
    out.object(
        "bench",
        json!({
            "path": path.display().to_string(),
            "medium": status.kind.to_string(),
            "file_system": status.file_system,
            "survives": status.survives(),
            "pairs": args.pairs,
            "value_bytes": args.value,
            "map": Kind::from(args.kind).name(),
            "interrupted": interrupted,
            "took": all,
        }),
    );
    let mut shown = table(&["", "number", "a second", "p50", "p90", "p99", "p99.9", "most"]);
    for (name, took) in &rows {
        let mut row = vec![(*name).to_owned(), took.nanos.len().to_string(), took.rate()];
        row.extend(PARTS.map(|(_, part)| took.part(part).map_or("-".to_owned(), show_nanos)));
        shown.add_row(row);
    }
    numbers(&mut shown);
    out.words(shown.to_string());
    out.words(format!(
        "{} ({}), a commit survives: {}; {} bytes a value, one thread",
        status.kind,
        status.file_system,
        status.survives(),
        args.value,
    ));
    Ok(if interrupted { exit.and(Exit::CANCELLED) } else { exit })
}

/// A pool in shared memory, without a name: it is gone with this process, however that ends.
fn in_memory(args: &BenchArgs) -> Outcome<(Pool, PathBuf)> {
    let path = Path::new(SHM).join(format!("holdfast-bench-{}", std::process::id()));
    let pairs = args.pairs.saturating_mul(2 * args.value + 512);
    let pool = Pool::options().size((64 << 20) + pairs).commands(false).create(&path)?;
    std::fs::remove_file(&path).map_err(|error| Failure::io(path.display(), &error))?;
    Ok((pool, PathBuf::from(SHM)))
}

type Rows = Vec<(&'static str, Took)>;

fn measure(out: Out, args: &BenchArgs, map: &NamedMap<[u8], [u8]>) -> Outcome<Rows> {
    let mut rng = Rng::new(args.seed, 1);
    // Numbers in front make keys differ, chance makes neighbours strangers.
    let mut keys: Vec<[u8; 16]> = (0..args.pairs)
        .map(|number| (u128::from(rng.next()) << 64 | u128::from(number)).to_le_bytes())
        .map(|mut key| {
            key.reverse();
            key
        })
        .collect();
    let mut value = vec![0; args.value as usize];
    let progress = Progress::things(out, "measuring", 3 * args.pairs);
    let mut rows = Rows::new();
    for (at, name) in (0_u64..).zip(["put", "get", "del"]) {
        shuffle(&mut keys, &mut rng);
        let mut took = Took::default();
        for (number, key) in (0_u64..).zip(&keys) {
            if crate::interrupt::asked() {
                break;
            }
            fill(&mut value, key);
            let begun = Instant::now();
            let right = match name {
                "put" => !map.put(key, &value)?,
                "get" => map.get(key)?.as_deref() == Some(&value[..]),
                _ => map.remove(key)?,
            };
            took.note(begun);
            if !right {
                let cause = format!("{name} of a key answers what it may not");
                return Err(Failure::new("damaged", cause, "check the pool"));
            }
            if number % 64 == 0 {
                progress.at(at * args.pairs + number);
            }
        }
        took.nanos.sort_unstable();
        rows.push((name, took));
    }
    progress.done();
    Ok(rows)
}

/// The value of a key: which one, shows.
fn fill(value: &mut [u8], key: &[u8; 16]) {
    for (at, byte) in value.iter_mut().enumerate() {
        *byte = key[at % key.len()] ^ at as u8;
    }
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for at in (1..items.len()).rev() {
        let with = rng.below(at as u64 + 1) as usize;
        items.swap(at, with);
    }
}

/// Removes whatever is in the map, some in each transaction.
fn clear(pool: &Pool, map: &NamedMap<[u8], [u8]>) -> Outcome<()> {
    let mut keys = pool.run(|tx| {
        let mut keys = Vec::new();
        map.map().for_each(tx, |key, _| {
            keys.push(key.to_vec());
            Ok(())
        })?;
        Ok(keys)
    })?;
    while !keys.is_empty() {
        let part = keys.split_off(keys.len().saturating_sub(CLEAR));
        pool.run(|tx| {
            for key in &part {
                map.map().remove(tx, key)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl Took {
    fn note(&mut self, begun: Instant) {
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.push(nanos);
        self.all = self.all.saturating_add(nanos);
    }

    /// The time within which this part of them was done.
    fn part(&self, part: f64) -> Option<u64> {
        let rank = (self.nanos.len() as f64 * part).ceil().max(1.0) as usize;
        self.nanos.get(rank - 1).copied()
    }

    fn per_second(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.nanos.len() as f64 * 1e9 / self.all as f64 }
    }

    fn rate(&self) -> String {
        format!("{:.0}", self.per_second())
    }

    fn json(&self) -> Value {
        let parts = PARTS.map(|(name, part)| (format!("{name}_ns"), json!(self.part(part))));
        let mut all: serde_json::Map<String, Value> = parts.into_iter().collect();
        all.insert("number".to_owned(), self.nanos.len().into());
        all.insert("per_second".to_owned(), (self.per_second() as u64).into());
        all.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_noted() {
        let took = Took { nanos: (1..=1000).collect(), all: 500_500 };
        assert_eq!(PARTS.map(|(_, part)| took.part(part)), [500, 900, 990, 999, 1000].map(Some));
        assert_eq!(Took::default().part(0.5), None);
        assert_eq!(took.rate(), "1998002");
        assert_eq!(Took::default().rate(), "0");
    }

    #[test]
    fn shuffled_items_are_the_same_items() {
        let mut items: Vec<u32> = (0..100).collect();
        shuffle(&mut items, &mut Rng::new(1, 2));
        assert_ne!(items, (0..100).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<u32>>());
    }
}
