//! Opening pools for commands, and what an opening found.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast::{Error, ErrorKind, Observer, Owner, Pool, Stats, VerifyReads};

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};

/// How long a command waits for the process that has a pool open to listen, or to close it: it may
/// be just opening or closing it.
pub(crate) const OWNER_WAIT: Duration = Duration::from_secs(2);
/// How often it looks.
const OWNER_LOOK: Duration = Duration::from_millis(20);

/// A pool, or the process to ask about it.
pub(crate) enum Access {
    Here(Box<Pool>),
    Owner(Owner),
}

/// Opens a pool, or reaches the process that has it open.
pub(crate) fn open_or_reach(
    path: &Path,
    open: impl Fn(&Path) -> holdfast::Result<Pool>,
) -> Outcome<Access> {
    let begun = Instant::now();
    loop {
        match open(path) {
            Ok(pool) => return Ok(Access::Here(Box::new(pool))),
            Err(error) if error.kind() == ErrorKind::Locked && !error.is_being_read() => {
                if let Some(owner) = Owner::reach(path) {
                    return Ok(Access::Owner(owner));
                }
                if begun.elapsed() >= OWNER_WAIT {
                    return Err(takes_no_commands(path));
                }
                std::thread::sleep(OWNER_LOOK);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reaches the process that has a pool open; nothing if nobody has.
pub(crate) fn reach(observer: &Observer) -> Outcome<Option<Owner>> {
    match reach_within(observer, OWNER_WAIT) {
        Some(owner) => Ok(Some(owner)),
        None if observer.is_in_use() => Err(takes_no_commands(observer.path())),
        None => Ok(None),
    }
}

/// The same for commands that can do without: nothing either if whoever has it open does not listen
/// in time.
pub(crate) fn reach_within(observer: &Observer, wait: Duration) -> Option<Owner> {
    let begun = Instant::now();
    loop {
        if let Some(owner) = Owner::reach(observer.path()) {
            return Some(owner);
        }
        if !observer.is_in_use() || begun.elapsed() >= wait || crate::interrupt::asked() {
            return None;
        }
        std::thread::sleep(OWNER_LOOK);
    }
}

fn takes_no_commands(path: &Path) -> Failure {
    let holder = Observer::open(path).ok().and_then(|observer| observer.holder()).flatten();
    let who = holder.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"));
    Failure::new(
        "locked",
        format!("{}: {who} has it open and takes no commands", path.display()),
        "close the pool there; it takes commands of the user it belongs to only",
    )
}

/// Opens a pool to look at: privately, every read verified.
pub(crate) fn to_look(path: &Path) -> Outcome<Pool> {
    let options = Pool::options().verify_reads(VerifyReads::Always);
    options.open_read_only(path).map_err(in_use)
}

/// Opens a pool to change it.
pub(crate) fn to_change(path: &Path) -> Outcome<Pool> {
    Pool::options().verify_reads(VerifyReads::Always).open(path).map_err(in_use)
}

/// Refuses a file to be written to that is a pool: whoever named it meant another.
pub(crate) fn refuse_pool(path: &Path) -> Outcome<()> {
    let is_pool = match Observer::open(path) {
        Ok(_) => true,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::Damaged | ErrorKind::Truncated | ErrorKind::NewerVersion
        ),
    };
    if is_pool {
        let cause = format!("{}: is a pool, and would be overwritten", path.display());
        return Err(Failure::new("refused", cause, "name another file; this one was not changed"));
    }
    Ok(())
}

/// Opens a pool as programs do.
pub(crate) fn to_use(path: &Path) -> Outcome<Pool> {
    Pool::open(path).map_err(in_use)
}

/// Objects of a pool that somebody has open can be had from him only: says what can be done.
fn in_use(error: Error) -> Failure {
    let remedy = "close it there, or ask that process; `pool info`, `check`, `scrub`, `repair` \
                  and `events` work meanwhile";
    match error.kind() {
        ErrorKind::Locked if !error.is_being_read() => error.with_remedy(remedy).into(),
        _ => error.into(),
    }
}

/// The end of a command that used a pool: tells what was repaired on the way, and closes it. Fails
/// if somebody cut the file off meanwhile: not all that was done is in it.
pub(crate) fn finish(out: Out, pool: Pool, changed: bool) -> Outcome {
    pool.expect_whole_file()?;
    let Stats { detected, repaired, lost, .. } = pool.stats();
    let recovered = pool.opened().recovered;
    drop(pool);
    if recovered.replayed > 0 && out.verbose > 0 {
        let records = count(recovered.replayed, "record");
        out.note(format!("the pool had not been closed: {records} replayed"));
    }
    if detected == 0 {
        return Ok(Exit::CLEAN);
    }
    if !changed {
        out.note(format!(
            "{} found ({lost} beyond repair); the file was not changed, `holdfast repair` \
             repairs it",
            count(detected, "damage")
        ));
        return Ok(Exit::LEFT);
    }
    out.note(format!("{} found, {repaired} repaired, {lost} lost", count(detected, "damage")));
    Ok(if lost > 0 { Exit::CORRECTED.and(Exit::LEFT) } else { Exit::CORRECTED })
}
