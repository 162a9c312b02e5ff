//! `map load`: lines of a file into a map, some in each transaction.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use holdfast::Pool;
use serde_json::json;

use crate::args::LoadArgs;
use crate::commands::map::{AnyMap, in_map, refuse_long_key};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};
use crate::progress::Progress;
use crate::session;

/// Longest line taken, in bytes; a longer one is no line of keys and values.
const LINE_MAX: usize = 1 << 20;
/// Lines read before they are asked for.
const LINES_AHEAD: usize = 64;
/// How often a wait for a line looks whether somebody interrupts.
const LOOK: Duration = Duration::from_millis(50);

/// What was loaded.
#[derive(Debug, Default)]
struct Loaded {
    lines: u64,
    new: u64,
}

/// Puts the lines of a file.
pub(crate) fn load(out: Out, args: &LoadArgs) -> Outcome {
    if args.separator.is_empty() || args.batch == 0 {
        let remedy = "give a separator of at least one character and a batch of at least one line";
        return Err(Failure::usage(
            "nothing parts keys and values, or no line fits a batch",
            remedy,
        ));
    }
    let lines = Lines::of(&args.file)?;
    let pool = session::to_change(&args.pool)?;
    let map = AnyMap::find_or_make(&pool, &args.map, args.kind.into())?;
    let progress = Progress::bytes(out, "loading");
    let mut loaded = Loaded::default();
    let (mut batch, mut done): (Vec<String>, u64) = (Vec::new(), 0);
    while let Some(line) = lines.next()? {
        done += line.len() as u64 + 1;
        if !line.trim().is_empty() {
            batch.push(line);
        }
        if batch.len() == args.batch {
            put(&pool, &map, args, &mut batch, &mut loaded)?;
            pool.expect_whole_file()?;
            progress.set(done, lines.bytes.max(done));
        }
    }
    let interrupted = crate::interrupt::asked();
    if !interrupted {
        put(&pool, &map, args, &mut batch, &mut loaded)?;
    }
    progress.done();
    drop(map);
    let exit = session::finish(out, pool, true)?;
    let Loaded { lines, new } = loaded;
    let body = json!({ "lines": lines, "new": new, "interrupted": interrupted });
    out.object("map load", body);
    out.words(format!("{} loaded, {} new", count(lines, "line"), count(new, "key")));
    Ok(if interrupted { exit.and(Exit::CANCELLED) } else { exit })
}

/// The lines of a file. A thread reads them: who waits for input can be interrupted.
struct Lines {
    read: Receiver<Outcome<String>>,
    /// Bytes of the file; 0 if nobody knows.
    bytes: u64,
}

impl Lines {
    fn of(path: &Path) -> Outcome<Self> {
        let (told, bytes) = sync_channel(1);
        let (tell, read) = sync_channel(LINES_AHEAD);
        let path = path.to_path_buf();
        let work = move || {
            let mut file = match open(&path) {
                Ok((file, bytes)) => {
                    let _ = told.send(Ok(bytes));
                    file
                }
                Err(failure) => return drop(told.send(Err(failure))),
            };
            for number in 1.. {
                let Some(line) = next_line(&mut file, &path, number).transpose() else { return };
                let last = line.is_err();
                if tell.send(line).is_err() || last {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(work)
            .map_err(|error| Failure::io("a thread to read lines", &error))?;
        let bytes = wait(&bytes)?.unwrap_or_default();
        Ok(Self { read, bytes })
    }

    /// The next line; nothing at the end, or once somebody asked the command to stop.
    fn next(&self) -> Outcome<Option<String>> {
        wait(&self.read)
    }
}

/// Waits for what a thread has to say: nothing if it ended, or if somebody interrupts.
fn wait<T>(from: &Receiver<Outcome<T>>) -> Outcome<Option<T>> {
    while !crate::interrupt::asked() {
        match from.recv_timeout(LOOK) {
            Ok(told) => return told.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(None)
}

fn open(path: &Path) -> Outcome<(Box<dyn BufRead>, u64)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(std::io::stdin())), 0));
    }
    let file = File::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    let len = file.metadata().map_or(0, |found| found.len());
    Ok((Box::new(BufReader::new(file)), len))
}

/// The next line, without its end.
fn next_line(lines: &mut dyn BufRead, path: &Path, number: u64) -> Outcome<Option<String>> {
    use std::io::Read;
    let bad = |what: &str| {
        Failure::new(
            "invalid",
            format!("{}, line {number}: {what}", path.display()),
            "give lines of text: a key, a tab, a value; earlier batches are loaded",
        )
    };
    let mut line = Vec::new();
    // One byte more than a line can have, and its end.
    let read = lines.take(LINE_MAX as u64 + 2).read_until(b'\n', &mut line);
    match read {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(Failure::io(path.display(), &error)),
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.len() > LINE_MAX {
        return Err(bad(&format!("is longer than {LINE_MAX} bytes, the most a line can have")));
    }
    String::from_utf8(line).map(Some).map_err(|_| bad("is no UTF-8 text"))
}

fn put(
    pool: &Pool,
    map: &AnyMap,
    args: &LoadArgs,
    batch: &mut Vec<String>,
    loaded: &mut Loaded,
) -> Outcome<()> {
    let mut pairs = Vec::with_capacity(batch.len());
    for (line, number) in batch.iter().zip(loaded.lines + 1..) {
        let Some(pair) = line.split_once(args.separator.as_str()) else {
            return Err(Failure::new(
                "invalid",
                format!("{}, entry {number}: nothing parts key and value", args.file.display()),
                "part them by a tab, or name what does with --separator; entries of earlier \
                 batches are loaded",
            ));
        };
        refuse_long_key(pair.0)?;
        pairs.push(pair);
    }
    loaded.new += map.put_all(pool, &pairs).map_err(in_map(&args.map))?;
    loaded.lines += pairs.len() as u64;
    batch.clear();
    Ok(())
}
