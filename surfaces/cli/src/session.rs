//! Opening pools for commands, and what an opening found.

use std::path::Path;

use holdfast::{Error, ErrorKind, Pool, Stats, VerifyReads};

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};

/// Opens a pool to look at: privately, every read verified.
pub(crate) fn to_look(path: &Path) -> Outcome<Pool> {
    let options = Pool::options().verify_reads(VerifyReads::Always);
    options.open_read_only(path).map_err(in_use)
}

/// Opens a pool to change it.
pub(crate) fn to_change(path: &Path) -> Outcome<Pool> {
    Pool::options().verify_reads(VerifyReads::Always).open(path).map_err(in_use)
}

/// Objects of a pool that somebody has open can be had from him only: says what can be done.
fn in_use(error: Error) -> Failure {
    let remedy = "close it there, or ask that process; `pool info`, `check`, `scrub`, `repair` \
                  and `events` work meanwhile";
    match error.kind() {
        ErrorKind::Locked => error.with_remedy(remedy).into(),
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
