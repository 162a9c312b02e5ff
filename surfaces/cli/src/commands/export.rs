//! `export`: a map as lines of JSON that `import` takes.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use holdfast::Pool;
use serde_json::json;

use crate::args::ExportArgs;
use crate::commands::map::{AnyMap, Batch, in_map};
use crate::commands::transfer::{Pair, to_json};
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, dressed, give_up, plain};
use crate::progress::Progress;
use crate::session;

/// Entries read in one transaction, and held in memory: a map may be larger than that is.
const BATCH: Batch = Batch { pairs: 500, bytes: 1 << 20 };

/// Writes the entries of a map.
pub(crate) fn export(out: Out, args: &ExportArgs) -> Outcome {
    let pool = session::to_look(&args.pool)?;
    let map = AnyMap::expect(&pool, &args.map)?;
    let mut sink = Sink::open(out, args.output.as_deref())?;
    let progress = Progress::things(out, "exporting", 0);
    let written = write_all(&pool, &map, &mut sink, &progress).map_err(in_map(&args.map));
    progress.done();
    drop(map);
    let entries = match written.and_then(|entries| sink.end().map(|()| entries)) {
        Ok(entries) => entries,
        Err(failure) => {
            if let Some(path) = &args.output {
                // Ours: it was made above. Half of a map is none.
                let _ = std::fs::remove_file(path);
            }
            return Err(failure);
        }
    };
    let exit = session::finish(out, pool, false)?;
    if let Some(path) = &args.output {
        let path = path.display().to_string();
        out.object("export", json!({ "pairs": entries, "output": path }));
        out.words(format!("{} exported", count(entries, "pair")));
    }
    Ok(exit)
}

fn write_all(pool: &Pool, map: &AnyMap, sink: &mut Sink, progress: &Progress) -> Outcome<u64> {
    let mut entries = 0;
    let mut write = |pairs: &[Pair]| {
        for pair in pairs {
            sink.pair(pair)?;
        }
        entries += pairs.len() as u64;
        progress.set(entries, entries);
        let stop = crate::interrupt::asked();
        if stop { Err(Failure::interrupted("what was written is not whole")) } else { Ok(()) }
    };
    let mut after = None;
    loop {
        let batch = map.next_batch(pool, after.as_deref(), BATCH)?;
        write(&batch)?;
        match batch.into_iter().last() {
            Some((last, _)) => after = Some(last),
            None => return Ok(entries),
        }
    }
}

/// Where the lines go.
struct Sink<'a> {
    to: BufWriter<Box<dyn Write>>,
    file: Option<(&'a Path, File)>,
    /// Whether lines carry what all objects of this command do.
    dressed: bool,
}

impl<'a> Sink<'a> {
    fn open(out: Out, path: Option<&'a Path>) -> Outcome<Self> {
        let Some(path) = path else {
            let to = BufWriter::new(Box::new(std::io::stdout().lock()) as Box<dyn Write>);
            return Ok(Self { to, file: None, dressed: out.json });
        };
        let failed = |error| Failure::io(path.display(), &error);
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        let to = BufWriter::new(Box::new(file.try_clone().map_err(failed)?) as Box<dyn Write>);
        Ok(Self { to, file: Some((path, file)), dressed: false })
    }

    fn pair(&mut self, pair: &Pair) -> Outcome<()> {
        let object = to_json(pair);
        let object = if self.dressed { dressed("export", object) } else { object };
        let written = writeln!(self.to, "{}", plain(&object));
        written.map_err(|error| self.failed(&error))
    }

    /// The end: all lines are out and, in a file, for good.
    fn end(&mut self) -> Outcome<()> {
        let flushed = self.to.flush();
        let synced = flushed.and_then(|()| match &self.file {
            Some((_, file)) => file.sync_all(),
            None => Ok(()),
        });
        synced.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        match self.file {
            Some((path, _)) => Failure::io(path.display(), error),
            None => give_up(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast::Kind;

    const SMALL: Batch = Batch { pairs: 50, bytes: 10_000 };

    /// All batches of a map, one after the other.
    fn batches(pool: &Pool, map: &AnyMap) -> Vec<Vec<Pair>> {
        let mut all: Vec<Vec<Pair>> = Vec::new();
        loop {
            let last = all.last().and_then(|batch| batch.last()).map(|(key, _)| key.clone());
            let batch = map.next_batch(pool, last.as_deref(), SMALL).expect("nothing is damaged");
            if batch.is_empty() {
                return all;
            }
            all.push(batch);
        }
    }

    #[test]
    fn a_map_of_any_size_is_read_in_batches_of_bounded_size() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("a.pool");
        let pool = Pool::options().size(32 << 20).create(path).expect("there is room");
        for kind in Kind::ALL {
            let map = pool.map_as::<str, [u8]>(kind.name(), kind).expect("it is new");
            let value = |n: u32| {
                vec![n as u8; if n.is_multiple_of(97) { 9000 } else { 1 + n as usize % 40 }]
            };
            let put = |n: u32| map.put(&format!("key {n}"), &value(n)).expect("there is room");
            assert!((0..2000).map(put).all(|had| !had));
            let map = AnyMap::expect(&pool, kind.name()).expect("it was made");
            let all = batches(&pool, &map);
            assert!(all.len() > 2000 / SMALL.pairs, "{kind}: {} batches", all.len());
            for batch in &all {
                let bytes = |pairs: &[Pair]| pairs.iter().map(|(k, v)| k.len() + v.len()).sum();
                let before: usize = bytes(&batch[..batch.len() - 1]);
                assert!(batch.len() <= SMALL.pairs && before < SMALL.bytes, "{kind}: {before}");
            }
            assert_eq!(batches(&pool, &map), all, "{kind}: the order is the map's");
            let mut found = all.concat();
            if kind.is_ordered() {
                assert!(found.is_sorted(), "{kind}");
            }
            found.sort();
            let mut there: Vec<Pair> =
                (0..2000).map(|n| (format!("key {n}").into_bytes(), value(n))).collect();
            there.sort();
            assert!(found == there, "{kind}");
        }
    }
}
