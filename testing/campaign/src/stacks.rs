//! Where all threads are: what there is to go by if a case does not end.

use std::process::Command;

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
    debugger.args([PATIENCE, "gdb", "-nx", "-batch", "-p", &pid]);
    debugger.args(["-ex", "set print frame-arguments none", "-ex", &calls]);
    let said = debugger.output().map_err(|error| format!("gdb was not started: {error}"))?;
    let is_told = |line: &&str| line.starts_with('#') || line.starts_with("Thread ");
    let stacks = String::from_utf8_lossy(&said.stdout);
    let stacks: Vec<&str> = stacks.lines().filter(is_told).collect();
    if stacks.is_empty() {
        let why = String::from_utf8_lossy(&said.stderr);
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
