//! `export`: a map as lines of JSON that `import` takes.

use core::ops::Bound;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use holdfast::Pool;
use serde_json::json;

use crate::args::ExportArgs;
use crate::commands::map::{AnyMap, in_map};
use crate::commands::transfer::{Pair, to_json};
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, dressed, give_up, plain};
use crate::progress::Progress;
use crate::session;

/// Entries read in one transaction.
const PAGE: usize = 500;

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
    if !map.kind().is_ordered() {
        // No order, so no place to go on from: all at once, and only then out of the transaction,
        // which may run again.
        write(&map.all(pool)?)?;
        return Ok(entries);
    }
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let page = map.page(from.as_ref().map(Vec::as_slice), PAGE)?;
        write(&page)?;
        match page.into_iter().last() {
            Some((last, _)) => from = Bound::Excluded(last),
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
