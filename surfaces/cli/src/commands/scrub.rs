//! `scrub start`, `resume`, `status`, `pause` and `cancel`.

use std::path::Path;
use std::time::Instant;

use holdfast::{Observer, Owner, Pool, ScrubOptions, ScrubState, Summary};
use serde_json::json;

use crate::args::ScrubArgs;
use crate::commands::check::{Pausing, STOPPED, exit_of, tell_summary, undecided};
use crate::commands::pool::moment;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, facts};
use crate::progress::Progress;
use crate::session::{self, Access};
use crate::size::{show, show_nanos};

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

/// Shows how far the scrub is.
pub(crate) fn status(out: Out, path: &Path) -> Outcome {
    let observer = Observer::open(path)?;
    let progress = observer.scrub_progress()?;
    let in_use = observer.is_in_use();
    let size = observer.superblock()?.size;
    // A pass that nobody works at is not running, whatever its record says.
    let state = match progress.state {
        ScrubState::Running if !in_use => "interrupted",
        state => state_name(state),
    };
    out.object(
        "scrub status",
        json!({
            "path": path.display().to_string(),
            "state": state,
            "in_use": in_use,
            "pass": progress.pass,
            "next": progress.next,
            "size": size,
            "started_ns": progress.started_ns,
            "scanned": progress.scanned,
            "found": progress.found,
            "repaired": progress.repaired,
            "lost": progress.lost,
            "undecided": progress.undecided,
        }),
    );
    if progress.pass == 0 {
        out.words("never scrubbed; `holdfast scrub start` does it");
        return Ok(Exit::CLEAN);
    }
    let rows = [
        ("state", state.to_owned()),
        ("pass", progress.pass.to_string()),
        ("started", moment(progress.started_ns)),
        ("verified", show(progress.scanned)),
        ("damaged", progress.found.to_string()),
        ("repaired", progress.repaired.to_string()),
        ("lost", progress.lost.to_string()),
        ("undecided", progress.undecided.to_string()),
    ];
    out.words(facts(&rows).to_string());
    Ok(if progress.lost + progress.undecided > 0 { Exit::LEFT } else { Exit::CLEAN })
}

/// Stops the scrub of a pool in use.
pub(crate) fn stop(out: Out, path: &Path, for_good: bool) -> Outcome {
    let observer = Observer::open(path)?;
    let Some(mut owner) = session::reach(&observer)? else {
        let cause = format!("{}: no scrub is running: nobody has the pool open", path.display());
        return Err(Failure::new(
            "not-found",
            cause,
            "`holdfast scrub status` tells how far it is",
        ));
    };
    if for_good {
        owner.cancel_scrub()?
    } else {
        owner.pause_scrub()?
    }
    let name = if for_good { "scrub cancel" } else { "scrub pause" };
    out.object(name, json!({ "path": path.display().to_string() }));
    Ok(Exit::CLEAN)
}

fn state_name(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Idle => "idle",
        ScrubState::Running => "running",
        ScrubState::Paused => "paused",
        ScrubState::Cancelled => "cancelled",
    }
}
