//! `import`: lines of JSON into a map, a batch per transaction.
//!
//! A batch with a bad line is not put, and ends the import: what is in the map is all before it.
//! The rest of the lines is still read, so that all bad ones are told at once.

use holdfast::{Error, Pool};
use serde_json::{Value, json};

use crate::args::ImportArgs;
use crate::commands::lines::{Form, Lines};
use crate::commands::map::{AnyMap, in_map};
use crate::commands::transfer::{Pair, from_line};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};
use crate::progress::Progress;
use crate::session;

/// What lines may be. One that holds a large value is long, so few are read ahead.
const LINES: Form = Form {
    longest: 256 << 20,
    ahead: 1,
    remedy: "give lines of JSON, as `holdfast export` writes them; earlier batches are imported",
};
/// Bad lines told to people; programs get more.
const SHOWN: usize = 20;
/// Bad lines after which no more are looked for.
const MOST: usize = 1000;

/// What was imported, and what not.
#[derive(Debug, Default)]
struct Imported {
    pairs: u64,
    new: u64,
    /// First line that is not imported.
    next: u64,
    bad: Vec<(u64, String)>,
}

/// Puts the lines of a file.
pub(crate) fn import(out: Out, args: &ImportArgs) -> Outcome {
    let lines = Lines::of(&args.file, LINES)?;
    let pool = session::to_change(&args.pool)?;
    let map = AnyMap::find_or_make_of(&pool, &args.map, args.kind.into(), args.types)?;
    let progress = Progress::bytes(out, "importing");
    let mut done = Imported { next: args.from, ..Imported::default() };
    let ended = put_all(&pool, &map, args, &lines, &mut done, &progress);
    progress.done();
    drop(map);
    let exit = session::finish(out, pool, true)?;
    let interrupted = crate::interrupt::asked();
    let failure = match ended {
        Ok(()) if !done.bad.is_empty() => Some(bad_lines(args, &done)),
        Ok(()) => None,
        Err(failure) => Some(failure),
    };
    let exit = if interrupted { exit.and(Exit::CANCELLED) } else { exit };
    let exit = failure.as_ref().map_or(exit, |failure| exit.and(failure.exit()));
    let bad = |(line, what): &(u64, String)| json!({ "line": line, "what": what });
    let mut body = json!({
        "pairs": done.pairs,
        "new": done.new,
        "next_line": done.next,
        "bad_lines": done.bad.iter().map(bad).collect::<Vec<Value>>(),
        "interrupted": interrupted,
    });
    if let Some(failure) = &failure {
        body["error"] = failure.json();
        body["exit"] = exit.code().into();
    }
    out.object("import", body);
    out.words(format!("{} imported, {} new", count(done.pairs, "pair"), count(done.new, "key")));
    for (line, what) in done.bad.iter().take(SHOWN) {
        out.note(format!("{}, line {line}: {what}", args.file.display()));
    }
    if let Some(failure) = &failure {
        out.complain(failure);
    } else if interrupted {
        out.note(format!("interrupted; --from {} goes on", done.next));
    }
    Ok(exit)
}

fn put_all(
    pool: &Pool,
    map: &AnyMap,
    args: &ImportArgs,
    lines: &Lines,
    done: &mut Imported,
    progress: &Progress,
) -> Outcome<()> {
    let mut batch: Vec<Pair> = Vec::new();
    let (mut number, mut bytes) = (0_u64, 0_u64);
    loop {
        let read = lines.next();
        let read = read.map_err(|end| end.with_more(&format!("--from {} goes on", done.next)))?;
        let Some(line) = read else { break };
        number += 1;
        bytes += line.bytes;
        if number < args.from || line.text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            continue;
        }
        let pair = line.text.and_then(|text| from_line(&text)).and_then(|pair| {
            map.fits(&pair.0, &pair.1).map_err(str::to_owned)?;
            Ok(pair)
        });
        match pair {
            Ok(pair) if done.bad.is_empty() => batch.push(pair),
            Ok(_) => {}
            Err(what) => done.bad.push((number, what)),
        }
        if done.bad.len() >= MOST {
            return Ok(());
        }
        if batch.len() as u64 == args.batch && done.bad.is_empty() {
            put(pool, map, args, (&mut batch, number), done)?;
            progress.set(bytes, lines.bytes.max(bytes));
        }
    }
    if crate::interrupt::asked() || !done.bad.is_empty() {
        return Ok(());
    }
    put(pool, map, args, (&mut batch, number), done)
}

/// Puts a batch whose last line has this number.
fn put(
    pool: &Pool,
    map: &AnyMap,
    args: &ImportArgs,
    (batch, last): (&mut Vec<Pair>, u64),
    done: &mut Imported,
) -> Outcome<()> {
    let new = map.put_pairs(pool, batch).map_err(|failure| {
        let Failure::Pool(error) = failure else { return failure };
        let cause = format!("lines {} to {last}: {}", done.next, error.cause());
        let remedy = format!("{}; --from {} goes on", error.remedy(), done.next);
        let told = Error::new(error.kind(), cause).with_remedy(remedy).at(&args.pool);
        in_map(&args.map)(told.into())
    })?;
    pool.expect_whole_file()?;
    done.new += new;
    done.pairs += batch.len() as u64;
    done.next = last + 1;
    batch.clear();
    Ok(())
}

fn bad_lines(args: &ImportArgs, done: &Imported) -> Failure {
    let numbers: Vec<String> =
        done.bad.iter().take(SHOWN).map(|(line, _)| line.to_string()).collect();
    let more = if done.bad.len() > SHOWN { " and more" } else { "" };
    let cause = format!(
        "{}: {}: {}{more}; nothing from line {} on is imported",
        args.file.display(),
        count(done.bad.len() as u64, "bad line"),
        numbers.join(", "),
        done.next,
    );
    Failure::new("invalid", cause, format!("correct them, and go on with --from {}", done.next))
}
