//! Where all threads are: what there is to go by if a case does not end.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};

/// Seconds that it may take. The program stands still meanwhile.
const PATIENCE: &str = "60";
/// Calls of each thread that are told.
const DEPTH: &str = "60";

/// The calls that each thread of this program is in, by the debugger `gdb`, one to a line.
///
/// # Errors
/// There is no debugger, or it may not look; what it said.
pub fn of_all_threads() -> Result<String, String> {
    let pid = std::process::id().to_string();
    let calls = format!("thread apply all backtrace {DEPTH}");
    // This program cannot end it: it is stopped as well.
    let mut debugger = Command::new("timeout");
    debugger.args(["-k", "5", PATIENCE, "gdb", "-nx", "-batch", "-p", &pid]);
    debugger.args(["-ex", "set print frame-arguments none", "-ex", &calls]);
    let failed = |error: std::io::Error| format!("gdb was not started: {error}");
    // Into files: a pipe would be full, and its reader stands still.
    let (mut out, mut errors) =
        (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    debugger.stdin(Stdio::null());
    debugger.stdout(out.try_clone().map_err(failed)?);
    debugger.stderr(errors.try_clone().map_err(failed)?);
    debugger.status().map_err(failed)?;
    let said = |file: &mut File| {
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).map_err(failed)
    };
    let is_told = |line: &&str| line.starts_with('#') || line.starts_with("Thread ");
    let stacks = said(&mut out)?;
    let stacks: Vec<&str> = stacks.lines().filter(is_told).collect();
    if stacks.is_empty() {
        let why = said(&mut errors)?;
        let why = why.trim().lines().last().unwrap_or("it said nothing").to_owned();
        return Err(format!("gdb tells no calls: {why}"));
    }
    Ok(stacks.join("\n"))
}

/// Tells them, or why they are not known.
pub fn tell() {
    match of_all_threads() {
        Ok(stacks) => eprintln!("where its threads are:\n{stacks}"),
        Err(why) => eprintln!("where its threads are is not known: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[inline(never)]
    fn waits_for_ever(from: &mpsc::Receiver<()>) {
        // Not the last thing that it does, so that it is a call of its own.
        std::hint::black_box(from.recv().is_ok());
    }

    #[test]
    fn it_is_told_where_another_thread_waits() {
        let (end, wait) = mpsc::channel();
        let waiter = std::thread::spawn(move || waits_for_ever(&wait));
        std::thread::sleep(std::time::Duration::from_millis(100));
        match of_all_threads() {
            Ok(stacks) => assert!(stacks.contains("waits_for_ever"), "{stacks}"),
            Err(why) => eprintln!("skipped: {why}"),
        }
        drop(end);
        waiter.join().unwrap();
    }
}
