//! What became of a guarded program and its files: for people, for programs, and as a code.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use holdfast_guard::{FileReport, Placement, Summary as Report};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, dressed, plain, tame};

/// Pages named in an object.
const LISTED: usize = 1000;

/// Where the summary goes.
#[derive(Debug)]
pub(crate) struct Summary {
    to: Option<(File, PathBuf)>,
}

impl Summary {
    /// Opens the file for it, so that what is wrong with that is found before anything is started.
    pub(crate) fn prepare(to: Option<&Path>) -> Outcome<Self> {
        let open = |path: &Path| match File::create(path) {
            Ok(file) => Ok((file, path.to_path_buf())),
            Err(error) => Err(Failure::io(path.display(), &error)),
        };
        Ok(Self { to: to.map(open).transpose()? })
    }

    /// Tells.
    pub(crate) fn tell(self, out: Out, report: &Report) -> Outcome<()> {
        let text = match out.json {
            true => format!("{}\n", plain(&dressed("guard", object(report)))),
            false => tame(&report.to_string()).into_owned(),
        };
        match self.to {
            Some((mut file, path)) => {
                let written = file.write_all(text.as_bytes());
                written.map_err(|error| Failure::io(path.display(), &error))
            }
            // Nobody listens any more: the files are closed all the same.
            None if out.json || !out.quiet || !is_well(report) => {
                let _ = io::stderr().write_all(text.as_bytes());
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn is_well(report: &Report) -> bool {
    fsck(report) == Exit::CLEAN
}

/// What became of the files, as `fsck` has it.
fn fsck(report: &Report) -> Exit {
    let mut exit = Exit::CLEAN;
    for file in &report.files {
        if file.repaired() > 0 {
            exit = exit.and(Exit::CORRECTED);
        }
        if file.is_damaged() {
            exit = exit.and(Exit::LEFT);
        }
        if !file.doubtful.is_empty() {
            exit = exit.and(Exit::UNDECIDED);
        }
    }
    let guarded = report.files.iter().all(FileReport::is_guarded);
    let observed = report.not_observed.is_empty() && report.untold == 0 && report.spaces > 0;
    if guarded && observed && report.refused.is_empty() {
        exit
    } else {
        exit.and(Exit::OPERATIONAL)
    }
}

/// The program's own code if it failed, else that of its files.
pub(crate) fn exit(report: &Report) -> Exit {
    match (report.status.code(), report.status.signal()) {
        (Some(0), _) => fsck(report),
        (Some(code), _) => Exit::of_program(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => {
            let signal = u8::try_from(signal.unwrap_or(0)).unwrap_or(0);
            Exit::of_program(128_u8.saturating_add(signal))
        }
    }
}

fn object(report: &Report) -> Value {
    let placement = match report.placement {
        Placement::Anywhere => json!("anywhere"),
        Placement::Own(number) => json!({ "own": number }),
        Placement::Same => json!("same"),
    };
    let refused =
        |(path, why): &(PathBuf, String)| json!({ "path": path.display().to_string(), "why": why });
    json!({
        "program": { "code": report.status.code(), "signal": report.status.signal() },
        "exit": exit(report).code(),
        "files_exit": fsck(report).code(),
        "lasted_ns": nanos(report.lasted),
        "spent_ns": nanos(report.spent),
        "placement": placement,
        "spaces": report.spaces,
        "pace": report.pace,
        "drill_seed": report.drill.map(|drill| drill.seed),
        "untold": report.untold,
        "not_observed": report.not_observed,
        "refused": report.refused.iter().map(refused).collect::<Vec<_>>(),
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn file(file: &FileReport) -> Value {
    let reasons: Vec<Value> = file
        .reasons()
        .into_iter()
        .map(|(why, pages)| json!({ "reason": why.code(), "why": why.to_string(), "pages": pages }))
        .collect();
    let undecided: Vec<u64> = file.doubtful.iter().map(|(page, _)| *page).take(LISTED).collect();
    json!({
        "path": file.path.display().to_string(),
        "pages": file.pages,
        "data": file.stripe.0,
        "parity": file.stripe.1,
        "bytes_by_store": file.seen.stored,
        "bytes_by_write": file.seen.written,
        "pages_tracked": file.seen.tracked / 4096,
        "period_ns": nanos(file.period),
        "passes": file.passes,
        "covered_on_sync": file.covered_on_sync,
        "oldest_ns": nanos(file.oldest),
        "folios": file.folios,
        "covered": file.counts.covered,
        "unchanged": file.counts.unchanged,
        "good": file.good,
        "corrupt": file.counts.corrupt,
        "repaired": file.counts.repaired,
        "lost": file.lost,
        "undecided": file.doubtful.len(),
        "became_undecided": file.counts.undecided,
        "undecided_pages": undecided,
        "verified_ns": file.verified_ns,
        "reasons": reasons,
        "drilled": file.drilled.pages,
        "given_back": file.drilled.given_back,
        "drill_rounds": file.drilled.rounds,
        "drill_put_off": file.drilled.put_off,
        "drill_called_off": file.drilled.called_off,
        "drill_kept": file.drilled.kept.iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "notes": file.notes,
        "contested": file.contested,
        "doubted": file.doubted,
        "errors": file.errors,
        "changed": file.opened.is_some_and(|opened| opened.changed),
        "protected_anew": file.opened.is_none(),
        "closed": file.closed,
    })
}
