//! `map load`: lines of a file into a map, some in each transaction.

use holdfast::Pool;
use serde_json::json;

use crate::args::LoadArgs;
use crate::commands::lines::{Form, Lines};
use crate::commands::map::{AnyMap, in_map, refuse_long_key};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};
use crate::progress::Progress;
use crate::session;

/// What lines of keys and values may be.
const LINES: Form = Form {
    longest: 1 << 20,
    ahead: 64,
    remedy: "give lines of text: a key, a tab, a value; earlier batches are loaded",
};

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
    let lines = Lines::of(&args.file, LINES)?;
    let pool = session::to_change(&args.pool)?;
    let map = AnyMap::find_or_make(&pool, &args.map, args.kind.into())?;
    let progress = Progress::bytes(out, "loading");
    let mut loaded = Loaded::default();
    let (mut batch, mut done): (Vec<String>, u64) = (Vec::new(), 0);
    let mut number = 0_u64;
    while let Some(line) = lines.next()? {
        number += 1;
        done += line.bytes;
        let line = line.text.map_err(|what| {
            let cause = format!("{}, line {number}: {what}", args.file.display());
            Failure::new("invalid", cause, LINES.remedy)
        })?;
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
