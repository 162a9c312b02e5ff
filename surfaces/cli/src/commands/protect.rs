//! `protect`, `status` and `unprotect`: redundancy for files of any program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::ErrorKind;
use holdfast::protect::{
    ProtectOptions, ProtectStatus, ProtectedFile, State, Told, Unsure, Verified,
};
use serde_json::{Value, json};

use crate::args::{FileArgs, ProtectArgs, StatusArgs, UnprotectArgs};
use crate::commands::keeper::Keeper;
use crate::commands::live;
use crate::commands::mend::{LISTED, options, tell_pages, undecided_json, undecided_rows};
use crate::commands::pool::moment;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count, facts};
use crate::progress::Progress;
use crate::size::{show, show_nanos};

/// How long whoever keeps a file may take to tell of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Covers a file as it is.
pub(crate) fn protect(out: Out, args: &ProtectArgs) -> Outcome {
    let path = &args.file.file;
    let mut options = options(&args.file).stripe(args.stripe.data, args.stripe.parity);
    if let Some(pace) = args.pace {
        options = options.pace(pace);
    }
    let again = args.again && side_of(&args.file).exists();
    let progress = Progress::things(out, "covering", 0);
    let file = if again {
        ProtectedFile::protect_again_in_steps(path, &options, progress.until_asked())?
    } else {
        ProtectedFile::protect_in_steps(path, &options, progress.until_asked())?
    };
    progress.done();
    let Some(file) = file else { return Err(nothing_changed()) };
    let made = Made {
        path: path.clone(),
        side: file.side().to_path_buf(),
        pool: file.pool().map(Path::to_path_buf),
        stripe: (args.stripe.data, args.stripe.parity),
        again,
        pages: file.pages(),
        // Nothing covers these: they could not be read.
        left: file.undecided(LISTED),
        status: file.status(),
    };
    if let Err(error) = file.close() {
        // It has its name, and says what it covers.
        out.note(format!("it is protected; but {error}"));
    }
    Ok(made.tell(out))
}

/// A file that is protected, whatever goes wrong from here on.
struct Made {
    path: PathBuf,
    side: PathBuf,
    pool: Option<PathBuf>,
    stripe: (u32, u32),
    again: bool,
    pages: u64,
    left: Vec<(u64, Unsure)>,
    /// What is covered, if that could be told.
    status: holdfast::Result<ProtectStatus>,
}

impl Made {
    /// Pages that could not be read. Without a status, of those that are listed.
    fn undecided(&self) -> u64 {
        let listed = self.left.len() as u64;
        self.status.as_ref().map_or(listed, |status| status.coverage.undecided)
    }

    fn tell(&self, out: Out) -> Exit {
        let shown = self.pool.as_ref().unwrap_or(&self.side).display();
        let (size, pages) = match &self.status {
            Ok(status) => (show(status.size), status.coverage.pages),
            Err(_) => ("size not known".to_owned(), self.pages),
        };
        out.object("protect", self.json());
        out.words(format!(
            "{shown}: {size}, {} in stripes of {} and {} parity; `holdfast verify` looks after it",
            count(pages, "page"),
            self.stripe.0,
            self.stripe.1,
        ));
        if let Err(error) = &self.status {
            out.note(format!("it is protected; but what is covered could not be told: {error}"));
        }
        if self.left.is_empty() {
            return Exit::CLEAN;
        }
        if !out.json {
            tell_pages(out, &undecided_rows(&self.left).collect::<Vec<_>>());
        }
        let pages = count(self.undecided(), "page");
        out.note(format!(
            "{pages} could not be read: nothing covers them, and parity gives back no other page \
             of their stripes"
        ));
        Exit::UNDECIDED
    }

    fn json(&self) -> Value {
        let status = self.status.as_ref();
        json!({
            "path": self.path.display().to_string(),
            "side": self.side.display().to_string(),
            "pool": self.pool.as_ref().map(|pool| pool.display().to_string()),
            "size": status.map(|status| status.size).ok(),
            "pages": status.map_or(self.pages, |status| status.coverage.pages),
            "data": self.stripe.0,
            "parity": self.stripe.1,
            "again": self.again,
            "undecided": self.undecided(),
            "undecided_pages": undecided_json(&self.left),
            "trouble": status.err().map(ToString::to_string),
        })
    }
}

/// The end of a command that was asked to stop, and left everything as it was.
pub(crate) fn nothing_changed() -> Failure {
    Failure::interrupted("nothing was changed; run it again")
}

fn side_of(args: &FileArgs) -> PathBuf {
    let FileArgs { file, side, .. } = args;
    side.clone().unwrap_or_else(|| holdfast::protect::side_path(file))
}

/// What is known of a protected file, and where its redundancy is.
struct Shown {
    side: PathBuf,
    pool: Option<PathBuf>,
    status: ProtectStatus,
}

impl Shown {
    /// Asks whoever keeps the file; else reads what is on record.
    fn of(args: &FileArgs) -> Outcome<Self> {
        let options = options(args);
        if let Some(told) = Told::ask(&args.file, &options, PATIENCE) {
            let (side, pool) = (side_of(args), told.pool.clone());
            return Ok(Self { side, pool, status: ProtectStatus::of_told(told) });
        }
        let file = ProtectedFile::look_beside(&args.file, &options)?;
        let (side, pool) = (file.side().to_path_buf(), file.pool().map(Path::to_path_buf));
        Ok(Self { side, pool, status: file.status()? })
    }
}

/// Shows what is covered.
pub(crate) fn status(out: Out, args: &StatusArgs) -> Outcome {
    if let Some(path) = &args.trace {
        return live::of_trace(out, path, args.data);
    }
    let file = args.file.clone().ok_or_else(|| Failure::usage("no file is named", "name one"))?;
    let args = FileArgs { file, side: args.side.clone(), pool: args.pool.clone() };
    let shown = Shown::of(&args)?;
    let status = &shown.status;
    out.object("status", status_json(&args, &shown));
    out.words(facts(&rows(&shown)).to_string());
    if status.changed && !out.json {
        out.note("the file was changed while it was not protected; `holdfast verify` tells where");
    }
    let left = if status.left > 0 { Exit::LEFT } else { Exit::CLEAN };
    // What differs in a contested file is undecided, however many pages that comes to.
    let contested = status.contested.is_some();
    let undecided = status.coverage.undecided > 0 || status.unclear > 0 || contested;
    Ok(if undecided { left.and(Exit::UNDECIDED) } else { left })
}

const fn state_name(status: &ProtectStatus) -> &'static str {
    match (status.in_use, status.state) {
        (Some(_), _) => "in use",
        (None, State::Clean) => "closed",
        (None, State::Open) => "interrupted",
        (None, State::Ended) => "ended",
    }
}

fn status_json(args: &FileArgs, shown: &Shown) -> Value {
    let Shown { side, pool, status } = shown;
    let coverage = &status.coverage;
    let [detected, repaired, lost, undecided] = status.found;
    let keeper = status.in_use.flatten().map(Keeper::of);
    let mut all = json!({
        "path": args.file.display().to_string(),
        "side": side.display().to_string(),
        "pool": pool.as_ref().map(|pool| pool.display().to_string()),
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
        "last_pass_ns": live::last_pass(status),
        "last_covered_ns": coverage.covered_ns,
        "verified_ns": coverage.verified_ns,
        "uncovered_histogram": coverage.histogram,
        "doubtful_regions": status.doubtful,
        "damaged_records": status.damaged,
        "folios": format!("{:?}", status.folios).to_lowercase(),
        "journal": {
            "detected": detected, "repaired": repaired, "lost": lost, "undecided": undecided,
        },
        "left": status.left,
        "unclear": status.unclear,
        "live": status.live.is_some(),
    });
    if let (Some(live), Some(all)) = (&status.live, all.as_object_mut()) {
        live::add_to(all, live);
    }
    all
}

/// Covered pages, of all.
fn part(without: u64, all: u64) -> String {
    let covered = all.saturating_sub(without);
    let tenths = u128::from(covered) * 1000 / u128::from(all.max(1));
    let tenths = if all == 0 { 1000 } else { tenths };
    format!("{covered} of {all} pages, {}.{} %", tenths / 10, tenths % 10)
}

fn rows(shown: &Shown) -> Vec<(&'static str, String)> {
    let Shown { side, pool, status } = shown;
    let coverage = &status.coverage;
    let state = match status.in_use {
        Some(Some(process)) => Keeper::of(process).words(),
        Some(None) => "in use by another process".to_owned(),
        None => state_name(status).to_owned(),
    };
    let time = |ns| if ns == 0 { "never".to_owned() } else { moment(ns) };
    let [detected, repaired, lost, undecided] = status.found;
    let histogram = live::classes(&coverage.histogram).unwrap_or_else(|| "no regions".to_owned());
    let mut rows = vec![
        ("state", state),
        match pool {
            Some(pool) => ("in the pool", pool.display().to_string()),
            None => ("side file", side.display().to_string()),
        },
        ("size", show(status.size)),
        ("stripes", format!("{} pages, {} parity", status.data, status.parity)),
        ("covered by sums", part(coverage.without_sum, coverage.pages)),
        ("covered by parity", part(coverage.without_parity, coverage.pages)),
        ("undecided", undecided_row(status)),
        ("oldest uncovered", show_nanos(coverage.oldest_ns)),
        ("last pass", time(live::last_pass(status))),
        ("last verified", time(coverage.verified_ns)),
        ("regions by share not covered", histogram),
        (
            "journal",
            format!("{detected} detected, {repaired} repaired, {lost} lost, {undecided} undecided"),
        ),
    ];
    if status.contested.is_some() {
        rows.push(("contested", "somebody untracked wrote to it: checked, not repaired".into()));
    }
    if status.left + status.unclear > 0 {
        let (left, unclear) = (count(status.left, "page"), status.unclear);
        rows.push(("damage left", format!("{left}, and {unclear} that nobody can judge any more")));
    }
    match &status.live {
        Some(live) => rows.extend(live::rows(live)),
        None if status.in_use.is_some() => {
            let text = "that process did not answer within a second; this is what the side file \
                        says, without what was stored to since the last pass";
            rows.push(("not shown", text.to_owned()));
        }
        None => {}
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
        Unsure::Media(_) => "could not be read, and nothing covers what they held".to_owned(),
        why => why.to_string(),
    }
}

/// Ends the protection.
pub(crate) fn unprotect(out: Out, args: &UnprotectArgs) -> Outcome {
    let path = &args.file.file;
    let options = options(&args.file);
    let found = match ProtectedFile::look(path, &options) {
        // A copy of a pointer: what it points to is another file's.
        Ok(file) if file.copy_of().is_some() && args.force => {
            drop(file);
            return removed(out, args, &options);
        }
        Ok(file) => {
            let progress = Progress::things(out, "verifying", file.pages());
            file.verify(progress.until_asked())?
        }
        Err(error) if args.force && is_unusable(error.kind()) || has_ended(&error, args) => {
            return removed(out, args, &options);
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
        let cause = format!("{}: {}", path.display(), what_is_left(&found));
        let remedy = "repair it first, or use --force; nothing was changed";
        return Err(Failure::new("refused", cause, remedy));
    }
    let file = opened(out, path, &options)?;
    let side = file.side().to_path_buf();
    file.unprotect()?;
    Ok(gone(out, path, &side, None))
}

/// What a file would lose for good with its side file.
fn what_is_left(found: &Verified) -> String {
    let (damaged, undecided) = (found.corrupt.len(), found.undecided.len());
    let mut left = Vec::new();
    if damaged > 0 || undecided > 0 {
        let pages = format!("{damaged} damaged and {undecided} undecided pages");
        left.push(format!("{pages}, which only the side file can give back"));
    }
    if found.gone > 0 {
        let gone = count(found.gone, "page");
        left.push(format!("{gone} gone with the end of the file"));
    }
    left.join(", and ")
}

/// Removes what cannot be used any more.
fn removed(out: Out, args: &UnprotectArgs, options: &ProtectOptions) -> Outcome {
    let path = &args.file.file;
    let left = ProtectedFile::remove_side(path, options)?;
    Ok(gone(out, path, &side_of(&args.file), left.as_deref()))
}

/// Tells what is gone, and in which pool something may be left.
fn gone(out: Out, path: &Path, side: &Path, left: Option<&Path>) -> Exit {
    let left = left.map(|pool| pool.display().to_string());
    out.object(
        "unprotect",
        json!({
            "path": path.display().to_string(), "side": side.display().to_string(),
            "left_in": left,
        }),
    );
    out.words(format!("{} is gone; {} was not changed", side.display(), path.display()));
    if let Some(pool) = left {
        out.note(format!(
            "what {pool} had of it could not be removed; `holdfast pool sweep` there removes what \
             belongs to no file"
        ));
    }
    Exit::CLEAN
}

/// Opens a protected file to change it. After a crash, that takes as long as looking at it.
pub(crate) fn opened(out: Out, path: &Path, options: &ProtectOptions) -> Outcome<ProtectedFile> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_status_cannot_be_told_is_protected_all_the_same() {
        let error = ProtectedFile::look("/none/at/all", &ProtectOptions::new()).map(drop);
        let mut made = Made {
            path: "a.db".into(),
            side: "a.db.holdfast".into(),
            pool: None,
            stripe: (8, 2),
            again: false,
            pages: 700,
            left: Vec::new(),
            status: Err(error.unwrap_err()),
        };
        let out = Out { json: false, quiet: true, verbose: 0 };
        assert_eq!(made.tell(out), Exit::CLEAN);
        let told = made.json();
        assert_eq!(
            (&told["pages"], &told["data"], &told["parity"]),
            (&700.into(), &8.into(), &2.into())
        );
        assert!(
            told["size"].is_null() && told["trouble"].as_str().unwrap().contains("/none/at/all")
        );
        // Pages that nothing covers are told as ever.
        made.left = vec![(3, Unsure::TrackingLost)];
        assert_eq!((made.tell(out), &made.json()["undecided"]), (Exit::UNDECIDED, &1.into()));
    }
}
