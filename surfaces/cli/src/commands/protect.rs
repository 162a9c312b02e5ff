//! `protect`, `status` and `unprotect`: redundancy for files of any program.

use holdfast::ErrorKind;
use holdfast::protect::{ProtectOptions, ProtectStatus, ProtectedFile, State, Unsure};
use serde_json::{Value, json};

use crate::args::{FileArgs, ProtectArgs, UnprotectArgs};
use crate::commands::keeper::Keeper;
use crate::commands::mend::options;
use crate::commands::pool::moment;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, facts};
use crate::progress::Progress;
use crate::size::{show, show_nanos};

/// Covers a file as it is.
pub(crate) fn protect(out: Out, args: &ProtectArgs) -> Outcome {
    let path = &args.file.file;
    let options = options(&args.file).stripe(args.data, args.parity);
    let again = args.again && side_of(&args.file).exists();
    let progress = Progress::things(out, "covering", 0);
    let file = if again {
        ProtectedFile::protect_again_in_steps(path, &options, progress.until_asked())?
    } else {
        ProtectedFile::protect_in_steps(path, &options, progress.until_asked())?
    };
    progress.done();
    let Some(file) = file else { return Err(nothing_changed()) };
    let status = file.status()?;
    let side = file.side().to_path_buf();
    let pool = file.pool().map(std::path::Path::to_path_buf);
    file.close()?;
    let shown = pool.as_ref().unwrap_or(&side).display().to_string();
    let pool = pool.map(|pool| pool.display().to_string());
    out.object(
        "protect",
        json!({
            "path": path.display().to_string(),
            "side": side.display().to_string(),
            "pool": pool,
            "size": status.size,
            "pages": status.coverage.pages,
            "data": status.data,
            "parity": status.parity,
            "again": again,
        }),
    );
    out.words(format!(
        "{shown}: {}, {} in stripes of {} and {} parity; `holdfast verify` looks after it",
        show(status.size),
        count(status.coverage.pages, "page"),
        status.data,
        status.parity,
    ));
    Ok(Exit::CLEAN)
}

/// The end of a command that was asked to stop, and left everything as it was.
pub(crate) fn nothing_changed() -> Failure {
    Failure::interrupted("nothing was changed; run it again")
}

fn side_of(args: &FileArgs) -> std::path::PathBuf {
    let FileArgs { file, side, .. } = args;
    side.clone().unwrap_or_else(|| holdfast::protect::side_path(file))
}

/// Shows what is covered.
pub(crate) fn status(out: Out, args: &FileArgs) -> Outcome {
    let file = ProtectedFile::look_beside(&args.file, &options(args))?;
    let status = file.status()?;
    out.object("status", status_json(args, &file, &status));
    out.words(facts(&rows(&file, &status)).to_string());
    if status.changed && !out.json {
        out.note("the file was changed while it was not protected; `holdfast verify` tells where");
    }
    Ok(if status.coverage.undecided > 0 { Exit::LEFT } else { Exit::CLEAN })
}

const fn state_name(status: &ProtectStatus) -> &'static str {
    match (status.in_use, status.state) {
        (Some(_), _) => "in use",
        (None, State::Clean) => "closed",
        (None, State::Open) => "interrupted",
        (None, State::Ended) => "ended",
    }
}

fn status_json(args: &FileArgs, file: &ProtectedFile, status: &ProtectStatus) -> Value {
    let coverage = &status.coverage;
    let [detected, repaired, lost, undecided] = status.found;
    let keeper = status.in_use.flatten().map(Keeper::of);
    json!({
        "path": args.file.display().to_string(),
        "side": file.side().display().to_string(),
        "pool": file.pool().map(|pool| pool.display().to_string()),
        "state": state_name(status),
        "in_use": status.in_use.is_some(),
        "process": status.in_use.flatten(),
        "guarded": keeper.as_ref().is_some_and(|keeper| keeper.guards),
        "since_ns": keeper.as_ref().map(|keeper| keeper.since_ns),
        "size": status.size,
        "file_size": status.file_size,
        "data": status.data,
        "parity": status.parity,
        "changed": status.changed,
        "contested": status.contested.is_some(),
        "pages": coverage.pages,
        "without_sum": coverage.without_sum,
        "without_parity": coverage.without_parity,
        "undecided": coverage.undecided,
        "undecided_reasons": status.undecided.iter().map(|(why, pages)| json!({
            "reason": why.code(), "why": reason_words(why), "pages": pages,
        })).collect::<Vec<_>>(),
        "oldest_uncovered_ns": coverage.oldest_ns,
        "last_pass_ns": coverage.covered_ns,
        "verified_ns": coverage.verified_ns,
        "uncovered_histogram": coverage.histogram,
        "doubtful_regions": status.doubtful,
        "damaged_records": status.damaged,
        "folios": format!("{:?}", status.folios).to_lowercase(),
        "journal": {
            "detected": detected, "repaired": repaired, "lost": lost, "undecided": undecided,
        },
    })
}

/// Covered pages, of all.
fn part(without: u64, all: u64) -> String {
    let covered = all.saturating_sub(without);
    let tenths = u128::from(covered) * 1000 / u128::from(all.max(1));
    let tenths = if all == 0 { 1000 } else { tenths };
    format!("{covered} of {all} pages, {}.{} %", tenths / 10, tenths % 10)
}

fn rows(file: &ProtectedFile, status: &ProtectStatus) -> Vec<(&'static str, String)> {
    let coverage = &status.coverage;
    let state = match status.in_use {
        Some(Some(process)) => Keeper::of(process).words(),
        Some(None) => "in use by another process".to_owned(),
        None => state_name(status).to_owned(),
    };
    let time = |ns| if ns == 0 { "never".to_owned() } else { moment(ns) };
    let [detected, repaired, lost, undecided] = status.found;
    let mut rows = vec![
        ("state", state),
        match file.pool() {
            Some(pool) => ("in the pool", pool.display().to_string()),
            None => ("side file", file.side().display().to_string()),
        },
        ("size", show(status.size)),
        ("stripes", format!("{} pages, {} parity", status.data, status.parity)),
        ("covered by sums", part(coverage.without_sum, coverage.pages)),
        ("covered by parity", part(coverage.without_parity, coverage.pages)),
        ("undecided", undecided_row(status)),
        ("oldest uncovered", show_nanos(coverage.oldest_ns)),
        ("last pass", time(coverage.covered_ns)),
        ("last verified", time(coverage.verified_ns)),
        ("regions by share not covered", histogram(&coverage.histogram)),
        (
            "journal",
            format!("{detected} detected, {repaired} repaired, {lost} lost, {undecided} undecided"),
        ),
    ];
    if status.contested.is_some() {
        rows.push(("contested", "somebody untracked wrote to it: checked, not repaired".into()));
    }
    if status.in_use.is_some() {
        let text = "what was stored to since the last pass is known to that process only";
        rows.push(("not shown", text.to_owned()));
    }
    rows
}

/// Pages that are undecided, and why.
fn undecided_row(status: &ProtectStatus) -> String {
    let all = count(status.coverage.undecided, "page");
    let reasons: Vec<String> = match &status.undecided[..] {
        [] => return all,
        [(why, _)] => vec![reason_words(why)],
        several => several.iter().map(|(why, n)| format!("{n}: {}", reason_words(why))).collect(),
    };
    format!("{all}: {}", reasons.join("; "))
}

/// A reason, of more pages than one.
fn reason_words(why: &Unsure) -> String {
    match why {
        // Which page it was is told by `verify`.
        Unsure::Media(_) => "could not be read, and stored to since it was covered".to_owned(),
        why => why.to_string(),
    }
}

/// The classes that are not empty.
fn histogram(classes: &[u64]) -> String {
    let shown = classes.iter().enumerate().filter(|(_, regions)| **regions > 0);
    let shown: Vec<String> = shown
        .map(|(class, regions)| match class {
            0 => format!("none: {regions}"),
            class => format!("up to {} %: {regions}", class * 10),
        })
        .collect();
    if shown.is_empty() { "no regions".to_owned() } else { shown.join(", ") }
}

/// Ends the protection.
pub(crate) fn unprotect(out: Out, args: &UnprotectArgs) -> Outcome {
    let path = &args.file.file;
    let options = options(&args.file);
    let told = |side: &std::path::Path| {
        out.object(
            "unprotect",
            json!({
                "path": path.display().to_string(), "side": side.display().to_string(),
            }),
        );
        out.words(format!("{} is gone; {} was not changed", side.display(), path.display()));
        Ok(Exit::CLEAN)
    };
    let found = match ProtectedFile::look(path, &options) {
        Ok(file) => {
            let progress = Progress::things(out, "verifying", file.pages());
            file.verify(progress.until_asked())?
        }
        Err(error) if args.force && is_unusable(error.kind()) || has_ended(&error, args) => {
            ProtectedFile::remove_side(path, &options)?;
            return told(&side_of(&args.file));
        }
        Err(error) if is_unusable(error.kind()) => {
            let remedy = "`unprotect --force` removes it; nothing was changed";
            return Err(error.with_remedy(remedy).into());
        }
        Err(error) => return Err(error.into()),
    };
    if found.stopped {
        return Err(nothing_changed());
    }
    if !found.is_clean() && !args.force {
        let (damaged, undecided) = (found.corrupt.len(), found.undecided.len());
        let cause = format!(
            "{}: {damaged} damaged and {undecided} undecided pages, which only the side file can \
             give back",
            path.display()
        );
        let remedy = "repair it first, or use --force; nothing was changed";
        return Err(Failure::new("refused", cause, remedy));
    }
    let file = opened(out, path, &options)?;
    let side = file.side().to_path_buf();
    file.unprotect()?;
    told(&side)
}

/// Opens a protected file to change it. After a crash, that takes as long as looking at it.
pub(crate) fn opened(
    out: Out,
    path: &std::path::Path,
    options: &ProtectOptions,
) -> Outcome<ProtectedFile> {
    let progress = Progress::things(out, "recovering", 0);
    let file = ProtectedFile::open_in_steps(path, options, progress.until_asked())?;
    file.ok_or_else(|| Failure::interrupted("the file was not changed; run it again"))
}

/// Whether it is only the side file that is left: somebody was killed when the protection was over.
fn has_ended(error: &holdfast::Error, args: &UnprotectArgs) -> bool {
    error.kind() == ErrorKind::NotFound && args.file.file.exists() && side_of(&args.file).exists()
}

const fn is_unusable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotAPool | ErrorKind::Truncated | ErrorKind::Damaged | ErrorKind::NewerVersion
    )
}
