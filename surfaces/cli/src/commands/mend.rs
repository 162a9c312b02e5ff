//! `verify`, and `repair` of protected files: every page is held against what was covered.

use std::path::Path;
use std::time::Instant;

use holdfast::protect::{ProtectOptions, ProtectedFile, Repaired, Unsure, Verified};
use holdfast::{ErrorKind, Observer};
use serde_json::{Value, json};

use crate::args::{FileArgs, RepairArgs};
use crate::commands::check::{self, exit_of};
use crate::commands::protect::{nothing_changed, opened};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, table};
use crate::progress::Progress;
use crate::size::{show_nanos, show_time};

/// Pages shown to people who did not ask for more.
const SHOWN: usize = 20;
/// Pages in an object.
pub(crate) const LISTED: usize = 1000;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// The options of a protected file whose side file may be elsewhere, or in a pool.
pub(crate) fn options(args: &FileArgs) -> ProtectOptions {
    options_of(args.side.as_deref(), args.pool.as_deref())
}

fn options_of(side: Option<&Path>, pool: Option<&Path>) -> ProtectOptions {
    let mut options = ProtectOptions::new();
    if let Some(side) = side {
        options = options.side(side);
    }
    if let Some(pool) = pool {
        options = options.pool(pool);
    }
    options
}

fn repair_options(args: &RepairArgs) -> ProtectOptions {
    options_of(args.side.as_deref(), args.pool_of.as_deref())
}

/// Looks at a protected file.
pub(crate) fn verify(out: Out, args: &FileArgs) -> Outcome {
    let started = Instant::now();
    let file = ProtectedFile::look(&args.file, &options(args))?;
    let progress = Progress::things(out, "verifying", file.pages());
    let found = file.verify(progress.until_asked())?;
    progress.done();
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let undecided = found.undecided.len() as u64 + found.gone;
    out.object("verify", verified_json(&file, &args.file, &found, nanos));
    if !out.json {
        tell_verified(out, &file, &found, nanos);
    }
    Ok(exit((0, found.corrupt.len() as u64, undecided), found.stopped))
}

/// The code where so much was put right, is damaged, and cannot be decided.
fn exit((mended, damaged, undecided): (u64, u64, u64), stopped: bool) -> Exit {
    let exit = exit_of(mended + damaged, damaged, stopped);
    if undecided > 0 { exit.and(Exit::UNDECIDED) } else { exit }
}

fn verified_json(file: &ProtectedFile, path: &Path, found: &Verified, nanos: u64) -> Value {
    let mut undecided = undecided_json(&found.undecided);
    for (told, (page, _)) in undecided.iter_mut().zip(&found.undecided) {
        told["verified_ns"] = file.verified_ns(*page).into();
    }
    let corrupt: Vec<u64> = found.corrupt.iter().copied().take(LISTED).collect();
    let since: Vec<u64> = corrupt.iter().map(|page| file.verified_ns(*page)).collect();
    json!({
        "path": path.display().to_string(),
        "pages": found.pages,
        "good": found.good,
        "uncovered": found.uncovered,
        "corrupt": found.corrupt.len(),
        "undecided": found.undecided.len(),
        "gone": found.gone,
        "grown": found.grown,
        "changed": found.changed,
        "unrest": found.unrest,
        "interrupted": found.stopped,
        "corrupt_pages": corrupt,
        "corrupt_verified_ns": since,
        "undecided_pages": undecided,
        "nanos": nanos,
    })
}

pub(crate) fn undecided_json(undecided: &[(u64, Unsure)]) -> Vec<Value> {
    let of = |(page, why): &(u64, Unsure)| {
        let (reason, words) = (why.code(), why.to_string());
        json!({ "page": page, "reason": reason, "why": words })
    };
    undecided.iter().take(LISTED).map(of).collect()
}

/// Pages with what they are, as a table.
pub(crate) fn tell_pages(out: Out, rows: &[(u64, String)]) {
    if rows.is_empty() {
        return;
    }
    let shown = if out.verbose > 0 { rows.len() } else { SHOWN };
    let mut pages = table(&["page", "at", "verdict"]);
    for (page, what) in rows.iter().take(shown) {
        pages.add_row([page.to_string(), format!("{:#x}", page * PAGE), what.clone()]);
    }
    out.words(pages.to_string());
    if rows.len() > shown {
        out.words(format!("... {} more (-v shows all)", rows.len() - shown));
    }
}

pub(crate) fn undecided_rows(undecided: &[(u64, Unsure)]) -> impl Iterator<Item = (u64, String)> {
    undecided.iter().map(|(page, why)| (*page, format!("undecided: {why}")))
}

fn same_rows<'a>(pages: &'a [u64], what: &'a str) -> impl Iterator<Item = (u64, String)> + 'a {
    pages.iter().map(move |page| (*page, what.to_owned()))
}

/// A damaged page, with the time since when it may have been so.
fn damaged_row(file: &ProtectedFile, page: u64) -> (u64, String) {
    let verified = match file.verified_ns(page) {
        0 => "never verified before".to_owned(),
        ns => format!("last verified {}", show_time(ns)),
    };
    (page, format!("corrupt; {verified}"))
}

fn tell_verified(out: Out, file: &ProtectedFile, found: &Verified, nanos: u64) {
    let damaged = found.corrupt.iter().map(|page| damaged_row(file, *page));
    let mut rows: Vec<(u64, String)> = damaged.collect();
    rows.extend(undecided_rows(&found.undecided));
    rows.sort_unstable();
    tell_pages(out, &rows);
    if let Some(why) = &found.unrest {
        out.note(format!("{why}: what differs may have been written just now"));
    }
    if found.changed {
        out.note(
            "the file was changed, or replaced, while it was not protected: what differs is \
             undecided",
        );
    }
    if found.gone > 0 {
        let gone = count(found.gone, "page");
        out.note(format!("the file is shorter than it was: {gone} gone"));
    }
    if found.grown > 0 {
        out.note(format!(
            "the file has grown by {} bytes, not covered; `holdfast repair` takes them in",
            found.grown
        ));
    }
    out.words(format!(
        "{} in {}: {} damaged, {} undecided, {} not covered{}",
        count(found.pages, "page"),
        show_nanos(nanos),
        found.corrupt.len(),
        found.undecided.len(),
        found.uncovered,
        if found.stopped { "; stopped before the end" } else { "" },
    ));
    if !found.corrupt.is_empty() {
        out.words("the file was not changed; `holdfast repair` repairs what can be");
    }
}

/// Repairs a pool, or a protected file.
pub(crate) fn repair(out: Out, args: &RepairArgs) -> Outcome {
    let side = args.side.clone().unwrap_or_else(|| holdfast::protect::side_path(&args.pool));
    let asked = args.force || args.before.is_some() || args.side.is_some();
    let asked = asked || args.pool_of.is_some();
    if !asked && (!side.exists() || Observer::open(&args.pool).is_ok()) {
        return check::repair(out, &args.pool).map_err(|failure| match failure {
            Failure::Pool(error) if error.kind() == ErrorKind::NotAPool => {
                Failure::Pool(error).with_more("a file of another kind has to be protected first")
            }
            other => other,
        });
    }
    match &args.before {
        Some(to) => before(out, args, to),
        None => repair_file(out, args),
    }
}

fn repair_file(out: Out, args: &RepairArgs) -> Outcome {
    let started = Instant::now();
    let file = opened(out, &args.pool, &repair_options(args))?;
    let progress = Progress::things(out, "repairing", file.pages());
    let mut done = file.repair(args.force, progress.until_asked())?;
    progress.done();
    let trouble = file.close().err().map(Failure::from);
    if trouble.is_some() {
        // What is right in the data file is so. What the side file, or a pool, has is not known.
        done.redundancy = 0;
    }
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mended = (done.repaired.len() + done.forced.len()) as u64 + done.redundancy;
    let (left, undecided) = (done.lost.len() + done.busy.len(), done.undecided.len() as u64);
    out.object(
        "repair",
        json!({
            "path": args.pool.display().to_string(),
            "by": "command",
            "pages": done.pages,
            "repaired": done.repaired.len(),
            "forced": done.forced.len(),
            "lost": done.lost.len(),
            "busy": done.busy.len(),
            "undecided": done.undecided.len(),
            "redundancy": done.redundancy,
            "interrupted": done.stopped,
            "repaired_pages": done.repaired.iter().take(LISTED).collect::<Vec<_>>(),
            "forced_pages": done.forced.iter().take(LISTED).collect::<Vec<_>>(),
            "lost_pages": done.lost.iter().take(LISTED).collect::<Vec<_>>(),
            "busy_pages": done.busy.iter().take(LISTED).collect::<Vec<_>>(),
            "undecided_pages": undecided_json(&done.undecided),
            "nanos": nanos,
            "trouble": trouble.as_ref().map(ToString::to_string),
        }),
    );
    if !out.json {
        tell_repaired(out, &done, nanos);
    }
    let exit = exit((mended, left as u64, undecided), done.stopped);
    Ok(trouble.map_or(exit, |trouble| {
        out.complain(&trouble);
        exit.and(trouble.exit())
    }))
}

fn tell_repaired(out: Out, done: &Repaired, nanos: u64) {
    let mut rows: Vec<(u64, String)> = same_rows(&done.repaired, "corrupt: repaired").collect();
    rows.extend(same_rows(&done.forced, "undecided: replaced with what it was"));
    rows.extend(same_rows(&done.lost, "corrupt: lost"));
    rows.extend(same_rows(&done.busy, "corrupt: left alone"));
    rows.extend(undecided_rows(&done.undecided));
    rows.sort_unstable();
    tell_pages(out, &rows);
    if done.redundancy > 0 {
        let parts = count(done.redundancy, "part");
        out.words(format!("{parts} of the side file made anew"));
    }
    out.words(format!(
        "{} in {}: {} repaired, {} lost, {} undecided and left alone{}",
        count(done.pages, "page"),
        show_nanos(nanos),
        done.repaired.len() + done.forced.len(),
        done.lost.len(),
        done.undecided.len(),
        if done.stopped { "; stopped before the end" } else { "" },
    ));
    if !done.busy.is_empty() {
        out.words(
            "nobody could be kept from storing to the file meanwhile, so corrupt pages were left \
             alone; look who uses it, or whether all inotify instances are taken, and repair \
             again",
        );
    }
    if !done.undecided.is_empty() {
        out.words(
            "`repair --before OUT` writes what undecided pages were, `repair --force` brings it \
             back, `protect --again` takes them as they are",
        );
    }
}

/// Writes what the file was to a new one.
fn before(out: Out, args: &RepairArgs, to: &Path) -> Outcome {
    let file = ProtectedFile::look(&args.pool, &repair_options(args))?;
    let progress = Progress::things(out, "writing", file.pages());
    let written = file.before(to, progress.until_asked())?;
    progress.done();
    let Some(before) = written else {
        return Err(nothing_changed());
    };
    out.object(
        "repair",
        json!({
            "path": args.pool.display().to_string(),
            "before": to.display().to_string(),
            "given_back": before.given_back.len(),
            "missing": before.missing.len(),
            "gone": before.gone,
            "given_back_pages": before.given_back.iter().take(LISTED).collect::<Vec<_>>(),
            "missing_pages": before.missing.iter().take(LISTED).collect::<Vec<_>>(),
        }),
    );
    if !out.json {
        let missing = "parity cannot tell: as it is in the file";
        tell_pages(out, &same_rows(&before.missing, missing).collect::<Vec<_>>());
        if before.gone > 0 {
            let gone = count(before.gone, "page");
            out.note(format!("the file is shorter than it was: {gone} gone for good"));
        }
        out.words(format!(
            "{}: {} as when they were covered, {} unknown; {} was not changed",
            to.display(),
            count(before.given_back.len() as u64, "page"),
            before.missing.len(),
            args.pool.display(),
        ));
    }
    // What parity cannot tell, and what was cut off, nobody can but who knows the file.
    let whole = before.missing.is_empty() && before.gone == 0;
    Ok(if whole { Exit::CLEAN } else { Exit::UNDECIDED })
}
