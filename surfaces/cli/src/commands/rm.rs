//! `pool rm`: a pool that nobody uses, removed for good, once somebody has confirmed it.

use std::io::{IsTerminal, stdin};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use holdfast::{ErrorKind, Observer, Pool};
use serde_json::json;

use crate::args::RmArgs;
use crate::commands::pool::state;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{Out, count};
use crate::size::show;

/// How often a wait for an answer looks whether somebody interrupts.
const LOOK: Duration = Duration::from_millis(50);

/// Removes a pool.
pub(crate) fn rm(out: Out, args: &RmArgs) -> Outcome {
    let path = &args.pool;
    // What is no pool is refused before anybody is asked about it.
    let (what, state) = match Observer::open(path) {
        Ok(observer) => about(&observer)?,
        Err(error) if error.kind() == ErrorKind::Truncated => {
            ("a pool cut off".to_owned(), String::new())
        }
        Err(error) => return Err(error.into()),
    };
    if !args.force {
        if !stdin().is_terminal() {
            let cause = "nobody is there to be asked whether the pool may go";
            return Err(Failure::usage(cause, "say so with --force"));
        }
        if !confirmed(out, &format!("remove {}, {what}{state}? [y/N] ", path.display()))? {
            out.object("pool rm", json!({ "path": path.display().to_string(), "removed": false }));
            out.words("nothing was removed");
            return Ok(Exit::CANCELLED);
        }
    }
    Pool::remove(path).map_err(|error| match error.kind() {
        ErrorKind::Locked if !error.is_being_read() => error.with_remedy("close it there first"),
        _ => error,
    })?;
    out.object("pool rm", json!({ "path": path.display().to_string(), "removed": true }));
    out.words(format!("removed {}, {what}", path.display()));
    Ok(Exit::CLEAN)
}

/// What would be gone, and how it is.
fn about(observer: &Observer) -> Outcome<(String, String)> {
    let superblock = observer.superblock()?;
    // A heap that cannot be counted does not keep a pool.
    let objects = observer.space().map_or(0, |space| space.objects);
    let (size, objects) = (show(superblock.size), count(objects, "object"));
    let state = state(observer.holder(), superblock.clean);
    Ok((format!("{size} with {objects}"), format!(", {state}")))
}

/// Asks, on the terminal, and waits for a line; an interrupt ends the wait.
fn confirmed(out: Out, question: &str) -> Outcome<bool> {
    out.ask(question);
    let (tell, told) = sync_channel(1);
    let work = move || {
        let mut line = String::new();
        let read = stdin().read_line(&mut line);
        let _ = tell.send(read.map(|_| line));
    };
    let named = std::thread::Builder::new().name("answer".to_owned());
    named.spawn(work).map_err(|error| Failure::io("a thread that waits for an answer", &error))?;
    while !crate::interrupt::asked() {
        match told.recv_timeout(LOOK) {
            Ok(Ok(line)) => return Ok(matches!(line.trim(), "y" | "Y" | "yes")),
            Ok(Err(error)) => return Err(Failure::io("standard input", &error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
    Err(Failure::interrupted("nothing was removed"))
}
