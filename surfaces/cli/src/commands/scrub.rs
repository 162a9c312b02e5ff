//! `scrub start`, `resume`, `status`, `pause` and `cancel`.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast::{ErrorKind, Observer, Owner, Pool, ScrubOptions, ScrubState, ScrubStatus, Summary};
use serde_json::{Value, json};

use crate::args::ScrubArgs;
use crate::commands::check::{Pausing, STOPPED, exit_of, tell_summary, undecided};
use crate::commands::pool::moment;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, facts};
use crate::progress::Progress;
use crate::session::{self, Access, OWNER_WAIT};
use crate::size::{show, show_nanos};

/// How long a status waits for an owner: one that is stopped does not answer.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// Scrubs a pool: here if nobody has it open, else by its owner.
pub(crate) fn start(out: Out, args: &ScrubArgs, resume: bool) -> Outcome {
    let options = ScrubOptions { rate: args.rate, resume };
    if args.rate == Some(0) {
        return Err(Failure::usage("a rate of zero never ends", "leave out --rate for no limit"));
    }
    match session::open_or_reach(&args.pool, |path| Pool::open(path))? {
        Access::Here(pool) => here(out, args, &pool, options),
        Access::Owner(owner) => by_owner(out, args, owner, options),
    }
}

fn here(out: Out, args: &ScrubArgs, pool: &Pool, options: ScrubOptions) -> Outcome {
    let started = Instant::now();
    let at_open = pool.stats();
    let progress = Progress::bytes(out, "scrubbing");
    let done = pool.scrub(options, |state, all| {
        progress.set(state.next, all);
        if crate::interrupt::asked() {
            pool.scrub_control().pause();
        }
    })?;
    progress.done();
    let summary = Summary::of_scrub(&done, started.elapsed());
    let found = summary.found + at_open.detected;
    let (repaired, lost) = (summary.repaired + at_open.repaired, summary.lost + at_open.lost);
    out.object(
        name_of(options),
        json!({
            "path": args.pool.display().to_string(),
            "by": "command",
            "objects": summary.objects,
            "object_bytes": summary.object_bytes,
            "column_bytes": summary.column_bytes,
            "found": found,
            "repaired": repaired,
            "lost": lost,
            "undecided": summary.undecided,
            "state": state_name(done.state),
            "nanos": summary.nanos,
        }),
    );
    out.words(format!(
        "scrubbed {} in {}: {found} damaged, {repaired} repaired, {lost} lost{}{}",
        show(summary.column_bytes),
        show_nanos(summary.nanos),
        undecided(summary.undecided),
        if summary.stopped { STOPPED } else { "" },
    ));
    Ok(exit_of(found, lost + summary.undecided, summary.stopped))
}

const fn name_of(options: ScrubOptions) -> &'static str {
    if options.resume { "scrub resume" } else { "scrub start" }
}

fn by_owner(out: Out, args: &ScrubArgs, mut owner: Owner, options: ScrubOptions) -> Outcome {
    if !args.wait {
        owner.start_scrub(options)?;
        let body = json!({
            "path": args.pool.display().to_string(), "by": "owner", "state": "running",
        });
        out.object(name_of(options), body);
        out.words("the process that has the pool open is scrubbing it; `scrub status` tells more");
        return Ok(Exit::CLEAN);
    }
    let progress = Progress::bytes(out, "the owner scrubs");
    let mut pausing = Pausing::new(&args.pool);
    let summary = owner.scrub(options, |done, all| {
        progress.set(done, all);
        pausing.pause_if_asked();
    })?;
    progress.done();
    Ok(tell_summary(out, name_of(options), &args.pool, &summary, true))
}

/// Shows how far the scrub is: as its owner says or, if nobody answers soon, as the pool's own
/// record does, which is written now and then.
pub(crate) fn status(out: Out, path: &Path) -> Outcome {
    let observer = Observer::open(path)?;
    let asked = session::reach_within(&observer, OWNER_WAIT)
        .and_then(|owner| owner.with_patience(ANSWER_WAIT).scrub_status().ok());
    let by = if asked.is_some() { "owner" } else { "record" };
    let status = match asked {
        Some(status) => status,
        None => recorded(&observer)?,
    };
    let progress = status.progress;
    let mut body = status_json(path, &status);
    body["by"] = by.into();
    body["in_use"] = observer.is_in_use().into();
    out.object("scrub status", body);
    if progress.pass == 0 {
        out.words("never scrubbed; `holdfast scrub start` does it");
        return Ok(Exit::CLEAN);
    }
    let rows = [
        ("state", status.state().to_owned()),
        ("pass", progress.pass.to_string()),
        ("started", moment(progress.started_ns)),
        ("position", position(&status)),
        ("verified", show(progress.scanned)),
        ("objects", progress.objects.to_string()),
        ("damaged", progress.found.to_string()),
        ("repaired", progress.repaired.to_string()),
        ("lost", progress.lost.to_string()),
        ("undecided", progress.undecided.to_string()),
    ];
    out.words(facts(&rows).to_string());
    Ok(if progress.lost + progress.undecided > 0 { Exit::LEFT } else { Exit::CLEAN })
}

/// How far the scrub is by the pool's own record. While an owner has the pool open, a pass that
/// the record calls running is.
pub(crate) fn recorded(observer: &Observer) -> Outcome<ScrubStatus> {
    let (running, size) = (observer.is_in_use(), observer.superblock()?.size);
    Ok(ScrubStatus { running, progress: observer.scrub_progress()?, size })
}

/// How far a pass is, for people.
pub(crate) fn position(status: &ScrubStatus) -> String {
    let ScrubStatus { progress, size, .. } = status;
    match progress.state {
        ScrubState::Idle => "at the end".to_owned(),
        ScrubState::Cancelled => "given up".to_owned(),
        ScrubState::Running | ScrubState::Paused => {
            format!("{} of {}, {} %", show(progress.next), show(*size), percent(status))
        }
    }
}

/// How far a pass is, in hundredths.
pub(crate) fn percent(status: &ScrubStatus) -> u64 {
    (u128::from(status.progress.next) * 100 / u128::from(status.size.max(1))) as u64
}

pub(crate) fn status_json(path: &Path, status: &ScrubStatus) -> Value {
    let ScrubStatus { progress, size, .. } = status;
    json!({
        "path": path.display().to_string(),
        "state": status.state(),
        "pass": progress.pass,
        "next": progress.next,
        "size": size,
        "started_ns": progress.started_ns,
        "scanned": progress.scanned,
        "objects": progress.objects,
        "object_bytes": progress.object_bytes,
        "found": progress.found,
        "repaired": progress.repaired,
        "lost": progress.lost,
        "undecided": progress.undecided,
    })
}

/// Stops the scrub of a pool in use; one that was paused can be given up without an owner, too.
pub(crate) fn stop(out: Out, path: &Path, for_good: bool) -> Outcome {
    let observer = Observer::open(path)?;
    let name = if for_good { "scrub cancel" } else { "scrub pause" };
    let (status, by, exit) = match session::reach(&observer)? {
        Some(owner) => (stop_there(owner, &observer, for_good)?, "owner", Exit::CLEAN),
        None => {
            let left = observer.scrub_progress()?.state;
            let stopped = matches!(left, ScrubState::Paused | ScrubState::Running);
            if !for_good || !stopped {
                return Err(nothing_to_stop(path, for_good && !stopped));
            }
            drop(observer);
            let pool = session::to_change(path)?;
            let status = pool.cancel_scrub()?;
            (status, "command", session::finish(out, pool, true)?)
        }
    };
    let mut body = status_json(path, &status);
    body["by"] = by.into();
    out.object(name, body);
    out.words(match status.progress.state {
        ScrubState::Paused => {
            format!("paused at {}; `holdfast scrub resume` goes on", position(&status))
        }
        ScrubState::Cancelled => "cancelled; the next scrub starts from the front".to_owned(),
        _ => "it came to its end before it could be stopped".to_owned(),
    });
    Ok(exit)
}

/// Makes an owner stop its scrub. One that ends with its scrub, as `scrub start` does, may be gone
/// before it answers: then the record says what became of it.
fn stop_there(mut owner: Owner, observer: &Observer, for_good: bool) -> Outcome<ScrubStatus> {
    let (stopped, wanted) = if for_good {
        (owner.cancel_scrub(), ScrubState::Cancelled)
    } else {
        (owner.pause_scrub(), ScrubState::Paused)
    };
    match stopped {
        Err(error) if error.kind() == ErrorKind::Locked => {
            let status = recorded(observer)?;
            if status.progress.state == wanted { Ok(status) } else { Err(error.into()) }
        }
        other => Ok(other?),
    }
}

fn nothing_to_stop(path: &Path, nor_paused: bool) -> Failure {
    let what = if nor_paused { "running or paused" } else { "running" };
    let cause = format!("{}: no scrub is {what}: nobody has the pool open", path.display());
    Failure::new("not-found", cause, "`holdfast scrub status` tells how far it is")
}

fn state_name(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Idle => "idle",
        ScrubState::Running => "running",
        ScrubState::Paused => "paused",
        ScrubState::Cancelled => "cancelled",
    }
}
